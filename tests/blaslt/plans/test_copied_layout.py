# SPDX-License-Identifier: MIT
"""Unaligned operands and those in the other byte order give the bits of the others, however they lie."""

import numpy as np
import pytest

import rocpy

SHAPES = [(1, 8, 33), (2, 3, 5), (3, 16, 65), (4, 1, 257), (8, 4, 17), (1, 1, 9), (5, 2, 100)]
LAYOUTS = {
    "rows": np.ascontiguousarray,
    "columns": lambda x: np.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2),
    "wide columns": lambda x: np.pad(x.swapaxes(-1, -2), [*[(0, 0)] * (x.ndim - 1), (0, 3)])[..., :-3].swapaxes(-1, -2),
    "steps": lambda x: np.repeat(x, 2, axis=-1)[..., ::2],
    "one for all": lambda x: np.broadcast_to(x[..., :1], x.shape),
}


def unaligned(x):
    memory = np.zeros(x.nbytes + 64, np.uint8)
    order = np.argsort(x.strides)[::-1]
    dense = np.ndarray(np.array(x.shape)[order], x.dtype, memory, 1).transpose(np.argsort(order))
    dense[...] = x
    assert not dense.flags.aligned
    return dense


def swapped(x):
    return x.astype(x.dtype.newbyteorder(), order="K")


@pytest.mark.parametrize("change", [unaligned, swapped])
@pytest.mark.parametrize("layout", ["rows", "columns"])
@pytest.mark.parametrize("dtype", ["f4", "f8", "f2", "c8"])
@pytest.mark.parametrize("lead", [(), (3,)])
@pytest.mark.parametrize("reproducible", [False, True])
def test_bits(change, layout, dtype, lead, reproducible, rng):
    for m, n, k in SHAPES:
        a, b = (LAYOUTS[layout](rng.standard_normal((*lead, *shape)).astype(dtype)) for shape in ((m, k), (k, n)))
        with rocpy.options(reproducible=reproducible):
            wanted = rocpy.matmul(a, b).tobytes()
            assert rocpy.matmul(a, change(b)).tobytes() == wanted, (m, n, k)
            assert rocpy.matmul(change(a), b).tobytes() == wanted, (m, n, k)
            with rocpy.Matmul(change(a), change(b)) as planned:
                assert planned.execute().tobytes() == wanted, (m, n, k)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("lead", [(), (3,)])
def test_every_layout(layout, lead, rng):
    lies = LAYOUTS[layout]
    for m, n, k in SHAPES:
        a, b = (rng.standard_normal((*lead, *shape)).astype("f4") for shape in ((m, k), (k, n)))
        found = rocpy.matmul(lies(swapped(a)), lies(swapped(b)))
        np.testing.assert_array_equal(found, rocpy.matmul(lies(a), lies(b)), err_msg=str((m, n, k)))
