# SPDX-License-Identifier: MIT
"""Several ranks of one thread, and what a release's RCCL has."""

from contextlib import contextmanager

import numpy as np
import pytest

import rocpy
from rocpy import rccl


@contextmanager
def ranks_of_this_thread(count, timeout_s):
    """Ranks of this thread; what is left of them is aborted."""
    comms = rccl.Communicator.init_all(count, timeout_s=timeout_s)
    yield comms
    for comm in comms:
        comm.abort()


def total_on(comms):
    """Return what one sum over all ranks of this thread comes to: wrong if a call of before was launched."""
    with rccl.group():
        sums = [comm.all_reduce(np.full(2, float(comm.rank + 1))) for comm in comms]
    return {float(one[0]) for one in sums}


def require_calls(*names):
    """Skip a test where this release's RCCL lacks one of the functions; without names, any."""
    missing = rocpy.platform.missing()["rccl"]
    if missing if not names else any(name in missing for name in names):
        pytest.skip(f"this release's RCCL lacks {', '.join(names) or 'calls'}")
