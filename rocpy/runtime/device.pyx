# SPDX-License-Identifier: MIT
"""Device: what the platform says about one of its devices, and which of them is current."""

import os
import threading
from collections import namedtuple

from rocpy._integers import integer_of
from rocpy._signatures import signature_like
from rocpy.errors import ClosedError, InvalidOperandError, InvalidProblemError

cimport abi

Memory = namedtuple("Memory", ("free_bytes", "total_bytes"))
Memory.__doc__ = "Memory of a device: free and total, in bytes."

DeviceGeneration = namedtuple("DeviceGeneration", ("forks", "resets"))
DeviceGeneration.__doc__ = "How many forks led to this process, and how often a device was reset."

cdef extern from "device_resets.hpp" namespace "rocpy" nogil:
    int device_resets(int device)

forks = 0
after_wait = NULL


def _count_fork():
    global forks
    forks += 1


os.register_at_fork(after_in_child=_count_fork)


cdef Generation generation_of(int device) noexcept:
    cdef Generation now
    now.forks, now.resets = forks, device_resets(device)
    return now


def device_generation(int device):
    """Return what changes with each fork of the process and each reset of a device: a part of the key of what lies there."""
    cdef Generation now = generation_of(device)
    return DeviceGeneration(now.forks, now.resets)


cdef bint is_reset(Generation generation, int device) noexcept:
    return generation.resets != device_resets(device)


cdef bint is_lost(Generation generation, int device) noexcept:
    # Forks first: a child asks the platform nothing about objects of its parent's.
    return generation.forks != forks or is_reset(generation, device)


cdef object lost_error(str noun, Generation generation):
    if generation.forks != forks:
        return ClosedError(
            f"this {noun} was created before a fork and belongs to the parent process; create a new one here"
        )
    return ClosedError(
        f"this {noun} was created before its device was reset (hipDeviceReset), which destroyed its resources there; "
        "create a new one"
    )


cdef int enter(int device) except -1:
    cdef int previous = 0
    abi.hipGetDevice(&previous)
    if previous != device:
        abi.hipSetDevice(device)
    return previous


cdef int leave(int previous) except -1:
    cdef int now = 0
    abi.hipGetDevice(&now)
    if now != previous:
        abi.hipSetDevice(previous)
    return 0


cdef int index_of(object device) except -1:
    cdef int index = 0
    if device is None:
        abi.hipGetDevice(&index)
        return index
    if isinstance(device, Device):
        return (<Device>device).index
    number = integer_of(device)
    if number is None:
        raise InvalidOperandError(
            f"device: got {type(device).__name__}, expected a Device, its number, or None for the current one"
        )
    return existing(number, "device")


cdef int existing(object index, str name) except -1:
    """Return the index of a device that there is."""
    cdef int count = Device.count()
    if not 0 <= index < count:
        raise InvalidProblemError(f"{name}: there is no device {index}; the platform has {count}, numbered from 0")
    return index


cdef class Device:
    """A device of the platform.

    As a context manager it makes this device the thread's current one inside the block and restores the previous one afterwards;
    threads may share the object.

    Parameters
    ----------
    index : int, optional
        Index of the device, from 0; the thread's current device by default.

    Attributes
    ----------
    index : int
        Its number.

    Raises
    ------
    InvalidProblemError
        There is no device with this index.

    Examples
    --------
    >>> import rocpy
    >>> with rocpy.Device(0) as device:
    ...     device == rocpy.Device.current()
    True
    >>> device.memory.total_bytes > 0
    True
    """

    __signature__ = signature_like(lambda index=None: None)

    def __init__(self, index=None):
        cdef int current = 0
        if index is None:
            abi.hipGetDevice(&current)
            index = current
        number = integer_of(index)
        if number is None:
            raise InvalidOperandError(f"index: got {type(index).__name__}, expected the number of a device")
        self.index = existing(number, "index")
        self.outer = {}

    @staticmethod
    def count():
        """Return the number of devices (hipGetDeviceCount)."""
        cdef int number = 0
        abi.hipGetDeviceCount(&number)
        return number

    @staticmethod
    def current():
        """Return the calling thread's current device (hipGetDevice)."""
        return Device()

    @property
    def name(self):
        """Name, for display."""
        return self.properties["name"]

    @property
    def arch(self):
        """Architecture: ``"gfx942:sramecc+:xnack-"`` on a GPU, ``"host-<isa>"`` on the host platform."""
        return self.properties["arch"]

    @property
    def memory(self):
        """Free and total memory, in bytes (hipMemGetInfo)."""
        cdef size_t free = 0, total = 0
        cdef int previous = enter(self.index)
        try:
            abi.hipMemGetInfo(&free, &total)
        finally:
            leave(previous)
        return Memory(free, total)

    @property
    def properties(self):
        """Properties of hipGetDeviceProperties, as a dict."""
        cdef abi.hipDeviceProp_t facts
        abi.hipGetDevicePropertiesR0600(&facts, self.index)
        return {
            "name": facts.name.decode("utf-8", "replace"),
            "arch": facts.gcnArchName.decode("utf-8", "replace"),
            "memory_bytes": facts.totalGlobalMem,
            "shared_memory_per_block_bytes": facts.sharedMemPerBlock,
            "warp_size": facts.warpSize,
            "max_threads_per_block": facts.maxThreadsPerBlock,
            "multiprocessors": facts.multiProcessorCount,
            "clock_khz": facts.clockRate,
            "memory_clock_khz": facts.memoryClockRate,
            "memory_bus_bits": facts.memoryBusWidth,
            "l2_cache_bytes": facts.l2CacheSize,
            "compute_capability": (facts.major, facts.minor),
            "pci": (facts.pciDomainID, facts.pciBusID, facts.pciDeviceID),
            "integrated": bool(facts.integrated),
        }

    def synchronize(self):
        """Wait until all work in all of the device's streams has finished (hipDeviceSynchronize)."""
        cdef int previous = enter(self.index)
        try:
            with nogil:
                abi.hipDeviceSynchronize()
        finally:
            leave(previous)
        if after_wait != NULL:
            after_wait()

    def __enter__(self):
        # By thread: several may be inside blocks of one object, each with a device of its own.
        self.outer.setdefault(threading.get_ident(), []).append(enter(self.index))
        return self

    def __exit__(self, *details):
        me = threading.get_ident()
        before = self.outer.get(me)
        if before is None:
            raise InvalidProblemError(
                f"{self!r}: this thread is in no with block of it; a device is current for the thread that entered the block"
            )
        previous = before.pop()
        if not before:
            del self.outer[me]
        leave(previous)

    def __index__(self):
        return self.index

    def __eq__(self, other):
        return isinstance(other, Device) and (<Device>other).index == self.index

    def __hash__(self):
        return hash((Device, self.index))

    def __repr__(self):
        return f"rocpy.Device({self.index})"
