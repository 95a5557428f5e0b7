# SPDX-License-Identifier: MIT
"""Calls behind work that does not end: each has a deadline, names the rank that is missing, and hears Ctrl-C."""

import _thread
import gc
import threading
import time
import weakref

import numpy as np
import pytest
from one_thread import ranks_of_this_thread, require_calls
from rccl_ranks import DEADLINE_S, good, on_threads, process_context

import rocpy
from rocpy import rccl
from rocpy.runtime.handles.keep_alive import held_count

SECONDS = 0.15


@pytest.fixture
def comms():
    """Two ranks of this thread, of which the second does nothing."""
    with ranks_of_this_thread(2, timeout_s=SECONDS) as made:
        yield made


def all_reduce(comm):
    comm.all_reduce(np.ones(4), block=False)


def recv(comm):
    comm.recv(np.ones(4), 1, block=False)


PENDING = pytest.mark.parametrize("begin", [all_reduce, recv])
CALLS = {
    "split": lambda comm: comm.split(0),
    "shrink": lambda comm: comm.shrink([1]),
    "window": lambda comm: comm.window(comm.empty(4, window=True)),
    "suspend": lambda comm: comm.suspend(),
    "grow": lambda comm: comm.grow(3, comm.growth_id()),
}


@PENDING
@pytest.mark.parametrize("name", CALLS)
def test_calls_that_need_all_earlier_work(comms, begin, name):
    require_calls()
    begin(comms[0])
    with pytest.raises(rccl.CollectiveTimeoutError, match=f"behind {begin.__name__} number 1.*rank 1 has made") as late:
        CALLS[name](comms[0])
    assert (late.value.waiting_for, late.value.op, late.value.rank) == ((1,), name, 0)


@pytest.mark.parametrize("name", sorted(CALLS.keys() - {"shrink"}))  # whose result needs no more of it
def test_calls_that_are_aborted_meanwhile(comms, name):
    require_calls()
    comms[0].timeout_s = DEADLINE_S
    all_reduce(comms[0])
    timer = threading.Timer(0.05, comms[0].abort)
    timer.start()
    with pytest.raises(rocpy.ClosedError):
        CALLS[name](comms[0])
    timer.join()


@PENDING
def test_shrink_aborts_what_runs(comms, begin):
    require_calls("ncclCommShrink")
    begin(comms[0])
    with comms[0].shrink([1], abort=True) as alone:
        assert alone.all_reduce(np.ones(1)).tolist() == [1.0]


@PENDING
def test_memory_is_freed_when_the_work_has_ended(comms, begin):
    memory = comms[0].empty(4, window=True)
    begin(comms[0])
    memory.close()
    del memory  # which waits for nobody
    held = held_count()
    assert held > 0
    for comm in comms:
        comm.abort()
    limit = time.monotonic() + DEADLINE_S
    while held_count() != 0:
        assert time.monotonic() < limit
        gc.collect()


@pytest.mark.parametrize(
    "call",
    [
        lambda comm, work: work.wait(timeout_s=SECONDS),
        lambda comm, work: comm.barrier(),
        lambda comm, work: comm.all_reduce(np.ones(2)),
        lambda comm, work: comm.all_to_all_v(np.ones(2), [1, 1], [1, 1]),
    ],
)
def test_a_call_behind_a_receive_names_the_sender(comms, call):
    with pytest.raises(rccl.CollectiveTimeoutError, match="rank 1 has made no call yet") as late:
        call(comms[0], comms[0].recv(np.ones(5), 1, block=False))
    assert late.value.waiting_for == (1,)


def is_done_soon(work):
    limit = time.monotonic() + DEADLINE_S
    while not work.done and time.monotonic() < limit:
        time.sleep(0.001)
    return work.done


def test_work_is_done_while_a_later_call_waits(comms):
    works = [comm.all_reduce(np.ones(2), block=False) for comm in comms]
    comms[0].all_gather(np.ones(2), block=False)  # rank 1 is late
    assert all(is_done_soon(work) for work in works)
    assert [work.wait(timeout_s=SECONDS).tolist() for work in works] == [[2.0] * 2] * 2


def test_work_is_done_while_another_communicator_of_its_stream_waits(comms):
    works = [comm.all_reduce(np.ones(2), block=False) for comm in comms]
    with ranks_of_this_thread(2, timeout_s=SECONDS) as others:
        all_reduce(others[0])
        assert is_done_soon(works[0])
        assert works[0].wait(timeout_s=SECONDS).tolist() == [2.0] * 2


def test_receives_are_waited_for_one_by_one(comms):
    """The second is sent when the first is there."""
    first, second = (comms[0].recv(np.zeros(2), 1, block=False) for _ in range(2))
    comms[1].send(np.ones(2), 0, block=False)
    assert first.wait(timeout_s=DEADLINE_S).tolist() == [1.0, 1.0]
    assert not second.done
    comms[1].send(np.full(2, 2.0), 0, block=False)
    assert second.wait(timeout_s=DEADLINE_S).tolist() == [2.0, 2.0]


def test_calls_of_a_group_are_done_one_by_one(comms):
    with rccl.group():
        first, second = (comms[0].all_reduce(np.ones(2), block=False) for _ in range(2))
    comms[1].all_reduce(np.ones(2), block=False)
    assert is_done_soon(first)
    assert not second.done
    comms[1].all_reduce(np.ones(2), block=False)
    assert second.wait(timeout_s=DEADLINE_S).tolist() == [2.0, 2.0]


def test_a_call_behind_one_of_another_communicator(comms):
    with rccl.group():
        parts = [comm.split(0, name="part") for comm in comms]
    recv(comms[0])
    with pytest.raises(rccl.CollectiveTimeoutError, match=r"is in recv number 1, and waits for its ranks \[1\]"):
        parts[0].all_reduce(np.ones(1))
    for one in (*comms, *parts):
        one.abort()


def interrupted(connection, name):
    """Join with a rank that does nothing, and wait behind a pending call until Ctrl-C comes."""
    import signal

    signal.signal(signal.SIGINT, signal.default_int_handler)
    comms = rccl.Communicator.init_all(3, timeout_s=DEADLINE_S)
    timer = threading.Timer(0.2, _thread.interrupt_main)
    timer.start()
    try:
        if name == "group":
            with rccl.group():
                [comm.split(0) for comm in comms[:2]]
        else:
            all_reduce(comms[0])
            comms[0].split(0)
    except KeyboardInterrupt:
        connection.send("heard")
    finally:
        for comm in comms:
            comm.abort()


@pytest.mark.parametrize("name", ["split", "group"])
def test_ctrl_c_is_heard(name):
    context = process_context()
    ours, theirs = context.Pipe()
    process = context.Process(target=interrupted, args=(theirs, name))
    process.start()
    assert ours.poll(DEADLINE_S), "Ctrl-C is not heard"
    assert ours.recv() == "heard"
    process.join(DEADLINE_S)
    assert process.exitcode == 0


def test_last_calls_include_those_without_a_stream(comms):
    with rccl.group():
        parts = [comm.split(0) for comm in comms]
    with rccl.group():
        [comm.all_reduce(np.ones(1)) for comm in comms]
    with rccl.group():
        more = [comm.split(0) for comm in comms]
    assert [(call["seq"], call["op"], call["dtype"]) for call in comms[0].trace()] == [
        (1, "split", None),
        (2, "all_reduce", comms[0].trace()[1]["dtype"]),
        (3, "split", None),
    ]
    assert "split" in comms[0].trace()._repr_html_()
    with pytest.raises(rccl.CollectiveTimeoutError, match="rank 1 last finished split number 3"):
        comms[0].all_reduce(np.ones(1))
    for one in (*parts, *more):
        one.abort()


class Operands:
    """Weak references to arrays, and how many are alive."""

    def __init__(self):
        self.references = []

    def make(self):
        array = np.ones(10000)
        self.references.append(weakref.ref(array))
        return array

    def wait_until_gone(self):
        limit = time.monotonic() + DEADLINE_S
        while time.monotonic() < limit:
            gc.collect()
            if not any(one() is not None for one in self.references):
                return True
            time.sleep(0.005)
        return False


def in_one_thread(comms, operands):
    for _ in range(50):
        with rccl.group():
            for comm in comms:
                x = operands.make()
                comm.all_reduce(x, out=x, block=False)


def in_threads(comms, operands):
    def run(comm):
        for _ in range(50):
            with rccl.group():
                comm.send(operands.make(), 1 - comm.rank, block=False)
                comm.recv(operands.make(), 1 - comm.rank, block=False)

    threads = [threading.Thread(target=run, args=(comm,)) for comm in comms]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.mark.parametrize("run", [in_one_thread, in_threads])
def test_operands_of_finished_calls_are_let_go(comms, run):
    operands = Operands()
    run(comms, operands)
    assert operands.wait_until_gone()


def test_operands_are_let_go_after_close():
    comms, operands = rccl.Communicator.init_all(2), Operands()
    in_one_thread(comms, operands)
    with rccl.group():
        for comm in comms:
            comm.close()
    assert operands.wait_until_gone()


def test_errors_of_children_name_operation_and_rank():
    require_calls()

    def body(comm):
        ident = comm.growth_id() if comm.rank == 0 else None
        with pytest.raises(rccl.CollectiveTimeoutError) as late:
            comm.grow(3, ident, timeout_s=SECONDS)
        missing = (late.value.op, late.value.rank, late.value.seq, late.value.waiting_for)
        ident = comm.growth_id() if comm.rank == 0 else None
        with pytest.raises(rccl.InvalidArgumentError) as wrong:
            comm.grow(3 + comm.rank, ident, timeout_s=5)
        return missing, (wrong.value.op, wrong.value.rank)

    expected = [(("grow", rank, 1, (2,)), ("grow", rank)) for rank in range(2)]
    assert good(on_threads(2, body)) == expected


def test_shrink_names_itself(comms):
    require_calls("ncclCommShrink")
    three = rccl.Communicator.init_all(3, timeout_s=SECONDS)
    with pytest.raises(rccl.CollectiveTimeoutError) as late:
        three[1].shrink([0])
    assert (late.value.op, late.value.rank, late.value.waiting_for) == ("shrink", 1, (2,))
    for comm in three:
        comm.abort()
