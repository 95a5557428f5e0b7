# SPDX-License-Identifier: MIT
"""Products split into chunks, each with its part of a collective, which overlaps with the next chunk's product."""

from __future__ import annotations

import sys
import threading
import weakref
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from rocpy import platform
from rocpy._messages.modules import is_tensor
from rocpy._operand import allocate_like
from rocpy.blaslt import matmul
from rocpy.blaslt.model.epilogues import PlainEpilogue
from rocpy.distributed._operands import bounds, check, under_autocast
from rocpy.distributed._spans import current_spans
from rocpy.rccl import Communicator
from rocpy.runtime.device import Device
from rocpy.runtime.stream import Stream

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from types import TracebackType

    from rocpy.rccl import Work

__all__ = ["all_gather_matmul", "matmul_all_reduce", "matmul_reduce_scatter"]

_stream_pairs: weakref.WeakKeyDictionary[Communicator, StreamPair] = weakref.WeakKeyDictionary()
_streams_lock = threading.Lock()


class StreamPair:
    """The two streams of a communicator, and the order between them."""

    def __init__(self, device: int) -> None:
        self.product = Stream(device, nonblocking=True)
        self.collective = Stream(device, nonblocking=True)

    def follow(self, later: Stream, earlier: Stream) -> None:
        """Have a stream wait for what another has been given until now."""
        later.wait(earlier.record())


def streams_of(comm: Communicator) -> StreamPair:
    """Return the communicator's streams, made when they are first asked for."""
    with _streams_lock:
        if comm not in _stream_pairs:
            _stream_pairs[comm] = StreamPair(comm.device_index)
        return _stream_pairs[comm]


class Run:
    """One call: its chunks, and what must live until it is done."""

    def __init__(self, comm: Communicator, *operands: Any) -> None:
        self.comm = comm
        self.streams = streams_of(comm)
        self._spans = current_spans()
        self._works: list[Work] = []
        self._owners: list[Any] = list(operands)
        self._foreign = _foreign_streams(operands, self.streams)
        # Arrays in CPU memory are computed on the thread's current device, which must be that of the streams.
        self._device = Device(comm.device_index)

    def __enter__(self) -> Self:
        self._device.__enter__()
        for stream in self._foreign:
            stream.before()
        return self

    def _mark(self, stream: Stream, kind: str, chunk: int) -> AbstractContextManager[None]:
        return nullcontext() if self._spans is None else self._spans.mark(stream, kind, chunk)

    def product(self, chunk: int, a: Any, b: Any, out: Any, bias: Any = None) -> None:
        """Give a product to its stream."""
        epilogue: PlainEpilogue = "default" if bias is None else "bias"
        with self._mark(self.streams.product, "product", chunk):
            matmul(a, b, out=out, bias=bias, epilogue=epilogue, stream=self.streams.product)
        self._owners.append((a, b, out))

    def collective(self, chunk: int, name: str, x: Any, out: Any, **settings: Any) -> None:
        """Give a collective to its stream."""
        with self._mark(self.streams.collective, "collective", chunk):
            call = getattr(self.comm, name)
            self._works.append(call(x, out=out, stream=self.streams.collective, block=False, **settings))

    def product_then_collective(self) -> None:
        """Order what comes next on the collectives' stream after the products so far."""
        self.streams.follow(self.streams.collective, self.streams.product)

    def collective_then_product(self) -> None:
        """Order what comes next on the products' stream after the collectives so far."""
        self.streams.follow(self.streams.product, self.streams.collective)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for everything, the collectives with the communicator's deadline."""
        try:
            if kind is None:
                for work in self._works:
                    work.wait()
            self.streams.product.synchronize()
            for stream in self._foreign:
                stream.after()
        finally:
            self._device.__exit__(kind, error, trace)


class _TorchStream:
    """torch's current stream on the device of its tensors, which the two streams follow and which follows them."""

    def __init__(self, torch: Any, device: Any, streams: StreamPair) -> None:
        self._torch, self._device = torch, device
        self._ours = [
            torch.cuda.ExternalStream(stream.handle, device=device) for stream in (streams.product, streams.collective)
        ]

    def before(self) -> None:
        current = self._torch.cuda.current_stream(self._device)
        for stream in self._ours:
            stream.wait_stream(current)

    def after(self) -> None:
        current = self._torch.cuda.current_stream(self._device)
        for stream in self._ours:
            current.wait_stream(stream)


def _foreign_streams(operands: tuple[Any, ...], streams: StreamPair) -> list[_TorchStream]:
    for operand in operands:
        if is_tensor(operand) and operand.is_cuda:
            return [_TorchStream(sys.modules["torch"], operand.device, streams)]
    return []


def reduces_with_bias() -> bool:
    """Whether the platform's RCCL adds a bias while it reduces."""
    return "ncclAllReduceWithBias" not in platform.missing()["rccl"]


@under_autocast
def matmul_all_reduce(x: Any, w: Any, bias: Any = None, *, comm: Communicator, chunks: int | None = None) -> Any:
    """Return ``x @ w`` summed over the ranks, with a bias added once; every rank receives the whole result.

    Parameters
    ----------
    x
        Shape (M, K): this rank's columns of the input.
    w
        Shape (K, N): this rank's rows of the weight.
    bias
        Length N, the same on every rank.
    comm
        The communicator of the ranks.
    chunks
        Number of chunks into which the rows are split, the same on every rank; by default chosen by size.

    Returns
    -------
    array
        Shape (M, N), of the kind of `x`. Products of int8 are int32, others have the type of `x`.

    Raises
    ------
    InvalidProblemError
        Shapes or types do not fit.
    InvalidOperandError
        An operand is neither a torch tensor nor a numpy array.
    UnsupportedError
        An operand is a tensor whose gradient would be lost, or that torch transforms or traces.
    RcclError
        The collective failed.

    Notes
    -----
    While a chunk's rows are summed, the next chunk's product runs on another stream. The call returns when everything
    has finished.

    References
    ----------
    ``hipblasLtMatmul``, ``ncclAllReduce``, ``ncclAllReduceWithBias``.

    Examples
    --------
    >>> import numpy as np
    >>> from rocpy import distributed, rccl
    >>> with rccl.Communicator.init(1, 0, rccl.UniqueId.make()) as comm:
    ...     distributed.matmul_all_reduce(np.eye(2), np.eye(2), np.ones(2), comm=comm)
    array([[2., 1.],
           [1., 2.]])
    """
    m, k, n, dtype = check(x, w, bias, comm)
    y = allocate_like(x, (m, n), dtype)
    parts = bounds(m, chunks, m * k * n)
    by_collective = bias is not None and reduces_with_bias()
    added = _rows_of(bias, max((end - begin for begin, end in parts), default=0)) if by_collective else None
    own_bias = bias if bias is not None and not by_collective and comm.rank == 0 else None
    with Run(comm, x, w, bias, added) as run:
        for chunk, (begin, end) in enumerate(parts):
            part = y[begin:end]
            run.product(chunk, x[begin:end], w, part, own_bias)
            run.product_then_collective()
            settings = {} if added is None else {"bias": added[: end - begin]}
            run.collective(chunk, "all_reduce", part, part, **settings)
    return y


def _rows_of(bias: Any, rows: int) -> Any:
    if hasattr(bias, "new_empty"):
        return bias.detach().expand(rows, bias.shape[0]).contiguous()
    return np.ascontiguousarray(np.broadcast_to(bias, (rows, bias.shape[0])))


@under_autocast
def matmul_reduce_scatter(x: Any, w: Any, *, comm: Communicator, chunks: int | None = None) -> Any:
    """Return this rank's rows of ``x @ w`` summed over the ranks.

    Parameters
    ----------
    x
        Shape (M, K): this rank's columns of the input; M is a multiple of the number of ranks.
    w
        Shape (K, N): this rank's rows of the weight.
    comm, chunks
        As for `matmul_all_reduce`, which also describes the overlap and errors.

    Returns
    -------
    array
        Shape (M / nranks, N), of the kind of `x`.

    References
    ----------
    ``hipblasLtMatmul``, ``ncclReduceScatter``.

    Examples
    --------
    >>> import numpy as np
    >>> from rocpy import distributed, rccl
    >>> with rccl.Communicator.init(1, 0, rccl.UniqueId.make()) as comm:
    ...     distributed.matmul_reduce_scatter(np.eye(2), 2 * np.eye(2), comm=comm)
    array([[2., 0.],
           [0., 2.]])
    """
    m, k, n, dtype = check(x, w, None, comm, cut=True)
    rows = m // comm.nranks
    y = allocate_like(x, (rows, n), dtype)
    blocks = x.reshape(comm.nranks, rows, k)
    with Run(comm, x, w) as run:
        for chunk, (begin, end) in enumerate(bounds(rows, chunks, m * k * n)):
            part = allocate_like(x, (comm.nranks, end - begin, n), dtype)
            run.product(chunk, blocks[:, begin:end], w, part)
            run.product_then_collective()
            run.collective(chunk, "reduce_scatter", part.reshape(comm.nranks * (end - begin), n), y[begin:end])
    return y


@under_autocast
def all_gather_matmul(
    x: Any, w: Any, bias: Any = None, *, comm: Communicator, chunks: int | None = None, gathered: bool = False
) -> Any:
    """Return ``x @ w`` for the rows of all ranks.

    Parameters
    ----------
    x
        Shape (M / nranks, K), C-contiguous: this rank's rows of the input.
    w
        Shape (K, N): this rank's columns of the weight.
    bias
        Length N: this rank's part of the bias.
    comm, chunks
        As for `matmul_all_reduce`, which also describes the overlap and errors.
    gathered
        Whether the rows of all ranks are returned too.

    Returns
    -------
    array, or pair of arrays
        Shape (M, N), of the kind of `x`; and, with `gathered`, `x` of all ranks, of shape (M, K).

    References
    ----------
    ``hipblasLtMatmul``, ``ncclAllGather``.

    Examples
    --------
    >>> import numpy as np
    >>> from rocpy import distributed, rccl
    >>> with rccl.Communicator.init(1, 0, rccl.UniqueId.make()) as comm:
    ...     distributed.all_gather_matmul(np.eye(2), np.eye(2), np.ones(2), comm=comm)
    array([[2., 1.],
           [1., 2.]])
    """
    rows, k, n, dtype = check(x, w, bias, comm, is_gathered=True)
    count = comm.nranks
    y = allocate_like(x, (count, rows, n), dtype)
    parts = bounds(rows, chunks, count * rows * k * n)
    gathered_parts = [allocate_like(x, (count, end - begin, k)) for begin, end in parts]
    with Run(comm, x, w, bias) as run:
        for chunk, ((begin, end), part) in enumerate(zip(parts, gathered_parts, strict=True)):
            run.collective(chunk, "all_gather", x[begin:end], part.reshape(count * (end - begin), k))
            run.collective_then_product()
            run.product(chunk, part, w, y[:, begin:end], bias)
    result = y.reshape(count * rows, n)
    if not gathered:
        return result
    whole = allocate_like(x, (count, rows, k))
    for (begin, end), part in zip(parts, gathered_parts, strict=True):
        whole[:, begin:end] = part
    return result, whole.reshape(count * rows, k)
