# SPDX-License-Identifier: MIT
"""A made-up dtype: `float8_e3m4` as an element type, whose products no library computes, so that they are composed."""

from __future__ import annotations

from edits import insert_before

TYPES = "csrc/core/arrays/dtypes.def"
FAMILIES = "rocpy/blaslt/model/product_types.py"
BOUNDS = "rocpy/testing/tolerance.py"
FILES = (TYPES, FAMILIES, BOUNDS)

# No release of HIP has a number for it: this one is made up.
ROW = 'ROCPY_DTYPE(float8_e3m4, 1002, 8, float, kDLFloat8_e3m4, -1, "", composed)\n'

TEST = '''# SPDX-License-Identifier: MIT
"""The made-up dtype: arrays of it, and products, which are what the oracle says."""

import ml_dtypes
import numpy as np
import pytest

import rocpy
from rocpy import dtypes
from rocpy.testing import Case, run_case

NAME = "float8_e3m4"
CASES = [
    *(Case(17, 33, 40, NAME, "bfloat16", "bias", layout) for layout in ("nn", "tt", "px")),
    Case(17, 33, 40, NAME, "float32", "gelu_bias", alpha=0.75, beta=-0.5),
    Case(9, 21, 30, NAME, "float16", batch_a=(3,), batch_b=(3,)),
    Case(33, 17, 40, NAME, "float32", "relu", data="integers"),
]


def test_its_row_and_its_arrays():
    assert dtypes.lookup("float8_e3m4").numpy == ml_dtypes.float8_e3m4
    x = np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e3m4)
    with rocpy.Buffer(x.shape, NAME) as buffer:
        buffer.copy_from(x)
        assert buffer.dtype == x.dtype
        assert buffer.to_numpy().tobytes() == x.tobytes()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_products(case):
    result = run_case(case)
    assert result.ok, result.message


def test_a_result_of_it_is_refused():
    a = np.ones((3, 3), ml_dtypes.float8_e3m4)
    with pytest.raises(rocpy.UnsupportedError, match="expected bfloat16 or float32 or float16"):
        rocpy.matmul(a, a, dtype="float8_e3m4")
'''
TESTS = (
    "tests/test_tables.py",
    "tests/blaslt/products/test_oracles.py",
    "tests/blaslt/fusion/test_supported.py",
    "tests/unit/test_dtypes.py",
)


def change(texts: dict[str, str]) -> dict[str, str]:
    """Return the files with the dtype."""
    return {
        TYPES: insert_before(texts, TYPES, "ROCPY_DTYPE(float8_e8m0fnu,", ROW),
        FAMILIES: insert_before(
            texts,
            FAMILIES,
            '    Family("complex64",',
            '    Family("float8 E3M4", ("float8_e3m4",), _WIDE, biases=_WIDE),\n',
        ),
        BOUNDS: insert_before(
            texts, BOUNDS, '    "float6_e2m3fn": Format(', '    "float8_e3m4": Format(4, -2, 15.5),\n'
        ),
    }
