# SPDX-License-Identifier: MIT
"""Late, killed, stopped, raising and disagreeing ranks, threads and processes: the right error in time on each rank."""

import threading
import time

import numpy as np
import pytest
import rccl_ranks
from rccl_ranks import good, on_processes, on_threads

import rocpy
from rocpy import rccl


def run(kind, nranks, body, **settings):
    """Run a body on ranks of either kind."""
    return (on_threads if kind == "threads" else on_processes)(nranks, body, **settings)


KINDS = pytest.mark.parametrize("kind", ["threads", "processes"])


@KINDS
def test_collectives(kind):
    assert good(run(kind, 3, rccl_ranks.sums)) == [([], 2), ([], 0), ([], 1)]


@KINDS
def test_late_rank(kind):
    found = good(run(kind, 3, rccl_ranks.one_is_late))
    assert found[0] == ("CollectiveTimeoutError", (1,), "all_reduce", 2)
    assert found[2][0] in ("CollectiveTimeoutError", "RemoteError")
    # Who comes late finds that the others have gone.
    assert found[1] is None or found[1][0] == "RemoteError"


@KINDS
def test_disagreeing_rank(kind):
    found = good(run(kind, 3, rccl_ranks.one_disagrees))
    assert len(set(found)) == 1
    assert [text.split("count=")[1].split(",")[0] for text in found[0]] == ["4", "5", "4"]


@KINDS
def test_raising_rank(kind):
    found = good(run(kind, 3, rccl_ranks.one_raises))
    assert found[1] == ("KeyError", None)
    # A rank that was told leaves too, and may be the one that the last hears of.
    assert {found[0][0], found[2][0]} == {"RemoteError"}
    assert 1 in (found[0][1], found[2][1])


@KINDS
def test_rank_that_does_not_finalize(kind):
    assert good(run(kind, 2, rccl_ranks.one_does_not_finalize))[0] == (1,)


def test_killed_rank():
    found = on_processes(3, rccl_ranks.one_is_killed)
    assert found[1] is None
    for rank, waited in (found[0], found[2]):
        assert rank == 1
        assert waited < 10  # a second, on a machine that does nothing else


def test_stopped_rank():
    found = on_processes(2, rccl_ranks.one_is_stopped)
    assert "waiting for rank 1" in found[0]
    assert "is stopped" in found[0]


def test_absent_rank_at_init():
    found = on_processes(3, rccl_ranks.sums, timeout_s=2.0, absent=(1,))
    errors = [found[0], found[2]]
    assert any(isinstance(error, rccl.CollectiveTimeoutError) and error.waiting_for == (1,) for error in errors)
    assert all(isinstance(error, rccl.RcclError) for error in errors)


def test_a_timeout_ends_a_queued_operation(monkeypatch):
    def body(comm):
        if comm.rank == 1:
            time.sleep(0.6)
            comm.abort()
            return None
        with rocpy.Stream(comm.device_index) as stream, pytest.raises(rccl.CollectiveTimeoutError) as late:
            comm.all_reduce(np.ones(3), stream=stream, timeout_s=0.2)
        comm.abort()
        return late.value.waiting_for

    assert good(on_threads(2, body))[0] == (1,)


def test_ranks_that_fail_at_once_read_their_own_texts():
    count, rounds = 6, 60
    barrier = threading.Barrier(count)
    mistakes = {
        0: (rccl.InvalidUsageError, "is not suspended", lambda comm: comm.resume()),
        1: (rccl.InvalidUsageError, "suspended: resume it first", lambda comm: comm.barrier()),
        2: (rccl.InvalidArgumentError, "ncclGetUniqueId", lambda _: rccl.Communicator.init(1, 0, bytes(128))),
    }

    def body(comm):
        kind, said, call = mistakes[comm.rank % 3]
        if comm.rank % 3 == 1:
            comm.suspend()
        texts = set()
        for _ in range(rounds):
            barrier.wait(60)
            with pytest.raises(kind) as refused:
                call(comm)
            texts |= {str(refused.value), rccl.last_error()}
        if comm.rank % 3 == 1:
            comm.resume()
        return [text for text in texts if said not in text]

    assert good(on_threads(count, body)) == [[]] * count
