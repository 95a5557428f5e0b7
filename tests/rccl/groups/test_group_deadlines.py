# SPDX-License-Identifier: MIT
"""The deadlines of a group's calls: each has its own, which begins when those before it are done."""

import threading
import time

import numpy as np
import pytest
from rccl_ranks import good, on_threads

from rocpy import rccl

X = np.ones(4, np.float32)


def come_late(comm):
    """Rank 1 is later than the short deadlines, and then answers without delay."""
    if comm.rank == 1:
        time.sleep(0.25)


def test_a_later_call_does_not_shorten_the_first_ones():
    def body(comm):
        come_late(comm)
        with rccl.group():
            sums = [comm.all_reduce(X, timeout_s=seconds) for seconds in (5, 5, 0.1)]
        return [y.tolist() for y in sums]

    assert good(on_threads(2, body)) == [[[2.0] * 4] * 3] * 2


def test_the_error_is_that_of_the_call_whose_deadline_has_passed():
    def body(comm):
        come_late(comm)
        if comm.rank == 1:
            return comm.abort()
        with pytest.raises(rccl.CollectiveTimeoutError, match=r"0\.1") as error, rccl.group():
            _ = [comm.all_reduce(X, timeout_s=seconds) for seconds in (0.1, 5)]
        comm.abort()
        return error.value.seq

    assert good(on_threads(2, body)) == [1, None]


def test_one_thread_of_several_ranks_waits_for_each_call_as_long_as_it_may_take():
    comms = rccl.Communicator.init_all(3, timeout_s=5)

    def come_twice():
        comms[2].all_reduce(X)
        time.sleep(0.6)  # longer than the first calls may take
        comms[2].all_reduce(X)

    late = threading.Thread(target=come_twice)
    late.start()
    with rccl.group():
        sums = [comm.all_reduce(X, timeout_s=seconds) for comm in comms[:2] for seconds in (0.1, 5)]
    late.join()
    assert [y.tolist() for y in sums] == [[3.0] * 4] * 4
    for comm in comms:
        comm.abort()


def test_a_call_that_is_not_waited_for_has_no_deadline_before_wait():
    def body(comm):
        come_late(comm)
        with rccl.group():
            work = comm.all_reduce(X, timeout_s=0.1, block=False)
            y = comm.all_reduce(X, timeout_s=5)
        return [work.wait(5).tolist(), y.tolist()]

    assert good(on_threads(2, body)) == [[[2.0] * 4] * 2] * 2
