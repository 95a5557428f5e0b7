# SPDX-License-Identifier: MIT
"""NaN, infinities, zeros and overflow under each operator, as docs/guides/collectives.md states them."""

import ml_dtypes
import numpy as np
import pytest
from rccl_ranks import good, on_threads

FLOATS = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2]
E4M3, E5M2 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2
INF, NAN = np.inf, np.nan


def combined(dtype, op, *ranks):
    """What an all-reduce of each rank's values comes to, the same on all ranks, as float64."""
    inputs = [np.array(values, np.float64).astype(dtype) for values in ranks]
    answers = good(on_threads(len(ranks), lambda comm: comm.all_reduce(inputs[comm.rank], op=op)))
    assert all(answer.tobytes() == answers[0].tobytes() for answer in answers)
    return answers[0].astype(np.float64)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("op", "chosen"), [("max", [2, 2, NAN, 1]), ("min", [2, 2, NAN, 0.5])])
def test_max_and_min_ignore_nan(dtype, op, chosen):
    result = combined(dtype, op, [NAN, 2, NAN, 1], [2, NAN, NAN, 0.5])
    assert np.array_equal(result, chosen, equal_nan=True)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("op", ["max", "min"])
def test_of_two_zeros_the_one_of_the_lower_rank(dtype, op):
    assert np.signbit(combined(dtype, op, [0.0, -0.0], [-0.0, 0.0])).tolist() == [False, True]


def test_infinities_of_e5m2_are_elements_like_others():
    assert combined(E5M2, "max", [INF, -INF, 1], [-INF, -INF, INF], [-4, -4, 2]).tolist() == [INF, -4, INF]
    assert combined(E5M2, "min", [INF, INF, 1], [-INF, INF, -INF], [-4, 8, 2]).tolist() == [-INF, 8, -INF]
    for op in ("sum", "avg"):
        result = combined(E5M2, op, [INF, INF, -INF], [-INF, 1, 57344])
        assert np.array_equal(result, [NAN, INF, -INF], equal_nan=True)
    assert np.array_equal(combined(E5M2, "prod", [INF, INF], [-2, 0]), [-INF, NAN], equal_nan=True)


@pytest.mark.parametrize("op", ["sum", "prod", "max", "min", "avg"])
@pytest.mark.parametrize("dtype", [E4M3, E5M2])
def test_one_rank_gets_its_own_elements_back(dtype, op):
    every = np.arange(256, dtype=np.uint8).view(dtype).astype(np.float64)
    assert np.array_equal(combined(dtype, op, every), every, equal_nan=True)


@pytest.mark.parametrize(("dtype", "largest"), [(E4M3, 448.0), (E5M2, 57344.0)])
def test_fp8_saturates(dtype, largest):
    assert combined(dtype, "sum", [largest, -largest], [largest, -largest]).tolist() == [largest, -largest]
    assert combined(dtype, "prod", [largest, -largest], [largest, 2]).tolist() == [largest, -largest]
    assert combined(dtype, "avg", [largest], [largest]).tolist() == [largest]


def test_a_product_of_numbers_that_float32_does_not_hold_is_one_of_numbers():
    x = np.full(2, 57344, E5M2)
    bias = np.array([57344, -57344], E5M2)
    for answer in good(on_threads(8, lambda comm: comm.all_reduce(x, op="prod", bias=bias))):
        assert answer.astype(np.float64).tolist() == [57344, -57344]


def test_float16_does_not_saturate():
    assert combined(np.float16, "sum", [65504, -65504], [65504, -65504]).tolist() == [INF, -INF]


def test_averages_round_each_product():
    smallest = 2.0**-24
    assert combined(np.float16, "avg", [smallest], [smallest]).tolist() == [0.0]
    assert combined(np.float32, "avg", [3e38], [3e38]).tolist() == [np.float32(3e38)]
