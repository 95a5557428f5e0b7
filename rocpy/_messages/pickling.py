# SPDX-License-Identifier: MIT
"""What cannot be pickled says so, and what to do instead."""

from __future__ import annotations

from typing import NoReturn

__all__ = ["refuse_pickling"]


def refuse_pickling(value: object, instead: str) -> NoReturn:
    """Raise the TypeError of a ``__reduce__`` of something that belongs to this process.

    Parameters
    ----------
    value
        What was to be pickled or copied.
    instead
        What to do, as the end of a sentence.
    """
    name = type(value).__name__
    article = "an" if name[0] in "AEIOU" else "a"
    raise TypeError(f"{article} {name} belongs to this process and cannot be pickled or copied; {instead}")
