# SPDX-License-Identifier: MIT
"""The operators by which collectives combine arrays."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

__all__ = ["OPERATORS", "ReduceOp"]

ReduceOp: TypeAlias = Literal["sum", "prod", "max", "min", "avg"]
"""The names of the operators."""

OPERATORS: tuple[ReduceOp, ...] = get_args(ReduceOp)
