# SPDX-License-Identifier: MIT
"""Loops over ranges in kernels: the indices that they make."""

import numpy as np

from rocpy import cooperative as coop


def test_indices_of_ranges_may_be_negative_and_end_at_the_largest_integer() -> None:
    """The optimizer is told that a range does not overflow before its end; negative indices count from the end."""

    @coop.jit
    def ranges(x, out, last):
        t, n = coop.threadIdx.x, x.shape[0]
        for i in range(t - 2, n, coop.blockDim.x):
            out[t, 0] += x[i]
        for i in range(-1, -n - 1, -1):
            out[t, 1] = out[t, 1] * 2 + x[i]
        for i in range(n - 1, -1 - t, -1):
            out[t, 2] += x[i]
        for i in range(last - 2, last):
            out[t, 3] += i - (last - 10)
        for i in range(last - 1, last, 5):
            out[t, 4] += i - (last - 10)
        for i in range(-last, -last + 3, 2):
            out[t, 5] += i + last

    x = np.arange(1, 8, dtype=np.int64) ** 2
    out = np.zeros((4, 6), np.int64)
    last = 2**63 - 1
    ranges[1, 4](x, out, last)
    for t in range(4):
        backwards = 0
        for i in range(-1, -8, -1):
            backwards = backwards * 2 + int(x[i])
        expected = [
            sum(int(x[i]) for i in range(t - 2, 7, 4)),
            backwards,
            sum(int(x[i]) for i in range(6, -1 - t, -1)),
            8 + 9,
            9,
            0 + 2,
        ]
        assert out[t].tolist() == expected
