# SPDX-License-Identifier: MIT
"""nccl4py's functions beside the communicator: ids, versions, groups, memory, parameters."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

from rocpy import rccl
from rocpy.compat.nccl._errors import NcclInvalid, translated
from rocpy.errors import UnsupportedError

_open = threading.local()


@dataclass(frozen=True, order=True)
class Version:
    """A version of RCCL."""

    major: int
    minor: int
    patch: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"


def get_version() -> Version:
    """Return the version of the platform's RCCL."""
    number = rccl.version()
    return Version(number // 10000, number // 100 % 100, number % 100)


def get_unique_id(empty: bool = False) -> rccl.UniqueId:
    """Return what the ranks of a communicator to be have in common, or zeros to be written over."""
    return rccl.UniqueId(bytes(128)) if empty else rccl.UniqueId.make()


def get_error_string(code: int) -> str:
    """Return RCCL's words for a result code."""
    return rccl.error_string(code)


def get_last_error() -> str:
    """Return RCCL's last words of what went wrong in this process."""
    return rccl.last_error()


def _stack() -> list[AbstractContextManager[None]]:
    if not hasattr(_open, "groups"):
        _open.groups = []
    found: list[AbstractContextManager[None]] = _open.groups
    return found


def group_start() -> None:
    """Open a group: the calls up to its `group_end` are launched together."""
    opened = rccl.group()
    opened.__enter__()
    _stack().append(opened)


@translated
def group_end(simulate: bool = False) -> None:
    """Launch the calls of the group that was opened last."""
    if simulate:
        group_simulate_end()
    if not _stack():
        raise NcclInvalid("group_end: no group is open")
    _stack().pop().__exit__(None, None, None)


@dataclass(frozen=True)
class GroupSimInfo:
    """How long a group would take, in microseconds."""

    estimated_time: float


def group_simulate_end() -> GroupSimInfo:
    """Refuse: rocpy launches a group when it is whole, so that there is nothing to estimate before."""
    raise UnsupportedError("group_simulate_end: rocpy gives a group to RCCL as a whole, when it ends", library="rccl")


@contextmanager
def group() -> Iterator[None]:
    """Collect the calls of a block and launch them together when it ends; if the block raises, none is launched."""
    with rccl.group():
        yield


def mem_alloc(size: int, device: Any = None) -> Any:
    """Return memory of RCCL's (ncclMemAlloc), as a `rocpy.Buffer` of bytes."""
    return rccl.empty(size, "uint8", device=device)


def mem_free(buffer: Any) -> None:
    """Give memory of `mem_alloc` back; it is also given back when the last array of it is dropped."""
    buffer.close()


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
