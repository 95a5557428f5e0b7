# SPDX-License-Identifier: MIT
"""Products with an addend, whose rows a custom epilogue reads in pairs of columns or as they are."""

import numpy as np
import pytest

import rocpy

EPILOGUES = {
    "halved": lambda x: np.tanh(x[..., ::2]) * x[..., 1::2],
    "halved, with a bias": lambda x, bias: np.tanh((x + bias)[..., ::2]) * (x + bias)[..., 1::2],
    "halved, with an input": lambda x, half: x[..., ::2] + x[..., 1::2] * half,
    "halved, of two results": lambda x: (x[..., ::2] * 2, x[..., 1::2]),
    "whole": lambda x: np.tanh(x) * 2,
    "whole, with a bias": lambda x, bias: np.tanh(x + bias),
}


@pytest.fixture(params=["numpy", "torch"])
def library(request):
    return pytest.importorskip("torch").from_numpy if request.param == "torch" else np.asarray


def case(rng, name, library):
    """Return operands, inputs, the epilogue, and what it computes of alpha and beta."""
    a, b, c = (rng.standard_normal(shape, dtype=np.float32) for shape in ((5, 3), (3, 8), (5, 8)))
    inputs = {"bias": rng.standard_normal(8, dtype=np.float32), "half": rng.standard_normal((5, 4), dtype=np.float32)}
    epilogue = rocpy.epilogue(EPILOGUES[name])
    inputs = {key: value for key, value in inputs.items() if key in epilogue.inputs}

    def expected(alpha, beta):
        result = EPILOGUES[name](alpha * (a @ b) + beta * c, **inputs)
        return result if isinstance(result, tuple) else (result,)

    return *map(library, (a, b, c)), {key: library(value) for key, value in inputs.items()}, epilogue, expected


def check(found, expected):
    found = found if isinstance(found, tuple) else (found,)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(np.asarray(one), other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("factors", [(1.0, 1.0), (0.5, 2.0), (1.0, 0.0), (1.0, -1.0)], ids=str)
@pytest.mark.parametrize("name", EPILOGUES)
def test_an_addend_is_added_before_the_epilogue(rng, library, name, factors):
    a, b, c, inputs, epilogue, expected = case(rng, name, library)
    alpha, beta = factors
    arguments = {"alpha": alpha, "beta": beta, "epilogue": epilogue, "epilogue_inputs": inputs}
    check(rocpy.matmul(a, b, c, **arguments), expected(alpha, beta))
    with rocpy.Matmul(a, b, c, **arguments) as product:
        product.plan()
        check(product.execute(), expected(alpha, beta))
        product.reset_operands(a=a, beta=3.0)
        check(product.execute(), expected(alpha, 3.0))
    check(rocpy.matmul(a, b, c, epilogue=epilogue, epilogue_inputs=inputs), expected(1.0, 1.0))


@pytest.mark.parametrize("name", EPILOGUES)
def test_explain_says_how_an_addend_is_computed(rng, library, name):
    a, b, c, inputs, epilogue, _ = case(rng, name, library)
    how = rocpy.explain(a, b, c, epilogue=epilogue, epilogue_inputs=inputs)
    strict = {"epilogue": epilogue, "epilogue_inputs": inputs, "options": {"fallback": "error"}}
    if how.algorithm.lowering == "unfused":
        with pytest.raises(rocpy.UnsupportedError, match="fallback"):
            rocpy.matmul(a, b, c, **strict)
    else:
        rocpy.matmul(a, b, c, **strict)


def test_programs_of_pairs_take_no_addend(rng):
    a, b, c, inputs, epilogue, _ = case(rng, "halved", np.asarray)
    how = rocpy.explain(a, b, c, epilogue=epilogue, epilogue_inputs=inputs)
    assert how.algorithm.lowering == "unfused"
    assert "pairs of columns" in str(how)
    assert rocpy.explain(a, b, epilogue=epilogue, epilogue_inputs=inputs).algorithm.lowering == "fused"
