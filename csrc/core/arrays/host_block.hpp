// SPDX-License-Identifier: MIT
// One allocation that holds a managed tensor and its 64-byte aligned CPU memory, so that a result costs a single
// malloc.
#pragma once

#include <cstdlib>

#include "dlpack_operand.hpp"

namespace rocpy {

inline void free_host_block(DLManagedTensorVersioned *managed) { std::free(managed); }

// A C-contiguous tensor of the operand's type and shape on the CPU, or null without memory. The operand's strides must
// be filled. The alignment is made by hand: aligned allocation goes past the C library's caches and costs a small
// result as much as its product.
inline DLManagedTensorVersioned *new_host_block(const Operand &operand) {
  constexpr uint64_t alignment = 64;
  const uint64_t ndim = static_cast<uint64_t>(operand.ndim);
  const uint64_t header = sizeof(DLManagedTensorVersioned) + 2 * ndim * sizeof(int64_t);
  uint64_t bytes = uint64_t(1) << array_type_of_hip(operand.type)->shift;
  for (uint64_t i = 0; i < ndim; ++i) bytes *= static_cast<uint64_t>(operand.shape[i]);
  void *memory = std::malloc(header + alignment + bytes);
  if (memory == nullptr) return nullptr;
  auto *managed = static_cast<DLManagedTensorVersioned *>(memory);
  const uint64_t data = (reinterpret_cast<uintptr_t>(memory) + header + alignment - 1) / alignment * alignment;
  auto *extents = reinterpret_cast<int64_t *>(managed + 1);
  for (uint64_t i = 0; i < ndim; ++i) {
    extents[i] = operand.shape[i];
    extents[ndim + i] = operand.strides[i];
  }
  managed->version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION};
  managed->manager_ctx = nullptr;
  managed->deleter = free_host_block;
  managed->flags = 0;
  DLTensor &tensor = managed->dl_tensor;
  tensor.data = reinterpret_cast<void *>(data);
  tensor.device = {kDLCPU, 0};
  tensor.ndim = operand.ndim;
  tensor.dtype = dlpack_type(operand.type);
  tensor.shape = extents;
  tensor.strides = extents + ndim;
  tensor.byte_offset = 0;
  return managed;
}

}  // namespace rocpy
