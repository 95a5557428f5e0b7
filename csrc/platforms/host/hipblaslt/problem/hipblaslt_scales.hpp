// SPDX-License-Identifier: MIT
// Scales of operands and results, and the largest magnitude: from attributes to the engine's problem.
#pragma once

#include "hipblaslt_types.hpp"

namespace rocpy_host::lt {

// Both sides have a mode and they differ: refused before anything of the scales is looked at.
bool scale_modes_differ(const MatmulDesc &desc);

// Most products have none of it.
inline bool has_scales(const MatmulDesc &desc) {
  return desc.a_scale || desc.b_scale || desc.c_scale || desc.d_scale || desc.aux_scale || desc.amax ||
         desc.a_scale_mode != scale_mode_unset || desc.b_scale_mode != scale_mode_unset;
}

// Fills in the problem's scales. Shapes and types are known to be sound, `call->problem` has them.
hipblasStatus_t translate_scales(const char *function, const MatmulDesc &desc, const Layouts &layouts,
                                 const ProductTypes &types, bool searching, Call *call);

}  // namespace rocpy_host::lt
