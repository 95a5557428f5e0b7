# SPDX-License-Identifier: MIT
"""Ranks that have given up, were revoked or closed: what others are told, and what can still be asked of them."""

import numpy as np
import pytest
import rccl_ranks
from one_thread import require_calls, total_on
from rccl_ranks import on_processes

import rocpy
from rocpy import rccl


def fail_to_receive(comm):
    with pytest.raises(rccl.CollectiveMismatchError):
        comm.recv(np.zeros(4), 0)


def revoke(comm):
    require_calls("ncclCommRevoke")
    comm.revoke()


GONE = {"failed": fail_to_receive, "aborted": lambda comm: comm.abort(), "revoked": revoke}


@pytest.mark.parametrize("how", GONE)
@pytest.mark.parametrize("count", [1, 100000])
def test_a_rank_that_is_gone_is_sent_nothing(comms, how, count):
    comms[0].send(np.ones(3), 1)
    GONE[how](comms[1])
    with pytest.raises(rccl.RemoteError, match=f"rank 1 {how}") as gone:
        comms[0].send(np.ones(count), 1)
    assert gone.value.rank == 1


@pytest.mark.parametrize("how", GONE)
def test_a_rank_that_is_gone_is_not_signalled(comms, how):
    require_calls("ncclSignal")
    comms[0].send(np.ones(3), 1)
    GONE[how](comms[1])
    with pytest.raises(rccl.RemoteError, match=f"rank 1 {how}"):
        comms[0].signal(1)


def test_a_killed_rank_is_sent_nothing():
    assert on_processes(2, rccl_ranks.sends_to_a_killed_rank)[0] == ("RemoteError", 1)


def test_a_revoked_rank_is_no_aborted_one(comms):
    require_calls("ncclCommRevoke")
    total_on(comms)
    comms[0].revoke()
    assert comms[0].status()["state"] == "revoked"
    with pytest.raises(rccl.RemoteError, match="rank 0 revoked the communicator"):
        comms[1].all_reduce(np.ones(1))
    assert [row["state"] for row in comms[1].status()["ranks"]] == ["revoked", "failed"]


def seen(comm):
    return comm.trace(), comm.status()


@pytest.mark.parametrize("end", ["close", "finalize", "abort", "with"])
def test_a_closed_communicator_says_what_it_did(end):
    comm = rccl.Communicator.init(1, 0, rccl.UniqueId.make(), name="one")
    if end == "with":
        with comm:
            comm.all_reduce(np.ones(3))
            before = seen(comm)
    else:
        comm.all_reduce(np.ones(3))
        before = seen(comm)
        getattr(comm, end)()
    trace, status = seen(comm)
    drop = {"age_s"}
    assert [{key: call[key] for key in call.keys() - drop} for call in trace] == [
        {key: call[key] for key in call.keys() - drop} for call in before[0]
    ]
    assert status.keys() == before[1].keys()
    assert status["name"] == "one"
    assert [row["calls"] for row in status["ranks"]] == [{"all_reduce": 1}] * ("ranks" in before[1])
    assert status["state"] == ("aborted" if end == "abort" else "finalized")


def test_what_ended_a_communicator_is_known_after_its_end(comms):
    with pytest.raises(rccl.CollectiveTimeoutError):
        comms[0].all_reduce(np.ones(1))
    comms[0].abort()
    assert comms[0].status()["failure"]["kind"] == "timeout"


@pytest.mark.parametrize("make", [lambda: np.ones(2), lambda: rocpy.Buffer(2, "float64")])
def test_a_work_has_the_deadline_of_its_call(make):
    comms = rccl.Communicator.init_all(2, timeout_s=1e6)
    work = comms[0].all_reduce(make(), block=False, timeout_s=0.125)
    with pytest.raises(rccl.CollectiveTimeoutError, match=r"within 0\.125 s"):
        work.wait()
    with pytest.raises(rccl.CollectiveTimeoutError, match=r"within 0\.0625 s"):
        work.wait(0.0625)
    for comm in comms:
        comm.abort()
