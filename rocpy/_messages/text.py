# SPDX-License-Identifier: MIT
"""Names as callers pass them: Python's own strings, numpy's, and members of enums that are strings."""

from __future__ import annotations

from typing import Any

__all__ = ["plain_text"]


def plain_text(value: Any) -> Any:
    """Return a string of any class as Python's own, since those of others may print otherwise; anything else as it is.

    Examples
    --------
    >>> import numpy
    >>> from rocpy._messages.text import plain_text
    >>> plain_text(numpy.str_("gelu")), plain_text(None)
    ('gelu', None)
    """
    return str.__str__(value) if isinstance(value, str) else value
