// SPDX-License-Identifier: MIT
// What a hipBLASLt of some version can be asked for. A library answers an epilogue that it does not know with none, and
// gave attributes 102 and 103 another meaning in 1.0, so its version decides before anything is set.
#pragma once

#include "matmul.hpp"

namespace rocpy {

// Versions are major * 100000 + minor * 100 + patch. 1.0 is ROCm 7.0.
constexpr int version_scale_modes = 100000;
constexpr int version_complex = 100400;

// The library's version, asked through a handle.
Status library_version(hipblasLtHandle_t handle, int *version);

// Whether the epilogue, types and scales of a product are known to that version at all.
bool version_takes(const MatmulSpec &spec, int version);

// The attribute that takes the pointer of an operand's or result's scale: before scale modes, factors by row or column
// had attributes of their own. `general` is the attribute of one factor.
hipblasLtMatmulDescAttributes_t scale_attribute(const MatmulSpec &spec, int scale,
                                                hipblasLtMatmulDescAttributes_t general, int version);

}  // namespace rocpy
