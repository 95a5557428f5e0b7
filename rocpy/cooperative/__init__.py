# SPDX-License-Identifier: MIT
"""Block and warp primitives for kernels in Python, run on the CPU or compiled for AMD GPUs without a GPU."""

from rocpy._import_hook import when_imported
from rocpy._messages.keywords import suggest_keywords_in
from rocpy._signatures import public_names
from rocpy.cooperative.amdgpu import launch as _on_device
from rocpy.cooperative.amdgpu.code_object import (
    CodeObject,
    KernelInfo,
    compile,  # noqa: A004 - read as coop.compile
)
from rocpy.cooperative.amdgpu.device_library import headers
from rocpy.cooperative.api.combining import (
    exclusive_scan,
    exclusive_sum,
    inclusive_scan,
    inclusive_sum,
    max,  # noqa: A004 - read as coop.max
    min,  # noqa: A004
    reduce,
    reduce_batched,
    sum,  # noqa: A004
)
from rocpy.cooperative.api.device import (
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
from rocpy.cooperative.api.movement import (
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
from rocpy.cooperative.api.neighbours import (
    adjacent_difference,
    discontinuity,
    histogram,
    run_length_decode,
    run_length_decode_into,
)
from rocpy.cooperative.api.sorting import (
    merge_sort_keys,
    merge_sort_pairs,
    radix_rank,
    radix_sort_keys,
    radix_sort_pairs,
    topk_max_keys,
    topk_max_pairs,
    topk_min_keys,
    topk_min_pairs,
)
from rocpy.cooperative.arrays import block_reduce, block_scan, row_max, row_min, row_sum
from rocpy.cooperative.cpu import launcher as _launcher
from rocpy.cooperative.kernel import backends as _backends
from rocpy.cooperative.kernel.kernel import Kernel, jit

__all__ = [
    "CodeObject",
    "Kernel",
    "KernelInfo",
    "ThreadData",
    "adjacent_difference",
    "all",
    "any",
    "atomic",
    "ballot",
    "barrier",
    "blockDim",
    "blockIdx",
    "block_reduce",
    "block_scan",
    "broadcast",
    "compile",
    "discontinuity",
    "exchange",
    "exclusive_scan",
    "exclusive_sum",
    "grid",
    "gridDim",
    "gridsize",
    "headers",
    "histogram",
    "inclusive_scan",
    "inclusive_sum",
    "jit",
    "load",
    "local",
    "match",
    "max",
    "merge_sort_keys",
    "merge_sort_pairs",
    "min",
    "radix_rank",
    "radix_sort_keys",
    "radix_sort_pairs",
    "reduce",
    "reduce_batched",
    "row_max",
    "row_min",
    "row_sum",
    "run_length_decode",
    "run_length_decode_into",
    "shared",
    "shuffle",
    "store",
    "sum",
    "syncthreads",
    "syncwarp",
    "this_block",
    "this_warp",
    "threadIdx",
    "topk_max_keys",
    "topk_max_pairs",
    "topk_min_keys",
    "topk_min_pairs",
]

suggest_keywords_in(globals(), ("compile", "jit"))
__dir__ = public_names(globals())
_backends.register(cpu=_launcher, amdgpu=_on_device)


def _serve_numba_hip() -> None:
    from rocpy.cooperative.amdgpu import numba_hip

    _ = numba_hip  # registers the primitives


when_imported("numba.hip", _serve_numba_hip)
