# SPDX-License-Identifier: MIT
"""The deadline of calls that say nothing else: a communicator's own, which is checked when it is set."""

import numpy as np
import pytest

from rocpy import rccl
from rocpy.rccl.carriers.communicator import CarriedCommunicator


class Alone:
    rank, nranks, name = 0, 1, "none"


@pytest.fixture(params=["RCCL's", "carried"])
def comm(request):
    if request.param == "carried":
        yield CarriedCommunicator(Alone(), 5.0, "")
    else:
        with rccl.Communicator.init(1, 0, rccl.UniqueId.make(), timeout_s=5.0) as own:
            yield own
            # What was refused is not used by any call.
            assert own.all_reduce(np.ones(1)) == 1
            own.barrier()
            with own.split(0) as child, rccl.group():
                assert child.timeout_s == own.timeout_s
                own.all_reduce(np.ones(1))


@pytest.mark.parametrize("seconds", [-1, 0, -0.001, float("-inf"), float("nan"), None, "x", 10**400, [1], np.ones(2)])
def test_what_is_no_time_is_refused_when_it_is_set(comm, seconds):
    with pytest.raises(rccl.InvalidArgumentError, match="^timeout_s: got .*positive number of seconds"):
        comm.timeout_s = seconds
    assert comm.timeout_s == 5


@pytest.mark.parametrize("seconds", [2, np.float32(0.5), float("inf")])
def test_any_positive_number_is_a_time(comm, seconds):
    comm.timeout_s = seconds
    assert comm.timeout_s == seconds
