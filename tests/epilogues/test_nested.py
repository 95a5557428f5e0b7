# SPDX-License-Identifier: MIT
"""Epilogues inside of functions that become epilogues: those of a function, ready-made ones, unpickled ones."""

import pickle

import numpy as np
import pytest

import rocpy
from rocpy import epilogues
from rocpy.epilogues import CustomEpilogue

OWN = rocpy.epilogue(lambda x, s, t=2.0: np.tanh(x * s) + t)
UNPICKLED = CustomEpilogue.from_json(OWN.to_json())


@pytest.mark.parametrize(
    "function",
    [
        lambda x, r: epilogues.softcap(x) + r,
        lambda x, r: epilogues.softcap(x, 2.0) + r,
        lambda x, r: epilogues.softcap(x + r, cap=r * r + 1),
        lambda x, r: epilogues.residual_add(epilogues.bias_residual_gelu(x, r, 1.0), residual=r),
        lambda x, r: OWN(x, r) * OWN(x, 1.0, r),
        lambda x, r: UNPICKLED(x, r) * UNPICKLED(x, 1.0, t=r),
        lambda x, r: epilogues.dropout(x, x > r),
        lambda x, r: epilogues.scale_clamp_cast("int8")(x, 3.0) * r,
    ],
)
def test_values(function, rng):
    a, b, r = (rng.standard_normal(shape, dtype=np.float32) for shape in ((3, 4), (4, 6), (6,)))
    d = rocpy.matmul(a, b, epilogue=rocpy.epilogue(function), epilogue_inputs={"r": r})
    np.testing.assert_allclose(d, function(a @ b, r), rtol=1e-5, atol=1e-5)


def test_columns_of_two_weights(rng):
    a, b, r = (rng.standard_normal(shape, dtype=np.float32) for shape in ((3, 4), (4, 6), (3,)))
    for ready in (epilogues.swiglu, epilogues.geglu):
        epilogue = rocpy.epilogue(eval("lambda x, r: ready(x + 1.0) * r", {"ready": ready}))
        d = rocpy.matmul(a, b, epilogue=epilogue, epilogue_inputs={"r": r})
        np.testing.assert_allclose(d, ready.evaluate(a @ b + 1) * r, rtol=1e-5, atol=1e-5)
    with pytest.raises(rocpy.InvalidProblemError, match=r"test_nested.py:.*half"):
        rocpy.epilogue(lambda x: epilogues.swiglu(epilogues.swiglu(x)))
    with pytest.raises(rocpy.InvalidProblemError, match=r"test_nested.py:.*half"):
        rocpy.epilogue(lambda x: epilogues.swiglu(x) + x)


def test_wrong_inputs_are_refused():
    for call, words in (
        (lambda x: epilogues.residual_add(x), "needs 'residual'"),
        (lambda x: epilogues.softcap(x, gap=1), "no input 'gap'"),
        (lambda x: epilogues.softcap(x, 1, 2), "takes 1 inputs, got 2"),
        (lambda x: epilogues.softcap(x, "2"), "str"),
        (lambda x: epilogues.residual_add(np.ones(3), x), "an array of shape"),
    ):
        with pytest.raises(rocpy.RocpyError, match=words):
            rocpy.epilogue(call)


def test_a_nested_epilogue_is_pickled_with_its_function():
    epilogue = rocpy.epilogue(lambda x, r: epilogues.softcap(x) + r)
    assert pickle.loads(pickle.dumps(epilogue)) == epilogue
    assert str(epilogue.expression) == "f(x, r) = tanh(x / 30.0) * 30.0 + r"
