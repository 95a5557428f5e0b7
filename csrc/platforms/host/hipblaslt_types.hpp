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

bool engine_type(int32_t type, gemm::Type *out);
bool is_float8(int32_t type);

// The type of the bias or of the aux matrix, defaults resolved; false where the product takes no such type.
bool bias_type(const MatmulDesc &desc, const Layouts &layouts, const ProductTypes &types, gemm::Type *out);
bool aux_type(const MatmulDesc &desc, const Layouts &layouts, const ProductTypes &types, gemm::Type *out);

// A host scalar of the descriptor's scale type.
struct Scalar {
  double real = 0.0, imaginary = 0.0;
};
Scalar read_scalar(const void *scalar, int32_t type);

// Of whole-byte types: not a multiple of their size. What is packed in less than a byte may lie anywhere.
bool misaligned(const void *pointer, gemm::Type type);

}  // namespace rocpy_host::lt
