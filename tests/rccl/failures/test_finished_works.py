# SPDX-License-Identifier: MIT
"""A Work whose operation has finished keeps its result, whatever the communicator comes to later."""

import time
from contextlib import suppress

import numpy as np
import pytest
from one_thread import ranks_of_this_thread, require_calls

import rocpy
from rocpy import rccl

X = np.ones(4)


@pytest.fixture
def comms():
    with ranks_of_this_thread(2, timeout_s=0.05) as ranks:
        yield ranks


def plain(comms):
    return [comm.all_reduce(X, block=False) for comm in comms]


def in_place(comms):
    return [comm.all_reduce(x, out=x, block=False) for comm, x in zip(comms, (X.copy(), X.copy()), strict=True)]


def grouped(comms):
    with rccl.group():
        return [comm.all_reduce(X, block=False) for comm in comms]


def transferred(comms):
    with rccl.group():
        sent = comms[1].send(X + 1, 0, block=False)
        return [comms[0].recv(np.zeros(4), 1, block=False), sent]


def let_finish(comms):
    """Wait until the first call of each rank has finished, but ask no Work."""
    while any(comm.trace()[0]["end_s"] is None for comm in comms):
        time.sleep(0.001)


def time_out(comms):
    with pytest.raises(rccl.CollectiveTimeoutError):
        comms[0].all_reduce(X)


def be_late_behind_others(comms):
    comms[0].all_reduce(X, block=False)
    with pytest.raises(rccl.CollectiveTimeoutError):
        comms[0].all_reduce(X)


def differ(comms):
    comms[1].all_reduce(np.ones(3), block=False)
    with pytest.raises(rccl.CollectiveMismatchError):
        comms[0].all_reduce(X)


def lose_a_rank(comms):
    comms[1].abort()
    with pytest.raises(rccl.RemoteError):
        comms[0].all_reduce(X)


def revoke(comms):
    require_calls("ncclCommRevoke")
    comms[0].revoke()


def abort(comms):
    comms[0].abort()


def close(comms):
    with rccl.group():
        for comm in comms:
            comm.close()


@pytest.mark.parametrize("end", [time_out, be_late_behind_others, differ, lose_a_rank, revoke, abort, close])
@pytest.mark.parametrize("begin", [plain, in_place, grouped, transferred])
def test_it_is_done_and_gives_its_result(comms, begin, end):
    work = begin(comms)[0]
    let_finish(comms)
    end(comms)
    assert work.done
    assert work.wait().tolist() == [2.0] * 4
    assert work.wait(timeout_s=1) is work.wait()


@pytest.mark.parametrize("end", [be_late_behind_others, lose_a_rank, abort])
def test_one_that_has_not_finished_fails_with_the_communicator(comms, end):
    out = np.zeros(4)
    work = comms[0].all_reduce(X, out=out, block=False)
    with suppress(rccl.RemoteError):  # this rank's own work may be the first to notice
        end(comms)
    for use in (lambda: work.done, work.wait):
        with pytest.raises((rccl.CollectiveTimeoutError, rccl.RemoteError, rocpy.ClosedError)):
            use()
    assert not out.any()


def test_of_a_group_whose_last_call_fails(comms):
    with rccl.group():
        first = [comm.all_reduce(X, block=False) for comm in comms]
        second = comms[0].all_reduce(X, block=False)
    let_finish(comms)
    time_out(comms)
    assert first[0].done
    assert first[0].wait().tolist() == [2.0] * 4
    with pytest.raises(rccl.CollectiveTimeoutError):
        second.wait()
