# SPDX-License-Identifier: MIT
"""Bias and GELU inside the product, with the pre-activation and without, against torch's linear and gelu."""

import sys
import warnings
from functools import partial

import numpy as np
from harness import Entry, Groups, Session, main
from peers import normal, shape_name, to_torch, torch_with

import rocpy
from rocpy.testing.cases import SHAPES

SHAPES_OF_LAYERS = (*SHAPES["transformer"], (1024, 1024, 1024), *SHAPES["decode"])
EAGER = "torch eager"


def groups(*, quick: bool) -> Groups:
    for shape in ((64, 96, 48),) if quick else SHAPES_OF_LAYERS:
        for dtype in ("float32", "bfloat16", "float16"):
            yield f"{shape_name(shape)} {dtype}", partial(one, shape=shape, dtype=dtype)


def one(session: Session, shape: tuple[int, int, int], dtype: str) -> None:
    m, n, k = shape
    # Weights as a linear layer stores them, (N, K), and of the size that keeps the result near one.
    x, w, bias = (
        normal("x", m, k, dtype=dtype),
        normal("w", n, k, dtype=dtype, scale=k**-0.5),
        normal("bias", n, dtype=dtype),
    )
    torch = torch_with(session)
    if torch is not None:
        x, w, bias = (to_torch(torch, array) for array in (x, w, bias))
    names = {
        "rocpy": rocpy,
        "torch": torch,
        "x": x,
        "w": w,
        "bias": bias,
        "weight": rocpy.Weight(w, bias=bias, layout="nk"),
    }
    entries = [
        Entry("rocpy plain", "rocpy.matmul(x, w.T)", names),
        Entry("rocpy gelu_bias", 'rocpy.matmul(x, w.T, epilogue="gelu_bias", bias=bias)', names),
        Entry("rocpy gelu_aux_bias", 'rocpy.matmul(x, w.T, epilogue="gelu_aux_bias", bias=bias)', names),
        Entry("rocpy Weight plain", "rocpy.matmul(x, weight)", names),
        Entry("rocpy Weight gelu_bias", 'rocpy.matmul(x, weight, epilogue="gelu_bias")', names),
        Entry("rocpy Weight gelu_aux_bias", 'rocpy.matmul(x, weight, epilogue="gelu_aux_bias")', names),
    ]
    if torch is not None:
        entries += torch_entries(session, torch, x, w, bias)
        agree(x, w, bias)
    session.compare(
        f"{shape_name(shape)} {dtype} gelu_bias",
        entries,
        against=EAGER if torch is not None else "rocpy plain",
        flops=2.0 * m * n * k,
        dtype=dtype,
        shape=shape,
    )


def torch_entries(session: Session, torch: object, x: object, w: object, bias: object) -> list[Entry]:
    """Return eager and, where a C++ compiler lets it, compiled."""
    functional = torch.nn.functional

    def layer(x: object, w: object, bias: object) -> object:
        return functional.gelu(functional.linear(x, w, bias), approximate="tanh")

    names = {"x": x, "w": w, "bias": bias, "layer": layer}
    entries = [
        Entry("torch plain", "linear(x, w, bias)", names | {"linear": functional.linear}),
        Entry(EAGER, "layer(x, w, bias)", names),
    ]
    if session.quick:
        session.note("torch.compile is left out of a quick run")
        return entries
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compiled = torch.compile(layer, dynamic=False)
            compiled(x, w, bias)
    except Exception as error:  # noqa: BLE001  whatever its toolchain raises, the other rivals are still measured
        session.note(f"torch.compile does not work here: {type(error).__name__}: {str(error).splitlines()[0][:120]}")
        return entries
    return [*entries, Entry("torch.compile", "layer(x, w, bias)", names | {"layer": compiled})]


def agree(x: object, w: object, bias: object) -> None:
    """Refuse to time products that differ: a fast wrong answer is no result."""
    from torch.nn import functional

    ours = rocpy.matmul(x, w.T, epilogue="gelu_bias", bias=bias).double().numpy()
    theirs = functional.gelu(functional.linear(x.double(), w.double(), bias.double()), approximate="tanh").numpy()
    error = float(np.abs(ours - theirs).max())
    limit = {"torch.float32": 1e-4, "torch.float16": 1e-2, "torch.bfloat16": 6e-2}[str(x.dtype)]
    if error > limit:
        raise RuntimeError(
            f"rocpy differs from torch in float64 by {error:g}, more than {limit:g}, for {tuple(x.shape)} {x.dtype}"
        )


if __name__ == "__main__":
    sys.exit(main("epilogue", groups))
