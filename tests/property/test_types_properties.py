# SPDX-License-Identifier: MIT
"""Properties of products of 8-bit and narrower floats, integers and complex numbers, over random shapes and scales."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from presented import skip_without

from rocpy.testing import Case, run_case
from rocpy.testing.cases import COMPLEX, FLOAT8, LAYOUTS, MX

QUICK = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])

extents = st.one_of(st.integers(0, 20), st.sampled_from((31, 32, 33, 63, 64, 65)))
layouts = st.tuples(st.sampled_from(LAYOUTS), st.sampled_from(LAYOUTS)).map("".join)
batches = st.sampled_from((((), ()), ((3,), (3,)), ((3,), ()), ((), (2,)), ((2, 1), (1, 3))))
factors = st.sampled_from((0.0, 1.0, -1.0, 0.5, 2.0))


def check(case):
    found = run_case(case)
    assert found.ok, found.message


@st.composite
def float8_cases(draw):
    a = draw(st.sampled_from(FLOAT8))
    dialect = [x for x in FLOAT8 if x.endswith("fnuz") == a.endswith("fnuz")]
    b = draw(st.sampled_from(dialect))
    out = draw(st.sampled_from(("", "float32", "float16", *dialect)))
    epilogue = draw(st.sampled_from(("default", "bias", "relu_bias", "gelu_bias", "gelu_aux")))
    batch_a, batch_b = draw(batches)
    return Case(
        draw(extents),
        draw(extents),
        draw(extents),
        a,
        out,
        epilogue,
        draw(layouts),
        batch_a,
        batch_b,
        draw(factors),
        draw(factors),
        data=draw(st.sampled_from(("normal", "integers"))),
        dtype_b=b if b != a else "",
        scale=draw(st.sampled_from(("scalar", "vector", "batch"))),
        scale_d=draw(st.sampled_from((0.0, 0.25, 2.0))) if out.startswith("float8") else 0.0,
    )


@QUICK
@given(float8_cases())
def test_float8_products_equal_the_oracle(case):
    check(case)


@st.composite
def mx_cases(draw):
    a, b = draw(st.sampled_from(MX)), draw(st.sampled_from(MX))
    batch_a, batch_b = draw(batches)
    return Case(
        draw(st.integers(1, 40)),
        draw(st.integers(1, 40)),
        32 * draw(st.integers(1, 4)),
        a,
        draw(st.sampled_from(("", "float32", "float16"))),
        draw(st.sampled_from(("default", "bias", "gelu_bias"))),
        draw(st.sampled_from(("nn", "nt", "tn", "tt", "pq"))),
        batch_a,
        batch_b,
        draw(factors),
        draw(factors),
        dtype_b=b if b != a else "",
        scale="block32",
    )


@QUICK
@given(mx_cases())
def test_mx_products_equal_the_oracle(case):
    check(case)


@st.composite
def int8_cases(draw):
    out = draw(st.sampled_from(("", "int8", "float32", "float16", "bfloat16")))
    wide = out.startswith(("float", "bfloat"))
    batch_a, batch_b = draw(batches)
    return Case(
        draw(extents),
        draw(extents),
        draw(extents),
        "int8",
        out,
        draw(st.sampled_from(("default", "bias", "relu_bias"))),
        draw(layouts),
        batch_a,
        batch_b,
        draw(factors) if wide else draw(st.sampled_from((0.0, 1.0, -3.0))),
        draw(factors) if wide else draw(st.sampled_from((0.0, 1.0, 2.0))),
        data=draw(st.sampled_from(("normal", "integers"))),
        scale=draw(st.sampled_from(("scalar", "vector", "batch"))) if wide else "",
    )


@QUICK
@given(int8_cases())
def test_int8_products_equal_the_oracle(case):
    check(case)


@st.composite
def complex_cases(draw):
    batch_a, batch_b = draw(batches)
    return Case(
        draw(extents),
        draw(extents),
        draw(extents),
        draw(st.sampled_from(COMPLEX)),
        layout=draw(layouts),
        batch_a=batch_a,
        batch_b=batch_b,
        alpha=draw(factors),
        beta=draw(factors),
        alpha_imaginary=draw(factors),
    )


@QUICK
@given(complex_cases())
def test_complex_products_equal_the_oracle(case):
    skip_without("complex64")
    check(case)
