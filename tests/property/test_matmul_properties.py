# SPDX-License-Identifier: MIT
"""Properties of matmul over random shapes, strides, batches, dtypes, epilogues and scalars."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import rocpy
from rocpy.testing import ORACLES, Case, evaluate, make_operands, run_case
from rocpy.testing.cases import DTYPES, EPILOGUES, LAYOUTS
from rocpy.testing.runner import check_outputs, dtype_of, keywords

QUICK = settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])
LONG = settings(max_examples=5000, deadline=None, suppress_health_check=[HealthCheck.too_slow])

extents = st.one_of(st.integers(0, 20), st.sampled_from((31, 32, 33, 63, 64, 65, 97, 128, 129)))
scalars = st.one_of(
    st.sampled_from((0.0, -0.0, 1.0, -1.0, 0.5, 2.0, np.inf, -np.inf, np.nan, 1e30, 1e-30)), st.floats(-8, 8, width=32)
)


@st.composite
def batch_pairs(draw):
    """Leading extents of a and b that broadcast."""
    full = draw(st.lists(st.integers(0, 3), max_size=3))

    def part():
        kept = full[draw(st.integers(0, len(full))) :]
        return tuple(draw(st.sampled_from((extent, 1))) for extent in kept)

    return part(), part()


@st.composite
def problems(draw):
    """A case of the list's kind, with any extents, layouts, batches and finite or special scalars."""
    dtype = draw(st.sampled_from(DTYPES))
    narrow = dtype in ("float16", "bfloat16")
    batch_a, batch_b = draw(batch_pairs())
    m, n, k = draw(extents), draw(extents), draw(extents)
    epilogue = draw(st.sampled_from(EPILOGUES))
    has_batch_bias = ORACLES[epilogue].bias and (batch_a or batch_b)
    return Case(
        m,
        n,
        k,
        dtype,
        out_dtype=draw(st.sampled_from(("", "float32"))) if narrow else "",
        epilogue=epilogue,
        layout=draw(st.sampled_from(LAYOUTS)) + draw(st.sampled_from(LAYOUTS)),
        batch_a=batch_a,
        batch_b=batch_b,
        alpha=draw(scalars),
        beta=draw(scalars),
        bias=draw(st.sampled_from(("row", "batch"))) if has_batch_bias else "row",
        data=draw(st.sampled_from(("normal", "integers"))),
    )


def small_enough(case):
    total = case.m * case.n * max(case.k, 1)
    for extent in case.batch:
        total *= extent
    return total <= 2_000_000


def check_case(case):
    assume(small_enough(case))
    # Exact equality of integers is demanded only where the scalars keep them small integers.
    if case.data == "integers" and not (case.alpha in (0, 1, -1, 2) and case.beta in (0, 1, -1, 2)):
        operands = make_operands(case)
        arrays = dict(operands)
        positional = [arrays.pop(key) for key in ("a", "b", "c") if key in arrays]
        options = keywords(case)
        outputs = rocpy.matmul(*positional, **arrays, **options)
        options.pop("dtype", None)
        expected = evaluate(*positional, **arrays, **options)
        results = check_outputs(expected, outputs, dtype_of(case.result_dtype)).values()
    else:
        results = run_case(case).comparisons.values()
    for found in results:
        assert found.ok, found.message


@QUICK
@given(problems())
def test_any_problem_equals_the_oracle(case):
    check_case(case)


@pytest.mark.slow
@LONG
@given(problems())
def test_any_problem_equals_the_oracle_for_long(case):
    check_case(case)


@st.composite
def strided(draw, shape, dtype):
    """An array of a shape with random permutation, steps, offsets and directions of its axes."""
    order = draw(st.permutations(range(len(shape))))
    steps = [draw(st.sampled_from((1, 1, 1, 2, 3, -1, -2))) for _ in shape]
    stored = np.zeros([abs(steps[axis]) * shape[axis] + draw(st.integers(0, 2)) for axis in order], dtype=dtype)
    view = stored.transpose(np.argsort(order))
    view = view[tuple(slice(None, abs(step) * extent, abs(step)) for step, extent in zip(steps, shape, strict=True))]
    view = view[tuple(slice(None, None, -1 if step < 0 else 1) for step in steps)]
    seed = draw(st.integers(0, 2**32 - 1))
    view[...] = np.random.default_rng(seed).standard_normal(shape).astype(dtype)
    return view


@st.composite
def strided_products(draw):
    m, n, k = (draw(st.integers(1, 9)) for _ in range(3))
    batch = tuple(draw(st.lists(st.integers(1, 3), max_size=2)))
    dtype = dtype_of(draw(st.sampled_from(DTYPES)))
    return (
        draw(strided((*batch, m, k), dtype)),
        draw(strided((*batch, k, n), dtype)),
        draw(strided((*batch, m, n), dtype)),
    )


@QUICK
@given(strided_products(), st.sampled_from(("default", "gelu_aux", "bgrada")), st.floats(-2, 2, width=16))
def test_strides_do_not_matter(operands, epilogue, beta):
    a, b, c = operands
    outputs = rocpy.matmul(a, b, c, beta=beta, epilogue=epilogue)
    dense = rocpy.matmul(*(np.ascontiguousarray(item) for item in operands), beta=beta, epilogue=epilogue)
    expected = evaluate(a, b, c, beta=beta, epilogue=epilogue)
    for found in check_outputs(expected, outputs, a.dtype).values():
        assert found.ok, found.message
    for found in check_outputs(expected, dense, a.dtype).values():
        assert found.ok, found.message


@QUICK
@given(strided_products())
def test_out_of_any_layout(operands):
    a, b, out = operands
    try:
        outputs = rocpy.matmul(a, b, out=out)
    except rocpy.InvalidOperandError:
        assert any(stride < 0 for stride in out.strides)
        return
    assert outputs is out
    found = check_outputs(evaluate(a, b), out, out.dtype)["result"]
    assert found.ok, found.message


@QUICK
@given(
    st.lists(st.integers(0, 3), max_size=4),
    st.lists(st.integers(0, 3), max_size=4),
    st.booleans(),
    st.sampled_from(("default", "relu", "relu_aux")),
)
def test_shapes_are_accepted_exactly_when_numpy_accepts_them(shape_a, shape_b, transposed, epilogue):
    a, b = np.ones(shape_a, dtype=np.float32), np.ones(shape_b, dtype=np.float32)
    if transposed and b.ndim >= 2:
        b = np.swapaxes(b, -1, -2)
    try:
        expected = np.matmul(a, b)
    except ValueError:
        with pytest.raises(rocpy.InvalidProblemError):
            rocpy.matmul(a, b, epilogue=epilogue)
        return
    outputs = rocpy.matmul(a, b, epilogue=epilogue)
    d = outputs[0] if isinstance(outputs, tuple) else outputs
    assert d.shape == expected.shape
    assert np.array_equal(d, expected)


@QUICK
@given(problems(), st.sampled_from(("c", "aux")))
def test_nan_in_what_is_not_read_stays_there(case, name):
    assume(small_enough(case))
    assume(np.isfinite(case.alpha))
    full = (*case.batch, case.m, case.n)
    operands = make_operands(case)
    nan = np.full(full, np.nan, dtype=dtype_of(case.result_dtype))
    options = {key: value for key, value in operands.items() if key in ("bias", "aux")}
    rest = {**keywords(case), "beta": 0.0}
    if name == "c":
        outputs = rocpy.matmul(operands["a"], operands["b"], nan, **options, **rest)
        plain = rocpy.matmul(operands["a"], operands["b"], **options, **{**rest, "beta": None})
    else:
        outputs = rocpy.matmul(operands["a"], operands["b"], **options, **{**rest, "beta": None}, out=nan)
        plain = rocpy.matmul(operands["a"], operands["b"], **options, **{**rest, "beta": None})
    first = outputs[0] if isinstance(outputs, tuple) else outputs
    second = plain[0] if isinstance(plain, tuple) else plain
    assert np.array_equal(first, second)


@QUICK
@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 40), st.sampled_from(DTYPES))
def test_the_identity_changes_nothing(m, n, seed, name):
    dtype = dtype_of(name)
    a = np.random.default_rng(seed).standard_normal((m, n)).astype(dtype)
    assert np.array_equal(rocpy.matmul(a, np.eye(n, dtype=dtype)), a)
    assert np.array_equal(rocpy.matmul(np.eye(m, dtype=dtype), a), a)


@QUICK
@given(
    st.integers(1, 30),
    st.integers(1, 30),
    st.integers(1, 60),
    st.sampled_from(DTYPES),
    st.sampled_from((2.0, -4.0, 0.25)),
)
def test_powers_of_two_scale_exactly(m, n, k, name, factor):
    dtype = dtype_of(name)
    rng = np.random.default_rng(m * 10_000 + n * 100 + k)
    a, b = rng.standard_normal((m, k)).astype(dtype), rng.standard_normal((k, n)).astype(dtype)
    d = rocpy.matmul(a, b).astype(np.float64)
    scaled = rocpy.matmul(a, b, alpha=factor).astype(np.float64)
    # A result that becomes subnormal loses bits when it is rounded.
    exact = np.abs(factor * d) >= float(ml_dtypes.finfo(dtype).smallest_normal)
    assert exact.mean() > 0.9 or d.size < 50
    assert np.array_equal(scaled[exact], (factor * d)[exact])
