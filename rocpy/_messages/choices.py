# SPDX-License-Identifier: MIT
"""Arguments that are one of a few values: switches and names. An array has no single truth value, nor comparison."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

__all__ = ["is_choice", "shown", "truth_value"]


def is_choice(value: object, choices: Container[str]) -> bool:
    """Whether a value of any type is one of some names.

    Examples
    --------
    >>> import numpy
    >>> from rocpy._messages.choices import is_choice
    >>> is_choice("host", ("device", "host")), is_choice(numpy.zeros(2), ("device", "host"))
    (True, False)
    """
    return isinstance(value, str) and value in choices


def shown(value: object) -> str:
    """Return how a message shows a value: names, numbers and ``None`` as they are written, the type of anything else.

    Examples
    --------
    >>> from rocpy._messages.choices import shown
    >>> shown("x"), shown([1, 2])
    ("'x'", 'list')
    """
    if value is None or isinstance(value, (str, bool, int, float)):
        try:
            return f"{value!r:.80}"
        except ValueError:  # more digits than Python prints
            return type(value).__name__
    return type(value).__name__


def truth_value(name: str, value: Any, error: type[Exception]) -> bool:
    """Return a switch as a bool, by Python's rule of what is true.

    Raises
    ------
    Exception
        It is neither true nor false, as arrays are; of the class ``error``.

    Examples
    --------
    >>> from rocpy._messages.choices import truth_value
    >>> truth_value("timing", 1, TypeError)
    True
    """
    try:
        return bool(value)
    except (TypeError, ValueError, RuntimeError):  # numpy's, and torch's
        raise error(f"{name}: got {type(value).__name__}, expected True or False") from None
