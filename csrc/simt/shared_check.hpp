// SPDX-License-Identifier: MIT
// Remembers, byte by byte, who touched the block's shared memory, and finds accesses that no barrier orders.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace rocpy::simt {

// When an access happens: barriers of the block, and of the thread's warp, that were passed until then.
struct Moment {
  int32_t thread = -1;
  int32_t warp = 0;
  uint32_t block_barriers = 0;
  uint32_t warp_barriers = 0;
  const char *site = nullptr;
};

struct Conflict {
  enum Kind { none, race, unwritten } kind = none;
  bool both_write = false;
  Moment other;
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
    bool written = false;
    bool atomic = false;         // the last write
    bool several = false;        // other threads of the kept reader's warp have read too, since the warp's last barrier
    bool several_warps = false;  // threads of other warps have read too
    Moment write;
    Moment read;
  };

  static bool raced_reads(const Cell &cell, const Moment &now);
  static void note_read(Cell &cell, const Moment &now);

  std::vector<Cell> cells_;
  uint32_t block_ = 0;
};

}  // namespace rocpy::simt
