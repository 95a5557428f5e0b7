// SPDX-License-Identifier: MIT
// What the release that the platform presents makes of an epilogue's number, and which products AMD lists for no card.
#pragma once

#include "gemm.hpp"
#include "hipblaslt_objects.hpp"
#include "hipblaslt_problem.hpp"
#include "hipblaslt_types.hpp"

namespace rocpy_host::lt {

struct Epilogue {
  gemm::Activation activation = gemm::Activation::none;
  gemm::Aux aux = gemm::Aux::none;
  gemm::Reduction reduction = gemm::Reduction::none;  // in hipBLASLt's terms: a_rows is of op(A)
  bool bias = false;
};

// A number that the presented release does not know counts as no activation; the library does not refuse it either.
Epilogue find_epilogue(uint32_t number);

// Whether a product is the platform's own: no release of hipBLASLt has it on any card, or none has it on the card that
// strict mode stands for (ROCPY_HOST_STRICT).
bool is_extension(const MatmulDesc &desc, const Layouts &layouts, const ProductTypes &types, const Epilogue &epilogue);

}  // namespace rocpy_host::lt
