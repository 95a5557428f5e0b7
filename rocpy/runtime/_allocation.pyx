# SPDX-License-Identifier: MIT
"""Memory from HIP that is given back exactly once: when its Buffer is closed and nobody else uses it."""

import warnings

from rocpy._messages.choices import is_choice, shown
from rocpy.errors import InvalidProblemError, RocpyWarning

cimport abi

from rocpy cimport _core
from rocpy.runtime cimport device as _device
from rocpy.runtime._resources cimport DeviceResource, ResourceKind, release_resource

LOCATIONS = ("device", "host", "managed")


cdef inline abi.hipStreamCaptureMode exchange_mode(abi.hipStreamCaptureMode mode) noexcept nogil:
    """Set what this thread may do while streams are captured, and return what it was: memory is no part of any graph."""
    return mode if abi.slot_hipThreadExchangeStreamCaptureMode(&mode) == 0 else abi.hipStreamCaptureModeGlobal


cdef Allocation allocate(size_t nbytes, int device, object location):
    """New memory. An empty allocation still has an address: it is one byte."""
    cdef Allocation memory = Allocation.__new__(Allocation)
    cdef int previous
    cdef abi.hipStreamCaptureMode mode
    if not is_choice(location, LOCATIONS):
        raise InvalidProblemError(f"location: got {shown(location)}, expected one of {', '.join(LOCATIONS)}")
    previous = _device.enter(device)
    mode = exchange_mode(abi.hipStreamCaptureModeRelaxed)
    try:
        if location == "device":
            abi.hipMalloc(&memory.data, nbytes or 1)
        elif location == "host":
            abi.hipHostMalloc(&memory.data, nbytes or 1, abi.hipHostMallocDefault)
        else:
            abi.hipMallocManaged(&memory.data, nbytes or 1, abi.hipMemAttachGlobal)
    finally:
        exchange_mode(mode)
        _device.leave(previous)
    memory.pinned = location == "host"
    memory.device, memory.generation = device, _device.generation_of(device)
    return memory


cdef class Allocation:
    """Memory from HIP, freed once: by the buffer's `close`, or later by the last array or product that still uses it."""

    def __cinit__(self):
        self.data = NULL

    cdef int free(self) except -1:
        cdef DeviceResource resource
        cdef _core.Status status
        resource.kind = ResourceKind.pinned_memory if self.pinned else ResourceKind.device_memory
        resource.device, resource.resets, resource.address = self.device, self.generation.resets, self.data
        self.data = NULL
        # A child process after a fork has no part in its parent's memory.
        if resource.address == NULL or self.generation.forks != _device.forks:
            return 0
        with nogil:
            status = release_resource(resource)
        _core.check(status)
        return 0

    def __del__(self):
        try:
            self.free()
        except Exception as error:
            warnings.warn(f"the memory of a Buffer could not be released and is leaked: {error}", RocpyWarning, stacklevel=1)
