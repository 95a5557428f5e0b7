# SPDX-License-Identifier: MIT
"""The calls of a communicator that move arrays from some ranks to others, one method each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, overload

from rocpy.rccl.engine.call import NAMES, Call
from rocpy.rccl.handles.communicator import Handle
from rocpy.rccl.public.work import Work

if TYPE_CHECKING:
    from typing import TypeVar, Unpack

    from rocpy.rccl.public.call_arguments import CallArguments, OutArguments, RootArguments
    from rocpy.typing import ArrayLike, StreamLike

    _Array = TypeVar("_Array", bound=ArrayLike)

__all__ = ["ALL_GATHER", "ALL_REDUCE", "BROADCAST", "REDUCE", "REDUCE_SCATTER", "Transfers"]

# Numbers of the calls, in the order of their names.
ALL_REDUCE, REDUCE, BROADCAST, ALL_GATHER, REDUCE_SCATTER = (
    NAMES.index(name) for name in ("all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter")
)
ALL_TO_ALL, GATHER, SCATTER, SEND, RECV = (
    NAMES.index(name) for name in ("all_to_all", "gather", "scatter", "send", "recv")
)


class Transfers(Handle):
    """What a Communicator does to move arrays."""

    def _outcome(self, result: Any) -> Any:
        """Return a call that is under way as a Work, a finished one's array as it is."""
        return Work(self, result) if isinstance(result, Call) else result

    @overload
    def all_to_all(self, x: _Array, *, block: Literal[True] = True, **arguments: Unpack[OutArguments]) -> _Array: ...
    @overload
    def all_to_all(self, x: _Array, *, block: Literal[False], **arguments: Unpack[OutArguments]) -> Work[_Array]: ...
    @overload
    def all_to_all(self, x: _Array, *, block: bool, **arguments: Unpack[OutArguments]) -> _Array | Work[_Array]: ...
    def all_to_all(
        self,
        x: ArrayLike,
        *,
        out: ArrayLike | None = None,
        timeout_s: float | None = None,
        stream: StreamLike | None = None,
        block: bool = True,
    ) -> Any:
        """Exchange parts: rank r receives the r-th part, along the first axis, of every rank (ncclAlltoAll).

        Parameters
        ----------
        x
            Input, of the same shape on every rank.
        out
            Array that receives the result; not `x` itself.
        timeout_s
            How long to wait, in seconds; by default the communicator's `timeout_s`.
        stream
            Stream to run on; by default the current stream of the operand's framework.
        block
            ``False``: return a :class:`Work` immediately.

        Returns
        -------
        array or Work
            Of the shape of `x`.

        Examples
        --------
        >>> import numpy as np
        >>> from rocpy import rccl
        >>> with rccl.Communicator.init(1, 0, rccl.UniqueId.make()) as comm:
        ...     comm.all_to_all(np.arange(2))
        array([0, 1])
        """
        result = self.run(ALL_TO_ALL, x, out, None, None, None, (timeout_s, stream, block))
        return result if block else self._outcome(result)

    @overload
    def gather(
        self, x: _Array, *, block: Literal[True] = True, **arguments: Unpack[RootArguments]
    ) -> _Array | None: ...
    @overload
    def gather(
        self, x: _Array, *, block: Literal[False], **arguments: Unpack[RootArguments]
    ) -> Work[_Array | None]: ...
    @overload
    def gather(
        self, x: _Array, *, block: bool, **arguments: Unpack[RootArguments]
    ) -> _Array | Work[_Array | None] | None: ...
    def gather(
        self,
        x: ArrayLike,
        *,
        root: int = 0,
        out: ArrayLike | None = None,
        timeout_s: float | None = None,
        stream: StreamLike | None = None,
        block: bool = True,
    ) -> Any:
        """Stack the arrays of all ranks on one of them (ncclGather).

        Parameters
        ----------
        x
            Input, of the same shape on every rank.
        root
            The rank that receives them.
        out
            Array that receives the result, with `nranks` times the elements.
        timeout_s
            How long to wait, in seconds; by default the communicator's `timeout_s`.
        stream
            Stream to run on; by default the current stream of the operand's framework.
        block
            ``False``: return a :class:`Work` immediately.

        Returns
        -------
        array or Work
            As for `all_gather` on the root; ``None`` elsewhere.

        Examples
        --------
        >>> import numpy as np
        >>> from rocpy import rccl
        >>> with rccl.Communicator.init(1, 0, rccl.UniqueId.make()) as comm:
        ...     comm.gather(np.arange(2))
        array([0, 1])
        """
        result = self.run(GATHER, x, out, None, root, None, (timeout_s, stream, block))
        return result if block else self._outcome(result)

    @overload
    def scatter(self, x: _Array, *, block: Literal[True] = True, **arguments: Unpack[RootArguments]) -> _Array: ...
    @overload
    def scatter(self, x: _Array, *, block: Literal[False], **arguments: Unpack[RootArguments]) -> Work[_Array]: ...
    @overload
    def scatter(self, x: _Array, *, block: bool, **arguments: Unpack[RootArguments]) -> _Array | Work[_Array]: ...
    @overload
    def scatter(
        self,
        x: None = None,
        *,
        out: _Array,
        root: int = 0,
        block: Literal[True] = True,
        **arguments: Unpack[CallArguments],
    ) -> _Array: ...
    @overload
    def scatter(
        self, x: None = None, *, out: _Array, root: int = 0, block: Literal[False], **arguments: Unpack[CallArguments]
    ) -> Work[_Array]: ...
    @overload
    def scatter(
        self, x: None = None, *, out: _Array, root: int = 0, block: bool, **arguments: Unpack[CallArguments]
    ) -> _Array | Work[_Array]: ...
    def scatter(
        self,
        x: ArrayLike | None = None,
        *,
        root: int = 0,
        out: ArrayLike | None = None,
        timeout_s: float | None = None,
        stream: StreamLike | None = None,
        block: bool = True,
    ) -> Any:
        """Send each rank one part of one rank's array, split along the first axis (ncclScatter).

        Parameters
        ----------
        x
            The whole array on the root. Elsewhere an array of the same shape, whose values are not read, or ``None`` if
            `out` is passed.
        root
            The rank whose array is sent.
        out
            Array that receives the part.
        timeout_s
            How long to wait, in seconds; by default the communicator's `timeout_s`.
        stream
            Stream to run on; by default the current stream of the operand's framework.
        block
            ``False``: return a :class:`Work` immediately.

        Returns
        -------
        array or Work
            The part.

        Examples
        --------
        >>> import numpy as np
        >>> from rocpy import rccl
        >>> with rccl.Communicator.init(1, 0, rccl.UniqueId.make()) as comm:
        ...     comm.scatter(np.arange(2))
        array([0, 1])
        """
        result = self.run(SCATTER, x, out, None, root, None, (timeout_s, stream, block))
        return result if block else self._outcome(result)

    @overload
    def send(
        self, x: ArrayLike, peer: int, *, block: Literal[True] = True, **arguments: Unpack[CallArguments]
    ) -> None: ...
    @overload
    def send(
        self, x: ArrayLike, peer: int, *, block: Literal[False], **arguments: Unpack[CallArguments]
    ) -> Work[None]: ...
    @overload
    def send(
        self, x: ArrayLike, peer: int, *, block: bool, **arguments: Unpack[CallArguments]
    ) -> Work[None] | None: ...
    def send(
        self,
        x: ArrayLike,
        peer: int,
        *,
        timeout_s: float | None = None,
        stream: StreamLike | None = None,
        block: bool = True,
    ) -> Any:
        """Send an array to another rank (ncclSend). Sends and receives that wait for one another need a `group`.

        Parameters
        ----------
        x
            The array.
        peer
            The rank that receives it.
        timeout_s
            How long to wait, in seconds; by default the communicator's `timeout_s`.
        stream
            Stream to run on; by default the current stream of the operand's framework.
        block
            ``False``: return a :class:`Work` immediately.

        Returns
        -------
        array or Work
            ``None``, or a Work.

        Examples
        --------
        >>> import numpy as np
        >>> from rocpy import rccl
        >>> with rccl.Communicator.init(1, 0, rccl.UniqueId.make()) as comm:
        ...     with rccl.group():
        ...         comm.send(np.ones(1), 0)
        ...         received = comm.recv(np.zeros(1), 0)
        ...     received
        array([1.])
        """
        result = self.run(SEND, x, None, None, peer, None, (timeout_s, stream, block))
        return result if block else self._outcome(result)

    @overload
    def recv(
        self, x: _Array, peer: int, *, block: Literal[True] = True, **arguments: Unpack[CallArguments]
    ) -> _Array: ...
    @overload
    def recv(
        self, x: _Array, peer: int, *, block: Literal[False], **arguments: Unpack[CallArguments]
    ) -> Work[_Array]: ...
    @overload
    def recv(
        self, x: _Array, peer: int, *, block: bool, **arguments: Unpack[CallArguments]
    ) -> _Array | Work[_Array]: ...
    def recv(
        self,
        x: ArrayLike,
        peer: int,
        *,
        timeout_s: float | None = None,
        stream: StreamLike | None = None,
        block: bool = True,
    ) -> Any:
        """Receive an array from another rank (ncclRecv).

        Parameters
        ----------
        x
            Array that receives the data, of the shape and type that the other rank sends.
        peer
            The rank that sends it.
        timeout_s
            How long to wait, in seconds; by default the communicator's `timeout_s`.
        stream
            Stream to run on; by default the current stream of the operand's framework.
        block
            ``False``: return a :class:`Work` immediately.

        Returns
        -------
        array or Work
            `x`, or a Work.

        Examples
        --------
        >>> import numpy as np
        >>> from rocpy import rccl
        >>> with rccl.Communicator.init(1, 0, rccl.UniqueId.make()) as comm:
        ...     with rccl.group():
        ...         comm.send(np.ones(1), 0)
        ...         received = comm.recv(np.zeros(1), 0)
        ...     received
        array([1.])
        """
        result = self.run(RECV, x, None, None, peer, None, (timeout_s, stream, block))
        return result if block else self._outcome(result)
