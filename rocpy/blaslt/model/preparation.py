# SPDX-License-Identifier: MIT
"""What is done before and after a call that the library cannot launch as it is."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

__all__ = ["Preparation"]

Call = TypeVar("Call")


class Preparation(Generic[Call]):
    """Another call that is made instead of one, and how its result becomes that of the one.

    Whoever makes calls does the steps in order: ``prepare``, the call that it returns, ``finish``; and ``close`` last,
    also where a step raised. Nothing here makes a call itself.
    """

    #: Whether ``finish`` reads or writes what the call's stream may still work on.
    works_on_result = True

    def prepare(self) -> Call:
        """Return the call to make, after the work on its operands."""
        raise NotImplementedError

    def finish(self, outputs: Any) -> Any:
        """Return the outputs of the whole from those of the call that was made."""
        return outputs

    def close(self) -> None:
        """Give back what was made or changed for the call."""
