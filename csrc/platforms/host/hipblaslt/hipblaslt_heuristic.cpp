// SPDX-License-Identifier: MIT
// hipblasLtMatmulAlgoGetHeuristic of the host platform.
#include <algorithm>
#include <cstring>

#include "exports.h"
#include "fp_environment.h"
#include "gemm.hpp"
#include "hipblaslt_objects.hpp"
#include "hipblaslt_problem.hpp"

using namespace rocpy_host::lt;
namespace gemm = rocpy_host::gemm;

namespace {

constexpr int most_candidates = 64;

// What the library leaves in entries that it did not fill.
constexpr auto state_unfilled = HIPBLAS_STATUS_NOT_SUPPORTED;

}  // namespace

hipblasStatus_t rocpy_host_hipblasLtMatmulAlgoGetHeuristic(
    hipblasLtHandle_t handle, hipblasLtMatmulDesc_t desc, hipblasLtMatrixLayout_t a_layout,
    hipblasLtMatrixLayout_t b_layout, hipblasLtMatrixLayout_t c_layout, hipblasLtMatrixLayout_t d_layout,
    hipblasLtMatmulPreference_t preference, int requested, hipblasLtMatmulHeuristicResult_t *results, int *returned) {
  static constexpr char function[] = "hipblasLtMatmulAlgoGetHeuristic";
  const MatmulDesc *resolved_desc = matmul_descs.find(desc);
  Layouts resolved = {layouts.find(a_layout), layouts.find(b_layout), layouts.find(c_layout), layouts.find(d_layout)};
  const Preference *resolved_preference = preferences.find(preference);
  if (!handles.find(handle) || !resolved_desc || !resolved.a || !resolved.b || !resolved.c || !resolved.d ||
      !resolved_preference) {
    return HIPBLAS_STATUS_NOT_INITIALIZED;
  }
  if (requested < 1 || !results || !returned) return HIPBLAS_STATUS_INVALID_VALUE;

  std::memset(results, 0, sizeof(*results) * size_t(requested));
  for (int i = 0; i < requested; ++i) results[i].state = state_unfilled;
  *returned = 0;

  const rocpy::DefaultFpEnvironment environment;  // the choice is made by estimated times
  // A problem that the product would refuse is here one for which nothing is found.
  Call call;
  hipblasStatus_t status = translate(function, *resolved_desc, resolved, nullptr, &call);
  if (status == HIPBLAS_STATUS_INVALID_VALUE && call.pointer_array && pointer_array_conflict(*resolved_desc)) {
    return status;
  }
  if (status != HIPBLAS_STATUS_SUCCESS || resolved.d->rows == 0) return HIPBLAS_STATUS_SUCCESS;

  gemm::Candidate candidates[most_candidates];
  uint64_t limit = resolved_preference->max_workspace_bytes;
  int count = gemm::rank(call.problem, engine_workspace(limit), std::min(requested, most_candidates), candidates);
  for (int i = 0; i < count; ++i) {
    write_algo(&results[i].algo, candidates[i].id, limit);
    results[i].workspaceSize = published_workspace(candidates[i].workspace_bytes);
    results[i].state = HIPBLAS_STATUS_SUCCESS;
  }
  *returned = count;
  return HIPBLAS_STATUS_SUCCESS;
}
