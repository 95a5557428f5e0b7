# SPDX-License-Identifier: MIT
"""Ranks on this machine for programs without a launcher: threads of this process, or processes."""

from __future__ import annotations

import multiprocessing
import threading
from typing import TYPE_CHECKING, Any

from rocpy.errors import CollectiveTimeoutError, InvalidArgumentError, RcclSystemError, RemoteError
from rocpy.rccl import Communicator, UniqueId

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection

__all__ = ["run_processes", "run_threads"]


def run_threads(function: Callable[..., Any], nranks: int, *arguments: Any, timeout_s: float = 30.0) -> list[Any]:
    """Call a function in one thread per rank, with a communicator of all of them.

    Parameters
    ----------
    function
        Called with the communicator, then `arguments`.
    nranks
        Number of ranks.
    *arguments
        Further arguments, the same for every rank.
    timeout_s
        Timeout of the communicator, in seconds.

    Returns
    -------
    list
        The result of each rank.

    Raises
    ------
    Exception
        The exception of a rank; if several failed, the one that caused the other failures.

    Examples
    --------
    >>> import numpy as np
    >>> from rocpy import distributed
    >>> distributed.run_threads(lambda comm: float(comm.all_reduce(np.ones(1))[0]), 3)
    [3.0, 3.0, 3.0]
    """
    ident = _unique(nranks)
    results: list[Any] = [None] * nranks
    errors: list[BaseException] = []

    def run(rank: int) -> None:
        try:
            with Communicator.init(nranks, rank, ident, device=rank, timeout_s=timeout_s) as comm:
                results[rank] = function(comm, *arguments)
        except BaseException as error:  # noqa: BLE001  (raised on the caller's thread)
            errors.append(error)

    threads = [threading.Thread(target=run, args=(rank,), name=f"rank {rank}") for rank in range(nranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    _raise_first(errors)
    return results


def run_processes(function: Callable[..., Any], nranks: int, *arguments: Any, timeout_s: float = 30.0) -> list[Any]:
    """Call a function in one process per rank, with a communicator of all of them.

    Parameters
    ----------
    function
        A function that the processes can import; called with the communicator, then `arguments`.
    nranks
        Number of ranks.
    *arguments
        Further arguments, the same for every rank; they are pickled.
    timeout_s
        Timeout of the communicator, in seconds.

    Returns
    -------
    list
        The result of each rank, transferred by pickling.

    Raises
    ------
    Exception
        The exception of a rank; if several failed, the one that caused the other failures.
    RcclSystemError
        A process exited without returning a result.
    """
    context = multiprocessing.get_context("spawn")
    ident = _unique(nranks)
    pipes, processes = [], []
    for rank in range(nranks):
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(
            target=_serve,
            args=(function, rank, nranks, bytes(ident), timeout_s, arguments, theirs),
            name=f"rank {rank}",
        )
        process.start()
        theirs.close()
        pipes.append(ours)
        processes.append(process)
    results: list[Any] = []
    errors: list[BaseException] = []
    for rank, pipe in enumerate(pipes):
        try:
            is_good, answer = pipe.recv()
        except EOFError:
            is_good, answer = (
                False,
                RcclSystemError(f"the process of rank {rank} exited without returning a result", rank=rank),
            )
        pipe.close()
        results.append(answer if is_good else None)
        errors += [] if is_good else [answer]
    for process in processes:
        process.join()
    _raise_first(errors)
    return results


def _unique(nranks: int) -> UniqueId:
    if not isinstance(nranks, int) or nranks < 1:
        raise InvalidArgumentError(f"nranks: got {nranks!r}, expected 1 or more")
    return UniqueId.make()


def _serve(
    function: Callable[..., Any],
    rank: int,
    nranks: int,
    ident: bytes,
    timeout_s: float,
    arguments: tuple[Any, ...],
    connection: Connection,
) -> None:
    try:
        with Communicator.init(nranks, rank, ident, device=rank, timeout_s=timeout_s) as comm:
            answer = (True, function(comm, *arguments))
    except BaseException as error:  # noqa: BLE001  (raised in the parent)
        answer = (False, error)
    try:
        connection.send(answer)
    except Exception as error:  # noqa: BLE001  (what cannot be pickled is told as text)
        connection.send((False, RcclSystemError(f"rank {rank}: {answer[1]!r} cannot be sent: {error}", rank=rank)))


def _raise_first(errors: list[BaseException]) -> None:
    for error in sorted(errors, key=lambda error: isinstance(error, RemoteError | CollectiveTimeoutError)):
        raise error
