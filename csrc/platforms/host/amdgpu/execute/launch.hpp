// SPDX-License-Identifier: MIT
// Running a kernel of a loaded code object: all blocks in order, the waves of a block in turn.
#pragma once

#include "code_object.hpp"
#include "memory.hpp"

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace rocpy_host::amdgpu {

// What the device library reads to synchronise a grid, and the grids of several devices: its layout is the library's.
struct GridInformation {
  std::atomic<uint32_t> *grid_barrier = nullptr;  // two words that the grids of a launch on several devices share
  uint32_t grid = 0, grids = 0;                   // none: a launch on one device
  uint64_t threads_before = 0, threads = 0;
  uint32_t group_barrier[2] = {0, 0};
  uint32_t groups = 0;
};

// What the grids of a launch on several devices share.
struct GridBarrier {
  std::atomic<uint32_t> words[2] = {};
  std::atomic<bool> is_broken{false};  // one was stopped: the others would wait for ever
};

struct Launch {
  std::shared_ptr<const CodeObject> code;
  const Kernel *kernel = nullptr;
  void *function = nullptr;  // whoever launches it: the name that it goes by
  uint32_t grid[3] = {1, 1, 1}, block[3] = {1, 1, 1};
  uint32_t remainder[3] = {0, 0, 0};  // threads of the last block along an axis, if it is not full
  uint32_t dynamic_shared = 0;
  bool is_cooperative = false;  // all blocks run at the same time, and may wait for each other
  GridInformation grid_information;
  std::shared_ptr<GridBarrier> grid_barrier;
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
