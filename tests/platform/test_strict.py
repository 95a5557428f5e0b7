# SPDX-License-Identifier: MIT
"""Strict mode of the host platform leaves out what AMD lists for no card; supported() tells it without the mode."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from rocpy.blaslt import supported

SCALES = {"scale_a": "scalar", "scale_b": "scalar"}
# Arguments of supported(), whether AMD lists the product for a card.
QUESTIONS = [
    ({"a": "float64"}, True),
    ({"a": "float64", "epilogue": "bias"}, False),
    ({"a": "float64", "epilogue": "gelu"}, False),
    ({"a": "float32", "epilogue": "gelu_bias"}, True),
    ({"a": "float32", "epilogue": "dgelu_bgrad"}, True),
    ({"a": "float32", "epilogue": "dgelu_bgrad", "batch": 3}, False),
    ({"a": "float16", "epilogue": "bgrada", "batch": 2}, False),
    ({"a": "float16", "epilogue": "relu_aux"}, True),
    ({"a": "int8"}, True),
    ({"a": "int8", "dtype": "float32", **SCALES}, False),
    ({"a": "float8_e4m3fn", "dtype": "float32", **SCALES}, True),
    ({"a": "float8_e4m3fn", "dtype": "float32", **SCALES, "epilogue": "relu_aux"}, False),
    ({"a": "float8_e4m3fn", "dtype": "float32", **SCALES, "epilogue": "gelu_aux"}, True),
    ({"a": "float8_e4m3fnuz", "dtype": "float32", **SCALES}, False),
]


def ask(strict: str, release: str = "10.0") -> list[str]:
    """How a process computes each product."""
    program = (
        "import json, sys\nfrom rocpy.blaslt import supported\n"
        "print(json.dumps([supported(one.pop('a'), **one).lowering for one in json.loads(sys.argv[1])]))"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", program, json.dumps([question for question, _ in QUESTIONS])],
        env={**os.environ, "ROCPY_PLATFORM": "host", "ROCPY_HOST_STRICT": strict, "ROCPY_HOST_ABI": release},
        capture_output=True,
        text=True,
        check=True,
    )
    found: list[str] = json.loads(done.stdout)
    return found


def test_strict_mode_leaves_extensions_out():
    """The binding's list and the platform's own are the same: neither reads the other's."""
    for (question, listed), lowering in zip(QUESTIONS, ask("1"), strict=True):
        assert (lowering == "native") == listed, question
    for (question, _), lowering in zip(QUESTIONS, ask("0"), strict=True):
        assert lowering == "native", question


def test_strict_mode_takes_the_dialect_of_the_releases_card():
    answers = {question["a"]: lowering for (question, _), lowering in zip(QUESTIONS, ask("1", "6.4"), strict=True)}
    assert answers["float8_e4m3fnuz"] == "native"
    assert answers["float8_e4m3fn"] == "unfused"


@pytest.mark.parametrize(("question", "listed"), QUESTIONS)
def test_supported_tells_extensions(question, listed):
    question = dict(question)
    answer = supported(question.pop("a"), **question, extensions=False)
    assert bool(answer) == listed
    assert listed or "extension of the host platform" in str(answer)


ROWS_IN_ROW_ORDER = """
import ctypes, numpy as np, rocpy
lt = ctypes.CDLL(rocpy.platform.current().libraries["hipblaslt"].path)
def made(function, *arguments):
    box = ctypes.c_void_p()
    assert function(ctypes.byref(box), *arguments) == 0
    return box
layouts = []
for rows, columns in ((4, 5), (5, 6), (4, 6), (4, 6)):
    extents = ctypes.c_uint64(rows), ctypes.c_uint64(columns), ctypes.c_int64(columns)
    layout = made(lt.hipblasLtMatrixLayoutCreate, 0, *extents)
    assert lt.hipblasLtMatrixLayoutSetAttribute(layout, 3, ctypes.byref(ctypes.c_int32(1)), ctypes.c_size_t(4)) == 0
    layouts.append(layout)
count = ctypes.c_int()
assert lt.hipblasLtMatmulAlgoGetHeuristic(
    made(lt.hipblasLtCreate), made(lt.hipblasLtMatmulDescCreate, 2, 0), *layouts,
    made(lt.hipblasLtMatmulPreferenceCreate), 1, (ctypes.c_char * 56)(), ctypes.byref(count)) == 0
print(count.value)
"""


@pytest.mark.parametrize(("strict", "count"), [("0", 1), ("1", 0)])
def test_row_order_is_refused_in_strict_mode(strict, count):
    done = subprocess.run(
        [sys.executable, "-P", "-c", ROWS_IN_ROW_ORDER],
        env={**os.environ, "ROCPY_PLATFORM": "host", "ROCPY_HOST_STRICT": strict},
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(done.stdout) == count


COMPOSED_BY_WHAT_IS_LISTED = """
import numpy as np, rocpy
rng = np.random.default_rng(3)
a, b, bias = rng.standard_normal((5, 24))[:, ::2], rng.standard_normal((12, 7)), rng.standard_normal(7)
# A copied operand: the product with a bias in float64, which is listed for no card, serves no more than for others.
with rocpy.Matmul(a, b, bias=bias, epilogue="sigmoid_bias") as planned:
    assert {each.lowering for each in planned.plan()} == {"unfused"}
    found = planned.execute()
expected = 1 / (1 + np.exp(-(a @ b + bias)))
np.testing.assert_allclose(found, expected, rtol=1e-13)
np.testing.assert_array_equal(rocpy.matmul(a, b, bias=bias, epilogue="sigmoid_bias"), found)
assert rocpy.explain(a, b, bias=bias, epilogue="sigmoid_bias").algorithm.lowering == "unfused"

# Integers that give floats, which no card has: the product that a function of the user's follows is composed itself.
x, y = rng.integers(-9, 9, (5, 12), np.int8), rng.integers(-9, 9, (12, 7), np.int8)
scaled = rocpy.epilogue(lambda z, factor: np.maximum(z * factor, -3.0))
exact = np.maximum((x.astype(np.int64) @ y) * 0.25, -3.0)
given = {"epilogue": scaled, "epilogue_inputs": {"factor": np.full(7, 0.25, np.float32)}}
for scales in ({}, {"scale_a": 1.0, "scale_b": 1.0, "dtype": "float32"}):
    np.testing.assert_array_equal(rocpy.matmul(x, y, **given, **scales), exact)
    with rocpy.Matmul(x, y, **given, **scales) as planned:
        planned.plan()
        np.testing.assert_array_equal(planned.execute(), exact)
        planned.reset_operands(a=-x)
        np.testing.assert_array_equal(planned.execute(), np.maximum((-x.astype(np.int64) @ y) * 0.25, -3.0))
    try:
        rocpy.matmul(x, y, options={"fallback": "error"}, **given, **scales)
    except rocpy.UnsupportedError:
        continue
    raise AssertionError("composed although that was forbidden")
"""


def test_what_no_card_has_is_composed_of_what_one_has(run_python):
    run_python(COMPOSED_BY_WHAT_IS_LISTED, ROCPY_PLATFORM="host", ROCPY_HOST_STRICT="1")
