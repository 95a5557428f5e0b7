# SPDX-License-Identifier: MIT
"""Whether an algorithm's numbers are right: samples of its outputs against float64, within derived bounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from rocpy import dtypes
from rocpy.blaslt.arrays.blocks import dequantized
from rocpy.blaslt.arrays.framework import framework_of, values
from rocpy.blaslt.composed.product import activated
from rocpy.blaslt.model.epilogues import EPILOGUES
from rocpy.blaslt.model.problem import Problem
from rocpy.blaslt.model.scale_arguments import ScaleArguments
from rocpy.blaslt.model.shapes import is_column_bias
from rocpy.runtime.memory import Buffer

if TYPE_CHECKING:
    from rocpy.blaslt.model.planned_product import PlannedProduct

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
class Part:
    """Sampled numbers of one output: their exact values, how far off each may be, and the output's type."""

    expected: Array
    bound: Array
    dtype: str

    def wrong(self, actual: Array) -> tuple[tuple[int, ...], str]:
        """Return the place of the first wrong number, and what is wrong with it; two empty ones where all are right."""
        low, high = _limits(self.dtype)
        saturates = dtypes.lookup(self.dtype).bits <= 8
        expected = np.clip(self.expected, low, high) if saturates else self.expected
        error = np.abs(actual - expected)
        # Where float64 is not finite, or would not be in the output's type, nothing is said.
        told = np.isfinite(expected) & np.isfinite(self.bound)
        told &= saturates | (np.abs(expected) + self.bound < high)
        bad = told & ~(error <= self.bound)
        if not bad.any():
            return (), ""
        index = tuple(int(each[0]) for each in np.nonzero(bad))
        return index, (
            f"{actual[index]:.9g}, float64 gives {expected[index]:.9g}, and the error may be {self.bound[index]:.3g}; "
            f"{int(bad.sum())} of {bad.size} sampled are wrong"
        )


@dataclass(frozen=True)
class Sample:
    """The part of a product that is compared, for each sampled entry of a batch.

    Parameters
    ----------
    entries, rows, columns
        Which numbers of the result.
    extents
        Rows and columns of one product.
    result
        The result's.
    aux
        Those of the pre-activation that an ``_aux`` epilogue stores, at the same indices.
    sums
        The bias gradient's, for each entry that it has: at ``sum_indices``, one of rows or columns.
    amax_factor
        The scale of the result, behind which the largest magnitude is taken.
    """

    entries: tuple[tuple[int, ...], ...]
    rows: Array
    columns: Array
    extents: tuple[int, int]
    result: Part
    aux: Part | None = None
    sums: Part | None = None
    sum_entries: tuple[tuple[int, ...], ...] = ()
    sum_indices: Array | None = None
    amax_factor: float = 1.0

    @property
    def expected(self) -> Array:
        """Exact values of the result."""
        return self.result.expected

    @property
    def bound(self) -> Array:
        """How far off the result's may be."""
        return self.result.bound

    @np.errstate(all="ignore")  # not the caller's
    def wrong(self, result: Any, additional: Mapping[str, Any] | None = None) -> str:
        """Return what is wrong with a result and with what was given beside it; empty where the sample is right."""
        message = self._wrong_matrix(self.result, result, "")
        for name, value in (additional or {}).items():
            if message:
                break
            if name == "amax":
                message = self._wrong_amax(value, result)
            elif name.endswith("_aux") and self.aux is not None:
                message = self._wrong_matrix(self.aux, value, f"{name}: ")
            elif self.sums is not None:
                message = self._wrong_sums(value, f"{name}: ")
        return message

    def _wrong_matrix(self, part: Part, array: Any, prefix: str) -> str:
        full = _indexable(array)
        samples = []
        for entry in self.entries:
            one = full[entry] if entry else full
            one = one if len(one.shape) == 2 else one.reshape(self.extents)
            samples.append(_wide(one[self.rows][:, self.columns]))
        index, message = part.wrong(np.stack(samples))
        if not message:
            return ""
        where = [*self.entries[index[0]], int(self.rows[index[1]]), int(self.columns[index[2]])]
        return f"{prefix}wrong at {where}: {message}"

    def _wrong_sums(self, array: Any, prefix: str) -> str:
        assert self.sums is not None
        assert self.sum_indices is not None
        full = _indexable(array)
        samples = [_wide((full[entry] if entry else full)[self.sum_indices]) for entry in self.sum_entries]
        index, message = self.sums.wrong(np.stack(samples))
        if not message:
            return ""
        return f"{prefix}wrong at {[*self.sum_entries[index[0]], int(self.sum_indices[index[1]])]}: {message}"

    def _wrong_amax(self, value: Any, result: Any) -> str:
        """Compare the largest magnitude with the sampled numbers and with the result, whose rounding it is free of."""
        largest = float(_wide(_indexable(value)).reshape(()))
        factor = abs(self.amax_factor)
        if factor == 0 or not np.isfinite(factor):
            return ""
        known = np.abs(self.result.expected) - self.result.bound
        least = float(np.max(known[np.isfinite(known)], initial=0.0)) / factor
        stored = _wide(_indexable(result))
        most = float(np.max(np.abs(stored[np.isfinite(stored)]), initial=0.0)) / factor
        limit = _limits(self.result.dtype)[1] / factor
        step = float(_last_rounding(self.result.dtype, np.asarray(max(most, least) * factor))) / factor
        too_large = most < limit and largest > (most + 2 * step) * (1 + 1e-5)
        if np.isnan(largest) or largest < least * (1 - 1e-5) or too_large:
            return f"amax: {largest:.9g}, and the largest magnitude is between {least:.9g} and {most + 2 * step:.9g}"
        return ""


def _wide(array: Any) -> Array:
    """Return an array as float64 or complex128."""
    samples = values(array)
    return samples.astype(np.complex128 if np.iscomplexobj(samples) else np.float64)


def _limits(dtype: str) -> tuple[float, float]:
    """Return the least and the largest number of a result's type."""
    row = dtypes.lookup(dtype)
    if row.kind == "int":
        return float(np.iinfo(row.numpy).min), float(np.iinfo(row.numpy).max)
    largest = float(ml_dtypes.finfo(_component(dtype)).max)
    return -largest, largest


def _component(dtype: str) -> Any:
    """Return the type of a complex number's parts, or the type itself."""
    return dtypes.lookup({"complex64": "float32", "complex128": "float64"}.get(dtype, dtype)).numpy


@dataclass(frozen=True)
class _Inputs:
    """What the expected numbers are computed from: a planned product, operands, scales, a and b as matrices."""

    product: PlannedProduct
    problem: Problem
    operands: dict[str, Any]
    scales: dict[str, Any]
    a: Any
    b: Any


@np.errstate(all="ignore")  # not the caller's
def sample_of(product: PlannedProduct) -> Sample | None:
    """Return what a planned product's results are compared with; ``None`` where its operands cannot be read here."""
    problem: Problem = product.problem
    if problem.expression or not problem.k or 0 in problem.result_shape:
        return None
    operands = dict(product.operand_arrays)
    operands |= {name: _indexable(operands[name]) for name in ("c", "bias", "aux")}
    operands |= {name: _of_result(operands[name], problem) for name in ("c", "aux")}
    scales = {name: _indexable(value) for name, value in (product.scale_values or ScaleArguments()).items()}
    a, b = (_operand(operands[name], scales, name, problem) for name in ("a", "b"))
    if a is None or b is None:
        return None
    rows, columns = sampled(problem.m, MOST_ROWS), sampled(problem.n, MOST_COLUMNS)
    last = tuple(extent - 1 for extent in problem.batch_shape)
    entries = tuple(dict.fromkeys([(0,) * len(last), last]))
    inputs = _Inputs(product, problem, operands, scales, a, b)
    computed = [_entry(inputs, entry, rows, columns) for entry in entries]
    exact, bounds, aux, aux_bounds = (np.stack(each) for each in zip(*computed, strict=True))
    sums = _sums(inputs, entries)
    scale_d = 1.0 if scales["scale_d"] is None else float(_wide_number(scales["scale_d"]))
    return Sample(
        entries, rows, columns, (problem.m, problem.n), Part(exact, bounds, problem.dtype),
        aux=Part(aux, aux_bounds, problem.dtype) if problem.row.aux == "store" else None,
        sums=None if sums is None else sums[0], sum_entries=() if sums is None else sums[1],
        sum_indices=None if sums is None else sums[2], amax_factor=scale_d,
    )  # fmt: skip


# Rows of the result that a bias gradient is summed over here; more would take longer than the tuning.
_MOST_SUMMED = 1 << 14


def _sums(
    inputs: _Inputs, entries: tuple[tuple[int, ...], ...]
) -> tuple[Part, tuple[tuple[int, ...], ...], Array] | None:
    """Return what a bias gradient is compared with: its sampled sums, their entries and places; ``None`` for none."""
    problem, scales = inputs.problem, inputs.scales
    kind, count = problem.row.gradient, 0
    if not kind or (kind == "bgrad" and problem.m > _MOST_SUMMED):
        return None
    extent = problem.m if kind == "bgrada" else problem.n
    indices = sampled(extent, MOST_ROWS)
    batch = problem.gradient_shape[:-1]  # that of an operand that is summed may broadcast
    lead = len(batch)
    own = tuple(
        dict.fromkeys(
            tuple(min(i, n - 1) for i, n in zip(entry[len(entry) - lead :], batch, strict=True)) for entry in entries
        )
    )
    exact, bounds = [], []
    for entry in own:
        full = (0,) * (len(problem.batch_shape) - lead) + entry
        if kind == "bgrad":
            y, error, _, _ = _entry(inputs, full, np.arange(problem.m), indices, last=False)
            terms, slack, axis = y, error.sum(axis=0), 0
        else:
            matrix, name = (inputs.a, "a") if kind == "bgrada" else (inputs.b, "b")
            axis = 1 if kind == "bgrada" else 0
            terms = _part(matrix, full, indices if axis else None, None if axis else indices)
            if "block32" not in (problem.scale_a, problem.scale_b):
                terms = terms * _factor(scales[f"scale_{name}"], full, indices, name)
            slack = 0.0
        count = terms.shape[axis] + 16
        size = np.abs(terms).sum(axis=axis)
        u = _ROUNDOFF["float64" if problem.dtype == "complex128" else problem.compute]
        exact.append(terms.sum(axis=axis))
        total = slack + count * u / max(1.0 - count * u, 0.5) * size
        bounds.append(total + _last_rounding(problem.gradient_dtype, np.abs(exact[-1]) + total))
    return Part(np.stack(exact), np.stack(bounds), problem.gradient_dtype), own, indices


def _wide_number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else float(_wide(value).reshape(()))


def _operand(operand: Any, scales: dict[str, Any], name: str, problem: Problem) -> Any:
    """Return an operand that can be indexed, its scales by blocks applied."""
    operand = operand.matrix() if hasattr(operand, "matrix") else operand
    if "block32" in (problem.scale_a, problem.scale_b):
        return dequantized(operand, scales[f"scale_{name}"], name)
    if not isinstance(operand, np.ndarray) and getattr(operand, "memory", operand) is not operand:
        return None
    array = _indexable(operand)
    if len(array.shape) > 1:
        return array
    return array.reshape((1, problem.k) if name == "a" else (problem.k, 1))


def _of_result(array: Any, problem: Problem) -> Any:
    """Return an array that broadcasts to the result with the axes that a vector operand lacks there."""
    if array is None:
        return None
    shape = (1,) * (len(problem.result_shape) - len(array.shape)) + tuple(array.shape)
    lead = len(problem.batch_shape)
    rows, columns = len(problem.a.shape) > 1, len(problem.b.shape) > 1
    matrix = shape[lead:] if rows and columns else (*shape[lead:], 1) if rows else (1, *shape[lead:])
    return array.reshape((*shape[:lead], *(matrix if rows or columns else (1, 1))))


def _indexable(array: Any) -> Any:
    """Return an array that can be indexed as numpy's are: a Buffer is copied, a subclass of numpy's array left out."""
    if isinstance(array, Buffer):
        return array.to_numpy()
    return np.asarray(array) if isinstance(array, np.ndarray) else array


def _part(array: Any, entry: tuple[int, ...], rows: Array | None, columns: Array | None) -> Array:
    """Return a part of an array that broadcasts over batch axes, in float64 or complex128."""
    lead = len(array.shape) - 2
    position = tuple(
        0 if extent == 1 else index
        for extent, index in zip(array.shape[:lead], entry[len(entry) - lead :], strict=True)
    )
    part = array[position] if position else array
    part = part if rows is None or part.shape[0] == 1 else part[rows]
    part = part if columns is None or part.shape[1] == 1 else part[:, columns]
    wide = values(part)
    return wide.astype(np.complex128 if wide.dtype.kind == "c" else np.float64)


def _factor(value: Any, entry: tuple[int, ...], indices: Array, side: str) -> Any:
    """Return a scale so that it broadcasts over the sampled rows of a or columns of b."""
    if value is None:
        return 1.0
    array = np.asarray(value if isinstance(value, int | float) else values(value), np.float64)
    if array.size == 1:
        return float(array.reshape(()))
    extent = array.shape[-1] if array.shape[-1] != 1 or side == "b" else array.shape[-2]
    flat = array.reshape(*(array.shape[:-2] if array.ndim > 1 and 1 in array.shape[-2:] else array.shape[:-1]), extent)
    position = tuple(
        0 if n == 1 else i for n, i in zip(flat.shape[:-1], entry[len(entry) - flat.ndim + 1 :], strict=True)
    )
    line = flat[position][indices]
    return line[:, None] if side == "a" else line[None, :]


def _entry(
    inputs: _Inputs, entry: tuple[int, ...], rows: Array, columns: Array, *, last: bool = True
) -> tuple[Array, Array, Array, Array]:
    """Return exact values and bounds of one entry of a batch, by the rules of rocpy.testing, somewhat wider.

    First the result's, without its scale and last rounding where ``last`` is not set, then the pre-activation's.
    """
    problem, operands, scales, a, b = inputs.problem, inputs.operands, inputs.scales, inputs.a, inputs.b
    row = EPILOGUES[problem.epilogue]
    alpha, beta = inputs.product.scalars()["alpha"], inputs.product.scalars()["beta"]
    left, right = _part(a, entry, rows, None), _part(b, entry, None, columns)
    if "block32" not in (problem.scale_a, problem.scale_b):
        left = left * _factor(scales["scale_a"], entry, rows, "a")
        right = right * _factor(scales["scale_b"], entry, columns, "b")
    x, size = alpha * (left @ right), abs(alpha) * (np.abs(left) @ np.abs(right))
    terms = []
    if operands["c"] is not None and beta != 0.0:
        c = _part(operands["c"], entry, rows, columns)
        terms.append(beta * c * _factor(scales["scale_c"], entry, columns, "b"))
    if row.bias:
        terms.append(_bias(operands["bias"], problem, entry, rows, columns))
    for term in terms:
        x, size = x + term, size + np.abs(term)
    count = problem.k * (2 if problem.is_complex else 1) + 16
    u = _ROUNDOFF["float64" if problem.dtype == "complex128" else problem.compute]
    error = count * u / max(1.0 - count * u, 0.5) * size
    pre, pre_error = x, error + _last_rounding(problem.dtype, np.abs(x) + error)
    aux = None
    if row.aux == "load":
        aux = _part(operands["aux"], entry, rows, columns)
    y = activated(framework_of(x), row, x, aux, problem.clamp)
    own = _GRADIENT_ERROR if aux is not None and problem.compute != "float64" else _OWN_ERROR * u
    error = _STEEPEST * error + own * (np.abs(x) + error)
    if not last:
        return y, error, pre, pre_error
    scale_d = _factor(scales["scale_d"], entry, columns, "b")
    y, error = y * scale_d, error * abs(scale_d)
    return y, error + _last_rounding(problem.dtype, np.abs(y) + error), pre, pre_error


def _bias(bias: Any, problem: Problem, entry: tuple[int, ...], rows: Array, columns: Array) -> Array:
    if is_column_bias(tuple(bias.shape), problem.m, problem.n, problem.batch_shape, True):
        return _part(bias, entry, rows, None)
    return _part(bias.reshape(*bias.shape[:-1], 1, bias.shape[-1]), entry, None, columns)


def _last_rounding(dtype: str, size: Array) -> Array:
    """Return what rounding to the result's type may add: an ulp at that size."""
    kind = dtypes.lookup(dtype)
    if kind.kind == "int":
        return np.full(size.shape, 0.5)
    form = ml_dtypes.finfo(_component(dtype))
    return size * float(form.eps) + float(form.smallest_subnormal)
