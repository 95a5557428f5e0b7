# SPDX-License-Identifier: MIT
"""The calls of nccl4py's Communicator that move arrays: send and receive buffers in one order, no results."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any

from rocpy.compat.nccl._config import NCCLCollConfig, check_call_config
from rocpy.compat.nccl._enums import NcclBufferSpec, NcclRedOp, NcclStreamSpec
from rocpy.compat.nccl._errors import NcclInvalid, translated, translated_as, translation, whole_number
from rocpy.compat.nccl._operands import Row, check_pair, row_of
from rocpy.compat.nccl._queries import Queries
from rocpy.compat.nccl._records import WaitSignalDesc
from rocpy.compat.nccl._resources import CustomRedOp, RegisteredWindowHandle

_of_buffers = translated_as(x="sendbuf", out="recvbuf")


class Collectives(Queries):
    """What a Communicator does with arrays."""

    # ---- one to one ----

    @translated_as(x="sendbuf")
    def send(self, sendbuf: NcclBufferSpec, peer: int, *, stream: NcclStreamSpec | None = None) -> None:
        """Send a buffer to a rank."""
        self.own.send(row_of(sendbuf, "sendbuf").array, peer, stream=_stream(stream))

    @translated_as(x="recvbuf")
    def recv(self, recvbuf: NcclBufferSpec, peer: int, *, stream: NcclStreamSpec | None = None) -> None:
        """Receive a buffer from a rank."""
        self.own.recv(row_of(recvbuf, "recvbuf", is_written=True).array, peer, stream=_stream(stream))

    @translated_as(x="local_buffer", window="peer_window", offset="peer_window_offset")
    def put_signal(
        self,
        local_buffer: NcclBufferSpec,
        peer: int,
        peer_window: RegisteredWindowHandle,
        peer_window_offset: int = 0,
        signal_index: int = 0,
        context: int = 0,
        flags: int = 0,
        *,
        stream: NcclStreamSpec | None = None,
    ) -> None:
        """Copy a buffer into a rank's window, at an offset in elements, and signal the rank."""
        _first_only(signal_index, context, flags)
        if not isinstance(peer_window, RegisteredWindowHandle) or peer_window.window is None:
            raise NcclInvalid(f"peer_window: got {peer_window!r}, expected the result of register_window")
        source = row_of(local_buffer, "local_buffer").array
        self.own.put_signal(source, peer, peer_window.window, peer_window_offset, stream=_stream(stream))

    @translated
    def signal(
        self,
        peer: int,
        signal_index: int = 0,
        context: int = 0,
        flags: int = 0,
        *,
        stream: NcclStreamSpec | None = None,
    ) -> None:
        """Signal a rank."""
        _first_only(signal_index, context, flags)
        self.own.signal(peer, stream=_stream(stream))

    @translated_as(peers="descs")
    def wait_signal(
        self, descs: WaitSignalDesc | Sequence[WaitSignalDesc], *, stream: NcclStreamSpec | None = None
    ) -> None:
        """Wait for signals."""
        counts: dict[int, int] = {}
        for desc in descs if isinstance(descs, Sequence) else [descs]:
            if not isinstance(desc, WaitSignalDesc):
                raise NcclInvalid(f"descs: got {type(desc).__name__}, expected WaitSignalDesc")
            _first_only(desc.signal_index, desc.context, 0)
            counts[desc.peer] = counts.get(desc.peer, 0) + desc.op_count
        self.own.wait_signal(counts, stream=_stream(stream))

    # ---- collectives ----

    @_of_buffers
    def allreduce(
        self,
        sendbuf: NcclBufferSpec,
        recvbuf: NcclBufferSpec,
        op: NcclRedOp | CustomRedOp,
        *,
        stream: NcclStreamSpec | None = None,
        config: NCCLCollConfig | None = None,
    ) -> None:
        """Combine the ranks' buffers; every rank receives the result."""
        self.reduce(sendbuf, recvbuf, op, stream=stream, config=config)

    @_of_buffers
    def reduce(
        self,
        sendbuf: NcclBufferSpec,
        recvbuf: NcclBufferSpec | Any,
        op: NcclRedOp | CustomRedOp,
        root: int | None = None,
        *,
        stream: NcclStreamSpec | None = None,
        config: NCCLCollConfig | None = None,
    ) -> None:
        """Combine the ranks' buffers; the root receives the result, or every rank if there is no root."""
        check_call_config(config)
        own, operator, sent = self.own, _operator(op), row_of(sendbuf, "sendbuf")
        out = received = None
        if root is None or _is_own(root, self.rank):
            received = row_of(recvbuf, "recvbuf", is_written=True)
            check_pair(sent, received, sent.count)
            out = received.first(sent.count)
        operator = _for_booleans(operator, sent, received, has_root=root is not None)
        if root is None:
            own.all_reduce(sent.array, op=operator, out=out, stream=_stream(stream))
        else:
            own.reduce(sent.array, root=root, op=operator, out=out, stream=_stream(stream))

    @_of_buffers
    def broadcast(
        self,
        sendbuf: NcclBufferSpec | Any,
        recvbuf: NcclBufferSpec,
        root: int,
        *,
        stream: NcclStreamSpec | None = None,
        config: NCCLCollConfig | None = None,
    ) -> None:
        """Send the root's buffer to every rank; on other ranks `sendbuf` is ignored."""
        check_call_config(config)
        own, received = self.own, row_of(recvbuf, "recvbuf", is_written=True)
        if not _is_own(root, self.rank):
            with translation({"x": "recvbuf", "out": "recvbuf"}):
                own.broadcast(received.array, root=root, out=received.array, stream=_stream(stream))
            return
        source = row_of(sendbuf, "sendbuf")
        check_pair(source, received, source.count, exactly=True)
        own.broadcast(source.array, root=root, out=received.array, stream=_stream(stream))

    @_of_buffers
    def allgather(
        self,
        sendbuf: NcclBufferSpec,
        recvbuf: NcclBufferSpec,
        *,
        stream: NcclStreamSpec | None = None,
        config: NCCLCollConfig | None = None,
    ) -> None:
        """Concatenate the ranks' buffers; every rank receives them."""
        self.gather(sendbuf, recvbuf, stream=stream, config=config)

    @_of_buffers
    def gather(
        self,
        sendbuf: NcclBufferSpec,
        recvbuf: NcclBufferSpec | Any,
        root: int | None = None,
        *,
        stream: NcclStreamSpec | None = None,
        config: NCCLCollConfig | None = None,
    ) -> None:
        """Concatenate the ranks' buffers; the root receives them, or every rank if there is no root."""
        check_call_config(config)
        own, sent = self.own, row_of(sendbuf, "sendbuf")
        out = None
        if root is None or _is_own(root, self.rank):
            received = row_of(recvbuf, "recvbuf", is_written=True)
            check_pair(sent, received, sent.count * self.nranks)
            out = received.first(sent.count * self.nranks)
        if root is None:
            own.all_gather(sent.array, out=out, stream=_stream(stream))
        else:
            own.gather(sent.array, root=root, out=out, stream=_stream(stream))

    @_of_buffers
    def reduce_scatter(
        self,
        sendbuf: NcclBufferSpec,
        recvbuf: NcclBufferSpec,
        op: NcclRedOp | CustomRedOp,
        *,
        stream: NcclStreamSpec | None = None,
        config: NCCLCollConfig | None = None,
    ) -> None:
        """Combine the ranks' buffers; each rank receives its part."""
        check_call_config(config)
        own, operator = self.own, _operator(op)
        sent, received = row_of(sendbuf, "sendbuf"), row_of(recvbuf, "recvbuf", is_written=True)
        part = self._part(sent)
        check_pair(sent, received, part)
        operator = _for_booleans(operator, sent, received)
        source, out = sent.first(part * self.nranks), received.first(part)
        own.reduce_scatter(source, op=operator, out=out, stream=_stream(stream))

    @_of_buffers
    def alltoall(
        self,
        sendbuf: NcclBufferSpec,
        recvbuf: NcclBufferSpec,
        *,
        stream: NcclStreamSpec | None = None,
        config: NCCLCollConfig | None = None,
    ) -> None:
        """Exchange parts: rank r receives the r-th part of every rank's buffer."""
        check_call_config(config)
        own, sent, received = self.own, row_of(sendbuf, "sendbuf"), row_of(recvbuf, "recvbuf", is_written=True)
        count = self._part(sent) * self.nranks
        check_pair(sent, received, sent.count)
        own.all_to_all(sent.first(count), out=received.first(count), stream=_stream(stream))

    @_of_buffers
    def scatter(
        self,
        sendbuf: NcclBufferSpec | Any,
        recvbuf: NcclBufferSpec,
        root: int,
        *,
        stream: NcclStreamSpec | None = None,
        config: NCCLCollConfig | None = None,
    ) -> None:
        """Send each rank its part of the root's buffer; on other ranks `sendbuf` is ignored."""
        check_call_config(config)
        own, received = self.own, row_of(recvbuf, "recvbuf", is_written=True)
        source = None
        if _is_own(root, self.rank):
            sent = row_of(sendbuf, "sendbuf")
            part = self._part(sent)
            check_pair(sent, received, part, exactly=True)
            source = sent.first(part * self.nranks)
        own.scatter(source, root=root, out=received.array, stream=_stream(stream))

    def _part(self, sent: Row) -> int:
        """Return how many elements of a buffer each rank gets."""
        if sent.count < self.nranks:
            raise NcclInvalid(f"sendbuf: has {sent.count} elements, expected at least {self.nranks}, one for each rank")
        return sent.count // self.nranks


def _stream(stream: NcclStreamSpec | None) -> NcclStreamSpec | None:
    if isinstance(stream, bool):
        raise NcclInvalid(f"stream: got {stream}, expected a stream, its handle, or None")
    return stream


def _operator(op: Any) -> Any:
    if isinstance(op, CustomRedOp):
        return op.own
    is_number = isinstance(op, NcclRedOp) or (isinstance(op, int) and not isinstance(op, Enum))
    if not is_number or op not in set(NcclRedOp):
        raise NcclInvalid(f"op: got {op!r}, expected a NcclRedOp, or the result of create_pre_mul_sum")
    return NcclRedOp(op).name.lower()


def _for_booleans(operator: Any, sent: Row, received: Row | None, *, has_root: bool = False) -> Any:
    """Return the operator of a reduction; where its result is booleans, the one whose results are 0 and 1."""
    if received is not None and received.is_boolean != sent.is_boolean and (received.is_boolean or has_root):
        what = ("booleans", "numbers") if received.is_boolean else ("numbers", "booleans")
        raise NcclInvalid(f"recvbuf: has {what[0]}, and sendbuf {what[1]}; pass two buffers of one type")
    if not (sent if received is None else received).is_boolean:
        return operator
    if not isinstance(operator, str):
        raise NcclInvalid("op: the result of create_pre_mul_sum is for numbers, and the buffers have booleans")
    return {"sum": "max", "prod": "min"}.get(operator, operator)


def _is_own(root: object, rank: int) -> bool:
    return whole_number("root", root, "a rank") == rank


def _first_only(signal_index: int, context: int, flags: int) -> None:
    numbers = {"signal_index": signal_index, "context": context, "flags": flags}
    if any(whole_number(name, value, "0") for name, value in numbers.items()):
        raise NcclInvalid("signal_index, context and flags must be 0, as in RCCL 2.30")
