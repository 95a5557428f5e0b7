# SPDX-License-Identifier: MIT
"""Trace: the last calls of a rank, as a list that a notebook shows as a table."""

from __future__ import annotations

from typing import Any

from rocpy._messages.html import table
from rocpy.rccl.model.dtypes import NAMES

__all__ = ["Trace"]


class Trace(list[dict[str, Any]]):
    """The calls that `Communicator.trace` returns, oldest first: a list, which a notebook shows as a table."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        columns = ("seq", "op", "dtype", "count", "root", "called s ago", "ran for ms")
        rows = (
            (
                call["seq"],
                call["op"],
                _name(call["dtype"]),
                call["count"],
                call["root"],
                f"{call['age_s']:.3f}",
                _ran(call),
            )
            for call in self
        )
        return table("calls of this rank", columns, rows)


def _name(number: int | None) -> str | int | None:
    if number is None:
        return None
    return NAMES[number] if 0 <= number < len(NAMES) else number


def _ran(call: dict[str, Any]) -> str | None:
    begin, end = call["begin_s"], call["end_s"]
    return None if begin is None or end is None else f"{1e3 * (end - begin):.3f}"
