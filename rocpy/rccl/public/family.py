# SPDX-License-Identifier: MIT
"""What a communicator has to do with others made from it: parts, survivors, newcomers; its own rest, and its end."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Self

from rocpy.errors import InvalidArgumentError
from rocpy.rccl.engine.pending import Step, current_group, run_ends, run_step
from rocpy.rccl.handles import children
from rocpy.rccl.handles.status import register
from rocpy.rccl.public.collectives import Collectives
from rocpy.rccl.public.unique_id import UniqueId

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rocpy.runtime.device import Device

__all__ = ["Family"]


class Family(Collectives):
    """Communicators that come of communicators."""

    def _adopt_child(self, child: Self, timeout_s: float | None) -> None:
        """Wait for a communicator that comes of this one."""
        if children.finish_child(self, child, timeout_s):
            register(child)

    def split(
        self,
        color: int | None = None,
        key: int = 0,
        *,
        timeout_s: float | None = None,
        name: str | None = None,
        config: Mapping[str, int | str] | None = None,
    ) -> Self | None:
        """Make a communicator of the ranks with the same color; every rank calls this (ncclCommSplit).

        Parameters
        ----------
        color
            Which part this rank belongs to, 0 or more; ``None`` for none.
        key
            Orders the ranks of the part; equal keys keep their order.
        timeout_s
            How long to wait; the communicator's `timeout_s` by default.
        name, config
            As in `Communicator.init`; this communicator's by default.

        Returns
        -------
        Communicator or None
            This rank's part. In a `group` it can be used once the group has ended.
        """
        if color is not None and (not isinstance(color, int) or not 0 <= color < 2**31):
            raise InvalidArgumentError(f"color: got {color!r}, expected a number from 0 to 2**31 - 1, or None")
        if not isinstance(key, int) or not -(2**31) <= key < 2**31:
            raise InvalidArgumentError(f"key: got {key!r}, expected a 32-bit integer")
        child = type(self)()
        number = -1 if color is None else color
        start = partial(children.start_split, self, child, number, key, timeout_s, config, name)
        run_step(Step(self, start, partial(self._adopt_child, child, timeout_s), child.abort))
        return None if color is None else child

    def shrink(
        self,
        exclude_ranks: Sequence[int],
        *,
        abort: bool = False,
        timeout_s: float | None = None,
        name: str | None = None,
        config: Mapping[str, int | str] | None = None,
    ) -> Self:
        """Make a communicator without some ranks, which do not call this (ncclCommShrink).

        Parameters
        ----------
        exclude_ranks
            The ranks left out.
        abort
            Whether work that still runs is aborted; needed after a failure.
        timeout_s
            How long to wait; the communicator's `timeout_s` by default.
        name, config
            As in `Communicator.init`; this communicator's by default.

        Returns
        -------
        Communicator
            The ranks that are left, in their order. In a `group` it can be used once the group has ended.
        """
        if not isinstance(exclude_ranks, Iterable) or isinstance(exclude_ranks, str | bytes):
            raise InvalidArgumentError(f"exclude_ranks: got {exclude_ranks!r}, expected ranks")
        child = type(self)()
        start = partial(children.start_shrink, self, child, list(exclude_ranks), abort, timeout_s, config, name)
        run_step(Step(self, start, partial(self._adopt_child, child, timeout_s), child.abort))
        return child

    def growth_id(self) -> UniqueId:
        """Return what new ranks join by; one rank makes it, for `grow` and for the newcomers (ncclCommGetUniqueId).

        Raises
        ------
        UnsupportedError
            The platform's RCCL is older than 2.30.
        """
        return UniqueId(children.growth_id(self))

    def grow(
        self,
        nranks: int,
        unique_id: UniqueId | bytes | None = None,
        *,
        timeout_s: float | None = None,
        name: str | None = None,
        config: Mapping[str, int | str] | None = None,
    ) -> Self:
        """Make a communicator of these ranks and of new ones, which call `join_grown` (ncclCommGrow).

        Parameters
        ----------
        nranks
            How many there will be; these ranks keep their numbers.
        unique_id
            What `growth_id` gave, on the one rank that asked for it; nothing on the others.
        timeout_s
            How long to wait; the communicator's `timeout_s` by default.
        name, config
            As in `Communicator.init`; this communicator's by default.

        Returns
        -------
        Communicator
            Ready for use. This one stays as it is.

        Raises
        ------
        CollectiveTimeoutError
            Newcomers are missing: ``waiting_for`` names them.
        UnsupportedError
            The platform's RCCL is older than 2.30.

        Examples
        --------
        >>> import threading
        >>> import numpy as np
        >>> from rocpy import rccl
        >>> with rccl.Communicator.init(1, 0, rccl.UniqueId.make()) as comm:
        ...     ident = comm.growth_id()
        ...     def newcomer():
        ...         with rccl.Communicator.join_grown(2, 1, ident, device=1) as joined:
        ...             joined.all_reduce(np.ones(1))
        ...     thread = threading.Thread(target=newcomer)
        ...     thread.start()
        ...     with comm.grow(2, ident) as larger:
        ...         larger.all_reduce(np.ones(1))
        ...     thread.join()
        array([2.])
        """
        child = type(self)()
        id_bytes = None if unique_id is None else bytes(unique_id)
        children.start_grow(self, child, nranks, id_bytes, timeout_s, config, name)
        self._adopt_child(child, timeout_s)
        return child

    @classmethod
    def join_grown(
        cls,
        nranks: int,
        rank: int,
        unique_id: UniqueId | bytes,
        *,
        device: Device | int | None = None,
        timeout_s: float = 30.0,
        name: str = "",
        config: Mapping[str, int | str] | None = None,
    ) -> Self:
        """Join a communicator that others `grow` (ncclCommGrow without a communicator).

        Parameters
        ----------
        nranks, rank
            How many ranks there will be, and which this is: a number that none of the others has.
        unique_id
            What `growth_id` gave one of them.
        device, timeout_s, name, config
            As in `Communicator.init`.

        Returns
        -------
        Communicator
            Ready for use.

        Raises
        ------
        CollectiveTimeoutError
            Ranks are missing: ``waiting_for`` names them.
        """
        communicator = cls()
        communicator.begin(nranks, rank, unique_id, device, timeout_s, name, config, True)
        communicator.finish_init(monotonic() + timeout_s, timeout_s)
        register(communicator)
        return communicator

    def finalize(self, timeout_s: float | None = None) -> None:
        """Wait until all ranks are through with their work, then give it back (ncclCommFinalize, ncclCommDestroy).

        In a `group` this happens when the group ends, so that one thread may finalize several ranks.

        Parameters
        ----------
        timeout_s
            How long to wait; the communicator's `timeout_s` by default.

        Raises
        ------
        CollectiveTimeoutError
            Ranks have not come to their end: ``waiting_for`` names them. The communicator was aborted.
        ClosedError
            It was closed, finalized or aborted before.

        Examples
        --------
        >>> from rocpy import rccl
        >>> comms = rccl.Communicator.init_all(2)
        >>> with rccl.group():
        ...     for comm in comms:
        ...         comm.finalize()
        >>> [comm.is_closed for comm in comms]
        [True, True]
        """
        seconds = self.seconds_to_wait(timeout_s)
        start = partial(children.start_finalize, self, seconds)
        step = Step(self, start, partial(children.finish_finalize, self), self.abort)
        group = current_group()
        if group is not None:
            group.add_end(step)
        else:
            run_ends([step])

    def revoke(self) -> None:
        """Take back what runs, here and at whoever waits for this rank; what is made from it works (ncclCommRevoke).

        For a way out of a failure that all ranks take: the rank that sees it revokes, the others get a
        `RemoteError` and revoke too. Then `split` or `shrink` give a communicator that works; this one takes no more
        calls, and `close` gives it back.

        Raises
        ------
        InvalidArgumentError
            It was revoked already.
        UnsupportedError
            The platform's RCCL is older than 2.30.

        Examples
        --------
        >>> import numpy as np
        >>> from rocpy import rccl
        >>> with rccl.Communicator.init(1, 0, rccl.UniqueId.make()) as comm:
        ...     comm.revoke()
        ...     with comm.split(0) as fresh:
        ...         fresh.all_reduce(np.ones(2))
        array([1., 1.])
        """
        children.revoke(self)

    def suspend(self) -> None:
        """Give device memory back while the communicator is idle; every rank calls this (ncclCommSuspend).

        Calls are refused until `resume`. On the host platform the ranks' shared memory stays.

        Raises
        ------
        UnsupportedError
            The platform's RCCL is older than 2.30.
        """
        children.suspend(self)

    def resume(self) -> None:
        """Take calls again after `suspend`; every rank calls this (ncclCommResume).

        Raises
        ------
        InvalidUsageError
            It is not suspended.
        UnsupportedError
            The platform's RCCL is older than 2.30.
        """
        children.resume(self)

    def memory_stats(self) -> dict[str, int]:
        """Return how much memory the communicator has (ncclCommMemStats).

        Returns
        -------
        dict
            Bytes: ``suspendable``, ``persistent`` and ``total``; ``suspended``, which is 1 between `suspend` and
            `resume`.

        Raises
        ------
        UnsupportedError
            The platform's RCCL is older than 2.30.

        Examples
        --------
        >>> from rocpy import rccl
        >>> with rccl.Communicator.init(1, 0, rccl.UniqueId.make()) as comm:
        ...     comm.suspend()
        ...     is_suspended = comm.memory_stats()["suspended"]
        ...     comm.resume()
        >>> is_suspended
        1
        """
        return children.memory_stats(self)
