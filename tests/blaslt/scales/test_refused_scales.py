# SPDX-License-Identifier: MIT
"""Scales and their weights that are refused alike by every entry, with what to do; and scaled int8 results."""

import math

import ml_dtypes
import numpy as np
import pytest

import rocpy
from rocpy.blaslt import supported
from rocpy.errors import InvalidOperandError, InvalidProblemError

F = np.float32
A8 = np.ones((4, 4), ml_dtypes.float8_e4m3fn)
NAN = float("nan")

ENTRIES = {
    "matmul": lambda scale: rocpy.matmul(A8, A8, scale_a=scale, scale_b=1.0),
    "matmul, b": lambda scale: rocpy.matmul(A8, A8, scale_a=1.0, scale_b=scale),
    "Matmul": lambda scale: rocpy.Matmul(A8, A8, scale_a=scale, scale_b=1.0),
    "reset_operands": lambda scale: rocpy.Matmul(A8, A8, scale_a=1.0, scale_b=1.0).reset_operands(scale_a=scale),
    "a list": lambda scale: rocpy.grouped_matmul([A8], [A8], scale_a=[scale], scale_b=1.0),
    "offsets": lambda scale: rocpy.grouped_matmul(A8, A8[None], offsets=[0, 4], scale_a=scale, scale_b=1.0),
    "offsets, b": lambda scale: rocpy.grouped_matmul(A8, A8[None], offsets=[0, 4], scale_a=1.0, scale_b=scale),
    "Weight": lambda scale: rocpy.Weight(A8, scale=scale),
    "explain": lambda scale: rocpy.explain(A8, A8, scale_a=scale, scale_b=1.0),
    "explain, offsets": lambda scale: rocpy.explain(A8, A8[None], offsets=[0, 4], scale_a=scale, scale_b=1.0),
}


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("scale", [NAN, np.float32(NAN), np.float64(NAN)])
def test_no_entry_takes_nan_as_a_scale(entry, scale):
    with pytest.raises(InvalidProblemError, match=r"^scale(_a|_b)?: got .*nan.*, expected a number; look for NaN"):
        ENTRIES[entry](scale)


@pytest.mark.parametrize("entry", ENTRIES)
def test_no_entry_takes_a_truth_value_as_a_scale(entry):
    with pytest.raises(InvalidOperandError, match=r"^scale(_a|_b)?: got True, expected a number"):
        ENTRIES[entry](True)


@pytest.mark.parametrize("k", [40, 31, 1])
@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2", "float6_e2m3fn"])
def test_sums_that_are_no_whole_number_of_blocks_are_to_be_padded(k, dtype):
    def operands(k):
        a, scale_a = rocpy.quantize_mx(np.ones((4, k), F), dtype)
        b, scale_b = rocpy.quantize_mx(np.ones((k, 6), F), dtype, axis=-2)
        return a, b, {"scale_a": scale_a, "scale_b": scale_b}

    a, b, scales = operands(k)
    for call in (rocpy.matmul, rocpy.Matmul):
        with pytest.raises(InvalidProblemError, match=rf"K = {k} with scales .* pad K to a multiple of 32$"):
            call(a, b, **scales)
    a, b, scales = operands(math.ceil(k / 32) * 32)
    rocpy.matmul(a, b, **scales)


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("kind", ["scalar", "vector"])
@pytest.mark.parametrize(
    "epilogue", ["gelu_erf", "gelu", "silu", "sigmoid", "relu", "clamp", "default", "gelu_bias", "gelu_aux"]
)
@pytest.mark.parametrize("dtype", ["int8", "int32"])
def test_scaled_results_of_whole_numbers_take_every_epilogue(fused, kind, epilogue, dtype, rng, request):
    if not fused:
        request.getfixturevalue("without_programs")
    a, b = rng.integers(-9, 9, (5, 32), np.int8), rng.integers(-9, 9, (32, 6), np.int8)
    scale_a, scale_b = (
        (0.5, 0.25) if kind == "scalar" else (np.linspace(0.1, 1, 5, dtype=F), np.linspace(0.1, 1, 6, dtype=F))
    )
    arguments = {"epilogue": epilogue, "scale_a": scale_a, "scale_b": scale_b}
    if epilogue == "clamp":
        arguments["clamp"] = (-3.0, 5.0)
    if epilogue == "gelu_bias":
        arguments["bias"] = np.linspace(-2, 2, 6, dtype=F)
    exact = rocpy.matmul(a, b, dtype="float32", **arguments)
    found = rocpy.matmul(a, b, dtype=dtype, **arguments)
    if epilogue.endswith("_aux"):
        exact, found = exact[0], found[0]
    assert found.dtype == np.dtype(dtype)
    limits = np.iinfo(dtype)
    # A value at a tie may be rounded to either side.
    assert np.abs(np.clip(exact, max(limits.min, -1e9), min(limits.max, 1e9)) - found).max() <= 0.5 + 1e-3
    assert supported("int8", dtype=dtype, epilogue=epilogue, scale_a=kind, scale_b=kind)
    with rocpy.Matmul(a, b, dtype=dtype, **arguments) as mm:
        again = mm.execute()
        np.testing.assert_array_equal(again[0] if isinstance(again, tuple) else again, found)


def test_a_weight_is_no_array_of_the_matrices_of_all_groups():
    tokens, weight = np.ones((10, 16), F), rocpy.Weight(np.ones((16, 8), F))
    with pytest.raises(
        InvalidOperandError, match="one matrix; with offsets=.*matrices of all groups, or pass lists"
    ) as refused:
        rocpy.grouped_matmul(tokens, weight, offsets=[0, 4, 4, 10])
    assert ".source" not in str(refused.value)
    wanted = tokens @ weight.source
    stacked = rocpy.grouped_matmul(tokens, np.stack([weight.source] * 3), offsets=[0, 4, 4, 10])
    listed = rocpy.grouped_matmul([tokens[:4], tokens[4:4], tokens[4:]], weight)
    np.testing.assert_array_equal(stacked, wanted)
    np.testing.assert_array_equal(np.concatenate(listed), wanted)


@pytest.mark.parametrize("layout", ["kn", "nk"])
def test_a_weight_of_a_weight_says_which_layout_its_source_has(layout, rng):
    matrix = rng.standard_normal((4, 4), dtype=F)
    weight = rocpy.Weight(matrix, layout=layout)
    with pytest.raises(InvalidOperandError, match=rf"\(its .source\) with layout='{layout}'$"):
        rocpy.Weight(weight)
    same = rocpy.Weight(weight.source, layout=layout)
    np.testing.assert_array_equal(rocpy.matmul(matrix, same), rocpy.matmul(matrix, weight))


@pytest.mark.parametrize("keys", [(), ("relu_aux", "gelu_aux"), ("relu",)])
def test_aux_as_a_dict_holds_exactly_one_matrix(keys):
    x = np.ones((4, 4), F)
    with pytest.raises(InvalidProblemError, match="expected exactly one that ends in _aux") as refused:
        rocpy.matmul(x, x, epilogue="dgelu", aux=dict.fromkeys(keys, x))
    assert str(list(keys)) in str(refused.value)
    rocpy.matmul(x, x, epilogue="dgelu", aux={"gelu_aux": x})


E4M3, E8M0 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e8m0fnu
WEIGHT_SCALES = {
    "float32": [2.0, np.ones(4, F), np.ones((1, 4), E8M0)],
    "float8_e4m3fn": [
        "1", b"1", bytearray(b"1234"), 1j, np.complex64(1), [1.0], np.datetime64(1, "s"), 10**400, np.ones(4),
        np.ones(3, F), np.ones((4, 1), F), np.ones((2, 1, 4), F), np.ones((2, 4), E8M0), np.ones(4, np.uint8),
    ],
    "int8": ["1", np.complex64(1), np.ones((1, 4), E8M0)],
    "float4_e2m1fn": [1.0, np.ones(4, F), np.ones((1, 4), F)],
}  # fmt: skip


@pytest.mark.parametrize("layout", ["kn", "nk"])
@pytest.mark.parametrize(
    ("dtype", "scale"),
    [(dtype, scale) for dtype, scales in WEIGHT_SCALES.items() for scale in scales],
    ids=lambda x: x if isinstance(x, str) else type(x).__name__,
)
def test_a_weight_takes_no_scale_that_its_products_refuse(dtype, scale, layout):
    source = np.ones((32, 4) if layout == "kn" else (4, 32), getattr(ml_dtypes, dtype, dtype))
    if layout == "nk" and isinstance(scale, np.ndarray) and scale.dtype == E8M0:
        scale = np.ascontiguousarray(scale.T)
    with pytest.raises((InvalidOperandError, InvalidProblemError), match="^scale(:| is) "):
        rocpy.Weight(source, scale=scale, layout=layout)


@pytest.mark.parametrize("layout", ["kn", "nk"])
@pytest.mark.parametrize("shape", [(32,), (1, 32, 4)])
def test_a_weight_with_scales_by_blocks_has_two_axes(shape, layout):
    with pytest.raises(InvalidProblemError, match="^w: got shape .*expected two axes$"):
        rocpy.Weight(np.ones(shape, E4M3), scale=np.ones((1, 4), E8M0), layout=layout)


@pytest.mark.parametrize(
    "scale", [2, 2.0, np.float16(2), np.full((), 2, F), np.full((1,), 2, F), np.full((1, 4), 2, F)]
)
@pytest.mark.parametrize("dtype", [E4M3, np.int8])
def test_a_weight_takes_scales_of_its_products(scale, dtype):
    w = rocpy.Weight(np.ones((32, 4), dtype), scale=scale)
    np.testing.assert_array_equal(rocpy.matmul(np.ones((1, 32), dtype), w, scale_a=0.5, dtype="float32"), [[32.0] * 4])


ROWS = np.linspace(1, 2, 4, dtype=F)[:, None]
WIDE = np.ones((4, 4), F)
FACTORS = {
    "of rows of a": (lambda: rocpy.matmul(WIDE, WIDE, scale_a=ROWS), "multiply a by it before the product"),
    "of columns of b": (lambda: rocpy.matmul(WIDE, WIDE, scale_b=ROWS.T), "multiply b by it before the product"),
    "of a group": (lambda: rocpy.grouped_matmul([WIDE], [WIDE], scale_a=ROWS), "multiply a by it before the product"),
    "of a Weight": (lambda: rocpy.Weight(WIDE, scale=ROWS.T), "multiply w by it before it is packed"),
    "of the result": (
        lambda: rocpy.matmul(A8, A8, scale_a=1.0, scale_b=1.0, scale_d=0.5, dtype="float32", epilogue="gelu"),
        "multiply the result by it",
    ),
    "of c": (lambda: rocpy.matmul(A8, A8, WIDE, scale_a=1.0, scale_b=1.0, scale_c=2.0, dtype="float32"), "beta= by it"),
    "of no c": (lambda: rocpy.matmul(A8, A8, scale_a=1.0, scale_b=1.0, scale_c=2.0), "there is no c.*: omit it"),
}


@pytest.mark.parametrize("name", FACTORS)
def test_factors_that_are_not_taken_are_to_be_applied_where_the_result_is_the_same(name):
    """Not to alpha, which is no array, and is applied before c, the bias and the epilogue."""
    call, advice = FACTORS[name]
    with pytest.raises(InvalidProblemError, match=f"^scale.*{advice}"):
        call()
