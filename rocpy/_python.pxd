# SPDX-License-Identifier: MIT
"""What CPython tells a thread that may have outlived it."""


cdef extern from "Python.h" nogil:
    bint Py_IsInitialized()
    void* PyGILState_GetThisThreadState()
