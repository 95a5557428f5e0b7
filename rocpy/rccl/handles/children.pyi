# SPDX-License-Identifier: MIT
# Types of the making of communicators from communicators, and of their end.
from collections.abc import Mapping, Sequence

from rocpy.rccl.handles.communicator import Handle

def start_split(
    self: Handle,
    child: Handle,
    color: int,
    key: int,
    timeout_s: float | None,
    settings: Mapping[str, int | str] | None,
    name: str | None,
) -> None: ...
def start_shrink(
    self: Handle,
    child: Handle,
    excluded: Sequence[int],
    abort: bool,
    timeout_s: float | None,
    settings: Mapping[str, int | str] | None,
    name: str | None,
) -> None: ...
def growth_id(self: Handle) -> bytes: ...
def start_grow(
    self: Handle,
    child: Handle,
    nranks: int,
    unique_id: bytes | None,
    timeout_s: float | None,
    settings: Mapping[str, int | str] | None,
    name: str | None,
) -> None: ...
def finish_child(self: Handle, child: Handle, timeout_s: float | None, op: str) -> bool: ...
def withdraw_begun(self: Handle, seq: int) -> None: ...
def start_finalize(self: Handle, timeout_s: float | None) -> None: ...
def finish_finalize(self: Handle) -> None: ...
def revoke(self: Handle) -> None: ...
def suspend(self: Handle) -> None: ...
def resume(self: Handle) -> None: ...
def memory_stats(self: Handle) -> dict[str, int]: ...
