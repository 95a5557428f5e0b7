# SPDX-License-Identifier: MIT
"""Operators that are defined in a kernel are compiled as the kernel is: numpy's results, its literals, its checks."""

import numpy as np
import pytest
from device_kernels import NO_COMPILER

from rocpy import cooperative as coop
from rocpy.errors import KernelDivisionError
from rocpy.testing import amdgpu


def _kernel(**options):
    @coop.jit(**options)
    def kernel(x, out):
        def quotient(a, b):
            return a // (b - 2)

        i = coop.threadIdx.x
        out[0, i] = coop.reduce(coop.this_block(), x[i], quotient, all=True)
        out[1, i] = coop.reduce(coop.this_block(), x[i], lambda a, b: a << (b + 62), all=True)

    return kernel


def test_a_division_by_zero_and_a_shift_by_the_width_are_zero():
    out = np.ones((2, 2), np.int64)
    _kernel()[1, 2](np.array([1, 2]), out)
    assert not out.any()


def test_debug_mode_checks_them():
    with pytest.raises(KernelDivisionError):
        _kernel(debug=True)[1, 2](np.array([1, 2]), np.ones((2, 2), np.int64))


def test_literals_are_those_of_the_kernel():
    @coop.jit(float="float32")
    def thirds(x, out):
        i = coop.threadIdx.x
        out[i] = coop.adjacent_difference(coop.this_block(), np.float64(x[i]), "left", lambda a, _b: 1 / 3)

    out = np.zeros(2)
    thirds[1, 2](np.ones(2, np.float32), out)
    assert out[1] == np.float32(1 / 3)


@pytest.mark.skipif(bool(NO_COMPILER), reason=NO_COMPILER)
def test_on_gpus():
    code = coop.compile(_kernel(), "void(int64[::1],int64[:,::1])", arch="gfx942")
    x, out = np.array([1, 2]), np.ones((2, 2), np.int64)
    amdgpu.run(code.code, code.name, 1, 2, x, *x.shape, *x.strides, out, *out.shape, *out.strides)
    assert not out.any()
