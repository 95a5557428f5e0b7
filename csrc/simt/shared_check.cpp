// SPDX-License-Identifier: MIT
// The rule: two accesses by different threads, one of them a write and not both atomic, need a barrier of both between
// them.
#include "shared_check.hpp"

#include "simt.h"

namespace rocpy::simt {

namespace {

bool ordered(const Moment &earlier, const Moment &now) {
  if (earlier.thread < 0 || earlier.thread == now.thread) return true;
  if (earlier.block_barriers != now.block_barriers) return true;
  return earlier.warp == now.warp && earlier.warp_barriers != now.warp_barriers;
}

}  // namespace

// One reader is kept, the last; the flags tell what there is beside it.
bool SharedCheck::raced_reads(const Cell &cell, const Moment &now) {
  if (cell.read.thread < 0 || cell.read.block_barriers != now.block_barriers) return false;
  if (cell.several_warps || cell.read.warp != now.warp) return true;
  if (cell.read.warp_barriers != now.warp_barriers) return false;
  return cell.several || cell.read.thread != now.thread;
}

void SharedCheck::note_read(Cell &cell, const Moment &now) {
  if (cell.read.thread < 0 || cell.read.block_barriers != now.block_barriers) {
    cell.several = cell.several_warps = false;
  } else if (cell.read.warp != now.warp) {
    cell.several_warps = true;
  } else if (cell.read.warp_barriers != now.warp_barriers) {
    cell.several = false;
  } else if (cell.read.thread != now.thread) {
    cell.several = true;
  }
  cell.read = now;
}

void SharedCheck::begin(std::size_t bytes) {
  ++block_;
  if (cells_.size() < bytes) cells_.resize(bytes);
}

Conflict SharedCheck::note(std::size_t offset, std::size_t bytes, int32_t kind, const Moment &now) {
  Conflict result;
  const bool writes = kind != ROCPY_SIMT_READ;
  const bool atomic = kind == ROCPY_SIMT_ATOMIC;
  for (std::size_t i = offset; i < offset + bytes; ++i) {
    Cell &cell = cells_[i];
    if (cell.block != block_) {
      cell = Cell{};
      cell.block = block_;
    }
    if (result.kind == Conflict::none) {
      if (kind != ROCPY_SIMT_WRITE && !cell.written) {
        result.kind = Conflict::unwritten;
      } else if (!ordered(cell.write, now) && !(atomic && cell.atomic)) {
        result = {Conflict::race, writes, cell.write};
      } else if (writes && raced_reads(cell, now)) {
        result = {Conflict::race, false, cell.read};
      }
    }
    if (writes) {
      cell.written = true;
      cell.atomic = atomic;
      cell.write = now;
      cell.read = Moment{};
      cell.several = cell.several_warps = false;
    } else {
      note_read(cell, now);
    }
  }
  return result;
}

}  // namespace rocpy::simt
