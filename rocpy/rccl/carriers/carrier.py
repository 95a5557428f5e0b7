# SPDX-License-Identifier: MIT
"""What a transport is to a carried communicator, and which transports a caller may ask for."""

from __future__ import annotations

from typing import Any, Protocol

from rocpy.errors import InvalidArgumentError

__all__ = ["REDUCTIONS", "Carrier", "check_carrier"]

REDUCTIONS = ("all_reduce", "reduce", "reduce_scatter")


class Carrier(Protocol):
    """A transport: its collectives on C-contiguous numpy arrays."""

    name: str
    rank: int
    nranks: int

    def start(self, kind: str, x: Any, out: Any, op: str, root: int) -> Any:
        """Start an operation and return what `test` asks about."""

    def test(self, request: Any) -> bool:
        """Whether an operation is done."""


def check_carrier(wanted: str, own: str) -> None:
    """Refuse a carrier that there is not.

    Parameters
    ----------
    wanted
        ``"rccl"``, ``"auto"``, or the transport's name.
    own
        The name of the transport at hand.
    """
    if wanted not in ("auto", "rccl", own):
        raise InvalidArgumentError(f"carrier: got {wanted!r}, expected 'auto', 'rccl' or {own!r}")
