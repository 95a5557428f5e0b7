# SPDX-License-Identifier: MIT
"""Whether an algorithm's numbers are right: sampled rows of its result against float64, within derived bounds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from rocpy import dtypes
from rocpy.blaslt._blocks import dequantized
from rocpy.blaslt._fallback import activated
from rocpy.blaslt._framework import framework_of, values
from rocpy.blaslt._policy import SCALES
from rocpy.blaslt.epilogues import EPILOGUES
from rocpy.blaslt.problem import Problem, is_column_bias
from rocpy.runtime.memory import Buffer

if TYPE_CHECKING:
    from rocpy.blaslt.stateful import Matmul

Array = np.ndarray[Any, Any]

# Rows and columns that are compared, in the first and the last entry of a batch: the edges, which tiles treat by
# themselves, and others in between.
MOST_ROWS, MOST_COLUMNS = 8, 256
# Unit roundoffs of the accumulation; the operands of tf32 have eleven bits.
_ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24, "tf32": 2.0**-11, "int32": 2.0**-24}
# The steepest an activation gets (GELU's is 1.13), and the error of evaluating one, relative to its argument: what
# 1 + tanh leaves after cancellation, and gradients whose constants have six digits.
_STEEPEST, _OWN_ERROR, _GRADIENT_ERROR = 1.13, 8.0, 2.0**-19


def sampled(extent: int, most: int) -> Array:
    """Return places along an axis: all, or the edges and an even spread with an odd step between."""
    if extent <= most:
        return np.arange(extent)
    edge = most // 4
    step = max(1, extent // (most - 2 * edge)) | 1
    middle = np.arange(edge, extent - edge, step)[: most - 2 * edge]
    return np.unique(np.concatenate([np.arange(edge), middle, np.arange(extent - edge, extent)]))


@dataclass(frozen=True)
class Sample:
    """The part of a product that is compared: its exact values and how far off each may be, for each sampled entry."""

    entries: tuple[tuple[int, ...], ...]
    rows: Array
    columns: Array
    expected: Array
    bound: Array
    result: str

    def wrong(self, result: Any) -> str:
        """Return what is wrong with a result; empty where the sample is right."""
        full = _indexable(result)
        low, high = _limits(self.result)
        saturates = dtypes.lookup(self.result).bits <= 8 or dtypes.lookup(self.result).kind == "int"
        exact = np.clip(self.expected, low, high) if saturates else self.expected
        for entry, expected, bound in zip(self.entries, exact, self.bound, strict=True):
            part = full[entry] if entry else full
            part = part.reshape(1, -1) if len(part.shape) == 1 and len(self.rows) == 1 else part
            part = part.reshape(-1, 1) if len(part.shape) == 1 else part
            actual = values(part[self.rows][:, self.columns])
            actual = actual.astype(np.complex128 if np.iscomplexobj(actual) else np.float64)
            with np.errstate(invalid="ignore"):
                error = np.abs(actual - expected)
                # Where float64 is not finite, or would not be in the result's type, nothing is said.
                told = np.isfinite(expected) & np.isfinite(bound)
                told &= saturates | (np.abs(expected) + bound < high)
            bad = told & ~(error <= bound)
            if bad.any():
                row, column = (int(place[0]) for place in np.nonzero(bad))
                where = (*entry, int(self.rows[row]), int(self.columns[column]))
                return (
                    f"wrong at {list(where)}: {actual[row, column]:.9g}, float64 gives {expected[row, column]:.9g}, "
                    f"and the error may be {bound[row, column]:.3g}; {int(bad.sum())} of {bad.size} sampled are wrong"
                )
        return ""


def _limits(dtype: str) -> tuple[float, float]:
    """Return the least and the largest number of a result's type."""
    row = dtypes.lookup(dtype)
    if row.kind == "int":
        return float(np.iinfo(row.numpy).min), float(np.iinfo(row.numpy).max)
    largest = math.inf if row.kind == "complex" else float(ml_dtypes.finfo(row.numpy).max)
    return -largest, largest


def sample_of(product: Matmul) -> Sample | None:
    """Return what a planned product's results are compared with; ``None`` where its operands cannot be read here."""
    problem: Problem = product.problem
    if problem.expression or not problem.k or 0 in problem.result_shape:
        return None
    given = dict(product.given)
    given |= {name: _indexable(given[name]) for name in ("c", "bias", "aux")}
    scales = dict(zip(SCALES, map(_indexable, product.scale_values or (None,) * len(SCALES)), strict=False))
    a, b = (_operand(given[name], scales, name, problem) for name in ("a", "b"))
    if a is None or b is None:
        return None
    rows, columns = sampled(problem.m, MOST_ROWS), sampled(problem.n, MOST_COLUMNS)
    last = tuple(extent - 1 for extent in problem.batch_shape)
    entries = tuple(dict.fromkeys([(0,) * len(last), last]))
    found = [_entry(product, problem, given, scales, a, b, entry, rows, columns) for entry in entries]
    exact, bounds = (np.stack(each) for each in zip(*found, strict=True))
    return Sample(entries, rows, columns, exact, bounds, problem.dtype)


def _operand(operand: Any, scales: dict[str, Any], name: str, problem: Problem) -> Any:
    """Return an operand that can be indexed, its scales by blocks applied."""
    operand = operand.matrix() if hasattr(operand, "matrix") else operand
    if "block32" in (problem.scale_a, problem.scale_b):
        return dequantized(operand, scales[f"scale_{name}"], name)
    memory = getattr(operand, "memory", operand)
    if memory is not operand:
        return None
    return _indexable(operand)


def _indexable(array: Any) -> Any:
    """Return an array that can be indexed and given another shape: a Buffer is copied to numpy."""
    return array.to_numpy() if isinstance(array, Buffer) else array


def _part(array: Any, entry: tuple[int, ...], rows: Array | None, columns: Array | None) -> Array:
    """Return a part of an array that broadcasts over batch axes, in float64 or complex128."""
    lead = len(array.shape) - 2
    place = tuple(
        0 if extent == 1 else index
        for extent, index in zip(array.shape[:lead], entry[len(entry) - lead :], strict=True)
    )
    part = array[place] if place else array
    part = part if rows is None or part.shape[0] == 1 else part[rows]
    part = part if columns is None or part.shape[1] == 1 else part[:, columns]
    wide = values(part)
    return wide.astype(np.complex128 if wide.dtype.kind == "c" else np.float64)


def _factor(value: Any, entry: tuple[int, ...], places: Array, side: str) -> Any:
    """Return a scale so that it broadcasts over the sampled rows of a or columns of b."""
    if value is None:
        return 1.0
    array = np.asarray(value if isinstance(value, int | float) else values(value), np.float64)
    if array.size == 1:
        return float(array.reshape(()))
    extent = array.shape[-1] if array.shape[-1] != 1 or side == "b" else array.shape[-2]
    flat = array.reshape(*(array.shape[:-2] if array.ndim > 1 and 1 in array.shape[-2:] else array.shape[:-1]), extent)
    place = tuple(0 if n == 1 else i for n, i in zip(flat.shape[:-1], entry[len(entry) - flat.ndim + 1 :], strict=True))
    line = flat[place][places]
    return line[:, None] if side == "a" else line[None, :]


def _entry(
    product: Matmul,
    problem: Problem,
    given: dict[str, Any],
    scales: dict[str, Any],
    a: Any,
    b: Any,
    entry: tuple[int, ...],
    rows: Array,
    columns: Array,
) -> tuple[Array, Array]:
    """Return exact values and bounds of one entry of a batch, by the rules of rocpy.testing, somewhat wider."""
    row = EPILOGUES[problem.epilogue]
    alpha, beta = product.scalars()["alpha"], product.scalars()["beta"]
    left = _part(a.reshape(1, -1) if len(a.shape) == 1 else a, entry, rows, None)
    right = _part(b.reshape(-1, 1) if len(b.shape) == 1 else b, entry, None, columns)
    left, right = (x.conj() if conj else x for x, conj in ((left, problem.conj_a), (right, problem.conj_b)))
    if "block32" not in (problem.scale_a, problem.scale_b):
        left = left * _factor(scales["scale_a"], entry, rows, "a")
        right = right * _factor(scales["scale_b"], entry, columns, "b")
    with np.errstate(all="ignore"):
        x, size = alpha * (left @ right), abs(alpha) * (np.abs(left) @ np.abs(right))
        terms = []
        if given["c"] is not None and beta != 0.0:
            shaped = given["c"].reshape(*problem.batch_shape, problem.m, problem.n)
            terms.append(beta * _part(shaped, entry, rows, columns) * _factor(scales["scale_c"], entry, columns, "b"))
        if row.bias:
            terms.append(_bias(given["bias"], problem, entry, rows, columns))
        for term in terms:
            x, size = x + term, size + np.abs(term)
        count = problem.k * (2 if problem.is_complex else 1) + 16
        u = _ROUNDOFF["float64" if problem.dtype == "complex128" else problem.compute]
        error = count * u / max(1.0 - count * u, 0.5) * size
        aux = None
        if row.aux == "load":
            aux = _part(given["aux"].reshape(*problem.batch_shape, problem.m, problem.n), entry, rows, columns)
        y = activated(framework_of(x), row, x, aux, problem.clamp)
        own = _GRADIENT_ERROR if aux is not None and problem.compute != "float64" else _OWN_ERROR * u
        error = _STEEPEST * error + own * (np.abs(x) + error)
        scale_d = _factor(scales["scale_d"], entry, columns, "b")
        y, error = y * scale_d, error * abs(scale_d)
    return y, error + _last_rounding(problem.dtype, np.abs(y) + error)


def _bias(bias: Any, problem: Problem, entry: tuple[int, ...], rows: Array, columns: Array) -> Array:
    if is_column_bias(tuple(bias.shape), problem.m, problem.n, problem.batch_shape, True):
        return _part(bias, entry, rows, None)
    return _part(bias.reshape(*bias.shape[:-1], 1, bias.shape[-1]), entry, None, columns)


def _last_rounding(dtype: str, size: Array) -> Array:
    """Return what rounding to the result's type may add: an ulp at that size."""
    kind = dtypes.lookup(dtype)
    if kind.kind == "int":
        return np.full(size.shape, 0.5)
    component = {"complex64": "float32", "complex128": "float64"}.get(dtype, dtype)
    form = ml_dtypes.finfo(dtypes.lookup(component).numpy)
    return size * float(form.eps) + float(form.smallest_subnormal)
