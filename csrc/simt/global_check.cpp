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

GlobalConflict GlobalCheck::conflict(const Cell &cell, int32_t kind, const Moment &now) {
  const auto with = [](GlobalConflict::Kind what, const Access &other) {
    return GlobalConflict{what, other.block, other.thread(), other.site};
  };
  const bool writes = kind != ROCPY_SIMT_READ;
  if (kind == ROCPY_SIMT_WRITE_SAME) return {};
  if (!now.follows(cell.write)) {
    if (!writes && !cell.write.unchanged) return with(GlobalConflict::reads_written, cell.write);
    if (writes && !(kind == ROCPY_SIMT_ATOMIC && cell.write.atomic)) {
      return with(GlobalConflict::writes_both, cell.write);
    }
  }
  const Access *read = writes ? cell.readers.raced(now) : nullptr;
  return read ? with(GlobalConflict::writes_read, *read) : GlobalConflict{};
}

void GlobalCheck::remember(Cell &cell, int32_t kind, const Moment &now) {
  if (kind == ROCPY_SIMT_READ) {
    cell.readers.add(now);
  } else if (kind != ROCPY_SIMT_WRITE_SAME) {
    cell.write = now.access;
    cell.write.atomic = kind == ROCPY_SIMT_ATOMIC;
    cell.readers = Readers{};
  } else if (!cell.write.any()) {
    cell.write = now.access;
    cell.write.unchanged = true;
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

GlobalConflict GlobalCheck::note(const void *address, std::size_t bytes, int32_t kind, const Moment &now) {
  GlobalConflict result;
  const Part *part = part_of(address);
  if (!part) return result;
  const std::size_t offset = reinterpret_cast<std::uintptr_t>(address) - part->range.begin;
  const std::size_t end = std::min(offset + bytes, part->range.bytes);
  for (std::size_t i = offset / part->range.granule; i * part->range.granule < end; ++i) {
    Cell &cell = part->cells[i];
    if (result.kind == GlobalConflict::none) result = conflict(cell, kind, now);
    remember(cell, kind, now);
  }
  return result;
}

}  // namespace rocpy::simt
