# SPDX-License-Identifier: MIT
"""What RCCL does that belongs to no communicator: unique ids, versions, groups, configurations."""

cimport abi
from abi cimport ncclComm_t
from cpython.number cimport PyNumber_Index
from libc.limits cimport INT_MIN
from libc.string cimport memset

from weakref import WeakSet

from rocpy._core import has
from rocpy._messages.text import plain_text
from rocpy.errors import InvalidArgumentError, InvalidProblemError, InvalidUsageError, UnsupportedError
from rocpy.rccl.model.failures import attributed
from rocpy.runtime cimport device as _device

cdef int UNSET = INT_MIN
# Fields of ncclConfig_t that a caller may set, in its order.
SETTINGS = (
    "cga_cluster_size", "min_ctas", "max_ctas", "split_share", "traffic_class", "collnet_enable", "cta_policy", "shrink_share",
    "nvls_ctas", "n_channels_per_net_peer", "nvlink_centric_sched", "graph_usage_mode", "num_rma_ctx", "max_p2p_peers",
)


# The communicators' handles of this process.
handles = WeakSet()


cdef object last_text(ncclComm_t comm):
    cdef const char* text = abi.slot_ncclGetLastError(comm)
    if text == NULL:
        return ""
    count = sum(not handle.is_closed for handle in list(handles))
    return attributed(text.decode("utf-8", "replace"), is_of_thread=has("rocpyExtCommStatus"), communicators=count)


def make_unique_id():
    """The 128 bytes of a new unique id (ncclGetUniqueId)."""
    cdef abi.ncclUniqueId unique_id
    abi.ncclGetUniqueId(&unique_id)
    return (<char*>unique_id.internal)[:128]


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


cdef int device_of_rank(object device, int nranks, int rank) except -1:
    try:
        return _device.index_of(device)
    except InvalidProblemError:
        if nranks <= device_count():
            raise
        raise InvalidUsageError(
            f"device: {nranks} ranks need a device each, and there is no device {device} for rank {rank}: there are {device_count()}; on "
            "the host platform ROCPY_HOST_DEVICES sets their number", op="init", rank=rank,
        ) from None


def awaited_elsewhere(own):
    """What other communicators of a device wait for, for people: a call may be behind theirs on its stream."""
    texts = []
    for handle in list(handles):
        if handle is own or handle.is_closed or handle.device_index != own.device_index:
            continue
        status = handle.status()
        if status.get("waiting_for"):
            row = status["ranks"][handle.rank]
            name = f"communicator {handle.name!r}" if handle.name else "another communicator"
            texts.append(f"{name} of this device is in {row['op']} number {row['seq']}, and waits for its ranks {status['waiting_for']}")
    return "; ".join(texts)


cdef str status_text(ncclComm_t comm):
    """What the platform knows of a communicator's ranks, as JSON; empty where it knows nothing."""
    cdef size_t needed = 0
    cdef bytearray text
    cdef char* at
    if comm == NULL or not has("rocpyExtCommStatus"):
        return ""
    if abi.slot_rocpyExtCommStatus(comm, NULL, 0, &needed) != abi.ncclSuccess:
        return ""
    # What the ranks do may take more words a moment later.
    needed += 512
    text = bytearray(needed)
    at = text
    if abi.slot_rocpyExtCommStatus(comm, at, needed, &needed) != abi.ncclSuccess:
        return ""
    return bytes(text).split(b"\0")[0].decode("utf-8", "replace")


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


def error_string(int code):
    """RCCL's words for a result code (ncclGetErrorString)."""
    library_version()  # chooses the platform
    return (<bytes>abi.slot_ncclGetErrorString(<abi.ncclResult_t>code)).decode("utf-8", "replace")


def last_error():
    """RCCL's last words of what went wrong in this thread, or else this process (ncclGetLastError)."""
    library_version()
    return last_text(NULL)


def parameters():
    """RCCL's parameters and their values, as text (ncclParamGetAllParameterKeys, ncclParamGetParameter)."""
    cdef const char** keys = NULL
    cdef const char* value = NULL
    cdef int count = 0, length = 0, i
    library_version()
    if not has("ncclParamGetAllParameterKeys"):
        raise UnsupportedError("parameters: this platform's RCCL has no ncclParamGetAllParameterKeys, which was added in 2.30", library="rccl")
    abi.ncclParamGetAllParameterKeys(&keys, &count)
    names = [<bytes>keys[i] for i in range(count)]
    values = {}
    for name in names:
        abi.ncclParamGetParameter(name, &value, &length)
        values[name.decode()] = value[:length].decode("utf-8", "replace")
    return values


cdef object apply_settings(abi.ncclConfig_t* config, object settings):
    """Set what a caller chose; gives what must live as long as the library may look at it."""
    cdef int* fields[14]
    net_name = None
    fields[:] = [
        &config.cgaClusterSize, &config.minCTAs, &config.maxCTAs, &config.splitShare, &config.trafficClass, &config.collnetEnable,
        &config.CTAPolicy, &config.shrinkShare, &config.nvlsCTAs, &config.nChannelsPerNetPeer, &config.nvlinkCentricSched,
        &config.graphUsageMode, &config.numRmaCtx, &config.maxP2pPeers,
    ]
    for name, value in dict(settings).items():
        try:
            if name == "net_name":
                net_name = str(plain_text(value)).encode()
                config.netName = <const char*><bytes>net_name
                continue
            fields[SETTINGS.index(name)][0] = PyNumber_Index(value)
        except (TypeError, OverflowError, ValueError):
            raise InvalidArgumentError(
                f"config: got {name!r}: {value!r}, expected numbers for {', '.join(SETTINGS)}, or a net_name"
            ) from None
    return net_name


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
