// SPDX-License-Identifier: MIT
// HIP rows that ask about kernels, pointers and streams.
#include "device_properties.hpp"
#include "hip_call.hpp"
#include "hip_memory.hpp"
#include "kernel_of.hpp"

#include <algorithm>

namespace rocpy_host {

namespace {

using amdgpu::Kernel;

enum FunctionAttribute {
  max_threads_per_block = 0,
  shared_bytes = 1,
  constant_bytes = 2,
  local_bytes = 3,
  register_count = 4,
  ptx_version = 5,
  binary_version = 6,
  cache_mode = 7,
  max_dynamic_shared_bytes = 8,
  shared_carveout = 9,
  last_settable = 10,
};

enum PointerAttribute {
  memory_type = 2,
  device_pointer = 3,
  host_pointer = 4,
  is_managed = 8,
  device_ordinal = 9,
  range_start = 11,
  range_bytes = 12,
};

// Vector registers are given out in blocks of eight, of four to wider waves of the cards that may have narrow ones.
int registers_of(const Kernel &kernel, bool has_narrow_waves) {
  const int blocks = static_cast<int>(kernel.resources1 & 63) + 1;
  return blocks * (has_narrow_waves && kernel.lanes == 64 ? 4 : 8);
}

hipFuncAttributes describe(const Kernel &kernel) {
  const hipDeviceProp_t &device = common_properties();
  hipFuncAttributes a = {};
  a.binaryVersion = device.major * 10 + device.minor;
  a.ptxVersion = a.binaryVersion;
  a.localSizeBytes = kernel.private_bytes;
  a.sharedSizeBytes = kernel.shared_bytes;
  a.maxDynamicSharedSizeBytes =
      static_cast<int>(device.sharedMemPerBlock - std::min<size_t>(kernel.shared_bytes, device.sharedMemPerBlock));
  a.maxThreadsPerBlock = std::min(device.maxThreadsPerBlock, static_cast<int>(kernel.most_threads));
  a.numRegs = registers_of(kernel, device.warpSize == 32);
  return a;
}

hipError_t kernel_at(const void *host, Kernel *kernel) {
  hipFunction_t function = nullptr;
  const hipError_t status = rocpy_host_hipGetFuncBySymbol(&function, host);
  return status != hipSuccess ? status : kernel_of(function, kernel);
}

hipError_t read_attribute(const Kernel &kernel, int attribute, int *value) {
  const hipFuncAttributes all = describe(kernel);
  switch (attribute) {
    case max_threads_per_block:
      *value = all.maxThreadsPerBlock;
      return hipSuccess;
    case shared_bytes:
      *value = static_cast<int>(all.sharedSizeBytes);
      return hipSuccess;
    case constant_bytes:
    case cache_mode:
    case shared_carveout:
      *value = 0;
      return hipSuccess;
    case local_bytes:
      *value = static_cast<int>(all.localSizeBytes);
      return hipSuccess;
    case register_count:
      *value = all.numRegs;
      return hipSuccess;
    case ptx_version:
    case binary_version:
      *value = all.binaryVersion;
      return hipSuccess;
    case max_dynamic_shared_bytes:
      *value = all.maxDynamicSharedSizeBytes;
      return hipSuccess;
    default:
      return hipErrorInvalidValue;
  }
}

// The largest block of those that keep a multiprocessor fullest, and the blocks that fill the device.
hipError_t fullest_block(const Kernel &kernel, size_t dynamic_bytes, int limit, int *grid_size, int *block_size) {
  if (grid_size == nullptr || block_size == nullptr) {
    return hipErrorInvalidValue;
  }
  const hipDeviceProp_t &device = common_properties();
  const int largest = limit > 0 ? std::min(limit, device.maxThreadsPerBlock) : device.maxThreadsPerBlock;
  int most_threads = -1;
  for (int size = std::min(device.warpSize, largest); size <= largest; size += device.warpSize) {
    int blocks = 0;
    if (const hipError_t status = occupancy_of(kernel, size, dynamic_bytes, &blocks)) {
      return status;
    }
    if (blocks * size >= most_threads) {
      most_threads = blocks * size;
      *block_size = size;
      *grid_size = blocks * device.multiProcessorCount;
    }
  }
  return hipSuccess;
}

hipError_t read_pointer(void *data, int attribute, void *pointer) {
  hipPointerAttribute_t known;
  if (data == nullptr) {
    return hipErrorInvalidValue;
  }
  if (const hipError_t status = rocpy_host_hipPointerGetAttributes(&known, pointer)) {
    return status;
  }
  Allocation allocation;
  if (!find_allocation(pointer, &allocation)) {
    return hipErrorInvalidValue;
  }
  switch (attribute) {
    case memory_type:
      *static_cast<unsigned *>(data) = known.type;
      return hipSuccess;
    case device_pointer:
      *static_cast<void **>(data) = known.devicePointer;
      return hipSuccess;
    case host_pointer:
      *static_cast<void **>(data) = known.hostPointer;
      return known.hostPointer != nullptr ? hipSuccess : hipErrorInvalidValue;
    case is_managed:
      *static_cast<unsigned *>(data) = static_cast<unsigned>(known.isManaged);
      return hipSuccess;
    case device_ordinal:
      *static_cast<int *>(data) = known.device;
      return hipSuccess;
    case range_start:
      *static_cast<uintptr_t *>(data) = allocation.base;
      return hipSuccess;
    case range_bytes:
      *static_cast<size_t *>(data) = allocation.bytes;
      return hipSuccess;
    default:
      return hipErrorNotSupported;
  }
}

}  // namespace

// As many as its threads, its shared memory and its registers allow.
hipError_t occupancy_of(const Kernel &kernel, int block_size, size_t dynamic_bytes, int *blocks) {
  const hipDeviceProp_t &device = common_properties();
  if (blocks == nullptr || block_size <= 0) {
    return hipErrorInvalidValue;
  }
  const size_t bytes = kernel.shared_bytes + dynamic_bytes;
  if (block_size > device.maxThreadsPerBlock || bytes > device.sharedMemPerBlock) {
    *blocks = 0;
    return hipSuccess;
  }
  *blocks = device.maxThreadsPerMultiProcessor / block_size;
  if (bytes != 0) {
    *blocks = std::min(*blocks, static_cast<int>(device.sharedMemPerMultiprocessor / bytes));
  }
  if (device.regsPerMultiprocessor != 0) {
    constexpr int smallest = 1;  // a kernel that was compiled for a block of this size has registers for one
    const int registers = registers_of(kernel, device.warpSize == 32) * block_size;
    *blocks = std::min(*blocks, std::max(smallest, 2 * device.regsPerMultiprocessor / registers));
  }
  return hipSuccess;
}

}  // namespace rocpy_host

using namespace rocpy_host;

hipError_t rocpy_host_hipFuncGetAttribute(int *value, int attribute, hipFunction_t function) {
  return hip_call([=] {
    Kernel kernel;
    const hipError_t status = value == nullptr ? hipErrorInvalidValue : kernel_of(function, &kernel);
    return status != hipSuccess ? status : read_attribute(kernel, attribute, value);
  });
}

hipError_t rocpy_host_hipFuncGetAttributes(hipFuncAttributes *attributes, const void *host) {
  return hip_call([=] {
    Kernel kernel;
    const hipError_t status = attributes == nullptr ? hipErrorInvalidValue : kernel_at(host, &kernel);
    if (status == hipSuccess) {
      *attributes = describe(kernel);
    }
    return status;
  });
}

// All are hints: a launch takes any size that the device has.
hipError_t rocpy_host_hipFuncSetAttribute(const void *host, int attribute, int value) {
  return hip_call([=] {
    if (host == nullptr) {
      return hipErrorInvalidDeviceFunction;
    }
    if (attribute < 0 || attribute > last_settable) {
      return hipErrorInvalidValue;
    }
    Kernel kernel;
    // A kernel goes by the address of its host symbol, or is a module's.
    if (kernel_at(host, &kernel) != hipSuccess &&
        kernel_of(static_cast<hipFunction_t>(const_cast<void *>(host)), &kernel) != hipSuccess) {
      return hipErrorInvalidDeviceFunction;
    }
    const bool is_possible = attribute == max_dynamic_shared_bytes
                                 ? value >= 0 && value <= describe(kernel).maxDynamicSharedSizeBytes
                             : attribute == shared_carveout ? value >= -1 && value <= 100
                                                            : true;
    return is_possible ? hipSuccess : hipErrorInvalidValue;
  });
}

hipError_t rocpy_host_hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, hipFunction_t function,
                                                                         int block_size, size_t dynamic_bytes) {
  return hip_call([=] {
    Kernel kernel;
    const hipError_t status = kernel_of(function, &kernel);
    return status != hipSuccess ? status : occupancy_of(kernel, block_size, dynamic_bytes, blocks);
  });
}

hipError_t rocpy_host_hipOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *host, int block_size,
                                                                   size_t dynamic_bytes) {
  return hip_call([=] {
    Kernel kernel;
    const hipError_t status = kernel_at(host, &kernel);
    return status != hipSuccess ? status : occupancy_of(kernel, block_size, dynamic_bytes, blocks);
  });
}

// The one flag is about caching.
hipError_t rocpy_host_hipModuleOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, hipFunction_t function,
                                                                                  int block_size, size_t dynamic_bytes,
                                                                                  unsigned int flags) {
  return flags > 1 ? remember(hipErrorInvalidValue)
                   : rocpy_host_hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, block_size,
                                                                                   dynamic_bytes);
}

hipError_t rocpy_host_hipOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *host,
                                                                            int block_size, size_t dynamic_bytes,
                                                                            unsigned int flags) {
  return flags > 1 ? remember(hipErrorInvalidValue)
                   : rocpy_host_hipOccupancyMaxActiveBlocksPerMultiprocessor(blocks, host, block_size, dynamic_bytes);
}

hipError_t rocpy_host_hipModuleOccupancyMaxPotentialBlockSize(int *grid_size, int *block_size, hipFunction_t function,
                                                              size_t dynamic_bytes, int limit) {
  return hip_call([=] {
    Kernel kernel;
    const hipError_t status = kernel_of(function, &kernel);
    return status != hipSuccess ? status : fullest_block(kernel, dynamic_bytes, limit, grid_size, block_size);
  });
}

hipError_t rocpy_host_hipModuleOccupancyMaxPotentialBlockSizeWithFlags(int *grid_size, int *block_size,
                                                                       hipFunction_t function, size_t dynamic_bytes,
                                                                       int limit, unsigned int flags) {
  return flags > 1 ? remember(hipErrorInvalidValue)
                   : rocpy_host_hipModuleOccupancyMaxPotentialBlockSize(grid_size, block_size, function, dynamic_bytes,
                                                                        limit);
}

hipError_t rocpy_host_hipOccupancyMaxPotentialBlockSize(int *grid_size, int *block_size, const void *host,
                                                        size_t dynamic_bytes, int limit) {
  return hip_call([=] {
    Kernel kernel;
    const hipError_t status = kernel_at(host, &kernel);
    return status != hipSuccess ? status : fullest_block(kernel, dynamic_bytes, limit, grid_size, block_size);
  });
}

hipError_t rocpy_host_hipHostGetDevicePointer(void **device_ptr, void *host_ptr, unsigned int flags) {
  return hip_call([=] {
    Allocation allocation;
    if (device_ptr == nullptr || flags != 0 || !find_allocation(host_ptr, &allocation)) {
      return hipErrorInvalidValue;
    }
    *device_ptr = host_ptr;
    return hipSuccess;
  });
}

hipError_t rocpy_host_hipHostGetFlags(unsigned int *flags, void *host_ptr) {
  return hip_call([=] {
    Allocation allocation;
    if (flags == nullptr || !find_allocation(host_ptr, &allocation) || allocation.kind != MemoryKind::host) {
      return hipErrorInvalidValue;
    }
    *flags = allocation.flags;
    return hipSuccess;
  });
}

hipError_t rocpy_host_hipMemGetAddressRange(void **base, size_t *size, void *dptr) {
  return hip_call([=] {
    Allocation allocation;
    if (!find_allocation(dptr, &allocation)) {
      return hipErrorNotFound;
    }
    if (base != nullptr) {
      *base = reinterpret_cast<void *>(allocation.base);
    }
    if (size != nullptr) {
      *size = allocation.bytes;
    }
    return hipSuccess;
  });
}

hipError_t rocpy_host_hipPointerGetAttributes(hipPointerAttribute_t *attributes, const void *ptr) {
  return hip_call([=] {
    if (attributes == nullptr) {
      return hipErrorInvalidValue;
    }
    *attributes = {};
    Allocation allocation;
    if (ptr == nullptr || !find_allocation(ptr, &allocation)) {
      attributes->type = hipMemoryTypeUnregistered;
      attributes->device = hipInvalidDeviceId;
      return hipSuccess;
    }
    const bool is_managed = allocation.kind == MemoryKind::managed;
    attributes->type = is_managed                              ? hipMemoryTypeManaged
                       : allocation.kind == MemoryKind::device ? hipMemoryTypeDevice
                                                               : hipMemoryTypeHost;
    attributes->device = allocation.device;
    attributes->devicePointer = const_cast<void *>(ptr);
    attributes->hostPointer = allocation.kind == MemoryKind::device ? nullptr : const_cast<void *>(ptr);
    attributes->isManaged = is_managed;
    attributes->allocationFlags = allocation.flags;
    return hipSuccess;
  });
}

hipError_t rocpy_host_hipPointerGetAttribute(void *data, int attribute, void *pointer) {
  return hip_call([=] { return read_pointer(data, attribute, pointer); });
}

int rocpy_host_hipGetStreamDeviceId(hipStream_t stream) {
  int device = 0;
  const hipError_t status =
      stream == nullptr ? rocpy_host_hipGetDevice(&device) : rocpy_host_hipStreamGetDevice(stream, &device);
  return status == hipSuccess ? device : -1;
}
