# SPDX-License-Identifier: MIT
"""Block and warp primitives for kernels written in Python, which run on the CPU with no GPU."""

from rocpy.cooperative._device import (
    ThreadData,
    atomic,
    barrier,
    blockDim,
    blockIdx,
    grid,
    gridDim,
    gridsize,
    local,
    shared,
    syncthreads,
    syncwarp,
    this_block,
    this_warp,
    threadIdx,
)
from rocpy.cooperative._kernel import Kernel, jit
from rocpy.cooperative._primitives import (
    exclusive_scan,
    exclusive_sum,
    inclusive_scan,
    inclusive_sum,
    max,  # noqa: A004 - read as coop.max
    min,  # noqa: A004
    reduce,
    sum,  # noqa: A004
)

__all__ = [
    "Kernel",
    "ThreadData",
    "atomic",
    "barrier",
    "blockDim",
    "blockIdx",
    "exclusive_scan",
    "exclusive_sum",
    "grid",
    "gridDim",
    "gridsize",
    "inclusive_scan",
    "inclusive_sum",
    "jit",
    "local",
    "max",
    "min",
    "reduce",
    "shared",
    "sum",
    "syncthreads",
    "syncwarp",
    "this_block",
    "this_warp",
    "threadIdx",
]
