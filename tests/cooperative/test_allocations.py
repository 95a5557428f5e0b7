# SPDX-License-Identifier: MIT
"""Arrays that a kernel's threads allocate are freed, whether its block ends or fails."""

import numpy as np
import pytest
from numba.core.runtime import _nrt_python, rtsys

from rocpy import cooperative as coop
from rocpy.errors import DivergentBarrierError, KernelIndexError


@pytest.fixture
def left():
    """Return a function that returns how many allocations are left since the test began."""
    _nrt_python.memsys_enable_stats()
    before = rtsys.get_allocation_stats()

    def count():
        now = rtsys.get_allocation_stats()
        assert now.mi_alloc > before.mi_alloc
        return now.mi_alloc - before.mi_alloc - (now.mi_free - before.mi_free)

    yield count
    _nrt_python.memsys_disable_stats()


def _raises(x, o, culprit):
    y = x.copy()
    coop.syncthreads()
    if coop.threadIdx.x == culprit:
        raise ValueError("value", x[0])
    coop.syncthreads()
    o[coop.threadIdx.x] = y[0]


def _diverges(x, o, culprit):
    y = x.copy()
    if coop.threadIdx.x == culprit:
        o[0] = coop.sum(coop.this_block(), y[0])
    else:
        o[1] = coop.max(coop.this_block(), y[0])


def _reads_beyond(x, o, culprit):
    y = x.copy()
    coop.syncthreads()
    o[coop.threadIdx.x if coop.threadIdx.x != culprit else 9] = y[0]
    coop.syncthreads()
    o[coop.threadIdx.x] = y[0]


@pytest.mark.parametrize(
    ("function", "debug", "error"),
    [
        (_raises, False, ValueError),
        (_raises, True, ValueError),
        (_diverges, False, DivergentBarrierError),
        (_reads_beyond, True, KernelIndexError),
    ],
)
def test_a_block_that_fails_frees_what_its_threads_allocated(left, function, debug, error):
    kernel, x, o = coop.jit(debug=debug)(function), np.ones(3), np.zeros(4)
    for _ in range(3):
        with pytest.raises(error):
            kernel[2, 4](x, o, 1)
    assert left() == 0
    if function is not _diverges:
        kernel[2, 4](x, o, -1)
        assert left() == 0
        assert (o == 1).all()


def test_an_array_in_an_exception_lives_on():
    @coop.jit
    def kernel(x):
        y = x + 1
        coop.syncthreads()
        if coop.threadIdx.x == 1:
            raise ValueError(y, y[0])
        coop.syncthreads()
        x[0] = y[0]

    with pytest.raises(ValueError, match="2") as raised:
        kernel[1, 4](np.ones(1000))
    assert (raised.value.args[0] == 2).all()
