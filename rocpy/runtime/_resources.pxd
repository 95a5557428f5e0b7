# SPDX-License-Identifier: MIT
# What csrc/core frees after all work of its device, and after collectives that wait for other ranks, for Cython.
from rocpy._core cimport Status


cdef extern from "device_resources.hpp" namespace "rocpy" nogil:
    cdef enum class ResourceKind(int):
        device_memory
        pinned_memory
        rccl_memory
    cdef cppclass DeviceResource:
        ResourceKind kind
        int device
        int resets
        void *address
    Status release_resource(const DeviceResource& resource)
    Status defer_resource(const DeviceResource& resource)
    Status free_deferred()
    size_t deferred_count()
    void leak_resources()
    void begin_remote_wait()
    void end_remote_wait()
