# SPDX-License-Identifier: MIT
"""supported() with custom epilogues: how they would be computed, without operands."""

import numpy as np
import pytest

import rocpy
from rocpy import epilogues
from rocpy.blaslt import supported


def test_ways():
    relu = rocpy.epilogue(lambda x, bias: np.maximum(x + bias, 0))
    tanh = rocpy.epilogue(lambda x, bias: np.tanh(x + bias))
    whole = rocpy.epilogue(lambda x: (x * x).astype("int32") + (x + 1))
    assert supported("float32", epilogue=relu, epilogue_inputs={"bias": "row"}).lowering == "native"
    assert supported("float32", epilogue=relu).lowering == "native"
    assert supported("bfloat16", epilogue=tanh, epilogue_inputs={"bias": ("row", "float32")}).lowering == "fused"
    assert supported("float32", epilogue=epilogues.swiglu, n=64).lowering == "fused"
    answer = supported("int8", epilogue=whole)
    assert answer.lowering == "unfused"
    assert answer.reasons
    refused = supported("int8", epilogue=whole, options={"fallback": "error"})
    assert not refused
    assert "fallback" in str(refused)
    assert not supported("complex64", epilogue=tanh)


def test_answers_are_those_of_the_product(rng):
    a, b = rng.standard_normal((6, 5), dtype=np.float32), rng.standard_normal((5, 8), dtype=np.float32)
    for function in (lambda x, s: x * s, lambda x, s: np.maximum(x, 0) + s, lambda x, s: x + s):
        epilogue = rocpy.epilogue(function)
        full = np.ones((6, 8), np.float32)
        how = rocpy.explain(a, b, epilogue=epilogue, epilogue_inputs={"s": full})
        answer = supported("float32", epilogue=epilogue, m=6, n=8, k=5)
        assert how.algorithm.lowering == answer.lowering
        assert answer.problem == how.problem


@pytest.mark.parametrize("inputs", [{"other": "row"}, {"s": "diagonal"}])
def test_wrong_inputs(inputs):
    with pytest.raises(rocpy.InvalidProblemError, match="epilogue_inputs"):
        supported("float32", epilogue=rocpy.epilogue(lambda x, s: x * s), epilogue_inputs=inputs)


def test_inputs_without_a_custom_epilogue():
    with pytest.raises(rocpy.InvalidProblemError, match="epilogue_inputs"):
        supported("float32", epilogue="relu", epilogue_inputs={})
