# SPDX-License-Identifier: MIT
# What the function form knows of the process, for whoever builds its plans' keys without the GIL.
from libc.stdint cimport int64_t


# Learns both of the following; takes the GIL.
cdef int get_ready() except -1
# What a plan's key holds of tuning; negative: not known yet, or changed.
cdef int64_t tuning_word() noexcept nogil
# Whether arrays in CPU memory are copied to the device, or that is not known yet.
cdef bint stages_arrays() noexcept nogil
