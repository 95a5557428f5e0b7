# SPDX-License-Identifier: MIT
"""What is closed in a group remains open until its calls have been launched, also what the group creates."""

import os
import signal
import threading

import numpy as np
import pytest
from one_thread import require_calls

import rocpy
from rocpy import rccl
from rocpy.compat import nccl

X = np.ones(4, np.float32)


@pytest.fixture
def comm():
    with rccl.Communicator.init(1, 0, rccl.UniqueId.make(), timeout_s=5) as made:
        yield made


def window_memory(comm):
    require_calls()
    return comm.empty(4, window=True)


@pytest.mark.parametrize("raises", [False, True])
def test_an_operator(comm, raises):
    op, y = comm.premul_sum(2.0), np.zeros_like(X)
    try:
        with rccl.group():
            comm.all_reduce(X, op=op, out=y)
            op.close()
            other = comm.premul_sum(3.0)
            if raises:
                raise KeyError
    except KeyError:
        assert comm.all_reduce(X, op=op).tolist() == [2.0] * 4
    else:
        assert y.tolist() == [2.0] * 4
        with pytest.raises(rocpy.ClosedError, match="PreMulSum has been closed"):
            comm.all_reduce(X, op=op)
    assert comm.all_reduce(X, op=other).tolist() == [3.0] * 4


def test_an_operator_and_a_communicator_of_nccl4py():
    comm, y = nccl.Communicator.init(1, 0, nccl.get_unique_id()), np.zeros_like(X)
    with nccl.group():
        op = comm.create_pre_mul_sum(np.array(2.0, np.float32), nccl.FLOAT32)
        comm.allreduce(X, y, op)
        op.close()
        comm.create_pre_mul_sum(np.array(3.0, np.float32), nccl.FLOAT32)
        comm.destroy()
    assert y.tolist() == [2.0] * 4
    assert not comm.is_valid


def test_a_window_of_the_groups_calls(comm):
    source, target = (comm.window(window_memory(comm)) for _ in range(2))
    source.array.copy_from(X)
    with rccl.group():
        comm.put_signal(source.array, 0, target)
        comm.wait_signal(0)
        target.close()
        assert not target.is_closed
    assert target.array.to_numpy().tolist() == X.tolist()
    assert target.is_closed


def test_a_registration(comm):
    registration = comm.register_buffer(window_memory(comm))
    with rccl.group():
        registration.close()
        assert registration.number
    assert not registration.number


def with_block(one):
    with one:
        return one


def closed(one):
    (one.destroy if isinstance(one, nccl.Communicator) else one.close)()
    return one


def aborted(one):
    one.abort()
    return one


def closed_and_aborted(one):
    return aborted(closed(one))


CREATE = {
    "split": lambda comm: comm.split(0),
    "init": lambda comm: rccl.Communicator.init(1, 0, rccl.UniqueId.make(), device=1),
    "compat": lambda comm: nccl.Communicator(comm).split(0, 0),
}
ENDS = [closed, aborted, closed_and_aborted]


@pytest.mark.parametrize(
    ("create", "end"),
    [(create, end) for create in CREATE for end in ENDS] + [("split", with_block), ("init", with_block)],
)
def test_a_communicator_that_the_group_creates(comm, create, end):
    with rccl.group():
        one = end(CREATE[create](comm))
    if isinstance(one, nccl.Communicator):
        one = one._own
    assert one.is_closed
    assert one.is_aborted is (end in (aborted, closed_and_aborted))
    assert comm.all_reduce(X).tolist() == X.tolist()


@pytest.mark.parametrize("end", [with_block, closed])
def test_a_window_that_the_group_creates(comm, end):
    memory = window_memory(comm)
    with rccl.group():
        window = end(comm.window(memory))
        with pytest.raises(rocpy.ClosedError, match="does not exist until its group ends"):
            window.peer(0)
    assert window.is_closed
    with pytest.raises(rocpy.ClosedError, match="has been closed"):
        window.peer(0)


def test_its_communicator_is_closed_after_it(comm):
    with comm.split(0) as part:
        window = part.window(window_memory(part))
        with rccl.group():
            part.close()
            window.close()
        assert part.is_closed
        assert window.is_closed


def create_with_an_absent_rank(comms):
    return rccl.Communicator.init(2, 0, rccl.UniqueId.make(), device=2, timeout_s=0.05)


def call_without_a_rank(comms):
    comms[0].all_reduce(X, timeout_s=0.05)


def refused_by_rccl(comms):
    """A call on a stream that captures a graph."""
    comms[0].all_reduce(X, stream=comms[2])


def interrupted(comms):
    """A call that waits until Ctrl-C."""
    comms[0].all_reduce(X)
    threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()


@pytest.mark.parametrize("fail", [create_with_an_absent_rank, call_without_a_rank, refused_by_rccl, interrupted])
def test_what_is_closed_is_closed_although_the_end_fails(comm, fail):
    op, window = comm.premul_sum(2.0), comm.window(window_memory(comm))
    registration = comm.register_buffer(window_memory(comm))
    comms = rccl.Communicator.init_all(2, timeout_s=5 if fail is interrupted else 0.1)
    error, match = (KeyboardInterrupt, None) if fail is interrupted else (rccl.RcclError, "timeout after|not capture")
    ended = []

    def end(stream):
        with rccl.group(), comms[0]:
            one = fail([*comms, stream])
            if one is not None:
                comms.append(closed(one))
            for part in (op, registration, window, comm):
                part.close()
            ended.append(True)

    with rocpy.Stream(0, nonblocking=True) as stream, stream.capture(), pytest.raises(error, match=match):
        end(stream)
    assert ended
    assert window.is_closed
    assert not registration.number
    with pytest.raises(rocpy.ClosedError):
        _ = op.handle
    for one in (comm, comms[0], *comms[2:]):
        assert one.is_closed
    comms[1].abort()
