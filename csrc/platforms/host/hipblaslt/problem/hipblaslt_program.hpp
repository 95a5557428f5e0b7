// SPDX-License-Identifier: MIT
// Tile programs of matmul descriptors: what a product with one may be.
#pragma once

#include "hipblaslt_problem.hpp"
#include "hipblaslt_types.hpp"

namespace rocpy_host::lt {

// Whether two rows of the product make one of D.
inline bool has_pairs(const MatmulDesc &desc) { return desc.program && desc.program->program->pairs; }

// Makes the descriptor's program part of the problem, whose shapes and epilogue are known. Pointers are looked at
// unless `searching`.
hipblasStatus_t translate_program(const char *function, const MatmulDesc &desc, const Layouts &layouts,
                                  const ProductTypes &types, bool searching, Call *call);

}  // namespace rocpy_host::lt
