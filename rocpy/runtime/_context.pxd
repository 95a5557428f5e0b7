# SPDX-License-Identifier: MIT
# The handles and workspaces of csrc/core that streams lend to products, for Cython.
from libcpp cimport bool as c_bool
from libcpp.atomic cimport atomic

from abi cimport hipStream_t

from rocpy._core cimport Status


cdef extern from "context.hpp" namespace "rocpy" nogil:
    cdef cppclass StreamContext:
        int device
        hipStream_t stream
        void *handle
        atomic[c_bool] launching
    Status borrow_context(int device, hipStream_t stream, StreamContext **out)
    void release_context(StreamContext *context)
    Status library_version(const StreamContext *context, int *version)
    Status make_context(int device, hipStream_t stream, void *handle, StreamContext **out)
    Status set_workspace(StreamContext *context, void *workspace, size_t bytes)
    StreamContext *prefer_context(StreamContext *context)
    Status lend_to_capture(int device, hipStream_t stream, StreamContext **out)
    void end_lending(StreamContext *context)
    Status return_lent(StreamContext *context)
    Status destroy_context(StreamContext *context)
