# SPDX-License-Identifier: MIT
"""MX operands: few rows against a large weight, by the tiles that take every shape, as the plan has it, and packed."""

import sys
from functools import partial

import numpy as np
from harness import Entry, Groups, Session, main
from peers import normal, shape_name

import rocpy

SHAPES = ((1, 4096, 4096), (8, 4096, 4096), (16, 4096, 4096), (512, 3072, 768))
TYPES = ("float8_e4m3fn", "float6_e2m3fn", "float4_e2m1fn")


def groups(*, quick: bool) -> Groups:
    for shape in ((4, 64, 64),) if quick else SHAPES:
        yield shape_name(shape), partial(one, shape=shape)


def one(session: Session, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    x, w = normal("x", m, k), normal("w", k, n, scale=k**-0.5)
    entries = [Entry("float32 Weight", "rocpy.matmul(x, w)", {"rocpy": rocpy, "x": x, "w": rocpy.Weight(w)})]
    for dtype in TYPES:
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
    sys.exit(main("mx", groups))
