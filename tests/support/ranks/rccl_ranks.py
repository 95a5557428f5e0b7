# SPDX-License-Identifier: MIT
"""Ranks for tests of collectives: threads of this process, and processes with bodies that they can import."""

import multiprocessing
import os
import pathlib
import signal
import time
import traceback

import numpy as np
from rank_threads import on_rank_threads

DEADLINE_S = 60.0


def on_threads(nranks, body, *, timeout_s=20.0):
    """Run body(comm) on a thread for each rank; give what each returned or raised."""
    from rocpy import rccl

    ident = rccl.UniqueId.make()
    return on_rank_threads(nranks, lambda rank: _answer(body, rank, nranks, ident, timeout_s), DEADLINE_S)


def _answer(body, rank, nranks, ident, timeout_s):
    """What body(comm) returns on a rank of a new communicator, which is closed, or aborted where it raises."""
    from rocpy import rccl

    comm = rccl.Communicator.init(nranks, rank, ident, device=rank, timeout_s=timeout_s)
    try:
        answer = body(comm)
    except BaseException:
        comm.abort()
        raise
    comm.close()
    return answer


def good(results):
    """The results, once none of them is an exception; else the exception that the others came of."""
    from rocpy.errors import RemoteError

    errors = [result for result in results if isinstance(result, BaseException)]
    for error in sorted(errors, key=lambda error: isinstance(error, RemoteError)):
        raise error
    return results


def _process(body, rank, nranks, ident, timeout_s, connection):
    try:
        connection.send(_answer(body, rank, nranks, ident, timeout_s))
    except BaseException as error:
        try:
            connection.send(error)
        except Exception:
            connection.send(RuntimeError(traceback.format_exc()))


def process_context():
    """Processes that begin with what all of them import, from a server that has imported it once."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["numpy", "rocpy.rccl", "rccl_ranks", "rccl_bodies", "rccl_matrix"])
    return context


def on_processes(nranks, body, *, timeout_s=20.0, absent=()):
    """Run body(comm) in a process for each rank; give what each returned or raised, None for one that died."""
    from rocpy import rccl

    context = process_context()
    ident = rccl.UniqueId.make()
    pipes, processes = {}, {}
    for rank in range(nranks):
        if rank in absent:
            continue
        pipes[rank], theirs = context.Pipe(duplex=False)
        processes[rank] = context.Process(target=_process, args=(body, rank, nranks, ident, timeout_s, theirs))
        processes[rank].start()
        theirs.close()
    results = [None] * nranks
    for rank, pipe in pipes.items():
        assert pipe.poll(DEADLINE_S), f"rank {rank} hangs"
        try:
            results[rank] = pipe.recv()
        except EOFError:
            results[rank] = None
        pipe.close()
    for process in processes.values():
        process.join(DEADLINE_S)
        assert process.exitcode is not None
    return results


def await_first(comm):
    """Wait until rank 0 is in a call."""
    while not (first := comm.status()["ranks"][0])["busy"]:
        assert first["state"] == "present", first
        time.sleep(0.001)


# Bodies for processes.


def sums(comm):
    """Collectives of several sizes; gives what is wrong."""
    wrong = []
    for count in (1, 5000, 300_001):
        x = (np.arange(count) % 17 + comm.rank).astype(np.float32)
        total = sum((np.arange(count) % 17 + rank).astype(np.float32) for rank in range(comm.nranks))
        wrong += [count] if not (comm.all_reduce(x) == total).all() else []
        gathered = comm.all_gather(x).reshape(comm.nranks, -1)
        wrong += [count] if not all((row == np.arange(count) % 17 + r).all() for r, row in enumerate(gathered)) else []
    received = np.zeros(100_000, np.int32)
    from rocpy import rccl

    with rccl.group():
        comm.send(np.full(100_000, comm.rank, np.int32), (comm.rank + 1) % comm.nranks)
        comm.recv(received, (comm.rank - 1) % comm.nranks)
    return wrong, received[-1].item()


def one_is_killed(comm):
    """Rank 1 dies; gives how long the others waited, and for whom."""
    from rocpy import rccl

    comm.barrier()
    if comm.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    start = time.monotonic()
    try:
        comm.all_reduce(np.ones(4))
    except rccl.RemoteError as error:
        return error.rank, time.monotonic() - start
    finally:
        comm.abort()


def sends_to_a_killed_rank(comm):
    """Rank 1 dies, and is then sent to; gives what that comes to."""
    from rocpy import rccl

    comm.barrier()
    if comm.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    while comm.status()["ranks"][1]["process"] != "dead":
        time.sleep(0.005)
    try:
        comm.send(np.ones(3), 1)
    except rccl.RcclError as error:
        return type(error).__name__, error.rank
    finally:
        comm.abort()


def one_is_late(comm):
    """Rank 1 comes late; gives what the others are told."""
    from rocpy import rccl

    comm.barrier()
    if comm.rank == 1:
        time.sleep(1.0)
    try:
        comm.all_reduce(np.ones(4), timeout_s=0.3)
    except rccl.RcclError as error:
        return type(error).__name__, getattr(error, "waiting_for", None), error.op, error.seq
    finally:
        comm.abort()


def one_is_stopped(comm):
    """Rank 1's process is stopped; gives what rank 0 is told. Rank 0 lets it go on."""
    from rocpy import rccl

    pids = comm.all_gather(np.array([os.getpid()]))
    if comm.rank == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
        return None
    while pathlib.Path(f"/proc/{pids[1]}/stat").read_text().rsplit(")", 1)[1].split()[0] != "T":
        time.sleep(0.01)
    try:
        comm.all_reduce(np.ones(4), timeout_s=0.3)
    except rccl.CollectiveTimeoutError as error:
        return str(error)
    finally:
        comm.abort()
        os.kill(int(pids[1]), signal.SIGCONT)


def one_disagrees(comm):
    """Rank 1 calls with another count; gives what each is told."""
    from rocpy import rccl

    try:
        comm.all_reduce(np.ones(5 if comm.rank == 1 else 4))
    except rccl.CollectiveMismatchError as error:
        return error.signatures
    finally:
        comm.abort()


def one_raises(comm):
    """Rank 1 leaves its block by an exception; gives what the others are told."""
    from rocpy import rccl

    try:
        with comm:
            if comm.rank == 1:
                raise KeyError
            comm.all_reduce(np.ones(4))
    except (KeyError, rccl.RemoteError) as error:
        return type(error).__name__, getattr(error, "rank", None)
    finally:
        comm.abort()


def one_does_not_finalize(comm):
    """Rank 1 does not finalize; gives what rank 0 is told."""
    from rocpy import rccl

    if comm.rank == 1:
        time.sleep(1.0)
        comm.abort()
        return None
    try:
        comm.finalize(timeout_s=0.3)
    except rccl.CollectiveTimeoutError as error:
        return error.waiting_for
