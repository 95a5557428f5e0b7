# SPDX-License-Identifier: MIT
"""Collectives over somebody else's transport, for the host platform on several machines: mpi4py, or torch's gloo."""

from __future__ import annotations

import warnings
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, Self, overload

import numpy as np

from rocpy._fp_environment import default_arithmetic
from rocpy.errors import (
    ClosedError,
    CollectiveTimeoutError,
    InvalidArgumentError,
    InvalidOperandError,
    RocpyWarning,
    UnsupportedError,
)
from rocpy.rccl.carriers.tensors import numpy_of, tensor_of
from rocpy.rccl.model.arguments import check_seconds
from rocpy.rccl.model.operators import OPERATORS
from rocpy.rccl.model.shapes import result_shape

if TYPE_CHECKING:
    from types import TracebackType
    from typing import TypeVar

    from rocpy.rccl.carriers.carrier import Carrier
    from rocpy.rccl.model.operators import ReduceOp
    from rocpy.typing import ArrayLike

    _Array = TypeVar("_Array", bound=ArrayLike)

__all__ = ["CarriedCommunicator", "carried_communicator"]

_ROOTED = ("reduce", "broadcast", "gather", "scatter", "send", "recv")


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
    def _run(self, kind: str, x: ArrayLike | None, out: Any, op: str, root: int | None, timeout_s: float | None) -> Any:
        self._check_open()
        if op not in OPERATORS:
            raise InvalidArgumentError(f"op: got {op!r}, expected one of {', '.join(OPERATORS)}", rank=self.rank)
        if kind in _ROOTED and (not isinstance(root, int | np.integer) or not 0 <= root < self.nranks):
            name = "peer" if kind in ("send", "recv") else "root"
            raise InvalidArgumentError(
                f"{name}: got {root!r}, expected a rank from 0 to {self.nranks - 1}", rank=self.rank
            )
        seconds = self.timeout_s if timeout_s is None else check_seconds(timeout_s)
        self._seq += 1
        source = None if x is None else self._array(x, "x")
        target: Any = None
        if kind != "send" and (kind not in ("reduce", "gather") or self.rank == root):
            if kind == "recv":
                out = x
            if out is not None:
                target = self._array(out, "out")
            else:
                if source is None:
                    raise InvalidOperandError(f"x: {kind} needs an array")
                target = np.empty(result_shape(kind, source.shape, self.nranks), source.dtype)
        is_average = op == "avg"
        self._wait(kind, self._carrier.start(kind, source, target, "sum" if is_average else op, root or 0), seconds)
        if is_average and target is not None:
            np.divide(target, self.nranks, out=target, casting="unsafe")
        if target is None:
            return None
        return out if out is not None else _in_framework_of(x, target)

    def _array(self, x: Any, name: str) -> Any:
        view = numpy_of(x, name) if type(x).__module__.startswith("torch") else np.asarray(x)
        if not view.flags.c_contiguous:
            raise InvalidOperandError(f"{name}: is not C-contiguous; pass a contiguous copy")
        return view

    def _wait(self, kind: str, request: Any, seconds: float) -> None:
        deadline = monotonic() + seconds
        turn = 0
        while not self._carrier.test(request):
            turn += 1
            if monotonic() > deadline:
                raise CollectiveTimeoutError(
                    f"rank {self.rank}: {kind} number {self._seq} did not complete within {seconds:g} s; "
                    f"{self.transport} "
                    "cannot report which rank it waits for",
                    op=kind,
                    seq=self._seq,
                    rank=self.rank,
                )
            sleep(0 if turn < 200 else 0.0002)

    def all_reduce(
        self, x: _Array, *, op: ReduceOp = "sum", out: ArrayLike | None = None, timeout_s: float | None = None
    ) -> _Array:
        """Combine the inputs of all ranks; every rank receives the result."""
        result: _Array = self._run("all_reduce", x, out, op, None, timeout_s)
        return result

    def reduce(
        self,
        x: _Array,
        *,
        root: int = 0,
        op: ReduceOp = "sum",
        out: ArrayLike | None = None,
        timeout_s: float | None = None,
    ) -> _Array | None:
        """Combine the inputs of all ranks on one of them."""
        result: _Array | None = self._run("reduce", x, out, op, root, timeout_s)
        return result

    def reduce_scatter(
        self, x: _Array, *, op: ReduceOp = "sum", out: ArrayLike | None = None, timeout_s: float | None = None
    ) -> _Array:
        """Combine the inputs of all ranks; each rank receives one part, split along the first axis."""
        result: _Array = self._run("reduce_scatter", x, out, op, None, timeout_s)
        return result

    def broadcast(
        self, x: _Array, *, root: int = 0, out: ArrayLike | None = None, timeout_s: float | None = None
    ) -> _Array:
        """Send one rank's array to all ranks."""
        result: _Array = self._run("broadcast", x, out, "sum", root, timeout_s)
        return result

    def all_gather(self, x: _Array, *, out: ArrayLike | None = None, timeout_s: float | None = None) -> _Array:
        """Stack the arrays of all ranks along the first axis."""
        result: _Array = self._run("all_gather", x, out, "sum", None, timeout_s)
        return result

    def all_to_all(self, x: _Array, *, out: ArrayLike | None = None, timeout_s: float | None = None) -> _Array:
        """Exchange parts: rank r receives the r-th part of every rank."""
        result: _Array = self._run("all_to_all", x, out, "sum", None, timeout_s)
        return result

    def gather(
        self, x: _Array, *, root: int = 0, out: ArrayLike | None = None, timeout_s: float | None = None
    ) -> _Array | None:
        """Stack the arrays of all ranks on one of them."""
        result: _Array | None = self._run("gather", x, out, "sum", root, timeout_s)
        return result

    @overload
    def scatter(
        self, x: _Array, *, root: int = 0, out: ArrayLike | None = None, timeout_s: float | None = None
    ) -> _Array: ...
    @overload
    def scatter(self, x: None = None, *, root: int = 0, out: _Array, timeout_s: float | None = None) -> _Array: ...
    def scatter(
        self,
        x: ArrayLike | None = None,
        *,
        root: int = 0,
        out: ArrayLike | None = None,
        timeout_s: float | None = None,
    ) -> Any:
        """Send each rank one part of one rank's array."""
        return self._run("scatter", x, out, "sum", root, timeout_s)

    def send(self, x: ArrayLike, peer: int, *, timeout_s: float | None = None) -> None:
        """Send an array to another rank."""
        self._run("send", x, None, "sum", peer, timeout_s)

    def recv(self, x: _Array, peer: int, *, timeout_s: float | None = None) -> _Array:
        """Receive an array from another rank."""
        result: _Array = self._run("recv", x, None, "sum", peer, timeout_s)
        return result

    def barrier(self, *, timeout_s: float | None = None) -> None:
        """Wait until every rank has reached this call."""
        self.all_reduce(np.zeros(1, np.uint8), op="max", timeout_s=timeout_s)

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

    def __repr__(self) -> str:
        return f"rocpy.rccl.CarriedCommunicator(rank={self.rank}, nranks={self.nranks}, transport={self.transport!r})"


def _in_framework_of(x: Any, array: Any) -> Any:
    return tensor_of(array) if type(x).__module__.startswith("torch") else array


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
        warnings.warn(
            f"{obstacle}. Collectives go over {communicator.transport}, and groups, windows and split are refused",
            RocpyWarning,
            stacklevel=6,
        )
    return communicator
