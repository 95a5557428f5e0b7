# SPDX-License-Identifier: MIT
"""The calls of a communicator that move arrays from some ranks to others, one method each."""

from rocpy.rccl.public.work import Work

from rocpy.rccl.engine.call cimport Call, all_to_all, gather, recv, scatter, send
from rocpy.rccl.handles.communicator cimport Handle

__all__ = ["Transfers"]


class Transfers(Handle):
    """What a Communicator does to move arrays."""

    def _outcome(self, result):
        """Return a call that is under way as a Work, a finished one's array as it is."""
        return Work(self, result) if isinstance(result, Call) else result

    def all_to_all(self, x, *, out=None, timeout_s=None, stream=None, block=True):
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
        result = (<Handle?>self).run(all_to_all, x, out, None, None, None, (timeout_s, stream, block))
        return result if block else self._outcome(result)

    def gather(self, x, *, root=0, out=None, timeout_s=None, stream=None, block=True):
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
        result = (<Handle?>self).run(gather, x, out, None, root, None, (timeout_s, stream, block))
        return result if block else self._outcome(result)

    def scatter(self, x=None, *, root=0, out=None, timeout_s=None, stream=None, block=True):
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
        result = (<Handle?>self).run(scatter, x, out, None, root, None, (timeout_s, stream, block))
        return result if block else self._outcome(result)

    def send(self, x, peer, *, timeout_s=None, stream=None, block=True):
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
        result = (<Handle?>self).run(send, x, None, None, peer, None, (timeout_s, stream, block))
        return result if block else self._outcome(result)

    def recv(self, x, peer, *, timeout_s=None, stream=None, block=True):
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
        result = (<Handle?>self).run(recv, x, None, None, peer, None, (timeout_s, stream, block))
        return result if block else self._outcome(result)
