// SPDX-License-Identifier: MIT
// Remembers who touched the arrays that a launch was given, and finds accesses that nothing orders: between threads of
// a block no barrier, between blocks anything at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "order.hpp"

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
  GlobalConflict note(const void *address, std::size_t bytes, int32_t kind, const Moment &now);

 private:
  struct Cell {  // of zeros: nobody touched it
    Access write;
    Readers readers;
  };
  static_assert(sizeof(Cell) == 72, "as docs/guides/cooperative.md has it");
  struct Free {
    void operator()(Cell *cells) const;
  };
  struct Part {
    Range range;
    std::unique_ptr<Cell[], Free> cells;
  };

  const Part *part_of(const void *address) const;
  static GlobalConflict conflict(const Cell &cell, int32_t kind, const Moment &now);
  static void remember(Cell &cell, int32_t kind, const Moment &now);

  std::vector<Part> parts_;  // by address
};

}  // namespace rocpy::simt
