# SPDX-License-Identifier: MIT
"""Scales of grouped products: numbers, one for each group, or one for each row of a and column of b."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from rocpy._operand import describe
from rocpy.blaslt.arrays.copies import contiguous
from rocpy.blaslt.engine._scales import repeated
from rocpy.blaslt.model.product_types import are_of_lines
from rocpy.blaslt.model.scale_arguments import check_scale_number, plain_scale
from rocpy.blaslt.model.shapes import dense_strides
from rocpy.errors import InvalidOperandError, InvalidProblemError, UnsupportedError

__all__: list[str] = []

_BLOCKS = ("float8_e8m0fnu", "uint8")


@dataclass(frozen=True, slots=True)
class Placed:
    """Where the scales of each group are.

    Parameters
    ----------
    kind
        ``"scalar"`` or ``"vector"``.
    value
        A number, or a dense array of float32.
    per_index, per_group
        Steps in scales: from one element of the axis that the groups share to the next, and from group to group.
    """

    kind: str
    value: Any
    per_index: int = 0
    per_group: int = 0

    @property
    def is_number(self) -> bool:
        """Whether it is a number on the host."""
        return isinstance(self.value, float)

    @property
    def is_single(self) -> bool:
        """Whether it is an array of one number that may be the scale of the only row or column."""
        shape = tuple(getattr(self.value, "shape", ()))
        return self.kind == "scalar" and len(shape) in (1, 2) and math.prod(shape) == 1


@dataclass(frozen=True, slots=True)
class Lines:
    """The rows of a, or the columns of b: how many there are, and whether the groups share them out."""

    count: int
    shared: bool


def of_lists(scale: Any, name: str, count: int) -> list[Any]:
    """Return the scales of each product of a list."""
    if not isinstance(scale, list | tuple):
        return [scale] * count
    if len(scale) not in (1, count):
        raise InvalidProblemError(f"{name}: got {len(scale)} for {count} products; pass one for each, or one for all")
    return list(scale) * count if len(scale) == 1 else list(scale)


def pair(
    values: tuple[Any, Any], lines: tuple[Lines, Lines], groups: int, longest: int, by_rows: bool
) -> tuple[Placed | None, Placed | None]:
    """Return where the scales of a and b are, both of one kind, as hipBLASLt wants them.

    ``longest`` is the largest number of rows or columns that one group has of an axis that they share; ``by_rows``: a
    scale of a for its only row is applied as those of several rows are.
    """
    kinds_read = [
        None if value is None else _read(value, name, each, groups)
        for value, name, each in zip(values, ("scale_a", "scale_b"), lines, strict=True)
    ]
    single_a, single_b = (one is not None and one.is_single for one in kinds_read)
    of_lines = (single_a or single_b) and are_of_lines(lines[0].count, lines[1].count, single_a, single_b)
    for index, wanted in ((0, single_a and (by_rows or of_lines)), (1, single_b and of_lines)):
        one = kinds_read[index]
        if one is not None and wanted:
            length = longest if lines[index].shared else lines[index].count
            kinds_read[index] = _as_vectors(one, one.value, groups, length)
    if {one.kind for one in kinds_read if one is not None} == {"scalar", "vector"}:
        for index, one in enumerate(kinds_read):
            other = kinds_read[1 - index]
            if one is not None and other is not None and one.kind == "scalar":
                length = longest if lines[index].shared else lines[index].count
                kinds_read[index] = _as_vectors(one, other.value, groups, length)
    return kinds_read[0], kinds_read[1]


def _read(value: Any, name: str, lines: Lines, groups: int) -> Placed:
    """Return where scales are by their shape."""
    value = plain_scale(name, value)
    if isinstance(value, int | float):
        check_scale_number(name, value)
        return Placed("scalar", float(value))
    if isinstance(value, list | tuple):
        raise InvalidOperandError(
            f"{name}: got {type(value).__name__}; with offsets= pass a number or one array: of shape ({groups}, 1, 1) "
            "for one scale for each group"
        )
    view = describe(value, name)
    shape = tuple(view["shape"])
    if view["dtype"] in _BLOCKS:
        raise UnsupportedError(
            f"{name} is {view['dtype']}: block scales along K are not supported with offsets=; pass lists of the "
            "groups' "
            "operands and scales"
        )
    if view["dtype"] != "float32":
        raise InvalidProblemError(f"{name} is {view['dtype']}; scales are float32: cast it")
    if math.prod(shape) == 1:
        return Placed("scalar", value)
    line = (lines.count, 1) if name == "scale_a" else (1, lines.count)
    dense = value
    if tuple(view["strides"]) != dense_strides(shape):
        dense = contiguous(value)
    if shape == (groups, 1, 1):
        return Placed("scalar", dense, per_group=1)
    if lines.shared:
        forms: tuple[tuple[int, ...], ...] = ((lines.count,), line)
        if shape in forms:
            return Placed("vector", dense, per_index=1)
    else:
        forms = ((groups, lines.count), (groups, *line))
        if shape in forms:
            return Placed("vector", dense, per_group=lines.count)
        if shape == (1, *line):
            return Placed("vector", dense)
    text = " or ".join(map(str, forms))
    raise InvalidProblemError(
        f"{name}: got shape {shape}, expected one number, shape {(groups, 1, 1)} for one per group, or {text} for one "
        f"per {'row of a' if name == 'scale_a' else 'column of b'}"
    )


def _as_vectors(one: Placed, like: Any, groups: int, length: int) -> Placed:
    """Return a scale, or one for each group, as vectors of equal numbers."""
    if one.per_group == 0:
        is_vector = length == 1 and not one.is_number
        return Placed("vector", one.value if is_vector else repeated(one.value, like, length))
    return Placed("vector", contiguous(one.value, (groups, 1, length)), per_group=length)


def of_group(value: Any, name: str, lines: Lines, groups: int, group: int, low: int, high: int) -> Any:
    """Return one group's scales, as :func:`rocpy.matmul` takes them."""
    shape = tuple(getattr(value, "shape", ()))
    if math.prod(shape) == 1:  # with axes it may be that of the only row or column of all, and not of one group
        return value if lines.count == 1 or not shape else value.reshape(())
    if shape == (groups, 1, 1):
        return value[group, 0, 0]
    if not lines.shared:
        return value[0 if shape[0] == 1 and len(shape) == 3 else group]
    return value[:, low:high] if name == "scale_b" and len(shape) == 2 else value[low:high]
