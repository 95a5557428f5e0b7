# SPDX-License-Identifier: MIT
"""From a problem to hipBLASLt's terms: column-major layouts, operations, one strided batch and the loop around it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rocpy import dtypes
from rocpy.blaslt.model.epilogues import EPILOGUES
from rocpy.blaslt.model.problem import OperandInfo, Problem, dense_strides
from rocpy.blaslt.model.product_types import scale_entry

__all__ = ["Layout", "Lowered", "lower", "matrix_layout", "with_copies"]

# hipblasOperation_t, hipblasComputeType_t and hipDataType numbers.
OP_N, OP_T, OP_C = 111, 112, 113
_COMPUTE = {"float32": 2, "tf32": 6, "float64": 7, "int32": 9}
# hipblasLtMatmulMatrixScale_t by kind of scale; no scale and a scalar need no mode.
_SCALE_MODE = {"": 0, "scalar": 0, "block32": 2, "vector": 3}
ORDER_COLUMN = 0
OPERANDS = ("a", "b", "c", "d", "bias", "aux", "scale_a", "scale_b")


@dataclass(slots=True, eq=False, repr=False)
class Layout:
    """A matrix as ``hipblasLtMatrixLayoutCreate`` takes it: column-major, extents and strides in elements."""

    rows: int
    columns: int
    ld: int
    batch_stride: int = 0


@dataclass(slots=True, eq=False, repr=False)
class Lowered:
    """A problem in the library's terms, or the operands that must be copied before it can be.

    Parameters
    ----------
    copies
        Names of operands whose layout the library cannot take; ``"out"`` means that the result is computed aside and
        copied into it. When there are any, nothing but ``columns`` is filled in.
    columns
        Whether the result lies in columns, so that a copy of c must.
    turned
        Whether results in columns are computed aside, as matrices of shape (N, M), and turned into rows afterwards.
    swapped
        Whether the transposed product is computed, so that the library's A is the user's b.
    """

    copies: tuple[str, ...] = ()
    columns: bool = False
    turned: bool = False
    swapped: bool = True
    op_a: int = OP_N
    op_b: int = OP_N
    a: Layout = field(default_factory=lambda: Layout(0, 0, 1))
    b: Layout = field(default_factory=lambda: Layout(0, 0, 1))
    c: Layout = field(default_factory=lambda: Layout(0, 0, 1))
    d: Layout = field(default_factory=lambda: Layout(0, 0, 1))
    batch_count: int = 1
    epilogue: int = 1
    compute: int = 2
    scale_type: int = 0
    scale_mode_a: int = 0  # of the library's A
    scale_mode_b: int = 0
    bias_batch_stride: int = 0
    aux_ld: int = 0
    aux_batch_stride: int = 0
    outer_shape: tuple[int, ...] = ()
    outer_strides: dict[str, tuple[int, ...]] = field(default_factory=dict)  # elements, for each operand
    # What lies beside the result: steps along the rows, the columns and the batch of the library's D, then along the
    # axes of outer_shape.
    beside: tuple[tuple[int, int, int, tuple[int, ...]], ...] = ()


def matrix_layout(shape: tuple[int, int], strides: tuple[int, int]) -> tuple[str, int] | None:
    """Return how a matrix lies, ``("row" | "column", ld)``, or ``None`` when the library cannot take it."""
    (rows, columns), (row_stride, column_stride) = shape, strides
    if rows == 0 or columns == 0:
        return "row", max(1, columns)
    if rows == 1:  # its row stride means nothing
        row_stride = columns if column_stride == 1 or columns == 1 else 1
    if columns == 1:
        column_stride = 1
        if row_stride == 0:
            return None if rows > 1 else ("row", 1)
    if column_stride == 1 and row_stride >= columns:
        return "row", row_stride
    if row_stride == 1 and column_stride >= rows:
        return "column", column_stride
    return None


def _view(
    operand: OperandInfo, matrix_first: bool, batch_ndim: int
) -> tuple[tuple[int, int], tuple[int, int], tuple[int, ...], tuple[int, ...]]:
    """Return shape and strides of matrix and batch, aligned to ``batch_ndim`` axes; 1-D operands are promoted."""
    shape, strides = operand.shape, operand.strides
    if len(shape) == 1:
        if matrix_first:
            return (1, shape[0]), (max(1, shape[0]), strides[0]), (1,) * batch_ndim, (0,) * batch_ndim
        return (shape[0], 1), (strides[0], 1), (1,) * batch_ndim, (0,) * batch_ndim
    pad = batch_ndim - (len(shape) - 2)
    batch_shape = (1,) * pad + tuple(shape[:-2])
    batch_strides = (0,) * pad + tuple(s if e != 1 else 0 for e, s in zip(shape[:-2], strides[:-2], strict=True))
    return (shape[-2], shape[-1]), (strides[-2], strides[-1]), batch_shape, batch_strides


def _result_view(operand: OperandInfo, problem: Problem) -> tuple[tuple[int, int], tuple[int, ...]]:
    """Return matrix strides and batch strides of an operand that has the result's shape."""
    strides = list(operand.strides)
    n_stride = strides.pop() if len(problem.b.shape) > 1 else 1
    m_stride = strides.pop() if len(problem.a.shape) > 1 else max(1, problem.n)
    return (m_stride, n_stride), tuple(s if e != 1 else 0 for e, s in zip(problem.batch_shape, strides, strict=True))


def _unusable_batch(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    return any(stride < 0 and extent > 1 for extent, stride in zip(shape, strides, strict=True))


def lower(problem: Problem, beside: Sequence[OperandInfo] = ()) -> Lowered:  # noqa: C901  (one operand after the other, each with its own rule)
    """Return the problem in hipBLASLt's terms; see :class:`Lowered` for what must be copied first.

    ``beside`` are arrays with an element for each of the result's, of shape (batch ..., M, N), that an epilogue reads
    or writes; they may repeat elements.
    """
    row = problem.row
    batch_ndim = len(problem.batch_shape)
    copies: list[str] = []
    a_shape, a_strides, a_batch_shape, a_batch = _view(problem.a, True, batch_ndim)
    a_lies = matrix_layout(a_shape, a_strides)
    if a_lies is None or _unusable_batch(a_batch_shape, a_batch):
        copies.append("a")
    b_shape, b_strides, b_batch_shape, b_batch = _view(problem.b, False, batch_ndim)
    b_lies = ("row", max(1, problem.n)) if problem.b.packed else matrix_layout(b_shape, b_strides)
    if b_lies is None or _unusable_batch(b_batch_shape, b_batch):
        copies.append("b")

    # The result's orientation decides everything else; its own batch strides may not repeat or run backwards.
    fresh = OperandInfo(problem.result_shape, dense_strides(problem.result_shape), problem.dtype)
    out_is_cast = problem.out is not None and problem.out.dtype != problem.dtype
    if out_is_cast:
        copies.append("out")
    d_matrix, d_batch = _result_view(fresh if problem.out is None or out_is_cast else problem.out, problem)
    d_lies = matrix_layout((problem.m, problem.n), d_matrix)
    bound_to_rows = row.bias or row.aux != "none" or row.gradient == "bgrad" or problem.b.packed
    turned = False
    if problem.column_bias:
        # hipBLASLt's bias runs along the rows of its D, which lies in columns then.
        d_lies = _as("column", (problem.m, problem.n), d_matrix) if _separate(problem, d_matrix, d_batch) else None
        turned = d_lies is None or (row.aux == "store" and min(problem.m, problem.n) > 1)
        if turned:
            d_matrix, d_batch = _result_view(_in_columns(problem), problem)
            d_lies = ("column", max(1, problem.m))
    elif d_lies is None or not _separate(problem, d_matrix, d_batch) or (d_lies[0] == "column" and bound_to_rows):
        copies.append("out")
        d_matrix, d_batch = _result_view(fresh, problem)
        d_lies = matrix_layout((problem.m, problem.n), d_matrix)
    assert d_lies is not None  # a dense result always lies in rows
    swapped = d_lies[0] == "row"
    columns = not swapped

    # Only the transposing operation conjugates; a conjugate operand that lies the other way is resolved by a copy.
    across = "column" if swapped else "row"
    if problem.conj_a and a_lies is not None:
        a_lies = _as(across, a_shape, a_strides)
        if a_lies is None and "a" not in copies:
            copies.append("a")
    if problem.conj_b and b_lies is not None and not problem.b.packed:
        b_lies = _as(across, b_shape, b_strides)
        if b_lies is None and "b" not in copies:
            copies.append("b")
    if problem.scale_a == "block32":
        # Both are read along K.
        a_lies = _as("row", a_shape, a_strides)
        b_lies = b_lies if problem.b.packed else _as("column", b_shape, b_strides)
        copies += [x for x, lies in (("a", a_lies), ("b", b_lies)) if lies is None and x not in copies]

    c_matrix, c_batch, c_lies = d_matrix, d_batch, d_lies
    if problem.c is not None:
        if problem.c.shape != problem.result_shape:
            copies.append("c")
        else:
            c_matrix, c_batch = _result_view(problem.c, problem)
            lies = matrix_layout((problem.m, problem.n), c_matrix)
            if lies is not None and lies[0] != d_lies[0] and min(problem.m, problem.n) == 1:
                lies = _as(d_lies[0], (problem.m, problem.n), c_matrix)
            if lies is None or lies[0] != d_lies[0] or _unusable_batch(problem.batch_shape, c_batch):
                copies.append("c")
            else:
                c_lies = lies

    bias_batch: tuple[int, ...] = (0,) * batch_ndim
    if problem.bias is not None:
        along = -2 if problem.column_bias else -1
        if problem.bias.strides[along] != 1 and problem.bias.shape[along] > 1:
            copies.append("bias")
        bias_extents = problem.bias.shape[:along]
        pad = batch_ndim - len(bias_extents)
        bias_batch = (0,) * pad + tuple(
            s if e != 1 else 0 for e, s in zip(bias_extents, problem.bias.strides[:along], strict=True)
        )
        if _unusable_batch((1,) * pad + bias_extents, bias_batch) and "bias" not in copies:
            copies.append("bias")
    elif row.gradient:
        bias_extents = problem.gradient_shape[:-1]
        steps = dense_strides(problem.gradient_shape)[:-1]
        bias_batch = (0,) * (batch_ndim - len(bias_extents)) + tuple(
            s if e != 1 else 0 for e, s in zip(bias_extents, steps, strict=True)
        )

    like_aux = _in_columns(problem) if problem.column_bias and min(problem.m, problem.n) > 1 else fresh
    aux_matrix, aux_batch = _result_view(like_aux, problem)
    aux_lies = _as("column" if problem.column_bias else "row", (problem.m, problem.n), aux_matrix)
    if problem.aux is not None:
        aux_matrix, aux_batch = _result_view(problem.aux, problem)
        aux_lies = _as("row", (problem.m, problem.n), aux_matrix)
        # hipBLASLt wants whole matrices apart: a batch stride under M x N is refused.
        if (
            aux_lies is None
            or any(
                0 <= s < aux_lies[1] * problem.m and e > 1 for e, s in zip(problem.batch_shape, aux_batch, strict=True)
            )
            or _unusable_batch(problem.batch_shape, aux_batch)
        ):
            copies.append("aux")
    if copies:
        return Lowered(copies=tuple(copies), columns=columns)
    assert a_lies is not None
    assert b_lies is not None
    assert aux_lies is not None

    strides: dict[str, list[int]] = {
        "a": list(a_batch),
        "b": list(b_batch),
        "c": list(c_batch),
        "d": list(d_batch),
        "bias": list(bias_batch),
        "aux": list(aux_batch),
        "scale_a": _scale_steps(problem, "scale_a", problem.scale_a_batch),
        "scale_b": _scale_steps(problem, "scale_b", problem.scale_b_batch),
    }
    paces = [list(x.strides[-2:]) for x in beside]
    names = [f"beside{i}" for i in range(len(beside))]
    strides |= {
        name: [s if e != 1 else 0 for e, s in zip(problem.batch_shape, x.strides[:-2], strict=True)]
        for name, x in zip(names, beside, strict=True)
    }
    extents, strides = _collapse(list(problem.batch_shape), strides)
    m = problem.m
    if row.gradient != "bgrad" and len(extents) == 1 and not problem.conj_a:
        if m == 1 and swapped:
            # A matrix of one row may have any ld: let it be the step from one batch entry to the next.
            a_lies, c_lies, d_lies, aux_lies = (
                ("row", strides[name][0]) if strides[name][0] >= columns and _as("row", (1, columns), matrix) else lies
                for name, columns, matrix, lies in (
                    ("a", problem.k, a_strides, a_lies),
                    ("c", problem.n, c_matrix, c_lies),
                    ("d", problem.n, d_matrix, d_lies),
                    ("aux", problem.n, aux_matrix, aux_lies),
                )
            )
        whole = a_lies[0] == d_lies[0] == "row"
        whole = whole and all(strides[x][0] == lies[1] * m for x, lies in (("a", a_lies), ("c", c_lies), ("d", d_lies)))
        whole = whole and strides["b"][0] == 0 and strides["bias"][0] == (m if row.gradient == "bgrada" else 0)
        whole = whole and (row.aux == "none" or strides["aux"][0] == aux_lies[1] * m)
        whole = whole and strides["scale_b"][0] == 0
        whole = whole and (
            problem.scale_a in ("", "scalar") or strides["scale_a"][0] == scale_entry(problem, "scale_a")
        )
        for name, pace in zip(names, paces, strict=True):
            if m == 1:  # the step to a next row means nothing yet
                pace[0] = strides[name][0]
            whole = whole and strides[name][0] == pace[0] * m
        if whole and extents[0] * m <= 2**31 - 1:
            # One weight for every batch entry, entries one after the other: a single taller product.
            m *= extents[0]
            extents, strides = [], {name: [] for name in strides}

    # Entries that write one gradient vector together must not run together.
    together = [axis for axis in range(len(extents)) if not row.gradient or strides["bias"][axis]]
    # The library has no stride from one entry's scales to the next: entries that differ in them are calls of their own.
    together = [axis for axis in together if not strides["scale_a"][axis] and not strides["scale_b"][axis]]
    if problem.scale_a == "block32":
        together = []
    inner = max(together, key=lambda axis: extents[axis], default=None)
    out = Lowered(swapped=swapped, columns=columns, turned=turned)
    batch_of = {name: values[inner] if inner is not None else 0 for name, values in strides.items()}
    out.batch_count = extents[inner] if inner is not None else 1
    out.outer_shape = tuple(e for axis, e in enumerate(extents) if axis != inner)
    outer = {name: tuple(s for axis, s in enumerate(values) if axis != inner) for name, values in strides.items()}
    out.outer_strides = {name: outer[name] for name in OPERANDS}
    out.beside = tuple(
        (pace[swapped], pace[not swapped], batch_of[name], outer[name]) for name, pace in zip(names, paces, strict=True)
    )

    a_rows = (
        Layout(problem.k, m, a_lies[1], batch_of["a"])
        if a_lies[0] == "row"
        else Layout(m, problem.k, a_lies[1], batch_of["a"])
    )
    b_rows = (
        Layout(problem.n, problem.k, b_lies[1], batch_of["b"])
        if b_lies[0] == "row"
        else Layout(problem.k, problem.n, b_lies[1], batch_of["b"])
    )
    if swapped:
        out.a, out.op_a = b_rows, OP_N if b_lies[0] == "row" else OP_T
        out.b, out.op_b = a_rows, OP_N if a_lies[0] == "row" else OP_T
        out.c, out.d = Layout(problem.n, m, c_lies[1], batch_of["c"]), Layout(problem.n, m, d_lies[1], batch_of["d"])
    else:
        out.a, out.op_a = a_rows, OP_T if a_lies[0] == "row" else OP_N
        out.b, out.op_b = b_rows, OP_T if b_lies[0] == "row" else OP_N
        out.c, out.d = Layout(m, problem.n, c_lies[1], batch_of["c"]), Layout(m, problem.n, d_lies[1], batch_of["d"])
    for layout in (out.a, out.b, out.c, out.d):
        layout.ld = max(layout.ld, layout.rows, 1)
    # An epilogue that the library lacks is never launched; its product is lowered for what must be copied.
    enumerator = row.enumerator or row.stands_on or EPILOGUES["default"].enumerator or 1
    conjugated = (problem.conj_b, problem.conj_a) if swapped else (problem.conj_a, problem.conj_b)
    out.op_a, out.op_b = (OP_C if conj else op for op, conj in zip((out.op_a, out.op_b), conjugated, strict=True))
    modes = _SCALE_MODE[problem.scale_a], _SCALE_MODE[problem.scale_b]
    out.scale_mode_a, out.scale_mode_b = reversed(modes) if swapped else modes
    if swapped and row.gradient in ("bgrada", "bgradb"):
        # The library's A is the user's b: what it calls the gradient along A is the one along b.
        enumerator = 512 if row.gradient == "bgrada" else 256
    out.epilogue = enumerator
    out.compute = _COMPUTE[problem.compute]
    out.scale_type = dtypes.lookup(_scale_type(problem)).hip
    out.bias_batch_stride = batch_of["bias"]
    out.aux_ld = max(1, aux_lies[1])
    # Never the default, which hipBLASLt takes from an unset ld.
    out.aux_batch_stride = batch_of["aux"] if out.batch_count > 1 else out.aux_ld * (m if swapped else problem.n)
    return out


def _scale_type(problem: Problem) -> str:
    """Return the type in which the library reads alpha and beta."""
    if problem.is_complex or problem.compute == "float64":
        return problem.dtype
    return "int32" if problem.dtype in ("int32", "int8") else "float32"


def _scale_steps(problem: Problem, name: str, batch: tuple[int, ...]) -> list[int]:
    """Return the steps of an operand's scales along the batch axes, in scales."""
    steps, reach = [], scale_entry(problem, name)
    for extent in reversed(batch):
        steps.append(reach if extent != 1 else 0)
        reach *= extent
    return [0] * (len(problem.batch_shape) - len(batch)) + steps[::-1]


def with_copies(problem: Problem, copies: tuple[str, ...]) -> Problem:
    """Return the problem as it is once these operands are copied to where the library can take them."""
    dense: dict[str, Any] = {}
    for name in copies:
        operand = getattr(problem, name)
        if name == "out":  # computed aside
            dense[name] = None
            continue
        dense[name] = OperandInfo.dense(problem.result_shape if name == "c" else operand.shape, operand.dtype)
        if name == "c" and lower(problem).columns:
            dense[name] = replace(_in_columns(problem), dtype=operand.dtype)
        if name in ("a", "b"):
            dense[f"conj_{name}"] = False
    return replace(problem, **dense) if dense else problem


def _in_columns(problem: Problem) -> OperandInfo:
    """Return a dense result whose matrices lie in columns."""
    *batch, m, n = problem.result_shape
    strides = dense_strides((*batch, n, m))
    return OperandInfo(problem.result_shape, (*strides[:-2], 1, strides[-2]), problem.dtype)


def _as(orientation: str, shape: tuple[int, int], strides: tuple[int, int]) -> tuple[str, int] | None:
    """Return how a matrix lies if it can be taken in this orientation; a vector can be taken in both."""
    (rows, columns), (row_stride, column_stride) = shape, strides
    if rows == 0 or columns == 0:
        return orientation, max(1, columns if orientation == "row" else rows)
    if orientation == "column":
        turned = _as("row", (columns, rows), (column_stride, row_stride))
        return None if turned is None else ("column", turned[1])
    if columns > 1 and column_stride != 1:
        return None
    if rows > 1 and row_stride < columns:
        return None
    return "row", max(columns, row_stride if rows > 1 else columns)


def _separate(problem: Problem, matrix: tuple[int, int], batch: tuple[int, ...]) -> bool:
    """Whether no two elements of a result share memory, by strides: each axis steps over all that lie within it."""
    axes = [
        (s, e) for e, s in zip((*problem.batch_shape, problem.m, problem.n), (*batch, *matrix), strict=True) if e > 1
    ]
    reach = 1
    for stride, extent in sorted(axes):
        if stride < reach:
            return False
        reach = stride * (extent - 1) + reach
    return True


def _collapse(extents: list[int], strides: dict[str, list[int]]) -> tuple[list[int], dict[str, list[int]]]:
    """Drop batch axes of extent 1 and merge neighbours that every operand steps through evenly."""
    kept = [axis for axis, extent in enumerate(extents) if extent != 1]
    extents = [extents[axis] for axis in kept]
    strides = {name: [values[axis] for axis in kept] for name, values in strides.items()}
    axis = len(extents) - 2
    while axis >= 0:
        if all(values[axis] == values[axis + 1] * extents[axis + 1] for values in strides.values()):
            extents[axis : axis + 2] = [math.prod(extents[axis : axis + 2])]
            for values in strides.values():
                del values[axis]
        axis -= 1
    return extents, strides
