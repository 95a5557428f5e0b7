# SPDX-License-Identifier: MIT
"""The deadlines of sends, receives and signals: each has its own, whatever else a rank receives in the meantime."""

import time

import numpy as np
import pytest
from one_thread import require_calls
from rccl_ranks import good, on_threads

from rocpy import rccl

STEPS = 100


def expire(comm, call):
    """What rank 0 is told when its call for rank 1 has expired."""
    with pytest.raises(rccl.CollectiveTimeoutError, match=r"timeout after 0\.10 s") as late:
        call(comm)
    comm.abort()
    return late.value.op, 1 in late.value.waiting_for


def is_told(comm, call):
    """Whether a call every 20 ms fails because rank 0 has given up, before the last of them."""
    try:
        for _ in range(STEPS):
            time.sleep(0.02)
            call()
    except rccl.RemoteError as error:
        return error.rank == 0
    finally:
        comm.abort()
    return False


def do_nothing(comm):
    """Rank 1 is there until rank 0 has given up."""
    while comm.status()["ranks"][0]["state"] == "present":
        time.sleep(0.005)
    comm.abort()


def send_and_receive(comm):
    with rccl.group():
        comm.send(np.zeros(1 << 18), 1, timeout_s=10)  # too large to be sent without the receiver
        comm.recv(np.zeros(4), 1, timeout_s=0.1)


def test_each_of_a_group_has_its_own():
    def body(comm):
        return expire(comm, send_and_receive) if comm.rank == 0 else do_nothing(comm)

    assert good(on_threads(2, body)) == [("recv", True), None]


def receive_from_both(comm):
    with rccl.group():
        comm.recv(np.zeros(4), 1, timeout_s=0.1)
        for _ in range(STEPS):
            comm.recv(np.zeros(4), 2, timeout_s=10)


def test_what_comes_of_another_rank_does_not_put_it_off():
    def body(comm):
        if comm.rank == 2:
            return is_told(comm, lambda: comm.send(np.zeros(4), 0))
        return expire(comm, receive_from_both) if comm.rank == 0 else do_nothing(comm)

    assert good(on_threads(3, body)) == [("recv", True), None, True]


@pytest.mark.parametrize(
    ("op", "call"),
    [
        ("recv", lambda comm: comm.recv(np.zeros(4), 1, timeout_s=0.1)),
        ("wait_signal", lambda comm: comm.wait_signal({1: 1, 2: 2 * STEPS}, timeout_s=0.1)),
    ],
)
def test_signals_do_not_put_it_off(op, call):
    require_calls("ncclSignal", "ncclWaitSignal")

    def body(comm):
        if comm.rank == 2:
            return is_told(comm, lambda: comm.signal(0))
        return expire(comm, call) if comm.rank == 0 else do_nothing(comm)

    assert good(on_threads(3, body)) == [(op, True), None, True]


def test_it_begins_when_those_before_it_are_done():
    def body(comm):
        if comm.rank == 1:
            for _ in range(4):
                time.sleep(0.1)
                comm.send(np.ones(4), 0)
            return None
        received = np.zeros((4, 4))
        with rccl.group():
            for row in received:
                comm.recv(row, 1, timeout_s=0.3)
        return received.all()

    assert good(on_threads(2, body)) == [True, None]
