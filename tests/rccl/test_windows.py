# SPDX-License-Identifier: MIT
"""Windows, puts and signals, registered memory, and all-to-all with counts, between threads and between processes."""

import threading

import numpy as np
import pytest
import rccl_bodies
from rccl_ranks import good, on_processes, on_threads

import rocpy
from rocpy import rccl

RUN = pytest.mark.parametrize("run", [on_threads, on_processes], ids=["threads", "processes"])


@RUN
def test_one_shot_all_reduce_of_a_user(run):
    assert good(run(4, rccl_bodies.one_shot)) == [0.0] * 4


@RUN
def test_windows(run):
    assert good(run(3, rccl_bodies.windows)) == [True] * 3


@RUN
def test_a_signal_that_does_not_come(run):
    assert good(run(2, rccl_bodies.waits_in_vain))[0] == (1,)


@RUN
def test_registered_memory(run):
    assert good(run(3, rccl_bodies.registered)) == [[]] * 3


@RUN
def test_all_to_all_with_counts(run):
    assert good(run(3, rccl_bodies.trades)) == [True] * 3


def test_all_to_all_with_counts_that_disagree():
    found = good(on_threads(3, rccl_bodies.trades_wrongly))
    assert len(set(found)) == 1
    assert "rank 0 sends 1 elements to rank 1, which takes 0" in found[0]


def test_what_is_refused():
    def body(comm):
        win = comm.window(comm.empty(4, "float32", window=True))
        other = comm.empty(4, "float32")
        with pytest.raises(rccl.InvalidArgumentError, match="must be in a window"):
            comm.put_signal(np.zeros(4, np.float32), 0, win)
        with pytest.raises(rccl.InvalidArgumentError, match="more than the 16 bytes"):
            comm.put_signal(win.array, 0, win, 1)
        with pytest.raises(rccl.InvalidArgumentError, match="offset"):
            comm.put_signal(win.array, 0, win, -1)
        with pytest.raises(rccl.InvalidArgumentError, match="peer"):
            win.peer(1)
        with pytest.raises(rccl.InvalidArgumentError, match="flags"):
            comm.window(other, flags="best")
        with pytest.raises(rccl.InvalidArgumentError, match=r"^array: .* 4096 bytes; use comm\.empty\("):
            comm.window(np.zeros(4097, np.uint8)[1:])
        with pytest.raises(rccl.InvalidArgumentError, match="signals"):
            comm.wait_signal({0: 0})
        with pytest.raises(rocpy.InvalidProblemError, match="send_counts"):
            comm.all_to_all_v(np.zeros(2), [1, 1])
        with pytest.raises(rocpy.InvalidProblemError, match="x has 2"):
            comm.all_to_all_v(np.zeros(2), [1], [1])
        with pytest.raises(TypeError, match="pickled"):
            win.__reduce__()
        handle = comm.register_buffer(other)
        handle.close()
        handle.close()
        return comm.all_reduce_with_bias(other, other).shape

    assert good(on_threads(1, body)) == [(4,)]


def test_windows_that_are_let_go(open_files):
    with rccl.Communicator.init(1, 0, rccl.UniqueId.make()) as comm:
        comm.window(comm.empty(1024, window=True))
        before = open_files()
        for _ in range(3):
            comm.window(comm.empty(1024, window=True))
            comm.register_buffer(comm.empty(1024, window=True))
        assert open_files() == before


def test_windows_that_another_thread_lets_go(open_files):
    with rccl.Communicator.init(1, 0, rccl.UniqueId.make()) as comm:
        comm.barrier()
        before = open_files()
        windows = [comm.window(comm.empty(1024, window=True)) for _ in range(3)]
        thread = threading.Thread(target=windows.clear)
        thread.start()
        thread.join()
        comm.barrier()  # a communicator is one thread's at a time: they are closed with its next call
        assert open_files() == before


def test_nothing_is_left(open_files):
    def body(comm):
        win = comm.window(comm.empty(1000, "float64", window=True))
        comm.put_signal(win.array, (comm.rank + 1) % 2, win)
        comm.wait_signal((comm.rank + 1) % 2)

    good(on_threads(2, body))
    before = open_files()
    for _ in range(3):
        good(on_threads(2, body))
    assert open_files() == before
