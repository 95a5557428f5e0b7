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
from rocpy.cooperative._movement import (
    all,  # noqa: A004 - read as coop.all
    any,  # noqa: A004
    ballot,
    broadcast,
    exchange,
    load,
    match,
    shuffle,
    store,
)
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
    "all",
    "any",
    "atomic",
    "ballot",
    "barrier",
    "blockDim",
    "blockIdx",
    "broadcast",
    "exchange",
    "exclusive_scan",
    "exclusive_sum",
    "grid",
    "gridDim",
    "gridsize",
    "inclusive_scan",
    "inclusive_sum",
    "jit",
    "load",
    "local",
    "match",
    "max",
    "min",
    "reduce",
    "shared",
    "shuffle",
    "store",
    "sum",
    "syncthreads",
    "syncwarp",
    "this_block",
    "this_warp",
    "threadIdx",
]
