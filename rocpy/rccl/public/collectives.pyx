# SPDX-License-Identifier: MIT
"""The collectives of a communicator that combine, copy or stack the arrays of all ranks, one method each."""

from rocpy.rccl.public.transfers import Transfers

from rocpy.rccl.engine.call cimport all_gather, all_reduce, broadcast, reduce, reduce_scatter
from rocpy.rccl.handles.communicator cimport Handle

__all__ = ["Collectives"]


class Collectives(Transfers):
    """What a Communicator does with arrays."""

    def all_reduce(self, x, *, op="sum", out=None, bias=None, timeout_s=None, stream=None, block=True):
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
        result = (<Handle?>self).run(all_reduce, x, out, op, None, bias, (timeout_s, stream, block))
        return result if block else self._outcome(result)

    def reduce(self, x, *, root=0, op="sum", out=None, timeout_s=None, stream=None, block=True):
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
        result = (<Handle?>self).run(reduce, x, out, op, root, None, (timeout_s, stream, block))
        return result if block else self._outcome(result)

    def broadcast(self, x, *, root=0, out=None, timeout_s=None, stream=None, block=True):
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
        result = (<Handle?>self).run(broadcast, x, out, None, root, None, (timeout_s, stream, block))
        return result if block else self._outcome(result)

    def all_gather(self, x, *, out=None, timeout_s=None, stream=None, block=True):
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
        result = (<Handle?>self).run(all_gather, x, out, None, None, None, (timeout_s, stream, block))
        return result if block else self._outcome(result)

    def reduce_scatter(self, x, *, op="sum", out=None, timeout_s=None, stream=None, block=True):
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
        result = (<Handle?>self).run(reduce_scatter, x, out, op, None, None, (timeout_s, stream, block))
        return result if block else self._outcome(result)
