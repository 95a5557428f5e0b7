// SPDX-License-Identifier: MIT
// HIP rows about devices. All devices are this machine's CPU: they share its cores and its memory.
#include "device_properties.hpp"
#include "graph.hpp"
#include "hip_call.hpp"
#include "hip_memory.hpp"
#include "window.hpp"

#include <cstdio>
#include <cstring>
#include <string>

namespace rocpy_host {

namespace {

// Runs body() if the number is a device's.
template <class Body>
hipError_t with_device(int device, Body body) {
  return hip_call([&] { return is_device(device) ? body() : hipErrorInvalidDevice; });
}

hipError_t version(int *value) {
  if (value == nullptr) {
    return hipErrorInvalidValue;
  }
  *value = window().hip;
  return hipSuccess;
}

hipError_t copy_text(char *target, int capacity, const char *text) {
  if (target == nullptr || capacity <= 0) {
    return hipErrorInvalidValue;
  }
  std::snprintf(target, static_cast<size_t>(capacity), "%s", text);
  return hipSuccess;
}

uint64_t bit(int device) { return uint64_t{1} << device; }

}  // namespace

}  // namespace rocpy_host

using namespace rocpy_host;

hipError_t rocpy_host_hipInit(unsigned int flags) {
  return hip_call([=] { return flags == 0 ? hipSuccess : hipErrorInvalidValue; });
}

hipError_t rocpy_host_hipDriverGetVersion(int *value) {
  return hip_call([=] { return version(value); });
}

hipError_t rocpy_host_hipRuntimeGetVersion(int *value) {
  return hip_call([=] { return version(value); });
}

hipError_t rocpy_host_hipGetDeviceCount(int *count) {
  return hip_call([=] {
    if (count == nullptr) {
      return hipErrorInvalidValue;
    }
    *count = runtime().device_count;
    return hipSuccess;
  });
}

hipError_t rocpy_host_hipGetDevice(int *device) {
  return hip_call([=] {
    if (device == nullptr) {
      return hipErrorInvalidValue;
    }
    *device = current_device();
    return hipSuccess;
  });
}

hipError_t rocpy_host_hipSetDevice(int device) {
  return hip_call([=] { return set_current_device(device) ? hipSuccess : hipErrorInvalidDevice; });
}

hipError_t rocpy_host_hipDeviceGet(int *device, int ordinal) {
  return with_device(ordinal, [=] {
    if (device == nullptr) {
      return hipErrorInvalidValue;
    }
    *device = ordinal;
    return hipSuccess;
  });
}

hipError_t rocpy_host_hipDeviceGetName(char *name, int len, int device) {
  return with_device(device, [=] { return copy_text(name, len, properties_of(device).name); });
}

hipError_t rocpy_host_hipDeviceGetUuid(hipUUID_t *uuid, int device) {
  return with_device(device, [=] {
    if (uuid == nullptr) {
      return hipErrorInvalidValue;
    }
    *uuid = properties_of(device).uuid;
    return hipSuccess;
  });
}

hipError_t rocpy_host_hipDeviceGetPCIBusId(char *bus_id, int len, int device) {
  return with_device(device, [=] { return copy_text(bus_id, len, bus_id_of(device).c_str()); });
}

hipError_t rocpy_host_hipDeviceGetByPCIBusId(int *device, const char *bus_id) {
  return hip_call([=] {
    if (device == nullptr || bus_id == nullptr) {
      return hipErrorInvalidValue;
    }
    for (int i = 0; i < runtime().device_count; ++i) {
      if (strcasecmp(bus_id_of(i).c_str(), bus_id) == 0) {
        *device = i;
        return hipSuccess;
      }
    }
    return hipErrorInvalidValue;
  });
}

hipError_t rocpy_host_hipDeviceTotalMem(size_t *bytes, int device) {
  return with_device(device, [=] {
    if (bytes == nullptr) {
      return hipErrorInvalidValue;
    }
    *bytes = properties_of(device).totalGlobalMem;
    return hipSuccess;
  });
}

hipError_t rocpy_host_hipDeviceComputeCapability(int *major, int *minor, int device) {
  return with_device(device, [=] {
    if (major == nullptr || minor == nullptr) {
      return hipErrorInvalidValue;
    }
    const hipDeviceProp_t properties = properties_of(device);
    *major = properties.major;
    *minor = properties.minor;
    return hipSuccess;
  });
}

hipError_t rocpy_host_hipDeviceGetAttribute(int *value, hipDeviceAttribute_t attr, int device) {
  return with_device(device, [=] {
    return value != nullptr && attribute_of(properties_of(device), attr, value) ? hipSuccess : hipErrorInvalidValue;
  });
}

hipError_t rocpy_host_hipGetDevicePropertiesR0600(hipDeviceProp_tR0600 *properties, int device) {
  return with_device(device, [=] {
    if (properties == nullptr) {
      return hipErrorInvalidValue;
    }
    *properties = properties_of(device);
    return hipSuccess;
  });
}

hipError_t rocpy_host_hipDeviceSynchronize() {
  return hip_call([] {
    const int device = current_device();
    if (const auto answer = capture_forbids_device_wait(device)) {
      return *answer;
    }
    return wait_device(device, false) ? hipSuccess : hipErrorDeinitialized;
  });
}

hipError_t rocpy_host_hipDeviceReset() {
  return hip_call([] {
    const int index = current_device();
    Device &device = runtime().devices[index];
    if (const auto answer = capture_forbids_device_wait(index)) {
      return *answer;
    }
    if (!wait_device(index, false)) {
      return hipErrorDeinitialized;
    }
    std::vector<uint64_t> handles;
    {
      std::lock_guard<std::mutex> lock(runtime().mutex);
      for (const Stream *stream : device.streams) {
        handles.push_back(stream->handle.load(std::memory_order_relaxed));
      }
      device.peers = 0;
    }
    for (const uint64_t handle : handles) {
      destroy_stream(reinterpret_cast<const void *>(handle));
    }
    free_allocations_of(index);
    device.flags.store(hipDeviceScheduleAuto);
    return hipSuccess;
  });
}

hipError_t rocpy_host_hipGetDeviceFlags(unsigned int *flags) {
  return hip_call([=] {
    if (flags == nullptr) {
      return hipErrorInvalidValue;
    }
    *flags = runtime().devices[current_device()].flags.load();
    return hipSuccess;
  });
}

hipError_t rocpy_host_hipSetDeviceFlags(unsigned int flags) {
  return hip_call([=] {
    constexpr unsigned local_memory_resize = 0x10;  // hipDeviceLmemResizeToMax
    const unsigned schedule = flags & hipDeviceScheduleMask;
    if ((flags & ~(hipDeviceScheduleMask | hipDeviceMapHost | local_memory_resize)) != 0 ||
        (schedule & (schedule - 1)) != 0) {
      return hipErrorInvalidValue;
    }
    runtime().devices[current_device()].flags.store(flags);
    return hipSuccess;
  });
}

hipError_t rocpy_host_hipDeviceCanAccessPeer(int *can_access, int device, int peer) {
  return hip_call([=] {
    if (can_access == nullptr) {
      return hipErrorInvalidValue;
    }
    if (!is_device(device) || !is_device(peer)) {
      return hipErrorInvalidDevice;
    }
    *can_access = device != peer;
    return hipSuccess;
  });
}

hipError_t rocpy_host_hipDeviceEnablePeerAccess(int peer, unsigned int flags) {
  return hip_call([=] {
    if (flags != 0) {
      return hipErrorInvalidValue;
    }
    if (!is_device(peer) || peer == current_device()) {
      return hipErrorInvalidDevice;
    }
    std::lock_guard<std::mutex> lock(runtime().mutex);
    uint64_t &peers = runtime().devices[current_device()].peers;
    if ((peers & bit(peer)) != 0) {
      return hipErrorPeerAccessAlreadyEnabled;
    }
    peers |= bit(peer);
    return hipSuccess;
  });
}

hipError_t rocpy_host_hipDeviceDisablePeerAccess(int peer) {
  return hip_call([=] {
    if (!is_device(peer) || peer == current_device()) {
      return hipErrorInvalidDevice;
    }
    std::lock_guard<std::mutex> lock(runtime().mutex);
    uint64_t &peers = runtime().devices[current_device()].peers;
    if ((peers & bit(peer)) == 0) {
      return hipErrorPeerAccessNotEnabled;
    }
    peers &= ~bit(peer);
    return hipSuccess;
  });
}

hipError_t rocpy_host_hipDeviceGetP2PAttribute(int *value, hipDeviceP2PAttr attr, int src_device, int dst_device) {
  return hip_call([=] {
    if (value == nullptr) {
      return hipErrorInvalidValue;
    }
    if (!is_device(src_device) || !is_device(dst_device) || src_device == dst_device) {
      return hipErrorInvalidDevice;
    }
    switch (attr) {
      case hipDevP2PAttrPerformanceRank:
        *value = 0;
        return hipSuccess;
      case hipDevP2PAttrAccessSupported:
      case hipDevP2PAttrNativeAtomicSupported:
        *value = 1;
        return hipSuccess;
      case hipDevP2PAttrHipArrayAccessSupported:
        *value = 0;  // there are no arrays here
        return hipSuccess;
    }
    return hipErrorInvalidValue;
  });
}

hipError_t rocpy_host_rocpyExtPlatformInfo(char *json, size_t capacity, size_t *needed) {
  return hip_call([=] {
    const std::string text = platform_info();
    if (needed != nullptr) {
      *needed = text.size() + 1;
    }
    if (json != nullptr && capacity > 0) {
      std::snprintf(json, capacity, "%s", text.c_str());
    }
    return json != nullptr || needed != nullptr ? hipSuccess : hipErrorInvalidValue;
  });
}
