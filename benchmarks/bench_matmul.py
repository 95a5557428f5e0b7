# SPDX-License-Identifier: MIT
"""Plain products: square, transformer and decode shapes, by dtype and threads, against torch, numpy and MKL."""

import sys
import timeit
from functools import partial
from typing import Any

from harness import Entry, Groups, Session, main
from peers import normal, nvmath_with, shape_name, to_torch, torch_with

import rocpy
from rocpy.testing.cases import SHAPES

SQUARES = tuple((n, n, n) for n in (256, 512, 1024, 2048))
ALL_SHAPES = (*SQUARES, *SHAPES["transformer"], *SHAPES["decode"])
# numpy has no fast product below float32, and nvmath-python's CPU path none at all.
WIDE = ("float32", "float64")
SLOW_S = 1.0


def groups(*, quick: bool) -> Groups:
    for shape in ((64, 64, 64),) if quick else ALL_SHAPES:
        for dtype in ("float32", "float64", "float16", "bfloat16"):
            if dtype != "float64" or shape in SQUARES:
                yield f"{shape_name(shape)} {dtype}", partial(one, shape=shape, dtype=dtype)
        yield f"{shape_name(shape)} own dtypes", partial(own_dtypes, shape=shape)


def one(session: Session, shape: tuple[int, int, int], dtype: str) -> None:
    m, n, k = shape
    a, b = normal("a", m, k, dtype=dtype), normal("b", k, n, dtype=dtype)
    names = {"rocpy": rocpy, "a": a, "b": b, "weight": rocpy.Weight(b)}
    entries = [Entry("rocpy", "rocpy.matmul(a, b)", names), Entry("rocpy Weight", "rocpy.matmul(a, weight)", names)]
    torch = torch_with(session)
    if torch is not None:
        entries += torch_entry(session, to_torch(torch, a), to_torch(torch, b), dtype)
    if dtype in WIDE:
        entries.append(Entry("numpy", "a @ b", names))
        nvmath = nvmath_with(session)
        if nvmath is not None:
            entries.append(Entry("nvmath (MKL)", "planned.execute()", {"planned": nvmath.planned(a, b)}))
    labels = {entry.label for entry in entries}
    against = next((label for label in ("torch", "numpy") if label in labels), None)
    session.compare(
        f"{shape_name(shape)} {dtype}", entries, against=against, flops=2.0 * m * n * k, dtype=dtype, shape=shape
    )


def torch_entry(session: Session, a: Any, b: Any, dtype: str) -> list[Entry]:
    """Return torch as a rival, unless one call takes so long that it would hold up all others."""
    entry = Entry("torch", "a @ b", {"a": a, "b": b})
    taken = timeit.timeit(entry.statement, number=1, globals=dict(entry.names))
    if taken < SLOW_S:
        return [entry]
    session.note(f"torch takes {taken:.1f} s for {tuple(a.shape)} @ {tuple(b.shape)} {dtype}: left out")
    return []


def own_dtypes(session: Session, shape: tuple[int, int, int]) -> None:
    """Compare the narrow types with rocpy's own float32: half the memory traffic against the cost of conversion."""
    m, n, k = shape
    entries = []
    for dtype in ("float32", "bfloat16", "float16"):
        a, b = normal("a", m, k, dtype=dtype), normal("b", k, n, dtype=dtype)
        names = {"rocpy": rocpy, "a": a, "b": b, "weight": rocpy.Weight(b)}
        entries.append(Entry(f"rocpy {dtype}", "rocpy.matmul(a, b)", names))
        entries.append(Entry(f"rocpy Weight {dtype}", "rocpy.matmul(a, weight)", names))
    session.compare(
        f"{shape_name(shape)} own dtypes", entries, against="rocpy float32", flops=2.0 * m * n * k, shape=shape
    )


if __name__ == "__main__":
    sys.exit(main("matmul", groups, threads=(1, 2)))
