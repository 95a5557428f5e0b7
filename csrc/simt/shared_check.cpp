// SPDX-License-Identifier: MIT
// The rule: two accesses by different threads, one of them a write and not both atomic, need a barrier of both between
// them.
#include "shared_check.hpp"

#include "simt.h"

namespace rocpy::simt {

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
      const Access *read = writes ? cell.readers.raced(now) : nullptr;
      if (kind != ROCPY_SIMT_WRITE && !cell.write.any()) {
        result.kind = Conflict::unwritten;
      } else if (!now.follows(cell.write) && !(atomic && cell.write.atomic)) {
        result = {Conflict::race, writes, cell.write};
      } else if (read) {
        result = {Conflict::race, false, *read};
      }
    }
    if (writes) {
      cell.write = now.access;
      cell.write.atomic = atomic;
      cell.readers = Readers{};
    } else {
      cell.readers.add(now);
    }
  }
  return result;
}

}  // namespace rocpy::simt
