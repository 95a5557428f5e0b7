# SPDX-License-Identifier: MIT
"""Grouped products: lists of any shapes, and groups packed along rows, columns or the summed axis of one operand."""

from __future__ import annotations

import array
import itertools

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import rocpy
from rocpy.testing import bounds, compare, evaluate
from rocpy.testing.runner import to_numpy, to_torch

SIZES = ((3, 0, 4, 4, 1, 7), (0, 0), (5,), (1, 1, 1, 1), (4, 4, 4), (0, 130, 0, 2), ())


def near(found, a, b, *, dtype=np.float32, what="result", **options):
    """Hold one group's result against the oracle."""
    expected = evaluate(a, b, **options)
    wanted = expected.result if what == "result" else expected.aux[what]
    item = compare(to_numpy(found), wanted, bounds(expected, dtype)[what])
    assert item.ok, item.message
    assert to_numpy(found).dtype == np.dtype(dtype)


def boundaries(sizes, first=0):
    return [int(x) for x in first + np.concatenate([[0], np.cumsum(sizes)])]


def normal(rng, *shape):
    return rng.standard_normal(shape, dtype=np.float32)


# ---- lists ----


@pytest.mark.parametrize("epilogue", ["default", "gelu_bias", "silu", "bias"])
def test_lists_of_any_shapes(epilogue, rng):
    shapes = ((4, 5, 6), (1, 5, 7), (4, 5, 6), (0, 3, 2), (3, 0, 4), (70, 33, 65))
    a, b = [normal(rng, m, k) for m, k, n in shapes], [normal(rng, k, n) for m, k, n in shapes]
    bias = [normal(rng, n) for m, k, n in shapes] if "bias" in epilogue else None
    results = rocpy.grouped_matmul(a, b, epilogue=epilogue, bias=bias, alpha=0.5)
    assert isinstance(results, list)
    for group, (left, right) in enumerate(zip(a, b, strict=True)):
        options = {"bias": bias[group]} if bias else {}
        near(results[group], left, right, epilogue=epilogue, alpha=0.5, **options)


def test_lists_take_batches_vectors_and_odd_strides(rng):
    store = normal(rng, 9, 20)
    a = [normal(rng, 2, 3, 4), normal(rng, 4), store[::2, ::-3], store[:5, :7].T]
    b = [normal(rng, 1, 4, 5), normal(rng, 4, 3), normal(rng, 7, 2), normal(rng, 5, 3)]
    for found, left, right in zip(rocpy.grouped_matmul(a, b), a, b, strict=True):
        near(found, left, right)
        assert found.shape == np.matmul(left, right).shape


def test_one_operand_serves_all_groups(rng):
    a, b, bias = [normal(rng, m, 6) for m in (1, 5, 2)], normal(rng, 6, 4), normal(rng, 4)
    weight = rocpy.Weight(b, bias=bias)
    for right in (b, [b], (b,), weight, [weight]):
        results = rocpy.grouped_matmul(a, right, epilogue="relu_bias", bias=bias)
        for found, left in zip(results, a, strict=True):
            near(found, left, b, epilogue="relu_bias", bias=bias)
    for found, left in zip(rocpy.grouped_matmul(a, weight, epilogue="relu_bias"), a, strict=True):
        near(found, left, b, epilogue="relu_bias", bias=bias)
    for found, right in zip(rocpy.grouped_matmul(a[0], [b, b[:, :2]]), (b, b[:, :2]), strict=True):
        near(found, a[0], right)


def test_lists_with_aux_and_out(rng):
    a, b = [normal(rng, m, 6) for m in (1, 5)], [normal(rng, 6, n) for n in (3, 2)]
    results, aux = rocpy.grouped_matmul(a, b, epilogue="gelu_aux")
    for group in range(2):
        near(results[group], a[group], b[group], epilogue="gelu_aux")
        near(aux["gelu_aux"][group], a[group], b[group], epilogue="gelu_aux", what="gelu_aux")
    out = [np.empty((1, 3), np.float32), np.empty((5, 4), np.float32)[:, ::2]]
    results = rocpy.grouped_matmul(a, b, out=out)
    for group in range(2):
        assert results[group] is out[group]
        near(out[group], a[group], b[group])


def test_lists_agree_with_single_products_bit_for_bit(rng):
    a, b = [normal(rng, m, 33) for m in (4, 17, 4)], [normal(rng, 33, n) for n in (64, 5, 64)]
    for found, left, right in zip(rocpy.grouped_matmul(a, b), a, b, strict=True):
        assert np.array_equal(found, rocpy.matmul(left, right))


def test_no_groups_at_all():
    assert rocpy.grouped_matmul([], []) == []
    empty = np.zeros((0, 4, 3), np.float32)
    assert rocpy.grouped_matmul(np.zeros((0, 4), np.float32), empty, offsets=[0]).shape == (0, 3)


def test_wrong_lists_are_refused(rng):
    a, b = [normal(rng, 2, 3)] * 2, [normal(rng, 3, 2)] * 2
    with pytest.raises(rocpy.InvalidProblemError, match=r"a has 2, b has 3"):
        rocpy.grouped_matmul(a, [b[0]] * 3)
    with pytest.raises(rocpy.InvalidOperandError, match=r"b\[1\]: got None"):
        rocpy.grouped_matmul(a, [b[0], None])
    with pytest.raises(rocpy.InvalidOperandError, match="offsets="):
        rocpy.grouped_matmul(a[0], b[0])
    with pytest.raises(rocpy.InvalidOperandError, match="out: got 1 arrays, expected a list of 2 arrays"):
        rocpy.grouped_matmul(a, b, out=[np.empty((2, 2), np.float32)])
    target = np.full((2, 2), 7, np.float32)
    for index, outs in ((1, [target, None]), (0, (None, target))):
        with pytest.raises(rocpy.InvalidOperandError, match=rf"^out\[{index}\]: got None, .*pass one for each"):
            rocpy.grouped_matmul(a, b, out=outs)
        assert (target == 7).all()
    square = normal(rng, 3, 3)
    with pytest.raises(rocpy.InvalidOperandError, match="shares memory with a"):
        rocpy.grouped_matmul([square], [square.copy()], out=[square])
    with pytest.raises(rocpy.UnsupportedError, match="dgelu"):
        rocpy.grouped_matmul(a, b, epilogue="dgelu")
    with pytest.raises(rocpy.UnsupportedError, match="bgrada"):
        rocpy.grouped_matmul(a, b, epilogue="bgrada")


# ---- groups of rows ----


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("epilogue", ["default", "relu_bias", "gelu_aux_bias"])
def test_groups_of_rows(sizes, epilogue, rng):
    total, groups = sum(sizes), len(sizes)
    a, b, bias = normal(rng, total, 17), normal(rng, groups, 17, 9), normal(rng, groups, 9)
    options = {"epilogue": epilogue} | ({"bias": bias} if "bias" in epilogue else {})
    marks = boundaries(sizes)
    for offsets in (marks, np.array(marks), np.array(marks, np.int32), marks[1:] if groups else marks):
        outputs = rocpy.grouped_matmul(a, b, offsets=offsets, **options)
        result, aux = outputs if isinstance(outputs, tuple) else (outputs, {})
        assert result.shape == (total, 9)
        for group, (low, high) in enumerate(itertools.pairwise(marks)):
            one = options | ({"bias": bias[group]} if "bias" in epilogue else {})
            near(result[low:high], a[low:high], b[group], **one)
            if aux:
                near(aux["gelu_aux"][low:high], a[low:high], b[group], what="gelu_aux", **one)


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_groups_of_rows_in_other_types(dtype, rng):
    import ml_dtypes  # noqa: F401  (registers bfloat16)

    kind = np.dtype(dtype)
    a, b = normal(rng, 9, 17).astype(kind), normal(rng, 3, 17, 8).astype(kind)
    bias = normal(rng, 8).astype(kind)
    result = rocpy.grouped_matmul(a, b, offsets=[0, 4, 4, 9], epilogue="silu_bias", bias=bias, alpha=0.5)
    for group, (low, high) in enumerate(((0, 4), (4, 4), (4, 9))):
        near(result[low:high], a[low:high], b[group], dtype=kind, epilogue="silu_bias", bias=bias, alpha=0.5)
    if dtype != "float64":
        near(rocpy.grouped_matmul(a, b, offsets=[9, 9, 9], dtype="float32"), a, b[0], dtype=np.float32)


def test_rows_of_no_group_are_zero_and_out_keeps_them(rng):
    a, b = normal(rng, 10, 4), normal(rng, 2, 4, 3)
    result = rocpy.grouped_matmul(a, b, offsets=[2, 5, 8])
    assert not result[:2].any()
    assert not result[8:].any()
    near(result[2:5], a[2:5], b[0])
    near(result[5:8], a[5:8], b[1])
    out = np.full((10, 3), 7, np.float32)
    assert rocpy.grouped_matmul(a, b, offsets=[2, 5, 8], out=out) is out
    assert (out[:2] == 7).all()
    assert (out[8:] == 7).all()
    assert np.array_equal(out[2:8], result[2:8])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_an_out_that_is_written_by_a_copy_keeps_what_no_group_covers(dtype, rng):
    a, b = normal(rng, 10, 4), normal(rng, 2, 4, 3)
    wide = np.full((20, 6), 1 / 3, dtype)
    out = wide[::2, ::2]
    rocpy.grouped_matmul(a, b, offsets=[2, 5, 8], out=out)
    np.testing.assert_allclose(out[2:8], np.concatenate([a[2:5] @ b[0], a[5:8] @ b[1]]), rtol=1e-4, atol=1e-5)
    untouched = np.full(wide.shape, 1 / 3, dtype)
    untouched[4:16:2, ::2] = wide[4:16:2, ::2]
    assert np.array_equal(wide, untouched)
    wide = np.full((6, 20), 1 / 3, dtype)
    out = wide[::2, ::2]
    rocpy.grouped_matmul(b.swapaxes(1, 2), a.T, offsets=[2, 5, 8], out=out)
    np.testing.assert_allclose(out[:, 2:5], (a[2:5] @ b[0]).T, rtol=1e-4, atol=1e-5)
    untouched = np.full(wide.shape, 1 / 3, dtype)
    untouched[::2, 4:16:2] = wide[::2, 4:16:2]
    assert np.array_equal(wide, untouched)


def test_strides_of_packed_operands(rng):
    a, b = normal(rng, 9, 6), normal(rng, 3, 6, 5)
    bias = normal(rng, 3, 5)
    wide = np.zeros((9, 20), np.float32)
    wide[:, 3:9] = a
    views_a = (a, np.asfortranarray(a), wide[:, 3:9], np.ascontiguousarray(a[::-1])[::-1], np.repeat(a, 2, 1)[:, ::2])
    views_b = (
        b,
        np.ascontiguousarray(b.transpose(0, 2, 1)).transpose(0, 2, 1),
        np.ascontiguousarray(b[::-1])[::-1],
        np.ascontiguousarray(b.transpose(1, 0, 2)).transpose(1, 0, 2),
        np.repeat(b, 2, 2)[:, :, ::2],
    )
    wanted = np.concatenate([a[:2] @ b[0] + bias[0], a[2:4] @ b[1] + bias[1], a[4:] @ b[2] + bias[2]])
    for left in views_a:
        for right in views_b:
            for offset_bias in (bias, bias[:, ::-1].copy()[:, ::-1], np.asfortranarray(bias)):
                found = rocpy.grouped_matmul(left, right, offsets=[0, 2, 4, 9], epilogue="bias", bias=offset_bias)
                np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
    for out in (
        np.empty((9, 5), np.float32, order="F"),
        np.empty((9, 8), np.float32)[:, 2:7],
        np.empty((18, 10), np.float32)[::2, ::2],
    ):
        assert rocpy.grouped_matmul(a, b, offsets=[0, 2, 4, 9], epilogue="bias", bias=bias, out=out) is out
        np.testing.assert_allclose(out, wanted, rtol=1e-4, atol=1e-4)
        rocpy.grouped_matmul(a, b, offsets=[0, 2, 4, 9], out=out)
        np.testing.assert_allclose(out[:2], a[:2] @ b[0], rtol=1e-4, atol=1e-4)
    # A result in columns beside an operand that is copied.
    out = np.empty((9, 5), np.float32, order="F")
    rocpy.grouped_matmul(views_a[-1], b, offsets=[0, 2, 4, 9], out=out)
    np.testing.assert_allclose(out[4:], a[4:] @ b[2], rtol=1e-4, atol=1e-4)
    with pytest.raises(rocpy.UnsupportedError, match="a: "):
        rocpy.grouped_matmul(views_a[-1], b, offsets=[0, 2, 4, 9], options={"copies": "error"})


# ---- groups of columns, and sums over groups ----


@pytest.mark.parametrize("sizes", [sizes for sizes in SIZES if sizes], ids=str)
def test_groups_of_columns(sizes, rng):
    total, groups = sum(sizes), len(sizes)
    a, b, bias = normal(rng, groups, 5, 17), normal(rng, 17, total), normal(rng, total)
    marks = boundaries(sizes)
    for options in ({}, {"epilogue": "relu_bias", "bias": bias}):
        result = rocpy.grouped_matmul(a, b, offsets=marks, **options)
        assert result.shape == (5, total)
        for group, (low, high) in enumerate(itertools.pairwise(marks)):
            one = options | ({"bias": bias[low:high]} if options else {})
            near(result[:, low:high], a[group], b[:, low:high], **one)
    result, aux = rocpy.grouped_matmul(a, b, offsets=marks, epilogue="relu_aux")
    for group, (low, high) in enumerate(itertools.pairwise(marks)):
        near(aux["relu_aux"][:, low:high], a[group], b[:, low:high], epilogue="relu_aux", what="relu_aux")


@pytest.mark.parametrize("sizes", [sizes for sizes in SIZES if sizes], ids=str)
def test_sums_over_groups(sizes, rng):
    total, groups = sum(sizes), len(sizes)
    a, b, bias = normal(rng, 6, total), normal(rng, total, 5), normal(rng, groups, 5)
    marks = boundaries(sizes)
    for options in ({}, {"epilogue": "gelu_bias", "bias": bias}, {"epilogue": "relu_aux"}):
        for left in (a, np.asfortranarray(a)):
            outputs = rocpy.grouped_matmul(left, b, offsets=marks, **options)
            result = outputs[0] if isinstance(outputs, tuple) else outputs
            assert result.shape == (groups, 6, 5)
            for group, (low, high) in enumerate(itertools.pairwise(marks)):
                one = options | ({"bias": bias[group]} if "bias" in options else {})
                near(result[group], a[:, low:high], b[low:high], **one)
    ends = rocpy.grouped_matmul(a, b, offsets=marks[1:], groups=groups)
    assert np.array_equal(ends, rocpy.grouped_matmul(a, b, offsets=marks))


def test_the_gradient_of_groups_of_rows(rng):
    x, gradient, marks = normal(rng, 12, 5), normal(rng, 12, 4), [0, 3, 3, 12]
    found = rocpy.grouped_matmul(x.T, gradient, offsets=marks)
    for group, (low, high) in enumerate(itertools.pairwise(marks)):
        near(found[group], x[low:high].T, gradient[low:high])


@pytest.mark.parametrize("epilogue", ["gelu_erf", "sigmoid_bias"])
def test_groups_of_what_the_library_cannot_fuse(epilogue, rng, without_programs):
    x, experts, bias, marks = normal(rng, 12, 5), normal(rng, 3, 5, 4), normal(rng, 3, 4), [1, 3, 3, 12]
    options = {"epilogue": epilogue} | ({"bias": bias} if "bias" in epilogue else {})
    out = np.full((12, 4), 7, np.float32)
    for found in (
        rocpy.grouped_matmul(x, experts, offsets=marks, **options),
        rocpy.grouped_matmul(x, experts, offsets=marks, out=out, **options),
    ):
        assert (found[0] == (7 if found is out else 0)).all()
        for group, (low, high) in enumerate(itertools.pairwise(marks)):
            one = options | ({"bias": bias[group]} if "bias" in options else {})
            near(found[low:high], x[low:high], experts[group], **one)
    sums = rocpy.grouped_matmul(x.T, normal(rng, 12, 4), offsets=marks, **options)
    assert sums.shape == (3, 5, 4)
    listed = rocpy.grouped_matmul(
        [x, x[:2]], experts[0], **(options | ({"bias": bias[0]} if "bias" in options else {}))
    )
    one = options | ({"bias": bias[0]} if "bias" in options else {})
    near(listed[1], x[:2], experts[0], **one)


# ---- refusals ----


@pytest.mark.parametrize(
    ("offsets", "message"),
    [
        ([0, 3, 2, 9], "boundary 2 is 2, which comes after 3"),
        ([0, 3, 5, 10], "boundary 3 is 10, past the 9 elements"),
        ([-1, 3, 5, 9], "boundary 0 is -1, which is negative"),
        ([0, 9], "got 2 for 3 groups"),
        ([], "got 0 for 3 groups"),
        ([0, 2**40, 2**41, 2**62], "past the 9 elements"),
    ],
)
def test_offsets_are_checked(offsets, message, rng):
    a, b = normal(rng, 9, 4), normal(rng, 3, 4, 2)
    for given_offsets in (offsets, np.array(offsets, np.int64)):
        with pytest.raises(rocpy.InvalidProblemError, match=message):
            rocpy.grouped_matmul(a, b, offsets=given_offsets)


class Listed:
    """A sequence that is neither a list nor a tuple."""

    def __init__(self, *items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


@pytest.mark.parametrize(
    "offsets",
    [
        range(0, 12, 3), Listed(0, 3, 6, 9), array.array("q", [0, 3, 6, 9]), array.array("H", [0, 3, 6, 9]),
        np.array([0, 3, 6, 9], object), np.array([0, 3, 6, 9], ">i4"), np.array([3, 6, 9], np.uint64),
        [np.int8(0), 3, np.array(6), 9], range(3, 12, 3),
    ],
)  # fmt: skip
def test_offsets_are_integers_in_any_sequence_or_array(offsets, rng):
    a, b = normal(rng, 9, 4), normal(rng, 3, 4, 2)
    expected = rocpy.grouped_matmul(a, b, offsets=[0, 3, 6, 9])
    np.testing.assert_array_equal(rocpy.grouped_matmul(a, b, offsets=offsets), expected)


@pytest.mark.parametrize(
    ("offsets", "message"),
    [
        (np.array([0, 2**63 + 5, 3, 9], np.uint64), f"boundary 1 is {2**63 + 5}, past the 9"),
        ([0, 2**63 + 5, 3, 9], f"boundary 1 is {2**63 + 5}, past the 9"),
        ([0, 2**70, 3, 9], f"boundary 1 is {2**70}, past the 9"),
        ([2**70, 3, 9], f"boundary 1 is {2**70}, past the 9"),
        (np.array([0, -(2**70), 3, 9], object), f"boundary 1 is -{2**70}, which comes after 0"),
        ([-(2**65), 3, 5, 9], f"boundary 0 is -{2**65}, which is negative"),
    ],
)
def test_wrong_offsets_are_named_as_they_are(offsets, message, rng):
    with pytest.raises(rocpy.InvalidProblemError, match=f"^offsets: {message}"):
        rocpy.grouped_matmul(normal(rng, 9, 4), normal(rng, 3, 4, 2), offsets=offsets)


def test_offsets_that_are_no_integers_are_refused(rng):
    a, b = normal(rng, 9, 4), normal(rng, 3, 4, 2)
    integers, floats = [0, 3, 6, 9], [0.0, 3.0, 6.0, 9.0]
    lists = (
        floats,
        [0, 3.5, 6, 9],
        [None],
        [0, "3", 6, 9],
        [0, np.array(3.0), 6, 9],
        {"a": 1},
        "036",
        3,
        iter(integers),
    )
    arrays = (np.array([integers]), np.array([True] * 4), *(np.array(integers, x) for x in ("m8[s]", "f8", "U1")))
    for offsets in (*lists, *arrays, np.array(floats, object)):
        with pytest.raises(rocpy.InvalidOperandError, match=r"^offsets: .*pass integers"):
            rocpy.grouped_matmul(a, b, offsets=offsets)
    with pytest.raises(rocpy.InvalidOperandError, match="^offsets: .*mask"):
        rocpy.grouped_matmul(a, b, offsets=np.ma.array(integers, mask=[0, 1, 0, 0]))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [1, 8])
@pytest.mark.parametrize("k", [100, 300])
def test_groups_of_one_size_use_the_algorithm_of_a_batch_and_others_that_of_one_product(k, n, dtype, rng):
    a, b = rng.standard_normal((10, k)).astype(dtype), rng.standard_normal((2, k, n)).astype(dtype)
    same = rocpy.grouped_matmul(a, b, offsets=[0, 5, 10])
    np.testing.assert_array_equal(same, rocpy.matmul(a.reshape(2, 5, k), b).reshape(10, n))
    others = rocpy.grouped_matmul(a, b, offsets=[0, 4, 10])
    np.testing.assert_array_equal(others, np.concatenate([rocpy.matmul(a[:4], b[0]), rocpy.matmul(a[4:], b[1])]))


def test_wrong_shapes_are_refused(rng):
    a, b = normal(rng, 9, 4), normal(rng, 3, 4, 2)
    marks = [0, 1, 2, 9]
    cases = (
        ((normal(rng, 9, 5), b, {}), "last axis of a has 5"),
        ((normal(rng, 2, 9, 4), b, {}), r"\(T, K\) and \(E, K, N\)"),
        ((a, b, {"epilogue": "bias", "bias": normal(rng, 3)}), r"bias: got shape \(3,\)"),
        ((a, b, {"epilogue": "bias", "bias": normal(rng, 2, 2)}), r"\(3, 2\)"),
        ((a, b, {"out": normal(rng, 9, 3)}), r"out: shape \(9, 3\)"),
        ((a, b, {"groups": 4}), "groups=4"),
        ((a, b, {"epilogue": "bias"}), "bias"),
        ((a, b.astype(np.float64), {}), "float64"),
    )
    for (left, right, options), message in cases:
        with pytest.raises(rocpy.InvalidProblemError, match=message):
            rocpy.grouped_matmul(left, right, offsets=marks, **options)
    with pytest.raises(rocpy.InvalidOperandError, match="a: got list"):
        rocpy.grouped_matmul([a], b, offsets=marks)
    if not rocpy.platform.current().host_memory:
        return  # operands are copied, so that out may lie over them
    with pytest.raises(rocpy.InvalidOperandError, match="shares memory with a"):
        rocpy.grouped_matmul(square := normal(rng, 9, 4), normal(rng, 3, 4, 4), offsets=marks, out=square)


# ---- frameworks, plans, threads ----


def test_torch_operands(torch, rng):
    a, b, marks = normal(rng, 9, 6), normal(rng, 3, 6, 5), [0, 2, 2, 9]
    left, right = to_torch(a), to_torch(b)
    for offsets in (torch.tensor(marks), torch.tensor(marks[1:], dtype=torch.int32), marks):
        found = rocpy.grouped_matmul(left, right, offsets=offsets)
        assert type(found) is torch.Tensor
        for group, (low, high) in enumerate(itertools.pairwise(marks)):
            near(found[low:high], a[low:high], b[group])
    found = rocpy.grouped_matmul([left, left[:2]], [right[0], right[1]])
    assert all(type(item) is torch.Tensor for item in found)
    out = torch.empty(9, 5)
    before = out._version
    rocpy.grouped_matmul(left, right, offsets=marks, out=out)
    assert out._version > before


def test_torch_lists_of_shared_results(torch, rng):
    a = [to_torch(normal(rng, m, 6)) for m in (2, 3)]
    b = to_torch(normal(rng, 6, 4))
    out = [torch.empty(m, 4) for m in (2, 3)]
    versions = [item._version for item in out]
    rocpy.grouped_matmul(a, b, out=out)
    assert all(item._version > before for item, before in zip(out, versions, strict=True))


@pytest.mark.usefixtures("fresh_plan_cache")
def test_plans_are_kept(rng):
    b = normal(rng, 4, 6, 5)
    for total in (20, 31, 40):  # another number of rows needs no plan of its own
        rocpy.grouped_matmul(normal(rng, total, 6), b, offsets=[0, 3, 10, 13, 20])
    assert rocpy.plan_cache.info()["misses"] == 3  # the form, and groups of 3 and of 7
    rocpy.grouped_matmul(normal(rng, 20, 6), b, offsets=[0, 5, 10, 15, 20])
    assert rocpy.plan_cache.info()["misses"] == 4  # four groups of 5 are one batch


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    sizes=st.lists(st.integers(0, 9), max_size=6),
    first=st.integers(0, 3),
    rest=st.integers(0, 3),
    k=st.integers(0, 20),
    n=st.integers(0, 20),
    seed=st.integers(0, 99),
    order=st.sampled_from("CF"),
)
def test_any_groups_of_rows(sizes, first, rest, k, n, seed, order):
    rng = np.random.default_rng(seed)
    marks = boundaries(sizes, first)
    a = np.asarray(rng.integers(-3, 4, (marks[-1] + rest, k)), np.float32, order=order)
    b = rng.integers(-3, 4, (len(sizes), k, n)).astype(np.float32)
    wanted = np.zeros((len(a), n), np.float32)
    for group, (low, high) in enumerate(itertools.pairwise(marks)):
        wanted[low:high] = a[low:high] @ b[group]
    assert np.array_equal(rocpy.grouped_matmul(a, b, offsets=marks), wanted)
    gradient = rng.integers(-3, 4, (len(a), n)).astype(np.float32)
    sums = rocpy.grouped_matmul(a.T, gradient, offsets=marks)
    for group, (low, high) in enumerate(itertools.pairwise(marks)):
        assert np.array_equal(sums[group], a[low:high].T @ gradient[low:high])


def test_a_packed_weight_does_not_hold_groups(rng):
    a, b = rng.standard_normal((4, 3), dtype=np.float32), rng.standard_normal((3, 5), dtype=np.float32)
    for left, right in ((a, rocpy.Weight(b)), (rocpy.Weight(a), b)):
        with pytest.raises(rocpy.InvalidOperandError, match="Weight.*lists without offsets"):
            rocpy.grouped_matmul(left, right, offsets=[0, 1, 3])
    # Nor was its plan kept for arrays.
    np.testing.assert_allclose(
        rocpy.grouped_matmul(a, b, offsets=[0, 1, 3]),
        np.stack([a[:, :1] @ b[:1], a[:, 1:3] @ b[1:3]]),
        rtol=1e-5,
        atol=1e-5,
    )
