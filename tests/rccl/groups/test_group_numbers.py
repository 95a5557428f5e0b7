# SPDX-License-Identifier: MIT
"""Numbers of calls in errors and traces: those of the ranks, whatever became of groups."""

import numpy as np
import pytest
from one_thread import ranks_of_this_thread

import rocpy
from rocpy import rccl

X = np.ones(4)


@pytest.fixture
def comms():
    with ranks_of_this_thread(2, timeout_s=0.05) as made:
        yield made


def reduce_on(comms):
    with rccl.group():
        return [comm.all_reduce(X, block=False) for comm in comms]


def drop_group(comm):
    def calls():
        with rccl.group():
            comm.all_reduce(X)
            comm.send(X, 1)
            raise KeyError

    with pytest.raises(KeyError):
        calls()


def drop_inner_group(comm):
    with rccl.group():
        drop_group(comm)


def refuse_group(comm):
    """RCCL does not capture."""

    def calls(stream):
        with rccl.group():
            comm.all_reduce(X)
            comm.all_reduce(X, stream=stream)

    with rocpy.Stream(nonblocking=True) as stream, stream.capture(), pytest.raises(rccl.InvalidUsageError):
        calls(stream)


def refuse_call(comm):
    with rocpy.Stream(nonblocking=True) as stream, stream.capture(), pytest.raises(rccl.InvalidUsageError):
        comm.all_reduce(X, stream=stream)


def refuse_before(comm):
    """RCCL itself does not look at the stream."""
    with pytest.raises(rccl.InvalidUsageError):
        comm.send(X, comm.rank)


def refuse_parts(comm):
    """What takes no stream."""
    with pytest.raises(rccl.InvalidArgumentError):
        comm.split(0, config={"min_ctas": -5})
    if rocpy.platform.missing()["rccl"]:
        return  # an older release's has no more of it
    with pytest.raises(rccl.InvalidUsageError):
        comm.grow(999, comm.growth_id())
    with pytest.raises(rccl.InvalidArgumentError):
        comm.window(comm.empty(0, window=True))


def refuse_parts_of_a_group(comm):
    """Those that were begun before the one that is refused."""

    def calls(other):
        with rccl.group():
            comm.split(0)
            other.split(0, config={"min_ctas": -5})

    with rccl.Communicator.init(1, 0, rccl.UniqueId.make()) as other, pytest.raises(rccl.InvalidArgumentError):
        calls(other)


@pytest.mark.parametrize(
    "interlude",
    [drop_group, drop_inner_group, refuse_group, refuse_call, refuse_before, refuse_parts, refuse_parts_of_a_group],
)
def test_calls_that_were_not_launched_have_no_number(comms, interlude):
    interlude(comms[0])
    works = reduce_on(comms)
    interlude(comms[0])
    assert [work.wait(5).tolist() for work in works] == [[2.0] * 4] * 2
    late = comms[0].all_reduce(X, block=False)
    with pytest.raises(rccl.CollectiveTimeoutError, match="rank 0: all_reduce number 2 .*finished all_reduce number 1"):
        late.wait()
    trace = comms[0].trace()
    assert [(call["seq"], call["op"]) for call in trace] == [(1, "all_reduce"), (2, "all_reduce")]
    assert [(call["begin_s"] is None, call["end_s"] is None) for call in trace] == [(False, False), (False, True)]
    assert comms[0].seq == 2


def test_numbers_of_an_outer_group_leave_dropped_calls_out(comms):
    with rccl.group():
        first = comms[0].all_reduce(X, block=False)
        drop_group(comms[0])
        second = comms[0].all_reduce(X, block=False)
    assert [repr(work) for work in (first, second)] == [
        f"rocpy.rccl.Work(all_reduce number {number})" for number in (1, 2)
    ]


def test_transfers_have_numbers_of_their_own(comms):
    works = [comms[1].send(X, 0, block=False), comms[0].recv(np.zeros(4), 1, block=False)]
    works += reduce_on(comms)
    for work in works:
        work.wait(5)
    with pytest.raises(rccl.CollectiveTimeoutError, match="recv number 2 .*rank 1 last finished all_reduce number 1"):
        comms[0].recv(np.zeros(4), 1)
    assert [(call["op"], call["seq"]) for call in comms[0].trace()] == [("recv", 1), ("all_reduce", 1), ("recv", 2)]
