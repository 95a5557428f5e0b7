# SPDX-License-Identifier: MIT
# What the function form knows of the process, for whoever launches its plans without the GIL.
# Learns the following; takes the GIL.
cdef int get_ready() except -1
# Whether arrays in CPU memory are copied to the device, or that is not known yet.
cdef bint stages_arrays() noexcept nogil
