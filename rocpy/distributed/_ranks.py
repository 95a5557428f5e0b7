# SPDX-License-Identifier: MIT
"""Ranks on this machine for programs without a launcher: threads of this process, or processes."""

from __future__ import annotations

import multiprocessing
import pickle
import threading
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.reduction import ForkingPickler
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

from rocpy._integers import integer_of
from rocpy.errors import CollectiveTimeoutError, InvalidArgumentError, RcclSystemError, RemoteError
from rocpy.rccl import Communicator, UniqueId
from rocpy.rccl.model.arguments import check_seconds
from rocpy.rccl.model.failures import raise_first
from rocpy.runtime.device import Device

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

__all__ = ["run_processes", "run_threads"]


def run_threads(function: Callable[..., Any], nranks: int, *arguments: Any, timeout_s: float = 30.0) -> list[Any]:
    """Call a function in one thread per rank, with a communicator of all of them, on the device of the rank's number.

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
    count = _count_of(nranks, timeout_s)
    ident = UniqueId.make()
    results: list[Any] = [None] * count
    failures: list[_Failure] = []

    def run(rank: int) -> None:
        try:
            with Communicator.init(count, rank, ident, device=rank, timeout_s=timeout_s) as comm, Device(rank):
                results[rank] = function(comm, *arguments)
        except BaseException as error:  # noqa: BLE001  (raised on the caller's thread)
            failures.append(_Failure(monotonic(), error))

    threads = [threading.Thread(target=run, args=(rank,), name=f"rank {rank}") for rank in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    _raise_cause(failures)
    return results


def run_processes(function: Callable[..., Any], nranks: int, *arguments: Any, timeout_s: float = 30.0) -> list[Any]:
    """Call a function in one process per rank, with a communicator of all of them, on the device of the rank's number.

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
        A process exited without returning a result, or its result or exception cannot be pickled.
    InvalidArgumentError
        The function or an argument cannot be pickled.
    """
    context = multiprocessing.get_context("spawn")
    count = _count_of(nranks, timeout_s)
    ident = bytes(UniqueId.make())
    pipes: list[Connection] = []
    processes: list[BaseProcess] = []
    try:
        for rank in range(count):
            ours, theirs = context.Pipe(duplex=False)
            pipes.append(ours)
            with theirs:
                process = context.Process(
                    target=_serve,
                    args=(function, rank, count, ident, timeout_s, arguments, theirs),
                    name=f"rank {rank}",
                )
                try:
                    process.start()
                except Exception as error:
                    _refuse_unpicklable(error, function=function, arguments=arguments)
                    raise
            processes.append(process)
        results, failures = _collect(pipes)
        for started in processes:
            started.join()
    except BaseException:  # interrupted, or a rank could not be started, for which the others would wait
        for started in processes:
            started.terminate()
        for started in processes:
            started.join()
        raise
    finally:
        for pipe in pipes:
            pipe.close()
    _raise_cause(failures)
    return results


class _Failure(NamedTuple):
    """What a rank raised, and when, on the clock of `time.monotonic`, which all processes of the machine share."""

    when: float
    error: BaseException


def _count_of(nranks: int, timeout_s: float) -> int:
    check_seconds(timeout_s)
    count = integer_of(nranks)
    if count is None or not 1 <= count < 2**31:
        raise InvalidArgumentError(f"nranks: got {nranks!r}, expected 1 or more")
    return count


def _collect(pipes: list[Connection]) -> tuple[list[Any], list[_Failure]]:
    """Return the result of each rank, and what ranks failed with."""
    results: list[Any] = []
    failures: list[_Failure] = []
    for rank, pipe in enumerate(pipes):
        try:
            is_good, answer = pipe.recv()
        except EOFError:
            is_good, answer = False, (0.0, b"", f"the process of rank {rank} exited without returning a result")
        except Exception as error:  # noqa: BLE001  (whatever a result's class does)
            is_good, answer = False, (0.0, b"", f"rank {rank}: its result cannot be unpickled: {error!r}")
        results.append(answer if is_good else None)
        failures += [] if is_good else [_Failure(answer[0], _error_of(rank, *answer[1:]))]
    return results, failures


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
        with Communicator.init(nranks, rank, ident, device=rank, timeout_s=timeout_s) as comm, Device(rank):
            answer = (True, function(comm, *arguments))
    except BaseException as error:  # noqa: BLE001  (raised in the parent)
        answer = (False, (monotonic(), *_packed(error)))
    with suppress(BrokenPipeError):  # nobody waits for it any more
        try:
            connection.send(answer)
        except BrokenPipeError:
            raise
        except Exception as error:  # noqa: BLE001  (what cannot be pickled is told as text)
            connection.send((False, (monotonic(), b"", f"rank {rank}: {answer[1]!r} cannot be sent: {error}")))


def _packed(error: BaseException) -> tuple[bytes, str]:
    """Return an exception pickled, and what it says if that cannot be undone."""
    try:
        return pickle.dumps(error), repr(error)
    except Exception:  # noqa: BLE001  (whatever its class does)
        return b"", repr(error)


def _error_of(rank: int, pickled: bytes, text: str) -> BaseException:
    """Return a rank's exception; one that cannot be pickled as text."""
    if not pickled:
        return RcclSystemError(text, rank=rank)
    try:
        error = pickle.loads(pickled)  # noqa: S301  (of a process that was started here)
    except Exception as why:  # noqa: BLE001  (whatever its class does)
        error = RcclSystemError(f"rank {rank} raised {text}, which cannot be unpickled: {why}", rank=rank)
    return error if isinstance(error, BaseException) else RcclSystemError(f"rank {rank} raised {text}", rank=rank)


def _refuse_unpicklable(error: Exception, **operands: Any) -> None:
    """Raise an error that names what a process could not be started with, if that is the cause."""
    for name, value in operands.items():
        try:
            ForkingPickler.dumps(value)
        except Exception:  # noqa: BLE001  (whatever its class does)
            raise InvalidArgumentError(
                f"{name}: cannot be pickled for another process ({error}); pass what the processes can import"
            ) from error


def _raise_cause(failures: list[_Failure]) -> None:
    """Raise the failure that caused the others, if there are any."""

    def rank_of(failure: _Failure) -> tuple[int, float]:
        # A rank that gives up fails those that wait for it, who may tell of it before it does.
        kinds = (RemoteError, CollectiveTimeoutError)
        return next((2 - kinds.index(kind) for kind in kinds if isinstance(failure.error, kind)), 0), failure.when

    errors = [failure.error for failure in sorted(failures, key=rank_of)]
    failures.clear()
    raise_first(errors)
