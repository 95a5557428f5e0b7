# SPDX-License-Identifier: MIT
"""Calls that stand for another one have the user's name in errors, traces and statuses, beside late ranks too."""

import numpy as np
import pytest

from rocpy import rccl

CALLS = {
    "barrier": lambda comm: comm.barrier(timeout_s=0.05),
    "all_to_all_v": lambda comm: comm.all_to_all_v(np.arange(2), [1, 1], timeout_s=0.05),
    "all_reduce": lambda comm: comm.all_reduce(np.ones(1), timeout_s=0.05),
}


@pytest.fixture
def comms():
    made = rccl.Communicator.init_all(2)
    yield made
    for comm in made:
        comm.abort()


@pytest.mark.parametrize("name", CALLS)
def test_a_rank_that_does_not_come(comms, name):
    with pytest.raises(rccl.CollectiveTimeoutError, match=f"rank 0: {name} number 1 .* in {name} number 1") as error:
        CALLS[name](comms[0])
    assert (error.value.op, error.value.seq) == (name, 1)
    assert sum(other in str(error.value) for other in ("all_reduce", "all_to_all")) == (name != "barrier")
    assert [call["op"] for call in comms[0].trace()] == [name]
    assert [row["op"] for row in comms[1].status()["ranks"]] == [name, "none"]


def test_what_a_late_rank_did_last(comms):
    with rccl.group():
        for comm in comms:
            comm.barrier()
    with pytest.raises(rccl.CollectiveTimeoutError, match="rank 1 last finished barrier number 1"):
        CALLS["all_reduce"](comms[0])
    row = comms[1].status()["ranks"][1]
    assert (row["op"], row["calls"]) == ("barrier", {"all_reduce": 1})


def test_other_ends_of_a_barrier(comms):
    comms[1].abort()
    with pytest.raises(rccl.RemoteError, match="rank 0: barrier number 1 failed: .* in barrier number 1") as error:
        comms[0].barrier()
    assert error.value.op == "barrier"
