# SPDX-License-Identifier: MIT
"""Communicators created after a failure: ranks come together whatever they tried before; errors name the parent's."""

import threading
import time

import numpy as np
import pytest
from one_thread import ranks_of_this_thread, require_calls
from rccl_ranks import DEADLINE_S

import rocpy
from rocpy import rccl

SECONDS = 0.1


@pytest.fixture
def comms():
    require_calls()
    with ranks_of_this_thread(4, timeout_s=SECONDS) as created:
        yield created


def gathered(comms):
    """What the ranks of new communicators gather; they are aborted."""
    with rccl.group():
        ranks = [comm.all_gather(np.array([comm.rank])) for comm in comms]
    for comm in comms:
        comm.abort()
    return ranks[0].tolist()


def together(comms, create):
    """What one thread creates for several ranks."""
    with rccl.group():
        return [create(comm) for comm in comms]


def shrink_alone(comms):
    comms[1].shrink([2, 3], abort=True)


def shrink_behind_a_receive(comms):
    comms[1].recv(np.zeros(1), 0, block=False)
    comms[1].shrink([2, 3])


def split_alone(comms):
    for comm in comms:
        comm.revoke()
    comms[1].split(0)


def shrink_otherwise(comms):
    with rccl.group():
        comms[0].shrink([2], abort=True)
        comms[1].shrink([3], abort=True)


@pytest.mark.parametrize("attempt", [shrink_alone, shrink_behind_a_receive, split_alone, shrink_otherwise])
def test_ranks_come_together_after_attempts_of_different_number(comms, attempt):
    with pytest.raises(rccl.CollectiveTimeoutError):
        attempt(comms)
    for _ in range(2):
        assert gathered(together(comms[:2], lambda comm: comm.shrink([2, 3], abort=True))) == [0, 1]


def test_a_revoked_communicator_is_split_after_a_rank_was_late(comms):
    for comm in comms:
        comm.revoke()
    with pytest.raises(rccl.CollectiveTimeoutError) as late:
        together(comms[:2], lambda comm: comm.split(0))
    assert (late.value.op, late.value.rank, late.value.waiting_for) == ("split", 0, (2, 3))
    with pytest.raises(rccl.CollectiveTimeoutError, match="rank 0 has not called split") as alone:
        comms[3].split(None)  # without a communicator of its own, too
    assert (alone.value.rank, alone.value.waiting_for) == (3, (0, 1, 2))
    assert gathered(together(comms, lambda comm: comm.split(0, key=-comm.rank))) == [0, 1, 2, 3]


@pytest.mark.parametrize("abort", [True, False])
def test_shrink_names_ranks_by_the_parents_numbers(comms, abort):
    with pytest.raises(rccl.CollectiveTimeoutError, match="rank 3 has not called shrink") as late:
        together(comms[1:3], lambda comm: comm.shrink([0], abort=abort))
    assert (late.value.op, late.value.rank, late.value.waiting_for) == ("shrink", 1, (3,))


@pytest.mark.parametrize("end", ["abort", "close"])
def test_shrink_does_not_wait_for_a_rank_that_has_left(comms, end):
    for comm in comms[1:]:
        comm.revoke()  # of which rank 3 then has its end all the same
    getattr(comms[3], end)()
    with pytest.raises(rccl.RemoteError, match="rank 3 has left") as gone:
        together(comms[1:3], lambda comm: comm.shrink([0], timeout_s=DEADLINE_S))
    assert gone.value.rank == 3
    assert gathered(together(comms[1:3], lambda comm: comm.shrink([0, 3]))) == [0, 1]


def test_no_rank_waits_for_itself(comms):
    """One that comes just when the others give up begins the next attempt with them."""
    named = []

    def body(comm):
        end = time.monotonic() + 0.25
        while time.monotonic() < end:
            try:
                comm.shrink([3], abort=True, timeout_s=0.001 * (1 + comm.rank)).abort()
            except rccl.CollectiveTimeoutError as error:
                named.append((comm.rank, error.waiting_for))
            except rccl.RemoteError as error:
                named.append((comm.rank, (error.rank,)))

    threads = [threading.Thread(target=body, args=(comm,)) for comm in comms[:3]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [(rank, ranks) for rank, ranks in named if rank in ranks] == []


def test_other_excluded_ranks_are_named(comms):
    with pytest.raises(rccl.CollectiveTimeoutError, match="rank 1 calls shrink without ranks 2, 3"):
        together(comms[:2], lambda comm: comm.shrink([3] if comm.rank == 0 else [2, 3]))


def revoked_split(comm):
    comm.revoke()
    comm.split(0, timeout_s=DEADLINE_S)


WAITS = {
    "shrink": lambda comm: comm.shrink([1], timeout_s=DEADLINE_S),
    "grow": lambda comm: comm.grow(2, comm.growth_id(), timeout_s=DEADLINE_S),
    "split": revoked_split,
}


@pytest.mark.parametrize(
    ("name", "end"), [*((name, "abort") for name in WAITS), ("shrink", "revoke"), ("grow", "revoke")]
)
def test_the_parents_end_is_heard(comms, name, end):
    with rccl.Communicator.init(1, 0, rccl.UniqueId.make()) as alone:
        comm = alone if name == "grow" else comms[0]
        timer = threading.Timer(0.05, getattr(comm, end))
        timer.start()
        start = time.monotonic()
        with pytest.raises(rocpy.ClosedError if end == "abort" else rccl.InvalidUsageError):
            WAITS[name](comm)
        timer.join()
        assert time.monotonic() - start < DEADLINE_S / 2


@pytest.mark.parametrize("name", ["suspend", "shrink", "split"])
def test_what_fails_behind_work_that_failed(comms, name):
    comm = comms[0]
    comm.timeout_s = DEADLINE_S
    comm.recv(np.zeros(1), 1, block=False)
    timer = threading.Timer(0.05, comms[1].abort)
    timer.start()
    with pytest.raises(rccl.RemoteError, match="rank 1 aborted the communicator") as gone:
        {"suspend": comm.suspend, "shrink": lambda: comm.shrink([1]), "split": lambda: comm.split(0)}[name]()
    timer.join()
    assert gone.value.rank == 1
    assert comm.memory_stats()["suspended"] == 0
