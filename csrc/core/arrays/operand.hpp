// SPDX-License-Identifier: MIT
// An array as the product sees it: pointer, type, device, extents and strides, whoever owns the memory.
#pragma once

#include <cstdint>

namespace rocpy {

constexpr int max_dims = 32;

// Who described the array, and so who allocates results like it.
enum Provider : int32_t {
  provider_numpy = 0,
  provider_torch = 1,
  provider_exchange = 2,
  provider_capsule = 3,
  provider_array_interface = 4,
  provider_buffer = 5,
};

struct Operand {
  void *data;
  int32_t type;         // number of hipDataType
  int32_t device_type;  // number of DLDeviceType
  int32_t device_id;
  int32_t ndim;
  int32_t provider;
  bool read_only;
  bool copied;      // the memory is a private copy made while parsing: good to read, never an output
  bool conjugated;  // the elements stand for their conjugates
  int64_t shape[max_dims];
  int64_t strides[max_dims];  // in elements
};

}  // namespace rocpy
