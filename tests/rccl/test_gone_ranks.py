# SPDX-License-Identifier: MIT
"""Ranks that have given up, were revoked or closed: what others are told, and what can still be asked of them."""

import threading

import numpy as np
import pytest
import rccl_ranks
from one_thread import ranks_of_this_thread, require_calls, total_on
from rccl_ranks import DEADLINE_S, on_processes

import rocpy
from rocpy import rccl


def fail_to_receive(comm):
    with pytest.raises(rccl.CollectiveMismatchError):
        comm.recv(np.zeros(4), 0)


def revoke(comm):
    require_calls("ncclCommRevoke")
    comm.revoke()


def open_window(comm):
    require_calls("ncclCommWindowRegister")
    comm.window(comm.empty(4, window=True))


MEETINGS = {
    "all_reduce": lambda comm: comm.all_reduce(np.ones(4)),
    "split": lambda comm: comm.split(0),
    "window": open_window,
}


def errors_of(calls, leave):
    """What calls of some ranks raise, by rank, each on a thread of its own, while ``leave`` is called."""
    errors = {}

    def run(comm, call):
        try:
            call(comm)
        except rocpy.RocpyError as error:
            errors[comm.rank] = error

    threads = [threading.Thread(target=run, args=one) for one in calls]
    for thread in threads:
        thread.start()
    leave()
    for thread in threads:
        thread.join(DEADLINE_S / 2)
    assert not any(thread.is_alive() for thread in threads)
    return errors


def await_busy(comm):
    while not comm.status()["ranks"][comm.rank]["busy"]:
        pass


@pytest.mark.parametrize("end", ["abort", "revoke"])
@pytest.mark.parametrize("name", MEETINGS)
def test_a_rank_that_leaves_a_call_is_noticed_although_another_has_not_come(name, end):
    require_calls("ncclCommRevoke")
    call = MEETINGS[name]
    with ranks_of_this_thread(4, timeout_s=DEADLINE_S) as comms:

        def leave():
            await_busy(comms[2])
            getattr(comms[2], end)()

        errors = errors_of([(comm, call) for comm in comms[:3]], leave)
    assert [(type(errors[rank]), errors[rank].rank) for rank in (0, 1)] == [(rccl.RemoteError, 2)] * 2


def test_no_rank_waits_longer_for_another_than_the_first_that_gives_up():
    with ranks_of_this_thread(4, timeout_s=DEADLINE_S) as comms:

        def give_up():
            while any(comms[2].status()["ranks"][rank]["step"] == 0 for rank in (0, 1)):
                pass
            with pytest.raises(rccl.CollectiveTimeoutError, match="waiting for rank 3"):
                comms[2].all_reduce(np.ones(4), timeout_s=0.05)

        errors = errors_of([(comm, MEETINGS["all_reduce"]) for comm in comms[:2]], give_up)
    assert {type(error) for error in errors.values()} == {rccl.CollectiveTimeoutError}
    assert [errors[rank].waiting_for for rank in (0, 1)] == [(3,)] * 2


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
