# SPDX-License-Identifier: MIT
"""Writes the case list for the driver: products in hipBLASLt's terms with operands, the oracle's values and bounds.

The same cases, operands, oracle and bounds as in Python's tests. What the binding copies or loops over before it calls
the library is copied here, and each call is a case of its own. A JSON file describes the cases, a binary one beside it
holds the arrays. Needs numpy and ml_dtypes, and no built package.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

# The package itself would open compiled modules, which need not exist here.
_ROOT = Path(__file__).resolve().parents[3]
_package = types.ModuleType("rocpy_testing")
_package.__path__ = [str(_ROOT / "rocpy" / "testing")]
sys.modules["rocpy_testing"] = _package

from rocpy_testing import cases, runner, tolerance  # noqa: E402
from rocpy_testing.oracles import lookup  # noqa: E402

ALIGNMENT = 64
# What the driver finds where nothing may be read: NaN in most types.
PADDING = 0xFF
BITS = {"float6_e2m3fn": 6, "float6_e3m2fn": 6, "float4_e2m1fn": 4}


class Blob:
    """The binary file: arrays one after the other, each at its place."""

    def __init__(self, file):
        self.file = file
        self.at = 0

    def put(self, array) -> list[int]:
        """Append an array's bytes; return where they begin and how many they are."""
        data = np.ascontiguousarray(array).tobytes()
        gap = -self.at % ALIGNMENT
        self.file.write(b"\0" * gap + data)
        self.at += gap + len(data)
        return [self.at - len(data), len(data)]


def packed(codes: np.ndarray, bits: int) -> np.ndarray:
    """Return codes, one to a byte, packed along the last axis, the first in the lowest bits."""
    lines = np.unpackbits(codes[..., None], axis=-1, bitorder="little")[..., :bits]
    return np.packbits(lines.reshape(*codes.shape[:-1], -1), axis=-1, bitorder="little")


def entries(array: np.ndarray, batch: tuple[int, ...], tail: int = 2) -> np.ndarray:
    """Return an array as (entries, ...): one entry where it has one for all, else one for each of the batch."""
    inner = array.shape[array.ndim - tail :]
    if array.size == int(np.prod(inner)):
        return array.reshape(1, *inner)
    return np.broadcast_to(array, (*batch, *inner)).reshape(-1, *inner)


def matrix(blob: Blob, values: np.ndarray, batch: int, ld: int, gap: int, name: str) -> dict:
    """Write and describe matrices of shape (entries, lines, elements), lines ``ld`` apart, ``gap`` after each entry."""
    count, lines, length = values.shape
    bits = BITS.get(name, 8 * values.dtype.itemsize)
    step = ld * lines + gap
    if bits < 8:
        data = blob.put(packed(values.view(np.uint8), bits))
    else:
        memory = np.full(count * step * values.dtype.itemsize, PADDING, np.uint8).view(values.dtype)
        memory.reshape(count, step)[:, : ld * lines].reshape(count, lines, ld)[:, :, :length] = values
        data = blob.put(memory)
    stride = step if count > 1 or batch == 1 else 0
    return {"type": name, "rows": length, "columns": lines, "ld": ld, "batch_stride": stride, "data": data}


def factor(blob: Blob, array: np.ndarray, letter: str, batch: tuple[int, ...], name: str) -> tuple[dict, bool]:
    """Write an operand of a product; return how it lies as a matrix in columns, and whether it lies transposed."""
    count = int(np.prod(batch))
    values = entries(array, batch)
    transposed, padding = letter in "tq", letter in "pq"
    if transposed:
        values = np.swapaxes(values, -1, -2)
    length = values.shape[-1]
    return matrix(blob, values, count, length + 3 * padding, 5 * padding, name), transposed


def vector(blob: Blob, values: np.ndarray, name: str) -> dict:
    """Write one vector, or one for each batch entry with a gap after each."""
    count, length = values.shape
    memory = np.full((count, length + (count > 1)), PADDING, np.uint8).repeat(values.dtype.itemsize, axis=-1)
    memory = memory.view(values.dtype)
    memory[:, :length] = values
    return {"type": name, "length": length, "batch_stride": length + 1 if count > 1 else 0, "data": blob.put(memory)}


def wanted(blob: Blob, values: np.ndarray, limits: np.ndarray, kind: np.dtype, exact: bool) -> list[int]:
    """Write what an output must be, and how far each element may be from it."""
    if exact:
        values, limits = runner.saturated(values, kind).astype(values.dtype), np.zeros(values.shape)
    elif kind.itemsize == 1:
        largest = tolerance.FORMATS[kind.name].max_value
        values = np.clip(values, -largest, largest)
    limits = np.broadcast_to(limits, values.shape)
    return [blob.put(values)[0], blob.put(limits.astype(np.float64))[0]]


def library_epilogue(name: str, swapped: bool) -> str:
    """Return an epilogue's name in hipBLASLt, whose A is the user's b where the product is swapped."""
    return {"bgrada": "bgradb", "bgradb": "bgrada"}.get(name, name) if swapped else name


@dataclasses.dataclass
class Call:
    """One call of the library: a case, or one batch entry of it."""

    case: Any
    name: str
    batch: tuple[int, ...]
    operands: dict[str, np.ndarray]
    outputs: dict[str, np.ndarray]
    limits: dict[str, np.ndarray]


def calls(case) -> Iterator[Call]:
    """Return the calls of a case: one for each batch entry where they differ in their scales, as the library wants."""
    operands = runner.make_operands(case)
    expected = runner.reference(case, operands)
    outputs = {"result": expected.result, **expected.aux}
    if expected.amax is not None:
        outputs["amax"] = np.asarray(expected.amax)
    limits = tolerance.bounds(expected, runner.dtype_of(case.result_dtype))
    if case.scale != "batch":
        yield Call(case, case.name, case.batch, operands, outputs, limits)
        return
    for entry in range(int(np.prod(case.batch))):

        def at(arrays, entry=entry):
            found = {}
            for name, array in arrays.items():
                one_axis = name in ("bias", "scale_a", "scale_b", "bgrad", "bgrada", "bgradb")
                each = entries(array, case.batch, 1 if one_axis else 2)
                found[name] = each[entry if len(each) > 1 else 0]
            return found

        yield Call(case, f"{case.name}[{entry}]", (), at(operands), at(outputs), at(limits))


def describe(blob: Blob, call: Call) -> dict:
    """Write a call's arrays and return the rest of it."""
    case, operands, outputs, limits = call.case, call.operands, call.outputs, call.limits
    oracle = lookup(case.epilogue)
    result = runner.dtype_of(case.result_dtype)
    exact = (case.data == "integers" and oracle.is_linear) or case.result_dtype in ("int32", "int8")
    batch, count = call.batch, int(np.prod(call.batch))
    swapped = not (oracle.bias and case.bias == "column")
    blocks = case.scale == "block32"

    letters = ["n", "t"] if blocks else list(case.layout)
    left, left_turned = factor(blob, operands["a"], letters[0], batch, case.dtype)
    right, right_turned = factor(blob, operands["b"], letters[1], batch, case.dtype_b or case.dtype)
    # A matrix in rows is its transpose in columns.
    if swapped:
        first, second, op_a, op_b = right, left, right_turned, left_turned
    else:
        first, second, op_a, op_b = left, right, not left_turned, not right_turned
    m, n = (case.n, case.m) if swapped else (case.m, case.n)

    def turned(array: np.ndarray) -> np.ndarray:
        """Return what lies like the result, as (entries, n, m)."""
        values = np.broadcast_to(array, (*batch, case.m, case.n)).reshape(count, case.m, case.n)
        return values if swapped else np.swapaxes(values, -1, -2)

    # Padding of the written matrices varies with the seed, so that a stray write shows.
    pad = case.seed % 3
    in_place = case.beta != 0 and case.seed % 2 == 0
    by_rows = not swapped and oracle.aux_out is None and case.seed % 2 == 0
    plain = np.zeros((count, n, m), result)
    c = turned(operands["c"]) if "c" in operands else plain
    c = np.swapaxes(c, -1, -2) if by_rows else c
    lines = c.shape[-1]
    description = {
        "name": call.name,
        "m": m,
        "n": n,
        "k": case.k,
        "batch": count,
        "flops": case.flops / int(np.prod(case.batch)) * count,
        "epilogue": library_epilogue(case.epilogue, swapped),
        "compute": "int32" if case.dtype == "int8" else tolerance.compute_dtype(result),
        "factors": case.result_dtype
        if result.kind == "c" or case.result_dtype == "float64"
        else ("int32" if result.kind == "i" else "float32"),
        "alpha": [case.alpha, case.alpha_imaginary],
        "beta": [case.beta, 0.0],
        "clamp": list(runner.keywords(case).get("clamp", (0.0, 0.0))),
        "op_a": op_a,
        "op_b": op_b,
        "a": first,
        "b": second,
        "c": matrix(blob, c, count, lines + (pad if in_place else 2), pad, case.result_dtype),
        "d": {"type": case.result_dtype, "rows": m, "columns": n, "ld": lines + pad},
        "by_rows": by_rows,
        "in_place": in_place,
        "scale": case.scale.replace("batch", "vector"),
        "amax": case.amax,
    }
    description["c"].update(rows=m, columns=n)
    description["d"]["batch_stride"] = (lines + pad) * (m * n // lines) + pad
    description["wanted"] = wanted(blob, turned(outputs["result"]), turned(limits["result"]), result, exact)
    if oracle.bias:
        bias = operands["bias"]
        bias = bias.reshape(1, case.m) if case.bias == "column" else entries(bias, batch, 1)
        description["bias"] = vector(blob, bias, runner.bias_dtype_of(case).name)
    if oracle.sums:
        name = "float32" if result.itemsize == 1 else case.result_dtype
        kind = runner.dtype_of(name)
        sums, bounds = (
            np.broadcast_to(x, (*batch, x.shape[-1])).reshape(count, -1)
            for x in (outputs[oracle.sums], limits[oracle.sums])
        )
        description["sums"] = {"type": name, "length": sums.shape[-1], "batch_stride": sums.shape[-1] + (count > 1)}
        description["sums"]["wanted"] = wanted(blob, sums, bounds, kind, exact)
    if oracle.aux_in or oracle.aux_out:
        values = turned(operands["aux"]) if oracle.aux_in else plain
        description["aux"] = matrix(blob, values, count, m + 1, 0, case.result_dtype)
        if oracle.aux_out:
            name = oracle.aux_out
            description["aux"]["wanted"] = wanted(blob, turned(outputs[name]), turned(limits[name]), result, exact)
    if case.scale:
        for name, lines in (("scale_a", case.m), ("scale_b", case.n)):
            scale = operands[name]
            if blocks:
                scale = scale if name == "scale_a" else np.swapaxes(scale, -1, -2)
                scale = np.broadcast_to(scale, (*batch, lines, case.k // 32))  # the library has one set for each entry
            place = name if not swapped else {"scale_a": "scale_b", "scale_b": "scale_a"}[name]
            description[place] = blob.put(scale)
    if case.scale_d:
        description["scale_d"] = blob.put(np.float32(case.scale_d))
    if case.amax:
        description["amax_wanted"] = [float(outputs["amax"]), float(limits["amax"])]
    return description


def scratch_cases():
    """Return the cases that show what an epilogue allocates."""
    return [
        cases.Case(576, 640, 24, dtype, epilogue=epilogue, layout="nt")
        for dtype in ("float32", "bfloat16")
        for epilogue in cases.EPILOGUES
    ]


def main() -> int:
    """Write the two files."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("set", choices=(*cases.TIERS, "scratch"))
    parser.add_argument("--max-flops", type=float, default=float("inf"), help="leave out larger products")
    parser.add_argument("--output", type=Path, required=True, help="the JSON file; the arrays go to .bin beside it")
    parsed = parser.parse_args()
    chosen = scratch_cases() if parsed.set == "scratch" else cases.cases(parsed.set)
    with parsed.output.with_suffix(".bin").open("wb") as file:
        blob = Blob(file)
        rows = [describe(blob, call) for case in chosen if case.flops <= parsed.max_flops for call in calls(case)]
    parsed.output.write_text("[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
