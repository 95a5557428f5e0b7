# SPDX-License-Identifier: MIT
"""The collectives of a communicator that combine, copy or stack the arrays of all ranks, one method each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, overload

from rocpy.rccl.public.transfers import ALL_GATHER, ALL_REDUCE, BROADCAST, REDUCE, REDUCE_SCATTER, Transfers

if TYPE_CHECKING:
    from typing import TypeVar, Unpack

    from rocpy.rccl.handles.communicator import PreMulSum
    from rocpy.rccl.model.operators import ReduceOp
    from rocpy.rccl.public.call_arguments import (
        AllReduceArguments,
        CombineArguments,
        OutArguments,
        ReduceArguments,
        RootArguments,
    )
    from rocpy.rccl.public.work import Work
    from rocpy.typing import ArrayLike, StreamLike

    _Array = TypeVar("_Array", bound=ArrayLike)

__all__ = ["Collectives"]


class Collectives(Transfers):
    """What a Communicator does with arrays."""

    @overload
    def all_reduce(
        self, x: _Array, *, block: Literal[True] = True, **arguments: Unpack[AllReduceArguments]
    ) -> _Array: ...
    @overload
    def all_reduce(
        self, x: _Array, *, block: Literal[False], **arguments: Unpack[AllReduceArguments]
    ) -> Work[_Array]: ...
    @overload
    def all_reduce(
        self, x: _Array, *, block: bool, **arguments: Unpack[AllReduceArguments]
    ) -> _Array | Work[_Array]: ...
    def all_reduce(
        self,
        x: ArrayLike,
        *,
        op: ReduceOp | PreMulSum = "sum",
        out: ArrayLike | None = None,
        bias: ArrayLike | None = None,
        timeout_s: float | None = None,
        stream: StreamLike | None = None,
        block: bool = True,
    ) -> Any:
        """Combine the inputs of all ranks; every rank receives the result (ncclAllReduce, ncclAllReduceWithBias).

        Parameters
        ----------
        x
            Input, of the same shape on every rank.
        op
            ``"sum"``, ``"prod"``, ``"max"``, ``"min"``, ``"avg"``, or the result of `premul_sum`.
        out
            Array that receives the result; `x` itself for an operation in place.
        bias
            Added once, like one more input; the same on every rank. `out` may be the same array, but not overlap it
            otherwise.
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
        ...     comm.all_reduce(np.array([1.0, 2.0]), op="max")
        array([1., 2.])
        """
        result = self.run(ALL_REDUCE, x, out, op, None, bias, (timeout_s, stream, block))
        return result if block else self._outcome(result)

    @overload
    def reduce(
        self, x: _Array, *, block: Literal[True] = True, **arguments: Unpack[ReduceArguments]
    ) -> _Array | None: ...
    @overload
    def reduce(
        self, x: _Array, *, block: Literal[False], **arguments: Unpack[ReduceArguments]
    ) -> Work[_Array | None]: ...
    @overload
    def reduce(
        self, x: _Array, *, block: bool, **arguments: Unpack[ReduceArguments]
    ) -> _Array | Work[_Array | None] | None: ...
    def reduce(
        self,
        x: ArrayLike,
        *,
        root: int = 0,
        op: ReduceOp | PreMulSum = "sum",
        out: ArrayLike | None = None,
        timeout_s: float | None = None,
        stream: StreamLike | None = None,
        block: bool = True,
    ) -> Any:
        """Combine the inputs of all ranks on one of them (ncclReduce).

        Parameters
        ----------
        x
            Input, of the same shape on every rank.
        root
            The rank that receives the result.
        op
            ``"sum"``, ``"prod"``, ``"max"``, ``"min"``, ``"avg"``, or the result of `premul_sum`.
        out
            Array that receives the result; `x` itself for an operation in place.
        timeout_s
            How long to wait, in seconds; by default the communicator's `timeout_s`.
        stream
            Stream to run on; by default the current stream of the operand's framework.
        block
            ``False``: return a :class:`Work` immediately.

        Returns
        -------
        array or Work
            Of the shape of `x` at the root; ``None`` elsewhere.

        Examples
        --------
        >>> import numpy as np
        >>> from rocpy import rccl
        >>> with rccl.Communicator.init(1, 0, rccl.UniqueId.make()) as comm:
        ...     comm.reduce(np.array([3, 4]), root=0)
        array([3, 4])
        """
        result = self.run(REDUCE, x, out, op, root, None, (timeout_s, stream, block))
        return result if block else self._outcome(result)

    @overload
    def broadcast(self, x: _Array, *, block: Literal[True] = True, **arguments: Unpack[RootArguments]) -> _Array: ...
    @overload
    def broadcast(self, x: _Array, *, block: Literal[False], **arguments: Unpack[RootArguments]) -> Work[_Array]: ...
    @overload
    def broadcast(self, x: _Array, *, block: bool, **arguments: Unpack[RootArguments]) -> _Array | Work[_Array]: ...
    def broadcast(
        self,
        x: ArrayLike,
        *,
        root: int = 0,
        out: ArrayLike | None = None,
        timeout_s: float | None = None,
        stream: StreamLike | None = None,
        block: bool = True,
    ) -> Any:
        """Send one rank's array to all ranks (ncclBroadcast).

        Parameters
        ----------
        x
            Input, of the same shape on every rank.
        root
            The rank whose array is sent; on other ranks only the shape and type of `x` are used.
        out
            Array that receives the result; `x` itself for an operation in place.
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
        ...     comm.broadcast(np.array([5]), root=0)
        array([5])
        """
        result = self.run(BROADCAST, x, out, None, root, None, (timeout_s, stream, block))
        return result if block else self._outcome(result)

    @overload
    def all_gather(self, x: _Array, *, block: Literal[True] = True, **arguments: Unpack[OutArguments]) -> _Array: ...
    @overload
    def all_gather(self, x: _Array, *, block: Literal[False], **arguments: Unpack[OutArguments]) -> Work[_Array]: ...
    @overload
    def all_gather(self, x: _Array, *, block: bool, **arguments: Unpack[OutArguments]) -> _Array | Work[_Array]: ...
    def all_gather(
        self,
        x: ArrayLike,
        *,
        out: ArrayLike | None = None,
        timeout_s: float | None = None,
        stream: StreamLike | None = None,
        block: bool = True,
    ) -> Any:
        """Stack the arrays of all ranks along the first axis (ncclAllGather).

        Parameters
        ----------
        x
            Input, of the same shape on every rank.
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
            Its first axis is `nranks` times that of `x`.

        Examples
        --------
        >>> import numpy as np
        >>> from rocpy import rccl
        >>> with rccl.Communicator.init(1, 0, rccl.UniqueId.make()) as comm:
        ...     comm.all_gather(np.ones((2, 1))).shape
        (2, 1)
        """
        result = self.run(ALL_GATHER, x, out, None, None, None, (timeout_s, stream, block))
        return result if block else self._outcome(result)

    @overload
    def reduce_scatter(
        self, x: _Array, *, block: Literal[True] = True, **arguments: Unpack[CombineArguments]
    ) -> _Array: ...
    @overload
    def reduce_scatter(
        self, x: _Array, *, block: Literal[False], **arguments: Unpack[CombineArguments]
    ) -> Work[_Array]: ...
    @overload
    def reduce_scatter(
        self, x: _Array, *, block: bool, **arguments: Unpack[CombineArguments]
    ) -> _Array | Work[_Array]: ...
    def reduce_scatter(
        self,
        x: ArrayLike,
        *,
        op: ReduceOp | PreMulSum = "sum",
        out: ArrayLike | None = None,
        timeout_s: float | None = None,
        stream: StreamLike | None = None,
        block: bool = True,
    ) -> Any:
        """Combine the inputs of all ranks; each rank receives one part, split along the first axis (ncclReduceScatter).

        Parameters
        ----------
        x
            Input, of the same shape on every rank.
        op
            ``"sum"``, ``"prod"``, ``"max"``, ``"min"``, ``"avg"``, or the result of `premul_sum`.
        out
            Array that receives the result, one part of the elements.
        timeout_s
            How long to wait, in seconds; by default the communicator's `timeout_s`.
        stream
            Stream to run on; by default the current stream of the operand's framework.
        block
            ``False``: return a :class:`Work` immediately.

        Returns
        -------
        array or Work
            Its first axis is that of `x` divided by `nranks`.

        Examples
        --------
        >>> import numpy as np
        >>> from rocpy import rccl
        >>> with rccl.Communicator.init(1, 0, rccl.UniqueId.make()) as comm:
        ...     comm.reduce_scatter(np.arange(2))
        array([0, 1])
        """
        result = self.run(REDUCE_SCATTER, x, out, op, None, None, (timeout_s, stream, block))
        return result if block else self._outcome(result)
