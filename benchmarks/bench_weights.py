# SPDX-License-Identifier: MIT
"""Products of few rows with a large weight, which memory bounds: GB/s of the weight by dtype, and the machine's."""

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from harness import Entry, Groups, Session, main, show_roofline
from peers import normal, shape_name

import rocpy
from rocpy import dtypes
from rocpy.cli._output import print_table

DTYPES = ("float32", "bfloat16", "int8", "float8_e4m3fn")
ROWS = (1, 2, 4)
SIDE = 4096


def operand(name: str, shape: tuple[int, int], dtype: str) -> np.ndarray[Any, Any]:
    """Return normal values; small integers for int8."""
    values = normal(name, *shape, dtype="float32")
    return (values * 20).astype(np.int8) if dtype == "int8" else values.astype(dtypes.lookup(dtype).numpy)


def case_of(rows: int, side: int, dtype: str) -> str:
    """Return the name of a product."""
    return f"{shape_name((rows, side, side))} {dtype}"


def groups(*, quick: bool) -> Groups:
    side = 256 if quick else SIDE
    for dtype in DTYPES:
        for rows in ROWS:
            yield case_of(rows, side, dtype), (rows, side, dtype)


def run(session: Session, products: Sequence[tuple[int, int, str]]) -> None:
    session.roofline()
    compared = []
    for rows, side, dtype in products:
        a, b = operand("a", (rows, side), dtype), operand("b", (side, side), dtype)
        # Quantized values have scales; those of int8 may be left out, and the result is int32 then.
        scales = {"scale_a": 1.0, "scale_b": 1.0} if dtype == "float8_e4m3fn" else {}
        names = {"rocpy": rocpy, "a": a, "b": b, "weight": rocpy.Weight(b), "scales": scales}
        entries = [
            Entry("rocpy", "rocpy.matmul(a, b, **scales)", names),
            Entry("rocpy Weight", "rocpy.matmul(a, weight, **scales)", names),
        ]
        case = case_of(rows, side, dtype)
        measured = session.compare(case, entries, against="rocpy", dtype=dtype, quiet=True, shape=(rows, side, side))
        compared.append((case, b.nbytes, measured))
    roofline, cells = session.roofline(), []
    for case, size, measured in compared:
        # The two take turns with a weight each: a working set of both is what caches hold a part of.
        bandwidth = roofline.rate(2 * size) if roofline.bandwidth else None
        line = [case]
        for row in measured:
            row["gigabytes_per_second"] = size / row["best_us"] / 1e3
            row["of_bandwidth"] = row["gigabytes_per_second"] / bandwidth if bandwidth else None
            line += [f"{row['best_us']:.0f}", f"{row['gigabytes_per_second']:.1f}"]
            line.append("" if row["of_bandwidth"] is None else f"{row['of_bandwidth']:.2f}")
        line.append(f"{measured[0]['best_us'] / measured[1]['best_us']:.2f}")
        cells.append(line)
    figures = ("us", "GB/s", "of memory")
    columns = ("product", *figures, *(f"packed {figure}" for figure in figures), "packed / unpacked speed")
    print_table(f"weights: {session.threads} threads, {session.clock} time", columns, cells, numbers=columns[1:])
    show_roofline(roofline)


if __name__ == "__main__":
    sys.exit(main("weights", groups, run, threads=(1, 2)))
