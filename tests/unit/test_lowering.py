# SPDX-License-Identifier: MIT
"""Lowering against a reading of hipBLASLt's definition: column-major gathers over the operands' memory, no platform."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocpy.blaslt.model.lowering import OP_N, lower
from rocpy.blaslt.model.problem import OperandInfo, Problem
from rocpy.errors import InvalidProblemError


def info(array):
    item = array.itemsize
    return OperandInfo(array.shape, tuple(s // item for s in array.strides), str(array.dtype))


def memory(array):
    """The elements behind a view from its first one on, as a flat array that a library would index by ld and stride."""
    base = array
    while base.base is not None:
        base = base.base
    flat = base.reshape(-1)
    offset = (array.__array_interface__["data"][0] - base.__array_interface__["data"][0]) // array.itemsize
    return flat[offset:]


def gather(flat, layout, batch):
    i, j = np.meshgrid(np.arange(layout.rows), np.arange(layout.columns), indexing="ij")
    return flat[i + j * layout.ld + batch * layout.batch_stride]


def run(problem, a, b, c=None, bias=None, alpha=1.0, beta=0.0):
    """What hipBLASLt does with the lowered problem, as far as the linear part goes."""
    low = lower(problem)
    assert not low.copies, low.copies
    d = np.zeros(problem.result_shape, a.dtype)
    flat = {"a": memory(a), "b": memory(b), "d": d.reshape(-1), "c": memory(c) if c is not None else d.reshape(-1)}
    flat["bias"] = memory(bias) if bias is not None else None
    left, right = ("b", "a") if low.swapped else ("a", "b")
    for position in itertools.product(*map(range, low.outer_shape)):
        at = {
            name: sum(p * s for p, s in zip(position, low.outer_strides[name], strict=True))
            for name in low.outer_strides
        }
        for batch in range(low.batch_count):
            x = gather(flat[left][at[left] :], low.a, batch)
            y = gather(flat[right][at[right] :], low.b, batch)
            z = alpha * ((x if low.op_a == OP_N else x.T) @ (y if low.op_b == OP_N else y.T))
            if beta:
                z = z + beta * gather(flat["c"][at["c"] :], low.c, batch)
            if bias is not None:
                start = at["bias"] + batch * low.bias_batch_stride
                z = z + flat["bias"][start : start + low.d.rows, None]
            i, j = np.meshgrid(np.arange(low.d.rows), np.arange(low.d.columns), indexing="ij")
            flat["d"][at["d"] + i + j * low.d.ld + batch * low.d.batch_stride] = z
    return d


def operand(draw, shape, rng):
    """An integer-valued array of this shape, dense or one of the views that the library takes without a copy."""
    kind = draw(st.sampled_from(["dense", "transposed", "padded", "expanded"]))
    fresh = lambda s: rng.integers(-4, 5, s).astype(np.float64)  # noqa: E731
    if kind == "transposed" and len(shape) >= 2:
        return np.swapaxes(fresh((*shape[:-2], shape[-1], shape[-2])), -1, -2)
    if kind == "padded":
        return fresh((*shape[:-1], shape[-1] + 3))[..., : shape[-1]]
    if kind == "expanded" and len(shape) > 2:
        return np.broadcast_to(fresh(shape[-2:]), shape)
    return fresh(shape)


@st.composite
def products(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    m, n, k = (draw(st.integers(1, 5)) for _ in range(3))
    batch = tuple(draw(st.lists(st.integers(1, 3), max_size=3)))
    thin = lambda: tuple(draw(st.sampled_from([1, e])) for e in batch)[draw(st.integers(0, len(batch))) :]  # noqa: E731
    a_shape = (k,) if draw(st.integers(0, 5)) == 0 else (*thin(), m, k)
    b_shape = (k,) if draw(st.integers(0, 5)) == 0 else (*thin(), k, n)
    return operand(draw, a_shape, rng), operand(draw, b_shape, rng), rng


@settings(max_examples=400, deadline=None)
@given(products(), st.booleans(), st.booleans())
def test_lowered_problem_is_the_product(case, with_c, with_bias):
    a, b, rng = case
    want = np.matmul(a, b)
    n = 1 if b.ndim == 1 else b.shape[-1]
    c = rng.integers(-4, 5, want.shape).astype(float) if with_c else None
    bias = rng.integers(-4, 5, n).astype(float) if with_bias else None
    problem = Problem.make(
        info(a),
        info(b),
        None if c is None else info(c),
        bias=None if bias is None else info(bias),
        epilogue="bias" if with_bias else "default",
    )
    got = run(problem, a, b, c, bias, alpha=2.0, beta=3.0 if with_c else 0.0)
    want = 2.0 * want
    if c is not None:
        want = want + 3.0 * c
    if bias is not None:
        want = want + (bias if b.ndim > 1 else bias[0])
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    ("a", "b", "calls", "batch"),
    [
        ((7, 2, 3), (3, 4), 1, 1),  # one weight: a single taller product
        ((7, 1, 3), (3, 4), 1, 1),
        ((7, 2, 3), (7, 3, 4), 1, 7),
        ((5, 1, 2, 3), (6, 3, 4), 5, 6),  # no one stride describes both axes
        ((2, 5, 2, 3), (2, 5, 3, 4), 1, 10),
    ],
)
def test_batches_take_as_few_calls_as_their_strides_allow(a, b, calls, batch):
    low = lower(Problem.make(OperandInfo.dense(a, "float32"), OperandInfo.dense(b, "float32")))
    assert (int(np.prod(low.outer_shape, dtype=int)), low.batch_count) == (calls, batch)


@pytest.mark.parametrize(
    ("view", "name"),
    [
        (lambda: np.ones((4, 6))[:, ::2], "a"),
        (lambda: np.ones((4, 3))[::-1], "a"),
        (lambda: np.ones((4, 3))[:, ::-1], "a"),
        (lambda: np.broadcast_to(np.ones(3), (4, 3)), "a"),
        (lambda: np.lib.stride_tricks.as_strided(np.ones(20), (4, 3), (8, 8)), "a"),
    ],
)
def test_layouts_the_library_cannot_take_are_named(view, name):
    low = lower(Problem.make(info(view()), OperandInfo.dense((3, 2), "float64")))
    assert low.copies == (name,)


def test_column_major_out_needs_no_copy_without_a_bias_and_a_copy_with_one():
    a, b = OperandInfo.dense((4, 3), "float32"), OperandInfo.dense((3, 2), "float32")
    out = OperandInfo((4, 2), (1, 4), "float32")
    assert not lower(Problem.make(a, b, out=out)).swapped
    assert lower(Problem.make(a, b, out=out, epilogue="bias", bias=OperandInfo.dense((2,), "float32"))).copies == (
        "out",
    )


def test_bias_gradients_change_names_with_the_operands():
    a, b = OperandInfo.dense((4, 3), "float32"), OperandInfo.dense((3, 2), "float32")
    assert lower(Problem.make(a, b, epilogue="bgrada")).epilogue == 512
    out = OperandInfo((4, 2), (1, 4), "float32")
    assert lower(Problem.make(a, b, out=out, epilogue="bgrada")).epilogue == 256


@pytest.mark.parametrize("text", ["", "{}", "[]", "3", "null", '{"a": null}', '{"a": {"shape": 3}}'])
def test_what_is_no_problems_record_is_told(text):
    with pytest.raises(InvalidProblemError, match="record"):
        Problem.from_json(text)
