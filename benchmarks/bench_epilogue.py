# SPDX-License-Identifier: MIT
"""Bias and GELU inside the product, with the pre-activation and without, against torch's linear and gelu.

A last table judges float32 with bias and GELU, by torch eager's time and by the roofline of the product alone.
"""

import sys
import warnings
from collections.abc import Sequence

import machine
import numpy as np
from harness import Entry, Groups, Row, Session, main, number, ran_on, show_roofline, verdict_of
from peers import normal, shape_name, to_torch, torch_with

import rocpy
from rocpy.cli._output import print_table, say
from rocpy.testing.cases import SHAPES

SHAPES_OF_LAYERS = (*SHAPES["transformer"], (1024, 1024, 1024), *SHAPES["decode"])
FEW_ROWS = ((2, 4096, 4096), (4, 4096, 4096), (16, 4096, 4096))
EAGER, FUSED, PACKED = "torch eager", "rocpy gelu_bias", "rocpy Weight gelu_bias"

Problem = tuple[tuple[int, int, int], str]


def groups(*, quick: bool) -> Groups:
    shapes = ((64, 96, 48),) if quick else SHAPES_OF_LAYERS
    problems = [(shape, dtype) for shape in shapes for dtype in ("float32", "bfloat16", "float16")]
    problems += [] if quick else [(shape, "float32") for shape in FEW_ROWS]
    for shape, dtype in problems:
        yield f"{shape_name(shape)} {dtype}", (shape, dtype)


def wanted(rows: int) -> float:
    """Return how many times as fast as torch eager float32 with bias and GELU is to be; one row is bound by memory."""
    return 1.4 if 2 <= rows <= 16 else 1.35 if rows > 1 else 1.0


def run(session: Session, problems: Sequence[Problem]) -> None:
    session.roofline()
    compared = []
    for shape, dtype in problems:
        rows = {row["label"]: row for row in one(session, shape, dtype)}
        if dtype == "float32" and EAGER in rows:
            compared.append((shape, rows))
    roofline, judged = session.roofline(), []
    for shape, rows in compared:
        for label in (FUSED, PACKED):
            rows[label] |= judge(rows[label], rows[EAGER], shape, roofline, len(rows))
            judged.append(rows[label])
    if judged:
        show(session, judged, roofline)


def judge(own: Row, eager: Row, shape: tuple[int, int, int], roofline: machine.Roofline, entries: int) -> Row:
    """Return what is wanted of a fused product and the verdict on it."""
    bound = roofline.microseconds(shape, own["dtype"], own["calls_per_sample"], entries)
    ratio, share = eager["best_us"] / own["best_us"], None if bound is None else bound / own["best_us"]
    verdict = verdict_of(ratio, wanted(shape[0]), share, own["spread"] + eager["spread"])
    return {"wanted": wanted(shape[0]), "roofline_us": bound, "of_roofline": share, "verdict": verdict}


def show(session: Session, rows: list[Row], roofline: machine.Roofline) -> None:
    """Print a line for each judged product."""
    figures = ("best us", "eager / rocpy", "wanted", "of roofline")
    cells = [
        (
            f"{row['case']}, {row['label']}",
            number(row["best_us"]),
            f"{row['speed_best']:.2f}",
            f"{row['wanted']:.2f}",
            "" if row["of_roofline"] is None else f"{row['of_roofline']:.2f}",
            row["verdict"],
        )
        for row in rows
    ]
    threads = "1 thread" if session.threads == 1 else f"{session.threads} threads"
    print_table(f"epilogue: {threads}, {session.clock} time", ("product", *figures, ""), cells, numbers=figures)
    show_roofline(roofline)
    say(ran_on(rows[0]) + "\n")
    sys.stdout.flush()


def one(session: Session, shape: tuple[int, int, int], dtype: str) -> list[Row]:
    """Measure one shape."""
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
        Entry(FUSED, 'rocpy.matmul(x, w.T, epilogue="gelu_bias", bias=bias)', names),
        Entry("rocpy gelu_aux_bias", 'rocpy.matmul(x, w.T, epilogue="gelu_aux_bias", bias=bias)', names),
        Entry("rocpy Weight plain", "rocpy.matmul(x, weight)", names),
        Entry(PACKED, 'rocpy.matmul(x, weight, epilogue="gelu_bias")', names),
        Entry("rocpy Weight gelu_aux_bias", 'rocpy.matmul(x, weight, epilogue="gelu_aux_bias")', names),
    ]
    if torch is not None:
        entries += torch_entries(session, torch, x, w, bias)
        agree(x, w, bias)
    return session.compare(
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
    sys.exit(main("epilogue", groups, run))
