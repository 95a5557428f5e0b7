# SPDX-License-Identifier: MIT
"""supported(): it answers as the product itself would, gives reasons, and raises for nonsense only."""

from __future__ import annotations

import numpy as np
import pytest

import rocpy
from rocpy import dtypes
from rocpy.blaslt import OperandInfo, Problem, supported
from rocpy.blaslt.model.epilogues import EPILOGUES
from rocpy.errors import InvalidOperandError, InvalidProblemError
from rocpy.testing import ORACLES, Case
from rocpy.testing.runner import keywords, make_operands


@pytest.mark.parametrize("epilogue", EPILOGUES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_it_agrees_with_the_plan_of_real_operands(epilogue, dtype, layout):
    # What a device of its own memory multiplies are copies, which lie in rows.
    lies = layout if rocpy.platform.current().host_memory else "nn"
    answer = supported(dtype, epilogue=epilogue, layout=lies, m=17, n=33, k=9)
    case = Case(17, 33, 9, dtype, epilogue=epilogue, layout=layout)
    arrays = make_operands(case)
    with rocpy.Matmul(arrays.pop("a"), arrays.pop("b"), **arrays, **keywords(case)) as mm:
        found = mm.plan()
        assert answer
        assert answer.problem == mm.problem or ORACLES[epilogue].takes_clamp  # the bounds are not asked about
        assert answer.lowering == found[0].lowering
        assert answer.algorithms == len(found)
        assert bool(answer.reasons) == (answer.lowering == "unfused")
        assert supported(mm.problem) == answer or ORACLES[epilogue].takes_clamp


@pytest.mark.parametrize(
    ("types", "arguments", "words"),
    [
        (("float32", "float64"), {}, "a is float32 and b is float64"),
        (("float32",), {"dtype": "float16"}, "cannot return float16"),
        (("float64",), {"compute": "tf32"}, "compute='tf32'"),
        (("float32",), {"m": 2**31}, "m = 2147483648"),
        (("int32",), {}, "products of int32 are not supported"),
        (("float32",), {"epilogue": "gelu_bias", "bias": "float16"}, "bias is float16"),
        (("float32",), {"m": -1}, "m=-1"),
    ],
)
def test_no_with_a_reason(types, arguments, words):
    answer = supported(*types, **arguments)
    assert not answer
    assert words in answer.reasons[0]
    assert str(answer).startswith("no: ")
    assert (answer.lowering, answer.algorithms) == ("", 0)


def test_no_where_only_a_composition_is_left(without_programs):
    answer = supported("float32", epilogue="gelu_erf", options={"fallback": "error"})
    assert not answer
    assert "fallback='error'" in answer.reasons[0]


@pytest.mark.parametrize(
    ("types", "arguments", "error"),
    [
        (("floaty",), {}, InvalidOperandError),
        (("float32",), {"epilogue": "geluu"}, InvalidProblemError),
        (("float32",), {"layout": "nx"}, InvalidProblemError),
        (("float32",), {"options": {"quick": True}}, InvalidProblemError),
        (("float32",), {"bias": "rows"}, InvalidOperandError),
        (("float32",), {"bias": "rows", "epilogue": "bias"}, InvalidOperandError),
    ],
)
def test_nonsense_is_refused(types, arguments, error):
    with pytest.raises(error):
        supported(*types, **arguments)


def test_every_spelling_of_a_type():
    assert supported(np.float32, np.dtype("float32"), epilogue=rocpy.Epilogue.RELU) == supported(
        "float32", epilogue="relu"
    )


@pytest.mark.torch
def test_torch_types(torch):
    assert supported(torch.bfloat16, dtype=torch.float32).problem == supported("bfloat16", dtype="float32").problem


def test_batches_and_a_bias_per_row():
    assert supported("float32", batch=3).problem.batch_shape == (3,)
    assert supported("float32", batch=(2, 1)).problem.batch_shape == (2, 1)
    turned = supported("float32", epilogue="gelu_aux_bias", bias="column", c=True, batch=3, m=5)
    assert turned.problem.column_bias
    assert turned.lowering == "native"
    assert turned.algorithms > 0


def test_an_empty_result_needs_no_algorithm():
    answer = supported("float32", m=0)
    assert answer
    assert answer.algorithms == 0
    assert str(answer) == f"yes, native on {rocpy.platform.current().name}"


def test_odd_layouts_are_copied_or_refused():
    strided = OperandInfo((4, 4), (16, 2), "float32")
    problem = Problem.make(strided, strided)
    assert supported(problem).copies == ("a", "b")
    assert "copied first: a, b" in str(supported(problem))
    refused = supported(problem, options={"copies": "error"})
    assert not refused
    assert "copies='error'" in refused.reasons[0]


def test_a_problem_that_was_stored():
    problem = supported("float16", epilogue="silu_bias", m=3).problem
    assert supported(Problem.from_json(problem.to_json()))


def test_a_packed_weight():
    answer = supported("float32", epilogue="gelu_bias", packed=True)
    assert answer
    assert answer.problem.b.packed


def test_nothing_is_allocated_for_operands():
    # Operands of two terabytes; any attempt to make them would fail.
    extent = 2**19
    answer = supported("float64", m=extent, n=extent, k=extent)
    assert answer.problem.bytes > 2**42
    assert answer


def test_a_scale_and_scales_of_lines_are_one_kind():
    """As for matmul, which spreads the one scale."""
    answer = supported("float8_e4m3fn", scale_a="vector", scale_b="scalar")
    assert answer.lowering == supported("float8_e4m3fn", scale_a="vector", scale_b="vector").lowering
    assert answer.problem.scale_b == "vector"


def test_no_products_are_an_empty_batch():
    assert supported("float32", batch=0).problem.batch_shape == (0,)


MX = ("float8_e4m3fn", "float8_e5m2", "float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn")


@pytest.mark.parametrize("dtype", MX)
@pytest.mark.parametrize("layout", ["n", "t"])
@pytest.mark.parametrize("bias", [None, "column"])
def test_a_packed_weight_of_blocks_in_every_layout_of_a(dtype, layout, bias):
    keywords = {"epilogue": "relu_bias" if bias else "relu", "options": {"fallback": "error"}}
    asked = {"m": 64, "n": 64, "k": 64, "scale_a": "block32", "scale_b": "block32", "bias": bias}
    answer = supported(dtype, layout=f"{layout}n", packed=True, **asked, **keywords)
    x = np.ones((64, 64), np.float32)
    a, scale_a = rocpy.quantize_mx(x, dtype)
    b, scale_b = rocpy.quantize_mx(x, dtype, axis=-2)
    a = np.asfortranarray(a) if layout == "t" else a
    operands = {"scale_a": scale_a, "bias": np.ones((64, 1), np.float32)} if bias else {"scale_a": scale_a}
    if answer:
        rocpy.matmul(a, rocpy.Weight(b, scale=scale_b), **operands, **keywords)
        assert ("a" in answer.copies) == (layout == "t")
    else:
        with pytest.raises(rocpy.UnsupportedError):
            rocpy.matmul(a, rocpy.Weight(b, scale=scale_b), **operands, **keywords)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_a_packed_weight_beside_a_bias_for_each_row(dtype):
    keywords = {"epilogue": "bias", "options": {"fallback": "error"}}
    answer = supported(dtype, bias="column", packed=True, m=4, n=4, k=4, **keywords)
    x = np.ones((4, 4), dtypes.lookup(dtype).numpy)
    assert bool(answer) == bool(supported(dtype, bias="column", m=4, n=4, k=4, **keywords))
    if answer:
        rocpy.matmul(x, rocpy.Weight(x), bias=x[:, :1], **keywords)
