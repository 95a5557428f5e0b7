// SPDX-License-Identifier: MIT
// The rule: two accesses by different threads, one of them a write that changes something and not both atomic, need a
// barrier between them, which only threads of one block have.
#include "global_check.hpp"

#include <algorithm>
#include <cstdlib>
#include <new>
#include <numeric>

#include "simt.h"

namespace rocpy::simt {

namespace {

// Overlapping arrays become one, whose granule both are made of.
std::vector<Range> merged(std::vector<Range> ranges) {
  std::sort(ranges.begin(), ranges.end(), [](const Range &a, const Range &b) { return a.begin < b.begin; });
  std::vector<Range> result;
  for (const Range &each : ranges) {
    if (result.empty() || result.back().begin + result.back().bytes <= each.begin) {
      result.push_back(each);
      continue;
    }
    Range &last = result.back();
    last.granule = std::gcd(std::gcd(last.granule, each.granule), static_cast<std::size_t>(each.begin - last.begin));
    last.bytes = std::max(last.bytes, static_cast<std::size_t>(each.begin - last.begin) + each.bytes);
  }
  return result;
}

}  // namespace

void GlobalCheck::Free::operator()(Cell *cells) const { std::free(cells); }

GlobalCheck::GlobalCheck(std::vector<Range> ranges) {
  for (const Range &range : merged(std::move(ranges))) {
    const std::size_t count = (range.bytes + range.granule - 1) / range.granule;
    // Of zeros that take no memory before they are touched.
    auto *cells = static_cast<Cell *>(std::calloc(count, sizeof(Cell)));
    if (!cells) throw std::bad_alloc();
    parts_.push_back({range, std::unique_ptr<Cell[], Free>(cells)});
  }
}

bool GlobalCheck::ordered(const Access &earlier, int64_t block, const Moment &now) {
  if (earlier.thread_after == 0) return true;
  if (earlier.block != static_cast<uint32_t>(block)) return false;
  if (earlier.thread_after - 1 == static_cast<uint32_t>(now.thread)) return true;
  if (earlier.block_barriers != now.block_barriers) return true;
  return earlier.warp == now.warp && earlier.warp_barriers != now.warp_barriers;
}

bool GlobalCheck::raced_reads(const Cell &cell, int64_t block, const Moment &now) {
  const Access &read = cell.read;
  if (read.thread_after == 0) return false;
  if (cell.several_blocks || read.block != static_cast<uint32_t>(block)) return true;
  if (read.block_barriers != now.block_barriers) return false;
  if (cell.several_warps || read.warp != now.warp) return true;
  if (read.warp_barriers != now.warp_barriers) return false;
  return cell.several || read.thread_after - 1 != static_cast<uint32_t>(now.thread);
}

void GlobalCheck::note_read(Cell &cell, int64_t block, const Moment &now) {
  const Access &read = cell.read;
  const bool same_block = read.thread_after != 0 && read.block == static_cast<uint32_t>(block);
  if (read.thread_after != 0 && !same_block) cell.several_blocks = true;
  if (!same_block || read.block_barriers != now.block_barriers) {
    cell.several = cell.several_warps = false;
  } else if (read.warp != now.warp) {
    cell.several_warps = true;
  } else if (read.warp_barriers != now.warp_barriers) {
    cell.several = false;
  } else if (read.thread_after - 1 != static_cast<uint32_t>(now.thread)) {
    cell.several = true;
  }
}

GlobalConflict::Kind GlobalCheck::conflict(const Cell &cell, int32_t kind, int64_t block, const Moment &now) {
  const bool writes = kind != ROCPY_SIMT_READ;
  const bool unordered = !ordered(cell.write, block, now);
  if (kind == ROCPY_SIMT_WRITE_SAME) return GlobalConflict::none;
  if (unordered && !writes && !cell.unchanged) return GlobalConflict::reads_written;
  if (unordered && writes && !(kind == ROCPY_SIMT_ATOMIC && cell.atomic)) return GlobalConflict::writes_both;
  return writes && raced_reads(cell, block, now) ? GlobalConflict::writes_read : GlobalConflict::none;
}

void GlobalCheck::remember(Cell &cell, int32_t kind, int64_t block, const Moment &now) {
  const Access access{now.site,
                      static_cast<uint32_t>(now.thread) + 1,
                      static_cast<uint32_t>(block),
                      now.block_barriers,
                      now.warp_barriers,
                      now.warp};
  if (kind == ROCPY_SIMT_READ) {
    note_read(cell, block, now);
    cell.read = access;
  } else if (kind != ROCPY_SIMT_WRITE_SAME) {
    cell = Cell{};
    cell.write = access;
    cell.atomic = kind == ROCPY_SIMT_ATOMIC;
  } else if (cell.write.thread_after == 0) {
    cell.write = access;
    cell.atomic = false;
    cell.unchanged = true;
  }
}

const GlobalCheck::Part *GlobalCheck::part_of(const void *address) const {
  const auto target = reinterpret_cast<std::uintptr_t>(address);
  auto part = std::upper_bound(parts_.begin(), parts_.end(), target,
                               [](std::uintptr_t value, const Part &each) { return value < each.range.begin; });
  if (part == parts_.begin()) return nullptr;
  --part;
  return target - part->range.begin < part->range.bytes ? &*part : nullptr;
}

GlobalConflict GlobalCheck::note(const void *address, std::size_t bytes, int32_t kind, int64_t block,
                                 const Moment &now) {
  GlobalConflict result;
  const Part *part = part_of(address);
  if (!part) return result;
  const std::size_t offset = reinterpret_cast<std::uintptr_t>(address) - part->range.begin;
  const std::size_t end = std::min(offset + bytes, part->range.bytes);
  for (std::size_t i = offset / part->range.granule; i * part->range.granule < end; ++i) {
    Cell &cell = part->cells[i];
    if (result.kind == GlobalConflict::none) {
      result.kind = conflict(cell, kind, block, now);
      if (result.kind != GlobalConflict::none) {
        const Access &other = result.kind == GlobalConflict::writes_read ? cell.read : cell.write;
        result.block = other.block;
        result.thread = static_cast<int32_t>(other.thread_after) - 1;
        result.site = other.site;
      }
    }
    remember(cell, kind, block, now);
  }
  return result;
}

}  // namespace rocpy::simt
