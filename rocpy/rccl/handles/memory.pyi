# SPDX-License-Identifier: MIT
# Types of RCCL's memory, windows and the calls that need them.
from collections.abc import Sequence
from typing import Any, NoReturn, Self

from typing_extensions import disjoint_base

from rocpy.rccl.handles.communicator import Handle
from rocpy.runtime.device import Device
from rocpy.runtime.memory import Buffer
from rocpy.typing import ArrayDType, ArrayLike, StreamLike

@disjoint_base
class Registration:
    @property
    def number(self) -> int: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *details: object) -> None: ...
    def __reduce__(self) -> NoReturn: ...

@disjoint_base
class WindowHandle:
    @property
    def comm(self) -> Handle: ...
    @property
    def array(self) -> Any: ...
    @property
    def is_closed(self) -> bool: ...
    @property
    def number(self) -> int: ...
    @property
    def address(self) -> int: ...
    def take(self, comm: Handle, array: ArrayLike) -> None: ...
    def start(self, flags: int, timeout_s: float | None) -> None: ...
    def finish(self, timeout_s: float | None) -> None: ...
    def peer_buffer(self, peer: int) -> Buffer: ...
    def close(self) -> None: ...

def empty(
    shape: int | Sequence[int], dtype: ArrayDType, device: Device | int | None, comm: Handle | None = None
) -> Buffer: ...
def register(comm: Handle, array: ArrayLike) -> Registration: ...
def put(
    comm: Handle,
    x: ArrayLike,
    peer: int,
    window: WindowHandle,
    offset: int,
    timeout_s: float | None,
    stream: StreamLike | None,
    block: bool,
) -> Any: ...
def signal_peer(comm: Handle, peer: int, timeout_s: float | None, stream: StreamLike | None, block: bool) -> Any: ...
def wait(
    comm: Handle,
    wanted: Sequence[tuple[int, int]],
    timeout_s: float | None,
    stream: StreamLike | None,
    block: bool,
) -> Any: ...
def check_rows(x: ArrayLike, sends: Sequence[int]) -> None: ...
def trade(
    comm: Handle,
    x: ArrayLike,
    sends: Sequence[int],
    takes: Sequence[int],
    out: ArrayLike | None,
    *,
    timeout_s: float | None,
    stream: StreamLike | None,
    block: bool,
    staged: Any = None,
) -> Any: ...
