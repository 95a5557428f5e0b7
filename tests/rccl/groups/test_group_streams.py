# SPDX-License-Identifier: MIT
"""Calls of one group and one communicator on several streams: one operation, which all of them wait for."""

import threading

import numpy as np
import pytest
from rccl_ranks import good, on_threads

import rocpy
from rocpy import rccl


@pytest.mark.parametrize("elements", [4, 1 << 16])
def test_an_exchange(comms, elements):
    received = [np.zeros(elements, np.float32) for _ in comms]
    with rccl.group():
        for comm in comms:
            sends, receives = (rocpy.Stream(device=comm.rank) for _ in range(2))
            comm.send(np.full(elements, comm.rank + 1, np.float32), 1 - comm.rank, stream=sends)
            comm.recv(received[comm.rank], 1 - comm.rank, stream=receives)
    assert [y.min() for y in received] == [2.0, 1.0]
    assert [y.max() for y in received] == [2.0, 1.0]


@pytest.mark.parametrize("order", ["aba", "abb", "bca", "ana"])
def test_calls_go_on_in_their_order(comms, order):
    streams = {name: rocpy.Stream(device=0) for name in "abc"} | {"n": None}
    with rccl.group():
        mine = [comms[0].all_reduce(np.full(2, 10.0**i), stream=streams[name]) for i, name in enumerate(order)]
        theirs = [comms[1].all_reduce(np.full(2, 10.0**i)) for i in range(3)]
    assert [y.tolist() for y in mine] == [y.tolist() for y in theirs] == [[2.0, 2.0], [20.0, 20.0], [200.0, 200.0]]


def test_each_stream_waits_for_all_calls():
    may_arrive = threading.Event()

    def body(comm):
        first, second = (rocpy.Stream(device=comm.rank, nonblocking=True) for _ in range(2))
        x, sums = np.ones(2), [np.zeros(2) for _ in range(2)]
        assert comm.rank == 0 or may_arrive.wait(20)
        with rccl.group():
            works = [comm.all_reduce(x, out=sums[0], stream=first, block=False)]
            works += [comm.all_reduce(x, out=sums[1], stream=second, block=False)]
        may_arrive.set()
        first.synchronize()
        seen = sums[1].tolist()
        for work in works:
            work.wait()
        return seen

    assert good(on_threads(2, body)) == [[2.0, 2.0]] * 2
