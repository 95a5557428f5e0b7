/* SPDX-License-Identifier: MIT */
/* hipBLASLt's C++ extension functions as far as rocpy calls them: declared from their documented signatures, so that
 * the compiler makes the symbols' names. hipblaslt_ext.def lists those names; nothing links with these functions. */
#pragma once

#include "types.h"

#ifdef __cplusplus

#include <string>
#include <vector>

namespace hipblaslt_ext {

enum class GemmType { HIPBLASLT_GEMM = 1, HIPBLASLT_GROUPED_GEMM = 2 };

/* The solution index of an algorithm, or -1 where it has another meaning than a number. */
int getIndexFromAlgo(hipblasLtMatmulAlgo_t &algo);

/* Every kernel for these types, whatever the problem's size and epilogue; each must then be asked for. */
hipblasStatus_t getAllAlgos(hipblasLtHandle_t handle, GemmType type, hipblasOperation_t op_a, hipblasOperation_t op_b,
                            hipDataType a, hipDataType b, hipDataType c, hipDataType d, hipblasComputeType_t compute,
                            std::vector<hipblasLtMatmulHeuristicResult_t> &results);

hipblasStatus_t getAlgosFromIndex(hipblasLtHandle_t handle, std::vector<int> &indices,
                                  std::vector<hipblasLtMatmulHeuristicResult_t> &results);

std::string getSolutionNameFromAlgo(hipblasLtHandle_t handle, hipblasLtMatmulAlgo_t &algo);
std::string getKernelNameFromAlgo(hipblasLtHandle_t handle, hipblasLtMatmulAlgo_t &algo);

/* Whether the algorithm takes the problem, and the workspace it then needs. May write to algo and descriptor. */
hipblasStatus_t matmulIsAlgoSupported(hipblasLtHandle_t handle, hipblasLtMatmulDesc_t desc, const void *alpha,
                                      hipblasLtMatrixLayout_t a, hipblasLtMatrixLayout_t b, const void *beta,
                                      hipblasLtMatrixLayout_t c, hipblasLtMatrixLayout_t d, hipblasLtMatmulAlgo_t &algo,
                                      size_t &workspace_bytes);

/* 1: an entry for exactly this problem; 0: none; -1: the problem cannot be read. */
int matmulIsTuned(hipblasLtHandle_t handle, hipblasLtMatmulDesc_t desc, hipblasLtMatrixLayout_t a,
                  hipblasLtMatrixLayout_t b, hipblasLtMatrixLayout_t c, hipblasLtMatrixLayout_t d);

hipblasStatus_t copyMatmul(hipblasLtMatmulDesc_t from, hipblasLtMatmulDesc_t to);

}  // namespace hipblaslt_ext

#endif
