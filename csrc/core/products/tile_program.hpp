// SPDX-License-Identifier: MIT
// Tile programs as a plan holds them: code without its operands, of which the process keeps one of each content, so
// that a plan's key may have its number in place of the code.
#pragma once

#include <cstdint>
#include <vector>

#include "types.h"

namespace rocpy {

struct TileProgram {
  std::vector<rocpyExtInstruction_t> code;
  uint32_t register_count = 0, input_count = 0, output_count = 0, result = 0, flags = 0;
  int64_t id = 0;  // from 1 on, never used again
};

// The program of this content, kept until the process ends; null when memory is out. Its `id` is not looked at.
const TileProgram *keep_program(const TileProgram &program) noexcept;

}  // namespace rocpy
