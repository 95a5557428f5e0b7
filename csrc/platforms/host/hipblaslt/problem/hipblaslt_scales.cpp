// SPDX-License-Identifier: MIT
// Scales of operands and results, and the largest magnitude. A scale is never dropped: what no product takes is
// refused.
#include "hipblaslt_scales.hpp"

#include <initializer_list>

namespace rocpy_host::lt {

namespace {

using gemm::ScaleKind;

bool misaligned_float(const void *pointer) { return misaligned(pointer, gemm::Type::f32); }

// The factors of one operand, A or B, as its attributes say, and how many lines along k it has.
struct OperandScale {
  char name;
  const void *data;
  int32_t mode;
  int64_t lines;
  bool packed;  // then the factors of blocks are packed with the elements
};

// One operand's factors in the problem. hipBLASLt has no attribute for their stride between batch entries: factors by
// rows or columns belong to all entries, blocks follow each other entry by entry as the operand does.
hipblasStatus_t operand_scale(const char *function, const OperandScale &scale, int64_t k, const ProductTypes &types,
                              bool searching, gemm::Scale *out) {
  const auto [name, data, mode, lines, packed] = scale;
  if (!data && mode == scale_mode_unset) return HIPBLAS_STATUS_SUCCESS;
  switch (mode) {
    case HIPBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F:
    case HIPBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F:
      // A mode alone scales nothing. While algorithms are searched its pointer may be yet to come.
      if (!data && (!searching || !types.scaled)) return HIPBLAS_STATUS_SUCCESS;
      if (!types.scaled) return HIPBLAS_STATUS_INTERNAL_ERROR;
      if (misaligned_float(data)) {
        report(function, "the scale of %c is not aligned to its element size", name);
        return HIPBLAS_STATUS_INVALID_VALUE;
      }
      out->kind = mode == HIPBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F ? ScaleKind::scalar : ScaleKind::vector;
      break;
    case HIPBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0:
      if (!types.blocks) return HIPBLAS_STATUS_INTERNAL_ERROR;
      if (!data && !searching && !packed) return HIPBLAS_STATUS_INVALID_VALUE;
      out->kind = ScaleKind::block32;
      out->batch_stride = lines * (k / 32);
      break;
    default:  // declared, stored, and in no product here
      return HIPBLAS_STATUS_INTERNAL_ERROR;
  }
  out->data = data;
  return HIPBLAS_STATUS_SUCCESS;
}

}  // namespace

bool scale_modes_differ(const MatmulDesc &desc) {
  return desc.a_scale_mode != desc.b_scale_mode && desc.a_scale_mode != scale_mode_unset &&
         desc.b_scale_mode != scale_mode_unset;
}

hipblasStatus_t translate_scales(const char *function, const MatmulDesc &desc, const Layouts &l,
                                 const ProductTypes &types, bool searching, Call *call) {
  gemm::Problem &p = call->problem;
  bool by_rows = l.d->order == HIPBLASLT_ORDER_ROW;
  // A tile program of pairs makes one row of D out of two of the product.
  int64_t m = by_rows ? int64_t(l.d->rows) : p.n, n = int64_t(l.d->columns);
  gemm::Scale &a = by_rows ? p.a.scale : p.b.scale, &b = by_rows ? p.b.scale : p.a.scale;
  const bool packed = l.a->order == ROCPY_EXT_ORDER_PACKED;
  hipblasStatus_t status =
      operand_scale(function, {'A', desc.a_scale, desc.a_scale_mode, m, packed}, p.k, types, searching, &a);
  if (status != HIPBLAS_STATUS_SUCCESS) return status;
  status = operand_scale(function, {'B', desc.b_scale, desc.b_scale_mode, n, false}, p.k, types, searching, &b);
  if (status != HIPBLAS_STATUS_SUCCESS) return status;

  // AMD's kernels know the factors of C, D and aux for 8-bit values alone, the largest magnitude for products of such.
  bool eight_bits = is_float8(l.d->type);
  if ((desc.c_scale || desc.d_scale) && !eight_bits) return HIPBLAS_STATUS_INTERNAL_ERROR;
  if (desc.aux_scale && (p.aux == gemm::Aux::none || gemm::bits_of(p.aux_type) != 8)) {
    return HIPBLAS_STATUS_INTERNAL_ERROR;
  }
  if (desc.amax && (!types.scaled || types.compute != gemm::Type::f32 || call->pointer_array)) {
    return HIPBLAS_STATUS_INTERNAL_ERROR;
  }
  for (const void *pointer : {desc.c_scale, desc.d_scale, desc.aux_scale, static_cast<const void *>(desc.amax)}) {
    if (misaligned_float(pointer)) {
      report(function,
             "a scale of the result, or where the largest magnitude goes, is not aligned to its element size");
      return HIPBLAS_STATUS_INVALID_VALUE;
    }
  }
  p.c_scale = static_cast<const float *>(desc.c_scale);
  p.d_scale = static_cast<const float *>(desc.d_scale);
  p.aux_scale = static_cast<const float *>(desc.aux_scale);
  p.amax = static_cast<float *>(desc.amax);
  return HIPBLAS_STATUS_SUCCESS;
}

}  // namespace rocpy_host::lt
