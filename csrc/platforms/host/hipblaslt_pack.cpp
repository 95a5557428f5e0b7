// SPDX-License-Identifier: MIT
// Packed weights: rocpyExtPackBytes and rocpyExtPack, which lay out op(A) once as the product's kernels want it.
#include <new>

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
bool pack_types(int32_t type, int32_t compute, gemm::Type *kept, gemm::Type *accumulated) {
  if (!engine_type(type, kept)) return false;
  gemm::Problem probe;
  probe.m = probe.n = probe.k = 32;
  probe.a.type = probe.b.type = *kept;
  probe.b.packed = true;
  switch (compute) {
    case HIPBLAS_COMPUTE_64F:
      probe.compute = *kept == gemm::Type::c64 ? gemm::Type::c64 : gemm::Type::f64;
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
      probe.compute = probe.d_type = *kept == gemm::Type::c32 ? gemm::Type::c32 : gemm::Type::f32;
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

struct PackWork final : Work {
  gemm::Matrix matrix;
  gemm::Type compute = gemm::Type::f32;
  int64_t k = 0, n = 0;
  void *packed = nullptr;
  void run() override {
    gemm::pack(matrix, compute, k, n, packed);
    delete this;
  }
};

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
  if (!a || !packed || reinterpret_cast<uintptr_t>(packed) % packed_alignment != 0) return HIPBLAS_STATUS_INVALID_VALUE;
  bool by_rows = layout->order == HIPBLASLT_ORDER_ROW;
  if ((!by_rows && layout->order != HIPBLASLT_ORDER_COL) || layout->batch_count != 1)
    return HIPBLAS_STATUS_INVALID_VALUE;
  if (op < HIPBLAS_OP_N || op > HIPBLAS_OP_C) return HIPBLAS_STATUS_INVALID_VALUE;
  uint64_t adjacent = by_rows ? layout->columns : layout->rows, lines = by_rows ? layout->rows : layout->columns;
  if (layout->ld < 0 || (lines > 1 && uint64_t(layout->ld) < adjacent)) return HIPBLAS_STATUS_INVALID_VALUE;
  gemm::Type engine_type, engine_compute;
  if (!pack_types(layout->type, compute, &engine_type, &engine_compute) || (layout->rows | layout->columns) >> 31) {
    return HIPBLAS_STATUS_INTERNAL_ERROR;
  }

  // The engine packs its k x n operand b, which is op(A) transposed.
  PackWork work;
  bool transposed = op != HIPBLAS_OP_N;
  bool rows_adjacent = transposed != by_rows;
  work.matrix.data = a;
  work.matrix.type = engine_type;
  work.matrix.conjugated = op == HIPBLAS_OP_C && (engine_type == gemm::Type::c32 || engine_type == gemm::Type::c64);
  work.matrix.row_stride = rows_adjacent ? 1 : layout->ld;
  work.matrix.column_stride = rows_adjacent ? layout->ld : 1;
  work.compute = engine_compute;
  work.k = int64_t(transposed ? layout->rows : layout->columns);
  work.n = int64_t(transposed ? layout->columns : layout->rows);
  work.packed = packed;
  if (packed_bytes < gemm::packed_bytes(engine_type, engine_compute, work.k, work.n))
    return HIPBLAS_STATUS_INVALID_VALUE;

  rocpy_host::Stream *queue = rocpy_host::resolve(stream);
  if (!queue) return HIPBLAS_STATUS_INTERNAL_ERROR;
  const auto pack = [matrix = work.matrix, compute = work.compute, k = work.k, n = work.n, packed] {
    gemm::pack(matrix, compute, k, n, packed);
  };
  const auto answer =
      captured_status("rocpyExtPack", rocpy_host::offer_to_capture(queue, hipGraphNodeTypeKernel, pack));
  if (answer.has_value()) return *answer;
  if (rocpy_host::enter_inline(queue)) {
    gemm::pack(work.matrix, work.compute, work.k, work.n, packed);
    rocpy_host::leave_inline(queue);
    return HIPBLAS_STATUS_SUCCESS;
  }
  PackWork *queued = nullptr;
  try {
    queued = new PackWork(work);
    rocpy_host::enqueue(queue, queued);
  } catch (const std::bad_alloc &) {
    delete queued;
    return HIPBLAS_STATUS_ALLOC_FAILED;
  }
  return HIPBLAS_STATUS_SUCCESS;
}
