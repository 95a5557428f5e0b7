# SPDX-License-Identifier: MIT
# What a product's plan depends on of tuning, for call paths in C.
from libc.stdint cimport int64_t


# What a plan's key holds: a cached plan whose choice may be out of date has another word.
cdef int64_t tuning_word() except -1
# The same for a thread with no mode of its own, once the mode is known: tuning_word() reads the environment.
cdef int64_t process_tuning_word() noexcept nogil
cdef bint knows_process_tuning() noexcept nogil
# Whether a product without a plan is measured first.
cdef bint measures() except -1
