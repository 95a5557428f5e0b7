# SPDX-License-Identifier: MIT
"""Waits that a signal's handler or another thread ends: they are over at once, and so is the communicator."""

import _thread
import signal
import threading
from contextlib import suppress

import numpy as np
import pytest
from one_thread import require_calls, total_on
from rccl_ranks import DEADLINE_S

import rocpy
from rocpy import rccl


class Interrupted(BaseException):
    """What the handler of the tests raises, as that of Ctrl-C raises KeyboardInterrupt."""


def interrupt(*_):
    raise Interrupted


class Interrupting:
    """A block in which a signal comes, whose handler is called; later the other ranks give up.

    Parameters
    ----------
    comms
        Rank 0, which waits, and the others.
    handler
        The signal's handler.
    """

    def __init__(self, comms, handler=interrupt):
        self.others, self.handler, self.gave_up = comms[1:], handler, False
        self.timers = [
            threading.Timer(0.1, _thread.interrupt_main, (signal.SIGUSR2,)),
            threading.Timer(DEADLINE_S / 6, self.give_up),
        ]

    def give_up(self):
        self.gave_up = True
        for comm in self.others:
            comm.abort()

    def __enter__(self):
        self.before = signal.signal(signal.SIGUSR2, self.handler)
        for timer in self.timers:
            timer.start()
        return self

    def __exit__(self, *_):
        for timer in self.timers:
            timer.cancel()
            timer.join()
        signal.signal(signal.SIGUSR2, self.before)


@pytest.fixture(params=["one call at once", "several ranks"])
def comms(request):
    """Two ranks, the first of which runs its calls in the thread that calls, or queues them since that drives both."""
    made = rccl.Communicator.init_all(2, timeout_s=DEADLINE_S)
    if request.param == "several ranks":
        total_on(made)
    yield made
    for comm in made:
        comm.abort()


def in_group(comm, out):
    with rccl.group():
        comm.all_reduce(np.ones(4), out=out)


def leave(comm, out):
    with comm:
        pass


def finalize_in_group(comm, out):
    with rccl.group():
        comm.finalize()


def wait_signal(comm, out):
    require_calls("ncclWaitSignal")
    comm.wait_signal(1)


WAITS = {
    "all_reduce": lambda comm, out: comm.all_reduce(np.ones(4), out=out),
    "group": in_group,
    "work": lambda comm, out: comm.all_reduce(np.ones(4), out=out, block=False).wait(),
    "barrier": lambda comm, out: comm.barrier(),
    "recv": lambda comm, out: comm.recv(out, 1),
    "wait_signal": wait_signal,
}
ENDS = {
    "finalize": lambda comm, out: comm.finalize(),
    "close": lambda comm, out: comm.close(),
    "with": leave,
    "group": finalize_in_group,
}


@pytest.mark.parametrize("name", WAITS)
def test_an_interrupted_call_ends_its_communicator(comms, name):
    out = np.zeros(4)
    with Interrupting(comms) as block, pytest.raises(Interrupted):
        WAITS[name](comms[0], out)
    assert not block.gave_up
    assert comms[0].is_aborted
    with suppress(rccl.RcclError):  # rank 0 had arrived, and may be seen to have given up or not
        if name == "recv":
            comms[1].send(np.ones(4), 0)
        else:
            comms[1].all_reduce(np.ones(4))
    assert out.tolist() == [0.0] * 4
    with pytest.raises(rocpy.ClosedError):
        comms[0].barrier()


@pytest.mark.parametrize("name", ENDS)
def test_finalizing_is_interrupted_at_once(comms, name):
    with Interrupting(comms) as block, pytest.raises(Interrupted):
        ENDS[name](comms[0], None)
    assert not block.gave_up
    assert comms[0].is_aborted


def test_joining_is_interrupted_at_once():
    with Interrupting([None]), pytest.raises(Interrupted):
        rccl.Communicator.init(2, 0, rccl.UniqueId.make(), timeout_s=DEADLINE_S)


class Aborting(threading.Timer):
    """A block in which another thread aborts a communicator."""

    def __init__(self, comms):
        super().__init__(0.1, comms[0].abort)

    def __enter__(self):
        self.start()

    def __exit__(self, *_):
        self.join()


BY = {"handler": lambda comms: Interrupting(comms, lambda *_: comms[0].abort()), "thread": Aborting}


@pytest.mark.parametrize("name", WAITS)
@pytest.mark.parametrize("by", BY)
def test_a_call_whose_communicator_is_aborted_says_so(comms, name, by):
    out = np.zeros(4)
    with BY[by](comms), pytest.raises(rocpy.ClosedError, match="rank 0: [a-z_]+ was aborted"):
        WAITS[name](comms[0], out)
    assert out.tolist() == [0.0] * 4
