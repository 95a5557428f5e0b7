# SPDX-License-Identifier: MIT
"""A bias is added to the sums as one more addition: the bits are those of the product and then the sum."""

import ctypes
import mmap

import numpy as np
import pytest

import rocpy

PAGE = mmap.PAGESIZE
SHAPES = [
    (1, 1, 1), (5, 3, 7), (8, 64, 33), (64, 64, 64), (13, 96, 288), (100, 100, 100), (70, 500, 47), (257, 300, 95),
    (2, 40, 600), (300, 17, 1030),
]  # fmt: skip


@pytest.fixture
def guarded():
    """What returns a bias behind which no memory can be read."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    areas = []

    def make(values):
        whole = -(-values.nbytes // PAGE) * PAGE
        area = mmap.mmap(-1, whole + PAGE)
        memory = np.frombuffer(area, np.uint8)
        areas.append(memory)
        if libc.mprotect(memory.ctypes.data + whole, PAGE, 0):  # PROT_NONE
            raise OSError(ctypes.get_errno(), "mprotect")
        bias = memory[whole - values.nbytes : whole].view(values.dtype)
        bias[:] = values
        return bias

    yield make
    for memory in areas:
        libc.mprotect(memory.ctypes.data, memory.nbytes, 3)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("layout", ["rows", "columns", "batch", "weight"])
def test_bias_is_one_more_addition(guarded, shape, layout, dtype):
    m, k, n = shape
    rng = np.random.default_rng(m * 1000 + n)
    batch = (3,) if layout == "batch" else ()
    a = rng.standard_normal((*batch, m, k)).astype(dtype)
    b = rng.standard_normal((*batch, k, n)).astype(dtype)
    bias = guarded(rng.standard_normal((*batch, n)).astype(dtype).reshape(-1)).reshape(*batch, n)
    if layout == "columns":
        b = np.asfortranarray(b)
    if layout == "weight":
        b = rocpy.Weight(b)
    for at in (0, n // 2, n - 1):
        bias[..., at] = np.nan if at else -0.0
    with rocpy.Matmul(a, b) as plain, rocpy.Matmul(a, b, epilogue="bias", bias=bias) as biased:
        names = {algorithm.name for algorithm in plain.plan()}
        compared = 0
        for algorithm in biased.plan():
            if algorithm.name in names:
                sums = plain.execute(algorithm=next(one for one in plain.plan() if one.name == algorithm.name))
                expected = sums + (bias[:, None, :] if batch else bias)
                assert biased.execute(algorithm=algorithm).tobytes() == expected.tobytes(), algorithm.name
                compared += 1
        assert compared
