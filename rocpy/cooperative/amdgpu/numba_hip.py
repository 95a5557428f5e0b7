# SPDX-License-Identifier: MIT
"""Primitives in the kernels of numba-hip: a call is linked with the part of the device library that it names.

How a call is typed and lowered is the same for every target for AMD GPUs. What differs is where the device library
comes from: numba-hip links a kernel from libraries, and asks each for its code once it knows the architecture.
"""

from __future__ import annotations

import functools
import re

from numba.hip.codegen import HIPCodeLibrary
from numba.hip.descriptor import hip_target
from numba.hip.util import comgrutils

from rocpy.cooperative.amdgpu import device_library, library_calls, sort
from rocpy.cooperative.amdgpu import primitives as device_primitives
from rocpy.cooperative.kernel.limits import MOST_THREADS
from rocpy.cooperative.numba import primitives, runtime
from rocpy.cooperative.numba.types import MOST_LANES, NEEDS_64_LANES
from rocpy.errors import KernelTypeError

_ = (primitives, device_primitives, sort)  # registers what kernels may call
_OBJECT_VERSION = re.compile(r'!"amdhsa_code_object_version", i32 (\d+)')


class _Library(HIPCodeLibrary):
    """Functions of the device library, compiled for an architecture when a kernel is linked for it."""

    def __init__(self, source: str) -> None:
        super().__init__(hip_target.target_context.codegen(), "rocpy")
        self._source = source
        self._compiled: dict[str, bytes] = {}
        self.finalize()

    def get_unlinked_llvm_ir(self, amdgpu_arch: str | None = None) -> bytes:
        """Return the bitcode for an architecture."""
        arch = str(amdgpu_arch).partition(":")[0]
        if arch not in self._compiled:
            if NEEDS_64_LANES in self._source and device_library.wave_size(arch) != MOST_LANES:
                raise KernelTypeError(f"this_warp: width is 64, and {arch} has warps of 32 threads")
            self._compiled[arch] = device_library.bitcode(self._source, arch, version=_object_version(arch))
        return self._compiled[arch]


@functools.cache
def _object_version(arch: str) -> int:
    """Return the version of code objects that numba-hip's own functions are for: LLVM links what has the same."""
    match = _OBJECT_VERSION.search(comgrutils._get_dummy_device_fun_llvm_ir(arch, ""))
    return int(match[1]) // 100 if match else device_library.OBJECT_VERSION


_library = functools.cache(_Library)


def _link(name: str) -> None:
    library = _library(library_calls.source_of(name, MOST_THREADS))
    caller = hip_target.target_context.active_code_library
    if library not in caller.linking_libraries:
        caller.add_linking_library(library)


runtime.LINKERS["hip"] = _link
