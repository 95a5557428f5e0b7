// SPDX-License-Identifier: MIT
// rocBLAS's handles, which programs make before they know whether they will need a product of it. A handle is one of
// hipBLASLt's, since programs pass the one where the other belongs.
#include "exports.h"
#include "lazy.h"

#include <cstdio>
#include <map>
#include <mutex>

#define ROCBLAS_API extern "C" __attribute__((visibility("default")))

namespace {

enum Status { success = 0, invalid_handle = 1, invalid_pointer = 4, memory_error = 5, invalid_size = 3 };

constexpr char version[] = "0.0.0 (rocpy host platform)";

struct Handles {
  std::mutex mutex;
  std::map<void *, hipStream_t> streams;
};

Handles &handles() {
  static rocpy::Lazy<Handles> all;
  return all.get();
}

}  // namespace

ROCBLAS_API int rocblas_create_handle(void **handle) {
  if (handle == nullptr) {
    return invalid_pointer;
  }
  hipblasLtHandle_t created = nullptr;
  if (rocpy_host_hipblasLtCreate(&created) != HIPBLAS_STATUS_SUCCESS) {
    return memory_error;
  }
  *handle = created;
  std::lock_guard<std::mutex> lock(handles().mutex);
  handles().streams[created] = nullptr;
  return success;
}

ROCBLAS_API int rocblas_destroy_handle(void *handle) {
  std::lock_guard<std::mutex> lock(handles().mutex);
  if (handles().streams.erase(handle) == 0) {
    return invalid_handle;
  }
  rocpy_host_hipblasLtDestroy(static_cast<hipblasLtHandle_t>(handle));
  return success;
}

ROCBLAS_API int rocblas_set_stream(void *handle, hipStream_t stream) {
  std::lock_guard<std::mutex> lock(handles().mutex);
  const auto entry = handles().streams.find(handle);
  if (entry == handles().streams.end()) {
    return invalid_handle;
  }
  entry->second = stream;
  return success;
}

ROCBLAS_API int rocblas_get_stream(void *handle, hipStream_t *stream) {
  std::lock_guard<std::mutex> lock(handles().mutex);
  const auto entry = handles().streams.find(handle);
  if (entry == handles().streams.end()) {
    return invalid_handle;
  }
  if (stream == nullptr) {
    return invalid_pointer;
  }
  *stream = entry->second;
  return success;
}

ROCBLAS_API int rocblas_set_atomics_mode(void *handle, int) {
  std::lock_guard<std::mutex> lock(handles().mutex);
  return handles().streams.count(handle) != 0 ? success : invalid_handle;
}

ROCBLAS_API int rocblas_get_version_string_size(size_t *bytes) {
  if (bytes == nullptr) {
    return invalid_pointer;
  }
  *bytes = sizeof version;
  return success;
}

ROCBLAS_API int rocblas_get_version_string(char *text, size_t bytes) {
  if (text == nullptr) {
    return invalid_pointer;
  }
  if (bytes < sizeof version) {
    return invalid_size;
  }
  std::snprintf(text, bytes, "%s", version);
  return success;
}
