# SPDX-License-Identifier: MIT
"""A row by a packed weight has the bits that it has among many rows, whichever way few rows are computed."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import rocpy


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("columns", [16, 64, 200, 333])
@pytest.mark.parametrize("epilogue", [None, "gelu_bias"])
def test_few_rows_have_the_bits_of_many(rng, dtype, columns, epilogue):
    depth = 1100  # more than one pass
    a = (rng.standard_normal((40, depth)) / 8).astype(dtype)
    b = rng.standard_normal((depth, columns)).astype(dtype)
    inputs = {} if epilogue is None else {"bias": rng.standard_normal(columns).astype(dtype)}
    weight = rocpy.Weight(b)
    many = rocpy.matmul(a, weight, epilogue=epilogue, **inputs)
    for rows in range(1, 9):
        few = rocpy.matmul(a[:rows], weight, epilogue=epilogue, **inputs)
        assert few.tobytes() == many[:rows].tobytes(), rows
    if epilogue is None:
        exact = a.astype(np.float64) @ b.astype(np.float64)
        bound = np.abs(a).astype(np.float64) @ np.abs(b).astype(np.float64)
        unit = float(ml_dtypes.finfo(dtype).eps)
        working = unit if dtype == np.float64 else float(np.finfo(np.float32).eps)
        assert (np.abs(many.astype(np.float64) - exact) <= depth * working * bound + unit * np.abs(exact)).all()
