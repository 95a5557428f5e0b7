# SPDX-License-Identifier: MIT
"""An epilogue's inputs: all of them by name, and of shapes that broadcast to the product's."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rocpy.blaslt.model.shapes import broadcast
from rocpy.epilogues.expressions.expression import Expression
from rocpy.errors import InvalidProblemError

__all__ = ["are_known", "check_names", "complete", "refuse_missing", "shape_of", "with_numbers"]


# What an input is called in messages.
LABEL = "epilogue_inputs[{!r}]"


def complete(expression: Expression, inputs: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the inputs by name with their defaults; refuses what is missing or unknown.

    Raises
    ------
    InvalidProblemError
        If an input is missing, or there is none of that name.
    """
    if inputs is None:
        inputs = {}
    if type(inputs) is dict and tuple(inputs) == expression.inputs:
        complete_inputs = inputs.copy()  # another thread may change the caller's
        for value in complete_inputs.values():
            if value is None:
                break
        else:
            return complete_inputs
    if not isinstance(inputs, Mapping):
        raise InvalidProblemError(
            f"epilogue_inputs: got {type(inputs).__name__}, expected a dict of the inputs by name"
        )
    complete_inputs = {**dict(expression.defaults), **inputs}
    check_names("epilogue_inputs", expression, inputs, "input", expression.inputs)
    refuse_missing(expression, [name for name in expression.inputs if complete_inputs.get(name) is None])
    return complete_inputs


def check_names(subject: str, expression: Expression, names: Iterable[str], noun: str, known: Sequence[str]) -> None:
    """Refuse names that an epilogue does not have."""
    for name in names:
        if name not in known:
            raise InvalidProblemError(
                f"{subject}: epilogue {expression.name!r} has no {noun} {name!r}; its {noun}s: "
                f"{', '.join(known) or 'none'}"
            )


def refuse_missing(expression: Expression, missing: Sequence[str]) -> None:
    """Refuse a call without some inputs, if there are any."""
    if missing:
        raise InvalidProblemError(
            f"epilogue_inputs: epilogue {expression.name!r} needs {', '.join(map(repr, missing))}; its inputs: "
            f"{', '.join(expression.inputs)}"
        )


def with_numbers(expression: Expression, numbers: Mapping[str, bool | int | float], label: str = LABEL) -> Expression:
    """Return an expression with numbers for inputs; refuses integers that grow beyond 64 bits."""
    # 1, 1.0 and True are three numbers, and -0.0 is not 0.0.
    key = tuple((name, type(value), repr(value), value) for name, value in numbers.items())
    try:
        return _with_values(expression, key)
    except InvalidProblemError as error:
        named = ", ".join(label.format(name) for name, value in numbers.items() if type(value) is int)
        raise InvalidProblemError(f"{named}: {error}") from None


@functools.lru_cache(maxsize=512)
def _with_values(expression: Expression, numbers: tuple[tuple[Any, ...], ...]) -> Expression:
    return expression.with_values({name: value for name, _, _, value in numbers})


def are_known(*arrays: Any) -> bool:
    """Whether all extents are numbers: no symbols, and no tensors, which they are in torch.jit.trace."""
    return all(isinstance(extent, int) for one in arrays for extent in one.shape)


def shape_of(
    expression: Expression,
    full: tuple[int, ...],
    b_axes: int,
    inputs: Mapping[str, Any],
    label: str = LABEL,
) -> tuple[int, ...]:
    """Return the shape of an epilogue's results, from the product's; refuses inputs that do not broadcast to it.

    Parameters
    ----------
    expression
        The epilogue.
    full
        The product's shape.
    b_axes
        Axes of the second matrix, of which a vector has one.
    inputs
        Whatever has a ``shape``, by name.
    label
        What an input is called in messages.

    Raises
    ------
    InvalidProblemError
        If the product has no pairs of columns, or an input does not broadcast.
    """
    half = full
    if any(node.op == "pick" for node in expression.nodes):
        wrong = ""
        if not full or b_axes < 2:
            wrong = "a product with a vector has no columns; pass a matrix"
        elif full[-1] % 2:
            wrong = f"the product has shape {full}; N must be even: interleave two weights of equal shape"
        if wrong:
            raise InvalidProblemError(
                f"epilogue {expression.name!r} takes every second column of the product, and {wrong}"
            )
        half = (*full[:-1], full[-1] // 2)
    for name, halved in _domains(expression).items() if inputs else ():
        if name in inputs:
            for wanted in {half if one else full for one in halved}:
                _check_shape(label.format(name), tuple(inputs[name].shape), wanted)
    return half if expression.halved else full


def _domains(expression: Expression) -> dict[str, set[bool]]:
    """Return for each input whether it goes with values of half the product's columns, of all, or both."""
    halves = expression.halves
    wanted: list[set[bool]] = [set() if half is None else {half} for half in halves]
    for position in expression.outputs:
        wanted[position] |= {bool(halves[position])}
    domains: dict[str, set[bool]] = {}
    for position in range(len(expression.nodes) - 1, -1, -1):
        node = expression.nodes[position]
        below = {"pick": {False}, "interleave": {True}}.get(node.op, wanted[position])
        for arg in node.args:
            wanted[arg] |= below
        if node.op == "input":
            domains.setdefault(node.value, set()).update(wanted[position])
    return domains


def _check_shape(name: str, shape: tuple[int, ...], wanted: tuple[int, ...]) -> None:
    if broadcast(shape, wanted) == wanted:
        return
    forms = []
    if wanted:
        forms.append(f"({wanted[-1]},) for one per column")
    if len(wanted) > 1:
        forms.append(f"({wanted[-2]}, 1) for one per row")
    raise InvalidProblemError(
        f"{name}: shape {shape} does not broadcast to the result's {wanted}; expected "
        + ", ".join([*forms, f"{wanted}, or one number"])
    )
