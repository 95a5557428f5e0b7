# SPDX-License-Identifier: MIT
"""Shapes of scales: each has one meaning wherever a product is asked for, or is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rocpy
from rocpy.errors import InvalidProblemError

EXTENTS = st.sampled_from((1, 2, 3))


@st.composite
def questions(draw):
    """Return the operands' batch axes, m and n, and the shapes of both scales, right ones and wrong ones."""
    batch = tuple(draw(st.lists(EXTENTS, max_size=3)))
    batches = []
    for _ in range(2):
        own = tuple(draw(st.sampled_from((1, extent))) for extent in batch)
        batches.append(own[draw(st.integers(0, len(own))) :])
    m, n = draw(EXTENTS), draw(EXTENTS)
    full = np.broadcast_shapes(*batches)
    shapes = []
    for line, length in (((m, 1), m), ((1, n), n)):
        own = tuple(draw(st.sampled_from((1, extent))) for extent in full)
        own = own[draw(st.integers(0, len(own))) :]
        shapes.append((*own, *draw(st.sampled_from((line, (length,), (length, 1), (1, length))))))
    return batches, m, n, shapes


def meanings(values: np.ndarray, full: tuple[int, ...], side: int) -> list[np.ndarray]:
    """Return what an array of scales may mean: a factor for each row or column of each product, by numpy's rules."""
    found: dict[bytes, np.ndarray] = {}
    for kept in (values, values[..., :, None] if side == 0 else values[..., None, :]):
        # A form names each row or column, so that its own axis is as long as there are some.
        if kept.ndim < 2 or kept.shape[-2:] != full[-2:] or kept.ndim > len(full):
            continue
        try:
            wide = np.ascontiguousarray(np.broadcast_to(kept, full))
        except ValueError:
            continue
        found[wide.tobytes()] = wide
    if values.size == 1:
        return [np.full(full, values.reshape(()))]
    return list(found.values())


def composed(a, b, **scales):
    """Compute by the framework's operations on the product: the library tells no amax of int8."""
    return rocpy.matmul(a, b, amax=True, dtype="float32", **scales)[0]


def planned(a, b, **scales):
    """Compute as a plan does, whose scales are given again."""
    ones = {name: np.ones_like(value) for name, value in scales.items()}
    with rocpy.Matmul(a, b, dtype="float32", **ones) as product:
        product.plan()
        product.reset_operands(**scales)
        return product.execute()


WAYS = {
    "function": lambda a, b, **scales: rocpy.matmul(a, b, dtype="float32", **scales),
    "composed": composed,
    "plan": planned,
    "list": lambda a, b, **scales: rocpy.grouped_matmul([a], [b], dtype="float32", **scales)[0],
    "explained": lambda a, b, **scales: rocpy.explain(a, b, dtype="float32", **scales) and None,
}


@settings(max_examples=60, deadline=None)
@given(questions())
def test_a_shape_has_one_meaning_or_is_refused(question):
    (batch_a, batch_b), m, n, shapes = question
    rng = np.random.default_rng(3)
    a = rng.integers(-9, 10, (*batch_a, m, 5)).astype(np.int8)
    b = rng.integers(-9, 10, (*batch_b, 5, n)).astype(np.int8)
    # Powers of two, all different, so that products are exact and a factor in another place is seen.
    scales = {
        name: np.exp2(np.arange(np.prod(shape, dtype=int)) % 16 - 8).astype(np.float32).reshape(shape)
        for name, shape in zip(("scale_a", "scale_b"), shapes, strict=True)
    }
    batch = np.broadcast_shapes(batch_a, batch_b)
    rows = meanings(scales["scale_a"], (*batch, m, 1), 0)
    columns = meanings(scales["scale_b"], (*batch, 1, n), 1)
    for name, way in WAYS.items():
        if len(rows) == 1 and len(columns) == 1:
            found = way(a, b, **scales)
            wanted = (a.astype(np.float64) @ b.astype(np.float64)) * rows[0] * columns[0]
            assert found is None or np.array_equal(found, wanted), (name, question)
        else:
            with pytest.raises(InvalidProblemError, match="scale_[ab]: got shape"):
                way(a, b, **scales)


def test_both_meanings_are_named_and_can_be_asked_for():
    a, b = np.ones((3, 3, 2, 4), np.int8), np.ones((4, 5), np.int8)
    scale = np.exp2(np.arange(15)).astype(np.float32).reshape(3, 1, 5)
    with pytest.raises(InvalidProblemError, match=r"is ambiguous.*pass \(1, 3, 1, 5\) or \(3, 1, 1, 5\)"):
        rocpy.matmul(a, b, scale_a=1.0, scale_b=scale, dtype="float32")
    for shape in ((1, 3, 1, 5), (3, 1, 1, 5)):
        found = rocpy.matmul(a, b, scale_a=1.0, scale_b=scale.reshape(shape), dtype="float32")
        np.testing.assert_array_equal(found, 4 * np.broadcast_to(scale.reshape(shape), (3, 3, 2, 5)))


def test_a_scale_for_each_entry_of_the_outer_batch():
    b = np.ones((3, 1, 4, 5), np.int8)
    scale = np.exp2(np.arange(15)).astype(np.float32).reshape(3, 1, 5)
    for a in (np.ones((2, 4), np.int8), np.ones((2, 2, 4), np.int8)):
        for way in WAYS.values():
            found = way(a, b, scale_a=np.float32([1, 1]), scale_b=scale)
            assert found is None or np.array_equal(found, np.broadcast_to(4 * scale[:, :, None], found.shape))
