// SPDX-License-Identifier: MIT
// What can be asked of one algorithm of the host platform: its name, its index, whether it takes a problem, and what
// can be relied on.
#include <algorithm>
#include <cstring>
#include <initializer_list>

#include "exports.h"
#include "gemm.hpp"
#include "hipblaslt_objects.hpp"
#include "hipblaslt_problem.hpp"

using namespace rocpy_host::lt;
namespace gemm = rocpy_host::gemm;

namespace {

// The problem of these descriptors as a search sees it.
hipblasStatus_t read_problem(const char *function, hipblasLtHandle_t handle, hipblasLtMatmulDesc_t desc,
                             hipblasLtMatrixLayout_t a, hipblasLtMatrixLayout_t b, hipblasLtMatrixLayout_t c,
                             hipblasLtMatrixLayout_t d, Call *call) {
  const MatmulDesc *resolved_desc = matmul_descs.find(desc);
  Layouts resolved = {layouts.find(a), layouts.find(b), layouts.find(c), layouts.find(d)};
  if (!handles.find(handle) || !resolved_desc || !resolved.a || !resolved.b || !resolved.c || !resolved.d) {
    return HIPBLAS_STATUS_NOT_INITIALIZED;
  }
  return translate(function, *resolved_desc, resolved, nullptr, call);
}

Layout plain_layout(int32_t type, uint64_t rows, uint64_t columns) {
  Layout layout;
  layout.type = type;
  layout.rows = rows;
  layout.columns = columns;
  layout.ld = int64_t(rows);
  return layout;
}

int32_t scalars_of(int32_t compute, int32_t type, int32_t result) {
  bool complex = type == HIP_C_32F || type == HIP_C_64F;
  if (complex) return type;
  if (compute == HIPBLAS_COMPUTE_64F) return HIP_R_64F;
  bool integer = compute == HIPBLAS_COMPUTE_32I && (result == HIP_R_32I || result == HIP_R_8I);
  return integer ? HIP_R_32I : HIP_R_32F;
}

}  // namespace

hipblasStatus_t rocpy_host_rocpyExtAlgoName(hipblasLtHandle_t handle, const hipblasLtMatmulAlgo_t *algo, char *name,
                                            size_t capacity) {
  if (!handles.find(handle)) return HIPBLAS_STATUS_NOT_INITIALIZED;
  if (!algo || !name || capacity == 0) return HIPBLAS_STATUS_INVALID_VALUE;
  const char *known = gemm::algorithm_name(algo_index(algo));
  if (!known) return HIPBLAS_STATUS_INVALID_VALUE;
  size_t length = std::min(std::strlen(known), capacity - 1);
  std::memcpy(name, known, length);
  name[length] = '\0';
  return HIPBLAS_STATUS_SUCCESS;
}

hipblasStatus_t rocpy_host_rocpyExtAlgoTraits(hipblasLtHandle_t handle, const hipblasLtMatmulAlgo_t *algo,
                                              hipblasLtMatmulDesc_t desc, hipblasLtMatrixLayout_t a_layout,
                                              hipblasLtMatrixLayout_t b_layout, hipblasLtMatrixLayout_t c_layout,
                                              hipblasLtMatrixLayout_t d_layout, uint32_t *traits) {
  if (!algo || !traits) return HIPBLAS_STATUS_INVALID_VALUE;
  *traits = 0;
  Call call;
  hipblasStatus_t status =
      read_problem("rocpyExtAlgoTraits", handle, desc, a_layout, b_layout, c_layout, d_layout, &call);
  if (status != HIPBLAS_STATUS_SUCCESS) return status;
  int32_t id = algo_index(algo);
  if (!gemm::supports(id, call.problem, nullptr)) return HIPBLAS_STATUS_INTERNAL_ERROR;
  *traits = ROCPY_EXT_ALGO_RUN_TO_RUN | (gemm::batch_invariant(id, call.problem) ? ROCPY_EXT_ALGO_BATCH_INVARIANT : 0);
  return HIPBLAS_STATUS_SUCCESS;
}

int rocpy_host_algo_count() { return gemm::algorithm_count(); }
int rocpy_host_algo_index(const hipblasLtMatmulAlgo_t *algo) { return algo_index(algo); }
const char *rocpy_host_algo_name(const hipblasLtMatmulAlgo_t *algo) { return gemm::algorithm_name(algo_index(algo)); }

int rocpy_host_algo_for_types(int index, hipblasOperation_t op_a, hipblasOperation_t op_b, hipDataType a, hipDataType b,
                              hipDataType c, hipDataType d, hipblasComputeType_t compute) {
  int32_t id = gemm::algorithm(index).id;
  MatmulDesc desc;
  desc.compute = compute;
  desc.scale_type = scalars_of(compute, a, d);
  desc.trans_a = op_a;
  desc.trans_b = op_b;
  auto narrow = [](int32_t type) { return type >= HIP_R_6F_E2M3 && type <= HIP_R_4F_E2M1; };
  if (narrow(a) || narrow(b)) desc.a_scale_mode = desc.b_scale_mode = HIPBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0;
  // One shape of each sort: some algorithms are for few columns, some for long sums, some for short ones.
  for (auto shape : {std::initializer_list<uint64_t>{256, 256, 256}, {256, 4, 256}, {32, 32, 65536}, {32, 32, 32}}) {
    uint64_t m = shape.begin()[0], n = shape.begin()[1], k = shape.begin()[2];
    bool plain_a = op_a == HIPBLAS_OP_N, plain_b = op_b == HIPBLAS_OP_N;
    Layout layout_a = plain_layout(a, plain_a ? m : k, plain_a ? k : m);
    Layout layout_b = plain_layout(b, plain_b ? k : n, plain_b ? n : k);
    Layout layout_c = plain_layout(c, m, n), layout_d = plain_layout(d, m, n);
    Call call;
    Layouts all = {&layout_a, &layout_b, &layout_c, &layout_d};
    if (translate("getAllAlgos", desc, all, nullptr, &call) == HIPBLAS_STATUS_SUCCESS &&
        gemm::supports(id, call.problem, nullptr)) {
      return id;
    }
  }
  return -1;
}

hipblasStatus_t rocpy_host_algo_result(int id, hipblasLtMatmulHeuristicResult_t *result) {
  if (!gemm::algorithm_name(id)) return HIPBLAS_STATUS_INVALID_VALUE;
  std::memset(result, 0, sizeof(*result));
  // Nobody has said how much workspace there may be.
  write_algo(&result->algo, id, UINT64_MAX);
  result->state = HIPBLAS_STATUS_SUCCESS;
  return HIPBLAS_STATUS_SUCCESS;
}

hipblasStatus_t rocpy_host_algo_supported(hipblasLtHandle_t handle, hipblasLtMatmulDesc_t desc,
                                          hipblasLtMatrixLayout_t a, hipblasLtMatrixLayout_t b,
                                          hipblasLtMatrixLayout_t c, hipblasLtMatrixLayout_t d,
                                          const hipblasLtMatmulAlgo_t *algo, size_t *workspace_bytes) {
  Call call;
  hipblasStatus_t status = read_problem("matmulIsAlgoSupported", handle, desc, a, b, c, d, &call);
  if (status != HIPBLAS_STATUS_SUCCESS) return status;
  size_t needed = 0;
  if (!gemm::supports(algo_index(algo), call.problem, &needed)) return HIPBLAS_STATUS_INVALID_VALUE;
  *workspace_bytes = published_workspace(needed);
  return HIPBLAS_STATUS_SUCCESS;
}

hipblasStatus_t rocpy_host_copy_matmul(hipblasLtMatmulDesc_t from, hipblasLtMatmulDesc_t to) {
  const MatmulDesc *source = matmul_descs.find(from);
  MatmulDesc *target = matmul_descs.find_to_change(to);
  if (!source || !target) return HIPBLAS_STATUS_NOT_INITIALIZED;
  *target = *source;
  return HIPBLAS_STATUS_SUCCESS;
}
