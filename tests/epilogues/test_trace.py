# SPDX-License-Identifier: MIT
"""Tracing: what functions become, what is refused and where, and expressions as data."""

import copy
import functools
import math
import pickle
import re

import numpy as np
import pytest

import rocpy
from rocpy.epilogues import CustomEpilogue, Expression


def text_of(function):
    return str(rocpy.epilogue(function).expression).partition(" = ")[2]


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda x, b: x + b * 2, "x + b * 2"),
        (lambda x, b: 2 * (x - b) / 3.0, "(x - b) * 2 / 3.0"),
        (lambda x: 1 - -x, "1 - -x"),
        (lambda x: np.float64(2) * x, "x * 2.0"),
        (lambda x: np.maximum(x, 0) + np.minimum(x, 1), "maximum(x, 0) + minimum(x, 1)"),
        (lambda x: abs(np.exp(np.negative(x))), "abs(exp(-x))"),
        (lambda x: np.where((x > 0) & ~(x >= 3), x, 0.5), "where((x > 0) & ~(x >= 3), x, 0.5)"),
        (lambda x: x.clip(0, 6).astype(np.int8), "clamp(x, 0, 6).to(int8)"),
        (lambda x: x.clip(max=6), "clamp_max(x, 6)"),
        (lambda x: x**3, "x * (x * x)"),
        (lambda x: x**-0.5, "rsqrt(x)"),
        (lambda x: x**-1, "1 / x"),
        (lambda x: -((x + 1) ** -3) * 2, "-(x + 1) ** -3 * 2"),
        (lambda x: x * np.array(2, np.int8), "x * int8(2)"),
        (lambda x: (x.astype("float32") * 2).astype(x.dtype), "cast_like(x.to(float32) * 2, x)"),
        (lambda x: x[..., ::2] * x[..., 1::2], "x[..., 0::2] * x[..., 1::2]"),
        (lambda x: (x, x + 1), "(x, x + 1)"),
        (lambda x: (x,), "(x,)"),
        (lambda x: (x + 1) * (1 + x), "t1 * t1 where t1 = x + 1"),
        (lambda x: x * math.sqrt(2.0) * 1, "x * 1.4142135623730951"),
        (lambda x: round(x), "round(x)"),
    ],
)
def test_functions_become_expressions(function, text):
    assert text_of(function) == text


def test_constants_are_folded_and_common_parts_shared():
    @rocpy.epilogue
    def f(x, b):
        scale = np.sqrt(2.0) * 3  # no traced value: numpy's own
        y = np.tanh(x + b)
        return y * scale + np.tanh(b + x) * 0 + np.tanh(x + b)

    ops = [node.op for node in f.expression.nodes]
    assert ops.count("tanh") == 2  # x + b and b + x are two sums; equal texts are one
    folded = f.expression.with_values({"b": 2})
    assert "input" not in [node.op for node in folded.nodes]


def test_numbers_in_the_place_of_inputs_are_folded():
    f = rocpy.epilogue(lambda x, low, high: np.clip(x, low + 1, high * 2))
    assert str(f.expression.with_values({"low": -2, "high": 4.0})).endswith("clamp(x, -1, 8.0)")


NUMPY_NAMES = [
    "float",
    "int",
    "half",
    "double",
    "short",
    "long",
    "bool",
    *"?bBhilefd",
    "u1",
    "i2",
    "i8",
    "f2",
    "f8",
    ">f4",
]


@pytest.mark.parametrize("name", NUMPY_NAMES)
def test_types_have_numpys_names(name):
    assert text_of(lambda x: x.astype(name)) == f"x.to({np.dtype(name).name})"


@pytest.mark.torch
def test_arguments_of_casts(torch):
    for allowed in (
        lambda x: x.to(torch.float16, copy=True),
        lambda x: x.to(torch.float16, non_blocking=True, memory_format=torch.preserve_format),
        lambda x: x.astype("f2", order="C", casting="unsafe", subok=False, copy=False),
        lambda x: x.astype("f2", "K", "unsafe"),
        lambda x: x.type(torch.half),
    ):
        assert text_of(allowed) == "x.to(float16)"
    for text, refused in {
        "junk= is not an argument": lambda x: x.to(torch.half, junk=3),
        "casting='safe'": lambda x: x.astype("f2", casting="safe"),
        "casting='same_kind'": lambda x: x.astype("f2", "K", "same_kind"),
        "another device": lambda x: x.to(device="cpu", dtype=torch.half),
    }.items():
        with pytest.raises(rocpy.UnsupportedError, match=rf"test_trace.py:.*{text}"):
            rocpy.epilogue(refused)


@pytest.mark.torch
def test_functions_of_torch(torch):
    F = torch.nn.functional
    assert text_of(lambda x, b: F.silu(x + b)) == "silu(x + b)"
    assert text_of(lambda x: F.gelu(x)) == "gelu(x)"
    assert text_of(lambda x: F.gelu(x, approximate="tanh")) == "gelu_tanh(x)"
    assert text_of(lambda x: torch.nn.SiLU()(x)) == "silu(x)"
    assert text_of(lambda x: torch.clamp(x, min=0, max=6).to(torch.int8)) == "clamp(x, 0, 6).to(int8)"
    assert text_of(lambda x: F.relu6(x)) == "clamp(x, 0, 6)"
    assert text_of(lambda x: F.leaky_relu(x, 0.1)) == "where(x > 0, x, x * 0.1)"
    gated = "where(x <= -3, -0.0, where(x >= 3, x, x * clamp(x + 3, 0, 6) / 6))"
    assert text_of(lambda x: F.hardswish(x)) == gated
    assert text_of(lambda x: F.hardsigmoid(x)) == "clamp(x + 3, 0, 6) / 6"
    assert text_of(lambda x, y: x.masked_fill(~y, -1.0)) == "where(~y, cast_like(-1.0, x), x)"
    assert text_of(lambda x, y: torch.addcmul(y, x, y, value=0.5)) == "y + x * y * 0.5"
    assert text_of(lambda x, y: torch.lerp(y, x, 0.5)) == "x - (x - y) * 0.5"
    assert text_of(lambda x: torch.tensor(2.0) - x) == "float32(2.0) - x"
    assert (
        text_of(lambda x: torch.where(x > 0, x.float(), -x).bfloat16())
        == "where(x > 0, x.to(float32), -x).to(bfloat16)"
    )
    assert text_of(lambda x, b: torch.add(x, b, alpha=2)) == "x + b * 2"
    assert text_of(lambda x: torch.rsqrt(torch.square(x)).sigmoid()) == "sigmoid(rsqrt(x * x))"
    assert text_of(lambda x, m: x.type_as(m)) == "cast_like(x, m)"


def branches(x):
    if x > 0:
        return x
    return -x


def unknown(x):
    return np.arctan(x)


def reduces(x):
    return x - x.sum()


def multiplies(x, w):
    return x @ w


def indexes(x):
    return x[0]


def in_place(x, b):
    x += b
    return x


def writes(x):
    x[..., 0] = 1
    return x


def closes_over(x):
    return x + np.ones(3)


def asks_shape(x):
    return x / x.shape[0]


def floats(x):
    return math.exp(x)


def iterates(x):
    return sum(v for v in x)


def compares_types(x):
    return x if x.dtype == np.float32 else -x


def mixes(x):
    return x[..., ::2] + x


def powers(x):
    return x**2.5


def writes_out(x):
    return np.add(x, 1, out=x)


def reduces_by_ufunc(x):
    return np.add.reduce(x)


@pytest.mark.parametrize(
    ("function", "error", "words"),
    [
        (branches, rocpy.UnsupportedError, "where(condition"),
        (unknown, rocpy.UnsupportedError, "numpy.arctan"),
        (reduces, rocpy.InvalidProblemError, "another shape"),
        (multiplies, rocpy.InvalidProblemError, "another shape"),
        (indexes, rocpy.InvalidProblemError, "[..., 0::2]"),
        (in_place, rocpy.UnsupportedError, "y = x + b"),
        (writes, rocpy.UnsupportedError, "write into"),
        (closes_over, rocpy.InvalidOperandError, "epilogue_inputs"),
        (asks_shape, rocpy.InvalidProblemError, "shape"),
        (floats, rocpy.UnsupportedError, "math"),
        (iterates, rocpy.InvalidProblemError, "shape"),
        (compares_types, rocpy.UnsupportedError, "types"),
        (mixes, rocpy.InvalidProblemError, "half"),
        (powers, rocpy.UnsupportedError, "2.5"),
        (writes_out, rocpy.UnsupportedError, "write into"),
        (reduces_by_ufunc, rocpy.UnsupportedError, "element by element"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_what_cannot_be_traced_names_the_line(function, error, words):
    with pytest.raises(error) as caught:
        rocpy.epilogue(function)
    place = f"{__file__}:{function.__code__.co_firstlineno + 1}: "
    assert str(caught.value).startswith(place)
    assert words in str(caught.value)


AS_VALUES = {
    "np.array": lambda x: np.array(x),
    "dlpack": lambda x: np.from_dlpack(x),
    "pow": lambda x: pow(x, 2, 3),
    "key": lambda x: {x: 1}[x],
    "set": lambda x: {x},
    "format": lambda x: f"{x:.2f}",
    "call": lambda x: x(),
    "bytes": lambda x: bytes(x),
}


@pytest.mark.parametrize("how", AS_VALUES)
def test_what_needs_values_names_the_line(how):
    with pytest.raises(rocpy.UnsupportedError, match=f"^{re.escape(__file__)}:"):
        rocpy.epilogue(AS_VALUES[how])


def test_copies_and_text_of_what_is_traced():
    assert text_of(lambda x: copy.deepcopy(x) + copy.copy(x) * len(f"{x}")).startswith("x + x * ")


@pytest.mark.parametrize(
    "function",
    [
        lambda x, *rest: x,
        lambda x, **rest: x,
        lambda x, b="high": x,
        lambda x=1: x,
        lambda: 1,
        lambda x: 3.0,
        lambda x: (),
        lambda x, b: b * 2,
        lambda x: [x, x],
    ],
)
def test_functions_that_are_no_epilogues(function):
    with pytest.raises(rocpy.InvalidProblemError) as caught:
        rocpy.epilogue(function)
    assert str(caught.value).startswith(f"{__file__}:{function.__code__.co_firstlineno}: ")


OTHERS = [
    "np.tanh",
    "torch.relu",
    "torch.nn.functional.silu",
    "torch.nn.functional.leaky_relu",
    "torch.nn.Tanh()",
    "torch.nn.ReLU()",
    "functools.partial(torch.nn.functional.gelu, approximate='tanh')",
]


@pytest.mark.parametrize("written", OTHERS)
def test_functions_of_packages_are_to_be_wrapped(torch, written):
    f = eval(written, {"np": np, "torch": torch, "functools": functools})
    with pytest.raises(rocpy.InvalidOperandError, match=f"{re.escape(__file__)}:.*; wrap it: lambda x: ") as caught:
        rocpy.epilogue(f)
    advice = str(caught.value).rpartition("wrap it: ")[2]
    wrapped = eval(advice, {"f": f, getattr(f, "__name__", "f"): f})
    assert len(rocpy.epilogue(wrapped).expression.nodes) > 1


def test_functions_of_packages_whose_parameters_are_operands(torch):
    assert text_of(torch.nn.functional.tanh) == "tanh(x)"
    assert text_of(abs) == "abs(x)"


def test_a_class_is_no_function(torch):
    with pytest.raises(rocpy.InvalidOperandError, match=r"GELU: a class; pass a function: lambda x: GELU\(\)\(x\)"):
        rocpy.epilogue(torch.nn.GELU)


def scaled(x, s, t, u=1.0):
    return x * s + t * u


@pytest.mark.parametrize(
    ("function", "inputs", "text"),
    [
        (functools.partial(scaled, u=2.0), ("s", "t"), "x * s + t * 2.0"),
        (functools.partial(scaled, t=3.0, u=2.0), ("s",), "x * s + 6.0"),
        (functools.partial(functools.partial(scaled, u=2.0), u=4.0), ("s", "t"), "x * s + t * 4.0"),
    ],
)
def test_arguments_that_a_partial_sets_are_constants(function, inputs, text):
    epilogue = rocpy.epilogue(function)
    assert (epilogue.inputs, text_of(function)) == (inputs, text)
    x = np.ones(2, np.float32)
    np.testing.assert_array_equal(epilogue(x, *(5.0,) * len(inputs)), function(x, *(5.0,) * len(inputs)))


def test_parameters_behind_one_that_a_partial_sets():
    with pytest.raises(rocpy.InvalidProblemError, match=r"test_trace.py:.*keyword-only parameters, behind s, which"):
        rocpy.epilogue(functools.partial(scaled, s=2.0))


def test_not_callable():
    with pytest.raises(rocpy.InvalidOperandError, match="function"):
        rocpy.epilogue(3)


def test_called_on_arrays_it_is_the_function():
    seen = []

    @rocpy.epilogue
    def spy(x, b=1.0):
        seen.append(x)
        return x + b

    assert spy.__name__ == "spy"
    x = np.ones(3)
    assert spy(x, 2.0).tolist() == [3, 3, 3]
    assert seen[-1] is x


def test_json_pickle_equality():
    @rocpy.epilogue
    def f(x, bias, top=6.0):
        return np.where(x > -np.inf, np.clip(x + bias, -0.0, top), np.nan), x

    other = CustomEpilogue.from_json(f.to_json())
    assert other == f
    assert hash(other) == hash(f)
    assert CustomEpilogue.from_dict(f.to_dict()) == f
    again = pickle.loads(pickle.dumps(f))
    assert again == f
    x, bias = np.linspace(-2, 9, 12, dtype=np.float32).reshape(3, 4), np.ones(4, np.float32)
    for mine, theirs in zip(again(x, bias), f(x, bias), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert rocpy.epilogue(lambda x: x * 1.0).expression != rocpy.epilogue(lambda x: x * 1).expression
    assert rocpy.epilogue(lambda x: x + 0.0).expression != rocpy.epilogue(lambda x: x + -0.0).expression
    assert f != 3


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2},
        {"nodes": [["x"], ["boom", 0]]},
        {"nodes": [["x"], ["add", 0, 5]]},
        {"nodes": [["add", 0, 1], ["x"]]},
        {"nodes": [["x"], ["cast", 0, "complex64"]]},
        {"nodes": [["x"], ["input", "other"]]},
        {"outputs": [7]},
        {"outputs": []},
        {"single": "yes"},
        {"nodes": 3},
    ],
)
def test_records_that_are_none(change):
    record = rocpy.epilogue(lambda x, b: x + b).to_dict()
    with pytest.raises(rocpy.InvalidProblemError):
        Expression.from_dict({**record, **change})


def test_no_json():
    with pytest.raises(rocpy.InvalidProblemError):
        Expression.from_json("{")


@pytest.mark.parametrize(
    ("function", "x", "inputs", "expected"),
    [
        (lambda x, b: x + b, "bfloat16", {"b": ("float32", 2)}, "float32"),
        (lambda x, b: x + b, "bfloat16", {"b": ("float32", 1)}, "bfloat16"),
        (lambda x, b: x + b, "bfloat16", {"b": ("float16", 2)}, "float32"),
        (lambda x: x * 2.5, "float16", {}, "float16"),
        (lambda x: x * 2, "int32", {}, "int32"),
        (lambda x: x * 2.5, "int32", {}, "float32"),
        (lambda x: np.exp(x), "int32", {}, "float32"),
        (lambda x: x / 2, "int32", {}, "float32"),
        (lambda x, m: x * m, "float64", {"m": ("bool", 2)}, "float64"),
        (lambda x: np.where(x > 0, 1.0, 0.0), "bfloat16", {}, "float32"),
        (lambda x: x.astype(np.float16) + x, "float64", {}, "float64"),
        (lambda x: x > 0, "float32", {}, "bool"),
    ],
)
def test_types_are_those_of_torch(function, x, inputs, expected):
    expression = rocpy.epilogue(function).expression
    assert expression.types(x, inputs)[expression.outputs[0]] == expected


@pytest.mark.torch
@pytest.mark.parametrize("x_type", ["float16", "bfloat16", "float32", "float64", "int32"])
@pytest.mark.parametrize("b_type", ["bool", "uint8", "int8", "int32", "float16", "bfloat16", "float32", "float64"])
def test_promotion_against_torch(torch, x_type, b_type):
    functions = [
        lambda x, b: x * b,
        lambda x, b: x / b + 1.5,
        lambda x, b: torch.where(x > 1, x, b),
        lambda x, b: x * 2,
    ]
    for shape in ((2, 3), (3,), ()):
        x = torch.ones(2, 3, dtype=getattr(torch, x_type))
        b = torch.ones(shape, dtype=getattr(torch, b_type))
        for function in functions:
            expression = rocpy.epilogue(function).expression
            types = expression.types(x_type, {"b": (b_type, 2 if shape else 1)})
            assert f"torch.{types[expression.outputs[0]]}" == str(function(x, b).dtype)


def test_truth_values_have_no_arithmetic():
    f = rocpy.epilogue(lambda x: (x > 0) + (x > 1))
    with pytest.raises(rocpy.InvalidProblemError, match="cast"):
        f.evaluate(np.ones((1, 1), np.float32))


def test_repr_is_readable():
    @rocpy.epilogue
    def gated(x, bias, residual):
        return np.tanh(x + bias) * 0.5 + residual

    assert repr(gated) == "<rocpy epilogue gated(x, bias, residual) = tanh(x + bias) * 0.5 + residual>"
    assert re.fullmatch(r"<rocpy epilogue f\(x\) = x \* 2>", repr(rocpy.epilogue(lambda x: 2 * x)))
