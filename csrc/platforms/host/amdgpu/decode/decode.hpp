// SPDX-License-Identifier: MIT
// Machine code to instructions, and instructions to text.
#pragma once

#include "instruction.hpp"

namespace rocpy_host::amdgpu {

// Decodes the instruction at code[0..words). False: no instruction of this architecture, or cut off. Of VOPD `second`
// is the other half.
bool decode(Architecture architecture, const uint32_t *code, size_t words, Instruction *out, Instruction *second);

// The instruction in the syntax of LLVM's assembler.
std::string to_text(Architecture architecture, int lanes, const Instruction &instruction, const Instruction *second);

}  // namespace rocpy_host::amdgpu
