# SPDX-License-Identifier: MIT
"""Every collective case against the oracle; equal bits on all ranks and from run to run; random shapes and types."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rccl_ranks import good, on_threads

from rocpy.testing.cases_collectives import (
    DTYPES,
    OPS,
    CollectiveCase,
    collective_cases,
    collective_inputs,
    collective_oracle,
    premul_scalar,
)

NRANKS = 3


def call(comm, case, x):
    """Make a case's call."""
    settings = {} if case.root is None else {"root": case.root}
    if case.op == "premul":
        settings["op"] = comm.premul_sum(premul_scalar(case, comm.rank), case.dtype)
    elif case.op is not None:
        settings["op"] = case.op
    return getattr(comm, case.collective)(x, **settings)


def run(cases):
    """Results of each case, by rank, from one communicator for all of them."""
    inputs = [collective_inputs(case) for case in cases]
    return inputs, good(
        on_threads(NRANKS, lambda comm: [call(comm, c, x[comm.rank]) for c, x in zip(cases, inputs, strict=True)])
    )


def check(case, inputs, results):
    for rank, (expected, result) in enumerate(zip(collective_oracle(case, inputs), results, strict=True)):
        if expected is None:
            assert result is None, (case.name, rank)
            continue
        wanted, bound = expected
        assert result.dtype.name == case.dtype
        if np.issubdtype(result.dtype, np.integer):
            assert (result == wanted).all(), (case.name, rank)
        else:
            error = np.abs(result.astype(np.float64) - wanted.astype(np.float64))
            assert (error <= bound).all(), (case.name, rank, error.max(), bound[error.argmax()])


def test_cases_equal_the_oracle():
    cases = collective_cases(NRANKS)
    inputs, results = run(cases)
    for index, case in enumerate(cases):
        check(case, inputs[index], [rank[index] for rank in results])


def test_bits_are_the_same_on_all_ranks_and_from_run_to_run():
    cases = [
        CollectiveCase("all_reduce", dtype, count, NRANKS, "sum")
        for dtype in ("float32", "bfloat16")
        for count in (1000, 70_001)
    ]
    first, again = run(cases)[1], run(cases)[1]
    for ranks in (first, again):
        assert all(a.tobytes() == b.tobytes() for other in ranks for a, b in zip(other, first[0], strict=True))


def test_every_type_and_operator_is_in_the_list():
    listed = {(case.dtype, case.op) for case in collective_cases() if case.collective == "all_reduce"}
    assert set(itertools.product(DTYPES, OPS)) <= listed


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.data())
def test_random_reductions(data):
    cases = [
        CollectiveCase(
            data.draw(st.sampled_from(["all_reduce", "reduce_scatter"])),
            data.draw(st.sampled_from(DTYPES)),
            data.draw(st.integers(0, 20_000)),
            NRANKS,
            data.draw(st.sampled_from(OPS)),
        )
        for _ in range(4)
    ]
    inputs, results = run(cases)
    for index, case in enumerate(cases):
        check(case, inputs[index], [rank[index] for rank in results])
