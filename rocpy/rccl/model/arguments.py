# SPDX-License-Identifier: MIT
"""Checks of arguments that several calls have."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rocpy._messages.text import plain_text
from rocpy.errors import InvalidArgumentError, InvalidProblemError

__all__ = [
    "check_own_counts",
    "check_seconds",
    "integer_in",
    "is_rank",
    "name_of",
    "rank_and_size",
    "row_counts",
    "settings_of",
    "unique_id_bytes",
]

# A truth value counts as 0 or 1 in Python; as a rank or a time it is an argument in the wrong position.
TRUTH_VALUES = (bool, np.bool_)


def check_seconds(timeout_s: Any) -> float:
    """Return a deadline in seconds.

    Raises
    ------
    InvalidArgumentError
        It is no positive number.

    Examples
    --------
    >>> from rocpy.rccl.model.arguments import check_seconds
    >>> check_seconds(2)
    2.0
    """
    try:
        seconds = 0.0 if isinstance(timeout_s, (str, *TRUTH_VALUES)) else float(timeout_s)
    except (TypeError, ValueError, OverflowError):
        seconds = 0.0
    if not seconds > 0:
        shown = repr(timeout_s) if len(repr(timeout_s)) < 80 else f"{repr(timeout_s)[:40]}..."
        raise InvalidArgumentError(f"timeout_s: got {shown}, expected a positive number of seconds")
    return seconds


def name_of(name: Any) -> str:
    """Return a communicator's name, which RCCL gets as a text in C.

    Raises
    ------
    InvalidArgumentError
        It has characters that such a text cannot have.

    Examples
    --------
    >>> from rocpy.rccl.model.arguments import name_of
    >>> name_of("training")
    'training'
    """
    text = str(plain_text(name))
    if "\0" in text or any("\ud800" <= letter <= "\udfff" for letter in text):
        raise InvalidArgumentError(f"name: got {text!r}, expected text without NUL and without surrogates")
    return text


def is_rank(rank: Any, nranks: int) -> bool:
    """Return whether something is the number of one of some ranks.

    Examples
    --------
    >>> from rocpy.rccl.model.arguments import is_rank
    >>> is_rank(1, 2), is_rank(2, 2), is_rank(True, 2)
    (True, False, False)
    """
    try:
        return not isinstance(rank, TRUTH_VALUES) and 0 <= operator.index(rank) < nranks
    except TypeError:
        return False


def integer_in(name: str, value: Any, least: int, most: int, expected: str) -> int:
    """Return an integer of any kind as Python's own.

    Parameters
    ----------
    name
        Of the argument.
    value
        What was passed.
    least, most
        Its limits.
    expected
        What errors say of it.

    Raises
    ------
    InvalidArgumentError
        It is none, or beyond its limits.

    Examples
    --------
    >>> import numpy
    >>> from rocpy.rccl.model.arguments import integer_in
    >>> integer_in("key", numpy.int64(3), 0, 9, "a digit")
    3
    """
    try:
        number = operator.index(value)
    except TypeError:
        number = least - 1
    if not least <= number <= most:
        raise InvalidArgumentError(f"{name}: got {value!r}, expected {expected}")
    return number


def unique_id_bytes(unique_id: Any) -> bytes:
    """Return the 128 bytes of a unique id.

    Raises
    ------
    InvalidArgumentError
        It is no unique id.

    Examples
    --------
    >>> from rocpy.rccl.model.arguments import unique_id_bytes
    >>> len(unique_id_bytes(bytes(128)))
    128
    """
    is_text = isinstance(unique_id, bytes | bytearray | memoryview) or hasattr(unique_id, "__bytes__")
    text = bytes(unique_id) if is_text else b""
    if len(text) != 128:
        seen = f"{len(text)} bytes" if is_text else repr(unique_id)
        raise InvalidArgumentError(f"unique_id: got {seen}, expected a UniqueId or its 128 bytes")
    return text


def rank_and_size(rank: Any, nranks: Any) -> tuple[int, int]:
    """Return a rank and the number of ranks, which may be integers of any kind.

    Raises
    ------
    InvalidArgumentError
        They are none, or there is no such rank.

    Examples
    --------
    >>> from rocpy.rccl.model.arguments import rank_and_size
    >>> rank_and_size(1, 2)
    (1, 2)
    """
    try:
        own, count = operator.index(rank), operator.index(nranks)
        if isinstance(rank, TRUTH_VALUES) or isinstance(nranks, TRUTH_VALUES):
            own, count = 0, 0
    except TypeError:
        own, count = 0, 0
    if not 0 <= own < count < 2**31:
        raise InvalidArgumentError(f"rank: got {rank!r} of nranks {nranks!r}, expected 0 <= rank < nranks < 2**31")
    return own, count


def settings_of(config: Any) -> dict[str, Any]:
    """Return RCCL's settings for a communicator, none of which need be chosen.

    Raises
    ------
    InvalidArgumentError
        They are no dict.

    Examples
    --------
    >>> from rocpy.rccl.model.arguments import settings_of
    >>> settings_of(None), settings_of({"min_ctas": 4})
    ({}, {'min_ctas': 4})
    """
    if config is None:
        return {}
    if not isinstance(config, Mapping):
        raise InvalidArgumentError(f"config: got {config!r}, expected a dict of settings, such as {{'min_ctas': 4}}")
    return dict(config)


def row_counts(name: str, counts: Any, nranks: int) -> list[int]:
    """Return how many rows are for each rank, or from it.

    Parameters
    ----------
    name
        Of the argument.
    counts
        What was passed.
    nranks
        The number of ranks.

    Raises
    ------
    InvalidProblemError
        It is not one number of rows for each rank.

    Examples
    --------
    >>> from rocpy.rccl.model.arguments import row_counts
    >>> row_counts("send_counts", (1, 2), 2)
    [1, 2]
    """
    try:
        items = list(counts)
        rows = [-1 if isinstance(count, bool) else operator.index(count) for count in items]
    except TypeError:
        rows = []
    if len(rows) != nranks or any(not 0 <= count < 2**48 for count in rows):
        raise InvalidProblemError(f"{name}: got {counts!r}, expected a number of rows for each of {nranks} ranks")
    return rows


def check_own_counts(sends: Sequence[int], takes: Sequence[int], rank: int) -> None:
    """Refuse counts of which a rank sends itself another number of rows than it receives from itself.

    RCCL would end the communicator for that, which the other ranks could not prevent.

    Raises
    ------
    InvalidProblemError
        The two numbers differ.

    Examples
    --------
    >>> from rocpy.rccl.model.arguments import check_own_counts
    >>> check_own_counts([1, 2], [3, 2], rank=1)
    """
    if sends[rank] != takes[rank]:
        raise InvalidProblemError(
            f"recv_counts[{rank}]: got {takes[rank]}, expected {sends[rank]}, as in send_counts[{rank}]: the rows that "
            f"rank {rank} sends to itself"
        )
