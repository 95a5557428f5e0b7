# SPDX-License-Identifier: MIT
"""Ranks in errors: those of a communicator of two ranks, or of a subgroup, as the ranks that users pass to torch."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rocpy.errors import CollectiveMismatchError, CollectiveTimeoutError, RcclError, RocpyError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["rename_ranks"]

# What other communicators wait for is said with "its ranks".
_RANKS = re.compile(r"(?<!its )\b(ranks? |root=)(\[[\d, ]*\]|\d+(?:(?:, | and )\d+)*)")
_NUMBER = re.compile(r"\d+")


def rename_ranks(error: RocpyError, ranks: Sequence[int], note: str = "") -> None:
    """Say a communicator's ranks in an error as others.

    Parameters
    ----------
    error
        Is changed.
    ranks
        What each rank is called.
    note
        Follows the message.
    """

    def of(rank: int) -> int:
        return ranks[rank] if rank < len(ranks) else rank

    def renamed(text: str) -> str:
        return _RANKS.sub(lambda seen: seen[1] + _NUMBER.sub(lambda number: str(of(int(number[0]))), seen[2]), text)

    error.args = tuple(renamed(part) + note if isinstance(part, str) else part for part in error.args)
    if isinstance(error, RcclError) and error.rank is not None:
        error.rank = of(error.rank)
    if isinstance(error, CollectiveTimeoutError):
        error.waiting_for = tuple(of(rank) for rank in error.waiting_for)
    if isinstance(error, CollectiveMismatchError):
        error.signatures = tuple(renamed(text) for text in error.signatures)
