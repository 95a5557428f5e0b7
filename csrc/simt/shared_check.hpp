// SPDX-License-Identifier: MIT
// Remembers, byte by byte, who touched the block's shared memory, and finds accesses that no barrier orders.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "order.hpp"

namespace rocpy::simt {

struct Conflict {
  enum Kind { none, race, unwritten } kind = none;
  bool both_write = false;
  Access other;
};

class SharedCheck {
 public:
  // A new block: everything is unwritten.
  void begin(std::size_t bytes);

  // Notes an access to bytes [offset, offset + bytes) and tells what is wrong with it.
  Conflict note(std::size_t offset, std::size_t bytes, int32_t kind, const Moment &now);

 private:
  struct Cell {
    uint32_t block = 0;  // the block that wrote this cell; cells of others count as empty
    Access write;
    Readers readers;
  };

  std::vector<Cell> cells_;
  uint32_t block_ = 0;
};

}  // namespace rocpy::simt
