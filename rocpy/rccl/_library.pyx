# SPDX-License-Identifier: MIT
"""What RCCL does that belongs to no communicator: unique ids, versions, groups, configurations."""

cimport abi
from abi cimport ncclComm_t
from libc.limits cimport INT_MIN
from libc.string cimport memset

from rocpy._core import has

cdef int UNSET = INT_MIN


cdef object last_text(ncclComm_t comm):
    cdef const char* text = abi.slot_ncclGetLastError(comm)
    return "" if text == NULL else text.decode("utf-8", "replace")


def make_unique_id():
    """The 128 bytes of a new unique id (ncclGetUniqueId)."""
    cdef abi.ncclUniqueId made
    abi.ncclGetUniqueId(&made)
    return (<char*>made.internal)[:128]


def library_version():
    """RCCL's version, as ncclGetVersion has it."""
    cdef int version = 0
    abi.ncclGetVersion(&version)
    return version


def device_count():
    """How many devices the platform has."""
    cdef int count = 0
    abi.hipGetDeviceCount(&count)
    return count


def group_start():
    """ncclGroupStart."""
    abi.ncclGroupStart()


def group_end():
    """End the group that this thread opened; gives RCCL's code and the last error's text."""
    cdef int code
    with nogil:
        code = <int>abi.slot_ncclGroupEnd()
    return (0 if code == <int>abi.ncclInProgress else code), ("" if code == 0 else last_text(NULL))


def machine_text():
    """What the platform knows of the communicators of this user's other processes, as JSON; empty where it knows nothing."""
    cdef size_t needed = 0
    cdef bytearray text
    cdef char* at
    library_version()  # chooses the platform
    if not has("rocpyExtMachineStatus"):
        return ""
    abi.rocpyExtMachineStatus(NULL, 0, &needed)
    # There may be more communicators a moment later.
    needed += 65536
    text = bytearray(needed)
    at = text
    abi.rocpyExtMachineStatus(at, needed, &needed)
    return bytes(text).split(b"\0")[0].decode("utf-8", "replace")


cdef abi.ncclConfig_t nonblocking_config(const char* name) noexcept:
    """Fields up to the version that all releases share; a newer library takes the rest for unset."""
    cdef abi.ncclConfig_t config
    memset(&config, 0, sizeof(config))
    config.size = sizeof(config)
    config.magic = abi.NCCL_CONFIG_MAGIC
    config.version = abi.NCCL_VERSION_CODE
    config.blocking = 0
    config.cgaClusterSize = config.minCTAs = config.maxCTAs = UNSET
    config.splitShare = config.trafficClass = config.collnetEnable = config.CTAPolicy = UNSET
    config.shrinkShare = config.nvlsCTAs = config.nChannelsPerNetPeer = config.nvlinkCentricSched = UNSET
    config.graphUsageMode = config.numRmaCtx = config.maxP2pPeers = UNSET
    config.commName = name
    return config
