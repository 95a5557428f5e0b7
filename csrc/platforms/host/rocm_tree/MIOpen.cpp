// SPDX-License-Identifier: MIT
// MIOpen's handles, which programs make before they know whether they will need an operation of it.
#include "types.h"

#include <new>

#define MIOPEN_API extern "C" __attribute__((visibility("default")))

namespace {

enum Status { success = 0, bad_parameter = 3, allocation_failed = 4 };

struct Handle {
  hipStream_t stream;
};

}  // namespace

MIOPEN_API int miopenCreateWithStream(void **handle, hipStream_t stream) {
  if (handle == nullptr) {
    return bad_parameter;
  }
  *handle = new (std::nothrow) Handle{stream};
  return *handle != nullptr ? success : allocation_failed;
}

MIOPEN_API int miopenDestroy(void *handle) {
  delete static_cast<Handle *>(handle);
  return success;
}

MIOPEN_API int miopenSetStream(void *handle, hipStream_t stream) {
  if (handle == nullptr) {
    return bad_parameter;
  }
  static_cast<Handle *>(handle)->stream = stream;
  return success;
}
