# SPDX-License-Identifier: MIT
"""Streams of a call for modules that launch nothing themselves: waiting for one, and where a call on an array runs."""

from rocpy cimport _operand
from rocpy._dlpack cimport kDLCPU
from rocpy._operand cimport Operand
from rocpy.blaslt.engine.launch cimport refuse_captured, resolve_device_and_stream, synchronize_stream
from rocpy.blaslt.model.packed cimport Packed
from rocpy.runtime.handles.stream_handle cimport StreamUse


cdef class SynchronizeStream:
    """Waits for one stream when called, and for what frameworks have queued where the memory of ``like`` is; without it for the stream alone."""

    def __cinit__(self, size_t handle, like=None):
        cdef Operand operand
        self.c_stream, self.device_type, self.device = <hipStream_t>handle, kDLCPU, 0
        if like is not None:
            _operand.parse(like, "a", &operand)
            self.device_type, self.device = operand.device_type, operand.device_id

    cdef int wait(self) except -1:
        return synchronize_stream(self.c_stream, self.device_type, self.device)

    def __call__(self):
        self.wait()


cdef SynchronizeStream synchronization(hipStream_t c_stream, const Operand *like):
    cdef SynchronizeStream synchronize = SynchronizeStream.__new__(SynchronizeStream, <size_t>c_stream)
    synchronize.device_type, synchronize.device = like.device_type, like.device_id
    return synchronize


def refuse_capturing(stream, str what, str do):
    """Refuse what a graph cannot contain on a stream that the user gave, if that is being captured."""
    refuse_captured(stream, what, do)


def device_and_stream(a, stream):
    """Return the number of the device and the handle of the stream that a product with this left operand runs on."""
    cdef Operand operand
    cdef int device = 0
    cdef hipStream_t c_stream = NULL
    cdef StreamUse use
    _operand.parse((<Packed>a).memory if type(a) is Packed else a, "a", &operand)
    resolve_device_and_stream(&operand, stream, &device, &c_stream, &use)
    return device, <size_t>c_stream
