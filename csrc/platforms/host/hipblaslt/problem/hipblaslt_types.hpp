// SPDX-License-Identifier: MIT
// Which products of hipBLASLt's types there are, and what they are to the engine.
#pragma once

#include "gemm.hpp"
#include "hipblaslt_objects.hpp"
#include "hipblaslt_problem.hpp"
#include "types.h"

namespace rocpy_host::lt {

// One kind of product: what the types of A, B, D, compute and scalars together stand for.
struct ProductTypes {
  gemm::Type compute = gemm::Type::f32;  // of accumulation
  bool scaled = false;                   // A and B may have a factor each, or one for each row of A and column of B
  bool blocks = false;                   // A and B have a factor for every 32 neighbours along k, and need them
  bool complex = false;
  bool integer = false;  // the epilogue is in int32
};

// False where there is no such product.
bool product_types(const MatmulDesc &desc, const Layouts &layouts, ProductTypes *out);

// False where the engine has no such type. Asked several times in each call.
inline bool engine_type(int32_t type, gemm::Type *out) {
  using gemm::Type;
  switch (type) {
    case HIP_R_32F:
      *out = Type::f32;
      return true;
    case HIP_R_64F:
      *out = Type::f64;
      return true;
    case HIP_R_16F:
      *out = Type::f16;
      return true;
    case HIP_R_16BF:
      *out = Type::bf16;
      return true;
    case HIP_R_8I:
      *out = Type::i8;
      return true;
    case HIP_R_32I:
      *out = Type::i32;
      return true;
    case HIP_C_32F:
      *out = Type::c32;
      return true;
    case HIP_C_64F:
      *out = Type::c64;
      return true;
    case HIP_R_8F_E4M3:
      *out = Type::e4m3;
      return true;
    case HIP_R_8F_E5M2:
      *out = Type::e5m2;
      return true;
    case HIP_R_8F_E4M3_FNUZ:
      *out = Type::e4m3_fnuz;
      return true;
    case HIP_R_8F_E5M2_FNUZ:
      *out = Type::e5m2_fnuz;
      return true;
    case HIP_R_8U:
      *out = Type::u8;
      return true;
    case HIP_R_6F_E2M3:
      *out = Type::e2m3;
      return true;
    case HIP_R_6F_E3M2:
      *out = Type::e3m2;
      return true;
    case HIP_R_4F_E2M1:
      *out = Type::e2m1;
      return true;
    default:
      return false;
  }
}
bool is_float8(int32_t type);

// The type of the bias or of the aux matrix, defaults resolved; false where the product takes no such type.
bool bias_type(const MatmulDesc &desc, const Layouts &layouts, const ProductTypes &types, gemm::Type *out);
bool aux_type(const MatmulDesc &desc, const Layouts &layouts, const ProductTypes &types, gemm::Type *out);

// A host scalar of the descriptor's scale type.
struct Scalar {
  double real = 0.0, imaginary = 0.0;
};
Scalar read_scalar(const void *scalar, int32_t type);

// Of whole-byte types: not a multiple of their size, of complex ones of the size of a part, as C and numpy align them.
// What is packed in less than a byte may lie anywhere.
inline bool misaligned(const void *pointer, gemm::Type type) {
  using gemm::Type;
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  switch (type) {
    case Type::f32:
    case Type::i32:
    case Type::c32:
      return address & 3;
    case Type::f64:
    case Type::c64:
      return address & 7;
    case Type::f16:
    case Type::bf16:
      return address & 1;
    default:
      return false;
  }
}

}  // namespace rocpy_host::lt
