# SPDX-License-Identifier: MIT
"""Scales of operands and results, and the largest magnitude."""

from __future__ import annotations

import gc
import threading

import numpy as np
import pytest

import rocpy
from rocpy.blaslt.selection import recipes
from rocpy.testing import evaluate
from rocpy.testing.cases import FLOAT8
from rocpy.testing.runner import check_outputs, dtype_of, saturated

E4M3 = dtype_of("float8_e4m3fn")


@pytest.fixture
def operands(rng):
    return rng.standard_normal((5, 40)).astype(E4M3), rng.standard_normal((40, 7)).astype(E4M3)


def check(d, expected, dtype="float32"):
    for found in check_outputs(expected, d, dtype_of(dtype)).values():
        assert found.ok, found.message


@pytest.mark.parametrize(
    "scale", [2.0, 3, np.float32(1.5), np.float64(0.1), np.full((), 0.3, np.float32), np.full((1,), 0.3, np.float32)]
)
def test_a_scale_may_be_a_number_or_an_array_of_one(operands, scale):
    a, b = operands
    check(rocpy.matmul(a, b, scale_a=scale, dtype="float32", scale_b=1.0), evaluate(a, b, scale_a=np.float32(scale)))
    check(rocpy.matmul(a, b, scale_b=scale, dtype="float32", scale_a=1.0), evaluate(a, b, scale_b=np.float32(scale)))


@pytest.mark.parametrize("form", ["flat", "matrix"])
@pytest.mark.parametrize("kind", ["float8_e4m3fn", "float8_e5m2fnuz", "int8"])
def test_rows_of_a_and_columns_of_b(rng, form, kind):
    a, b = rng.integers(-9, 10, (5, 40)).astype(dtype_of(kind)), rng.integers(-9, 10, (40, 7)).astype(dtype_of(kind))
    rows, columns = rng.uniform(0.1, 4, 5).astype(np.float32), rng.uniform(0.1, 4, 7).astype(np.float32)
    given = (rows, columns) if form == "flat" else (rows[:, None], columns[None, :])
    expected = evaluate(a, b, scale_a=rows, scale_b=columns)
    check(rocpy.matmul(a, b, scale_a=given[0], scale_b=given[1], dtype="float32"), expected)
    with rocpy.Matmul(a, b, scale_a=given[0], scale_b=given[1], dtype="float32") as mm:
        assert (mm.problem.scale_a, mm.problem.scale_b) == ("vector", "vector")
        check(mm.execute(), expected)
    # One side alone, and a number beside a vector.
    check(rocpy.matmul(a, b, scale_a=given[0], dtype="float32", scale_b=1.0), evaluate(a, b, scale_a=rows))
    check(rocpy.matmul(a, b, scale_b=given[1], dtype="float32", scale_a=1.0), evaluate(a, b, scale_b=columns))
    check(rocpy.matmul(a, b, scale_a=given[0], scale_b=0.5, dtype="float32"), evaluate(a, b, scale_a=rows, scale_b=0.5))
    check(
        rocpy.matmul(a, b, scale_a=np.full((1,), 0.5, np.float32), scale_b=given[1], dtype="float32"),
        evaluate(a, b, scale_a=0.5, scale_b=columns),
    )


@pytest.mark.parametrize(
    ("batch_a", "batch_b", "scales_a", "scales_b"),
    [
        ((3,), (3,), (3,), (3,)),
        ((3,), (3,), (), (3,)),
        ((3,), (), (3,), ()),
        ((2, 3), (3,), (2, 3), (1,)),
        ((2, 1), (1, 3), (2, 1), (3,)),
        ((3,), (3,), (1,), ()),
    ],
)
def test_batches_of_vectors(rng, batch_a, batch_b, scales_a, scales_b):
    a = rng.standard_normal((*batch_a, 4, 20)).astype(E4M3)
    b = rng.standard_normal((*batch_b, 20, 6)).astype(E4M3)
    rows = rng.uniform(0.1, 4, (*scales_a, 4)).astype(np.float32)
    columns = rng.uniform(0.1, 4, (*scales_b, 6)).astype(np.float32)
    expected = evaluate(a, b, scale_a=rows, scale_b=columns)
    check(rocpy.matmul(a, b, scale_a=rows, scale_b=columns, dtype="float32"), expected)
    if scales_a and scales_b:
        shaped = rocpy.matmul(a, b, scale_a=rows[..., :, None], scale_b=columns[..., None, :], dtype="float32")
        check(shaped, expected)


def test_scales_may_lie_anyhow(rng, operands):
    a, b = operands
    rows = rng.uniform(0.1, 4, 10).astype(np.float32)[::-2]
    columns = rng.uniform(0.1, 4, (7, 3)).astype(np.float32)[:, 1]
    expected = evaluate(a, b, scale_a=rows, scale_b=columns)
    check(rocpy.matmul(a, b, scale_a=rows, scale_b=columns, dtype="float32"), expected)


def test_vectors_in_products_of_vectors(rng):
    a, b = rng.standard_normal(40).astype(E4M3), rng.standard_normal((40, 7)).astype(E4M3)
    columns = rng.uniform(0.1, 4, 7).astype(np.float32)
    check(rocpy.matmul(a, b, scale_b=columns, dtype="float32", scale_a=1.0), evaluate(a, b, scale_b=columns))
    check(rocpy.matmul(b.T, a, scale_a=columns, dtype="float32", scale_b=1.0), evaluate(b.T, a, scale_a=columns))


def test_layouts_that_are_copied_keep_their_scales(rng):
    a = rng.standard_normal((10, 80)).astype(E4M3)[::2, ::-2]
    b = rng.standard_normal((80, 7)).astype(E4M3)[::-2]
    rows, columns = rng.uniform(0.1, 4, 5).astype(np.float32), rng.uniform(0.1, 4, 7).astype(np.float32)
    expected = evaluate(a, b, scale_a=rows, scale_b=columns)
    check(rocpy.matmul(a, b, scale_a=rows, scale_b=columns, dtype="float32"), expected)
    out = np.zeros((10, 14), np.float32)[::2, ::2]
    rocpy.matmul(a, b, scale_a=rows, scale_b=columns, out=out)
    check(np.array(out), expected)
    with rocpy.Matmul(a, b, scale_a=rows, scale_b=columns, dtype="float32") as mm:
        check(mm.execute(), expected)


@pytest.mark.parametrize("name", FLOAT8)
def test_the_scale_of_the_result_comes_before_its_rounding(name):
    # A product of 2^10, beyond the range of some: what is rounded is the scaled value.
    a, b = np.full((1, 4), 16, dtype_of(name)), np.full((4, 1), 16, dtype_of(name))
    d = rocpy.matmul(a, b, dtype=name, scale_d=2.0**-6, scale_a=1.0, scale_b=1.0)
    assert float(d[0, 0]) == 16
    assert float(rocpy.matmul(a, b, dtype=name, scale_d=2.0**20, scale_a=1.0, scale_b=1.0)[0, 0]) == float(
        saturated(np.float64(2.0**30), dtype_of(name))
    )


@pytest.mark.parametrize("name", FLOAT8)
def test_the_scale_of_c_comes_before_beta(name):
    kind = dtype_of(name)
    a, b, c = np.ones((2, 4), kind), np.ones((4, 3), kind), np.full((2, 3), 2, kind)
    d = rocpy.matmul(a, b, c, beta=0.5, scale_c=4.0, dtype=name, scale_a=1.0, scale_b=1.0)
    assert (d.astype(np.float32) == 8).all()


@pytest.mark.parametrize("name", FLOAT8)
def test_the_largest_magnitude_is_of_the_result_before_its_scale(name, rng):
    a, b = rng.standard_normal((33, 40)).astype(dtype_of(name)), rng.standard_normal((40, 50)).astype(dtype_of(name))
    d, further = rocpy.matmul(a, b, scale_a=0.5, scale_d=0.125, amax=True, dtype=name, scale_b=1.0)
    assert set(further) == {"amax"}
    assert further["amax"].shape == ()
    assert further["amax"].dtype == np.float32
    wanted = evaluate(a, b, scale_a=0.5, scale_d=0.125, amax=True)
    for found in check_outputs(wanted, (d, further), dtype_of(name)).values():
        assert found.ok, found.message


def test_the_largest_magnitude_beside_another_output(operands, rng):
    a, b = operands
    bias = rng.standard_normal(7, dtype=np.float32)
    outputs = rocpy.matmul(
        a, b, epilogue="gelu_aux_bias", bias=bias, amax=True, dtype="float32", scale_a=1.0, scale_b=1.0
    )
    assert set(outputs[1]) == {"gelu_aux", "amax"}
    expected = evaluate(a, b, epilogue="gelu_aux_bias", bias=bias, amax=True)
    check(outputs, expected)
    with rocpy.Matmul(
        a, b, epilogue="gelu_aux_bias", bias=bias, amax=True, dtype="float32", scale_a=1.0, scale_b=1.0
    ) as mm:
        check(mm.execute(), expected)


def test_the_largest_magnitude_over_a_batch(rng):
    a, b = rng.standard_normal((3, 9, 20)).astype(E4M3), rng.standard_normal((3, 20, 8)).astype(E4M3)
    check(rocpy.matmul(a, b, amax=True, dtype="float32", scale_a=1.0, scale_b=1.0), evaluate(a, b, amax=True))


def test_the_largest_magnitude_of_nothing_is_zero():
    d, further = rocpy.matmul(np.zeros((0, 4), E4M3), np.zeros((4, 3), E4M3), amax=True, scale_a=1.0, scale_b=1.0)
    assert d.shape == (0, 3)
    assert further["amax"] == 0


def test_nan_is_no_scale_as_a_number_and_is_passed_on_in_an_array(operands):
    a, b = operands
    with pytest.raises(rocpy.InvalidProblemError, match="scale_a: got nan"):
        rocpy.matmul(a, b, scale_a=np.nan, scale_b=1.0)
    assert np.isnan(rocpy.matmul(a, b, scale_a=np.full((1,), np.nan, np.float32), scale_b=1.0).astype(np.float32)).all()
    rows = np.ones(5, np.float32)
    rows[2] = np.nan
    found = np.isnan(rocpy.matmul(a, b, scale_a=rows, scale_b=1.0).astype(np.float32))
    assert found[2].all()
    assert not found[[0, 1, 3, 4]].any()


def test_an_array_is_read_at_each_call(operands):
    a, b = operands
    scale = np.ones(1, np.float32)
    with rocpy.Matmul(a, b, scale_a=scale, scale_b=1.0, dtype="float32") as mm:
        first = mm.execute()
        scale[0] = 2
        # A device with memory of its own has the copy that was made when the array was given.
        seen = 2 if rocpy.platform.current().host_memory else 1
        np.testing.assert_array_equal(mm.execute(), seen * first)
        mm.reset_operands(scale_a=4.0)
        np.testing.assert_array_equal(mm.execute(), 4 * first)
        mm.reset_operands(a=a, scale_a=np.full((), 8, np.float32), alpha=0.5)
        np.testing.assert_array_equal(mm.execute(), 4 * first)
        with pytest.raises(rocpy.InvalidProblemError, match="scale_a: it was scalar and would become vector"):
            mm.reset_operands(scale_a=np.ones(5, np.float32))
        with pytest.raises(rocpy.InvalidProblemError, match="scale_d: this product was created without"):
            mm.reset_operands(scale_d=1.0)
        np.testing.assert_array_equal(mm.execute(), 4 * first)


@pytest.mark.parametrize("epilogue", ["gelu_erf", "sigmoid_bias", "silu_bias"])
def test_scales_reach_products_that_are_composed(operands, epilogue, rng, without_programs):
    a, b = operands
    rows, columns = rng.uniform(0.1, 2, 5).astype(np.float32), rng.uniform(0.1, 2, 7).astype(np.float32)
    more = {"bias": rng.standard_normal(7, dtype=np.float32)} if epilogue.endswith("bias") else {}
    arguments = {"scale_a": rows, "scale_b": columns, "epilogue": epilogue, **more}
    check(rocpy.matmul(a, b, dtype="float32", **arguments), evaluate(a, b, **arguments))
    with rocpy.Matmul(a, b, dtype="float32", **arguments) as mm:
        check(mm.execute(), evaluate(a, b, **arguments))
        mm.reset_operands(scale_a=2 * rows)
        check(mm.execute(), evaluate(a, b, **{**arguments, "scale_a": 2 * rows}))


def test_threads_have_scales_of_their_own(operands):
    a, b = operands
    base = rocpy.matmul(a, b, dtype="float32", scale_a=1.0, scale_b=1.0)
    wrong = []

    def work(seed):
        for i in range(200):
            scale = 2.0 ** ((seed + i) % 9 - 4)
            if not np.array_equal(
                rocpy.matmul(a, b, scale_a=scale, dtype="float32", scale_b=1.0), base * np.float32(scale)
            ):
                wrong.append(scale)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_numbers_live_until_their_stream_is_done(operands):
    a, b = operands
    base = rocpy.matmul(a, b, dtype="float32", scale_a=1.0, scale_b=1.0)
    with rocpy.Stream() as stream:
        queued = []
        for i in range(64):
            queued.append(
                rocpy.matmul(a, b, scale_b=float(2.0 ** (i % 5)), dtype="float32", stream=stream, scale_a=1.0)
            )
            rocpy.matmul(a, b, scale_a=np.full(5, 3, np.float32), dtype="float32", stream=stream, scale_b=1.0)
            gc.collect(0)
        stream.synchronize()
    for i, found in enumerate(queued):
        np.testing.assert_array_equal(found, base * 2.0 ** (i % 5))


def test_explain_names_the_scales(operands):
    a, b = operands
    shown = str(
        rocpy.explain(a, b, scale_a=0.5, scale_b=np.ones(7, np.float32), scale_d=2.0, dtype="float8_e4m3fn", amax=True)
    )
    assert "scales of a vector, b vector, d, amax" in shown


REFUSED = [
    ({"scale_a": np.ones(3, np.float32)}, r"scale_a: got shape \(3,\)"),
    ({"scale_b": np.ones(5, np.float32)}, r"scale_b: got shape \(5,\)"),
    ({"scale_a": np.ones((2, 5), np.float32)}, r"scale_a: got shape \(2, 5\)"),
    ({"scale_a": np.ones(1, np.float64)}, "scale_a is float64"),
    ({"scale_a": np.ones((5, 2), np.uint8)}, "K = 40 with scales .* pad K"),
    ({"scale_d": 2.0}, "scale_d: the result is bfloat16"),
    ({"scale_d": np.ones(2, np.float32), "dtype": "float8_e5m2"}, "scale_d: got shape"),
    ({"scale_c": 2.0}, "scale_c: there is no c"),
]


@pytest.mark.parametrize(("arguments", "match"), REFUSED, ids=[match for _, match in REFUSED])
def test_wrong_scales_are_refused_by_name(operands, arguments, match):
    for make in (rocpy.matmul, rocpy.Matmul):
        with pytest.raises(rocpy.InvalidProblemError, match=match):
            make(*operands, **{"scale_a": 1.0, "scale_b": 1.0, **arguments})


@pytest.mark.parametrize("value", ["2.0", object(), True, 1j, [1.0, 2.0]])
def test_what_is_no_scale_is_refused(operands, value):
    with pytest.raises(rocpy.InvalidOperandError, match="scale_a"):
        rocpy.matmul(*operands, scale_a=value, scale_b=1.0)


@pytest.mark.parametrize("name", ["float64", "float32", "float16", "bfloat16"])
def test_wide_operands_take_no_scales(name):
    a = np.ones((4, 4), dtype_of(name))
    for scale in ("scale_a", "scale_b"):
        with pytest.raises(rocpy.InvalidProblemError, match=f"{scale}: a {name} product takes no scales"):
            rocpy.matmul(a, a, **{scale: 2.0})
    with pytest.raises(rocpy.UnsupportedError, match="amax"):
        rocpy.matmul(a, a, amax=True)


@pytest.mark.parametrize("epilogue", ["default", "relu_bias", "clamp"])
@pytest.mark.parametrize("dtype", ["int8", "int32"])
def test_integer_results_with_scales_are_rounded_once(dtype, epilogue, rng):
    """hipBLASLt scales no such product: sums in int32, then scaled, rounded to nearest even and saturated."""
    a, b = rng.integers(-128, 128, (5, 70), np.int8), rng.integers(-128, 128, (70, 7), np.int8)
    rows, columns = rng.uniform(0.001, 0.01, (5, 1)).astype(np.float32), rng.uniform(0.5, 1, 7).astype(np.float32)
    more = {"bias": rng.uniform(-3, 3, 7).astype(np.float32)} if "bias" in epilogue else {}
    more |= {"clamp": (-100.0, 7.0)} if epilogue == "clamp" else {}
    found = rocpy.matmul(a, b, scale_a=rows, scale_b=columns, alpha=0.75, epilogue=epilogue, dtype=dtype, **more)
    assert found.dtype == np.dtype(dtype)
    expected = evaluate(a, b, scale_a=rows, scale_b=columns, alpha=0.75, epilogue=epilogue, **more).result
    np.testing.assert_array_equal(found, saturated(expected, np.dtype(dtype)))
    with rocpy.Matmul(a, b, scale_a=rows, scale_b=columns, alpha=0.75, epilogue=epilogue, dtype=dtype, **more) as mm:
        np.testing.assert_array_equal(mm.execute(), found)
        mm.reset_operands(a=a[::-1].copy(), scale_a=rows[::-1].copy())
        np.testing.assert_array_equal(mm.execute(), found[::-1])
    answer = rocpy.blaslt.supported("int8", dtype=dtype, scale_a="vector", scale_b="vector")
    assert answer.lowering == "unfused"
    assert "hipBLASLt applies none to an int8 product" in answer.reasons[0]
    with pytest.raises(rocpy.UnsupportedError, match="applies none"):
        rocpy.matmul(a, b, scale_a=2.0, dtype=dtype, options={"fallback": "error"})


@pytest.mark.parametrize("kind", [float, np.float32, np.float64])
@pytest.mark.parametrize("name", ["alpha", "scale_a", "scale_b"])
def test_factors_of_integer_results_are_float32_numbers(name, kind):
    """0.001 is more in float32, and 0.015 less, so that results lie beyond the half that would round to even."""
    a, b = np.array([[100] * 5], np.int8), np.array([[100]] * 4 + [[125]], np.int8)
    factors = {"alpha": 1.0, "scale_a": 1.0, "scale_b": 1.0, "dtype": "int8"}
    assert rocpy.matmul(a, b, **factors | {name: kind(0.001)}) == 53
    assert rocpy.matmul(a * 0, b, c=a[:, :1], beta=kind(0.015), **factors) == 1


@pytest.mark.parametrize("form", ["numpy", pytest.param("torch", marks=pytest.mark.torch)])
def test_nan_is_zero_among_integers(form):
    """A CPU's own conversion gives what its instructions make of it."""
    wrap = pytest.importorskip("torch").from_numpy if form == "torch" else np.asarray
    nan = np.array([1, np.nan, -np.inf, np.inf], np.float32)
    a, b, column = (wrap(np.ones(shape, np.int8)) for shape in ((4, 1), (1, 9), (1, 4)))
    for dtype in ("int8", "int32"):
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
        scaled = rocpy.matmul(a, b, scale_a=wrap(nan), scale_b=1.0, dtype=dtype)
        biased = rocpy.matmul(a, column, scale_a=1.0, scale_b=1.0, dtype=dtype, epilogue="bias", bias=wrap(nan))
        np.testing.assert_array_equal(np.asarray(scaled), np.array([[1], [0], [low], [high]]).repeat(9, 1))
        np.testing.assert_array_equal(np.asarray(biased), [[2, 0, low, high]] * 4)
    out = wrap(np.empty((4, 9), np.int64))
    rocpy.matmul(a, b, scale_a=wrap(nan), scale_b=1.0, out=out)
    assert out[1].tolist() == [0] * 9


def test_amax_of_products_that_the_library_does_not_tell_it_of(rng):
    a, b = rng.integers(-128, 128, (5, 70), np.int8), rng.integers(-128, 128, (70, 7), np.int8)
    for dtype in ("int32", "int8", "float32"):
        d, further = rocpy.matmul(a, b, scale_a=1.0, scale_b=1.0, amax=True, dtype=dtype)
        sums = a.astype(np.int64) @ b
        assert further["amax"] == np.abs(sums).max()
        assert further["amax"].dtype == np.float32
        np.testing.assert_array_equal(d, saturated(sums.astype(float), np.dtype(dtype)))
    # The library is called once for each batch entry here, and would tell the largest magnitude of the last.
    a = rng.standard_normal((3, 2, 4, 32)).astype(E4M3)
    b, rows = rng.standard_normal((32, 8)).astype(E4M3), rng.uniform(0.5, 2, (3, 1, 4)).astype(np.float32)
    scaled = {"scale_a": rows, "scale_b": np.ones(8, np.float32)}
    for dtype in ("float32", "float8_e4m3fn"):
        d, further = rocpy.matmul(a, b, amax=True, dtype=dtype, **scaled)
        wide = rocpy.matmul(a, b, dtype="float32", **scaled)
        assert further["amax"] == np.abs(wide).max()
        np.testing.assert_array_equal(d, saturated(wide, np.dtype(d.dtype)))
    with rocpy.Matmul(a, b, amax=True, dtype="float32", **scaled) as mm:
        assert mm.execute()[1]["amax"] == further["amax"]
    assert "amax" in str(rocpy.explain(a, b, amax=True, **scaled).unfused)


@pytest.mark.torch
def test_scales_may_be_torch_tensors(operands, rng, torch):
    a, b = operands
    left, right = (torch.from_numpy(x.view(np.uint8)).view(torch.float8_e4m3fn) for x in operands)
    rows, columns = rng.uniform(0.1, 4, 5).astype(np.float32), rng.uniform(0.1, 4, 7).astype(np.float32)
    for scale_a, scale_b in (
        (torch.tensor(0.5), torch.tensor([0.25])),
        (torch.from_numpy(rows), torch.from_numpy(columns)),
        (torch.from_numpy(rows)[:, None], torch.from_numpy(columns)[None, :]),
        (torch.from_numpy(rows), 0.5),
        (torch.tensor(0.5), torch.from_numpy(columns)),
    ):
        d, further = rocpy.matmul(left, right, scale_a=scale_a, scale_b=scale_b, dtype=torch.float32, amax=True)
        assert isinstance(further["amax"], torch.Tensor)
        expected = evaluate(a, b, scale_a=np.asarray(scale_a), scale_b=np.asarray(scale_b), amax=True)
        check((d.numpy(), {"amax": further["amax"].numpy()}), expected)


def test_alpha_is_multiplied_by_the_scale_of_b_and_then_by_that_of_a():
    """The order of AMD's kernels: their A, whose scale comes first, is b where the result lies in rows."""
    a, b = (np.ones((16, 32), dtype_of("float8_e4m3fn")) for _ in range(2))
    large = {"alpha": 1e30, "dtype": "float32"}
    assert np.isinf(rocpy.matmul(a, b.T, scale_a=1e-30, scale_b=1e30, **large)).all()
    for scales in ({"scale_a": 1e30, "scale_b": 1e-30}, {"scale_a": np.float32(1e30), "scale_b": np.float32(1e-30)}):
        for epilogue in ("default", "relu", "gelu_erf"):
            d = rocpy.matmul(a, b.T, epilogue=epilogue, **scales, **large)
            np.testing.assert_allclose(d, 32e30, rtol=1e-6)
    small = {"alpha": 1e-30, "dtype": "float32"}
    np.testing.assert_allclose(rocpy.matmul(a, b.T, scale_a=1e30, scale_b=1e30, **small), 32e30, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["int32", "int8"])
@pytest.mark.parametrize("epilogue", ["gelu", "silu"])
def test_a_refusal_names_what_is_not_supported(epilogue, dtype):
    """Not what keeps the library from fusing a product that is not composed either."""
    a = np.ones((16, 16), np.int8)
    with pytest.raises(
        rocpy.UnsupportedError, match=f"epilogue {epilogue!r}: a function of real numbers, and the result is"
    ):
        rocpy.matmul(a, a, epilogue=epilogue, dtype=dtype, amax=True)
    answer = rocpy.blaslt.supported("int8", epilogue=epilogue, dtype=dtype, amax=True)
    assert not answer
    assert "a function of real numbers" in answer.reasons[0]


def test_a_product_without_a_native_part_says_what_that_lacks():
    part = recipes.refused("no algorithm for the part")
    text = str(recipes.not_composed("no blocks here", part))
    assert text.startswith("no blocks here; the product that it would be composed from is not available either: no alg")
    assert str(recipes.not_composed("no algorithm for the part", part)) == "no algorithm for the part"
