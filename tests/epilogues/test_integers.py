# SPDX-License-Identifier: MIT
"""Whole numbers in epilogues: compared exactly, cast with saturation, and no truth values."""

import numpy as np
import pytest

import rocpy

LARGE = 33870773  # an odd number that float32 does not have


def large_product():
    """Return int8 operands whose product is ``LARGE``."""
    a, b = np.full((1, 2100), 127, np.int8), np.full((2100, 1), 127, np.int8)
    a[0, 0] = 126
    assert (a.astype(np.int32) @ b.astype(np.int32))[0, 0] == LARGE
    return a, b


COMPARISONS = ["<", "<=", ">", ">=", "==", "!="]


@pytest.mark.parametrize("near", [-1, 0, 1])
@pytest.mark.parametrize("symbol", COMPARISONS)
@pytest.mark.parametrize("form", ["x {} value", "value {} x", "x {} m", "(x {} value) & (x > 3)", "~(x {} m)"])
def test_whole_numbers_are_compared_exactly(form, symbol, near):
    a, b = large_product()
    value = LARGE + near
    m, names = np.full((1, 1), value, np.int32), {"np": np, "value": value}
    function = eval(f"lambda x, m: np.where({form.format(symbol)}, 1.0, 0.0)", names)
    d = rocpy.matmul(a, b, epilogue=rocpy.epilogue(function), epilogue_inputs={"m": m})
    assert d[0, 0] == function(np.full((1, 1), LARGE, np.int32), m)[0, 0]


@pytest.mark.parametrize("near", [-1, 0, 1])
@pytest.mark.parametrize("symbol", COMPARISONS)
def test_inputs_are_compared_exactly(symbol, near):
    names = {"np": np, "value": LARGE + near}
    m = np.full(4, LARGE, np.int32)
    function = eval(f"lambda x, m: np.where(m {symbol} value, x, 0)", names)
    one = np.ones((4, 4), np.float32)
    d = rocpy.matmul(one, one, epilogue=rocpy.epilogue(function), epilogue_inputs={"m": m})
    np.testing.assert_array_equal(d, function(one @ one, m))


@pytest.mark.parametrize("near", [-1, 0, 1])
@pytest.mark.parametrize("symbol", COMPARISONS)
def test_float64_is_compared_in_float64(symbol, near):
    function = eval(f"lambda x, m: np.where(x {symbol} m, x, 0)", {"np": np})
    one = np.ones((4, 4), np.float32)
    m = np.full(4, 4.0 + near * 1e-12)
    d = rocpy.matmul(one, one, epilogue=rocpy.epilogue(function), epilogue_inputs={"m": m})
    np.testing.assert_array_equal(d, function(one @ one, m))


@pytest.mark.parametrize("dtype", ["uint8", "int8", "bool"])
def test_small_masks_are_still_fused(dtype):
    if rocpy.platform.current().name != "host":
        pytest.skip("tile programs are those of the host platform")
    one, m = np.ones((4, 4), np.float32), np.array([0, 1, 1, 0]).astype(dtype)
    epilogue = rocpy.epilogue(lambda x, m: np.where((m != 0) & (m < 100), x, 0))
    assert rocpy.explain(one, one, epilogue=epilogue, epilogue_inputs={"m": m}).algorithm.lowering == "fused"
    d = rocpy.matmul(one, one, epilogue=epilogue, epilogue_inputs={"m": m})
    np.testing.assert_array_equal(d[0], [0, 4, 4, 0])


# ---- bits ----


def bitwise_forms():
    return {
        "x & 1": lambda x, m: (x & 1) == 1,
        "x & x": lambda x, m: (x & x) > 0,
        "1 & x": lambda x, m: (1 & x) == 1,
        "x | 8": lambda x, m: (x | 8) * 1.0,
        "~x": lambda x, m: (~x) * 1.0,
        "m & 6": lambda x, m: (m & 6) == 2,
        "~m": lambda x, m: ~m,
        "m | bool": lambda x, m: m | (x > 0),
        "bool & 1": lambda x, m: (x > 0) & 1,
        "np.bitwise_and": lambda x, m: np.bitwise_and(x, 1) == 1,
        "np.bitwise_or": lambda x, m: np.bitwise_or(m, 1) == 1,
        "np.invert": lambda x, m: np.invert(x) * 1.0,
        "np.bitwise_not": lambda x, m: np.bitwise_not(m) * 1.0,
    }


def refused_bits(function, inputs):
    a = np.array([[7, -3]], np.int8)
    epilogue = rocpy.epilogue(lambda x, m: np.where(function(x, m), 1.0, 2.0) + x * 0.5)
    for call in (
        lambda: rocpy.matmul(a, np.eye(2, dtype=np.int8), epilogue=epilogue, epilogue_inputs=inputs),
        lambda: epilogue.evaluate(a.astype(np.int32), **inputs),
    ):
        with pytest.raises(rocpy.InvalidProblemError, match=r"[&|~]: .*(int|uint).*logical_"):
            call()


@pytest.mark.parametrize("name", bitwise_forms())
@pytest.mark.parametrize("m", [np.array([1, 6], np.uint8), 6], ids=["array", "number"])
def test_bits_of_whole_numbers_are_refused(name, m):
    refused_bits(bitwise_forms()[name], {"m": m})


@pytest.mark.torch
@pytest.mark.parametrize("name", ["bitwise_and", "bitwise_or"])
def test_bits_of_torch_are_refused(torch, name):
    refused_bits(lambda x, m: getattr(torch, name)(x, m), {"m": np.array([1, 6], np.uint8)})
    refused_bits(lambda x, m: getattr(x, name)(1), {"m": 1})
    refused_bits(lambda x, m: torch.bitwise_not(x), {"m": 1})


VALUES = np.array([[0.0, -0.0, 2.0, np.nan, -np.inf, 1e-40]], np.float32)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, m: np.where(np.logical_and(x, m), 1.0, 2.0) + 0 * m,
        lambda x, m: np.where(np.logical_or(x, m > 1), 1.0, 2.0),
        lambda x, m: np.where(np.logical_not(x), 1.0, 2.0) + 0 * m,
        lambda x, m: np.where(np.logical_not(np.logical_not(x)), 1.0, 2.0) + 0 * m,
        lambda x, m: np.where((x > 0) & ~(m > 0) | (x == m), 1.0, 2.0),
        lambda x, m: np.logical_not(np.logical_not(x)).astype(np.float32) + 0 * m,
    ],
)
@pytest.mark.parametrize("m", [np.array([0, 1, 2, 0, 1, 2], np.uint8), 0, 2])
def test_logical_functions_are_of_any_numbers(function, m):
    d = rocpy.matmul(np.ones((1, 1), np.float32), VALUES, epilogue=rocpy.epilogue(function), epilogue_inputs={"m": m})
    np.testing.assert_array_equal(d, function(VALUES, m))


# ---- casts ----

FAR = np.array([[3e9], [-3e9], [2147483520.0], [-2147483648.0], [1e30], [-1e30], [np.inf], [-np.inf], [1.9], [-1.9]])


@pytest.mark.parametrize("source", [np.float32, np.float64])
def test_a_cast_saturates_to_the_types_own_limits(source):
    x, one = FAR.astype(source), np.ones((1, 1), source)
    expected = [[int(min(max(v, -(2**31)), 2**31 - 1))] for v in x.ravel()]
    for epilogue in (
        rocpy.epilogue(lambda x: x.astype(np.int32)),
        rocpy.epilogue(lambda x: x.astype(np.int64).clip(-(2**31), 2**31 - 1).astype(np.int32)),
    ):
        np.testing.assert_array_equal(rocpy.matmul(x, one, epilogue=epilogue), expected)
        np.testing.assert_array_equal(epilogue.evaluate(x), expected)


WHOLE = ["uint8", "int8", "int16", "int32", "int64"]
NUMBERS = [300, -70000, 2**40, 2**24 + 1, 3e9, -2.9, np.inf, -np.inf, np.nan]


def limited(value, dtype):
    """Return a number as a cast to a type of whole numbers gives it."""
    if value != value:
        return 0
    info = np.iinfo(dtype)
    return int(min(max(value, int(info.min)), int(info.max)))


@pytest.mark.torch
@pytest.mark.parametrize("dtype", WHOLE)
@pytest.mark.parametrize("value", NUMBERS)
def test_a_cast_saturates_whatever_it_casts(torch, dtype, value):
    """Of integers as of floats, of arrays and numbers, whatever follows; NaN is 0."""
    one, expected = np.ones((1, 1), np.int8), limited(value, dtype)
    held = np.int64 if isinstance(value, int) else np.float64
    then = {"int8": np.int8, "int64": np.float64}.get(dtype, np.int32)
    for epilogue in (
        rocpy.epilogue(lambda x, s: x * 0 + s.astype(dtype).astype(then)),
        rocpy.epilogue(lambda x, s: x * 0 + s.astype(dtype) * 1.0),
    ):
        for s in (value, np.array([value], held)):
            for frame in (np.asarray, torch.from_numpy):
                inputs = {"s": s if isinstance(s, (int, float)) else frame(s)}
                d = rocpy.matmul(frame(one), frame(one), epilogue=epilogue, epilogue_inputs=inputs)
                e = epilogue.evaluate(frame(one.astype(np.int32)), **inputs)
                for found in (d, e):
                    assert found.item() == np.asarray(expected).astype(str(found.dtype).removeprefix("torch.")).item()


@pytest.mark.torch
@pytest.mark.parametrize("dtype", WHOLE)
@pytest.mark.parametrize("factor", [1, -1, 1000, 10**6])
def test_casts_of_the_product_saturate(torch, dtype, factor):
    a, b = np.array([[100]], np.int8), np.array([[3]], np.int8)
    expected = limited(300 * factor, dtype)
    for function in (
        lambda x: (x * factor).astype(dtype).astype("int32"),
        lambda x: (x * factor).astype(dtype) * 1.0,
        lambda x: (x * factor).astype(dtype).astype("float64"),
    ):
        epilogue = rocpy.epilogue(function)
        assert rocpy.matmul(a, b, epilogue=epilogue).item() == expected
        assert rocpy.matmul(torch.from_numpy(a), torch.from_numpy(b), epilogue=epilogue).item() == expected


@pytest.mark.torch
@pytest.mark.parametrize("operand", ["int8", "float32", "float64"])
def test_int64_is_cast_to_int32_exactly(torch, operand):
    y = np.array([2**24 + 1, 2**31 - 1, 2**40, -(2**31) - 1, -(2**24) - 1])
    expected = np.clip(y, -(2**31), 2**31 - 1)
    one = np.ones((1, 1), operand), np.ones((1, 5), operand)
    for function in (
        lambda x, y: (x.astype(np.int64) * 0 + y).astype(np.int32),
        lambda x, y: (x.astype(np.int64) * 0 + y).astype(np.int32).astype(np.int64).astype(np.int32),
        lambda x, y: ((x.astype(np.int64) * 0 + y).astype(np.int32), x),
    ):
        epilogue = rocpy.epilogue(function)
        for frame in (np.asarray, torch.from_numpy):
            d = rocpy.matmul(*map(frame, one), epilogue=epilogue, epilogue_inputs={"y": frame(y)})
            np.testing.assert_array_equal(np.asarray(d[0] if isinstance(d, tuple) else d)[0], expected)


@pytest.mark.torch
def test_steps_between_wide_and_narrow_integers_are_exact(torch):
    a, b = large_product()
    epilogue = rocpy.epilogue(lambda x: (x.astype("int64") + 1).astype("int32") - 1)
    assert rocpy.matmul(a, b, epilogue=epilogue).item() == LARGE
    assert rocpy.matmul(torch.from_numpy(a), torch.from_numpy(b), epilogue=epilogue).item() == LARGE


def test_requantising_to_int32_saturates_to_its_limits():
    x, one = np.array([[3e9], [-3e9], [7.5]], np.float32), np.ones((1, 1), np.float32)
    d = rocpy.matmul(x, one, epilogue=rocpy.epilogues.scale_clamp_cast("int32"), epilogue_inputs={"scale": 1.0})
    assert d.ravel().tolist() == [2**31 - 1, -(2**31), 8]


@pytest.mark.torch
@pytest.mark.parametrize("name", ["int8", "int32", "float32", "int64", "uint8", "int16"])
def test_truth_values_are_cast_to_numbers(torch, name):
    one = torch.tensor([[1.0, -1.0]])
    dtype = getattr(torch, name)
    epilogue = rocpy.epilogue(lambda x: (x > 0).to(dtype) * 1.0)
    assert rocpy.matmul(torch.ones(1, 1), one, epilogue=epilogue).tolist() == [[1.0, 0.0]]
    assert epilogue.evaluate(one).tolist() == [[1.0, 0.0]]
    if name in ("int8", "int32", "float32"):
        plain = rocpy.epilogue(lambda x: (x > 0).to(dtype))
        found = rocpy.matmul(torch.ones(1, 1), one, epilogue=plain)
        assert (found.dtype, found.tolist()) == (dtype, [[1, 0]])


def test_truth_values_times_one_are_whole_numbers():
    x = np.array([[0.5, 2.0, -1.0]], np.float32)
    epilogue = rocpy.epilogue(lambda x, m: ((x > 0) * 1 + (x > 1) * 1 + m * 1 + 1 * m) * 1.0)
    m = np.array([True, False, True])
    d = rocpy.matmul(np.ones((1, 1), np.float32), x, epilogue=epilogue, epilogue_inputs={"m": m})
    assert d.tolist() == [[3.0, 2.0, 2.0]]


@pytest.mark.parametrize("low_high", [(-1, 3), (0, 300), (-5, 999)])
def test_bounds_beyond_a_type_are_no_bounds(low_high):
    low, high = low_high
    one, m = np.ones((2, 2), np.float32), np.array([2, 255], np.uint8)
    expected = 2 * np.clip(m.astype(np.int64), low, high)
    for function in (
        lambda x, m: x * np.clip(m, low, high),
        lambda x, m: x * np.minimum(np.maximum(m, low), high),
    ):
        d = rocpy.matmul(one, one, epilogue=rocpy.epilogue(function), epilogue_inputs={"m": m})
        np.testing.assert_array_equal(d[0], expected)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, m: x * np.clip(m, 300, 400),
        lambda x, m: x * np.minimum(m, -1),
        lambda x, m: x * np.maximum(m, 256),
        lambda x, m: x * (m + 256),
        lambda x, m: x * np.where(x > 0, m, -1),
    ],
)
def test_numbers_that_a_type_does_not_hold_are_refused(function):
    one, m = np.ones((2, 2), np.float32), np.array([2, 255], np.uint8)
    with pytest.raises(rocpy.InvalidProblemError, match=r"uint8.*cast"):
        rocpy.matmul(one, one, epilogue=rocpy.epilogue(function), epilogue_inputs={"m": m})


def test_numbers_that_the_product_does_not_hold_are_refused():
    one = np.ones((2, 2), np.int8)
    with pytest.raises(rocpy.InvalidProblemError, match=r"2147483648.*int32.*cast"):
        rocpy.matmul(one, one, epilogue=rocpy.epilogue(lambda x: x + 2**31))
    d = rocpy.matmul(one, one, epilogue=rocpy.epilogue(lambda x: (x.astype(np.int64) + 2**31) * 1.0))
    assert d[0, 0] == float(2**31)


# ---- one bound ----


def one_sided(torch):
    return {
        "clamp(min=)": lambda x, q: torch.clamp(x, min=0),
        "clamp(max=)": lambda x, q: x.clamp(max=2**30),
        "clamp_min": lambda x, q: x.clamp_min(-5),
        "clamp_max": lambda x, q: torch.clamp_max(x, 2**30),
        "of a part": lambda x, q: (x - 3).clamp(min=0) + x,
        "of an input": lambda x, q: x + torch.clamp(q, min=0),
        "of a bool": lambda x, q: (x + (x > 0).clamp(min=0)).to(torch.int32),
        "of int64": lambda x, q: (x.to(torch.int64).clamp(min=2**31) - 2**31 + x).to(torch.int32),
        "by an array": lambda x, q: torch.clamp(x, min=q),
        "by a fraction": lambda x, q: torch.clamp(q, max=2.5) + x * 0,
    }


ONE_SIDED = [
    "clamp(min=)", "clamp(max=)", "clamp_min", "clamp_max", "of a part", "of an input", "of a bool", "of int64",
    "by an array", "by a fraction",
]  # fmt: skip


@pytest.mark.torch
@pytest.mark.parametrize("name", ONE_SIDED)
def test_one_bound_has_the_type_of_its_operands(torch, name):
    function = one_sided(torch)[name]
    a, b = map(torch.from_numpy, large_product())
    q = torch.tensor([7], dtype=torch.int8)
    epilogue = rocpy.epilogue(function)
    expected = function(torch.tensor([[LARGE]], dtype=torch.int32), q)
    for d in (
        rocpy.matmul(a, b, epilogue=epilogue, epilogue_inputs={"q": q}),
        epilogue.evaluate(torch.tensor([[LARGE]], dtype=torch.int32), q=q),
    ):
        assert (d.dtype, d.item()) == (expected.dtype, expected.item())


@pytest.mark.parametrize("bounds", [(0, None), (None, 2**30)])
def test_one_bound_of_clip_is_a_whole_number(bounds):
    a, b = large_product()
    d = rocpy.matmul(a, b, epilogue=rocpy.epilogue(lambda x: np.clip(x, *bounds)))
    assert (d.dtype, d.item()) == (np.int32, LARGE)


def test_one_bound_is_still_an_epilogue_of_the_librarys():
    one = np.ones((2, 2), np.float32)
    for function in (lambda x: x.clip(0, None), lambda x: x.clip(max=1.5), lambda x: x.clip(min=-1).clip(max=1)):
        how = rocpy.explain(one, one, epilogue=rocpy.epilogue(function))
        assert how.algorithm.lowering == "native"
