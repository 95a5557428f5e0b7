# SPDX-License-Identifier: MIT
"""Calls that stand for another one, or for arrays of another type: what the ranks compare of them instead."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rocpy.rccl.handles.communicator import Handle

__all__ = ["Described"]


class Described(AbstractContextManager[None]):
    """A block whose calls of a communicator the ranks compare by a text, which errors show too.

    Parameters
    ----------
    comm
        The communicator.
    text
        What a call is to the user; it follows the call's name if it begins with a parenthesis.
    """

    __slots__ = ("_comm", "_text")

    def __init__(self, comm: Handle, text: str) -> None:
        self._comm, self._text = comm, text

    def __enter__(self) -> None:
        self._comm.describe_calls(self._text)

    def __exit__(self, *_: object) -> None:
        self._comm.describe_calls(None)
