# SPDX-License-Identifier: MIT
"""Numbers in epilogues, constants and those passed as inputs: folded as they would be computed, of every kind."""

import decimal
import enum
import functools
import math
import numbers
import pickle

import ml_dtypes
import numpy as np
import pytest

import rocpy
from rocpy.epilogues import CustomEpilogue

SPECIAL = [math.nan, math.inf, -math.inf, 0.0, -0.0, 0.4, -0.4, -0.5, 1e6, -1e6, -2000.0]
E4M3 = ml_dtypes.float8_e4m3fn
ONE = np.ones((1, 1), np.float32)


def functions_of_one_number():
    import torch

    F = torch.nn.functional
    return {
        "neg": lambda s: -s,
        "abs": abs,
        "relu": torch.relu,
        "exp": torch.exp,
        "log": torch.log,
        "sqrt": torch.sqrt,
        "rsqrt": torch.rsqrt,
        "tanh": torch.tanh,
        "erf": torch.erf,
        "sigmoid": torch.sigmoid,
        "silu": F.silu,
        "gelu": F.gelu,
        "gelu_tanh": lambda s: F.gelu(s, approximate="tanh"),
        "round": torch.round,
        "floor": torch.floor,
        "ceil": torch.ceil,
        "divide": lambda s: 1.0 / s,
        "divided": lambda s: s / 0.0,
        "clamp": lambda s: torch.clamp(s, -0.25, 0.25),
        "maximum": lambda s: torch.clamp(s, min=0.0),
        "power": lambda s: s**0,
        "where": lambda s: torch.where(s > 0, s, 1.0),
        "equal": lambda s: torch.where(s == s, 1.0, s),
    }


NAMES = (
    "neg abs relu exp log sqrt rsqrt tanh erf sigmoid silu gelu gelu_tanh round floor ceil divide divided clamp "
    "maximum power where equal"
)


@pytest.mark.torch
@pytest.mark.parametrize("value", SPECIAL)
@pytest.mark.parametrize("name", NAMES.split())
def test_a_number_is_computed_like_an_array(torch, name, value):
    """The product is 1; a signed zero shows as the sign of an infinity."""
    function = functions_of_one_number()[name]
    epilogues = [rocpy.epilogue(lambda x, s: x * function(s))]
    if value != 0 or name not in ("relu", "maximum"):  # the larger one of two zeros is either of them
        epilogues.append(rocpy.epilogue(lambda x, s: x / function(s)))
    for epilogue in epilogues:
        folded = rocpy.matmul(ONE, ONE, epilogue=epilogue, epilogue_inputs={"s": value})
        array = rocpy.matmul(ONE, ONE, epilogue=epilogue, epilogue_inputs={"s": np.full((1, 1), value, np.float32)})
        np.testing.assert_allclose(folded, array, rtol=2e-6, atol=1e-37)


RESULT_TYPES = [
    (lambda x, s: x * np.clip(s, 0, 6), (1.5, -1.5, 9.5), np.float32),
    (lambda x, s: x * np.minimum(s, 6), (1.5, 9.5), np.float32),
    (lambda x, s: x * np.maximum(s, 0), (1.5, -9.5, math.nan), np.float32),
    (lambda x, s: x * np.clip(3, 0, s), (1.5, 9.5), np.float32),
    (lambda x, s: x * np.where(s, 1, 2.5), (True, False), np.float32),
    (lambda x, s: x * np.where(s > 0, s, 1), (0.5, -0.5), np.float32),
    (lambda x, s: x * np.clip(s, 0, 6), (1, -1, 9), np.int32),
    (lambda x, s: x * np.where(s, 1, 2), (True, False), np.int32),
]


@pytest.mark.parametrize("place", range(len(RESULT_TYPES)))
def test_the_type_of_a_result_does_not_depend_on_a_numbers_value(place):
    function, values, dtype = RESULT_TYPES[place]
    a, identity = np.array([[7, -3]], np.int8), np.eye(2, dtype=np.int8)
    epilogue = rocpy.epilogue(function)
    for value in values:
        d = rocpy.matmul(a, identity, epilogue=epilogue, epilogue_inputs={"s": value})
        e = epilogue.evaluate(a.astype(np.int32), s=value)
        assert (d.dtype, e.dtype) == (dtype, dtype), value
        np.testing.assert_allclose(d, function(a.astype(np.float64), value))
        np.testing.assert_allclose(e, d)


@pytest.mark.parametrize(("exponent", "dtype"), [(0, np.int32), (2, np.int32), (0.0, np.float32), (2.0, np.float32)])
def test_a_power_has_the_type_of_base_and_exponent(exponent, dtype):
    a, identity = np.array([[7, -3, 0]], np.int8), np.eye(3, dtype=np.int8)
    d = rocpy.matmul(a, identity, epilogue=rocpy.epilogue(lambda x: x**exponent))
    assert d.dtype == dtype
    np.testing.assert_array_equal(d, a.astype(np.int32) ** exponent)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("exponent", [0, 0.0, np.int64(0), np.float32(0)])
def test_a_power_of_zero_is_one_of_every_number(exponent, dtype):
    x = np.array([[math.nan], [math.inf], [-math.inf], [2.0], [0.0]], dtype)
    epilogue = rocpy.epilogue(lambda x: x**exponent)
    for d in (rocpy.matmul(x, np.ones((1, 1), dtype), epilogue=epilogue), epilogue.evaluate(x)):
        assert d.dtype == dtype
        np.testing.assert_array_equal(d, np.ones((5, 1)))


# ---- kinds of numbers ----


class Level(enum.IntEnum):
    LOW, HIGH = 1, 2


KINDS = [2, 2.0, np.int8(2), np.int64(2), np.float16(2), np.float32(2), np.float64(2), np.longdouble(2), Level.HIGH,
         np.array(2), np.array(2.0), True, np.bool_(True)]  # fmt: skip


@pytest.mark.parametrize("value", KINDS, ids=lambda one: type(one).__name__)
def test_numbers_of_every_kind(value):
    a = np.array([[7, -3]], np.int8)
    identity = np.eye(2, dtype=np.int8)
    expected = a * float(value)
    whole = not isinstance(value, (float, np.floating)) and np.asarray(value).dtype.kind != "f"
    for epilogue, inputs in (
        (rocpy.epilogue(lambda x: x * value), None),
        (rocpy.epilogue(lambda x: value * x), None),
        (rocpy.epilogue(lambda x, s: x * s), {"s": value}),
    ):
        d = rocpy.matmul(a, identity, epilogue=epilogue, epilogue_inputs=inputs)
        np.testing.assert_array_equal(d, expected)
        assert d.dtype == (np.int32 if whole else np.float32) or getattr(value, "shape", None) == ()
        assert CustomEpilogue.from_json(epilogue.to_json()) == epilogue


@pytest.mark.parametrize("value", [one for one in KINDS if not isinstance(one, np.ndarray)])
def test_defaults_of_every_kind(value):
    epilogue = rocpy.epilogue(eval("lambda x, s=value: x * s", {"value": value}))
    assert pickle.loads(pickle.dumps(epilogue)) == epilogue
    assert CustomEpilogue.from_json(epilogue.to_json()) == epilogue
    np.testing.assert_array_equal(rocpy.matmul(ONE, ONE, epilogue=epilogue), [[float(value)]])


class Percent(float):
    """A number that another may be shown as."""

    def __repr__(self):
        return f"{100 * self:.0f} %"


class Count(int):
    """A whole number that another may be shown as."""

    def __repr__(self):
        return "some"


@pytest.mark.parametrize(
    "kind", [int, float, np.int8, np.float16, np.float32, np.float64, np.longdouble, E4M3, np.array, Count, Percent]
)
@pytest.mark.parametrize("run", [rocpy.matmul, lambda *args, **inputs: rocpy.Matmul(*args, **inputs).execute()])
def test_numbers_of_one_kind_are_told_apart(run, kind):
    for function in (lambda x, s: x * s, lambda x, s: x + s, lambda x, s: np.tanh(x * 0) + s):
        epilogue = rocpy.epilogue(function)
        found = [run(ONE, ONE, epilogue=epilogue, epilogue_inputs={"s": kind(value)}) for value in (1, 2, 0, -3)]
        wanted = [function(ONE, value) for value in (1, 2, 0, -3)]
        np.testing.assert_array_equal(found, wanted)


def test_numbers_that_are_shown_alike_are_told_apart():
    epilogue = rocpy.epilogue(lambda x, s: x * s)
    with np.printoptions(precision=2, legacy="1.13"):
        for several in ((Percent(1.001), Percent(1.002)), (np.float32(1000.00006), np.float32(1000.00012))):
            assert len({repr(one) for one in several}) == 1
            found = [rocpy.matmul(ONE, ONE, epilogue=epilogue, epilogue_inputs={"s": one})[0, 0] for one in several]
            assert found == [np.float32(one) for one in several]


class Valueless(numbers.Number):
    """A number that no float stands for."""


NO_NUMBERS = [
    10**400, -(10**30), 2**63, -(2**63) - 1, np.uint64(2**63), np.datetime64(1, "s"), np.void(b"2"), "2", None,
    1j, np.complex64(1), np.clongdouble(1), decimal.Decimal("sNaN"), Valueless(),
]  # fmt: skip


@pytest.mark.parametrize("value", NO_NUMBERS, ids=lambda value: f"{type(value).__name__} {value!r:.9}")
def test_what_is_no_number_is_refused(value):
    with pytest.raises(rocpy.RocpyError) as caught:
        rocpy.epilogue(lambda x: x * value)
    assert "test_numbers.py" in str(caught.value)
    if value is not None:  # the default of a parameter without one
        with pytest.raises(rocpy.InvalidProblemError, match="the default of s is (not a number|an integer)"):
            rocpy.epilogue(eval("lambda x, s=value: x * s", {"value": value}))
    plain = rocpy.epilogue(lambda x, s: x * s)
    text = r"^epilogue_inputs\['s'\]: got .*number"
    if isinstance(value, (int, np.integer)):
        text = r"^epilogue_inputs\['s'\]: got an integer below -2\*\*63 or above 2\*\*63 - 1; pass a float$"
    for call in (rocpy.matmul, rocpy.explain, rocpy.Matmul):
        with pytest.raises(rocpy.RocpyError, match=text if value is not None else "needs 's'"):
            call(ONE, ONE, epilogue=plain, epilogue_inputs={"s": value})
    if value is not None:
        with pytest.raises(rocpy.RocpyError, match=r"\bs: .*(number|2\*\*63)"):
            plain.evaluate(ONE, s=value)


def test_numbers_that_grow_beyond_64_bits_are_refused():
    epilogue = rocpy.epilogue(lambda x, s: x * (s * s))
    with pytest.raises(rocpy.InvalidProblemError, match=r"2\*\*63"):
        rocpy.matmul(ONE, ONE, epilogue=epilogue, epilogue_inputs={"s": 2**62})


@pytest.mark.torch
@pytest.mark.parametrize("value", [1e39, -1e39, 3.4e38])
@pytest.mark.parametrize("name", ["multiply", "maximum", "clip", "where", "less"])
def test_numbers_beyond_float32_are_infinite(torch, value, name):
    functions = {
        "clip": lambda x: np.clip(x, value, None),
        "where": lambda x: np.where(x > 0, x, value),
        "less": lambda x: np.where(x < value, x, 2.0),
    }
    epilogue = rocpy.epilogue(functions.get(name) or (lambda x: getattr(np, name)(x, value)))
    x = np.array([[3.0, -2.0, np.inf]], np.float32)
    with np.errstate(over="ignore"):
        expected = epilogue(x)
    for d in (epilogue.evaluate(torch.from_numpy(x)), epilogue.evaluate(x), rocpy.matmul(ONE, x, epilogue=epilogue)):
        np.testing.assert_array_equal(np.asarray(d), expected)


@pytest.mark.parametrize("exponent", [math.nan, math.inf, -math.inf, 1e300, 17, 1.5, True])
def test_other_powers_are_refused(exponent):
    with pytest.raises(rocpy.UnsupportedError, match=r"test_numbers.py:.*power"):
        rocpy.epilogue(lambda x: x**exponent)


@pytest.mark.parametrize("exponent", [True, np.False_])
def test_an_exponent_that_is_a_truth_value_is_named(exponent):
    with pytest.raises(
        rocpy.UnsupportedError, match=f"power whose exponent is the truth value {exponent}; pass {int(exponent)}"
    ):
        rocpy.epilogue(lambda x: x**exponent)


@pytest.mark.parametrize("function", [lambda x, s: x**s, lambda x, s: 2**x, lambda x, s: x ** np.ones(2)])
def test_powers_without_a_constant_exponent_are_refused(function):
    with pytest.raises(rocpy.UnsupportedError, match=r"test_numbers.py:.*not a constant number"):
        rocpy.epilogue(function)


@pytest.mark.torch
@pytest.mark.parametrize("name", ["mul", "add", "minimum", "pow", "where"])
def test_constants_that_require_a_gradient_are_refused(torch, name):
    functions = {"where": lambda x, s: torch.where(x > 0, x, s)}
    function = functions.get(name) or getattr(torch, name)
    constant = torch.tensor(2.0, requires_grad=True)
    with pytest.raises(rocpy.InvalidOperandError, match=r"test_numbers.py:.*requires a gradient"):
        rocpy.epilogue(lambda x: function(x, constant))
    assert rocpy.epilogue(lambda x: function(x, constant.detach())).expression.inputs == ()


def test_where_without_values_is_refused():
    with pytest.raises(rocpy.InvalidProblemError, match=r"test_numbers.py:.*where"):
        rocpy.epilogue(lambda x: np.where(x > 0))


# ---- arrays without axes ----


def functions_of_a_constant(torch):
    return [
        lambda x, s: x * s,
        lambda x, s: s / x + 0.5,
        lambda x, s: torch.maximum(x, s + s),
        lambda x, s: torch.where(x > 1, s, x),
        lambda x, s: x.to(s),
        lambda x, s: x.to(s.dtype),
        lambda x, s: x.type_as(s) * 1,
        lambda x, s: torch.lerp(x * 1.0, x * 2.0, 0.25) * s,
    ]


@pytest.mark.torch
@pytest.mark.parametrize("x_type", ["int32", "float16", "float32", "float64"])
@pytest.mark.parametrize("s_type", ["bool", "uint8", "int8", "int64", "float16", "bfloat16", "float32", "float64"])
def test_an_array_without_axes_counts_as_in_torch(torch, x_type, s_type):
    """From outside the function as from its inputs: its type counts where it is of a higher category."""
    x = torch.tensor([[3, 1, 2]], dtype=getattr(torch, x_type))
    s = torch.tensor(1, dtype=getattr(torch, s_type))
    for function in functions_of_a_constant(torch):
        expected = function(x, s)
        outside = rocpy.epilogue(functools.partial(function, s=s))
        for d in (outside.evaluate(x), CustomEpilogue.from_json(outside.to_json()).evaluate(x)):
            assert d.dtype == expected.dtype, outside
            torch.testing.assert_close(d, expected)
        if s_type == "float64" and function(x, s).dtype == torch.float64:
            inside = rocpy.epilogue(function)
            torch.testing.assert_close(inside.evaluate(x, s=s), expected)


@pytest.mark.torch
def test_the_digits_of_an_array_without_axes(torch):
    s, ints = torch.tensor(0.1, dtype=torch.float64), torch.full((2, 1100), 127, dtype=torch.int8)
    for function in (lambda x: x * s, lambda x: s * x, lambda x: x.type_as(s) * s):
        d = rocpy.matmul(ints, ints.mT, epilogue=rocpy.epilogue(function))
        assert (d.dtype, d[0, 0].item()) == (torch.float64, 1100 * 127 * 127 * 0.1)
    powers = rocpy.epilogue(lambda x: x ** torch.tensor(-2.0, dtype=torch.float64) + x ** torch.tensor(2))
    d = powers.evaluate(torch.tensor([3], dtype=torch.int32))
    assert (d.dtype, d.item()) == (torch.float64, 1 / 9 + 9)


@pytest.mark.torch
def test_types_of_arrays_of_any_shape_are_cast_to(torch):
    one, array, scalar = torch.ones(2, 2), torch.zeros(3, dtype=torch.float16), torch.zeros((), dtype=torch.float16)
    for function in (
        lambda x: x.to(array),
        lambda x: x.to(scalar),
        lambda x: x.type_as(array),
        lambda x: x.type_as(scalar),
        lambda x: x.type(torch.HalfTensor),
    ):
        assert rocpy.matmul(one, one, epilogue=rocpy.epilogue(function)).dtype == torch.float16
    with pytest.raises(rocpy.InvalidOperandError, match=r"test_numbers.py:.*is not a type of an epilogue's values"):
        rocpy.epilogue(lambda x: x * np.array(2, np.uint32))


def test_an_array_without_axes_is_still_a_factor_of_the_librarys():
    for factor in (np.array(0.5), np.array(0.5, np.float32), np.array(2)):
        epilogue = rocpy.epilogue(functools.partial(lambda x, s: x * s, s=factor))
        assert rocpy.explain(ONE, ONE, epilogue=epilogue).algorithm.lowering == "native"
        assert rocpy.matmul(ONE, ONE, epilogue=epilogue)[0, 0] == factor


def test_an_array_without_axes_in_another_function():
    inner = CustomEpilogue.from_json(rocpy.epilogue(lambda x: x * np.array(0.1)).to_json())
    d = rocpy.epilogue(lambda x: inner(x) + 0).evaluate(np.array([3], np.int32))
    assert (d.dtype, d[0]) == (np.float64, 3 * 0.1)


@pytest.mark.parametrize("value", [np.float64(0.1), np.sqrt(2.0), np.float32(0.1), np.float16(0.1)])
def test_a_numpy_scalar_is_a_number(value):
    epilogue = rocpy.epilogue(lambda x: x * value)
    assert epilogue.evaluate(np.array([3], np.int32)).dtype == np.float32
    assert epilogue == rocpy.epilogue(lambda x: x * float(value))


def test_a_cast_number_has_its_type():
    epilogue = rocpy.epilogue(lambda x, s: x * s.astype(np.float64))
    for s in (0.1, np.array(0.1)):
        d = epilogue.evaluate(np.array([3], np.int32), s=s)
        assert (d.dtype, d[0]) == (np.float64, 3 * 0.1)
