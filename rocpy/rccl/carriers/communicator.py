# SPDX-License-Identifier: MIT
"""Collectives over somebody else's transport, for the host platform on several machines: mpi4py, or torch's gloo."""

from __future__ import annotations

import ctypes
import operator
from dataclasses import dataclass
from time import monotonic, sleep
from types import TracebackType
from typing import Any, Literal, NoReturn, Self, TypedDict, TypeVar, Unpack, overload

import numpy as np

from rocpy._fp_environment import default_arithmetic
from rocpy._messages.pickling import refuse_pickling
from rocpy._messages.suggestions import did_you_mean
from rocpy.errors import (
    ClosedError,
    CollectiveTimeoutError,
    InvalidArgumentError,
    InvalidUsageError,
    RcclError,
    RcclSystemError,
    UnsupportedError,
    warn,
)
from rocpy.rccl.carriers.carrier import Carrier
from rocpy.rccl.carriers.combining import combine
from rocpy.rccl.engine.call import NAMES
from rocpy.rccl.engine.operands import check_in_cpu_memory
from rocpy.rccl.model.arguments import check_seconds
from rocpy.rccl.model.dtypes import numpy_type
from rocpy.rccl.model.operators import OPERATORS, ReduceOp
from rocpy.typing import ArrayLike, FrameworkArray

__all__ = ["CarriedCommunicator", "carried_communicator"]

_Array = TypeVar("_Array", bound=FrameworkArray)


class _RcclArguments(TypedDict, total=False):
    """Arguments of a Communicator's calls that only RCCL can follow: their defaults are accepted."""

    bias: None
    stream: None
    block: Literal[True]


_DEFAULTS = {"bias": None, "stream": None, "block": True}


@dataclass(frozen=True)
class _Call:
    """What errors say of a call, and until when it may take."""

    name: str
    seq: int
    seconds: float
    deadline: float


def _memory(operand: tuple[int, int, str, object] | None) -> Any:
    """Return the memory of an operand that was checked as a row of its elements."""
    if operand is None:
        return None
    address, count, name, owners = operand
    dtype = numpy_type(name)
    if count == 0:
        return np.empty(0, dtype)
    block: Any = (ctypes.c_char * (count * dtype.itemsize)).from_address(address)
    block.owners = owners  # alive as long as the row is
    return np.frombuffer(block, dtype)


class CarriedCommunicator:
    """The collectives of a Communicator over another library's transport, for arrays in CPU memory.

    Created by `Communicator.from_mpi` and `Communicator.from_torch` if the ranks of the host platform are on several
    machines. Features of RCCL itself (groups, windows, split, pre-multiplied sums, asynchronous work) are refused. The
    transports cannot report which rank is missing, so a timeout does not name it. Arguments are those of the
    Communicator's methods with the same names.

    Attributes
    ----------
    rank, nranks
        This rank, and the number of ranks.
    transport
        The transport, for display.
    """

    def __init__(self, carrier: Carrier, timeout_s: float, name: str) -> None:
        self._carrier = carrier
        self.rank, self.nranks, self.transport = carrier.rank, carrier.nranks, carrier.name
        self.timeout_s, self.name = timeout_s, name
        self.is_closed = False
        self._seq = 0
        # What a transport may still write to: transfers that were given up.
        self._unfinished: list[Any] = []

    @property
    def timeout_s(self) -> float:
        """How long calls wait by default, in seconds."""
        return self._timeout_s

    @timeout_s.setter
    def timeout_s(self, value: float) -> None:
        self._timeout_s = check_seconds(value)

    def _check_open(self) -> None:
        if self.is_closed:
            raise ClosedError("this Communicator has been closed")

    @default_arithmetic
    def _run(
        self,
        name: str,
        x: ArrayLike | None,
        out: Any,
        op: str,
        root: int | None,
        timeout_s: float | None,
        others: _RcclArguments,
    ) -> Any:
        self._check_open()
        for argument, value in others.items():
            if argument not in _DEFAULTS:
                raise TypeError(f"{name}() got an unexpected keyword argument {argument!r}")
            if value is not _DEFAULTS[argument]:
                raise UnsupportedError(
                    f"{name}: {argument}={value!r}: {self.transport} carries this communicator, and only RCCL's calls "
                    f"take this argument"
                )
        seconds = self.timeout_s if timeout_s is None else check_seconds(timeout_s)
        if not isinstance(op, str) or op not in OPERATORS:
            expected = f"expected one of {', '.join(OPERATORS)}{did_you_mean(op, OPERATORS)}"
            raise InvalidArgumentError(f"op: got {op!r}, {expected}", rank=self.rank)
        sent, received, result = check_in_cpu_memory(NAMES.index(name), x, out, root, self.rank, self.nranks)
        source, target, root = _memory(sent), _memory(received), None if root is None else operator.index(root)
        if name in ("send", "recv") and root == self.rank:
            raise InvalidUsageError(
                f"peer: rank {root} sends to itself only within a group, beside the receive, and "
                f"{self.transport} has no groups",
                op=name,
                rank=self.rank,
            )
        call = self._begin(name, seconds)
        # What a call receives is copied when all of it is there: one that raises writes nothing.
        if name == "all_reduce":
            target[:] = self._stacked(call, self._combined(call, source, op))[: target.size]
        elif name == "reduce_scatter":
            target[:] = self._combined(call, source, op)
        elif name == "reduce":
            parts = self._combined(call, source, op)
            whole: Any = None if target is None else np.empty(parts.size * self.nranks, parts.dtype)
            self._transfer(call, "gather", parts, whole, root)
            if target is not None:
                target[:] = whole[: target.size]
        elif name == "broadcast" and self.rank == root:
            self._transfer(call, name, None, source, root)
            target[:] = source
        else:
            sends = name not in ("broadcast", "scatter") or self.rank == root
            arrived = None if target is None else np.empty_like(target)
            self._transfer(call, name, source if sends else None, arrived, root)
            if target is not None:
                target[:] = arrived
        return result

    def _begin(self, name: str, seconds: float) -> _Call:
        self._seq += 1
        return _Call(name, self._seq, seconds, monotonic() + seconds)

    def _combined(self, call: _Call, source: Any, op: str) -> Any:
        """Return this rank's part of what the arrays of all ranks come to; the parts may be longer than the arrays."""
        part = -(-source.size // self.nranks)
        padded = np.zeros(part * self.nranks, source.dtype)
        padded[: source.size] = source
        parts = np.empty_like(padded)
        self._transfer(call, "all_to_all", padded, parts, None)
        return combine(op, parts.reshape(self.nranks, part))

    def _stacked(self, call: _Call, part: Any) -> Any:
        whole = np.empty(part.size * self.nranks, part.dtype)
        self._transfer(call, "all_gather", part, whole, None)
        return whole

    def _transfer(self, call: _Call, kind: str, source: Any, target: Any, rank: int | None) -> None:
        """Have the transport move the memory of arrays, and wait for it."""
        if all(array is None or array.size == 0 for array in (source, target)):
            return
        sent, received = (None if array is None else array.view(np.uint8) for array in (source, target))
        seconds = max(call.deadline - monotonic(), 0.001)
        try:
            request = self._carrier.start(kind, sent, received, 0 if rank is None else rank, seconds)
            self._unfinished.append((request, sent, received))
            self._await(call, request)
        except RcclError:
            raise
        except Exception as error:
            raise RcclSystemError(
                f"rank {self.rank}: {call.name} number {call.seq} failed: {self.transport}: {error}",
                op=call.name,
                seq=call.seq,
                rank=self.rank,
            ) from error
        self._unfinished.pop()

    def _await(self, call: _Call, request: Any) -> None:
        turn = 0
        while not self._carrier.test(request):
            turn += 1
            if monotonic() > call.deadline:
                raise CollectiveTimeoutError(
                    f"rank {self.rank}: {call.name} number {call.seq} did not complete within {call.seconds:g} s; "
                    f"{self.transport} cannot report which rank it waits for",
                    op=call.name,
                    seq=call.seq,
                    rank=self.rank,
                )
            sleep(0 if turn < 200 else 0.0002)

    def all_reduce(
        self,
        x: _Array,
        *,
        op: ReduceOp = "sum",
        out: ArrayLike | None = None,
        timeout_s: float | None = None,
        **others: Unpack[_RcclArguments],
    ) -> _Array:
        """Combine the inputs of all ranks; every rank receives the result."""
        result: _Array = self._run("all_reduce", x, out, op, None, timeout_s, others)
        return result

    def reduce(
        self,
        x: _Array,
        *,
        root: int = 0,
        op: ReduceOp = "sum",
        out: ArrayLike | None = None,
        timeout_s: float | None = None,
        **others: Unpack[_RcclArguments],
    ) -> _Array | None:
        """Combine the inputs of all ranks on one of them."""
        result: _Array | None = self._run("reduce", x, out, op, root, timeout_s, others)
        return result

    def reduce_scatter(
        self,
        x: _Array,
        *,
        op: ReduceOp = "sum",
        out: ArrayLike | None = None,
        timeout_s: float | None = None,
        **others: Unpack[_RcclArguments],
    ) -> _Array:
        """Combine the inputs of all ranks; each rank receives one part, split along the first axis."""
        result: _Array = self._run("reduce_scatter", x, out, op, None, timeout_s, others)
        return result

    def broadcast(
        self,
        x: _Array,
        *,
        root: int = 0,
        out: ArrayLike | None = None,
        timeout_s: float | None = None,
        **others: Unpack[_RcclArguments],
    ) -> _Array:
        """Send one rank's array to all ranks."""
        result: _Array = self._run("broadcast", x, out, "sum", root, timeout_s, others)
        return result

    def all_gather(
        self,
        x: _Array,
        *,
        out: ArrayLike | None = None,
        timeout_s: float | None = None,
        **others: Unpack[_RcclArguments],
    ) -> _Array:
        """Stack the arrays of all ranks along the first axis."""
        result: _Array = self._run("all_gather", x, out, "sum", None, timeout_s, others)
        return result

    def all_to_all(
        self,
        x: _Array,
        *,
        out: ArrayLike | None = None,
        timeout_s: float | None = None,
        **others: Unpack[_RcclArguments],
    ) -> _Array:
        """Exchange parts: rank r receives the r-th part of every rank."""
        result: _Array = self._run("all_to_all", x, out, "sum", None, timeout_s, others)
        return result

    def gather(
        self,
        x: _Array,
        *,
        root: int = 0,
        out: ArrayLike | None = None,
        timeout_s: float | None = None,
        **others: Unpack[_RcclArguments],
    ) -> _Array | None:
        """Stack the arrays of all ranks on one of them."""
        result: _Array | None = self._run("gather", x, out, "sum", root, timeout_s, others)
        return result

    @overload
    def scatter(
        self,
        x: _Array,
        *,
        root: int = 0,
        out: ArrayLike | None = None,
        timeout_s: float | None = None,
        **others: Unpack[_RcclArguments],
    ) -> _Array: ...
    @overload
    def scatter(
        self,
        x: None = None,
        *,
        root: int = 0,
        out: _Array,
        timeout_s: float | None = None,
        **others: Unpack[_RcclArguments],
    ) -> _Array: ...
    def scatter(
        self,
        x: ArrayLike | None = None,
        *,
        root: int = 0,
        out: ArrayLike | None = None,
        timeout_s: float | None = None,
        **others: Unpack[_RcclArguments],
    ) -> Any:
        """Send each rank one part of one rank's array."""
        return self._run("scatter", x, out, "sum", root, timeout_s, others)

    def send(
        self, x: ArrayLike, peer: int, *, timeout_s: float | None = None, **others: Unpack[_RcclArguments]
    ) -> None:
        """Send an array to another rank."""
        self._run("send", x, None, "sum", peer, timeout_s, others)

    def recv(self, x: _Array, peer: int, *, timeout_s: float | None = None, **others: Unpack[_RcclArguments]) -> _Array:
        """Receive an array from another rank."""
        result: _Array = self._run("recv", x, None, "sum", peer, timeout_s, others)
        return result

    def barrier(self, *, timeout_s: float | None = None) -> None:
        """Wait until every rank has reached this call."""
        self._check_open()
        call = self._begin("barrier", self.timeout_s if timeout_s is None else check_seconds(timeout_s))
        self._stacked(call, np.zeros(1, np.uint8))

    def status(self) -> dict[str, Any]:
        """Return what is known of the communicator."""
        return {
            "name": self.name,
            "rank": self.rank,
            "nranks": self.nranks,
            "transport": self.transport,
            "seq": self._seq,
            "state": "closed" if self.is_closed else "ready",
            "ranks": [],
            "failure": None,
        }

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise UnsupportedError(f"{name}: {self.transport} carries this communicator, and only RCCL's have it")

    def close(self) -> None:
        """Release it; the transport remains the caller's."""
        self.is_closed = True

    abort = finalize = close

    def __enter__(self) -> Self:
        self._check_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        refuse_pickling(self, "create one in the other process, as every rank does")

    def __repr__(self) -> str:
        return f"rocpy.rccl.CarriedCommunicator(rank={self.rank}, nranks={self.nranks}, transport={self.transport!r})"


def carried_communicator(carrier: Carrier, timeout_s: float, name: str, obstacle: str) -> CarriedCommunicator:
    """Return a communicator over a transport.

    Parameters
    ----------
    carrier
        The transport.
    timeout_s, name
        Of the communicator.
    obstacle
        Why RCCL does not reach all ranks; rank 0 warns of it. Empty where the transport was asked for.
    """
    communicator = CarriedCommunicator(carrier, timeout_s, name)
    if obstacle and communicator.rank == 0:
        warn(f"{obstacle}. Collectives go over {communicator.transport}, and groups, windows and split are refused")
    return communicator
