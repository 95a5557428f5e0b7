// SPDX-License-Identifier: MIT
// hipBLASLt's C++ extension functions, as its libhipblaslt.so exports them. Part of the facade, not of
// librocpy_host.so, because their vectors and strings are the caller's and may throw.
#include "exports.h"
#include "hipblaslt_ext.h"

namespace hipblaslt_ext {

int getIndexFromAlgo(hipblasLtMatmulAlgo_t &algo) {
  int index = rocpy_host_algo_index(&algo);
  return index < 0 ? -1 : index;
}

hipblasStatus_t getAllAlgos(hipblasLtHandle_t handle, GemmType type, hipblasOperation_t op_a, hipblasOperation_t op_b,
                            hipDataType a, hipDataType b, hipDataType c, hipDataType d, hipblasComputeType_t compute,
                            std::vector<hipblasLtMatmulHeuristicResult_t> &results) {
  if (!handle) return HIPBLAS_STATUS_NOT_INITIALIZED;
  results.clear();
  // There are no grouped products here.
  if (type != GemmType::HIPBLASLT_GEMM) return HIPBLAS_STATUS_INVALID_VALUE;
  for (int i = 0; i < rocpy_host_algo_count(); ++i) {
    int id = rocpy_host_algo_for_types(i, op_a, op_b, a, b, c, d, compute);
    hipblasLtMatmulHeuristicResult_t result;
    if (id >= 0 && rocpy_host_algo_result(id, &result) == HIPBLAS_STATUS_SUCCESS) results.push_back(result);
  }
  return HIPBLAS_STATUS_SUCCESS;
}

hipblasStatus_t getAlgosFromIndex(hipblasLtHandle_t handle, std::vector<int> &indices,
                                  std::vector<hipblasLtMatmulHeuristicResult_t> &results) {
  if (!handle) return HIPBLAS_STATUS_NOT_INITIALIZED;
  results.clear();
  for (int index : indices) {
    hipblasLtMatmulHeuristicResult_t result;
    if (rocpy_host_algo_result(index, &result) == HIPBLAS_STATUS_SUCCESS) results.push_back(result);
  }
  return results.empty() ? HIPBLAS_STATUS_INVALID_VALUE : HIPBLAS_STATUS_SUCCESS;
}

std::string getSolutionNameFromAlgo(hipblasLtHandle_t handle, hipblasLtMatmulAlgo_t &algo) {
  const char *name = handle ? rocpy_host_algo_name(&algo) : nullptr;
  return name ? name : "";
}

// A kernel and its solution are one here.
std::string getKernelNameFromAlgo(hipblasLtHandle_t handle, hipblasLtMatmulAlgo_t &algo) {
  return getSolutionNameFromAlgo(handle, algo);
}

// Scalars are not asked for: they choose no algorithm.
hipblasStatus_t matmulIsAlgoSupported(hipblasLtHandle_t handle, hipblasLtMatmulDesc_t desc, const void *,
                                      hipblasLtMatrixLayout_t a, hipblasLtMatrixLayout_t b, const void *,
                                      hipblasLtMatrixLayout_t c, hipblasLtMatrixLayout_t d, hipblasLtMatmulAlgo_t &algo,
                                      size_t &workspace_bytes) {
  return rocpy_host_algo_supported(handle, desc, a, b, c, d, &algo, &workspace_bytes);
}

// The heuristic has no entries for single problems.
int matmulIsTuned(hipblasLtHandle_t handle, hipblasLtMatmulDesc_t desc, hipblasLtMatrixLayout_t a,
                  hipblasLtMatrixLayout_t b, hipblasLtMatrixLayout_t c, hipblasLtMatrixLayout_t d) {
  return handle && desc && a && b && c && d ? 0 : -1;
}

hipblasStatus_t copyMatmul(hipblasLtMatmulDesc_t from, hipblasLtMatmulDesc_t to) {
  return rocpy_host_copy_matmul(from, to);
}

}  // namespace hipblaslt_ext
