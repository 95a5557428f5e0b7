// SPDX-License-Identifier: MIT
// Where hipBLASLt's objects live, and what is said about calls that misuse them.
#include "hipblaslt_objects.hpp"

#include <cstdarg>
#include <cstdio>

#include "hip_call.hpp"

namespace rocpy_host::lt {

Pool<Handle> handles;
Pool<Layout> layouts;
Pool<MatmulDesc> matmul_descs;
Pool<Preference> preferences;
Pool<TransformDesc> transform_descs;

void report(const char *function, const char *format, ...) {
  char message[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(message, sizeof(message), format, arguments);
  va_end(arguments);
  std::fprintf(stderr, "rocpy host platform: %s: %s\n", function, message);
}

std::optional<hipblasStatus_t> captured_status(std::optional<hipError_t> answer) {
  if (!answer.has_value()) return std::nullopt;
  if (*answer == hipSuccess) return HIPBLAS_STATUS_SUCCESS;
  if (*answer == hipErrorOutOfMemory) return HIPBLAS_STATUS_ALLOC_FAILED;
  remember(*answer);
  return HIPBLAS_STATUS_INTERNAL_ERROR;
}

}  // namespace rocpy_host::lt
