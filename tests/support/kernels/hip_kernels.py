# SPDX-License-Identifier: MIT
"""Kernels as users of numba-hip write them, made in the process that compiles them: see hip_offline."""

import functools
import math

import numpy as np
from device_kernels import carry, define, longer

from rocpy import cooperative as coop


@functools.cache
def _operators(hip):
    return {"longer": hip.jit(device=True)(longer), "carry": hip.jit(device=True)(carry)}


def primitive(hip, name, dtype, width):
    """Return the kernel of a primitive."""
    return hip.jit(define(name, dtype, width, **_operators(hip))), f"void({dtype}[::1],{dtype}[::1],int64)"


def softmax(hip):
    """Return the kernel that makes the softmax of rows: its own names are numba-hip's."""

    @hip.jit
    def kernel(x, out):
        block = coop.this_block()
        row, first, step = hip.blockIdx.x, hip.threadIdx.x, hip.blockDim.x
        top = np.float32(-np.inf)
        for j in range(first, x.shape[1], step):
            top = max(top, x[row, j])
        top = coop.max(block, top, all=True)
        total = np.float32(0)
        for j in range(first, x.shape[1], step):
            total += math.exp(x[row, j] - top)
        total = coop.sum(block, total, all=True)
        for j in range(first, x.shape[1], step):
            out[row, j] = math.exp(x[row, j] - top) / total

    return kernel, "void(float32[:,::1],float32[:,::1])"


def check_softmax(x, seen):
    """Compare the softmax of rows with that of float64."""
    exact = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    exact /= exact.sum(1, keepdims=True)
    # The difference is rounded before exp takes it, whose relative error is then that rounding: half a unit of the last
    # place of up to 2 max |x|; exp itself and the sum of rows add a few units.
    np.testing.assert_allclose(seen, exact, rtol=(2 * np.abs(x).max() + 16) * np.finfo(np.float32).eps)


def shared_operator(hip):
    """Return a kernel in which two device functions use one operator, and shared memory of numba-hip's is used too."""
    greater = hip.jit(device=True)(longer)

    @hip.jit(device=True)
    def of_block(value):
        return coop.reduce(coop.this_block(), value, greater, all=True)

    @hip.jit(device=True)
    def of_warp(value):
        return coop.reduce(coop.this_warp(8), value, greater, all=True)

    @hip.jit
    def kernel(x, out):
        held = hip.shared.array(256, np.int32)
        i = hip.threadIdx.x
        held[i] = x[i]
        hip.syncthreads()
        out[i] = of_block(held[255 - i]) + 1000 * of_warp(held[255 - i])

    return kernel, "void(int32[::1],int32[::1])"


def wrong(hip):
    """Return a kernel with a mistake that the primitive tells of."""

    @hip.jit
    def kernel(x, out):
        out[0] = coop.sum(coop.this_block(), x)

    return kernel, "void(float32[::1],float32[::1])"
