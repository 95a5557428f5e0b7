# SPDX-License-Identifier: MIT
"""The collectives of a communicator, one method each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rocpy.rccl.engine.call import NAMES, Call
from rocpy.rccl.handles.communicator import Handle, PreMulSum
from rocpy.rccl.public.work import Work

if TYPE_CHECKING:
    from rocpy.typing import ArrayLike, StreamLike

_KINDS = {name: number for number, name in enumerate(NAMES)}


class Collectives(Handle):
    """What a Communicator does with arrays."""

    def _outcome(self, result: Any) -> Any:
        """Return a call that is under way as a Work, a finished one's array as it is."""
        return Work(self, result) if isinstance(result, Call) else result

    def all_reduce(
        self,
        x: ArrayLike,
        *,
        op: str | PreMulSum = "sum",
        out: ArrayLike | None = None,
        bias: ArrayLike | None = None,
        timeout_s: float | None = None,
        stream: StreamLike | None = None,
        block: bool = True,
    ) -> Any:
        """Combine the inputs of all ranks; all of them get the result (ncclAllReduce, ncclAllReduceWithBias).

        Parameters
        ----------
        x
            Input, of the same shape on every rank.
        op
            ``"sum"``, ``"prod"``, ``"max"``, ``"min"``, ``"avg"``, or what `premul_sum` gives.
        out
            Where the result goes; `x` itself works in place.
        bias
            Takes part once, as an input more; the same on every rank.
        timeout_s
            How long to wait; the communicator's `timeout_s` by default.
        stream
            Stream to run on; by default the current one of the operand's framework.
        block
            False returns a :class:`Work` at once.

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
        return self._outcome(
            self.run(_KINDS["all_reduce"], x, out, op, None, bias, timeout_s=timeout_s, stream=stream, block=block)
        )

    def reduce(
        self,
        x: ArrayLike,
        *,
        root: int = 0,
        op: str | PreMulSum = "sum",
        out: ArrayLike | None = None,
        timeout_s: float | None = None,
        stream: StreamLike | None = None,
        block: bool = True,
    ) -> Any:
        """Combine the inputs of all ranks at one of them (ncclReduce).

        Parameters
        ----------
        x
            Input, of the same shape on every rank.
        root
            The rank that gets the result.
        op
            ``"sum"``, ``"prod"``, ``"max"``, ``"min"``, ``"avg"``, or what `premul_sum` gives.
        out
            Where the result goes; `x` itself works in place.
        timeout_s
            How long to wait; the communicator's `timeout_s` by default.
        stream
            Stream to run on; by default the current one of the operand's framework.
        block
            False returns a :class:`Work` at once.

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
        return self._outcome(
            self.run(_KINDS["reduce"], x, out, op, root, None, timeout_s=timeout_s, stream=stream, block=block)
        )

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
        """Give one rank's array to all (ncclBroadcast).

        Parameters
        ----------
        x
            Input, of the same shape on every rank.
        root
            The rank that gives it; elsewhere `x` tells shape and type alone.
        out
            Where the result goes; `x` itself works in place.
        timeout_s
            How long to wait; the communicator's `timeout_s` by default.
        stream
            Stream to run on; by default the current one of the operand's framework.
        block
            False returns a :class:`Work` at once.

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
        return self._outcome(
            self.run(_KINDS["broadcast"], x, out, None, root, None, timeout_s=timeout_s, stream=stream, block=block)
        )

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
            Where the result goes; it has `nranks` times the elements.
        timeout_s
            How long to wait; the communicator's `timeout_s` by default.
        stream
            Stream to run on; by default the current one of the operand's framework.
        block
            False returns a :class:`Work` at once.

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
        return self._outcome(
            self.run(_KINDS["all_gather"], x, out, None, None, None, timeout_s=timeout_s, stream=stream, block=block)
        )

    def reduce_scatter(
        self,
        x: ArrayLike,
        *,
        op: str | PreMulSum = "sum",
        out: ArrayLike | None = None,
        timeout_s: float | None = None,
        stream: StreamLike | None = None,
        block: bool = True,
    ) -> Any:
        """Combine the inputs of all ranks; each gets a part, cut along the first axis (ncclReduceScatter).

        Parameters
        ----------
        x
            Input, of the same shape on every rank.
        op
            ``"sum"``, ``"prod"``, ``"max"``, ``"min"``, ``"avg"``, or what `premul_sum` gives.
        out
            Where the result goes; it has a part of the elements.
        timeout_s
            How long to wait; the communicator's `timeout_s` by default.
        stream
            Stream to run on; by default the current one of the operand's framework.
        block
            False returns a :class:`Work` at once.

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
        return self._outcome(
            self.run(_KINDS["reduce_scatter"], x, out, op, None, None, timeout_s=timeout_s, stream=stream, block=block)
        )

    def all_to_all(
        self,
        x: ArrayLike,
        *,
        out: ArrayLike | None = None,
        timeout_s: float | None = None,
        stream: StreamLike | None = None,
        block: bool = True,
    ) -> Any:
        """Trade parts: rank r gets the r-th part, along the first axis, of every rank (ncclAlltoAll).

        Parameters
        ----------
        x
            Input, of the same shape on every rank.
        out
            Where the result goes; not `x` itself.
        timeout_s
            How long to wait; the communicator's `timeout_s` by default.
        stream
            Stream to run on; by default the current one of the operand's framework.
        block
            False returns a :class:`Work` at once.

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
        return self._outcome(
            self.run(_KINDS["all_to_all"], x, out, None, None, None, timeout_s=timeout_s, stream=stream, block=block)
        )

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
        """Stack the arrays of all ranks at one of them (ncclGather).

        Parameters
        ----------
        x
            Input, of the same shape on every rank.
        root
            The rank that gets them.
        out
            Where the result goes; it has `nranks` times the elements.
        timeout_s
            How long to wait; the communicator's `timeout_s` by default.
        stream
            Stream to run on; by default the current one of the operand's framework.
        block
            False returns a :class:`Work` at once.

        Returns
        -------
        array or Work
            As `all_gather` at the root; ``None`` elsewhere.

        Examples
        --------
        >>> import numpy as np
        >>> from rocpy import rccl
        >>> with rccl.Communicator.init(1, 0, rccl.UniqueId.make()) as comm:
        ...     comm.gather(np.arange(2))
        array([0, 1])
        """
        return self._outcome(
            self.run(_KINDS["gather"], x, out, None, root, None, timeout_s=timeout_s, stream=stream, block=block)
        )

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
        """Give each rank a part, along the first axis, of one rank's array (ncclScatter).

        Parameters
        ----------
        x
            The whole array at the root. Elsewhere an array of its shape, whose values are not read, or nothing where
            `out` is given.
        root
            The rank that has it.
        out
            Where the result goes; one part.
        timeout_s
            How long to wait; the communicator's `timeout_s` by default.
        stream
            Stream to run on; by default the current one of the operand's framework.
        block
            False returns a :class:`Work` at once.

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
        return self._outcome(
            self.run(_KINDS["scatter"], x, out, None, root, None, timeout_s=timeout_s, stream=stream, block=block)
        )

    def send(
        self,
        x: ArrayLike,
        peer: int,
        *,
        timeout_s: float | None = None,
        stream: StreamLike | None = None,
        block: bool = True,
    ) -> Any:
        """Send an array to another rank (ncclSend). Sends and receives that wait for one another go into a `group`.

        Parameters
        ----------
        x
            What is sent.
        peer
            Who gets it.
        timeout_s
            How long to wait; the communicator's `timeout_s` by default.
        stream
            Stream to run on; by default the current one of the operand's framework.
        block
            False returns a :class:`Work` at once.

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
        return self._outcome(
            self.run(_KINDS["send"], x, None, None, peer, None, timeout_s=timeout_s, stream=stream, block=block)
        )

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
            Where it goes; of the shape and type of what is sent.
        peer
            Who sends it.
        timeout_s
            How long to wait; the communicator's `timeout_s` by default.
        stream
            Stream to run on; by default the current one of the operand's framework.
        block
            False returns a :class:`Work` at once.

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
        return self._outcome(
            self.run(_KINDS["recv"], x, None, None, peer, None, timeout_s=timeout_s, stream=stream, block=block)
        )
