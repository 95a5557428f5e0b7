// SPDX-License-Identifier: MIT
// hipBLASLt handles of the host platform: life cycle, version, architecture, and the settings a handle keeps.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "exports.h"
#include "gemm.hpp"
#include "hipblaslt_objects.hpp"
#include "queue.hpp"
#include "window.hpp"

namespace rocpy_host::lt {

namespace {

// Callers key tuning results on version and revision: it changes when the meaning of an algorithm id does.
constexpr char revision[] = "rocpy1";

}  // namespace
}  // namespace rocpy_host::lt

using namespace rocpy_host::lt;

hipblasStatus_t rocpy_host_hipblasLtGetVersion(hipblasLtHandle_t handle, int *out) {
  if (!handles.find(handle)) return HIPBLAS_STATUS_NOT_INITIALIZED;
  if (!out) return HIPBLAS_STATUS_INVALID_VALUE;
  *out = rocpy_host::window().hipblaslt;
  return HIPBLAS_STATUS_SUCCESS;
}

hipblasStatus_t rocpy_host_hipblasLtGetGitRevision(hipblasLtHandle_t handle, char *out) {
  if (!handles.find(handle)) return HIPBLAS_STATUS_NOT_INITIALIZED;
  if (!out) return HIPBLAS_STATUS_INVALID_VALUE;
  std::memcpy(out, revision, sizeof(revision));
  return HIPBLAS_STATUS_SUCCESS;
}

hipblasStatus_t rocpy_host_hipblasLtGetArchName(char **name) {
  if (!name) return HIPBLAS_STATUS_INVALID_VALUE;
  const char *isa = rocpy_host::gemm::isa_name();
  size_t bytes = std::strlen("host-") + std::strlen(isa) + 1;
  *name = static_cast<char *>(std::malloc(bytes));
  if (!*name) return HIPBLAS_STATUS_ALLOC_FAILED;
  std::snprintf(*name, bytes, "host-%s", isa);
  return HIPBLAS_STATUS_SUCCESS;
}

hipblasStatus_t rocpy_host_hipblasLtCreate(hipblasLtHandle_t *handle) {
  if (!handle) return HIPBLAS_STATUS_INVALID_VALUE;
  int device = 0;
  // Without a device the real library ends the process here.
  if (rocpy_host_hipGetDevice(&device) != hipSuccess) {
    report("hipblasLtCreate", "there is no device");
    return HIPBLAS_STATUS_NOT_INITIALIZED;
  }
  Handle *created = handles.allocate();
  if (!created) return HIPBLAS_STATUS_ALLOC_FAILED;
  created->device = device;
  *handle = created;
  return HIPBLAS_STATUS_SUCCESS;
}

hipblasStatus_t rocpy_host_hipblasLtDestroy(hipblasLtHandle_t handle) {
  if (!handle) return HIPBLAS_STATUS_INVALID_VALUE;
  const Handle *entry = handles.find(handle);
  if (!entry) {
    report("hipblasLtDestroy", "%p is not a live handle", handle);
    return HIPBLAS_STATUS_INVALID_VALUE;
  }
  // The library frees device memory here, which waits for the device; work queued with the handle is then done.
  rocpy_host::wait_to_free(entry->device);
  return handles.release(handle) ? HIPBLAS_STATUS_SUCCESS : HIPBLAS_STATUS_INVALID_VALUE;
}

hipblasStatus_t rocpy_host_hipblasLtSetSmCountTarget(hipblasLtHandle_t handle, int32_t count) {
  Handle *entry = handles.find_to_change(handle);
  if (!entry) return HIPBLAS_STATUS_NOT_INITIALIZED;
  if (count < 0) return HIPBLAS_STATUS_INVALID_VALUE;
  entry->sm_count_target.store(count, std::memory_order_relaxed);
  return HIPBLAS_STATUS_SUCCESS;
}

hipblasStatus_t rocpy_host_hipblasLtGetSmCountTarget(hipblasLtHandle_t handle, int32_t *count) {
  const Handle *entry = handles.find(handle);
  if (!entry) return HIPBLAS_STATUS_NOT_INITIALIZED;
  if (!count) return HIPBLAS_STATUS_INVALID_VALUE;
  *count = entry->sm_count_target.load(std::memory_order_relaxed);
  return HIPBLAS_STATUS_SUCCESS;
}

// Checking is off unless asked for by an environment variable of the library's own, which this platform does not have.
hipblasStatus_t rocpy_host_hipblasLtCheckNumericsDrain(hipblasLtHandle_t handle, uint32_t *first_nan_call_id) {
  if (!handles.find(handle)) return HIPBLAS_STATUS_NOT_INITIALIZED;
  if (first_nan_call_id) *first_nan_call_id = 0;
  return HIPBLAS_STATUS_SUCCESS;
}
