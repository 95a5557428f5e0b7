# SPDX-License-Identifier: MIT
"""Whether arrays in CPU memory are copied to the device: learned of the platform once, and read by every call."""

from rocpy.blaslt.arrays.staging import has_own_memory

cpu_arrays = CpuArrays.unknown


cdef bint stages_arrays() except -1:
    global cpu_arrays
    if cpu_arrays == CpuArrays.unknown:
        cpu_arrays = CpuArrays.copied if has_own_memory() else CpuArrays.in_place
    return cpu_arrays == CpuArrays.copied
