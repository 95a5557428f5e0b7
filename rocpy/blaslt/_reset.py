# SPDX-License-Identifier: MIT
"""What new operands of a planned product may differ in from those before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rocpy.blaslt.problem import OperandInfo, Problem
from rocpy.errors import InvalidProblemError


def check(
    problem: Problem, operands: Mapping[str, OperandInfo | None], changed: Iterable[str], dynamic: str | None
) -> bool:
    """Refuse what differs in more than its strides, and M where it may; returns whether anything differs at all."""
    differs = False
    for name in changed:
        old, new = getattr(problem, name), operands[name]
        if new is None or old == new:
            continue
        differs = True
        same_kind = old.dtype == new.dtype and old.packed == new.packed
        only_m = same_kind and _only_m(problem, name, old.shape, new.shape)
        if same_kind and (old.shape == new.shape or (dynamic == "m" and only_m)):
            continue
        hint = ""
        if dynamic is None and only_m:
            hint = ", or this one with options={'dynamic': 'm'}"
        raise InvalidProblemError(
            f"{name}: it was {_text(old)} and would become {_text(new)}; make a new Matmul for another problem{hint}"
        )
    return differs


def _text(operand: OperandInfo) -> str:
    return f"shape {operand.shape}, {operand.dtype}{', packed' if operand.packed else ''}"


def _only_m(problem: Problem, name: str, old: tuple[int, ...], new: tuple[int, ...]) -> bool:
    """Whether two shapes of an operand differ in nothing but the axis of M."""
    if name == "b" or len(problem.a.shape) < 2 or len(old) != len(new):
        return False
    if name == "bias" and not problem.column_bias:
        return False
    # c and aux lack the axis of N where b is a vector.
    axis = -2 if name in ("a", "bias") or len(problem.b.shape) > 1 else -1
    if len(old) < -axis:
        return False
    place = len(old) + axis
    return old[:place] == new[:place] and old[place + 1 :] == new[place + 1 :]
