# SPDX-License-Identifier: MIT
"""What new operands of a planned product may differ in from those before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rocpy.blaslt.model.problem import OperandInfo, Problem
from rocpy.blaslt.model.scale_arguments import ScaleArguments
from rocpy.errors import InvalidOperandError, InvalidProblemError

OPERANDS = ("a", "b", "c", "bias", "aux")


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
        check_operand(problem, name, name, old, new, dynamic)
    return differs


def check_operand(
    problem: Problem, label: str, name: str, old: OperandInfo, new: OperandInfo, dynamic: str | None
) -> None:
    """Refuse an operand of another shape or type, but for an M that may change; it has that where ``name`` has it."""
    same_kind = old.dtype == new.dtype and old.packed == new.packed
    only_m = same_kind and _only_m(problem, name, old.shape, new.shape)
    if same_kind and (old.shape == new.shape or (dynamic == "m" and only_m)):
        return
    hint = ""
    if dynamic is None and only_m:
        hint = ", or this one with options={'dynamic': 'm'}"
    raise InvalidProblemError(
        f"{label}: it was {text_of(old)} and would become {text_of(new)}; create a new Matmul for another problem{hint}"
    )


def lacking_operands(problem: Problem, changed: Iterable[str]) -> list[str]:
    """Return the operands of a problem that are not among those that change."""
    return [name for name in OPERANDS if getattr(problem, name) is not None and name not in changed]


def refuse_lacking(lacking: Sequence[str]) -> None:
    """Refuse to go on with operands that were released and are not passed, if there are any."""
    if lacking:
        raise InvalidOperandError(
            f"{', '.join(lacking)}: the operands were released, so all of them must be passed again; pass "
            f"{lacking[0].partition('[')[0]}="
        )


def check_names(problem: Problem, operands: Mapping[str, Any], changed: Iterable[str]) -> None:
    """Refuse operands that the product was made without."""
    for name in changed:
        if operands[name] is None and getattr(problem, name) is None:
            raise InvalidProblemError(f"{name}: this product was created without it; create a new Matmul with {name}=")


def scales(before: ScaleArguments | None, changes: ScaleArguments | None) -> ScaleArguments | None:
    """Return the scales of a product with new ones in their places: ``before`` itself where none is given."""
    if changes is None:
        return before
    had = before or ScaleArguments()
    for (name, value), (_, old) in zip(changes.items(), had.items(), strict=True):
        if value is not None and old is None:
            raise InvalidProblemError(f"{name}: this product was created without it; create a new Matmul with {name}=")
    new = {"a": changes.a, "b": changes.b, "c": changes.c, "d": changes.d}
    return had.replaced(**{name: value for name, value in new.items() if value is not None})


def check_scales(old: Mapping[str, Any], new: Mapping[str, Any], m_changes: bool) -> None:
    """Refuse scales of another kind; with another M one for each row may become one number, or have been one."""
    for name in {**old, **new}:
        same_kind = m_changes and {old.get(name), new.get(name)} == {"scalar", "vector"}
        if old.get(name) != new.get(name) and not same_kind:
            raise InvalidProblemError(
                f"{name.removesuffix('_batch')}: it was {old.get(name)} and would become {new.get(name)}; create a "
                "new Matmul for scales of another kind"
            )


def text_of(operand: OperandInfo | None, number: Any = None) -> str:
    """Return what an operand is, or a number in its stead, for messages."""
    if operand is None:
        return f"the number {number!r} ({type(number).__name__})"
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
    position = len(old) + axis
    return old[:position] == new[:position] and old[position + 1 :] == new[position + 1 :]
