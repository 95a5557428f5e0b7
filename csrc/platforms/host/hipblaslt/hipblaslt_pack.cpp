// SPDX-License-Identifier: MIT
// Packed weights: the rows that lay out op(A) once as the product's kernels want it, alone or with its block scales.
#include <new>

#include "blocks.hpp"
#include "exports.h"
#include "gemm.hpp"
#include "hipblaslt_objects.hpp"
#include "hipblaslt_types.hpp"
#include "queue.hpp"

namespace rocpy_host::lt {

namespace {

constexpr uintptr_t packed_alignment = 64;

// The types of packed operands, and the accumulation that a compute type means for them. Which of them the engine keeps
// packed only the engine knows: it is asked for a small product.
bool pack_types(int32_t type, int32_t compute, gemm::Type *stored, gemm::Type *accumulated) {
  if (!engine_type(type, stored)) return false;
  gemm::Problem probe;
  probe.m = probe.n = probe.k = 32;
  probe.a.type = probe.b.type = *stored;
  probe.b.packed = true;
  switch (compute) {
    case HIPBLAS_COMPUTE_64F:
      probe.compute = *stored == gemm::Type::c64 ? gemm::Type::c64 : gemm::Type::f64;
      probe.d_type = probe.compute;
      break;
    case HIPBLAS_COMPUTE_32I:
      probe.compute = probe.d_type = gemm::Type::i32;
      break;
    case HIPBLAS_COMPUTE_32F:
    case HIPBLAS_COMPUTE_16F:
    case HIPBLAS_COMPUTE_32F_FAST_16F:
    case HIPBLAS_COMPUTE_32F_FAST_16BF:
    case HIPBLAS_COMPUTE_32F_FAST_TF32:
      probe.compute = probe.d_type = *stored == gemm::Type::c32 ? gemm::Type::c32 : gemm::Type::f32;
      break;
    default:
      return false;
  }
  probe.c_row_stride = probe.d_row_stride = 32;
  probe.bias_type = probe.aux_type = probe.d_type;
  *accumulated = probe.compute;
  gemm::Candidate candidate;
  return gemm::rank(probe, 0, 1, &candidate) == 1;
}

// What is to be packed, and where to.
struct Packing {
  gemm::Matrix matrix;
  gemm::Type compute = gemm::Type::f32;
  int64_t k = 0, n = 0;
  void *packed = nullptr;

  void run() const {
    if (matrix.scale.kind == gemm::ScaleKind::block32) return gemm::pack_blocks(matrix, k, n, packed);
    gemm::pack(matrix, compute, k, n, packed);
  }
};

// Reads op(A) as the engine's k x n operand b, which is op(A) transposed. False: nothing that can be packed.
bool read_operand(const Layout &layout, hipblasOperation_t op, const void *a, void *packed, Packing *out) {
  if (!a || !packed || reinterpret_cast<uintptr_t>(packed) % packed_alignment != 0) return false;
  const bool by_rows = layout.order == HIPBLASLT_ORDER_ROW;
  if ((!by_rows && layout.order != HIPBLASLT_ORDER_COL) || layout.batch_count != 1) return false;
  if (op < HIPBLAS_OP_N || op > HIPBLAS_OP_C) return false;
  const uint64_t adjacent = by_rows ? layout.columns : layout.rows, lines = by_rows ? layout.rows : layout.columns;
  if (layout.ld < 0 || (lines > 1 && uint64_t(layout.ld) < adjacent)) return false;
  const bool transposed = op != HIPBLAS_OP_N, rows_adjacent = transposed != by_rows;
  out->matrix.data = a;
  out->matrix.row_stride = rows_adjacent ? 1 : layout.ld;
  out->matrix.column_stride = rows_adjacent ? layout.ld : 1;
  out->k = int64_t(transposed ? layout.rows : layout.columns);
  out->n = int64_t(transposed ? layout.columns : layout.rows);
  out->packed = packed;
  return true;
}

// In the order of the stream, or as a node of the graph that it is captured into.
hipblasStatus_t pack_in_order(hipStream_t handle, const Packing &packing) {
  Stream *queue = resolve(handle);
  if (!queue) return HIPBLAS_STATUS_INTERNAL_ERROR;
  const auto pack = [packing] { packing.run(); };
  const auto answer = captured_status(offer_to_capture(queue, hipGraphNodeTypeKernel, pack));
  if (answer.has_value()) return *answer;
  try {
    in_order(queue, pack);
  } catch (const std::bad_alloc &) {
    return HIPBLAS_STATUS_ALLOC_FAILED;
  }
  return HIPBLAS_STATUS_SUCCESS;
}

// The engine's type of operands with block scales that it keeps packed.
bool block_type(int32_t type, uint64_t m, uint64_t k, gemm::Type *out) {
  return engine_type(type, out) && gemm::block_index(*out) >= 0 && (m | k) >> 31 == 0 && k % gemm::block_depth == 0;
}

}  // namespace
}  // namespace rocpy_host::lt

using namespace rocpy_host::lt;
namespace gemm = rocpy_host::gemm;

hipblasStatus_t rocpy_host_rocpyExtPackBytes(hipblasLtHandle_t handle, hipDataType type, hipblasComputeType_t compute,
                                             uint64_t m, uint64_t k, size_t *bytes) {
  if (!handles.find(handle)) return HIPBLAS_STATUS_NOT_INITIALIZED;
  if (!bytes) return HIPBLAS_STATUS_INVALID_VALUE;
  gemm::Type engine_type, engine_compute;
  if (!pack_types(type, compute, &engine_type, &engine_compute) || (m | k) >> 31) return HIPBLAS_STATUS_INTERNAL_ERROR;
  *bytes = gemm::packed_bytes(engine_type, engine_compute, int64_t(k), int64_t(m));
  return HIPBLAS_STATUS_SUCCESS;
}

hipblasStatus_t rocpy_host_rocpyExtPack(hipblasLtHandle_t handle, hipblasOperation_t op, hipblasComputeType_t compute,
                                        const void *a, hipblasLtMatrixLayout_t a_layout, void *packed,
                                        size_t packed_bytes, hipStream_t stream) {
  const Layout *layout = layouts.find(a_layout);
  if (!handles.find(handle) || !layout) return HIPBLAS_STATUS_NOT_INITIALIZED;
  Packing packing;
  if (!read_operand(*layout, op, a, packed, &packing)) return HIPBLAS_STATUS_INVALID_VALUE;
  gemm::Type type;
  if (!pack_types(layout->type, compute, &type, &packing.compute) || (layout->rows | layout->columns) >> 31) {
    return HIPBLAS_STATUS_INTERNAL_ERROR;
  }
  packing.matrix.type = type;
  packing.matrix.conjugated = op == HIPBLAS_OP_C && (type == gemm::Type::c32 || type == gemm::Type::c64);
  if (packed_bytes < gemm::packed_bytes(type, packing.compute, packing.k, packing.n)) {
    return HIPBLAS_STATUS_INVALID_VALUE;
  }
  return pack_in_order(stream, packing);
}

hipblasStatus_t rocpy_host_rocpyExtPackBlocksBytes(hipblasLtHandle_t handle, hipDataType type, uint64_t m, uint64_t k,
                                                   size_t *bytes) {
  if (!handles.find(handle)) return HIPBLAS_STATUS_NOT_INITIALIZED;
  if (!bytes) return HIPBLAS_STATUS_INVALID_VALUE;
  gemm::Type block;
  if (!block_type(type, m, k, &block)) return HIPBLAS_STATUS_INTERNAL_ERROR;
  *bytes = gemm::packed_block_bytes(block, int64_t(k), int64_t(m));
  return HIPBLAS_STATUS_SUCCESS;
}

hipblasStatus_t rocpy_host_rocpyExtPackBlocks(hipblasLtHandle_t handle, hipblasOperation_t op, const void *a,
                                              hipblasLtMatrixLayout_t a_layout, const void *scales, void *packed,
                                              size_t packed_bytes, hipStream_t stream) {
  const Layout *layout = layouts.find(a_layout);
  if (!handles.find(handle) || !layout) return HIPBLAS_STATUS_NOT_INITIALIZED;
  Packing packing;
  if (!scales || !read_operand(*layout, op, a, packed, &packing)) return HIPBLAS_STATUS_INVALID_VALUE;
  if (!block_type(layout->type, uint64_t(packing.n), uint64_t(packing.k), &packing.matrix.type)) {
    return HIPBLAS_STATUS_INTERNAL_ERROR;
  }
  const int64_t line_bits = packing.matrix.column_stride * gemm::bits_of(packing.matrix.type);
  if (packing.matrix.row_stride != 1 || (packing.n > 1 && line_bits % 8 != 0)) return HIPBLAS_STATUS_INTERNAL_ERROR;
  packing.matrix.scale.kind = gemm::ScaleKind::block32;
  packing.matrix.scale.data = scales;
  if (packed_bytes < gemm::packed_block_bytes(packing.matrix.type, packing.k, packing.n)) {
    return HIPBLAS_STATUS_INVALID_VALUE;
  }
  return pack_in_order(stream, packing);
}
