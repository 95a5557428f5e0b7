# SPDX-License-Identifier: MIT
# Where products read arrays in CPU memory, for call paths in C.


cdef enum CpuArrays:
    unknown  # until a platform is chosen
    in_place
    copied  # to the device, which has its own memory


cdef CpuArrays cpu_arrays
# Whether they are copied; chooses the platform where none is.
cdef bint stages_arrays() except -1
