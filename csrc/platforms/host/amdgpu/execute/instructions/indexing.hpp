// SPDX-License-Identifier: MIT
// GFX9's mode in which vector instructions add an index to the numbers of their registers.
#pragma once

#include "wave.hpp"

namespace rocpy_host::amdgpu {

// The instruction with the registers that it names in that mode.
Instruction with_indexed_registers(const Wave &wave, const Instruction &instruction);

}  // namespace rocpy_host::amdgpu
