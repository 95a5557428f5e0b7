# SPDX-License-Identifier: MIT
"""Calls of the platform's emulator of AMD's instructions, through its extension rows."""

from rocpy.errors import UnsupportedError

cimport abi
from abi cimport rocpyExtEmulatorLaunch_t, rocpyExtEmulatorRange_t
from libc.stdint cimport uint32_t, uint64_t
from libcpp.vector cimport vector

from rocpy cimport _core
from rocpy._core import has


def _check():
    _core.ensure()
    if not has("rocpyExtEmulatorRun"):
        raise UnsupportedError("this platform emulates no AMD GPU; choose the host platform: ROCPY_PLATFORM=host")


cdef str _report():
    cdef size_t needed = 0
    cdef bytearray text
    cdef char* at
    abi.rocpyExtEmulatorReport(NULL, 0, &needed)
    text = bytearray(needed)
    at = text
    abi.rocpyExtEmulatorReport(at, needed, NULL)
    return bytes(text).rstrip(b"\0").decode("utf-8", "replace")


def run(bytes code, str kernel, grid, block, list arguments, list ranges, *, uint32_t shared_bytes, uint32_t trace_lines, uint64_t limit):
    """Run a kernel; the status and the report, as JSON."""
    cdef rocpyExtEmulatorLaunch_t launch
    cdef rocpyExtEmulatorRange_t memory
    cdef vector[rocpyExtEmulatorRange_t] allowed
    cdef vector[const void*] pointers
    cdef vector[size_t] sizes
    cdef bytes name = kernel.encode()
    cdef bytes value
    cdef int k
    _check()
    for value in arguments:
        pointers.push_back(<const void*><const char*>value)
        sizes.push_back(len(value))
    for address, count, writable in ranges:
        memory.address = <const void*><size_t>address
        memory.bytes = count
        memory.is_writable = writable
        memory.reserved = 0
        allowed.push_back(memory)
    launch.image = <const void*><const char*>code
    launch.image_bytes = len(code)
    launch.kernel = name
    for k in range(3):
        launch.grid[k] = grid[k]
        launch.block[k] = block[k]
    launch.shared_bytes = shared_bytes
    launch.trace_lines = trace_lines
    launch.arguments = pointers.data()
    launch.argument_bytes = sizes.data()
    launch.argument_count = pointers.size()
    launch.ranges = allowed.data()
    launch.range_count = allowed.size()
    launch.most_instructions = limit
    cdef int status
    with nogil:
        status = abi.slot_rocpyExtEmulatorRun(&launch)
    return status, _report()


def decode(str architecture, bytes code):
    """Machine code as text: the list of rocpyExtEmulatorDecode, as JSON."""
    cdef bytes name = architecture.encode()
    cdef size_t needed = 0
    cdef bytearray text
    cdef char* at
    _check()
    abi.rocpyExtEmulatorDecode(name, <const char*>code, len(code), NULL, 0, &needed)
    text = bytearray(needed)
    at = text
    abi.rocpyExtEmulatorDecode(name, <const char*>code, len(code), at, needed, NULL)
    return bytes(text).rstrip(b"\0").decode()


def opcodes():
    """The list of rocpyExtEmulatorOpcodes, as JSON."""
    cdef size_t needed = 0
    cdef bytearray text
    cdef char* at
    _check()
    abi.rocpyExtEmulatorOpcodes(NULL, 0, &needed)
    text = bytearray(needed)
    at = text
    abi.rocpyExtEmulatorOpcodes(at, needed, NULL)
    return bytes(text).rstrip(b"\0").decode()
