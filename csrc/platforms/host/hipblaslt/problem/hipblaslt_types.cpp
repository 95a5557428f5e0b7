// SPDX-License-Identifier: MIT
// The table of products by their types, the types of bias and aux, and the reading of alpha and beta.
#include "hipblaslt_types.hpp"

#include <cstring>

#include "scalar.hpp"
#include "window.hpp"

namespace rocpy_host::lt {

namespace {

bool is_float8_ocp(int32_t type) { return type == HIP_R_8F_E4M3 || type == HIP_R_8F_E5M2; }
bool is_float8_fnuz(int32_t type) { return type == HIP_R_8F_E4M3_FNUZ || type == HIP_R_8F_E5M2_FNUZ; }
bool is_narrow(int32_t type) { return type == HIP_R_6F_E2M3 || type == HIP_R_6F_E3M2 || type == HIP_R_4F_E2M1; }
bool is_wide_result(int32_t type) { return type == HIP_R_32F || type == HIP_R_16F || type == HIP_R_16BF; }

bool has_block_mode(const MatmulDesc &desc) {
  return desc.a_scale_mode == HIPBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0 ||
         desc.b_scale_mode == HIPBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0;
}

// MX: any mix of the narrow types and of OCP's 8-bit ones, the factors of both operands by 32 of k.
bool block_scaled(const MatmulDesc &desc, const Layouts &l, ProductTypes *out) {
  auto takes = [](int32_t type) { return is_narrow(type) || is_float8_ocp(type); };
  out->blocks = true;
  return takes(l.a->type) && takes(l.b->type) && is_wide_result(l.d->type) && desc.compute == HIPBLAS_COMPUTE_32F &&
         desc.scale_type == HIP_R_32F && desc.a_scale_mode == HIPBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0 &&
         desc.b_scale_mode == HIPBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0;
}

// 8-bit floats of one dialect, and the mix of e4m3 with float16.
bool float8(const MatmulDesc &desc, const Layouts &l, ProductTypes *out) {
  int32_t a = l.a->type, b = l.b->type, d = l.d->type;
  out->scaled = true;
  if (desc.scale_type != HIP_R_32F) return false;
  if (is_float8(a) && is_float8(b)) {
    if (desc.compute != HIPBLAS_COMPUTE_32F || is_float8_ocp(a) != is_float8_ocp(b)) return false;
    return is_wide_result(d) || (is_float8(d) && is_float8_ocp(d) == is_float8_ocp(a));
  }
  int32_t eight = is_float8(a) ? a : b, half = is_float8(a) ? b : a;
  return half == HIP_R_16F && (eight == HIP_R_8F_E4M3 || eight == HIP_R_8F_E4M3_FNUZ) &&
         desc.compute == HIPBLAS_COMPUTE_32F_FAST_16F && (d == HIP_R_16F || d == HIP_R_32F || d == eight);
}

// Integers: AMD's rows have int32 scalars and an int32 or int8 result. A float result of float scalars is this
// platform's own; on AMD's library the same call finds no algorithm.
bool int8(const MatmulDesc &desc, const Layouts &l, ProductTypes *out) {
  out->compute = gemm::Type::i32;
  if (l.b->type != HIP_R_8I || desc.compute != HIPBLAS_COMPUTE_32I) return false;
  if (desc.scale_type == HIP_R_32I) {
    out->integer = true;
    return l.d->type == HIP_R_32I || l.d->type == HIP_R_8I;
  }
  out->scaled = true;
  return desc.scale_type == HIP_R_32F && is_wide_result(l.d->type);
}

}  // namespace

bool is_float8(int32_t type) { return is_float8_ocp(type) || is_float8_fnuz(type); }

namespace {

// float32, float16 and bfloat16. Reduced-precision modes of float32 run in float32, 16F accumulates in float32.
bool real(const MatmulDesc &desc, int32_t in, int32_t d) {
  int32_t compute = desc.compute;
  if (desc.scale_type != HIP_R_32F && !(desc.scale_type == HIP_R_16F && compute == HIPBLAS_COMPUTE_16F)) return false;
  bool plain = compute == HIPBLAS_COMPUTE_32F || compute == HIPBLAS_COMPUTE_32F_FAST_16BF;
  switch (in) {
    case HIP_R_32F:
      return d == HIP_R_32F &&
             (plain || compute == HIPBLAS_COMPUTE_32F_FAST_16F || compute == HIPBLAS_COMPUTE_32F_FAST_TF32);
    case HIP_R_16F:
      if (compute == HIPBLAS_COMPUTE_16F) return d == HIP_R_16F;
      return (d == HIP_R_16F || d == HIP_R_32F) && (plain || compute == HIPBLAS_COMPUTE_32F_FAST_16F);
    case HIP_R_16BF:
      return (d == HIP_R_16BF || d == HIP_R_32F) && plain;
    default:
      return false;
  }
}

bool complex(const MatmulDesc &desc, int32_t in, int32_t d, ProductTypes *out) {
  if (window().hipblaslt < 100400) return false;
  bool single = in == HIP_C_32F;
  out->complex = true;
  out->compute = single ? gemm::Type::c32 : gemm::Type::c64;
  return d == in && desc.scale_type == in && desc.compute == (single ? HIPBLAS_COMPUTE_32F : HIPBLAS_COMPUTE_64F);
}

}  // namespace

bool product_types(const MatmulDesc &desc, const Layouts &l, ProductTypes *out) {
  int32_t in = l.a->type, d = l.d->type;
  *out = ProductTypes{};
  if (has_block_mode(desc)) return block_scaled(desc, l, out);
  if (l.b->type == in) {
    switch (in) {
      case HIP_R_32F:
      case HIP_R_16F:
      case HIP_R_16BF:
        return real(desc, in, d);
      case HIP_R_64F:
        out->compute = gemm::Type::f64;
        // With compute 32F the library finds its float64 kernels too.
        return d == in && ((desc.compute == HIPBLAS_COMPUTE_64F && desc.scale_type == HIP_R_64F) ||
                           (desc.compute == HIPBLAS_COMPUTE_32F && desc.scale_type == HIP_R_32F));
      case HIP_C_32F:
      case HIP_C_64F:
        return complex(desc, in, d, out);
      default:
        break;
    }
  }
  if (is_narrow(in) || is_narrow(l.b->type)) return block_scaled(desc, l, out);
  if (is_float8(in) || is_float8(l.b->type)) return float8(desc, l, out);
  return in == HIP_R_8I && int8(desc, l, out);
}

bool bias_type(const MatmulDesc &desc, const Layouts &l, const ProductTypes &types, gemm::Type *out) {
  int32_t type = desc.bias_type, d = l.d->type;
  bool eight = is_float8(l.a->type) && is_float8(l.b->type);
  if (type == type_unset) {
    // The library's defaults, which are not D's type everywhere.
    type = d;
    if (types.integer) {
      type = HIP_R_32I;
    } else if (desc.compute == HIPBLAS_COMPUTE_32F_FAST_TF32) {
      type = HIP_R_32F;
    } else if (eight && !types.blocks) {
      type = d == HIP_R_32F || d == HIP_R_16BF ? HIP_R_16BF : HIP_R_16F;
    }
  }
  if (!engine_type(type, out)) return false;
  if (types.complex || types.compute == gemm::Type::f64) return type == d;
  if (types.integer) return type == HIP_R_32I;
  if (types.scaled || types.blocks) return is_wide_result(type);
  return type == d || type == l.a->type || type == HIP_R_32F;
}

bool aux_type(const MatmulDesc &desc, const Layouts &l, const ProductTypes &types, gemm::Type *out) {
  int32_t type = desc.aux_type == type_unset ? l.d->type : desc.aux_type;
  if (types.complex || types.integer || !engine_type(type, out)) return false;
  if (types.compute == gemm::Type::f64) return type == l.d->type;
  if (types.scaled || types.blocks) return is_wide_result(type) || type == l.d->type;
  return type == l.d->type || type == l.a->type || type == HIP_R_32F;
}

Scalar read_scalar(const void *scalar, int32_t type) {
  float single[2];
  double wide[2];
  int32_t integer;
  uint16_t half;
  switch (type) {
    case HIP_R_64F:
      std::memcpy(wide, scalar, sizeof(double));
      return {wide[0], 0.0};
    case HIP_C_64F:
      std::memcpy(wide, scalar, sizeof(wide));
      return {wide[0], wide[1]};
    case HIP_C_32F:
      std::memcpy(single, scalar, sizeof(single));
      return {single[0], single[1]};
    case HIP_R_32I:
      std::memcpy(&integer, scalar, sizeof(integer));
      return {double(integer), 0.0};
    case HIP_R_16F:
      std::memcpy(&half, scalar, sizeof(half));
      return {f16_to_float(half), 0.0};
    default:
      std::memcpy(single, scalar, sizeof(float));
      return {single[0], 0.0};
  }
}

}  // namespace rocpy_host::lt
