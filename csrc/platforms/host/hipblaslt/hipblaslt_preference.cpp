// SPDX-License-Identifier: MIT
// Heuristic preferences of the host platform's hipBLASLt.
#include <cstddef>

#include "exports.h"
#include "hipblaslt_attributes.hpp"
#include "hipblaslt_objects.hpp"

namespace rocpy_host::lt {

namespace {

constexpr Attribute attributes[] = {
    {HIPBLASLT_MATMUL_PREF_SEARCH_MODE, offsetof(Preference, search_mode), 4, true, nullptr, nullptr},
    {HIPBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, offsetof(Preference, max_workspace_bytes), 8, true, nullptr, nullptr},
    {HIPBLASLT_MATMUL_PREF_SM_COUNT_TARGET, offsetof(Preference, sm_count_target), 4, true, not_negative, nullptr,
     100400},
};

}  // namespace
}  // namespace rocpy_host::lt

using namespace rocpy_host::lt;

hipblasStatus_t rocpy_host_hipblasLtMatmulPreferenceCreate(hipblasLtMatmulPreference_t *preference) {
  if (!preference) return HIPBLAS_STATUS_NOT_INITIALIZED;
  Preference *created = preferences.allocate();
  *preference = reinterpret_cast<hipblasLtMatmulPreference_t>(created);
  return created ? HIPBLAS_STATUS_SUCCESS : HIPBLAS_STATUS_ALLOC_FAILED;
}

hipblasStatus_t rocpy_host_hipblasLtMatmulPreferenceDestroy(const hipblasLtMatmulPreference_t preference) {
  if (!preference) return HIPBLAS_STATUS_INVALID_VALUE;
  if (preferences.release(preference)) return HIPBLAS_STATUS_SUCCESS;
  report("hipblasLtMatmulPreferenceDestroy", "%p is not a live preference", static_cast<const void *>(preference));
  return HIPBLAS_STATUS_INVALID_VALUE;
}

// The library copies the attribute's full width whatever size it is told; a size too small, which reads past the
// caller's buffer there, is refused here.
hipblasStatus_t rocpy_host_hipblasLtMatmulPreferenceSetAttribute(hipblasLtMatmulPreference_t preference,
                                                                 hipblasLtMatmulPreferenceAttributes_t attribute,
                                                                 const void *value, size_t bytes) {
  Preference *entry = preferences.find_to_change(preference);
  if (!entry) return HIPBLAS_STATUS_INVALID_VALUE;
  const Attribute *row = find_attribute(attributes, attribute);
  if (row && value && bytes != 0 && bytes < row->bytes) {
    report("hipblasLtMatmulPreferenceSetAttribute", "attribute %d has %d bytes, %zu were given", int(attribute),
           int(row->bytes), bytes);
  }
  return set_attribute(attributes, entry, attribute, value, bytes);
}

hipblasStatus_t rocpy_host_hipblasLtMatmulPreferenceGetAttribute(hipblasLtMatmulPreference_t preference,
                                                                 hipblasLtMatmulPreferenceAttributes_t attribute,
                                                                 void *value, size_t bytes, size_t *written) {
  const Preference *entry = preferences.find(preference);
  if (!entry || !value || bytes == 0) return HIPBLAS_STATUS_INVALID_VALUE;
  return get_attribute(attributes, entry, attribute, value, bytes, written);
}
