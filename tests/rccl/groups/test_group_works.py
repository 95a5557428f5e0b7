# SPDX-License-Identifier: MIT
"""``block=False`` in a group: a Work of each call, to be waited for when the group has ended."""

import threading

import numpy as np
import pytest
from rccl_ranks import good, on_threads

from rocpy import rccl
from rocpy.errors import ClosedError, InvalidUsageError


def test_each_call_gives_a_work():
    def body(comm):
        n, rank = comm.nranks, comm.rank
        x, received = np.arange(2 * n) + rank, np.zeros(1)
        with rccl.group():
            works = [
                comm.all_reduce(x, block=False),
                comm.reduce(x, block=False),
                comm.broadcast(x, root=1, block=False),
                comm.all_gather(x, block=False),
                comm.reduce_scatter(x, block=False),
                comm.all_to_all(x, block=False),
                comm.all_to_all_v(x, [2] * n, [2] * n, block=False),
                comm.gather(x, block=False),
                comm.scatter(x, block=False),
                comm.send(np.array([rank + 0.5]), (rank + 1) % n, block=False),
                comm.recv(received, (rank - 1) % n, block=False),
            ]
            assert all(isinstance(work, rccl.Work) and not work.done for work in works)
            total = comm.all_reduce(x)  # this one blocks: the array itself
        assert isinstance(total, np.ndarray)
        results = [work.wait(timeout_s=10) for work in works]
        assert all(work.done for work in works)
        assert results[9] is None
        assert results[10] is received
        assert (results[1] is None) == (results[7] is None) == (rank != 0)
        assert results[0].tolist() == total.tolist() == (n * np.arange(2 * n) + sum(range(n))).tolist()
        return results[2].tolist(), results[3].shape, results[5].tolist() == results[6].tolist(), received.tolist()

    expected = [([1, 2, 3, 4, 5, 6], (18,), True, [(rank - 1) % 3 + 0.5]) for rank in range(3)]
    assert good(on_threads(3, body)) == expected


def test_the_block_does_not_wait_for_it():
    may_arrive = threading.Event()

    def body(comm):
        x = np.ones(2)
        if comm.rank == 1:
            assert may_arrive.wait(20)
        with rccl.group():
            work = comm.all_reduce(x, block=False)
        if comm.rank == 0:
            assert not work.done
            with pytest.raises(rccl.CollectiveTimeoutError):
                work.wait(timeout_s=0.2)
            may_arrive.set()
        return work.wait().tolist()

    assert good(on_threads(2, body)) == [[2.0, 2.0]] * 2


def test_it_cannot_be_waited_for_in_the_block():
    with rccl.Communicator.init(1, 0, rccl.UniqueId.make()) as comm, rccl.group():
        with rccl.group():
            work = comm.all_reduce(np.ones(2), block=False)
        with pytest.raises(InvalidUsageError, match=r"all_reduce is launched when its group ends") as told:
            work.wait()
        assert (told.value.op, told.value.seq, told.value.rank) == ("all_reduce", None, 0)
        assert repr(work) == "rocpy.rccl.Work(all_reduce)"
    assert repr(work) == "rocpy.rccl.Work(all_reduce number 1)"


def test_of_a_group_that_raised():
    with rccl.Communicator.init(1, 0, rccl.UniqueId.make()) as comm:
        works = []

        def begin_and_raise():
            with rccl.group():
                works.append(comm.all_reduce(np.ones(2), block=False))
                raise KeyError

        with pytest.raises(KeyError):
            begin_and_raise()
        for use in (works[0].wait, lambda: works[0].done):
            with pytest.raises(ClosedError, match="never launched"):
                use()
        assert comm.all_reduce(np.ones(2), block=False).wait().tolist() == [1.0, 1.0]
