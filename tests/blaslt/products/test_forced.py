# SPDX-License-Identifier: MIT
"""rocpy.matmul(algorithm=): the plan with a named algorithm is kept like any other."""

from __future__ import annotations

import numpy as np
import pytest
from several_algorithms import candidates

import rocpy
from rocpy.blaslt import Algorithm


def kept():
    return rocpy.plan_cache.info()["size"]


@pytest.fixture(autouse=True)
def empty(fresh_plan_cache):
    """Each test counts the plans that it makes."""


@pytest.fixture
def operands(rng):
    return rng.standard_normal((200, 1300), np.float32), rng.standard_normal((1300, 96), np.float32)


def algorithms_of(a, b, **more):
    with rocpy.Matmul(a, b, **more) as mm:
        return mm.plan()


def test_a_second_call_makes_no_plan(operands):
    a, b = operands
    with rocpy.Matmul(a, b) as mm:
        found = candidates(mm)
    plans = {}
    for algorithm in found:
        d = rocpy.matmul(a, b, algorithm=algorithm)
        size = kept()
        assert size == len(plans) + 1
        np.testing.assert_array_equal(rocpy.matmul(a, b, algorithm=algorithm), d)
        assert kept() == size
        with rocpy.Matmul(a, b) as mm:
            np.testing.assert_array_equal(mm.execute(algorithm=algorithm), d)
        plans[algorithm.name] = d
    assert len({d.tobytes() for d in plans.values()}) > 1, "algorithms that sum in one order tell nothing here"
    # The plain product has its own plan, with the first choice.
    np.testing.assert_array_equal(rocpy.matmul(a, b), plans[found[0].name])
    assert kept() == len(plans) + 1


def test_names_indices_and_records_mean_the_same(operands):
    a, b = operands
    found = algorithms_of(a, b)
    expected = rocpy.matmul(a, b, algorithm=found[-1])
    for given in (len(found) - 1, found[-1].name, Algorithm.from_json(found[-1].to_json()), found[-1].to_dict()):
        np.testing.assert_array_equal(rocpy.matmul(a, b, algorithm=given), expected)
    out = np.empty((200, 96), np.float32)
    assert rocpy.matmul(a, b, algorithm=found[-1], out=out) is out
    np.testing.assert_array_equal(out, expected)


def test_copies_weights_and_compositions_take_it_too(operands):
    a, b = operands
    last = algorithms_of(a, b)[-1]
    expected = rocpy.matmul(a, b, algorithm=last)
    np.testing.assert_array_equal(rocpy.matmul(a[:, ::-1][:, ::-1], b, algorithm=last), expected)
    spread = np.zeros((400, 2600), np.float32)[::2, ::2]
    spread[...] = a
    np.testing.assert_array_equal(rocpy.matmul(spread, b, algorithm=last), expected)
    weight = rocpy.Weight(b)
    chosen = algorithms_of(a, weight)[-1]
    with rocpy.Matmul(a, weight) as mm:
        np.testing.assert_array_equal(rocpy.matmul(a, weight, algorithm=chosen), mm.execute(algorithm=chosen))
    composed = rocpy.matmul(a, b, epilogue="gelu_erf", algorithm=algorithms_of(a, b, epilogue="gelu_erf")[-1])
    np.testing.assert_allclose(composed, rocpy.matmul(a, b, epilogue="gelu_erf"), atol=1e-3)


def test_what_is_not_there_is_refused_each_time(operands):
    a, b = operands
    foreign = Algorithm(12345678, "nobody", 0, 0.0)
    for _ in range(2):
        with pytest.raises(rocpy.InvalidProblemError, match="nobody #12345678.* is not one of this product's"):
            rocpy.matmul(a, b, algorithm=foreign)
        with pytest.raises(rocpy.InvalidProblemError, match="algorithm 999: this product has"):
            rocpy.matmul(a, b, algorithm=999)
        with pytest.raises(rocpy.InvalidProblemError, match="algorithm nobody is not one"):
            rocpy.matmul(a, b, algorithm="nobody")
        with pytest.raises(rocpy.InvalidProblemError, match="of another|its id would select a different kernel"):
            rocpy.matmul(a, b, algorithm=Algorithm(0, "x", 0, 0.0, library="hipblaslt 0.0.1", arch="gfx000"))
        with pytest.raises(rocpy.InvalidProblemError, match="algorithm: got float"):
            rocpy.matmul(a, b, algorithm=1.5)


def test_empty_results_have_none(operands):
    a, b = operands
    assert rocpy.matmul(a[:0], b, algorithm=0).shape == (0, 96)
