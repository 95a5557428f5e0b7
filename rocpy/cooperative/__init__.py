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
from rocpy.cooperative.api import combining as _combining
from rocpy.cooperative.api import movement as _movement
from rocpy.cooperative.api import neighbours as _neighbours
from rocpy.cooperative.api import sorting as _sorting
from rocpy.cooperative.api.combining import *  # noqa: F403
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
from rocpy.cooperative.api.movement import *  # noqa: F403
from rocpy.cooperative.api.neighbours import *  # noqa: F403
from rocpy.cooperative.api.sorting import *  # noqa: F403
from rocpy.cooperative.arrays import block_reduce, block_scan, row_max, row_min, row_sum
from rocpy.cooperative.cpu import launcher as _launcher
from rocpy.cooperative.kernel import backends as _backends
from rocpy.cooperative.kernel.kernel import Kernel, jit

__all__ = [
    "CodeObject",
    "Kernel",
    "KernelInfo",
    "ThreadData",
    "atomic",
    "barrier",
    "blockDim",
    "blockIdx",
    "block_reduce",
    "block_scan",
    "compile",
    "grid",
    "gridDim",
    "gridsize",
    "headers",
    "jit",
    "local",
    "row_max",
    "row_min",
    "row_sum",
    "shared",
    "syncthreads",
    "syncwarp",
    "this_block",
    "this_warp",
    "threadIdx",
]
# The primitives: each module names its own.
__all__ += _combining.__all__
__all__ += _movement.__all__
__all__ += _neighbours.__all__
__all__ += _sorting.__all__

suggest_keywords_in(globals(), ("compile", "jit"))
__dir__ = public_names(globals())
_backends.register(cpu=_launcher, amdgpu=_on_device)


def _serve_numba_hip() -> None:
    from rocpy.cooperative.amdgpu import numba_hip

    _ = numba_hip  # registers the primitives


when_imported("numba.hip", _serve_numba_hip)
