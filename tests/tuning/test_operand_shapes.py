# SPDX-License-Identifier: MIT
"""Products of every shape that matmul takes can be tuned, in each of the ways, whatever numpy's error state is."""

import ml_dtypes
import numpy as np
import pytest

import rocpy

pytestmark = pytest.mark.usefixtures("memory_only")


def by_argument(*operands, **more):
    return rocpy.matmul(*operands, autotune=True, **more)


def by_switch(*operands, **more):
    with rocpy.tuning.enable(budget_ms=5):
        return rocpy.matmul(*operands, **more)


def by_plan(*operands, **more):
    with rocpy.Matmul(*operands, **more) as mm:
        report = mm.autotune(5)
        assert not [trial.dropped for trial in report.trials if "wrong" in trial.dropped]
        return mm.execute()


def ones(*shape, dtype=np.float32):
    return np.ones(shape, dtype)


F8 = ml_dtypes.float8_e4m3fn
PRODUCTS = {
    "dot float64": (ones(3, dtype="f8"), ones(3, dtype="f8"), {}),
    "dot int8": (ones(8, dtype="i1"), ones(8, dtype="i1"), {}),
    "dot float8": (ones(8, dtype=F8), ones(8, dtype=F8), {"scale_a": 1.0, "scale_b": 1.0}),
    "dot gelu": (ones(5), ones(5), {"epilogue": "gelu"}),
    "dot bias": (ones(5), ones(5), {"epilogue": "bias", "bias": ones(1)}),
    "dot gelu_aux": (ones(5), ones(5), {"epilogue": "gelu_aux"}),
    "dot dgelu_bgrad": (ones(5), ones(5), {"epilogue": "dgelu_bgrad", "aux": ones()}),
    "dot bgrada": (ones(5), ones(5), {"epilogue": "bgrada"}),
    "dot with c": (ones(5), ones(5), {"c": ones()}),
    "vector a": (ones(5), ones(5, 4), {"c": ones(4)}),
    "vector b": (ones(3, 5), ones(5), {"c": ones(3)}),
    "vector a of a batch": (ones(5), ones(2, 5, 4), {"c": ones(2, 4)}),
    "vector b of a batch": (ones(2, 3, 5), ones(5), {"c": ones(1, 3)}),
    "bgradb of a b that broadcasts": (ones(2, 3, 5), ones(1, 5, 4), {"epilogue": "bgradb"}),
    "bgrada of an a that broadcasts": (ones(1, 3, 5), ones(2, 5, 4), {"epilogue": "bgrada"}),
    "bgrada of an a without batch": (ones(3, 5), ones(2, 5, 4), {"epilogue": "bgrada"}),
    "bgradb of batches that cross": (ones(2, 1, 3, 5), ones(1, 2, 5, 4), {"epilogue": "bgradb"}),
    "c of a row": (ones(3, 5), ones(5, 4), {"c": ones(4)}),
    "c of one row": (ones(3, 5), ones(5, 4), {"c": ones(1, 4)}),
    "c of a column": (ones(3, 5), ones(5, 4), {"c": ones(3, 1)}),
    "c of a matrix in a batch": (ones(2, 3, 5), ones(2, 5, 4), {"c": ones(3, 4)}),
    "c of one number": (ones(3, 5), ones(5, 4), {"c": ones()}),
    "np.matrix": (ones(3, 5).view(np.matrix), ones(5, 4).view(np.matrix), {}),
}


def arrays_of(outputs):
    result, beside = outputs if isinstance(outputs, tuple) else (outputs, {})
    return [np.asarray(result), *(np.asarray(value) for value in beside.values())]


@pytest.mark.parametrize("tuned", [by_argument, by_switch, by_plan])
@pytest.mark.parametrize("kind", PRODUCTS)
def test_a_product_of_any_shape_is_tuned(kind, tuned):
    a, b, more = PRODUCTS[kind]
    more = dict(more)
    operands = (a, b, more.pop("c")) if "c" in more else (a, b)
    with rocpy.tuning.disable():
        expected = arrays_of(rocpy.matmul(*operands, **more))
    for actual, wanted in zip(arrays_of(tuned(*operands, **more)), expected, strict=True):
        np.testing.assert_array_equal(actual.reshape(wanted.shape), wanted)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("state", ["raise", "warn"])
@pytest.mark.parametrize("tuned", [by_argument, by_switch, by_plan])
@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_the_callers_error_state_is_not_tunings(dtype, tuned, state):
    a = np.ones((16, 30), dtype)
    a[0, 0], a[1, 0], a[2, 0], a[3, 0] = np.inf, np.nan, 1e-45, 3e38
    with np.errstate(all=state):
        tuned(a, np.zeros((30, 13), dtype))
        tuned(a, np.full((30, 13), 3, dtype))
