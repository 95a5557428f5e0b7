# SPDX-License-Identifier: MIT
"""Bias, SiLU and a residual as a tile program inside the product, against torch and the built-in epilogue."""

import sys
import warnings
from functools import partial

import numpy as np
from harness import Entry, Groups, Session, main
from peers import normal, shape_name, to_torch, torch_with

import rocpy
from rocpy.blaslt.custom.tile import product
from rocpy.blaslt.engine.program import TileProgram

SHAPES_OF_LAYERS = ((512, 3072, 768), (64, 3072, 768), (8, 4096, 4096))
EAGER = "torch eager"
SILU_RESIDUAL = TileProgram(
    [("VALUE", 0), ("INPUT", 1, 0), ("ADD", 0, 0, 1), ("SILU", 0, 0), ("INPUT", 2, 1), ("ADD", 0, 0, 2)], 0, inputs=2
)
GELU = TileProgram([("VALUE", 0), ("GELU", 0, 0)], 0)


def groups(*, quick: bool) -> Groups:
    for shape in ((64, 96, 48),) if quick else SHAPES_OF_LAYERS:
        for dtype in ("float32", "bfloat16"):
            yield f"{shape_name(shape)} {dtype}", partial(one, shape=shape, dtype=dtype)


def one(session: Session, shape: tuple[int, int, int], dtype: str) -> None:
    m, n, k = shape
    arrays = {
        "x": normal("x", m, k, dtype=dtype),
        "w": normal("w", n, k, dtype=dtype, scale=k**-0.5),
        "bias": normal("bias", n, dtype=dtype),
        "residual": normal("residual", m, n, dtype=dtype),
    }
    torch = torch_with(session)
    if torch is not None:
        arrays = {name: to_torch(torch, array) for name, array in arrays.items()}
    names = arrays | {"rocpy": rocpy, "product": product, "gelu": GELU, "program": SILU_RESIDUAL}
    fused = "product(x, w.T, program=program, inputs=(bias, residual))[0]"
    entries = [
        Entry("rocpy plain", "rocpy.matmul(x, w.T)", names),
        Entry("rocpy gelu_bias", 'rocpy.matmul(x, w.T, epilogue="gelu_bias", bias=bias)', names),
        Entry("rocpy gelu_bias as a program", "product(x, w.T, program=gelu, bias=bias)[0]", names),
        Entry("rocpy gelu_erf_bias", 'rocpy.matmul(x, w.T, epilogue="gelu_erf_bias", bias=bias)', names),
        Entry("rocpy silu(bias) + residual", fused, names),
    ]
    if torch is not None:
        entries += torch_entries(session, torch, arrays)
        inputs = arrays["bias"], arrays["residual"]
        seen = product(arrays["x"], arrays["w"].T, program=SILU_RESIDUAL, inputs=inputs)[0]
        wide = {name: array.double() for name, array in arrays.items()}
        pre = torch.nn.functional.linear(wide["x"], wide["w"], wide["bias"])
        np.testing.assert_allclose(
            seen.double().numpy(), (torch.nn.functional.silu(pre) + wide["residual"]).numpy(), rtol=0.02, atol=0.02
        )
    session.compare(
        f"{shape_name(shape)} {dtype} silu(bias) + residual",
        entries,
        against=EAGER if torch is not None else "rocpy plain",
        flops=2.0 * m * n * k,
        dtype=dtype,
        shape=shape,
    )


def torch_entries(session: Session, torch: object, arrays: dict[str, object]) -> list[Entry]:
    """Return eager and, where a C++ compiler lets it, compiled."""
    functional = torch.nn.functional

    def layer(x: object, w: object, bias: object, residual: object) -> object:
        return functional.silu(functional.linear(x, w, bias)) + residual

    statement = "layer(x, w, bias, residual)"
    entries = [Entry(EAGER, statement, arrays | {"layer": layer})]
    if session.quick:
        session.note("torch.compile is left out of a quick run")
        return entries
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compiled = torch.compile(layer, dynamic=False)
            compiled(*(arrays[name] for name in ("x", "w", "bias", "residual")))
    except Exception as error:  # noqa: BLE001  whatever its toolchain raises, the other rivals are still measured
        session.note(f"torch.compile left out: {type(error).__name__}: {str(error).splitlines()[0]}")
        return entries
    return [*entries, Entry("torch.compile", statement, arrays | {"layer": compiled})]


if __name__ == "__main__":
    sys.exit(main("custom_epilogue", groups))
