// SPDX-License-Identifier: MIT
// What went wrong in a grid, copied out of it.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace rocpy::simt {

using Index3 = std::array<int32_t, 3>;

enum class Fault {
  exception,      // the kernel raised
  divergence,     // threads of a group wait at different places, or have left
  race,           // two threads touched one shared byte, one of them writing, with no barrier between
  global_race,    // the same of an array's memory, between threads of a block or of two
  division,       // of an integer by zero
  skipped,        // a barrier that threads do not come to since they have left the kernel: a warning
  uninitialised,  // a shared byte that nobody wrote, or a poisoned result
  shared_memory,  // more than a block may have
  out_of_memory,  // of the machine
  unsupported     // a group that the block does not have
};

// Memory of threads that have ended where they waited, with what frees each.
struct Abandoned {
  Abandoned() = default;
  Abandoned(const Abandoned &) = delete;
  Abandoned &operator=(const Abandoned &) = delete;
  ~Abandoned();

  std::vector<std::pair<void *, void (*)(void *)>> allocations;
};

struct Error {
  Fault fault = Fault::exception;
  int64_t block_rank = 0;  // the lowest of those that failed is kept
  Index3 block{};
  Index3 thread{};
  std::string site;  // "file:line" or "file:line#call", empty where unknown
  bool has_other = false;
  Index3 other_block{};
  Index3 other_thread{};
  std::string other_site;
  std::string detail;
  int32_t code = 0;                   // of the exception, Numba's
  const void *information = nullptr;  // of the exception, Numba's
  Abandoned abandoned;
};

// Takes what rocpy_simt_launch gave.
inline std::unique_ptr<Error> take(void *error) { return std::unique_ptr<Error>(static_cast<Error *>(error)); }

}  // namespace rocpy::simt
