# SPDX-License-Identifier: MIT
"""Devices through hip-python: count, choice, properties, attributes, versions, peers, errors."""

import ctypes
import json
import threading
from pathlib import Path

import host_platform
from host_platform import error, folder, ok


def test_initialise_and_versions(hip):
    ok(hip.hipInit(0))
    assert error(hip.hipInit(1)) == "hipErrorInvalidValue"
    assert ok(hip.hipRuntimeGetVersion()) == ok(hip.hipDriverGetVersion()) == 71500000


def test_count_and_choice(hip):
    count = ok(hip.hipGetDeviceCount())
    assert count >= 1
    ok(hip.hipSetDevice(count - 1))
    assert ok(hip.hipGetDevice()) == count - 1
    assert ok(hip.hipDeviceGet(0)) == 0
    for wrong in (count, -1):
        assert error(hip.hipSetDevice(wrong)) == "hipErrorInvalidDevice"
        assert error(hip.hipDeviceGet(wrong)) == "hipErrorInvalidDevice"
    assert ok(hip.hipGetDevice()) == count - 1


def test_each_thread_has_a_current_device(hip):
    ok(hip.hipSetDevice(1))
    seen = []
    thread = threading.Thread(target=lambda: seen.append(ok(hip.hipGetDevice())))
    thread.start()
    thread.join()
    assert seen == [0]
    assert ok(hip.hipGetDevice()) == 1


def test_properties_are_honest(hip):
    properties = ok(hip.hipGetDeviceProperties(0))
    name = properties.name if isinstance(properties.name, str) else properties.name.decode()
    assert name.startswith("rocpy host platform (")
    assert str(ok(hip.hipDeviceGetName(256, 0))) == name
    arch = properties.gcnArchName if isinstance(properties.gcnArchName, str) else properties.gcnArchName.decode()
    assert arch.startswith("host-")
    physical = int(Path("/proc/meminfo").read_text().split()[1]) * 1024
    assert 0 < properties.totalGlobalMem <= physical
    assert ok(hip.hipDeviceTotalMem(0)) == properties.totalGlobalMem
    assert ok(hip.hipDeviceComputeCapability(0)) == (properties.major, properties.minor)
    assert properties.integrated == properties.canMapHostMemory == properties.unifiedAddressing == 1
    assert error(hip.hipGetDeviceProperties(1000)) == "hipErrorInvalidDevice"


def test_attributes_come_from_the_properties(hip):
    properties = ok(hip.hipGetDeviceProperties(0))
    attributes = hip.hipDeviceAttribute_t
    for attribute, field in (
        (attributes.hipDeviceAttributeMultiprocessorCount, "multiProcessorCount"),
        (attributes.hipDeviceAttributeWarpSize, "warpSize"),
        (attributes.hipDeviceAttributeMaxThreadsPerBlock, "maxThreadsPerBlock"),
        (attributes.hipDeviceAttributeClockRate, "clockRate"),
        (attributes.hipDeviceAttributePciDomainId, "pciDomainID"),
        (attributes.hipDeviceAttributeManagedMemory, "managedMemory"),
        (attributes.hipDeviceAttributeIntegrated, "integrated"),
    ):
        assert ok(hip.hipDeviceGetAttribute(attribute, 0)) == getattr(properties, field), field
    unknown = attributes.hipDeviceAttributeUnused1
    assert error(hip.hipDeviceGetAttribute(unknown, 0)) == "hipErrorInvalidValue"
    assert error(hip.hipDeviceGetAttribute(attributes.hipDeviceAttributeWarpSize, -1)) == "hipErrorInvalidDevice"


def test_every_attribute_answers(hip):
    ends = ("Begin", "End", "Unused", "Luid", "HdpMemFlushCntl", "HdpRegFlushCntl")
    silent = [
        attribute.name
        for attribute in hip.hipDeviceAttribute_t
        if hip.hipDeviceGetAttribute(attribute, 0)[0] != 0 and not any(end in attribute.name for end in ends)
    ]
    # Registers and scheduling modes of an instruction set that is not here.
    assert set(silent) <= {
        "hipDeviceAttributeHostNumaId",
        "hipDeviceAttributeMaxAvailableVgprsPerThread",
        "hipDeviceAttributePciChipId",
        "hipDeviceAttributeExpertSchedMode",
        "hipDeviceAttributeMaxDynDataPrefetchRegions",
    }


def test_devices_are_told_apart(hip):
    count = ok(hip.hipGetDeviceCount())
    identities = [str(ok(hip.hipDeviceGetPCIBusId(32, i))) for i in range(count)]
    assert len(set(identities)) == count
    for i, identity in enumerate(identities):
        assert ok(hip.hipDeviceGetByPCIBusId(identity.encode())) == i
    assert error(hip.hipDeviceGetByPCIBusId(b"0000:ff:1f.7")) == "hipErrorInvalidValue"
    uuids = {bytes(ok(hip.hipDeviceGetUuid(i)).bytes) for i in range(count)}
    assert len(uuids) == count


def test_flags_and_priorities(hip):
    ok(hip.hipSetDeviceFlags(4))
    assert ok(hip.hipGetDeviceFlags()) == 4
    assert error(hip.hipSetDeviceFlags(3)) == "hipErrorInvalidValue"
    assert error(hip.hipSetDeviceFlags(1 << 20)) == "hipErrorInvalidValue"
    ok(hip.hipSetDeviceFlags(0))
    assert ok(hip.hipDeviceGetStreamPriorityRange()) == (1, -1)


def test_peers(hip):
    assert ok(hip.hipDeviceCanAccessPeer(0, 1)) == 1
    assert ok(hip.hipDeviceCanAccessPeer(0, 0)) == 0
    assert error(hip.hipDeviceDisablePeerAccess(1)) == "hipErrorPeerAccessNotEnabled"
    ok(hip.hipDeviceEnablePeerAccess(1, 0))
    assert error(hip.hipDeviceEnablePeerAccess(1, 0)) == "hipErrorPeerAccessAlreadyEnabled"
    ok(hip.hipDeviceDisablePeerAccess(1))
    assert error(hip.hipDeviceEnablePeerAccess(0, 0)) == "hipErrorInvalidDevice"
    assert error(hip.hipDeviceEnablePeerAccess(1, 7)) == "hipErrorInvalidValue"
    supported = hip.hipDeviceP2PAttr.hipDevP2PAttrAccessSupported
    assert ok(hip.hipDeviceGetP2PAttribute(supported, 0, 1)) == 1
    assert error(hip.hipDeviceGetP2PAttribute(supported, 0, 0)) == "hipErrorInvalidDevice"


def test_last_error(hip):
    assert error(hip.hipFree(12345)) == "hipErrorInvalidValue"
    ok(hip.hipDeviceSynchronize())
    assert error(hip.hipPeekAtLastError()) == "hipErrorInvalidValue"
    seen = []
    thread = threading.Thread(target=lambda: seen.append(error(hip.hipPeekAtLastError())))
    thread.start()
    thread.join()
    assert seen == ["hipSuccess"]
    assert error(hip.hipGetLastError()) == "hipErrorInvalidValue"
    assert error(hip.hipGetLastError()) == "hipSuccess"


def test_every_error_has_a_name_and_a_description(hip):
    descriptions = {}
    for status in hip.hipError_t:
        assert str(ok(hip.hipGetErrorName(status))) == status.name
        descriptions[status.name] = str(ok(hip.hipGetErrorString(status)))
    assert all(descriptions.values())
    assert len(set(descriptions.values())) == len(descriptions)


def test_reset_frees_what_the_device_holds(hip):
    count = ok(hip.hipGetDeviceCount())
    ok(hip.hipSetDevice(count - 1))
    pointer, stream = ok(hip.hipMalloc(4096)), ok(hip.hipStreamCreate())
    elsewhere = None
    ok(hip.hipSetDevice(0))
    elsewhere = ok(hip.hipMalloc(4096))
    ok(hip.hipSetDevice(count - 1))
    ok(hip.hipDeviceReset())
    assert error(hip.hipFree(pointer)) == "hipErrorInvalidValue"
    assert error(hip.hipStreamQuery(stream)) == "hipErrorContextIsDestroyed"
    ok(hip.hipFree(elsewhere))


def test_platform_info(hip):
    library = ctypes.CDLL(str(folder() / "lib" / "libamdhip64.so"))
    needed = ctypes.c_size_t()
    assert library.rocpyExtPlatformInfo(None, ctypes.c_size_t(0), ctypes.byref(needed)) == 0
    buffer = ctypes.create_string_buffer(needed.value)
    assert library.rocpyExtPlatformInfo(buffer, ctypes.c_size_t(needed.value), None) == 0
    info = json.loads(buffer.value)
    assert info["emulated"] is True
    assert info["devices"] == ok(hip.hipGetDeviceCount())
    assert {"isa", "threads", "cpu", "host_memory", "stress", "version"} <= set(info)
    cut = ctypes.create_string_buffer(b"x" * 15, 16)
    assert library.rocpyExtPlatformInfo(cut, ctypes.c_size_t(8), None) == 0
    assert cut.value == buffer.value[:7]
    assert library.rocpyExtPlatformInfo(None, ctypes.c_size_t(0), None) == 1


def test_count_follows_the_environment():
    code = "answer = ok(hip.hipGetDeviceCount())"
    for value, count in (
        ("1", 1),
        ("3", 3),
        ("0", 1),
        ("-5", 1),
        ("1000000", 64),
        ("9" * 40, 64),
        ("many", 8),
        ("2x", 8),
        ("", 8),
    ):
        assert host_platform.run(code, ROCPY_HOST_DEVICES=value) == count, value
