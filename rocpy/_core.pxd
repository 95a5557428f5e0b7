# SPDX-License-Identifier: MIT
"""What other extension modules take from the core: a checked status, and the platform chosen before the first call."""

from libc.stdint cimport int32_t
from libcpp cimport bool as cpp_bool


cdef extern from "status.hpp" namespace "rocpy" nogil:
    # The enumerators that modules name; abi.pxd, which is generated, has all of them.
    cdef enum class Library(int32_t):
        hip
        hipblaslt
        hiprtc

    cdef cppclass Status:
        Status()
        Library library
        int32_t code
        const char* function
        cpp_bool ok()


cdef extern from "fp_environment.h" namespace "rocpy" nogil:
    # A local variable of this type makes the function run in the default floating-point environment; hold() is what Cython sees it used by.
    # Of vector instructions alone, for calls that leave Python's frameworks to rocpy._fp_environment:
    cdef cppclass DefaultVectorEnvironment:
        DefaultVectorEnvironment()
        void hold()

    cdef cppclass DefaultFpEnvironment:
        DefaultFpEnvironment()
        void hold()

        @staticmethod
        cpp_bool is_set()


cdef extern from "platform.hpp" namespace "rocpy" nogil:
    cpp_bool loaded()


cdef extern from "table.hpp" namespace "rocpy" nogil:
    # Whether the loaded library has a function.
    cpp_bool c_has "rocpy::has"(const char* function)


# The slow halves of the two functions below; both take the GIL.
cdef int raise_status(Library library, int32_t code, const char* function) except -1 nogil
cdef int select_platform() except -1 nogil


cdef inline int check(const Status& status) except -1 nogil:
    """Raise the exception of a status that is not a success."""
    if status.code == 0:
        return 0
    return raise_status(status.library, status.code, status.function)


cdef inline int ensure() except -1 nogil:
    """Choose and load the platform unless that has been done."""
    if loaded():
        return 0
    return select_platform()
