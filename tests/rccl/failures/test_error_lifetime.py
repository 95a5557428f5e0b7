# SPDX-License-Identifier: MIT
"""What a call that failed has used lives as long as its error: no cycle waits for the garbage collector."""

import gc
import time
import weakref

import numpy as np
import pytest
from one_thread import ranks_of_this_thread

from rocpy import distributed, rccl


class Tracked(np.ndarray):
    """An array that weak references may refer to."""


@pytest.fixture(autouse=True)
def no_collector():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def comms():
    with ranks_of_this_thread(2, timeout_s=0.05) as ranks:
        yield ranks


def call(comms, x):
    comms[0].all_reduce(x)


def group(comms, x):
    with rccl.group():
        comms[0].all_reduce(x)


def closing_group(comms, x):
    with rccl.group():
        comms[0].close()


def threads(comms, x):
    distributed.run_threads(lambda comm: [x][comm.rank + 1], 2)


@pytest.mark.parametrize("use", [call, group, closing_group, threads])
def test_arrays_of_what_failed_are_released(comms, use):
    x = np.ones(4).view(Tracked)
    reference = weakref.ref(x)
    with pytest.raises((rccl.RcclError, IndexError)):
        use(comms, x)
    for comm in comms:
        comm.abort()
    del x
    with rccl.Communicator.init(1, 0, rccl.UniqueId.make()) as other:
        deadline = time.monotonic() + 5
        while reference() is not None and time.monotonic() < deadline:
            other.all_reduce(np.ones(1))  # releases what streams are through with
    assert reference() is None
