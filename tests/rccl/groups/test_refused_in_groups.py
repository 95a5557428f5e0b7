# SPDX-License-Identifier: MIT
"""Calls of a group that are refused: at once where rocpy can tell, and nothing of the group is launched."""

import threading

import numpy as np
import pytest
from one_thread import ranks_of_this_thread, require_calls, total_on

import rocpy
from rocpy import rccl


@pytest.fixture
def comms():
    """Two ranks of this thread."""
    with ranks_of_this_thread(2, timeout_s=5) as made:
        yield made


def on_stream_of_rank_0(comm):
    with rocpy.Stream(0) as stream:
        comm.all_reduce(np.ones(2), stream=stream)


WRONG = {
    "root": (lambda comm: comm.broadcast(np.ones(2), root=None), "root: got None, expected a rank from 0 to 1"),
    "reduce": (lambda comm: comm.reduce(np.ones(2), root=None), "root: got None"),
    "gather": (lambda comm: comm.gather(np.ones(2), root=None), "root: got None"),
    "scatter": (lambda comm: comm.scatter(np.ones(2), root=None), "root: got None"),
    "send": (lambda comm: comm.send(np.ones(2), None), "peer: got None, expected a rank from 0 to 1"),
    "recv": (lambda comm: comm.recv(np.ones(2), None), "peer: got None"),
    "op": (lambda comm: comm.all_reduce(np.ones(2), op=None), "op: got None, expected one of sum"),
    "reduce_scatter": (lambda comm: comm.reduce_scatter(np.ones(2), op=None), "op: got None"),
    "stream": (on_stream_of_rank_0, "stream: belongs to device 0, the communicator of rank 1 to device 1"),
    "signals": (lambda comm: comm.wait_signal([]), "peers: got .*expected one rank or more"),
    "twice": (lambda comm: comm.wait_signal([0, 0]), "peers: got .*each once"),
}


@pytest.mark.parametrize("name", WRONG)
def test_in_the_block(comms, name):
    call, message = WRONG[name]
    ended = []

    def calls():
        with rccl.group():
            comms[0].all_reduce(np.full(2, 100.0))
            call(comms[1])
            ended.append(True)

    with pytest.raises(rccl.InvalidArgumentError, match=message):
        calls()
    assert not ended
    assert total_on(comms) == {3.0}


@pytest.mark.parametrize("name", [name for name in WRONG if name != "stream"])  # which RCCL refuses
def test_without_a_group(comms, name):
    call, message = WRONG[name]
    with pytest.raises(rccl.InvalidArgumentError, match=message):
        call(comms[1])
    assert total_on(comms) == {3.0}


def windows_of(comms):
    require_calls()
    memories = [comm.empty(4, window=True) for comm in comms]
    with rccl.group():
        return [comm.window(memory) for comm, memory in zip(comms, memories, strict=True)]


@pytest.mark.parametrize("name", ["beyond", "unregistered"])
def test_a_put_that_only_rccl_can_refuse(comms, name):
    windows = windows_of(comms)
    x, offset = (windows[1].array, 2) if name == "beyond" else (comms[1].empty(2, window=True), 0)

    def calls():
        with rccl.group():
            comms[0].all_reduce(np.full(2, 100.0))
            comms[1].put_signal(x, 0, windows[1], offset)

    with pytest.raises(rccl.InvalidArgumentError):
        calls()
    assert total_on(comms) == {3.0}


def test_a_stream_that_captures(comms):
    if not rocpy.platform.current().is_emulated:
        pytest.skip("RCCL captures collectives")
    with rocpy.Stream(1) as stream, rocpy.runtime.Device(1):
        opened = rccl.group()
        opened.__enter__()
        comms[0].all_reduce(np.full(2, 100.0))
        comms[1].all_reduce(np.full(2, 100.0), stream=stream)
        with pytest.raises(rccl.InvalidUsageError, match="rank 1: the host platform does not capture"):  # noqa: SIM117
            with stream.capture():
                opened.__exit__(None, None, None)
    assert total_on(comms) == {3.0}


def test_a_closed_communicator(comms):
    opened = rccl.group()
    opened.__enter__()
    comms[0].all_reduce(np.full(2, 100.0))
    comms[1].all_reduce(np.full(2, 100.0))
    comms[1].abort()
    with pytest.raises(rocpy.ClosedError):
        opened.__exit__(None, None, None)
    assert comms[0].status()["ranks"][0]["calls"] == {}


def test_an_inner_block_that_raises_is_dropped(comms):
    works = []

    def inner():
        with rccl.group():
            works.append(comms[1].all_reduce(np.full(2, 100.0), block=False))
            comms[1].close()
            with rccl.group():
                works.append(comms[1].all_reduce(np.full(2, 1000.0), block=False))
            raise KeyError

    with rccl.group():
        results = [comms[0].all_reduce(np.full(2, 1.0))]
        with pytest.raises(KeyError):
            inner()
        results.append(comms[1].all_reduce(np.full(2, 2.0)))
    assert [one.tolist() for one in results] == [[3.0, 3.0]] * 2
    assert not comms[1].is_closed
    for work in works:
        with pytest.raises(rocpy.ClosedError, match="never launched"):
            work.wait()


def test_works_of_an_inner_block(comms):
    with rccl.group():
        with rccl.group():
            works = [comm.all_reduce(np.ones(1), block=False) for comm in comms]
        assert not works[0].done
    assert [work.wait().tolist() for work in works] == [[2.0], [2.0]]


def test_a_block_that_another_thread_leaves(comms):
    opened, caught = rccl.group(), []

    def leave():
        try:
            opened.__exit__(None, None, None)
        except rccl.InvalidUsageError as error:
            caught.append(error)

    opened.__enter__()
    comms[0].all_reduce(np.full(2, 100.0))
    thread = threading.Thread(target=leave)
    thread.start()
    thread.join()
    assert "entered in another thread" in str(caught[0])
    assert total_on(comms) == {3.0}


@pytest.mark.parametrize("has_call", [False, True])
def test_a_window_that_only_one_rank_opens(has_call):
    require_calls()
    comms = rccl.Communicator.init_all(2, timeout_s=0.2)
    memory = comms[0].empty(4, window=True)

    def calls():
        with rccl.group():
            comms[0].window(memory)
            if has_call:
                comms[1].all_reduce(np.ones(1))

    with pytest.raises(rccl.CollectiveTimeoutError) as late:
        calls()
    assert (late.value.waiting_for, late.value.op, late.value.rank) == ((1,), "window", 0)
    for comm in comms:
        comm.abort()


def test_grow_says_why(comms):
    require_calls("ncclCommGrow")

    def calls():
        with rccl.group():
            comms[0].all_reduce(np.full(2, 100.0))
            comms[0].grow(3, comms[0].growth_id())

    with pytest.raises(rccl.InvalidUsageError, match="grow: .*before the group or after it") as error:
        calls()
    assert (error.value.op, error.value.rank) == ("grow", 0)
    assert total_on(comms) == {3.0}


def test_one_thread_joins_several_ranks_of_a_grown_one():
    require_calls("ncclCommGrow")
    first = rccl.Communicator.init(1, 0, rccl.UniqueId.make(), timeout_s=5)
    ident, larger = first.growth_id(), []
    thread = threading.Thread(target=lambda: larger.append(first.grow(3, ident)))
    thread.start()
    with rccl.group():
        larger += [rccl.Communicator.join_grown(3, rank, ident, device=rank, timeout_s=5) for rank in (1, 2)]
    thread.join()
    assert total_on(larger) == {6.0}
    for comm in (first, *larger):
        comm.abort()


def test_ranks_and_devices():
    ident = rccl.UniqueId.make()
    for rank in (0, 8):
        with pytest.raises(rccl.InvalidUsageError, match="9 ranks need a device each.*ROCPY_HOST_DEVICES"):
            rccl.Communicator.init(9, rank, ident, device=rank)


@pytest.mark.parametrize("others", [0, 1])
def test_the_error_names_the_call_only_if_it_is_the_only_one(others):
    """The last is on a stream that captures a graph."""

    def calls(comm, stream):
        with rccl.group():
            for _ in range(others):
                comm.all_reduce(np.full(2, 100.0))
            comm.all_reduce(np.ones(2), stream=stream)

    with rccl.Communicator.init(1, 0, rccl.UniqueId.make()) as comm, rocpy.Stream(nonblocking=True) as stream:
        with stream.capture(), pytest.raises(rccl.InvalidUsageError, match="does not capture") as error:
            calls(comm, stream)
        named = (error.value.op, error.value.seq, error.value.rank)
        assert named == (("group", None, 0) if others else ("all_reduce", 1, 0))
        assert comm.all_reduce(np.ones(2)).tolist() == [1.0, 1.0]
