# SPDX-License-Identifier: MIT
"""Collectives of jax's arrays where ranks are threads, which all have device 0 as their current one."""

import pytest
from rccl_ranks import await_first, good, on_threads

pytestmark = pytest.mark.jax


@pytest.mark.parametrize("name", ["all_reduce", "all_gather", "broadcast", "all_to_all"])
def test_a_rank_that_comes_later_does_not_wait_for_the_first(jax, name):
    arrays = [jax.numpy.ones(2, "float32"), jax.numpy.ones(2, "float32")]

    def body(comm):
        if comm.rank == 1:
            await_first(comm)
        return isinstance(getattr(comm, name)(arrays[comm.rank]), jax.Array)

    assert good(on_threads(2, body)) == [True, True]
