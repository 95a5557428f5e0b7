# SPDX-License-Identifier: MIT
"""What a communicator has to do with others made from it: parts, survivors, newcomers; its own rest, and its end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from time import monotonic
from typing import Self, overload

from rocpy.errors import InvalidArgumentError, InvalidUsageError
from rocpy.rccl.engine.open_group import current_group
from rocpy.rccl.engine.pending import Step, nothing, run_ends, run_step
from rocpy.rccl.handles import children
from rocpy.rccl.handles.joining import finish_init, start_init
from rocpy.rccl.handles.status import register
from rocpy.rccl.model.arguments import check_seconds, integer_in, unique_id_bytes
from rocpy.rccl.public.collectives import Collectives
from rocpy.rccl.public.unique_id import UniqueId
from rocpy.runtime.device import Device

__all__ = ["Family"]


class Family(Collectives):
    """Communicators that come of communicators."""

    def _adopt_child(self, child: Self, timeout_s: float | None, op: str) -> None:
        """Wait for a communicator that an operation makes of this one."""
        if children.finish_child(self, child, timeout_s, op):
            register(child)

    @overload
    def split(
        self,
        color: int,
        key: int = 0,
        *,
        timeout_s: float | None = None,
        name: str | None = None,
        config: Mapping[str, int | str] | None = None,
    ) -> Self: ...
    @overload
    def split(
        self,
        color: int | None = None,
        key: int = 0,
        *,
        timeout_s: float | None = None,
        name: str | None = None,
        config: Mapping[str, int | str] | None = None,
    ) -> Self | None: ...
    def split(
        self,
        color: int | None = None,
        key: int = 0,
        *,
        timeout_s: float | None = None,
        name: str | None = None,
        config: Mapping[str, int | str] | None = None,
    ) -> Self | None:
        """Create a communicator of the ranks with the same color; every rank calls this (ncclCommSplit).

        Parameters
        ----------
        color
            The part to which this rank belongs, 0 or more; ``None`` for none.
        key
            Orders the ranks of the part; equal keys keep their order.
        timeout_s
            How long to wait, in seconds; by default the communicator's `timeout_s`.
        name, config
            As in `Communicator.init`; this communicator's by default.

        Returns
        -------
        Communicator or None
            The communicator of this rank's part. In a `group` it can be used after the group has ended.
        """
        most = 2**31 - 1
        number = -1 if color is None else integer_in("color", color, 0, most, "a number from 0 to 2**31 - 1, or None")
        order = integer_in("key", key, -(2**31), most, "a 32-bit integer")
        child = type(self).__new__(type(self))
        finish = partial(self._adopt_child, child, timeout_s, "split")
        start = partial(children.start_split, self, child, number, order, timeout_s, config, name)
        run_step(Step(self, start, finish, child.abort, partial(children.withdraw_begun, self)))
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
        """Create a communicator without some ranks, which do not call this (ncclCommShrink).

        Parameters
        ----------
        exclude_ranks
            The ranks left out.
        abort
            Whether running operations are aborted; needed after a failure.
        timeout_s
            How long to wait, in seconds; by default the communicator's `timeout_s`.
        name, config
            As in `Communicator.init`; this communicator's by default.

        Returns
        -------
        Communicator
            The remaining ranks, in their order. In a `group` it can be used after the group has ended.

        Raises
        ------
        CollectiveTimeoutError
            A remaining rank did not call this: ``waiting_for`` has its number in this communicator. All may call again.
        RemoteError
            A remaining rank is dead, or has left this communicator: ``rank`` is its number here.
        """
        if not isinstance(exclude_ranks, Iterable) or isinstance(exclude_ranks, str | bytes):
            raise InvalidArgumentError(f"exclude_ranks: got {exclude_ranks!r}, expected ranks")
        child = type(self).__new__(type(self))
        start = partial(children.start_shrink, self, child, list(exclude_ranks), abort, timeout_s, config, name)
        run_step(Step(self, start, partial(self._adopt_child, child, timeout_s, "shrink"), child.abort))
        return child

    def growth_id(self) -> UniqueId:
        """Return the unique id for `grow` and for the new ranks; one rank creates it (ncclCommGetUniqueId).

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
        """Create a communicator of these ranks and of new ones, which call `join_grown` (ncclCommGrow).

        Parameters
        ----------
        nranks
            The new number of ranks; the present ranks keep their numbers.
        unique_id
            The result of `growth_id`, on the rank that called it; ``None`` on the others.
        timeout_s
            How long to wait, in seconds; by default the communicator's `timeout_s`.
        name, config
            As in `Communicator.init`; this communicator's by default.

        Returns
        -------
        Communicator
            Ready for use. The present communicator is unchanged.

        Raises
        ------
        CollectiveTimeoutError
            New ranks are missing: ``waiting_for`` names them.
        InvalidUsageError
            It is called in a `group`.
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
        if current_group() is not None:
            raise InvalidUsageError(
                "grow: it waits for the new ranks, which a group's calls cannot; call it before the group or after it",
                op="grow",
                rank=self.rank,
            )
        child = type(self).__new__(type(self))
        id_bytes = None if unique_id is None else unique_id_bytes(unique_id)
        children.start_grow(self, child, nranks, id_bytes, timeout_s, config, name)
        self._adopt_child(child, timeout_s, "grow")
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
        """Join a communicator that other ranks `grow` (ncclCommGrow without a communicator).

        Parameters
        ----------
        nranks, rank
            The new number of ranks, and this rank, which must be new.
        unique_id
            The result of `growth_id` on one of the other ranks.
        device, timeout_s, name, config
            As in `Communicator.init`.

        Returns
        -------
        Communicator
            Ready for use; in a `group` after the group has ended.

        Raises
        ------
        CollectiveTimeoutError
            Ranks are missing: ``waiting_for`` names them.
        """
        communicator = cls.__new__(cls)
        start_init(communicator, nranks, rank, unique_id, device, timeout_s, name, settings=config, grows=True)
        communicator._join_begun()
        return communicator

    def _join_begun(self) -> None:
        """Wait until the others have joined: now, or when the group that is open here ends."""
        run_step(Step(self, nothing, self._finish_begun, self.abort))

    def _finish_begun(self) -> None:
        if self.is_closed:
            return  # it was aborted in the group that it is created in
        finish_init(self, monotonic() + self.timeout_s, self.timeout_s)
        register(self)

    def finalize(self, timeout_s: float | None = None) -> None:
        """Wait until all ranks have finished their work, then release it (ncclCommFinalize, ncclCommDestroy).

        In a `group` this happens when the group ends, so that one thread may finalize several ranks.

        Parameters
        ----------
        timeout_s
            How long to wait, in seconds; by default the communicator's `timeout_s`.

        Raises
        ------
        CollectiveTimeoutError
            Ranks have not finished: ``waiting_for`` names them. The communicator was aborted.
        ClosedError
            It was already closed, finalized or aborted.

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
        if not self._is_begun():
            self.check_open()
        if timeout_s is not None:
            check_seconds(timeout_s)
        self._end(timeout_s)

    def _is_begun(self) -> bool:
        """Whether it may be one that the group that is open here has yet to create."""
        return not self.nranks and current_group() is not None

    def _end(self, timeout_s: float | None = None) -> None:
        """Finalize it, or abort it if that was asked for: now, or when the group that is open here ends."""
        start = partial(children.start_finalize, self, timeout_s)
        step = Step(self, start, partial(children.finish_finalize, self), self.abort)
        group = current_group()
        if group is not None:
            group.ends.append(step)
        else:
            run_ends([step])

    def abort(self) -> None:
        """Abort it at once, with all running operations (ncclCommAbort).

        One that its `group` has yet to create is aborted when the group ends.
        """
        super().abort()
        if self._is_begun():
            self._end()

    def revoke(self) -> None:
        """Cancel running operations, here and on ranks that wait for this one (ncclCommRevoke).

        This lets all ranks recover from a failure: the rank that detects it revokes, the others receive a `RemoteError`
        and revoke too. `split` or `shrink` then create a usable communicator; this one accepts no more calls, and
        `close` releases it.

        Raises
        ------
        InvalidArgumentError
            It has already been revoked.
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
        """Release device memory while the communicator is idle; every rank calls this (ncclCommSuspend).

        Calls are refused until `resume`. On the host platform the ranks' shared memory is kept.

        Raises
        ------
        CollectiveTimeoutError
            A pending call of this rank has not finished within the communicator's `timeout_s`.
        UnsupportedError
            The platform's RCCL is older than 2.30.
        """
        children.suspend(self)

    def resume(self) -> None:
        """Accept calls again after `suspend`; every rank calls this (ncclCommResume).

        Raises
        ------
        InvalidUsageError
            It is not suspended.
        UnsupportedError
            The platform's RCCL is older than 2.30.
        """
        children.resume(self)

    def memory_stats(self) -> dict[str, int]:
        """Return how much memory the communicator uses (ncclCommMemStats).

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
