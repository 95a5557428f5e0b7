# SPDX-License-Identifier: MIT
"""grouped_matmul reads offsets that it must convert: of another byte order, unaligned, or in a record."""

import numpy as np
import pytest

import rocpy

GROUPS = 1000  # boundaries of 8 kB, whose memory is not used again at once


def unaligned(marks, dtype):
    memory = np.zeros(marks.size * np.dtype(dtype).itemsize + 1, np.uint8)
    shifted = memory[1:].view(dtype)
    shifted[:] = marks
    return shifted


def field(marks, dtype):
    record = np.zeros(marks.size, [("before", np.uint8), ("marks", dtype)])
    record["marks"] = marks
    return record["marks"]


OFFSETS = {
    "other byte order, 64 bits": lambda marks: marks.astype(">i8"),
    "other byte order, 32 bits": lambda marks: marks.astype(">i4"),
    "unaligned, 64 bits": lambda marks: unaligned(marks, "<i8"),
    "unaligned, 32 bits": lambda marks: unaligned(marks, "<i4"),
    "a field of a packed record": lambda marks: field(marks, "<i8"),
    "backwards": lambda marks: marks[::-1].copy()[::-1],
    "every second": lambda marks: np.repeat(marks, 2)[::2],
}


@pytest.fixture(params=OFFSETS)
def offsets(request):
    return OFFSETS[request.param](np.arange(GROUPS + 1))


def test_groups_of_rows(offsets):
    rows, matrices = np.ones((GROUPS, 2), np.float32), np.ones((GROUPS, 2, 3), np.float32)
    for _ in range(3):
        np.testing.assert_array_equal(rocpy.grouped_matmul(rows, matrices, offsets=offsets), 2.0)


def test_groups_of_columns(offsets):
    matrices, columns = np.ones((GROUPS, 3, 2), np.float32), np.ones((2, GROUPS), np.float32)
    np.testing.assert_array_equal(rocpy.grouped_matmul(matrices, columns, offsets=offsets), 2.0)


def test_sums_over_groups(offsets):
    left, right = np.ones((2, GROUPS), np.float32), np.ones((GROUPS, 3), np.float32)
    np.testing.assert_array_equal(rocpy.grouped_matmul(left, right, offsets=offsets), np.ones((GROUPS, 2, 3)))


def test_ends_of_groups(offsets):
    rows, matrices = np.ones((GROUPS, 2), np.float32), np.ones((GROUPS, 2, 3), np.float32)
    np.testing.assert_array_equal(rocpy.grouped_matmul(rows, matrices, offsets=offsets[1:]), 2.0)


def test_an_explanation(offsets):
    rows, matrices = np.ones((GROUPS, 2), np.float32), np.ones((GROUPS, 2, 3), np.float32)
    how = rocpy.explain(rows, matrices, offsets=offsets)
    assert [(first, count) for first, count, _ in how.runs] == [(0, GROUPS)]
