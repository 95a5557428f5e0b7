# SPDX-License-Identifier: MIT
"""A blocking call that was late behind other work never writes its result, and ends its communicator."""

import time
from contextlib import suppress

import numpy as np
import pytest
from one_thread import ranks_of_this_thread, require_calls

from rocpy import rccl

X = np.ones(4)


@pytest.fixture
def comms():
    with ranks_of_this_thread(2, timeout_s=5) as made:
        yield made


def begin_and_be_late(comm):
    """Return the result of a call that was late behind one that waits for rank 1."""
    y = np.zeros(4)
    comm.all_gather(X, block=False)
    begin = time.monotonic()
    with pytest.raises(
        rccl.CollectiveTimeoutError, match=r"number 2 \(behind all_gather number 1\).*rank 1 has made no"
    ):
        comm.all_reduce(X, out=y, timeout_s=0.05)
    assert time.monotonic() - begin < 0.3
    return y


def test_it_ends_the_communicator_and_writes_nothing_when_the_others_come(comms):
    y = begin_and_be_late(comms[0])
    for call in (comms[1].all_gather, comms[1].all_reduce):
        with suppress(rccl.RemoteError):  # of what rank 0 began it may have all that it needs
            call(X)
    assert not y.any()
    with pytest.raises(rccl.CollectiveTimeoutError, match="number 2 .*waiting for ranks"):  # as RCCL itself answers
        comms[0].all_reduce(X)
    comms[0].close()
    comms[0].close()


def test_parts_are_made_from_it(comms):
    require_calls("ncclCommRevoke")
    begin_and_be_late(comms[0])
    for comm in comms:
        comm.revoke()
    with pytest.raises(rccl.InvalidArgumentError, match="already been revoked"):
        comms[0].revoke()
    with rccl.group():
        parts = [comm.split(comm.rank) for comm in comms]
    assert [part.all_reduce(X).tolist() for part in parts] == [[1.0] * 4] * 2
    for part in parts:
        part.close()


def test_the_rest_is_made_from_it(comms):
    require_calls("ncclCommRevoke", "ncclCommShrink")
    begin_and_be_late(comms[0])
    with comms[0].shrink([1], abort=True) as rest:
        assert rest.all_reduce(X).tolist() == [1.0] * 4


def fail(comm):
    with pytest.raises(rccl.CollectiveTimeoutError):
        comm.all_reduce(X, timeout_s=0.02)


CALLS = {
    "premul_sum": lambda comm: comm.premul_sum(2.0),
    "register_buffer": lambda comm: comm.register_buffer(np.ones(4)),
    "window": lambda comm: comm.window(comm.empty(4, window=True)),
    "growth_id": lambda comm: comm.growth_id(),
    "suspend": lambda comm: comm.suspend(),
    "all_reduce": lambda comm: comm.all_reduce(X),
}


@pytest.mark.parametrize("end", [fail, begin_and_be_late])
@pytest.mark.parametrize("name", CALLS)
def test_later_calls_say_why_the_communicator_has_ended(comms, name, end):
    require_calls()
    end(comms[0])
    with pytest.raises(rccl.CollectiveTimeoutError, match="rank 0: all_reduce number") as late:
        CALLS[name](comms[0])
    assert (late.value.waiting_for, late.value.op, late.value.rank) == ((1,), "all_reduce", 0)


def test_a_work_may_be_waited_for_again(comms):
    work = comms[0].all_reduce(X, block=False)
    with pytest.raises(rccl.CollectiveTimeoutError):
        work.wait(timeout_s=0.02)
    comms[1].all_reduce(X)
    assert work.wait().tolist() == [2.0] * 4


@pytest.mark.parametrize("is_late", [False, True])
def test_the_other_communicator_of_a_group(comms, is_late):
    """Its call ends within its own deadline, with its result or without."""
    y = np.zeros(4)

    def calls(others):
        with rccl.group():
            comms[0].all_reduce(X, timeout_s=0.05)
            others[0].all_reduce(X, out=y, timeout_s=0.1)

    with ranks_of_this_thread(2, timeout_s=5) as others:
        work = None if is_late else others[1].all_reduce(X, block=False)
        with pytest.raises(rccl.CollectiveTimeoutError, match="0[.]05 s"):
            calls(others)
        if is_late:
            with suppress(rccl.RemoteError):
                others[1].all_reduce(X)
            assert not y.any()
        else:
            assert y.tolist() == work.wait().tolist() == [2.0] * 4
