# SPDX-License-Identifier: MIT
"""The array form: reductions and scans by rows, of numpy and torch, against numpy; what is refused."""

import functools
import operator
import sys

import numpy as np
import pytest

from rocpy import cooperative as coop
from rocpy.errors import InvalidOperandError, InvalidProblemError
from rocpy.testing import primitives


@pytest.mark.parametrize("columns", [1, 100, 1000])
def test_rows_of_floats(columns, rng):
    x = rng.standard_normal((2, 3, columns)).astype(np.float32)
    for threads in (1, 64, 256):
        # At most one rounding for each item of a thread and each level of the tree, relative to the magnitudes.
        steps = -(-columns // min(threads, columns)) + 10
        bound = steps * np.finfo(np.float32).eps * np.abs(x).sum(-1, dtype=np.float64)
        assert (np.abs(coop.row_sum(x, threads=threads) - x.sum(-1, dtype=np.float64)) <= bound).all()
        np.testing.assert_array_equal(coop.row_max(x, threads=threads), x.max(-1))
        scanned = coop.block_scan(x, threads=threads)
        assert scanned.dtype == np.float32
        assert (np.abs(scanned - np.cumsum(x, -1, dtype=np.float64)) <= 2 * bound[..., None]).all()


@pytest.mark.slow
@pytest.mark.parametrize("dtype", primitives.INTEGERS)
def test_every_operator_of_integers(dtype, rng):
    x = rng.integers(0, 9, (4, 50)).astype(dtype)
    for op in primitives.OPERATORS:
        ufunc = primitives._UFUNCS[op]
        np.testing.assert_array_equal(coop.block_reduce(x, op), ufunc.reduce(x, -1, dtype=dtype))
        running = ufunc.accumulate(x, -1, dtype=dtype)
        np.testing.assert_array_equal(coop.block_scan(x, op), running)
        np.testing.assert_array_equal(coop.block_scan(x, op, exclusive=True)[:, 1:], running[:, :-1])


def compose(a, b):
    """Composition of two affine maps, packed: associative, and not commutative."""
    return (a // 1000 * (b // 1000) % 997) * 1000 + (a % 1000 * (b // 1000) + b % 1000) % 997


def test_a_function_keeps_the_order_of_operands(rng):
    x = rng.integers(1, 997, (2, 77)) * 1000 + rng.integers(1, 997, (2, 77))
    expected = x.copy()
    for j in range(1, 77):
        expected[:, j] = [compose(int(a), int(b)) for a, b in zip(expected[:, j - 1], x[:, j], strict=True)]
    np.testing.assert_array_equal(coop.block_reduce(x, compose, threads=32), expected[:, -1])
    shifted = coop.block_scan(x, compose, exclusive=True, initial=1000, threads=32)
    np.testing.assert_array_equal(shifted[:, 1:], expected[:, :-1])
    assert (shifted[:, 0] == 1000).all()


@pytest.mark.parametrize("columns", [77, pytest.param(1000, marks=pytest.mark.slow)])
def test_a_row_has_the_bits_of_a_block(columns, rng):
    @coop.jit
    def sums(x, out):
        each = (x.shape[1] + coop.blockDim.x - 1) // coop.blockDim.x
        total = x[coop.blockIdx.x, each * coop.threadIdx.x]
        for j in range(1, each):
            total += x[coop.blockIdx.x, each * coop.threadIdx.x + j]
        out[coop.blockIdx.x] = coop.sum(coop.this_block(), total, all=True)

    x = rng.standard_normal((40, columns)).astype(np.float32)
    out = np.empty(40, np.float32)
    threads = next(each for each in range(99, 1, -1) if columns % each == 0)
    sums[40, threads](x, out)
    assert coop.row_sum(x, threads=threads).tobytes() == out.tobytes()


def _least(a, b):
    return a if a["key"] < b["key"] else b


def _add_and_multiply(a, b, out):
    out["key"] = a["key"] + b["key"]
    out["value"] = a["value"] * b["value"]


@pytest.mark.parametrize("threads", [1, pytest.param(256, marks=pytest.mark.slow)])
def test_structured_rows(threads):
    x = np.array([[(3, 1.0), (1, 2.0), (2, 0.5)]], [("key", np.int32), ("value", np.float64)])
    assert coop.block_reduce(x, _least, threads=threads).tolist() == [(1, 2.0)]
    assert coop.block_reduce(x, _add_and_multiply, threads=threads).tolist() == [(6, 1.0)]
    scanned = coop.block_scan(x, _add_and_multiply, exclusive=True, initial=(10, 2.0), threads=threads)
    assert scanned.tolist() == [[(10, 2.0), (13, 2.0), (14, 4.0)]]
    if threads > 1:
        assert coop.block_scan(x, _least, threads=threads).tolist() == [[(3, 1.0), (1, 2.0), (1, 2.0)]]


@pytest.mark.torch
def test_tensors_give_tensors(rng):
    import torch

    x = torch.from_numpy(rng.standard_normal((3, 40)))
    assert torch.equal(coop.row_min(x), x.min(-1).values)
    out = torch.empty(3, dtype=torch.float64)
    assert coop.row_max(x, out=out) is out
    assert torch.equal(out, x.max(-1).values)
    with pytest.raises(InvalidOperandError, match="^row_sum: x .*bfloat16"):
        coop.row_sum(x.bfloat16())
    assert torch.equal(coop.row_max(x.half()), x.half().max(-1).values)


def test_what_is_refused():
    x = np.zeros((3, 4))
    for call, error, message in (
        (lambda: coop.row_sum(np.float64(3)), InvalidOperandError, "^row_sum: x is float64; pass an array$"),
        (lambda: coop.row_min(3.0), InvalidOperandError, "^row_min: x is float; pass an array$"),
        (lambda: coop.row_max((1.0, 2.0)), InvalidOperandError, "^row_max: x is tuple; pass an array$"),
        (lambda: coop.block_reduce(3.0), InvalidOperandError, "^block_reduce: x is float; pass an array$"),
        (lambda: coop.block_scan([1.0]), InvalidOperandError, "^block_scan: x is list; pass an array$"),
        (lambda: coop.row_sum(np.array(3.0)), InvalidProblemError, "x has no dimension"),
        (lambda: coop.row_sum(np.zeros((3, 0))), InvalidProblemError, "its rows are empty"),
        (lambda: coop.row_sum(x, out=np.zeros(4)), InvalidProblemError, r"it must have \(3,\)"),
        (lambda: coop.row_sum(x, out=np.zeros(6)[::2]), InvalidOperandError, "has gaps"),
        (lambda: coop.block_reduce(x, "-"), InvalidProblemError, "op is '-'; the names are"),
        (lambda: coop.block_reduce(x > 1, "|", out=(x > 1)[:, 0]), InvalidOperandError, "has gaps"),
        (lambda: coop.block_reduce(x, 3), InvalidOperandError, "op is int"),
        (lambda: coop.block_scan(x, compose, exclusive=True), InvalidProblemError, "pass initial="),
        (lambda: coop.row_sum(x, threads=0), InvalidProblemError, "^row_sum: threads is 0"),
        (lambda: coop.row_sum(x, threads=1025), InvalidProblemError, "threads is 1025; .* from 1 to 1024"),
        (lambda: coop.block_scan(x, threads=2000), InvalidProblemError, "block_scan: threads is 2000"),
        (lambda: coop.block_scan(x, threads=1.0), InvalidProblemError, "threads is 1.0"),
        (lambda: coop.block_scan(x, exclusive=np.array([1, 2])), InvalidOperandError, "exclusive is array"),
    ):
        with pytest.raises(error, match=message):
            call()


def test_out_shares_no_memory_with_x():
    for x in (np.arange(16.0).reshape(4, 4), np.arange(32.0).reshape(4, 8)[:, ::2]):
        memory = x if x.base is None else x.base
        for call in (coop.row_sum, coop.row_min, coop.row_max, lambda x, out: coop.block_reduce(x, "*", out=out)):
            with pytest.raises(InvalidOperandError, match="out shares memory with x"):
                call(x, out=memory.reshape(-1)[4:8])
    x = np.arange(20.0)
    coop.row_sum(x[:16].reshape(4, 4), out=x[16:])
    assert x[16:].tolist() == [6, 22, 38, 54]


@pytest.mark.torch
def test_tensors_as_out_share_no_memory_with_x():
    import torch

    x = torch.arange(16.0).reshape(4, 4)
    with pytest.raises(InvalidOperandError, match="out shares memory with x"):
        coop.row_sum(x, out=x[1])


@pytest.mark.parametrize(
    ("dtype", "initial"),
    [
        ("int64", 0.5),
        ("int64", 1j),
        ("int64", np.float32(1)),
        ("int64", 2**70),
        ("uint8", -1),
        ("uint8", np.int64(300)),
        ("int8", 300),
        ("bool", 2),
        ("float32", "1.5"),
        ("float32", 1e300),
        ("float32", 2**130),
        ("float32", 1j),
        ("float64", "a"),
        ("float64", 10**400),
        ("float64", np.array([1.0])),
        ("int64", [1]),
    ],
)
def test_first_values_that_the_type_does_not_have_are_refused(dtype, initial):
    for exclusive in (False, True):
        with pytest.raises(InvalidOperandError, match="block_scan: initial is"):
            coop.block_scan(np.ones(2, dtype), exclusive=exclusive, initial=initial)


@pytest.mark.parametrize(
    ("dtype", "initial"),
    [("int64", np.int8(-3)), ("float64", 2), ("float64", 2**70), ("float64", np.inf), ("float64", np.array(0.5))],
)
def test_first_values(dtype, initial):
    x = np.ones(2, dtype)
    np.testing.assert_array_equal(coop.block_scan(x, initial=initial), np.array([1 + initial, 2 + initial], dtype))


def test_empty_arrays_have_empty_results():
    assert coop.block_scan(np.zeros((3, 0))).shape == (3, 0)
    assert coop.row_sum(np.zeros((0, 4))).shape == (0,)


@pytest.mark.parametrize(
    ("op", "wanted"),
    [
        ("max", [False, False, False, True]),
        pytest.param("min", [True, False, False, False], marks=pytest.mark.slow),
        ("&", [True, False, False, False]),
    ],
)
def test_exclusive_scans_of_booleans(op, wanted):
    x = np.array([False, False, True, False])
    assert coop.block_scan(x, op, exclusive=True).tolist() == wanted
    if op == "max" and (torch := sys.modules.get("torch")):
        assert coop.block_scan(torch.from_numpy(x), op, exclusive=True).tolist() == wanted


@pytest.mark.parametrize("op", [np.add, max])
def test_functions_that_stand_for_names(op):
    names = {np.add: "+", max: "max"}
    x = np.array([[3, 1, 2], [6, 5, 4]])
    wanted = coop.block_scan(x, names[op], exclusive=True)
    np.testing.assert_array_equal(coop.block_scan(x, op, exclusive=True), wanted)


class _Unhashable:
    __hash__ = None

    def __call__(self, a, b):
        return a + b


@pytest.mark.parametrize("op", [_Unhashable(), functools.partial(max), np.sin, np.divmod, np.float32])
def test_what_is_no_function_of_two_values_is_refused(op):
    for call in (coop.block_reduce, coop.block_scan):
        with pytest.raises(InvalidOperandError, match=rf"^{call.__name__}: op is .*; pass a name, a numpy ufunc"):
            call(np.ones((2, 3)), op)


@pytest.mark.parametrize("dtype", [">f8", ">i4", "g", "G", "O", "U3", "S3", "M8[s]", "m8[s]", "V8"])
def test_elements_that_kernels_cannot_combine_are_refused(dtype):
    x = np.zeros((2, 3), dtype)
    calls = [coop.row_sum, coop.row_max, coop.block_reduce, coop.block_scan]
    calls.append(functools.partial(coop.block_scan, op="max", exclusive=True))
    for call in calls:
        with pytest.raises(InvalidOperandError, match=r"^\w+: x is "):
            call(x)


@pytest.mark.parametrize(
    ("dtype", "op"),
    [("i4,f4", "max"), ("i4,f4", np.add), ("c8", "min"), ("f4", "&"), ("c16", "^"), ("f8", operator.or_)],
)
def test_operators_that_elements_lack_are_refused(dtype, op):
    x = np.zeros((2, 3), dtype)
    for call in (coop.block_reduce, coop.block_scan, functools.partial(coop.block_scan, exclusive=True)):
        with pytest.raises(InvalidOperandError, match=r"^\w+: op '.*' is for .*, and x is "):
            call(x, op)
