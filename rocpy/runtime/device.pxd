# SPDX-License-Identifier: MIT
"""Device for Cython, and the change of the thread's current device around a call."""


cdef class Device:
    cdef readonly int index
    cdef dict outer  # by thread: the devices that were current before its blocks
    cdef object __weakref__


# Make a device current and give the one that was; `leave` takes it back. Both cost one call when nothing changes.
cdef int enter(int device) except -1
cdef int leave(int previous) except -1
# The number of a device given as None (the current one), a Device or an int.
cdef int index_of(object device) except -1
# What follows a wait for a device, which a module above this one sets: what streams no longer use is let go of.
ctypedef int (*AfterWait)() except -1
cdef AfterWait after_wait
# Counts the forks that led to this process: an object made before one belongs to the parent.
cdef int forks
# When an object of a device was made: after how many forks that led to this process, and how many resets of the device.
cdef struct Generation:
    int forks
    int resets
# That of an object which is made now.
cdef Generation generation_of(int device) noexcept
# Whether an object of a device is not there, or not this process's, because of a fork or a reset since it was made; and because of a reset.
cdef bint is_lost(Generation generation, int device) noexcept
cdef bint is_reset(Generation generation, int device) noexcept
# An error for the use of such an object, by its noun.
cdef object lost_error(str noun, Generation generation)
