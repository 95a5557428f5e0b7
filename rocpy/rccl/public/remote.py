# SPDX-License-Identifier: MIT
"""A communicator's memory, windows, puts and signals; and the collectives that take more than one array."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, Unpack, get_args, overload

import numpy as np

from rocpy._integers import integer_of
from rocpy._messages.choices import is_choice, shown, truth_value
from rocpy.errors import InvalidArgumentError
from rocpy.rccl.engine.described import Described
from rocpy.rccl.engine.open_group import current_group
from rocpy.rccl.engine.pending import Step, run_step
from rocpy.rccl.handles import children, memory
from rocpy.rccl.handles.communicator import PreMulSum
from rocpy.rccl.handles.memory import Registration
from rocpy.rccl.model.arguments import check_own_counts, row_counts
from rocpy.rccl.model.operators import ReduceOp
from rocpy.rccl.public.collectives import Collectives
from rocpy.rccl.public.window import Window
from rocpy.rccl.public.work import Work
from rocpy.runtime.memory import Buffer
from rocpy.typing import ArrayDType, ArrayLike, FrameworkArray, StreamLike

if TYPE_CHECKING:
    from rocpy.rccl.public.call_arguments import CallArguments, CombineArguments, OutArguments

__all__ = ["Remote"]

_Array = TypeVar("_Array", bound=FrameworkArray)

WindowFlags: TypeAlias = Literal["default", "symmetric", "strict", "symmetric_strict"]
_FLAGS: dict[WindowFlags, int] = {name: number for number, name in enumerate(get_args(WindowFlags))}


class Remote(Collectives):
    """What a Communicator does with memory of its own."""

    def empty(self, shape: int | Sequence[int], dtype: ArrayDType = "float32", *, window: bool = False) -> Buffer:
        """Allocate an array in RCCL's memory (ncclMemAlloc), which collectives use directly.

        Between processes of the host platform, a collective copies less if its operands are such arrays on all ranks.

        Parameters
        ----------
        shape, dtype
            Of the array.
        window
            Whether it is meant for `window`, which registers it; otherwise it is registered here (ncclCommRegister).

        Returns
        -------
        Buffer
            Uninitialised memory; if the CPU can access it, ``numpy.from_dlpack`` or ``torch.from_dlpack`` return an
            array that shares it.

        Examples
        --------
        >>> import numpy as np
        >>> from rocpy import rccl
        >>> with rccl.Communicator.init(1, 0, rccl.UniqueId.make()) as comm:
        ...     x = comm.empty(3, "float64")
        ...     np.asarray(x)[:] = 2
        ...     comm.all_reduce(x, out=x).to_numpy()
        array([2., 2., 2.])
        """
        registers = not truth_value("window", window, InvalidArgumentError)
        buffer: Buffer = memory.empty(shape, dtype, self.device_index, self if registers else None)
        return buffer

    def window(self, array: ArrayLike, *, flags: WindowFlags = "default", timeout_s: float | None = None) -> Window:
        """Make an array accessible to every rank; every rank calls this with its own array (ncclCommWindowRegister).

        Parameters
        ----------
        array
            Created by `empty` with ``window=True``. Sizes may differ between ranks.
        flags
            ``"default"``, ``"symmetric"``, ``"strict"`` (ordering), or ``"symmetric_strict"``.
        timeout_s
            How long to wait, in seconds; by default the communicator's `timeout_s`.

        Returns
        -------
        Window
            Closed explicitly, with the communicator, or when it is garbage-collected. In a `group` it can be used after
            the group has ended.

        Raises
        ------
        UnsupportedError
            RCCL cannot create a window for this memory.

        Examples
        --------
        >>> import numpy as np
        >>> from rocpy import rccl
        >>> with rccl.Communicator.init(1, 0, rccl.UniqueId.make()) as comm:
        ...     win = comm.window(comm.empty((4,), "float32", window=True))
        ...     win.peer(0).shape
        (4,)
        """
        if not is_choice(flags, _FLAGS):
            raise InvalidArgumentError(f"flags: got {shown(flags)}, expected one of {', '.join(_FLAGS)}")
        window = Window.__new__(Window)
        window.take(self, array)
        start = partial(window.start, _FLAGS[flags], timeout_s)
        finish = partial(window.finish, timeout_s)
        run_step(Step(self, start, finish, window._release, partial(children.withdraw_begun, self)))
        return window

    register_window = window

    def register_buffer(self, array: ArrayLike) -> Registration:
        """Register an array for direct use by this rank's collectives (ncclCommRegister); only this rank calls it.

        Parameters
        ----------
        array
            C-contiguous and writable. All ranks must pass registered memory to a call, or none.

        Returns
        -------
        Registration
            Its ``close``, the end of its ``with`` block, or its garbage collection undoes the registration.

        Examples
        --------
        >>> from rocpy import rccl
        >>> with rccl.Communicator.init(1, 0, rccl.UniqueId.make()) as comm:
        ...     handle = comm.register_buffer(comm.empty(8, "int32", window=True))
        ...     handle.close()
        """
        return memory.register(self, array)

    @overload
    def put_signal(
        self,
        x: ArrayLike,
        peer: int,
        window: Window,
        offset: int = 0,
        *,
        block: Literal[True] = True,
        **arguments: Unpack[CallArguments],
    ) -> None: ...
    @overload
    def put_signal(
        self,
        x: ArrayLike,
        peer: int,
        window: Window,
        offset: int = 0,
        *,
        block: Literal[False],
        **arguments: Unpack[CallArguments],
    ) -> Work[None]: ...
    @overload
    def put_signal(
        self,
        x: ArrayLike,
        peer: int,
        window: Window,
        offset: int = 0,
        *,
        block: bool,
        **arguments: Unpack[CallArguments],
    ) -> Work[None] | None: ...
    def put_signal(
        self,
        x: ArrayLike,
        peer: int,
        window: Window,
        offset: int = 0,
        *,
        timeout_s: float | None = None,
        stream: StreamLike | None = None,
        block: bool = True,
    ) -> Any:
        """Copy an array into a rank's window, without its participation, and signal the rank (ncclPutSignal).

        Parameters
        ----------
        x
            The array, which must be in a window of this communicator.
        peer
            The rank.
        window
            The window.
        offset
            Offset in the peer's part, in elements of the window's dtype.
        timeout_s
            How long to wait, in seconds; by default the communicator's `timeout_s`.
        stream
            Stream to run on; by default the current stream of the operand's framework.
        block
            ``False``: return a :class:`Work` immediately.

        Returns
        -------
        None or Work
            ``None``; a Work with ``block=False``.

        Examples
        --------
        >>> import numpy as np
        >>> from rocpy import rccl
        >>> with rccl.Communicator.init(1, 0, rccl.UniqueId.make()) as comm:
        ...     a, b = (comm.window(comm.empty(2, "float64", window=True)) for _ in range(2))
        ...     np.asarray(a.array)[:] = 5
        ...     comm.put_signal(a.array, 0, b)
        ...     comm.wait_signal(0)
        ...     b.array.to_numpy()
        array([5., 5.])
        """
        if not isinstance(window, Window):
            raise InvalidArgumentError(f"window: got {type(window).__name__}, expected a Window of this communicator")
        return self._outcome(memory.put(self, x, peer, window, offset, timeout_s, stream, block))

    @overload
    def signal(self, peer: int, *, block: Literal[True] = True, **arguments: Unpack[CallArguments]) -> None: ...
    @overload
    def signal(self, peer: int, *, block: Literal[False], **arguments: Unpack[CallArguments]) -> Work[None]: ...
    @overload
    def signal(self, peer: int, *, block: bool, **arguments: Unpack[CallArguments]) -> Work[None] | None: ...
    def signal(
        self, peer: int, *, timeout_s: float | None = None, stream: StreamLike | None = None, block: bool = True
    ) -> Any:
        """Signal a rank after all earlier puts have become visible to it (ncclSignal).

        Parameters
        ----------
        peer
            The rank.
        timeout_s
            How long to wait, in seconds; by default the communicator's `timeout_s`.
        stream
            Stream to run on; by default the current stream of the operand's framework.
        block
            ``False``: return a :class:`Work` immediately.

        Returns
        -------
        None or Work
            ``None``; a Work with ``block=False``.
        """
        return self._outcome(memory.signal_peer(self, peer, timeout_s, stream, block))

    @overload
    def wait_signal(
        self,
        peers: int | Sequence[int] | Mapping[int, int],
        *,
        block: Literal[True] = True,
        **arguments: Unpack[CallArguments],
    ) -> None: ...
    @overload
    def wait_signal(
        self,
        peers: int | Sequence[int] | Mapping[int, int],
        *,
        block: Literal[False],
        **arguments: Unpack[CallArguments],
    ) -> Work[None]: ...
    @overload
    def wait_signal(
        self, peers: int | Sequence[int] | Mapping[int, int], *, block: bool, **arguments: Unpack[CallArguments]
    ) -> Work[None] | None: ...
    def wait_signal(
        self,
        peers: int | Sequence[int] | Mapping[int, int],
        *,
        timeout_s: float | None = None,
        stream: StreamLike | None = None,
        block: bool = True,
    ) -> Any:
        """Wait for signals of other ranks, and consume them (ncclWaitSignal).

        Parameters
        ----------
        peers
            A rank, several ranks, or a dict of the number of signals of each rank.
        timeout_s
            How long to wait, in seconds; by default the communicator's `timeout_s`.
        stream
            Stream to run on; by default the current stream of the operand's framework.
        block
            ``False``: return a :class:`Work` immediately.

        Returns
        -------
        None or Work
            ``None``; a Work with ``block=False``.

        Raises
        ------
        CollectiveTimeoutError
            Signals have not arrived: ``waiting_for`` names their ranks.
        """
        peer = None if getattr(peers, "ndim", 0) else integer_of(peers)
        if peer is not None:
            wanted = [(peer, 1)]
        elif hasattr(peers, "items"):
            wanted = list(peers.items())
        elif isinstance(peers, Iterable):
            wanted = [(peer, 1) for peer in peers]
        else:
            raise InvalidArgumentError(f"peers: got {peers!r}, expected a rank, ranks, or a dict of ranks and numbers")
        return self._outcome(memory.wait(self, wanted, timeout_s, stream, block))

    @overload
    def all_to_all_v(
        self,
        x: _Array,
        send_counts: Sequence[int],
        recv_counts: Sequence[int] | None = None,
        *,
        block: Literal[True] = True,
        **arguments: Unpack[OutArguments],
    ) -> _Array: ...
    @overload
    def all_to_all_v(
        self,
        x: _Array,
        send_counts: Sequence[int],
        recv_counts: Sequence[int] | None = None,
        *,
        block: Literal[False],
        **arguments: Unpack[OutArguments],
    ) -> Work[_Array]: ...
    @overload
    def all_to_all_v(
        self,
        x: _Array,
        send_counts: Sequence[int],
        recv_counts: Sequence[int] | None = None,
        *,
        block: bool,
        **arguments: Unpack[OutArguments],
    ) -> _Array | Work[_Array]: ...
    def all_to_all_v(
        self,
        x: ArrayLike,
        send_counts: Sequence[int],
        recv_counts: Sequence[int] | None = None,
        *,
        out: ArrayLike | None = None,
        timeout_s: float | None = None,
        stream: StreamLike | None = None,
        block: bool = True,
    ) -> Any:
        """Send each rank its own number of rows, and receive the others' rows (ncclAllToAllv).

        Parameters
        ----------
        x
            Rows for rank 0, then those for rank 1, and so on, along the first axis.
        send_counts
            Number of rows that each rank receives from this one.
        recv_counts
            Number of rows that each rank sends to this one; by default the counts are exchanged first, by an
            `all_to_all`.
        out
            Array that receives the result.
        timeout_s
            How long to wait, in seconds; by default the communicator's `timeout_s`.
        stream
            Stream to run on; by default the current stream of the operand's framework.
        block
            ``False``: return a :class:`Work` immediately.

        Returns
        -------
        array or Work
            The rows of rank 0, then those of rank 1, and so on.

        Raises
        ------
        InvalidProblemError
            The counts are not one for each rank, or this rank's own ones differ: the rows that it sends to itself.
        CollectiveMismatchError
            A rank sends a different number of rows than another one expects, or the ranks' rows differ in their number
            of elements or their dtype; not on AMD GPUs, where RCCL does not compare them.

        Examples
        --------
        >>> import numpy as np
        >>> from rocpy import rccl
        >>> with rccl.Communicator.init(1, 0, rccl.UniqueId.make()) as comm:
        ...     comm.all_to_all_v(np.arange(3), [3])
        array([0, 1, 2])
        """
        send_rows = row_counts("send_counts", send_counts, self.nranks)
        if recv_counts is None:
            if current_group() is not None:
                raise InvalidArgumentError(
                    "recv_counts: they are required in a group, where counts cannot be exchanged first"
                )
            memory.check_rows(x, send_rows)
            with Described(self, "all_to_all_v(exchange of the counts)"):
                recv_counts = self.all_to_all(np.asarray(send_rows, np.int64), timeout_s=timeout_s).tolist()
        recv_rows = row_counts("recv_counts", recv_counts, self.nranks)
        check_own_counts(send_rows, recv_rows, self.rank)
        return self._outcome(
            memory.trade(self, x, send_rows, recv_rows, out, timeout_s=timeout_s, stream=stream, block=block)
        )

    @overload
    def all_reduce_with_bias(
        self, x: _Array, bias: ArrayLike, *, block: Literal[True] = True, **arguments: Unpack[CombineArguments]
    ) -> _Array: ...
    @overload
    def all_reduce_with_bias(
        self, x: _Array, bias: ArrayLike, *, block: Literal[False], **arguments: Unpack[CombineArguments]
    ) -> Work[_Array]: ...
    @overload
    def all_reduce_with_bias(
        self, x: _Array, bias: ArrayLike, *, block: bool, **arguments: Unpack[CombineArguments]
    ) -> _Array | Work[_Array]: ...
    def all_reduce_with_bias(
        self,
        x: ArrayLike,
        bias: ArrayLike,
        *,
        out: ArrayLike | None = None,
        op: ReduceOp | PreMulSum = "sum",
        timeout_s: float | None = None,
        stream: StreamLike | None = None,
        block: bool = True,
    ) -> Any:
        """Combine the arrays of all ranks and, once, a bias (ncclAllReduceWithBias): `all_reduce` with ``bias``.

        Parameters
        ----------
        x
            Input, of the same shape on every rank.
        bias
            The bias; the same on every rank.
        out, op, timeout_s, stream, block
            As in `all_reduce`.

        Returns
        -------
        array or Work
            As in `all_reduce`.

        Examples
        --------
        >>> import numpy as np
        >>> from rocpy import rccl
        >>> with rccl.Communicator.init(1, 0, rccl.UniqueId.make()) as comm:
        ...     comm.all_reduce_with_bias(np.ones(2, "float32"), np.ones(2, "float32"))
        array([2., 2.], dtype=float32)
        """
        return self.all_reduce(x, out=out, op=op, bias=bias, timeout_s=timeout_s, stream=stream, block=block)
