# SPDX-License-Identifier: MIT
"""Reductions and scans over types, operators, groups and sizes, against numpy in float64."""

import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocpy import cooperative as coop
from rocpy.errors import KernelTypeError
from rocpy.testing import primitives
from rocpy.testing.primitives import PrimitiveCase


@functools.cache
def reducer(op, width, items, dtype, warp_size):
    """Kernel that stores each thread's own view of the result: the defined ones are those of rank 0."""
    if items:

        @coop.jit(warp_size=warp_size, threads=1)
        def kernel(x, out):
            own = coop.ThreadData(items, dtype)
            for k in range(items):
                own[k] = x[coop.threadIdx.x, k]
            if width:
                out[coop.threadIdx.x] = coop.reduce(coop.this_warp(width), own, op, all=True)
            else:
                out[coop.threadIdx.x] = coop.reduce(coop.this_block(), own, op, all=True)
    else:

        @coop.jit(warp_size=warp_size, threads=1)
        def kernel(x, out):
            i = coop.threadIdx.x
            if width:
                out[i] = coop.reduce(coop.this_warp(width), x[i, 0], op, all=True)
            else:
                out[i] = coop.reduce(coop.this_block(), x[i, 0], op, all=True)

    return kernel


@functools.cache
def scanner(op, width, items, dtype, warp_size):
    if items:

        @coop.jit(warp_size=warp_size, threads=1)
        def kernel(x, out):
            own = coop.ThreadData(items, dtype)
            for k in range(items):
                own[k] = x[coop.threadIdx.x, k]
            if width:
                scanned = coop.inclusive_scan(coop.this_warp(width), own, op)
            else:
                scanned = coop.inclusive_scan(coop.this_block(), own, op)
            for k in range(items):
                out[coop.threadIdx.x, k] = scanned[k]
    else:

        @coop.jit(warp_size=warp_size, threads=1)
        def kernel(x, out):
            i = coop.threadIdx.x
            if width:
                out[i, 0] = coop.inclusive_scan(coop.this_warp(width), x[i, 0], op)
            else:
                out[i, 0] = coop.inclusive_scan(coop.this_block(), x[i, 0], op)

    return kernel


def check(seen, expected, bounds):
    wide = np.complex128 if seen.dtype.kind == "c" else (np.float64 if seen.dtype.kind == "f" else object)
    error = np.abs(seen.astype(wide) - expected.astype(wide))
    assert (error <= bounds).all(), f"error {error.max()} at {np.argmax(error)}"


def check_reduce(case):
    kernel = reducer(case.op, case.width, case.items, np.dtype(case.dtype), case.warp_size)
    out = np.zeros(case.threads, case.dtype)
    kernel[1, case.threads](case.values(), out)
    expected, bounds = primitives.reduce_oracle(case)
    for group, wanted, bound in zip(case.groups, expected, bounds, strict=True):
        assert len({value.tobytes() for value in out[group]}) == 1
        check(out[group][:1], wanted[None], bound)


def check_scan(case):
    kernel = scanner(case.op, case.width, case.items, np.dtype(case.dtype), case.warp_size)
    x = case.values()
    out = np.zeros_like(x)
    kernel[1, case.threads](x, out)
    check(out, *primitives.scan_oracle(case))


@pytest.mark.parametrize("case", list(primitives.cases("reduce")), ids=lambda case: case.name)
def test_reduce(case):
    check_reduce(case)


@pytest.mark.parametrize("case", list(primitives.cases("inclusive_scan")), ids=lambda case: case.name)
def test_scan(case):
    check_scan(case)


@pytest.mark.slow
@pytest.mark.parametrize("case", list(primitives.cases("reduce", tier="full")), ids=lambda case: case.name)
def test_reduce_of_every_type(case):
    check_reduce(case)


@pytest.mark.slow
@pytest.mark.parametrize("case", list(primitives.cases("inclusive_scan", tier="full")), ids=lambda case: case.name)
def test_scan_of_every_type(case):
    check_scan(case)


@pytest.mark.parametrize("threads", primitives.SIZES)
@pytest.mark.parametrize("warp_size", [32, pytest.param(64, marks=pytest.mark.slow)])
def test_every_size(threads, warp_size):
    check_reduce(PrimitiveCase("reduce", "float32", "+", threads, 0, 0, warp_size))
    check_reduce(PrimitiveCase("reduce", "int64", "max", threads, 32, 0, warp_size))
    check_scan(PrimitiveCase("inclusive_scan", "float32", "+", threads, 0, 0, warp_size))
    check_scan(PrimitiveCase("inclusive_scan", "int64", "max", threads, 32, 0, warp_size))


@settings(deadline=None, max_examples=60, derandomize=True)
@given(threads=st.integers(1, 1024), width=st.sampled_from([0, 32]), warp_size=st.sampled_from([32, 64]))
def test_any_size(threads, width, warp_size):
    op, dtype = ("max", "int64") if width else ("+", "float32")
    check_reduce(PrimitiveCase("reduce", dtype, op, threads, width, 0, warp_size))
    check_scan(PrimitiveCase("inclusive_scan", dtype, op, threads, width, 0, warp_size))


def test_bits_do_not_depend_on_the_warp_size(rng):
    x = rng.standard_normal((300, 1)).astype(np.float32)
    for make in (reducer, scanner):
        results = []
        for warp_size in (32, 64):
            out = np.zeros(x.shape if make is scanner else 300, np.float32)
            make("+", 0, 0, np.dtype(np.float32), warp_size)[1, 300](x, out)
            results.append(out)
        assert results[0].tobytes() == results[1].tobytes()


def compose(a, b):
    """Composition of affine maps, two halves of a number each: associative, and not commutative."""
    first, second = a // 1000 % 1000, a % 1000
    third, fourth = b // 1000 % 1000, b % 1000
    return (first * third % 997) * 1000 + (second * third + fourth) % 997


@pytest.mark.parametrize("threads", [1, 16, 33, 100, 256])
def test_operands_stay_in_order(threads, rng):
    @coop.jit(threads=1)
    def kernel(x, total, scanned):
        i = coop.threadIdx.x
        all_of_it = coop.reduce(coop.this_block(), x[i], compose)
        scanned[i] = coop.inclusive_scan(coop.this_block(), x[i], compose)
        if i == 0:
            total[0] = all_of_it

    x = rng.integers(1, 997, threads) * 1000 + rng.integers(1, 997, threads)
    expected = [int(x[0])]
    for value in x[1:]:
        expected.append(compose(expected[-1], int(value)))
    total, scanned = np.zeros(1, np.int64), np.zeros(threads, np.int64)
    kernel[1, threads](x, total, scanned)
    assert total[0] == expected[-1]
    assert scanned.tolist() == expected


def test_operators_as_ufuncs_functions_and_builtins(rng):
    @coop.jit(threads=1)
    def kernel(x, out):
        i = coop.threadIdx.x
        block = coop.this_block()
        a = coop.reduce(block, x[i], np.add)
        b = coop.reduce(block, x[i], max)
        c = coop.reduce(block, x[i], np.hypot)
        d = coop.reduce(block, x[i], lambda p, q: p + q)
        if i == 0:
            out[0], out[1], out[2], out[3] = a, b, c, d

    x = rng.standard_normal(50)
    out = np.zeros(4)
    kernel[1, 50](x, out)
    np.testing.assert_allclose(out, [x.sum(), x.max(), np.sqrt((x * x).sum()), x.sum()], rtol=1e-12)


def test_not_a_number_wins(rng):
    @coop.jit(threads=1)
    def kernel(x, out):
        i = coop.threadIdx.x
        out[i, 0] = coop.min(coop.this_block(), x[i], all=True)
        out[i, 1] = coop.max(coop.this_block(), x[i], all=True)

    for place in (0, 7, 39):
        x = rng.standard_normal(40)
        x[place] = np.nan
        out = np.zeros((40, 2))
        kernel[1, 40](x, out)
        assert np.isnan(out).all()


@pytest.mark.parametrize("valid", [1, 2, 17, 40, 64])
def test_valid_items(valid):
    @coop.jit(threads=1)
    def kernel(x, valid, out):
        i = coop.threadIdx.x
        total = coop.sum(coop.this_block(), x[i], valid_items=valid)
        if i == 0:
            out[0] = total

    out = np.zeros(1, np.int64)
    kernel[1, 40](np.arange(1, 41), valid, out)
    assert out[0] == sum(range(1, min(valid, 40) + 1))


@pytest.mark.parametrize("items", [pytest.param(0, marks=pytest.mark.slow), 4])
def test_exclusive_scans_initial_values_and_aggregates(items, rng):
    count = max(items, 1)

    @coop.jit(threads=1)
    def kernel(x, sums, first, longest, totals):
        i = coop.threadIdx.x
        block = coop.this_block()
        if items:
            own = coop.ThreadData(items, np.int64)
            for k in range(items):
                own[k] = x[i, k]
            a, total = coop.exclusive_sum(block, own, aggregate=True)
            b = coop.inclusive_sum(block, own, initial=100)
            c = coop.exclusive_scan(block, own, "max", initial=5)
            for k in range(items):
                sums[i, k], first[i, k], longest[i, k] = a[k], b[k], c[k]
            totals[i] = total
        else:
            s, total = coop.exclusive_sum(block, x[i, 0], aggregate=True)
            sums[i, 0], totals[i] = s, total
            first[i, 0] = coop.inclusive_sum(block, x[i, 0], initial=100)
            longest[i, 0] = coop.exclusive_scan(block, x[i, 0], "max", initial=5)

    x = rng.integers(-9, 50, (37, count))
    sums, first, longest, totals = np.zeros_like(x), np.zeros_like(x), np.zeros_like(x), np.zeros(37, np.int64)
    kernel[1, 37](x, sums, first, longest, totals)
    flat = x.ravel()
    np.testing.assert_array_equal(sums.ravel(), np.cumsum(flat) - flat)
    np.testing.assert_array_equal(first.ravel(), np.cumsum(flat) + 100)
    np.testing.assert_array_equal(longest.ravel(), np.maximum.accumulate([5, *flat[:-1]]))
    np.testing.assert_array_equal(totals, flat.sum())


def carry(state, aggregate):
    before = state[0]
    state[0] = before + aggregate
    return before


@pytest.mark.parametrize("exclusive", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_prefix_callback_carries_on_over_tiles(exclusive, rng):
    @coop.jit(threads=1)
    def kernel(x, out):
        state = coop.shared.array(1, np.int64)
        i = coop.threadIdx.x
        if i == 0:
            state[0] = 0
        coop.syncthreads()
        for begin in range(0, x.shape[0], coop.blockDim.x):
            if exclusive:
                out[begin + i] = coop.exclusive_sum(coop.this_block(), x[begin + i], prefix=carry, state=state)
            else:
                out[begin + i] = coop.inclusive_sum(coop.this_block(), x[begin + i], prefix=carry, state=state)

    x = rng.integers(-9, 9, 6 * 32)
    out = np.zeros_like(x)
    kernel[1, 32](x, out)
    np.testing.assert_array_equal(out, np.cumsum(x) - x if exclusive else np.cumsum(x))


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("coop.exclusive_scan(coop.this_block(), x[0], f)", "no known neutral element; pass initial="),
        (
            "coop.inclusive_sum(coop.this_block(), x[0], initial=1, prefix=f, state=x)",
            "pass either initial or prefix",
        ),
        ("coop.inclusive_sum(coop.this_block(), x[0], prefix=3)", "it must be a Python function"),
        ("coop.sum(coop.this_block(), coop.ThreadData(2, np.float64), valid_items=1)", "valid_items counts threads"),
        ("coop.sum(coop.this_block(), x[0], valid_items=1.5)", "valid_items is float64; it must be an integer"),
        ("coop.inclusive_sum(coop.this_block(), np.int8(1), initial=300)", "initial is 300, and the items are int8"),
        ("coop.exclusive_sum(coop.this_block(), np.uint8(1), initial=-1)", "initial is -1, and the items are uint8"),
        ("coop.inclusive_sum(coop.this_block(), np.int32(1), initial=2**40)", "initial is 1099511627776"),
        ("coop.inclusive_sum(coop.this_block(), 1, initial=0.5)", "initial is float64, and the items are int64"),
        ("coop.inclusive_sum(coop.this_block(), 1, initial=1j)", "initial is complex128, and the items are int64"),
        ("coop.inclusive_sum(coop.this_block(), x[0], initial=1j)", "initial is complex128"),
        ("coop.adjacent_difference(coop.this_block(), 1, tile_predecessor=0.5)", "tile_predecessor is float64"),
        (
            "coop.load(coop.this_block(), x, coop.ThreadData(1, np.int64), valid_items=0, oob_default=0.5)",
            "oob_default is float64, and the items are int64",
        ),
    ],
)
def test_wrong_options(statement, message, tmp_path):
    source = tmp_path / "kernels.py"
    source.write_text(
        "import numpy as np\nfrom rocpy import cooperative as coop\n\n\n"
        f"def f(a, b):\n    return a * b\n\n\ndef kernel(x):\n    y = {statement}\n"
    )
    names = {"__name__": "kernels"}
    exec(compile(source.read_text(), str(source), "exec"), names)
    with pytest.raises(KernelTypeError, match=message):
        coop.jit(names["kernel"])[1, 1](np.zeros(1))
