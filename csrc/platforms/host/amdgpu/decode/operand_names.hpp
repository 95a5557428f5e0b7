// SPDX-License-Identifier: MIT
// How operands are written in LLVM's assembler.
#pragma once

#include "instruction.hpp"

#include <string>

namespace rocpy_host::amdgpu {

std::string hex(uint32_t value);
std::string register_range(const char *prefix, unsigned first, int bits);
std::string scalar_name(Architecture architecture, unsigned code, int bits);
std::string constant_name(unsigned code, Type type, uint32_t literal);

}  // namespace rocpy_host::amdgpu
