# SPDX-License-Identifier: MIT
"""Captures of streams into graphs, rocpy's own and those of other libraries: what each is lent, and what it keeps."""

import warnings
from threading import get_ident

from rocpy.errors import InvalidOperandError, LibraryError, RocpyWarning

from cpython.ref cimport Py_INCREF
from libc.stdint cimport uint64_t
from libcpp cimport bool as cpp_bool

cimport abi
from abi cimport hipStream_t

from rocpy cimport _core
from rocpy.runtime cimport device as _device
from rocpy.runtime._context cimport StreamContext, end_lending, lend_to_capture, return_lent

cdef extern from "captured_graph.hpp" namespace "rocpy" nogil:
    _core.Status watch_captured_graph(hipStream_t stream, uint64_t number, cpp_bool *watched)
    bint take_gone_graph(uint64_t *number)

captures = {}
forbidden_threads = {}
foreign_captures = {}
foreign_graphs = {}
cdef uint64_t foreign_count = 0


cdef class Lent:
    """Handles and workspaces that the products of a graph use; given back when neither the graph nor a launch needs them."""

    def __cinit__(self):
        self.forks = _device.forks

    def __dealloc__(self):
        cdef size_t i
        cdef bint failed = False
        cdef _core.Status status
        if self.forks != _device.forks:
            return
        for i in range(self.contexts.size()):
            with nogil:
                status = return_lent(<StreamContext*>self.contexts[i])
            failed = failed or not status.ok()
        if failed:  # once all are back, since warnings may be errors
            warnings.warn("a workspace of a graph could not be freed; it is leaked", RocpyWarning, stacklevel=1)


cdef class Capturing:
    """What the capture of streams into one graph keeps alive."""

    def __cinit__(self):
        self.objects = []
        self.contexts = {}  # of csrc/core, by (device, stream): those that products of the capture take now
        self.lent = Lent()
        self.keeps_operands = True
        self.written = []

    cdef int keep(self, object objects, object tensor=None) except -1:
        """Keep operands and results of a captured product as long as its graph, if it is known how long that is."""
        if self.keeps_operands:
            self.objects.append(objects)
        return 0 if tensor is None else self.note_write(tensor)

    cdef int note_write(self, object tensor) except -1:
        """Let each launch count as a write of a tensor, by which autograd and a Weight notice it."""
        if not (tensor.is_inference() or any([tensor is one for one in self.written])):
            self.written.append(tensor)
        return 0

    cdef int end(self, tuple key) except -1:
        """Let a stream's products use its usual handle again; what it was lent stays with the graph."""
        cdef size_t address = self.contexts[key]
        self.lent.contexts.push_back(address)
        del self.contexts[key]
        end_lending(<StreamContext*>address)
        return 0


cdef class ForeignCapturing(Capturing):
    """What the capture of another library keeps: until its graph is gone, for good where the runtime does not tell when that is. Then
    operands and results are its caller's to keep, as for any call that is captured."""


cdef bint forbids_waiting() except -1:
    if not forbidden_threads:
        return False
    return any([thread is None or thread == get_ident() for thread in list(forbidden_threads.values())])


cdef bint is_foreign(Capturing capturing):
    return type(capturing) is ForeignCapturing


cdef int keep_with_foreign_graph(hipStream_t stream, int device, object owner) except -1:
    cdef Capturing capturing
    if foreign_captures:
        capturing = capture_of(stream, device)
        if is_foreign(capturing):
            capturing.objects.append(owner)
    return 0


cdef int end_foreign(tuple key, unsigned long long current) except -1:
    """Let a stream's products use its usual handle again, where another library's capture of it is over."""
    cdef Capturing capturing
    for number in list(foreign_captures):
        capturing = foreign_captures[number]
        if number != current and key in capturing.contexts:
            capturing.end(key)
            if not capturing.contexts:
                foreign_captures.pop(number, None)
    return 0


cdef int disown(unsigned long long number, hipStream_t stream) except -1:
    cdef Capturing capturing = captures.pop(number, None)
    forbidden_threads.pop(number, None)
    if capturing is not None:
        become_foreign(capturing, number, stream)
    return 0


cdef cpp_bool become_foreign(Capturing capturing, unsigned long long number, hipStream_t stream) except *:
    """List a capture as another library's; whether the runtime tells when its graph is gone."""
    global foreign_count
    cdef cpp_bool watched = False
    foreign_count += 1
    foreign_graphs[foreign_count] = foreign_captures[number] = capturing
    _core.check(watch_captured_graph(stream, foreign_count, &watched))
    return watched


cdef int drop_gone_graphs() except -1:
    cdef uint64_t serial = 0
    cdef Capturing capturing
    while take_gone_graph(&serial):
        capturing = foreign_graphs.pop(serial, None)
        if capturing is None:  # of a parent process
            continue
        for number in list(foreign_captures):
            if foreign_captures.get(number) is capturing:
                del foreign_captures[number]
        for key in list(capturing.contexts):
            capturing.end(key)
    return 0


cdef Capturing begin_foreign(hipStream_t stream, unsigned long long number):
    """Recognise a capture that another library opened."""
    cdef Capturing capturing = ForeignCapturing()
    if foreign_graphs:
        drop_gone_graphs()
    capturing.keeps_operands = become_foreign(capturing, number, stream)
    return capturing


cdef int refuse_unknown(hipStream_t stream, int code) except -1:
    if code in (abi.hipErrorInvalidHandle, abi.hipErrorContextIsDestroyed):
        raise InvalidOperandError(f"stream: {<size_t>stream:#x} is not a stream: it never existed, or was destroyed")
    return 0


cdef Capturing capture_of(hipStream_t stream, int device):
    cdef abi.hipStreamCaptureStatus state = abi.hipStreamCaptureStatusNone
    cdef unsigned long long number = 0
    cdef StreamContext *context = NULL
    cdef _core.Status status
    cdef Capturing capturing
    cdef int code = abi.slot_hipStreamGetCaptureInfo(stream, &state, &number)
    if code != 0:
        abi.slot_hipGetLastError()
        refuse_unknown(stream, code)
        return None  # the null stream, while another is captured: the launch will say so
    if state == abi.hipStreamCaptureStatusNone:
        if foreign_captures:
            end_foreign((device, <size_t>stream), 0)
        if foreign_graphs:
            drop_gone_graphs()
        return None
    if state == abi.hipStreamCaptureStatusInvalidated:
        raise LibraryError(
            "stream: its capture was invalidated by a call that is not allowed during capture; end it and capture "
            "again",
            function="hipStreamGetCaptureInfo", library="hip", status=901, status_name="hipErrorStreamCaptureInvalidated")
    capturing = captures.get(number)
    key = (device, <size_t>stream)
    if capturing is None:
        if foreign_captures:
            end_foreign(key, number)
        capturing = foreign_captures.get(number)
        if capturing is None:
            capturing = begin_foreign(stream, number)
    if key not in capturing.contexts:
        with nogil:
            status = lend_to_capture(device, stream, &context)
        _core.check(status)
        capturing.contexts[key] = <size_t>context
    return capturing


cdef int forget_captures() except -1:
    for capturing in (*captures.values(), *foreign_graphs.values()):
        Py_INCREF(capturing)
    captures.clear()
    forbidden_threads.clear()
    foreign_captures.clear()
    foreign_graphs.clear()
    return 0
