# SPDX-License-Identifier: MIT
"""The values of a problem's record: a file may hold anything in their places."""

from __future__ import annotations

from typing import Any

from rocpy import _json
from rocpy.errors import InvalidProblemError

__all__ = ["checked_expression", "checked_integers", "checked_settings", "checked_strides", "hidden_difference"]

MOST_AXES = 32
_SCALE_KINDS = ("", "scalar", "vector", "block32")
_LARGEST = 2**63 - 1


def checked_integers(value: Any, name: str, least: int = 0) -> tuple[int, ...]:
    """Return extents, or with a negative least number strides, of a record."""
    if not isinstance(value, list | tuple) or len(value) > MOST_AXES:
        raise InvalidProblemError(f"{name}: {value!r:.80} in a problem's record, expected at most {MOST_AXES} integers")
    for each in value:
        if not isinstance(each, int) or isinstance(each, bool) or not least <= each <= _LARGEST:
            raise InvalidProblemError(
                f"{name}: {each!r:.80} in a problem's record, expected an integer from {least} on"
            )
    return tuple(value)


def checked_strides(value: Any, name: str, axes: int) -> tuple[int, ...]:
    """Return the strides of an operand with so many axes."""
    strides = checked_integers(value, name, -_LARGEST)
    if len(strides) != axes:
        raise InvalidProblemError(f"{name}: {strides} in a problem's record, expected one for each of {axes} axes")
    return strides


def checked_settings(data: dict[str, Any]) -> dict[str, Any]:
    """Return what a record says of names, scales, amax and conjugates."""
    names: dict[str, Any] = {name: data[name] for name in ("epilogue", "dtype", "compute")}
    for name, value in names.items():
        if not isinstance(value, str):
            raise InvalidProblemError(f"{name}: {value!r:.80} in a problem's record, expected a name")
    flags: dict[str, Any] = {
        name: data[name] for name in ("scale_c", "scale_d", "amax", "conj_a", "conj_b") if name in data
    }
    kinds: dict[str, Any] = {name: data[name] for name in ("scale_a", "scale_b") if name in data}
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise InvalidProblemError(f"{name}: {value!r:.80} in a problem's record, expected true or false")
    for name, value in kinds.items():
        if value not in _SCALE_KINDS:
            raise InvalidProblemError(f"{name}: {value!r:.80} in a problem's record, expected one of {_SCALE_KINDS}")
    batches: dict[str, Any] = {
        name: checked_integers(data[name], name) for name in ("scale_a_batch", "scale_b_batch") if name in data
    }
    return {**names, **flags, **kinds, **batches}


def checked_expression(text: Any) -> str:
    """Return the text of a custom epilogue, an object with a name; empty for none."""
    if not isinstance(text, str) or (text and not isinstance(_json.loads(text)["name"], str)):
        raise InvalidProblemError(f"expression: {text!r:.80} in a problem's record, expected the text of an object")
    return text


def hidden_difference(recorded: Any, problem: Any) -> str:
    """Return in which respect two problems differ whose texts are equal."""
    if recorded.expression != problem.expression:
        return " with another expression, or other numbers in it"
    if recorded.inputs != problem.inputs:
        return " with epilogue_inputs of other shapes or types"
    return " with other strides"
