# SPDX-License-Identifier: MIT
"""What an nccl4py communicator owns until it ends: registered memory, windows, operators."""

from __future__ import annotations

from typing import Any, Protocol

from rocpy.errors import UnsupportedError
from rocpy.rccl import PreMulSum, Window


class Resource(Protocol):
    """Something that is given back once."""

    def close(self) -> None:
        """Give it back; calling it again does nothing."""


class RegisteredBufferHandle:
    """Memory that collectives use as it lies.

    Parameters
    ----------
    registration
        rocpy's.
    """

    def __init__(self, registration: Any) -> None:
        self._registration = registration
        self.is_valid = True

    def close(self) -> None:
        """Take the registration back; calling it again does nothing."""
        self.is_valid = False
        self._registration.close()


class RegisteredWindowHandle:
    """Memory of all ranks that each of them reaches.

    Parameters
    ----------
    window
        rocpy's, which has `peer` too.
    """

    def __init__(self, window: Window) -> None:
        self.window = window

    @property
    def is_valid(self) -> bool:
        """Whether it has not been closed."""
        return not self.window.is_closed

    @property
    def user_ptr(self) -> int:
        """The address of this rank's part."""
        return self.window.address

    def get_peer_device_pointer(self, peer: int, offset: int = 0) -> int:
        """Return the address of another rank's part, where this process sees it."""
        return int(self.window.peer(peer).handle) + offset

    get_lsa_device_pointer = get_peer_device_pointer

    def close(self) -> None:
        """Give the window back; calling it again does nothing."""
        self.window.close()


class CustomRedOp:
    """An operator that multiplies a rank's input by its scalar before the sum.

    Parameters
    ----------
    op
        rocpy's.
    """

    def __init__(self, op: PreMulSum) -> None:
        self._op: PreMulSum | None = op

    @property
    def op(self) -> PreMulSum:
        """What rocpy's calls take."""
        if self._op is None:
            raise UnsupportedError("op: it was closed", library="rccl")
        return self._op

    @property
    def is_valid(self) -> bool:
        """Whether it has not been closed."""
        return self._op is not None

    def close(self) -> None:
        """Give it back; calling it again does nothing."""
        if self._op is not None:
            self._op.close()
        self._op = None
