# SPDX-License-Identifier: MIT
"""Memory and handles of the user's: nvmath-python's protocols for allocators, and what a product draws from them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NoReturn, Protocol, runtime_checkable

from rocpy._integers import integer_of
from rocpy._messages.pickling import refuse_pickling
from rocpy.blaslt.engine.lending import Lending
from rocpy.blaslt.engine.streams import SynchronizeStream
from rocpy.errors import InvalidOperandError, InvalidProblemError

__all__ = ["BaseCUDAMemoryManager", "BaseCUDAMemoryManagerAsync", "MemoryPointer"]

# What a workspace begins at a multiple of.
_ALIGNMENT = 256


class MemoryPointer:
    """Device memory that is freed with the object.

    Parameters
    ----------
    device_ptr
        Its address.
    size
        Size in bytes.
    finalizer
        Called without arguments to free it; ``None`` for memory that another object owns.

    Examples
    --------
    >>> from rocpy.compat import nvmath
    >>> freed = []
    >>> nvmath.MemoryPointer(4096, 64, lambda: freed.append(64)).free()
    >>> freed
    [64]
    """

    def __init__(self, device_ptr: int, size: int, finalizer: Callable[[], None] | None) -> None:
        self.device_ptr = device_ptr
        self.size = size
        self._finalizer = finalizer

    def free(self) -> None:
        """Free the memory; calling it again has no effect."""
        finalizer, self._finalizer = self._finalizer, None
        if finalizer is not None:
            finalizer()

    def __reduce__(self) -> NoReturn:
        refuse_pickling(self, "allocate memory there")

    def __del__(self) -> None:
        """Free the memory with the object."""
        self.free()


@runtime_checkable
class BaseCUDAMemoryManager(Protocol):
    """Interface of an allocator that allocates immediately, or in the order of the current stream."""

    def __init__(self, device_id: int, logger: logging.Logger) -> None:
        """Take the device's number and where to log."""

    def memalloc(self, size: int) -> Any:
        """Return an object that owns device memory, with its address as ``device_ptr``."""


@runtime_checkable
class BaseCUDAMemoryManagerAsync(Protocol):
    """Interface of an allocator that allocates in stream order."""

    def __init__(self, device_id: int, logger: logging.Logger) -> None:
        """Take the device's number and where to log."""

    def memalloc_async(self, size: int, stream: Any) -> Any:
        """Return an object that owns device memory, with its address as ``device_ptr``."""


def check_allocator(allocator: Any) -> None:
    """Refuse what has neither way to allocate."""
    if not isinstance(allocator, (BaseCUDAMemoryManager, BaseCUDAMemoryManagerAsync)) or isinstance(allocator, type):
        raise InvalidOperandError(
            f"allocator: got {type(allocator).__name__}, expected an object with memalloc(size) or "
            "memalloc_async(size, stream)"
        )


def checked_handle(handle: Any) -> int:
    """Return the address of a handle; what can be none is refused."""
    address = integer_of(handle)
    if address is None:
        raise InvalidOperandError(f"handle: got {type(handle).__name__}, expected the address of a hipBLASLt handle")
    if not 0 < address < 1 << 64:
        raise InvalidProblemError(f"handle: got {handle}, expected the address of a hipBLASLt handle")
    return address


class Resources:
    """What the products of one object draw from the user: a handle, and workspaces by stream."""

    def __init__(self, handle: int | None, allocator: Any) -> None:
        self.handle, self.allocator = handle, allocator
        self._lent: dict[tuple[int, int], tuple[Lending, int]] = {}

    def on(self, device_and_stream: tuple[int, int], stream: Any, workspace_bytes: int) -> AbstractContextManager[Any]:
        """Return the block in which products on a device's stream use what the user gave."""
        if self.handle is None and self.allocator is None:
            return nullcontext()
        lending, size = self._lent.get(device_and_stream, (None, 0))
        if lending is None:
            lending = Lending(*device_and_stream, self.handle or 0)
        if self.allocator is not None and workspace_bytes > size:
            if size:
                SynchronizeStream(device_and_stream[1])()  # what is queued uses the one before
            size = workspace_bytes
            memory = self._allocate(size + _ALIGNMENT - 1, stream)
            lending.give_workspace(memory, -(-_address(memory) // _ALIGNMENT) * _ALIGNMENT, size)
        self._lent[device_and_stream] = lending, size
        return lending

    def _allocate(self, size: int, stream: Any) -> Any:
        if isinstance(self.allocator, BaseCUDAMemoryManagerAsync):
            return self.allocator.memalloc_async(size, stream)
        return self.allocator.memalloc(size)

    def release(self) -> None:
        """Give the workspaces back, once what is queued is done with them."""
        lent, self._lent = self._lent, {}
        for (_, stream), (lending, size) in lent.items():
            if size:
                SynchronizeStream(stream)()
            lending.close()


def _address(memory: Any) -> int:
    for name in ("device_ptr", "device_pointer", "ptr"):
        if hasattr(memory, name):
            address = getattr(memory, name)
            return int(address() if callable(address) else address)
    raise InvalidOperandError(
        f"allocator: it returned {type(memory).__name__}, which has none of device_ptr, device_pointer and ptr"
    )
