# SPDX-License-Identifier: MIT
"""nccl4py's Communicator, over rocpy's: send and receive buffers in one order, no results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rocpy import rccl
from rocpy.compat.nccl._errors import NcclInvalid, translated
from rocpy.compat.nccl._resources import CustomRedOp, RegisteredBufferHandle, RegisteredWindowHandle, Resource
from rocpy.compat.nccl._types import (
    NCCL_SPLIT_NOCOLOR,
    CommMemStat,
    CommShrinkFlag,
    CommSuspendFlag,
    NCCLConfig,
    NcclDataType,
    NcclRedOp,
    WaitSignalDesc,
    WindowFlag,
)
from rocpy.errors import UnsupportedError

if TYPE_CHECKING:
    from rocpy.runtime.device import Device
    from rocpy.typing import ArrayLike, StreamLike

__all__ = ["Communicator"]

_WINDOW_FLAGS = {0: "default", 1: "symmetric", 2: "strict"}
_STATS = {
    CommMemStat.GpuMemSuspend: "suspendable",
    CommMemStat.GpuMemSuspended: "suspended",
    CommMemStat.GpuMemPersist: "persistent",
    CommMemStat.GpuMemTotal: "total",
}


def _row(array: Any, count: int | None = None) -> Any:
    """Return an array's elements in one row, or the first of them; never a copy."""
    if array is None or not hasattr(array, "reshape"):
        return array
    flags = getattr(array, "flags", None)
    is_dense = array.is_contiguous() if hasattr(array, "is_contiguous") else getattr(flags, "c_contiguous", True)
    if not is_dense:
        return array  # refused, with its strides, by the call
    row = array.reshape(-1)
    return row if count is None else row[:count]


def _size(array: Any) -> int:
    count = 1
    for extent in array.shape:
        count *= int(extent)
    return count


class Communicator:
    """One rank of several that communicate.

    Parameters
    ----------
    own
        rocpy's communicator; without it this is the null communicator, which only `grow` takes.
    """

    def __init__(self, own: rccl.Communicator | None = None) -> None:
        self._own = own
        self._resources: list[Resource] = []

    @classmethod
    @translated
    def init(
        cls,
        nranks: int,
        rank: int,
        unique_id: rccl.UniqueId | Sequence[rccl.UniqueId],
        config: NCCLConfig | None = None,
    ) -> Communicator:
        """Join a communicator; every rank calls this. Of several unique ids the first is used."""
        chosen = unique_id[0] if isinstance(unique_id, Sequence) and unique_id else unique_id
        if not isinstance(chosen, rccl.UniqueId):
            raise NcclInvalid(f"unique_id: got {type(chosen).__name__}, expected a UniqueId or several")
        return cls(rccl.Communicator.init(nranks, rank, chosen, **_settings(config)))

    @classmethod
    @translated
    def init_all(cls, devices: int | Sequence[int] | None = None) -> list[Communicator]:
        """Make one communicator for each of several devices of this process."""
        return [cls(one) for one in rccl.Communicator.init_all(devices)]

    @translated
    def split(self, color: int | None = None, key: int = 0, config: NCCLConfig | None = None) -> Communicator:
        """Make a communicator of the ranks with the same color; the null communicator for none."""
        _no_children(config)
        return Communicator(self.own.split(None if color == NCCL_SPLIT_NOCOLOR else color, key))

    @translated
    def shrink(
        self,
        exclude_ranks: Sequence[int] | None = None,
        config: NCCLConfig | None = None,
        flag: CommShrinkFlag = CommShrinkFlag.Default,
    ) -> Communicator:
        """Make a communicator without some ranks, which do not call this."""
        _no_children(config)
        return Communicator(self.own.shrink(exclude_ranks or [], abort=bool(flag & CommShrinkFlag.Abort)))

    @translated
    def get_unique_id(self) -> rccl.UniqueId:
        """Return what new ranks join by."""
        return self.own.growth_id()

    @translated
    def grow(
        self,
        nranks: int,
        unique_id: rccl.UniqueId | None = None,
        rank: int | None = None,
        config: NCCLConfig | None = None,
    ) -> Communicator:
        """Make a communicator with more ranks; a new rank calls it on the null communicator, with its number."""
        if self._own is None:
            if unique_id is None or rank is None:
                raise NcclInvalid("grow: a new rank passes unique_id and rank")
            return Communicator(rccl.Communicator.join_grown(nranks, rank, unique_id, **_settings(config)))
        _no_children(config)
        return Communicator(self._own.grow(nranks, unique_id))

    # ---- what it is ----

    @property
    def _made(self) -> rccl.Communicator:
        if self._own is None:
            raise NcclInvalid("this is the null communicator")
        return self._own

    @property
    def own(self) -> rccl.Communicator:
        """Rocpy's communicator."""
        if self._own is None or self._own.is_closed:
            raise NcclInvalid("the communicator is null, or was destroyed or aborted")
        return self._own

    @property
    def is_valid(self) -> bool:
        """Whether it can be used."""
        return self._own is not None and not self._own.is_closed

    @property
    def ptr(self) -> int:
        """RCCL's handle as a number; 0 for none."""
        return self._own.handle if self._own is not None and self.is_valid else 0

    @property
    def nranks(self) -> int:
        """How many ranks there are."""
        return self._made.nranks

    @property
    def rank(self) -> int:
        """The number of this rank."""
        return self._made.rank

    @property
    def device(self) -> Device:
        """The device of this rank."""
        return self._made.device

    @property
    def cuda_dev(self) -> int:
        """Its number."""
        return self._made.device_index

    # ---- its end ----

    def close_all_resources(self) -> None:
        """Give back registered memory, windows and operators."""
        while self._resources:
            self._resources.pop().close()

    def destroy(self) -> None:
        """Wait until all ranks are through with their work, then give it back; calling it again does nothing."""
        self.close_all_resources()
        if self._own is not None:
            self._own.close()

    finalize = destroy

    def abort(self) -> None:
        """End it at once, whatever runs."""
        self.close_all_resources()
        if self._own is not None:
            self._own.abort()

    @translated
    def revoke(self, flags: int = 0) -> None:
        """Take back what runs, for good; others can be made from it."""
        if flags != 0:
            raise NcclInvalid(f"flags: got {flags}, expected 0")
        self.own.revoke()

    @translated
    def suspend(self, flags: CommSuspendFlag = CommSuspendFlag.Mem) -> None:
        """Give device memory back while it is idle."""
        if flags != CommSuspendFlag.Mem:
            raise NcclInvalid(f"flags: got {flags!r}, expected CommSuspendFlag.Mem")
        self.own.suspend()

    @translated
    def resume(self) -> None:
        """Take calls again after `suspend`."""
        self.own.resume()

    @translated
    def get_mem_stat(self, stat: CommMemStat) -> int:
        """Return how much memory it has, of one kind."""
        return self.own.memory_stats()[_STATS[CommMemStat(stat)]]

    # ---- one to one ----

    @translated
    def send(self, sendbuf: ArrayLike, peer: int, *, stream: StreamLike | None = None) -> None:
        """Send a buffer to a rank."""
        self.own.send(sendbuf, peer, stream=stream)

    @translated
    def recv(self, recvbuf: ArrayLike, peer: int, *, stream: StreamLike | None = None) -> None:
        """Receive a buffer from a rank."""
        self.own.recv(recvbuf, peer, stream=stream)

    @translated
    def put_signal(
        self,
        local: ArrayLike,
        peer: int,
        window: RegisteredWindowHandle,
        offset: int = 0,
        signal_index: int = 0,
        context: int = 0,
        flags: int = 0,
        *,
        stream: StreamLike | None = None,
    ) -> None:
        """Copy a buffer into a rank's window, at an offset in elements, and signal the rank."""
        _first_only(signal_index, context, flags)
        self.own.put_signal(local, peer, window.window, offset, stream=stream)

    @translated
    def signal(
        self,
        peer: int,
        signal_index: int = 0,
        context: int = 0,
        flags: int = 0,
        *,
        stream: StreamLike | None = None,
    ) -> None:
        """Signal a rank."""
        _first_only(signal_index, context, flags)
        self.own.signal(peer, stream=stream)

    @translated
    def wait_signal(
        self, signal_descs: WaitSignalDesc | Sequence[WaitSignalDesc], *, stream: StreamLike | None = None
    ) -> None:
        """Wait for signals."""
        descs = [signal_descs] if isinstance(signal_descs, WaitSignalDesc) else list(signal_descs)
        for desc in descs:
            _first_only(desc.signal_index, desc.context, 0)
        self.own.wait_signal({desc.peer: desc.op_count for desc in descs}, stream=stream)

    # ---- collectives ----

    @translated
    def allreduce(
        self,
        sendbuf: ArrayLike,
        recvbuf: ArrayLike,
        op: NcclRedOp | CustomRedOp,
        stream: StreamLike | None = None,
    ) -> None:
        """Combine the ranks' buffers; every rank gets the result."""
        self.reduce(sendbuf, recvbuf, op, stream=stream)

    @translated
    def reduce(
        self,
        sendbuf: ArrayLike,
        recvbuf: Any,
        op: NcclRedOp | CustomRedOp,
        root: int | None = None,
        *,
        stream: StreamLike | None = None,
    ) -> None:
        """Combine the ranks' buffers; the root gets the result, or every rank where there is none."""
        out = _row(recvbuf, _size(sendbuf)) if root in (None, self.rank) else None
        settings: dict[str, Any] = {"op": _operator(op), "out": out, "stream": stream}
        if root is None:
            self.own.all_reduce(_row(sendbuf), **settings)
        else:
            self.own.reduce(_row(sendbuf), root=root, **settings)

    @translated
    def broadcast(self, sendbuf: Any, recvbuf: ArrayLike, root: int, *, stream: StreamLike | None = None) -> None:
        """Give the root's buffer to every rank; elsewhere `sendbuf` is ignored."""
        given = sendbuf if root == self.rank else recvbuf
        self.own.broadcast(given, root=root, out=recvbuf, stream=stream)

    @translated
    def allgather(self, sendbuf: ArrayLike, recvbuf: ArrayLike, stream: StreamLike | None = None) -> None:
        """Put the ranks' buffers one after another; every rank gets them."""
        self.gather(sendbuf, recvbuf, stream=stream)

    @translated
    def gather(
        self, sendbuf: ArrayLike, recvbuf: Any, root: int | None = None, *, stream: StreamLike | None = None
    ) -> None:
        """Put the ranks' buffers one after another; the root gets them, or every rank where there is none."""
        if root in (None, self.rank):
            recvbuf = _row(recvbuf, _size(sendbuf) * self.nranks)
        if root is None:
            self.own.all_gather(_row(sendbuf), out=recvbuf, stream=stream)
        else:
            out = recvbuf if root == self.rank else None
            self.own.gather(_row(sendbuf), root=root, out=out, stream=stream)

    @translated
    def reduce_scatter(
        self,
        sendbuf: ArrayLike,
        recvbuf: ArrayLike,
        op: NcclRedOp | CustomRedOp,
        *,
        stream: StreamLike | None = None,
    ) -> None:
        """Combine the ranks' buffers; each rank gets its part."""
        part = _size(sendbuf) // self.nranks
        given, out = _row(sendbuf, part * self.nranks), _row(recvbuf, part)
        self.own.reduce_scatter(given, op=_operator(op), out=out, stream=stream)

    @translated
    def alltoall(self, sendbuf: ArrayLike, recvbuf: ArrayLike, *, stream: StreamLike | None = None) -> None:
        """Trade parts: rank r gets the r-th part of every rank's buffer."""
        count = _size(sendbuf) // self.nranks * self.nranks
        self.own.all_to_all(_row(sendbuf, count), out=_row(recvbuf, count), stream=stream)

    @translated
    def scatter(self, sendbuf: Any, recvbuf: ArrayLike, root: int, *, stream: StreamLike | None = None) -> None:
        """Give each rank its part of the root's buffer; elsewhere `sendbuf` is ignored."""
        given = _row(sendbuf, _size(recvbuf) * self.nranks) if root == self.rank else None
        self.own.scatter(given, root=root, out=_row(recvbuf), stream=stream)

    # ---- memory and operators ----

    @translated
    def register_buffer(self, buffer: ArrayLike) -> RegisteredBufferHandle:
        """Let this rank's collectives use a buffer as it lies."""
        made = RegisteredBufferHandle(self.own.register_buffer(buffer))
        self._resources.append(made)
        return made

    @translated
    def register_window(self, buffer: ArrayLike, flags: WindowFlag | None = None) -> RegisteredWindowHandle | None:
        """Let every rank reach a buffer; every rank calls this. ``None`` where RCCL makes no window of it."""
        chosen = int(flags or 0)
        if chosen not in _WINDOW_FLAGS:
            raise NcclInvalid(f"flags: got {flags!r}, expected one WindowFlag")
        try:
            made = RegisteredWindowHandle(self.own.window(buffer, flags=_WINDOW_FLAGS[chosen]))
        except UnsupportedError:
            return None
        self._resources.append(made)
        return made

    @translated
    def create_pre_mul_sum(self, scalar: Any, datatype: NcclDataType | None = None) -> CustomRedOp:
        """Return an operator that multiplies this rank's input by a scalar before the sum."""
        if datatype is None:
            name = str(getattr(scalar, "dtype", "int64" if isinstance(scalar, int) else "float64"))
        else:
            name = NcclDataType(datatype).name_of_dtype
        made = CustomRedOp(self.own.premul_sum(scalar, name.removeprefix("torch.")))
        self._resources.append(made)
        return made

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise UnsupportedError(f"Communicator.{name}: nccl4py has it for NVIDIA GPUs; RCCL does not", library="rccl")

    def __repr__(self) -> str:
        return f"rocpy.compat.nccl.Communicator({self._own!r})"


def _settings(config: NCCLConfig | None) -> Mapping[str, Any]:
    if config is None:
        return {}
    return {"name": config.comm_name or "", "config": config.settings()}


def _no_children(config: NCCLConfig | None) -> None:
    if config is not None and config.settings():
        raise UnsupportedError("config: a communicator made from another keeps that one's settings", library="rccl")


def _operator(op: NcclRedOp | CustomRedOp) -> Any:
    if isinstance(op, CustomRedOp):
        return op.op
    try:
        return NcclRedOp(op).name.lower()
    except ValueError:
        raise NcclInvalid(f"op: got {op!r}, expected a NcclRedOp, or what create_pre_mul_sum gives") from None


def _first_only(signal_index: int, context: int, flags: int) -> None:
    if signal_index or context or flags:
        raise NcclInvalid("signal_index, context and flags must be 0, as in RCCL 2.30")
