# SPDX-License-Identifier: MIT
"""The communicators of this process that are ready, and their state."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rocpy.rccl.handles.communicator import Handle

__all__ = ["register", "status"]

_ready: weakref.WeakSet[Handle] = weakref.WeakSet()


def register(communicator: Handle) -> None:
    """Have `status` report a communicator, until it is closed."""
    _ready.add(communicator)


def status() -> list[dict[str, Any]]:
    """Return the state of every communicator of this process.

    Returns
    -------
    list of dict
        One for each: name, rank, nranks, device, its failure, and each rank's last call, if the platform can report it.

    Examples
    --------
    >>> from rocpy import rccl
    >>> with rccl.Communicator.init(1, 0, rccl.UniqueId.make(), name="shown") as comm:
    ...     [row["state"] for row in rccl.status() if row["name"] == "shown"]
    ['ready']
    """
    return [communicator.status() for communicator in list(_ready) if not communicator.is_closed]
