# SPDX-License-Identifier: MIT
"""Plain products: square, transformer and decode shapes, by dtype and threads, against torch, numpy and MKL; and MX."""

import sys
import timeit
from functools import partial
from typing import Any

import numpy as np
from harness import Entry, Groups, Session, main
from peers import normal, nvmath_with, shape_name, to_torch, torch_with

import rocpy
from rocpy.testing.cases import SHAPES

SQUARES = tuple((n, n, n) for n in (256, 512, 1024, 2048))
ALL_SHAPES = (*SQUARES, *SHAPES["transformer"], *SHAPES["decode"])
# numpy has no fast product below float32, and nvmath-python's CPU path none at all.
WIDE = ("float32", "float64")
SLOW_S = 1.0
MX_SHAPES = ((1, 4096, 4096), (8, 4096, 4096), (16, 4096, 4096), (512, 3072, 768))
MX_TYPES = ("float8_e4m3fn", "float6_e2m3fn", "float4_e2m1fn")


def groups(*, quick: bool) -> Groups:
    for shape in ((64, 64, 64),) if quick else ALL_SHAPES:
        for dtype in ("float32", "float64", "float16", "bfloat16"):
            if dtype != "float64" or shape in SQUARES:
                yield f"{shape_name(shape)} {dtype}", partial(one, shape=shape, dtype=dtype)
        yield f"{shape_name(shape)} own dtypes", partial(own_dtypes, shape=shape)
    for shape in ((4, 64, 64),) if quick else MX_SHAPES:
        yield f"{shape_name(shape)} MX", partial(mx, shape=shape)


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


def mx(session: Session, shape: tuple[int, int, int]) -> None:
    """Compare MX operands by the tiles that take every shape, as the plan has it, and packed."""
    m, n, k = shape
    x, w = normal("x", m, k), normal("w", k, n, scale=k**-0.5)
    entries = [Entry("float32 Weight", "rocpy.matmul(x, w)", {"rocpy": rocpy, "x": x, "w": rocpy.Weight(w)})]
    for dtype in MX_TYPES:
        a, scale_a = rocpy.quantize_mx(x, dtype)
        b, scale_b = rocpy.quantize_mx(w, dtype, axis=-2)
        # Packed along K once, as a model would keep it: packing is not what is measured.
        plain = rocpy.Matmul(a, b, scale_a=scale_a, scale_b=scale_b, dtype="float32")
        weight = rocpy.Weight(b, scale=scale_b)
        packed = rocpy.Matmul(a, weight, scale_a=scale_a, dtype="float32")
        tiles = next(found for found in plain.plan() if found.name.startswith("direct"))
        wanted = rocpy.dequantize_mx(a, scale_a) @ rocpy.dequantize_mx(b, scale_b, axis=-2)
        for product in (plain, packed):
            np.testing.assert_allclose(product.execute(), wanted, rtol=1e-3, atol=1e-3)
        names = {"plain": plain, "packed": packed, "tiles": tiles}
        entries += [
            Entry(f"{dtype} {tiles.name}", "plain.execute(algorithm=tiles)", names),
            Entry(f"{dtype} {plain.algorithm.name}", "plain.execute()", names),
            Entry(f"{dtype} Weight {packed.plan()[0].name}", "packed.execute()", names),
        ]
    session.compare(
        f"{shape_name(shape)} MX", entries, against="float32 Weight", flops=2.0 * m * n * k, dtype="MX", shape=shape
    )


if __name__ == "__main__":
    sys.exit(main("matmul", groups, threads=(1, 2)))
