// SPDX-License-Identifier: MIT
// Running a kernel of a loaded code object: all blocks in order, the waves of a block in turn.
#pragma once

#include "code_object.hpp"
#include "memory.hpp"

#include <functional>
#include <string>
#include <vector>

namespace rocpy_host::amdgpu {

struct Launch {
  std::shared_ptr<const CodeObject> code;
  const Kernel *kernel = nullptr;
  uint32_t grid[3] = {1, 1, 1}, block[3] = {1, 1, 1};
  uint32_t remainder[3] = {0, 0, 0};  // threads of the last block along an axis, if it is not full
  uint32_t dynamic_shared = 0;
  std::vector<uint8_t> arguments;  // the explicit ones at their offsets; what is hidden is filled in
  Memory memory;
  uint64_t most_instructions = ~0ull;  // of all waves together
  size_t most_trace_lines = 0;
};

enum class Outcome { done, bad_instruction, bad_access, stuck, too_long };

struct Report {
  Outcome outcome = Outcome::done;
  std::string message;  // where and why it stopped
  uint64_t instructions = 0;
  std::vector<uint64_t> counts;  // of each opcode, by its row in opcodes()
  std::vector<std::string> trace;
};

Report run(Launch &launch);

}  // namespace rocpy_host::amdgpu
