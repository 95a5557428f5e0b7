# SPDX-License-Identifier: MIT
"""What ranks do in tests of windows, registered memory and calls with counts: bodies that a process can import."""

import importlib.util
import pathlib
import time

import numpy as np

import rocpy
from rocpy import rccl

EXAMPLE = pathlib.Path(__file__).resolve().parents[3] / "examples" / "one_shot_all_reduce.py"


def one_shot(comm):
    """The example's all-reduce; gives its largest difference from RCCL's."""
    spec = importlib.util.spec_from_file_location("one_shot_all_reduce", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.work(comm)


def windows(comm):
    """Peers' memory, of unequal sizes and beyond the communicator's end; puts and signals around a ring."""
    rank, n = comm.rank, comm.nranks
    win = comm.window(comm.empty((2, 3 + (rank == 1)), "float32", window=True))
    mine = np.asarray(win.array)
    mine[:] = rank
    comm.barrier()
    last = np.asarray(win.peer(n - 1))
    seen = [np.asarray(win.peer(r)) for r in range(n)]
    assert [part.size for part in seen] == [8 if r == 1 else 6 for r in range(n)]
    assert all((part == r).all() for r, part in enumerate(seen))
    assert win.peer(rank).shape == mine.shape
    comm.barrier()
    following, previous = (rank + 1) % n, (rank - 1) % n
    comm.put_signal(mine.reshape(-1)[:2], following, win, 4)
    comm.signal(following)
    comm.wait_signal({previous: 2})
    assert (mine.reshape(-1)[4:6] == previous).all()
    assert (mine.reshape(-1)[:4] == rank).all()
    comm.barrier()
    win.close()
    assert win.is_closed
    try:
        win.peer(0)
    except rocpy.ClosedError:
        pass
    else:
        raise AssertionError("a closed window was used")
    arrived = last.reshape(-1)[4:6].tolist() == [n - 2] * 2
    comm.close()
    # The owner may have freed it: it can be read still.
    return arrived and last.sum() >= 0


def waits_in_vain(comm):
    """Rank 0 waits for a signal that rank 1 does not send; gives whom the error names."""
    comm.barrier()
    if comm.rank == 0:
        try:
            comm.wait_signal([1], timeout_s=0.3)
        except rccl.CollectiveTimeoutError as error:
            comm.abort()
            return error.waiting_for
    else:
        time.sleep(1.0)
    comm.abort()
    return None


def registered(comm):
    """Large collectives on registered memory; gives the names of those that are wrong."""
    n, rank, count = comm.nranks, comm.rank, 30_011
    x = comm.empty(n * count, "int32")
    out = comm.empty(n * count, "int32")
    wanted = [np.arange(n * count, dtype=np.int32) * (r + 1) for r in range(n)]
    here, there = np.asarray(x), np.asarray(out)
    wrong = []

    def check(name, expected):
        if not (there[: expected.size] == expected).all():
            wrong.append(name)
        there[:] = -1

    part = slice(rank * count, (rank + 1) * count)
    for turn in range(2):
        here[:] = wanted[rank]
        comm.all_reduce(x, out=out)
        check(f"all_reduce {turn}", sum(wanted))
        comm.all_reduce(x, out=x)
        if not (here == sum(wanted)).all():
            wrong.append(f"in place {turn}")
        here[:] = wanted[rank]
        comm.reduce_scatter(x, out=there[:count])
        check(f"reduce_scatter {turn}", sum(wanted)[part])
        comm.broadcast(x, root=1, out=out)
        check(f"broadcast {turn}", wanted[1])
        comm.all_gather(here[:count], out=out)
        check(f"all_gather {turn}", np.concatenate([w[:count] for w in wanted]))
        comm.all_to_all(x, out=out)
        check(f"all_to_all {turn}", np.concatenate([w[part] for w in wanted]))
        comm.reduce(x, root=0, out=out if rank == 0 else None)
        check(f"reduce {turn}", sum(wanted) if rank == 0 else np.full(3, -1))
    # One rank's operand is other memory: all of them go the long way.
    comm.all_reduce(np.asarray(x).copy() if rank == 0 else x, out=out)
    check("mixed", sum(wanted))
    # Memory that is given back is not used again by mistake.
    del x, here
    again = comm.empty(n * count, "int32")
    np.asarray(again)[:] = wanted[rank]
    comm.all_reduce(again, out=out)
    check("after freeing", sum(wanted))
    return wrong


def trades(comm):
    """Rows with counts that differ, said and asked for."""
    n, rank = comm.nranks, comm.rank
    sends = [(rank + r) % 3 for r in range(n)]
    x = np.array([[100 * rank + r, i] for r in range(n) for i in range(sends[r])], np.int64).reshape(-1, 2)
    expected = [[100 * r + rank, i] for r in range(n) for i in range((r + rank) % 3)]
    asked = comm.all_to_all_v(x, sends)
    said = comm.all_to_all_v(x, sends, [(r + rank) % 3 for r in range(n)], out=np.zeros((len(expected), 2), np.int64))
    return asked.tolist() == expected and said.tolist() == expected


def trades_wrongly(comm):
    """Rank 1 takes fewer rows than rank 0 sends; gives what each is told."""
    takes = [1] * comm.nranks
    if comm.rank == 1:
        takes[0] = 0
    try:
        comm.all_to_all_v(np.zeros(comm.nranks), [1] * comm.nranks, takes)
    except rccl.CollectiveMismatchError as error:
        return str(error).split(": ", 2)[-1]
    finally:
        comm.abort()


def trades_rows_of_another_length(comm):
    """Rank 0 has rows of one element, rank 1 half as many of two; gives what each is told."""
    x, rows = (np.zeros((4, 1)), [2, 2]) if comm.rank == 0 else (np.zeros((2, 2)), [1, 1])
    try:
        comm.all_to_all_v(x, rows, rows)
    except rccl.CollectiveMismatchError as error:
        return error.signatures
    finally:
        comm.abort()


class CountedTransfer:
    """Rank 0 sends some elements, rank 1 receives one more; gives where rank 0 fails, and what rank 1 is told.

    Parameters
    ----------
    count
        How many.
    """

    def __init__(self, count):
        self.count = count

    def __call__(self, comm):
        if comm.rank == 1:
            try:
                comm.recv(np.zeros(self.count + 1), 0)
            except rccl.CollectiveMismatchError as error:
                return error.signatures
            finally:
                comm.abort()
        where = "in"
        try:
            comm.send(np.zeros(self.count), 1)
            where = "after"
            comm.barrier()
        except rccl.RemoteError:
            return f"RemoteError {where} send"
        finally:
            comm.abort()
