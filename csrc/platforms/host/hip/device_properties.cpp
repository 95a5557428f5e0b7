// SPDX-License-Identifier: MIT
// The properties of a device, as honest as the struct allows, and the attributes that are read from it.
#include "device_properties.hpp"

#include "environment.h"
#include "gemm.hpp"
#include "hip_memory.hpp"
#include "lazy.h"
#include "os.hpp"
#include "runtime.hpp"
#include "thread_budget.hpp"
#include "window.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <iterator>

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
    p.maxGridSize[axis] = axis == 0 ? largest_int : 65536;
  }
  if (const Card *card = presented_card()) {
    answer_as(*card, &p);
  }
  return p;
}

// An attribute, and its value: mostly a field of the properties `p`.
struct Attribute {
  int number;
  size_t (*value)(const hipDeviceProp_t &p);
};
#define ROCPY_ATTRIBUTE(name, text) \
  {hipDeviceAttribute##name, []([[maybe_unused]] const hipDeviceProp_t &p) { return static_cast<size_t>(text); }}
constexpr Attribute attributes[] = {
    ROCPY_ATTRIBUTE(EccEnabled, p.ECCEnabled),
    ROCPY_ATTRIBUTE(AccessPolicyMaxWindowSize, p.accessPolicyMaxWindowSize),
    ROCPY_ATTRIBUTE(AsyncEngineCount, p.asyncEngineCount),
    ROCPY_ATTRIBUTE(CanMapHostMemory, p.canMapHostMemory),
    ROCPY_ATTRIBUTE(CanUseHostPointerForRegisteredMem, p.canUseHostPointerForRegisteredMem),
    ROCPY_ATTRIBUTE(ClockRate, p.clockRate),
    ROCPY_ATTRIBUTE(ComputeMode, p.computeMode),
    ROCPY_ATTRIBUTE(ComputePreemptionSupported, p.computePreemptionSupported),
    ROCPY_ATTRIBUTE(ConcurrentKernels, p.concurrentKernels),
    ROCPY_ATTRIBUTE(ConcurrentManagedAccess, p.concurrentManagedAccess),
    ROCPY_ATTRIBUTE(CooperativeLaunch, p.cooperativeLaunch),
    ROCPY_ATTRIBUTE(CooperativeMultiDeviceLaunch, p.cooperativeMultiDeviceLaunch),
    ROCPY_ATTRIBUTE(DeviceOverlap, p.deviceOverlap),
    ROCPY_ATTRIBUTE(DirectManagedMemAccessFromHost, p.directManagedMemAccessFromHost),
    ROCPY_ATTRIBUTE(GlobalL1CacheSupported, p.globalL1CacheSupported),
    ROCPY_ATTRIBUTE(HostNativeAtomicSupported, p.hostNativeAtomicSupported),
    ROCPY_ATTRIBUTE(Integrated, p.integrated),
    ROCPY_ATTRIBUTE(IsMultiGpuBoard, p.isMultiGpuBoard),
    ROCPY_ATTRIBUTE(KernelExecTimeout, p.kernelExecTimeoutEnabled),
    ROCPY_ATTRIBUTE(L2CacheSize, p.l2CacheSize),
    ROCPY_ATTRIBUTE(LocalL1CacheSupported, p.localL1CacheSupported),
    ROCPY_ATTRIBUTE(LuidDeviceNodeMask, p.luidDeviceNodeMask),
    ROCPY_ATTRIBUTE(ComputeCapabilityMajor, p.major),
    ROCPY_ATTRIBUTE(ComputeCapabilityMinor, p.minor),
    ROCPY_ATTRIBUTE(ManagedMemory, p.managedMemory),
    ROCPY_ATTRIBUTE(MaxBlocksPerMultiProcessor, p.maxBlocksPerMultiProcessor),
    ROCPY_ATTRIBUTE(MaxThreadsDim, p.maxThreadsDim[0]),
    ROCPY_ATTRIBUTE(MaxBlockDimX, p.maxThreadsDim[0]),
    ROCPY_ATTRIBUTE(MaxBlockDimY, p.maxThreadsDim[1]),
    ROCPY_ATTRIBUTE(MaxBlockDimZ, p.maxThreadsDim[2]),
    ROCPY_ATTRIBUTE(MaxGridDimX, p.maxGridSize[0]),
    ROCPY_ATTRIBUTE(MaxGridDimY, p.maxGridSize[1]),
    ROCPY_ATTRIBUTE(MaxGridDimZ, p.maxGridSize[2]),
    ROCPY_ATTRIBUTE(MaxThreadsPerBlock, p.maxThreadsPerBlock),
    ROCPY_ATTRIBUTE(MaxThreadsPerMultiProcessor, p.maxThreadsPerMultiProcessor),
    ROCPY_ATTRIBUTE(MaxPitch, p.memPitch),
    ROCPY_ATTRIBUTE(MemoryBusWidth, p.memoryBusWidth),
    ROCPY_ATTRIBUTE(MemoryClockRate, p.memoryClockRate),
    ROCPY_ATTRIBUTE(MultiGpuBoardGroupID, p.multiGpuBoardGroupID),
    ROCPY_ATTRIBUTE(MultiprocessorCount, p.multiProcessorCount),
    ROCPY_ATTRIBUTE(PhysicalMultiProcessorCount, p.multiProcessorCount),
    ROCPY_ATTRIBUTE(PageableMemoryAccess, p.pageableMemoryAccess),
    ROCPY_ATTRIBUTE(PageableMemoryAccessUsesHostPageTables, p.pageableMemoryAccessUsesHostPageTables),
    ROCPY_ATTRIBUTE(PciBusId, p.pciBusID),
    ROCPY_ATTRIBUTE(PciDeviceId, p.pciDeviceID),
    ROCPY_ATTRIBUTE(PciDomainId, p.pciDomainID),
    ROCPY_ATTRIBUTE(PersistingL2CacheMaxSize, p.persistingL2CacheMaxSize),
    ROCPY_ATTRIBUTE(MaxRegistersPerBlock, p.regsPerBlock),
    ROCPY_ATTRIBUTE(MaxRegistersPerMultiprocessor, p.regsPerMultiprocessor),
    ROCPY_ATTRIBUTE(ReservedSharedMemPerBlock, p.reservedSharedMemPerBlock),
    ROCPY_ATTRIBUTE(MaxSharedMemoryPerBlock, p.sharedMemPerBlock),
    ROCPY_ATTRIBUTE(SharedMemPerBlockOptin, p.sharedMemPerBlockOptin),
    ROCPY_ATTRIBUTE(SharedMemPerMultiprocessor, p.sharedMemPerMultiprocessor),
    ROCPY_ATTRIBUTE(SingleToDoublePrecisionPerfRatio, p.singleToDoublePrecisionPerfRatio),
    ROCPY_ATTRIBUTE(StreamPrioritiesSupported, p.streamPrioritiesSupported),
    ROCPY_ATTRIBUTE(SurfaceAlignment, p.surfaceAlignment),
    ROCPY_ATTRIBUTE(TccDriver, p.tccDriver),
    ROCPY_ATTRIBUTE(TextureAlignment, p.textureAlignment),
    ROCPY_ATTRIBUTE(TexturePitchAlignment, p.texturePitchAlignment),
    ROCPY_ATTRIBUTE(TotalConstantMemory, p.totalConstMem),
    ROCPY_ATTRIBUTE(TotalGlobalMem, p.totalGlobalMem),
    ROCPY_ATTRIBUTE(UnifiedAddressing, p.unifiedAddressing),
    ROCPY_ATTRIBUTE(WarpSize, p.warpSize),
    ROCPY_ATTRIBUTE(MemoryPoolsSupported, p.memoryPoolsSupported),
    ROCPY_ATTRIBUTE(HostRegisterSupported, p.hostRegisterSupported),
    ROCPY_ATTRIBUTE(MemoryPoolSupportedHandleTypes, p.memoryPoolSupportedHandleTypes),
    ROCPY_ATTRIBUTE(ClockInstructionRate, p.clockInstructionRate),
    ROCPY_ATTRIBUTE(MaxSharedMemoryPerMultiprocessor, p.maxSharedMemoryPerMultiProcessor),
    ROCPY_ATTRIBUTE(CooperativeMultiDeviceUnmatchedFunc, p.cooperativeMultiDeviceUnmatchedFunc),
    ROCPY_ATTRIBUTE(CooperativeMultiDeviceUnmatchedGridDim, p.cooperativeMultiDeviceUnmatchedGridDim),
    ROCPY_ATTRIBUTE(CooperativeMultiDeviceUnmatchedBlockDim, p.cooperativeMultiDeviceUnmatchedBlockDim),
    ROCPY_ATTRIBUTE(CooperativeMultiDeviceUnmatchedSharedMem, p.cooperativeMultiDeviceUnmatchedSharedMem),
    ROCPY_ATTRIBUTE(IsLargeBar, p.isLargeBar),
    ROCPY_ATTRIBUTE(AsicRevision, p.asicRevision),
    ROCPY_ATTRIBUTE(FineGrainSupport, 1),
    ROCPY_ATTRIBUTE(NumberOfXccs, presented_card() != nullptr ? presented_card()->xccs : 1),
    // Of a CPU: event times count nanoseconds.
    ROCPY_ATTRIBUTE(WallClockRate, presented_card() != nullptr ? presented_card()->wall_clock_khz : 1000000),
    // What this platform does not have at all.
    ROCPY_ATTRIBUTE(VirtualMemoryManagementSupported, 0),
    ROCPY_ATTRIBUTE(DmaBufSupported, 0),
    ROCPY_ATTRIBUTE(GPUDirectRDMAWithHipVMMSupported, 0),
    ROCPY_ATTRIBUTE(HandleTypeFabricSupported, 0),
    ROCPY_ATTRIBUTE(CanUseStreamWaitValue, 0),
    ROCPY_ATTRIBUTE(ImageSupport, 0),
};
#undef ROCPY_ATTRIBUTE

bool is_image_limit(int attribute) {
  return attribute >= hipDeviceAttributeMaxSurface1D && attribute <= hipDeviceAttributeMaxTextureCubemapLayered;
}

}  // namespace

const hipDeviceProp_t &common_properties() {
  static rocpy::Lazy<const hipDeviceProp_t> common;
  return common.get([] { return new hipDeviceProp_t(make_properties()); });
}

hipDeviceProp_t properties_of(int device) {
  hipDeviceProp_t p = common_properties();
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
  const int number = static_cast<int>(attribute);
  const auto row = std::find_if(std::begin(attributes), std::end(attributes),
                                [number](const Attribute &one) { return one.number == number; });
  const bool is_known = row != std::end(attributes);
  if (!is_known && !is_image_limit(number)) {
    return false;
  }
  *value = is_known ? static_cast<int>(std::min<size_t>(row->value(p), largest_int)) : 0;
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
