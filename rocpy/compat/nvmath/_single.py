# SPDX-License-Identifier: MIT
"""A plain product of single arrays by the rules of ``nvmath.linalg``: structured operands, and c as the result is."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from rocpy.compat.nvmath import _arrays, _product, _qualifiers
from rocpy.compat.nvmath._configuration import matrix_qualifiers_dtype
from rocpy.compat.nvmath._engine import kinds_of
from rocpy.compat.nvmath._errors import PackageError
from rocpy.errors import InvalidProblemError

_STATE = ("_operands", "_alpha", "_beta", "_released", "_dirty")


class Single(_product.Matmul):
    """A product of arrays; :class:`rocpy.compat.nvmath.linalg.Matmul` has what users call.

    hipBLASLt has no product of structured matrices: each execution makes the full one of what is read.
    """

    def __init__(
        self,
        a: Any,
        b: Any,
        c: Any,
        alpha: Any,
        beta: Any,
        qualifiers: Any,
        *,
        options: Mapping[str, Any],
        stream: Any,
    ) -> None:
        self._freed = True  # until the advanced constructor has begun
        operands = {"a": a, "b": b, "c": c}
        for name, value in operands.items():
            if value is not None or name != "c":
                _arrays.package_of(value, name)
        self._qualifiers = _qualifiers.read(qualifiers, c is not None)
        self._copies = any(map(_qualifiers.is_structured, self._qualifiers))
        full_a, full_b = (
            _qualifiers.matrix(operands[name], self._qualifiers[at], name) for at, name in enumerate("ab")
        )
        self._vectors = len(full_a.shape) == 1, len(full_b.shape) == 1
        if c is not None:
            _check_c(c, full_a, full_b)
        marks = np.zeros(3, matrix_qualifiers_dtype)
        marks["is_conjugate"] = self._qualifiers["conjugate"]
        super().__init__(
            full_a, full_b, self._lifted(c), alpha=alpha, beta=beta, qualifiers=marks, options=options, stream=stream
        )
        column = any(len(x.shape) < 2 or _arrays.is_column_ordered(x) for x in ((a, b) if c is None else (c,)))
        self._specification = dataclasses.replace(self._specification, column_major=column)
        self._operands = operands
        self._kinds = kinds_of(operands)

    def _lifted(self, c: Any) -> Any:
        """Return c with the axes that a and b lack."""
        if c is None:
            return None
        lifted = c[..., None] if self._vectors[1] else c
        return lifted[..., None, :] if self._vectors[0] else lifted

    def _matrix(self, name: str) -> Any:
        value = self._operands[name]
        if name == "c":
            return self._lifted(value)
        return _qualifiers.matrix(value, self._qualifiers["ab".index(name)], name)

    def check_alike(self, other: Single) -> None:
        """Refuse another product of a sequence with operands of another package, device or dtype."""
        mine, others = self._specification, other._specification
        if (mine.extents.package, mine.device) != (others.extents.package, others.device):
            raise PackageError(
                f"a: of {mine.extents.package} on {mine.device}, and of {others.extents.package} on {others.device}; "
                "the products of sequences have one package and one device"
            )
        if mine.dtype != others.dtype:
            raise InvalidProblemError(f"a: {mine.dtype} and {others.dtype}; the products of sequences have one dtype")

    def state(self) -> dict[str, Any]:
        """Return what reset_operands() changes."""
        return {name: getattr(self, name) for name in _STATE}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Put back what :meth:`state` returned."""
        for name, value in state.items():
            setattr(self, name, value)


def _check_c(c: Any, a: Any, b: Any) -> None:
    """Refuse a c that is not of the result's shape."""
    left, right = tuple(a.shape), tuple(b.shape)
    wanted = (left[:-2] or right[:-2]) + left[-2:-1] + (right[-1:] if len(right) > 1 else ())
    if tuple(c.shape) != wanted:
        raise InvalidProblemError(f"c: got shape {tuple(c.shape)}, expected {wanted}, as the result is")
