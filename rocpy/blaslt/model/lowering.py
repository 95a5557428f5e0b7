# SPDX-License-Identifier: MIT
"""From a problem to hipBLASLt's terms: column-major layouts, operations, one strided batch and the loop around it."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rocpy import dtypes
from rocpy.blaslt.model.epilogues import EPILOGUES
from rocpy.blaslt.model.problem import OperandInfo, Problem
from rocpy.blaslt.model.product_types import BLOCK, scale_entry
from rocpy.blaslt.model.shapes import dense_strides, matrix_layout

__all__ = ["Layout", "Lowered", "lower", "with_copies"]

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
    """A problem in the library's terms, or the operands that must be copied before it can be; never changed.

    Parameters
    ----------
    copies
        Names of operands whose layout the library cannot take; ``"out"`` means that the result is computed aside and
        copied into it. When there are any, nothing but ``columns`` is filled in.
    columns
        Whether the result lies in columns, so that a copy of c must.
    transposed
        Whether results in columns are computed aside, as matrices of shape (N, M), and transposed afterwards.
    swapped
        Whether the transposed product is computed, so that the library's A is the user's b.
    """

    copies: tuple[str, ...] = ()
    columns: bool = False
    transposed: bool = False
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
    auxiliaries: tuple[tuple[int, int, int, tuple[int, ...]], ...] = ()


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


# One for a plan and the look-up of its stored choice, and for all strategies of a custom epilogue.
@functools.lru_cache(maxsize=64)
def lower(problem: Problem, auxiliaries: tuple[OperandInfo, ...] = ()) -> Lowered:
    """Return the problem in hipBLASLt's terms; see :class:`Lowered` for what must be copied first.

    ``auxiliaries`` are arrays with an element for each of the result's, of shape (batch ..., M, N), that an epilogue
    reads or writes; they may repeat elements.
    """
    lowering = _Lowering(problem)
    lowering.lay_out_inputs()
    lowering.lay_out_result()
    lowering.orient_inputs()
    lowering.lay_out_c()
    lowering.lay_out_bias()
    lowering.lay_out_aux()
    if lowering.copies:
        return Lowered(copies=tuple(lowering.copies), columns=not lowering.swapped)
    lowering.step_through_batch(auxiliaries)
    lowering.join_rows()
    return lowering.finish()


class _Lowering:
    """A problem on its way to hipBLASLt's terms: one method for each decision, in the order in which they depend.

    Attributes
    ----------
    lies
        How each matrix lies; ``None`` where the library cannot take it.
    matrix, batch
        Strides of each operand's matrix and along its batch axes.
    strides, extents
        Of the batch axes, after those that every operand steps through evenly are one.
    paces
        Of what lies beside the result: steps along its rows and columns.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.row = problem.row
        self.batch_ndim = len(problem.batch_shape)
        self.m = problem.m
        self.copies: list[str] = []
        self.lies: dict[str, tuple[str, int] | None] = {}
        self.shape: dict[str, tuple[int, int]] = {}
        self.matrix: dict[str, tuple[int, int]] = {}
        self.batch: dict[str, tuple[int, ...]] = {"bias": (0,) * self.batch_ndim}
        self.fresh = OperandInfo(problem.result_shape, dense_strides(problem.result_shape), problem.dtype)
        self.transposed, self.swapped = False, True
        self.extents: list[int] = []
        self.strides: dict[str, list[int]] = {}
        self.paces: dict[str, list[int]] = {}

    def copy(self, name: str) -> None:
        """Ask for a copy of an operand."""
        if name not in self.copies:
            self.copies.append(name)

    def lie_of(self, name: str) -> tuple[str, int]:
        """Return how a matrix lies that needs no copy."""
        lie = self.lies[name]
        assert lie is not None
        return lie

    def lay_out_inputs(self) -> None:
        """See how a and b lie."""
        problem = self.problem
        for name, operand in (("a", problem.a), ("b", problem.b)):
            shape, strides, batch_shape, batch = _view(operand, name == "a", self.batch_ndim)
            packed = name == "b" and problem.b.packed
            self.shape[name], self.matrix[name], self.batch[name] = shape, strides, batch
            self.lies[name] = ("row", max(1, problem.n)) if packed else matrix_layout(shape, strides)
            if self.lies[name] is None or _unusable_batch(batch_shape, batch):
                self.copy(name)

    def lay_out_result(self) -> None:
        """Choose the result's orientation, which decides everything else; no two of its elements may be one."""
        problem, row = self.problem, self.row
        size = (problem.m, problem.n)
        out = problem.out
        if out is not None and out.dtype != problem.dtype:
            self.copy("out")
            out = None
        matrix, batch = _result_view(out or self.fresh, problem)
        lies = matrix_layout(size, matrix)
        bound_to_rows = row.bias or row.aux != "none" or row.gradient == "bgrad" or problem.b.packed
        if problem.column_bias:
            # hipBLASLt's bias runs along the rows of its D, which lies in columns then.
            lies = _as("column", size, matrix) if _separate(problem, matrix, batch) else None
            self.transposed = lies is None or (row.aux == "store" and min(size) > 1)
            if self.transposed:
                matrix, batch = _result_view(_in_columns(problem), problem)
                lies = ("column", max(1, problem.m))
        elif lies is None or not _separate(problem, matrix, batch) or (lies[0] == "column" and bound_to_rows):
            self.copies.append("out")
            matrix, batch = _result_view(self.fresh, problem)
            lies = matrix_layout(size, matrix)
        assert lies is not None  # a dense result always lies in rows
        self.lies["d"], self.matrix["d"], self.batch["d"] = lies, matrix, batch
        self.swapped = lies[0] == "row"

    def orient_inputs(self) -> None:
        """Have a and b lie as conjugation and scales by blocks need it."""
        problem = self.problem
        # Only the transposing operation conjugates; a conjugate operand that lies the other way is resolved by a copy.
        across = "column" if self.swapped else "row"
        conjugated = {"a": problem.conj_a, "b": problem.conj_b and not problem.b.packed}
        for name, is_conjugated in conjugated.items():
            if is_conjugated and self.lies[name] is not None:
                self.lies[name] = _as(across, self.shape[name], self.matrix[name])
                if self.lies[name] is None:
                    self.copy(name)
        if problem.scale_a == "block32":
            # Both are read along K.
            self.lies["a"] = _as("row", self.shape["a"], self.matrix["a"])
            if not problem.b.packed:
                self.lies["b"] = _as("column", self.shape["b"], self.matrix["b"])
            for name in ("a", "b"):
                if self.lies[name] is None:
                    self.copy(name)

    def lay_out_c(self) -> None:
        """See whether c lies as the result does."""
        problem = self.problem
        d_lies = self.lie_of("d")
        self.lies["c"], self.matrix["c"], self.batch["c"] = d_lies, self.matrix["d"], self.batch["d"]
        if problem.c is None:
            return
        if problem.c.shape != problem.result_shape:
            self.copy("c")
            return
        size = (problem.m, problem.n)
        self.matrix["c"], self.batch["c"] = _result_view(problem.c, problem)
        lies = matrix_layout(size, self.matrix["c"])
        if lies is not None and lies[0] != d_lies[0] and min(size) == 1:
            lies = _as(d_lies[0], size, self.matrix["c"])
        if lies is None or lies[0] != d_lies[0] or _unusable_batch(problem.batch_shape, self.batch["c"]):
            self.copy("c")
        else:
            self.lies["c"] = lies

    def lay_out_bias(self) -> None:
        """See how a bias lies that is read, or one whose gradient is written."""
        problem = self.problem
        if problem.bias is not None:
            along = -2 if problem.column_bias else -1
            if problem.bias.strides[along] != 1 and problem.bias.shape[along] > 1:
                self.copy("bias")
            extents, steps = problem.bias.shape[:along], problem.bias.strides[:along]
        elif self.row.gradient:
            extents, steps = problem.gradient_shape[:-1], dense_strides(problem.gradient_shape)[:-1]
        else:
            return
        pad = self.batch_ndim - len(extents)
        self.batch["bias"] = (0,) * pad + tuple(s if e != 1 else 0 for e, s in zip(extents, steps, strict=True))
        if problem.bias is not None and _unusable_batch((1,) * pad + extents, self.batch["bias"]):
            self.copy("bias")

    def lay_out_aux(self) -> None:
        """See how the auxiliary matrix lies."""
        problem = self.problem
        size = (problem.m, problem.n)
        if problem.aux is None:
            like = _in_columns(problem) if problem.column_bias and min(size) > 1 else self.fresh
            self.matrix["aux"], self.batch["aux"] = _result_view(like, problem)
            self.lies["aux"] = _as("column" if problem.column_bias else "row", size, self.matrix["aux"])
            return
        self.matrix["aux"], batch = _result_view(problem.aux, problem)
        self.batch["aux"] = batch
        self.lies["aux"] = lies = _as("row", size, self.matrix["aux"])
        # hipBLASLt wants whole matrices apart: a batch stride under M x N is refused.
        if (
            lies is None
            or any(0 <= s < lies[1] * problem.m and e > 1 for e, s in zip(problem.batch_shape, batch, strict=True))
            or _unusable_batch(problem.batch_shape, batch)
        ):
            self.copy("aux")

    def step_through_batch(self, auxiliaries: Sequence[OperandInfo]) -> None:
        """Collect the steps of every operand along the batch axes, and make one axis of those that allow it."""
        problem = self.problem
        strides = {name: list(self.batch[name]) for name in ("a", "b", "c", "d", "bias", "aux")}
        strides["scale_a"] = _scale_steps(problem, "scale_a", problem.scale_a_batch)
        strides["scale_b"] = _scale_steps(problem, "scale_b", problem.scale_b_batch)
        for i, operand in enumerate(auxiliaries):
            self.paces[f"beside{i}"] = list(operand.strides[-2:])
            steps = zip(problem.batch_shape, operand.strides[:-2], strict=True)
            strides[f"beside{i}"] = [s if e != 1 else 0 for e, s in steps]
        self.extents, self.strides = _collapse(list(problem.batch_shape), strides)

    def join_rows(self) -> None:
        """Make a single taller product of entries that have one weight and lie one after the other."""
        problem, strides = self.problem, self.strides
        if self.row.gradient == "bgrad" or len(self.extents) != 1 or problem.conj_a:
            return
        if self.m == 1 and self.swapped:
            # A matrix of one row may have any ld: let it be the step from one batch entry to the next.
            for name, columns in (("a", problem.k), ("c", problem.n), ("d", problem.n), ("aux", problem.n)):
                if strides[name][0] >= columns and _as("row", (1, columns), self.matrix[name]):
                    self.lies[name] = ("row", strides[name][0])
        if self.m == 1:  # the step to a next row means nothing yet
            for name, pace in self.paces.items():
                pace[0] = strides[name][0]
        if self._is_one_product() and self.extents[0] * self.m <= 2**31 - 1:
            self.m *= self.extents[0]
            self.extents, self.strides = [], {name: [] for name in strides}

    def _is_one_product(self) -> bool:
        problem, row, m = self.problem, self.row, self.m
        step = {name: values[0] for name, values in self.strides.items()}
        follows = {name: step[name] == self.lie_of(name)[1] * m for name in ("a", "c", "d", "aux")}
        return (
            self.lie_of("a")[0] == self.lie_of("d")[0] == "row"
            and follows["a"]
            and follows["c"]
            and follows["d"]
            and (row.aux == "none" or follows["aux"])
            and step["b"] == step["scale_b"] == 0
            and step["bias"] == (m if row.gradient == "bgrada" else 0)
            and (problem.scale_a in ("", "scalar") or step["scale_a"] == scale_entry(problem, "scale_a"))
            and all(step[name] == pace[0] * m for name, pace in self.paces.items())
        )

    def _batch_axis(self) -> int | None:
        """Return the axis that is the library's batch; the others are a loop around it."""
        strides = self.strides
        if self.problem.scale_a == "block32":
            return None
        # Entries that write one gradient vector together must not run together. The library has no stride from one
        # entry's scales to the next: entries that differ in them are calls of their own.
        together = [
            axis
            for axis in range(len(self.extents))
            if (not self.row.gradient or strides["bias"][axis])
            and not strides["scale_a"][axis]
            and not strides["scale_b"][axis]
        ]
        return max(together, key=lambda axis: self.extents[axis], default=None)

    def finish(self) -> Lowered:
        """Return the problem in the library's terms."""
        problem, swapped = self.problem, self.swapped
        out = Lowered(swapped=swapped, columns=not swapped, transposed=self.transposed)
        inner = self._batch_axis()
        step = {name: values[inner] if inner is not None else 0 for name, values in self.strides.items()}
        out.batch_count = self.extents[inner] if inner is not None else 1
        out.outer_shape = tuple(e for axis, e in enumerate(self.extents) if axis != inner)
        outer = {name: tuple(s for i, s in enumerate(values) if i != inner) for name, values in self.strides.items()}
        out.outer_strides = {name: outer[name] for name in OPERANDS}
        out.auxiliaries = tuple(
            (pace[swapped], pace[not swapped], step[name], outer[name]) for name, pace in self.paces.items()
        )
        self._set_matrices(out, step)
        out.epilogue = self._enumerator()
        out.compute = _COMPUTE[problem.compute]
        out.scale_type = dtypes.lookup(scale_type(problem)).hip
        out.bias_batch_stride = step["bias"]
        out.aux_ld = max(1, self.lie_of("aux")[1])
        # Never the default, which hipBLASLt takes from an unset ld.
        out.aux_batch_stride = step["aux"] if out.batch_count > 1 else out.aux_ld * (self.m if swapped else problem.n)
        return out

    def _set_matrices(self, out: Lowered, step: dict[str, int]) -> None:
        """Fill in the four layouts, the operations, and what scales of a and b are."""
        problem, m, swapped = self.problem, self.m, self.swapped
        in_columns = "row" if swapped else "column"  # how what is column-major to the library lies
        layouts, operations = [], []
        sides = ("a", (m, problem.k), problem.conj_a), ("b", (problem.k, problem.n), problem.conj_b)
        for name, size, conjugated in sides:
            orientation, ld = self.lie_of(name)
            rows, columns = reversed(size) if orientation == "row" else size
            layouts.append(Layout(rows, columns, ld, step[name]))
            operations.append(OP_C if conjugated else OP_N if orientation == in_columns else OP_T)
        modes = [_SCALE_MODE[problem.scale_a], _SCALE_MODE[problem.scale_b]]
        if swapped:
            for pair in (layouts, operations, modes):
                pair.reverse()
        (out.a, out.b), (out.op_a, out.op_b), (out.scale_mode_a, out.scale_mode_b) = layouts, operations, modes
        rows, columns = (problem.n, m) if swapped else (m, problem.n)
        out.c, out.d = (Layout(rows, columns, self.lie_of(name)[1], step[name]) for name in ("c", "d"))
        for layout in (out.a, out.b, out.c, out.d):
            layout.ld = max(layout.ld, layout.rows, 1)
        if problem.k == 0 and problem.scale_a == "block32" and not problem.b.packed:
            for layout in (out.a, out.b):  # lines of nothing begin with a whole byte, too
                layout.ld, layout.batch_stride = BLOCK, 0

    def _enumerator(self) -> int:
        row = self.row
        if self.swapped and row.gradient in ("bgrada", "bgradb"):
            # The library's A is the user's b: what it calls the gradient along A is the one along b.
            return 512 if row.gradient == "bgrada" else 256
        # An epilogue that the library lacks is never launched; its product is lowered for what must be copied.
        return row.enumerator or row.base_epilogue or EPILOGUES["default"].enumerator or 1


def scale_type(problem: Problem) -> str:
    """Return the type in which the library reads alpha and beta."""
    if problem.is_complex or problem.compute == "float64":
        return problem.dtype
    return "int32" if problem.dtype in ("int32", "int8") and not (problem.scale_a or problem.scale_b) else "float32"


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
        transposed = _as("row", (columns, rows), (column_stride, row_stride))
        return None if transposed is None else ("column", transposed[1])
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
    retained = [axis for axis, extent in enumerate(extents) if extent != 1]
    extents = [extents[axis] for axis in retained]
    strides = {name: [values[axis] for axis in retained] for name, values in strides.items()}
    axis = len(extents) - 2
    while axis >= 0:
        if all(values[axis] == values[axis + 1] * extents[axis + 1] for values in strides.values()):
            extents[axis : axis + 2] = [math.prod(extents[axis : axis + 2])]
            for values in strides.values():
                del values[axis]
        axis -= 1
    return extents, strides
