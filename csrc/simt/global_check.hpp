// SPDX-License-Identifier: MIT
// Remembers who touched the arrays that a launch was given, and finds accesses that nothing orders: between threads of
// a block no barrier, between blocks anything at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "shared_check.hpp"

namespace rocpy::simt {

// Memory of an array. Its accesses are of `granule` bytes or multiples of that, at multiples of that from its begin.
struct Range {
  std::uintptr_t begin = 0;
  std::size_t bytes = 0;
  std::size_t granule = 1;
};

struct GlobalConflict {
  enum Kind { none, writes_both, reads_written, writes_read } kind = none;
  int64_t block = 0;
  int32_t thread = 0;
  const char *site = nullptr;
};

class GlobalCheck {
 public:
  // Throws std::bad_alloc where the machine has not the memory to remember all.
  explicit GlobalCheck(std::vector<Range> ranges);

  // Whether an address lies in an array.
  bool has(const void *address) const { return part_of(address) != nullptr; }

  // Notes an access and tells what is wrong with it.
  GlobalConflict note(const void *address, std::size_t bytes, int32_t kind, int64_t block, const Moment &now);

 private:
  struct Access {
    const char *site;
    uint32_t thread_after;  // the thread's number and 1; 0: nobody
    uint32_t block;
    uint32_t block_barriers;
    uint32_t warp_barriers;
    int32_t warp;
  };
  struct Cell {  // of zeros: nobody touched it
    Access write;
    Access read;          // the last one; the flags tell of others
    bool atomic;          // the write
    bool unchanged;       // the writes have put there what was there
    bool several;         // other threads of the reader's warp have read too, since its last barrier
    bool several_warps;   // threads of other warps of its block
    bool several_blocks;  // threads of other blocks
  };
  struct Free {
    void operator()(Cell *cells) const;
  };
  struct Part {
    Range range;
    std::unique_ptr<Cell[], Free> cells;
  };

  const Part *part_of(const void *address) const;
  static bool ordered(const Access &earlier, int64_t block, const Moment &now);
  static bool raced_reads(const Cell &cell, int64_t block, const Moment &now);
  static void note_read(Cell &cell, int64_t block, const Moment &now);
  static GlobalConflict::Kind conflict(const Cell &cell, int32_t kind, int64_t block, const Moment &now);
  static void remember(Cell &cell, int32_t kind, int64_t block, const Moment &now);

  std::vector<Part> parts_;  // by address
};

}  // namespace rocpy::simt
