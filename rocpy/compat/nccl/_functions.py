# SPDX-License-Identifier: MIT
"""nccl4py's functions beside the communicator: ids, groups, memory, parameters."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import numpy as np

from rocpy import rccl
from rocpy.compat.nccl._enums import NcclDeviceSpec, Result
from rocpy.compat.nccl._errors import NcclInvalid, translation, unsupported, whole_number
from rocpy.compat.nccl._records import GroupSimInfo
from rocpy.rccl.public.group import GroupScope, launch
from rocpy.runtime.memory import Buffer

if TYPE_CHECKING:
    from rocpy.errors import UnsupportedError
    from rocpy.rccl.engine.pending import PendingGroup

_open = threading.local()
_ID_BYTES = 128


class UniqueId:
    """The identifier that all ranks of a communicator share; it can be sent as bytes, as a numpy array, or pickled.

    Parameters
    ----------
    data
        Its 128 bytes; zeros by default.

    Examples
    --------
    >>> from rocpy.compat import nccl
    >>> made = nccl.get_unique_id()
    >>> nccl.UniqueId.from_bytes(made.as_bytes) == made
    True
    """

    def __init__(self, data: bytes | bytearray | memoryview | None = None) -> None:
        self._data = np.zeros(_ID_BYTES, np.uint8)
        if data is not None:
            try:
                words = np.frombuffer(data, np.uint8)
            except (TypeError, ValueError) as error:
                raise NcclInvalid(f"unique id: got {type(data).__name__}, expected {_ID_BYTES} bytes") from error
            if words.size != _ID_BYTES:
                raise NcclInvalid(f"unique id: got {words.size} bytes, expected {_ID_BYTES}")
            self._data[:] = words

    @staticmethod
    def from_bytes(b: bytes | bytearray | memoryview) -> UniqueId:
        """Return the id from its bytes."""
        if b is None:
            raise NcclInvalid(f"unique id: got None, expected {_ID_BYTES} bytes")
        return UniqueId(b)

    @property
    def as_bytes(self) -> bytes:
        """Its bytes."""
        return self._data.tobytes()

    @property
    def as_ndarray(self) -> np.ndarray[Any, Any]:
        """Its memory as an array of one record, which a receive can overwrite."""
        return self._data.view([("internal", np.int8, (_ID_BYTES,))]).view(np.recarray)

    @property
    def ptr(self) -> int:
        """The address of its memory."""
        return self._data.ctypes.data

    def __bytes__(self) -> bytes:
        return self.as_bytes

    def __reduce__(self) -> tuple[type[UniqueId], tuple[bytes]]:
        return UniqueId, (self.as_bytes,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UniqueId | rccl.UniqueId) and self.as_bytes == bytes(other)

    def __hash__(self) -> int:
        return hash(self.as_bytes)

    def __repr__(self) -> str:
        return f"rocpy.compat.nccl.UniqueId({self.as_bytes[:24].hex()}...)"


def get_unique_id(empty: bool = False) -> UniqueId:
    """Return a new unique id, or zeros to be overwritten."""
    return UniqueId() if empty else UniqueId(bytes(rccl.UniqueId.make()))


def get_error_string(nccl_result: Result | int) -> str:
    """Return RCCL's description of a result code."""
    code = whole_number("nccl_result", nccl_result, "a Result")
    if not -(2**31) <= code < 2**31:
        raise NcclInvalid(f"nccl_result: got {code}, expected a Result")
    return rccl.error_string(code)


def get_last_error() -> str:
    """Return RCCL's last error message of this process."""
    return rccl.last_error()


def _stack() -> list[AbstractContextManager[None]]:
    if not hasattr(_open, "groups"):
        _open.groups = []
    groups: list[AbstractContextManager[None]] = _open.groups
    return groups


def group_start() -> None:
    """Open a group: the calls up to its `group_end` are launched together."""
    groups, opened = _stack(), GroupScope(_launch)
    groups.append(opened)
    try:
        opened.__enter__()
    except BaseException as error:  # Ctrl-C: the caller will not end it
        groups.remove(opened)
        opened.__exit__(type(error), error, None)
        raise


def group_end(*, simulate: bool = False) -> None:
    """Launch the calls of the group that was opened last.

    Raises
    ------
    NCCLError
        No group is open in this thread, or one of its calls failed.
    UnsupportedError
        `simulate`: the group is dropped.
    """
    if not _stack():
        raise rccl.InvalidUsageError(
            "group_end: no group is open in this thread; group_start opens one", library="rccl"
        )
    ended = _stack()[-1]
    try:
        if simulate:
            raise _no_simulation("group_end(simulate=True)")
        ended.__exit__(None, None, None)
    except BaseException as error:  # what had not been launched is dropped
        ended.__exit__(type(error), error, None)
        raise
    finally:
        _stack().remove(ended)


def _no_simulation(name: str) -> UnsupportedError:
    return unsupported(
        name, "RCCL receives a group only when it ends and cannot estimate its time; the group was discarded"
    )


def group_simulate_end() -> GroupSimInfo:
    """Refuse: RCCL cannot estimate a group. The group is dropped."""
    group_end(simulate=True)
    raise _no_simulation("group_simulate_end")


def _launch(pending: PendingGroup) -> None:
    with translation():
        launch(pending)


def group() -> GroupScope:
    """Collect the calls of a block and launch them together when it ends; if the block raises, none is launched."""
    return GroupScope(_launch)


def mem_alloc(size: int, device: NcclDeviceSpec | None = None) -> Buffer:
    """Return memory allocated by RCCL (ncclMemAlloc), as a `rocpy.Buffer` of bytes."""
    nbytes = whole_number("size", size, "a number of bytes")
    if not 0 <= nbytes < 2**62:
        raise NcclInvalid(f"size: got {size}, expected a number of bytes from 0 to 2**62 - 1")
    with translation():
        return rccl.empty(nbytes, "uint8", device=device)


def mem_free(buf: Buffer) -> None:
    """Free memory of `mem_alloc`; it is also freed when the last array that uses it is dropped."""
    if not isinstance(buf, Buffer):
        raise NcclInvalid(f"buf: got {type(buf).__name__}, expected the result of mem_alloc")
    buf.close()


class _Parameters(Mapping[str, str]):
    """RCCL's parameters, asked for anew each time."""

    def __getitem__(self, key: str) -> str:
        return rccl.parameters()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(rccl.parameters())

    def __len__(self) -> int:
        return len(rccl.parameters())


params: Mapping[str, str] = _Parameters()


def dump_params() -> None:
    """Print RCCL's parameters."""
    for key, value in params.items():
        print(f"{key}={value}")  # noqa: T201  (what it is for)
