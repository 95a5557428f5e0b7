// SPDX-License-Identifier: MIT
// Matmul descriptors of the host platform's hipBLASLt: what they accept, store and give back.
#include <cstddef>
#include <cstring>

#include "exports.h"
#include "hipblaslt_attributes.hpp"
#include "hipblaslt_objects.hpp"

namespace rocpy_host::lt {

namespace {

int32_t read_int32(const void *value) {
  int32_t number;
  std::memcpy(&number, value, sizeof(number));
  return number;
}

bool known_scale_mode(const void *value) {
  switch (read_int32(value)) {
    case HIPBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F:
    case HIPBLASLT_MATMUL_MATRIX_SCALE_VEC16_UE4M3:
    case HIPBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0:
    case HIPBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F:
    case HIPBLASLT_MATMUL_MATRIX_SCALE_BLK32_UE8M0_32_8_EXT:
    case HIPBLASLT_MATMUL_MATRIX_SCALE_VEC16_UE8M0_EXT:
    case HIPBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE4M3_EXT:
    case HIPBLASLT_MATMUL_MATRIX_SCALE_VEC16_UE5M3_EXT:
    case HIPBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE5M3_EXT:
      return true;
    default:  // VEC128_32F and BLK128x128_32F are declared and refused
      return false;
  }
}

bool streamk_mode(const void *value) {
  int32_t mode = read_int32(value);
  return mode >= HIPBLASLT_STREAMK_TILE_SCHEDULING_OFF && mode <= HIPBLASLT_STREAMK_TILE_SCHEDULING_AUTO;
}

bool has_a_scale_mode(const void *object) {
  return static_cast<const MatmulDesc *>(object)->a_scale_mode != scale_mode_unset;
}
bool has_b_scale_mode(const void *object) {
  return static_cast<const MatmulDesc *>(object)->b_scale_mode != scale_mode_unset;
}

// Operations and epilogues are stored unchecked; the product looks at them.
constexpr Attribute attributes[] = {
    {HIPBLASLT_MATMUL_DESC_TRANSA, offsetof(MatmulDesc, trans_a), 4, true, nullptr, nullptr},
    {HIPBLASLT_MATMUL_DESC_TRANSB, offsetof(MatmulDesc, trans_b), 4, true, nullptr, nullptr},
    {HIPBLASLT_MATMUL_DESC_EPILOGUE, offsetof(MatmulDesc, epilogue), 4, true, nullptr, nullptr},
    {HIPBLASLT_MATMUL_DESC_BIAS_POINTER, offsetof(MatmulDesc, bias), 8, true, nullptr, nullptr},
    {HIPBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, offsetof(MatmulDesc, bias_type), 4, true, nullptr, nullptr},
    {HIPBLASLT_MATMUL_DESC_A_SCALE_POINTER, offsetof(MatmulDesc, a_scale), 8, true, nullptr, nullptr},
    {HIPBLASLT_MATMUL_DESC_B_SCALE_POINTER, offsetof(MatmulDesc, b_scale), 8, true, nullptr, nullptr},
    {HIPBLASLT_MATMUL_DESC_C_SCALE_POINTER, offsetof(MatmulDesc, c_scale), 8, false, nullptr, nullptr},
    {HIPBLASLT_MATMUL_DESC_D_SCALE_POINTER, offsetof(MatmulDesc, d_scale), 8, false, nullptr, nullptr},
    {HIPBLASLT_MATMUL_DESC_EPILOGUE_AUX_SCALE_POINTER, offsetof(MatmulDesc, aux_scale), 8, false, nullptr, nullptr},
    {HIPBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, offsetof(MatmulDesc, aux), 8, false, nullptr, nullptr},
    {HIPBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, offsetof(MatmulDesc, aux_ld), 8, false, nullptr, nullptr},
    {HIPBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, offsetof(MatmulDesc, aux_batch_stride), 8, false, nullptr,
     nullptr},
    {HIPBLASLT_MATMUL_DESC_POINTER_MODE, offsetof(MatmulDesc, pointer_mode), 4, true, nullptr, nullptr},
    {HIPBLASLT_MATMUL_DESC_AMAX_D_POINTER, offsetof(MatmulDesc, amax), 8, true, nullptr, nullptr},
    {HIPBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, offsetof(MatmulDesc, aux_type), 4, true, nullptr, nullptr, 100000},
    {HIPBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, offsetof(MatmulDesc, bias_batch_stride), 4, true, not_negative, nullptr,
     100401},
    {HIPBLASLT_MATMUL_DESC_A_SCALE_MODE, offsetof(MatmulDesc, a_scale_mode), 4, true, known_scale_mode,
     has_a_scale_mode, 100000},
    {HIPBLASLT_MATMUL_DESC_B_SCALE_MODE, offsetof(MatmulDesc, b_scale_mode), 4, true, known_scale_mode,
     has_b_scale_mode, 100000},
    {HIPBLASLT_MATMUL_DESC_SM_COUNT_TARGET, offsetof(MatmulDesc, sm_count_target), 4, true, not_negative, nullptr,
     100400},
    {HIPBLASLT_MATMUL_DESC_COMPUTE_INPUT_TYPE_A_EXT, offsetof(MatmulDesc, a_input_type), 4, true, nullptr, nullptr},
    {HIPBLASLT_MATMUL_DESC_COMPUTE_INPUT_TYPE_B_EXT, offsetof(MatmulDesc, b_input_type), 4, true, nullptr, nullptr},
    {HIPBLASLT_MATMUL_DESC_EPILOGUE_ACT_ARG0_EXT, offsetof(MatmulDesc, argument_low), 4, false, nullptr, nullptr,
     100100},
    {HIPBLASLT_MATMUL_DESC_EPILOGUE_ACT_ARG1_EXT, offsetof(MatmulDesc, argument_high), 4, false, nullptr, nullptr,
     100100},
    // The same numbers before 1.0: factors of rows and columns.
    {102, offsetof(MatmulDesc, a_scale), 8, true, nullptr, nullptr, 0, 100000},
    {103, offsetof(MatmulDesc, b_scale), 8, true, nullptr, nullptr, 0, 100000},
    {HIPBLASLT_MATMUL_DESC_STREAMK_TILE_SCHEDULING_EXT, offsetof(MatmulDesc, streamk_scheduling), 4, true, streamk_mode,
     nullptr, 100400},
};

bool known_compute(int compute) {
  switch (compute) {
    case HIPBLAS_COMPUTE_16F:
    case HIPBLAS_COMPUTE_32F:
    case HIPBLAS_COMPUTE_32F_FAST_16F:
    case HIPBLAS_COMPUTE_32F_FAST_16BF:
    case HIPBLAS_COMPUTE_32F_FAST_TF32:
    case HIPBLAS_COMPUTE_64F:
    case HIPBLAS_COMPUTE_32I:
    case HIPBLAS_COMPUTE_32F_FAST_8F_FNUZ:
    case HIPBLAS_COMPUTE_32F_FAST_8BF_FNUZ:
    case HIPBLAS_COMPUTE_32F_FAST_8F8BF_FNUZ:
    case HIPBLAS_COMPUTE_32F_FAST_8BF8F_FNUZ:
    // The same for OCP's types, which no public header names.
    case 104:
    case 105:
    case 106:
    case 107:
      return true;
    default:  // the pedantic ones among them
      return false;
  }
}

bool known_scale_type(int type) {
  return type == HIP_R_32F || type == HIP_R_64F || type == HIP_R_32I || type == HIP_R_16F ||
         ((type == HIP_C_32F || type == HIP_C_64F) && presented(100400));
}

}  // namespace
}  // namespace rocpy_host::lt

using namespace rocpy_host::lt;

hipblasStatus_t rocpy_host_hipblasLtMatmulDescCreate(hipblasLtMatmulDesc_t *desc, hipblasComputeType_t compute,
                                                     hipDataType scale) {
  if (!desc) return HIPBLAS_STATUS_INVALID_VALUE;
  *desc = nullptr;
  if (!known_compute(compute) || !known_scale_type(scale)) return HIPBLAS_STATUS_INVALID_VALUE;
  MatmulDesc *created = matmul_descs.allocate();
  if (!created) return HIPBLAS_STATUS_ALLOC_FAILED;
  created->compute = compute;
  created->scale_type = scale;
  *desc = reinterpret_cast<hipblasLtMatmulDesc_t>(created);
  return HIPBLAS_STATUS_SUCCESS;
}

hipblasStatus_t rocpy_host_hipblasLtMatmulDescDestroy(const hipblasLtMatmulDesc_t desc) {
  if (!desc) return HIPBLAS_STATUS_INVALID_VALUE;
  if (matmul_descs.release(desc)) return HIPBLAS_STATUS_SUCCESS;
  report("hipblasLtMatmulDescDestroy", "%p is not a live descriptor", static_cast<const void *>(desc));
  return HIPBLAS_STATUS_INVALID_VALUE;
}

hipblasStatus_t rocpy_host_hipblasLtMatmulDescSetAttribute(hipblasLtMatmulDesc_t desc,
                                                           hipblasLtMatmulDescAttributes_t attribute, const void *value,
                                                           size_t bytes) {
  MatmulDesc *entry = matmul_descs.find_to_change(desc);
  if (!entry) return HIPBLAS_STATUS_NOT_INITIALIZED;
  hipblasStatus_t status = set_attribute(attributes, entry, attribute, value, bytes);
  if (status != HIPBLAS_STATUS_SUCCESS) return status;
  // A scale pointer without a mode means one scalar.
  if (attribute == HIPBLASLT_MATMUL_DESC_A_SCALE_POINTER && entry->a_scale_mode == scale_mode_unset) {
    entry->a_scale_mode = HIPBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
  }
  if (attribute == HIPBLASLT_MATMUL_DESC_B_SCALE_POINTER && entry->b_scale_mode == scale_mode_unset) {
    entry->b_scale_mode = HIPBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
  }
  if (!presented(100000) && (attribute == 102 || attribute == 103)) {
    (attribute == 102 ? entry->a_scale_mode : entry->b_scale_mode) = HIPBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
  }
  return HIPBLAS_STATUS_SUCCESS;
}

hipblasStatus_t rocpy_host_hipblasLtMatmulDescGetAttribute(hipblasLtMatmulDesc_t desc,
                                                           hipblasLtMatmulDescAttributes_t attribute, void *value,
                                                           size_t bytes, size_t *written) {
  const MatmulDesc *entry = matmul_descs.find(desc);
  if (!entry) return HIPBLAS_STATUS_NOT_INITIALIZED;
  return get_attribute(attributes, entry, attribute, value, bytes, written);
}
