// SPDX-License-Identifier: MIT
// The properties of a device, as honest as the struct allows, and the attributes that are read from it.
#include "device_properties.hpp"

#include "environment.h"
#include "gemm.hpp"
#include "hip_memory.hpp"
#include "os.hpp"
#include "runtime.hpp"
#include "thread_budget.hpp"
#include "window.hpp"

#include <cstdio>
#include <cstring>

namespace rocpy_host {

namespace {

constexpr int pci_domain = 0x524f;  // one that machines do not have, so that a look into /sys finds nothing
constexpr int largest_int = 0x7fffffff;

// Escapes what JSON does not take inside a string.
std::string json_string(const std::string &text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      quoted += '\\';
    }
    if (static_cast<unsigned char>(c) >= 0x20) {
      quoted += c;
    }
  }
  return quoted + '"';
}

hipDeviceProp_t make_properties() {
  hipDeviceProp_t p = {};
  std::snprintf(p.name, sizeof p.name, "rocpy host platform (%s)", cpu_model().c_str());
  std::snprintf(p.gcnArchName, sizeof p.gcnArchName, "host-%s", gemm::isa_name());
  p.totalGlobalMem = memory_total();
  p.multiProcessorCount = process_threads();
  p.clockRate = cpu_clock_khz();
  p.l2CacheSize = l2_cache_bytes();
  p.integrated = 1;
  p.canMapHostMemory = 1;
  p.unifiedAddressing = 1;
  p.managedMemory = 1;
  p.concurrentManagedAccess = 1;
  p.directManagedMemAccessFromHost = 1;
  p.pageableMemoryAccess = is_host_memory_shared();
  p.pageableMemoryAccessUsesHostPageTables = p.pageableMemoryAccess;
  p.hostNativeAtomicSupported = 1;
  p.hostRegisterSupported = 1;
  p.canUseHostPointerForRegisteredMem = 1;
  p.concurrentKernels = 1;
  p.isLargeBar = 1;
  p.memPitch = largest_int;
  p.pciDomainID = pci_domain;
  // What GPU-style code finds when it asks how wide a warp and how large a block may be.
  p.warpSize = 64;
  p.maxThreadsPerBlock = 1024;
  p.maxThreadsPerMultiProcessor = 1024;
  p.maxBlocksPerMultiProcessor = 1;
  p.sharedMemPerBlock = 65536;
  p.sharedMemPerMultiprocessor = 65536;
  p.maxSharedMemoryPerMultiProcessor = 65536;
  for (int axis = 0; axis < 3; ++axis) {
    p.maxThreadsDim[axis] = 1024;
    p.maxGridSize[axis] = axis == 0 ? largest_int : 65535;
  }
  if (const Card *card = presented_card()) {
    answer_as(*card, &p);
  }
  return p;
}

}  // namespace

hipDeviceProp_t properties_of(int device) {
  static const hipDeviceProp_t common = make_properties();
  hipDeviceProp_t p = common;
  p.pciBusID = device;
  char uuid[sizeof p.uuid.bytes + 1];
  std::snprintf(uuid, sizeof uuid, "rocpy%08x%03d", host_name_hash(), device);
  std::memcpy(p.uuid.bytes, uuid, sizeof p.uuid.bytes);
  return p;
}

std::string bus_id_of(int device) {
  char text[16];
  std::snprintf(text, sizeof text, "%04x:%02x:00.0", pci_domain, static_cast<unsigned>(device) & 0xffu);
  return text;
}

bool attribute_of(const hipDeviceProp_t &p, hipDeviceAttribute_t attribute, int *value) {
  const auto clamped = [](size_t bytes) { return bytes < largest_int ? static_cast<int>(bytes) : largest_int; };
  const auto number = [&]() -> int64_t {
    switch (static_cast<int>(attribute)) {
      case hipDeviceAttributeEccEnabled:
        return p.ECCEnabled;
      case hipDeviceAttributeAccessPolicyMaxWindowSize:
        return p.accessPolicyMaxWindowSize;
      case hipDeviceAttributeAsyncEngineCount:
        return p.asyncEngineCount;
      case hipDeviceAttributeCanMapHostMemory:
        return p.canMapHostMemory;
      case hipDeviceAttributeCanUseHostPointerForRegisteredMem:
        return p.canUseHostPointerForRegisteredMem;
      case hipDeviceAttributeClockRate:
        return p.clockRate;
      case hipDeviceAttributeComputeMode:
        return p.computeMode;
      case hipDeviceAttributeComputePreemptionSupported:
        return p.computePreemptionSupported;
      case hipDeviceAttributeConcurrentKernels:
        return p.concurrentKernels;
      case hipDeviceAttributeConcurrentManagedAccess:
        return p.concurrentManagedAccess;
      case hipDeviceAttributeCooperativeLaunch:
        return p.cooperativeLaunch;
      case hipDeviceAttributeCooperativeMultiDeviceLaunch:
        return p.cooperativeMultiDeviceLaunch;
      case hipDeviceAttributeDeviceOverlap:
        return p.deviceOverlap;
      case hipDeviceAttributeDirectManagedMemAccessFromHost:
        return p.directManagedMemAccessFromHost;
      case hipDeviceAttributeGlobalL1CacheSupported:
        return p.globalL1CacheSupported;
      case hipDeviceAttributeHostNativeAtomicSupported:
        return p.hostNativeAtomicSupported;
      case hipDeviceAttributeIntegrated:
        return p.integrated;
      case hipDeviceAttributeIsMultiGpuBoard:
        return p.isMultiGpuBoard;
      case hipDeviceAttributeKernelExecTimeout:
        return p.kernelExecTimeoutEnabled;
      case hipDeviceAttributeL2CacheSize:
        return p.l2CacheSize;
      case hipDeviceAttributeLocalL1CacheSupported:
        return p.localL1CacheSupported;
      case hipDeviceAttributeLuidDeviceNodeMask:
        return p.luidDeviceNodeMask;
      case hipDeviceAttributeComputeCapabilityMajor:
        return p.major;
      case hipDeviceAttributeComputeCapabilityMinor:
        return p.minor;
      case hipDeviceAttributeManagedMemory:
        return p.managedMemory;
      case hipDeviceAttributeMaxBlocksPerMultiProcessor:
        return p.maxBlocksPerMultiProcessor;
      case hipDeviceAttributeMaxThreadsDim:
      case hipDeviceAttributeMaxBlockDimX:
        return p.maxThreadsDim[0];
      case hipDeviceAttributeMaxBlockDimY:
        return p.maxThreadsDim[1];
      case hipDeviceAttributeMaxBlockDimZ:
        return p.maxThreadsDim[2];
      case hipDeviceAttributeMaxGridDimX:
        return p.maxGridSize[0];
      case hipDeviceAttributeMaxGridDimY:
        return p.maxGridSize[1];
      case hipDeviceAttributeMaxGridDimZ:
        return p.maxGridSize[2];
      case hipDeviceAttributeMaxThreadsPerBlock:
        return p.maxThreadsPerBlock;
      case hipDeviceAttributeMaxThreadsPerMultiProcessor:
        return p.maxThreadsPerMultiProcessor;
      case hipDeviceAttributeMaxPitch:
        return clamped(p.memPitch);
      case hipDeviceAttributeMemoryBusWidth:
        return p.memoryBusWidth;
      case hipDeviceAttributeMemoryClockRate:
        return p.memoryClockRate;
      case hipDeviceAttributeMultiGpuBoardGroupID:
        return p.multiGpuBoardGroupID;
      case hipDeviceAttributeMultiprocessorCount:
      case hipDeviceAttributePhysicalMultiProcessorCount:
        return p.multiProcessorCount;
      case hipDeviceAttributePageableMemoryAccess:
        return p.pageableMemoryAccess;
      case hipDeviceAttributePageableMemoryAccessUsesHostPageTables:
        return p.pageableMemoryAccessUsesHostPageTables;
      case hipDeviceAttributePciBusId:
        return p.pciBusID;
      case hipDeviceAttributePciDeviceId:
        return p.pciDeviceID;
      case hipDeviceAttributePciDomainId:
        return p.pciDomainID;
      case hipDeviceAttributePersistingL2CacheMaxSize:
        return p.persistingL2CacheMaxSize;
      case hipDeviceAttributeMaxRegistersPerBlock:
        return p.regsPerBlock;
      case hipDeviceAttributeMaxRegistersPerMultiprocessor:
        return p.regsPerMultiprocessor;
      case hipDeviceAttributeReservedSharedMemPerBlock:
        return clamped(p.reservedSharedMemPerBlock);
      case hipDeviceAttributeMaxSharedMemoryPerBlock:
        return clamped(p.sharedMemPerBlock);
      case hipDeviceAttributeSharedMemPerBlockOptin:
        return clamped(p.sharedMemPerBlockOptin);
      case hipDeviceAttributeSharedMemPerMultiprocessor:
        return clamped(p.sharedMemPerMultiprocessor);
      case hipDeviceAttributeSingleToDoublePrecisionPerfRatio:
        return p.singleToDoublePrecisionPerfRatio;
      case hipDeviceAttributeStreamPrioritiesSupported:
        return p.streamPrioritiesSupported;
      case hipDeviceAttributeSurfaceAlignment:
        return clamped(p.surfaceAlignment);
      case hipDeviceAttributeTccDriver:
        return p.tccDriver;
      case hipDeviceAttributeTextureAlignment:
        return clamped(p.textureAlignment);
      case hipDeviceAttributeTexturePitchAlignment:
        return clamped(p.texturePitchAlignment);
      case hipDeviceAttributeTotalConstantMemory:
        return clamped(p.totalConstMem);
      case hipDeviceAttributeTotalGlobalMem:
        return clamped(p.totalGlobalMem);
      case hipDeviceAttributeUnifiedAddressing:
        return p.unifiedAddressing;
      case hipDeviceAttributeWarpSize:
        return p.warpSize;
      case hipDeviceAttributeMemoryPoolsSupported:
        return p.memoryPoolsSupported;
      case hipDeviceAttributeHostRegisterSupported:
        return p.hostRegisterSupported;
      case hipDeviceAttributeMemoryPoolSupportedHandleTypes:
        return p.memoryPoolSupportedHandleTypes;
      case hipDeviceAttributeClockInstructionRate:
        return p.clockInstructionRate;
      case hipDeviceAttributeMaxSharedMemoryPerMultiprocessor:
        return clamped(p.maxSharedMemoryPerMultiProcessor);
      case hipDeviceAttributeCooperativeMultiDeviceUnmatchedFunc:
        return p.cooperativeMultiDeviceUnmatchedFunc;
      case hipDeviceAttributeCooperativeMultiDeviceUnmatchedGridDim:
        return p.cooperativeMultiDeviceUnmatchedGridDim;
      case hipDeviceAttributeCooperativeMultiDeviceUnmatchedBlockDim:
        return p.cooperativeMultiDeviceUnmatchedBlockDim;
      case hipDeviceAttributeCooperativeMultiDeviceUnmatchedSharedMem:
        return p.cooperativeMultiDeviceUnmatchedSharedMem;
      case hipDeviceAttributeIsLargeBar:
        return p.isLargeBar;
      case hipDeviceAttributeAsicRevision:
        return p.asicRevision;
      // What this platform does not have at all.
      case hipDeviceAttributeVirtualMemoryManagementSupported:
      case hipDeviceAttributeDmaBufSupported:
      case hipDeviceAttributeGPUDirectRDMAWithHipVMMSupported:
      case hipDeviceAttributeHandleTypeFabricSupported:
      case hipDeviceAttributeCanUseStreamWaitValue:
      case hipDeviceAttributeImageSupport:
        return 0;
      case hipDeviceAttributeFineGrainSupport:
        return 1;
      case hipDeviceAttributeWallClockRate:
        return 1000000;  // kHz: event times count nanoseconds
      case hipDeviceAttributeNumberOfXccs:
        return 1;
      default:
        break;
    }
    const int index = static_cast<int>(attribute);
    const bool is_image_limit =
        index >= hipDeviceAttributeMaxSurface1D && index <= hipDeviceAttributeMaxTextureCubemapLayered;
    return is_image_limit ? 0 : -1;
  }();
  if (number < 0) {
    return false;
  }
  *value = static_cast<int>(number);
  return true;
}

std::string platform_info() {
  const Runtime &rt = runtime();
  const char *seed = rocpy_environment(ROCPY_HOST_STRESS);
  std::string text = "{\"emulated\": true";
  text += ", \"isa\": " + json_string(gemm::isa_name());
  text += ", \"rocm_abi\": " + json_string(window().rocm);
  text += std::string(", \"strict\": ") + (is_strict() ? "true" : "false");
  text += ", \"threads\": " + std::to_string(process_threads());
  text += ", \"cpu\": " + json_string(cpu_model());
  text += ", \"devices\": " + std::to_string(rt.device_count);
  text += std::string(", \"host_memory\": ") + (is_host_memory_shared() ? "\"shared\"" : "\"separate\"");
  text += ", \"stress\": " + (rt.is_stressed ? json_string(seed) : std::string("null"));
  return text + ", \"version\": " + json_string(ROCPY_VERSION) + "}";
}

}  // namespace rocpy_host
