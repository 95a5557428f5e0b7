# SPDX-License-Identifier: MIT
"""What a transport is to a carried communicator, and which transports a caller may ask for."""

from __future__ import annotations

from typing import Any, Protocol

from rocpy.errors import InvalidArgumentError

__all__ = ["Carrier", "check_carrier"]


class Carrier(Protocol):
    """A transport: what it moves are rows of bytes, numpy arrays that do not overlap."""

    name: str
    rank: int
    nranks: int

    def start(self, kind: str, source: Any, target: Any, rank: int, timeout_s: float) -> Any:
        """Start a transfer and return what `test` asks about.

        `kind` is ``"broadcast"``, ``"all_gather"``, ``"all_to_all"``, ``"gather"``, ``"scatter"``, ``"send"`` or
        ``"recv"``, and `rank` its root or peer. A rank that sends nothing, or receives nothing, passes ``None``; the
        root of a broadcast passes what it sends as `target`. `timeout_s` is when the caller will have given up.
        """

    def test(self, request: Any) -> bool:
        """Whether a transfer is done."""


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
