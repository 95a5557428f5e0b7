// SPDX-License-Identifier: MIT
// The versions in which epilogues, types and scale modes came to hipBLASLt, from its changelog.
#include "version_window.hpp"

#include "table.hpp"

namespace rocpy {
namespace {

// A_SCALE_POINTER_VEC_EXT and B_SCALE_POINTER_VEC_EXT of hipBLASLt 0.10 to 0.12, whose numbers 1.0 reused.
constexpr auto a_scale_pointer_vector = static_cast<hipblasLtMatmulDescAttributes_t>(102);
constexpr auto b_scale_pointer_vector = static_cast<hipblasLtMatmulDescAttributes_t>(103);

int epilogue_since(uint32_t epilogue) {
  switch (epilogue) {
    case HIPBLASLT_EPILOGUE_SIGMOID:
    case HIPBLASLT_EPILOGUE_SWISH_EXT:
    case HIPBLASLT_EPILOGUE_SWISH_BIAS_EXT:
      return 100000;
    case HIPBLASLT_EPILOGUE_CLAMP_EXT:
    case HIPBLASLT_EPILOGUE_CLAMP_BIAS_EXT:
    case HIPBLASLT_EPILOGUE_CLAMP_AUX_EXT:
    case HIPBLASLT_EPILOGUE_CLAMP_AUX_BIAS_EXT:
    case HIPBLASLT_EPILOGUE_RELU_AUX:
    case HIPBLASLT_EPILOGUE_RELU_AUX_BIAS:
      return 100100;
    default:
      return 0;
  }
}

}  // namespace

Status library_version(hipblasLtHandle_t handle, int *version) {
  return Status{Library::hipblaslt, table.hipblasLtGetVersion(handle, version), "hipblasLtGetVersion"};
}

bool version_takes(const MatmulSpec &spec, int version) {
  if (version < epilogue_since(spec.epilogue)) return false;
  bool complex = spec.d.type == HIP_C_32F || spec.d.type == HIP_C_64F;
  if (complex && version < version_complex) return false;
  auto by_mode = [](int32_t mode) {
    return mode != HIPBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F && mode != HIPBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
  };
  return version >= version_scale_modes || !(by_mode(spec.scale_mode_a) || by_mode(spec.scale_mode_b));
}

hipblasLtMatmulDescAttributes_t scale_attribute(const MatmulSpec &spec, int scale,
                                                hipblasLtMatmulDescAttributes_t general, int version) {
  if (version >= version_scale_modes) return general;
  if (scale == scale_a && spec.scale_mode_a == HIPBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F)
    return a_scale_pointer_vector;
  if (scale == scale_b && spec.scale_mode_b == HIPBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F)
    return b_scale_pointer_vector;
  return general;
}

}  // namespace rocpy
