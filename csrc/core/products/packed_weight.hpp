// SPDX-License-Identifier: MIT
// A weight matrix packed for the platform: written once, then read by products of any stream and thread, and freed by
// whoever lets go of it last.
#pragma once

#include <atomic>
#include <cstdint>

#include "context.hpp"
#include "device_resets.hpp"
#include "status.hpp"
#include "types.h"

namespace rocpy {

// What is packed: op(A), the m x k view that the library has of the weight, where A is stored in columns.
struct PackSpec {
  int32_t type = 0;  // hipDataType
  int32_t op = HIPBLAS_OP_N;
  int64_t rows = 0, columns = 0, ld = 0;
  int64_t m = 0, k = 0;
  const void *data = nullptr;
  const void *scales = nullptr;  // by blocks, packed with it; null: none
};

// Whether the platform keeps weights of a type packed; with their scales by blocks.
bool packs_type(hipblasLtHandle_t handle, int32_t type);
bool packs_blocks(hipblasLtHandle_t handle, int32_t type, int64_t m, int64_t k);

class PackedWeight {
 public:
  // Packs on the context's stream and waits until it is done, so that every stream may read the memory afterwards.
  static Status create(StreamContext *context, const PackSpec &spec, PackedWeight **out);

  void retain() { references_.fetch_add(1, std::memory_order_relaxed); }
  // The last one frees the memory as release_resource() does; the status is that of freeing it.
  Status release();

  void *data() const { return data_; }

  // Whether its device was reset since: the memory is gone.
  bool is_lost() const { return resets_ != device_resets(device_); }

  // Live ones, for the tests that look for leaks.
  static int64_t live();

 private:
  PackedWeight();
  ~PackedWeight();
  PackedWeight(const PackedWeight &) = delete;
  PackedWeight &operator=(const PackedWeight &) = delete;

  void *data_ = nullptr;
  int device_ = 0, resets_ = 0;  // of the device, before it was made
  std::atomic<int> references_{1};
};

}  // namespace rocpy
