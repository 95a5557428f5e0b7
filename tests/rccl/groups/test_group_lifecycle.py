# SPDX-License-Identifier: MIT
"""One thread has several ranks: in a group it makes, splits, shrinks and ends their communicators and windows."""

import os
import threading
import time

import numpy as np
import pytest
from one_thread import ranks_of_this_thread, require_calls, total_on

import rocpy
from rocpy import rccl


@pytest.fixture
def comms():
    """Three ranks of one thread; what is left of them is aborted."""
    with ranks_of_this_thread(3, timeout_s=20) as made:
        yield made


@pytest.mark.parametrize("end", ["finalize", "close", "destroy"])
def test_ends(comms, end):
    with rccl.group():
        for comm in comms:
            getattr(comm, end)()
            assert not comm.is_closed  # not before all of them can
        comms[0].close()  # once more
    assert all(comm.is_closed for comm in comms)


def test_calls_of_a_group_come_before_its_ends(comms):
    with rccl.group():
        results = []
        for comm in comms:
            results.append(comm.all_reduce(np.ones(3)))
            comm.close()
    assert [one.tolist() for one in results] == [[3.0] * 3] * 3


def test_a_block_that_raises_ends_nothing(comms):
    with pytest.raises(KeyError), rccl.group():
        {}[tuple(comm.close() for comm in comms)]
    assert total_on(comms) == {6.0}


def test_abort_in_a_group_is_at_once(comms):
    with rccl.group():
        for comm in comms:
            comm.close()
            comm.abort()
            assert comm.is_closed


def test_calls_of_a_communicator_that_was_aborted_since(comms):
    opened = rccl.group()
    opened.__enter__()
    for comm in comms:
        comm.all_reduce(np.ones(2))
    comms[1].abort()
    with pytest.raises(rocpy.errors.ClosedError):
        opened.__exit__(None, None, None)


def test_a_rank_that_does_not_end():
    comms = rccl.Communicator.init_all(2, timeout_s=0.2)
    with pytest.raises(rocpy.errors.CollectiveTimeoutError) as caught, rccl.group():
        comms[0].close()
    assert caught.value.waiting_for == (1,)
    assert comms[0].is_closed
    comms[1].abort()


def test_begins():
    unique_id = rccl.UniqueId.make()
    with rccl.group():
        comms = [rccl.Communicator.init(2, rank, unique_id, device=rank) for rank in range(2)]
    assert total_on(comms) == {3.0}
    assert {row["nranks"] for row in rccl.status() if row["name"] == comms[0].name} == {2}
    with rccl.group():
        for comm in comms:
            comm.close()


def test_a_begun_communicator_is_aborted_when_the_block_raises():
    unique_id = rccl.UniqueId.make()
    made = []
    with pytest.raises(KeyError), rccl.group():
        {}[made.append(rccl.Communicator.init(2, 0, unique_id, device=0))]
    assert made[0].is_closed


def test_parts(comms):
    with rccl.group():
        parts = [comm.split(comm.rank % 2, -comm.rank) for comm in comms]
        none = [comm.split(None if comm.rank == 1 else 0, name="rest") for comm in comms]
    assert [(part.rank, part.nranks) for part in parts] == [(1, 2), (0, 1), (0, 2)]
    assert total_on(parts[::2]) == {3.0}
    assert none[1] is None
    assert none[2].name == "rest"
    left = []
    if "ncclCommShrink" not in rocpy.platform.missing()["rccl"]:
        with rccl.group():
            left = [comm.shrink([0]) for comm in comms[1:]]
        assert [(one.rank, one.nranks) for one in left] == [(0, 2), (1, 2)]
    with rccl.group():
        for one in [*parts, none[0], none[2], *left, *comms]:
            one.close()


def test_what_an_older_release_lacks(comms):
    missing = rocpy.platform.missing()["rccl"]
    for function, call in {
        "ncclCommWindowRegister": lambda: comms[0].window(comms[0].empty(4, window=True)),
        "ncclCommShrink": lambda: comms[0].shrink([1]),
    }.items():
        if function in missing:
            with pytest.raises(rocpy.UnsupportedError, match=f"{function}, which was added in 2.27"):
                call()


def test_windows(comms):
    require_calls()
    if os.environ.get("ROCPY_HOST_STAGING") == "1":
        pytest.skip("device memory is no numpy array")
    memories = [comm.empty(4, "float32", window=True) for comm in comms]
    for memory in memories:
        np.asarray(memory)[:] = 0
    with rccl.group():
        windows = [comm.window(memory) for comm, memory in zip(comms, memories, strict=True)]
        assert windows[0].is_closed
    np.asarray(memories[0])[:2] = 5
    comms[0].put_signal(np.asarray(memories[0])[:2], 1, windows[0], 2)
    comms[1].wait_signal({0: 1})
    assert np.asarray(memories[1]).tolist() == [0, 0, 5, 5]


def test_an_inner_group_is_part_of_the_outer_one(comms):
    with rccl.group():
        with rccl.group():
            comms[0].close()
        assert not comms[0].is_closed
        for comm in comms[1:]:
            comm.close()
    assert comms[0].is_closed


def test_settings_of_children():
    comm = rccl.Communicator.init(1, 0, rccl.UniqueId.make(), config={"min_ctas": 2, "net_name": "none"})
    with pytest.raises(rocpy.errors.InvalidArgumentError, match="min_ctas"):
        comm.split(0, config={"min_ctas": "two"})
    with comm.split(0, config={"max_ctas": 4}) as part, part.split(0) as child:
        assert child.nranks == 1
    with pytest.raises(rocpy.errors.InvalidArgumentError):
        comm.split(0, config={"min_ctas": 8, "max_ctas": 4})
    comm.close()


def test_another_thread_aborts_a_rank_that_waits():
    comms = rccl.Communicator.init_all(2, timeout_s=60)
    errors = []

    def wait():
        try:
            comms[0].all_reduce(np.ones(1))
        except rocpy.RocpyError as error:
            errors.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    while comms[0].status()["ranks"][0]["op"] == "none":
        time.sleep(0.001)
    comms[0].abort()
    thread.join(30)
    assert not thread.is_alive()
    assert len(errors) == 1
    comms[1].abort()


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("name", ["all_reduce", "split", "window"])
def test_another_thread_aborts_a_rank_of_a_group_that_waits(name, count):
    require_calls("ncclCommWindowRegister")
    calls = {
        "all_reduce": lambda comm: comm.all_reduce(np.ones(4)),
        "split": lambda comm: comm.split(0),
        "window": lambda comm: comm.window(comm.empty(4, window=True)),
    }
    errors = []

    def wait(comms):
        try:
            with rccl.group():
                for comm in comms[:count]:
                    calls[name](comm)
        except rocpy.RocpyError as error:
            errors.append(error)

    with ranks_of_this_thread(3, timeout_s=60) as comms:
        thread = threading.Thread(target=wait, args=(comms,))
        thread.start()
        while not comms[0].status()["ranks"][0]["busy"]:
            time.sleep(0.001)
        comms[0].abort()
        thread.join(30)
        assert not thread.is_alive()
    assert [type(error) for error in errors] == [rocpy.ClosedError]
