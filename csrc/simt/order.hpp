// SPDX-License-Identifier: MIT
// Which accesses of a grid's threads barriers order. Groups are nested, so that a chain of barriers from one thread to
// another has one that both pass: two accesses are ordered if a group of both threads has passed a barrier in between.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

namespace rocpy::simt {

// Groups by size: of 2 to the power of the level threads, up to 64; then the block, and the grid, which has no
// barriers.
constexpr int block_level = 7;
constexpr int grid_level = 8;

inline int group_level(int32_t width) { return width == 0 ? block_level : __builtin_ctz(static_cast<unsigned>(width)); }

struct Access {  // of zeros: nobody's
  const char *site = nullptr;
  uint64_t barriers = 0;  // of all groups of the block, that were passed until then
  uint32_t block = 0;
  uint16_t thread_after = 0;  // the thread's number and 1
  bool atomic = false;
  bool unchanged = false;  // a write of what the memory held

  bool any() const { return thread_after != 0; }
  int32_t thread() const { return thread_after - 1; }
};

// An access that happens now.
struct Moment {
  Access access;
  // Of the groups of the thread at a level or above it, the last barrier, by its number in the block.
  std::array<uint64_t, grid_level + 1> last_barrier{};

  void passed(int level, uint64_t barrier) {
    for (int i = 0; i <= level; ++i) last_barrier[i] = std::max(last_barrier[i], barrier);
  }

  // The level of the smallest group of both threads.
  int level_with(const Access &other) const {
    if (other.block != access.block) return grid_level;
    const unsigned differing = static_cast<unsigned>(other.thread() ^ access.thread());
    return differing ? std::min(32 - __builtin_clz(differing), block_level) : 0;
  }

  // Whether the thread's access is ordered after an earlier one.
  bool follows(const Access &earlier) const {
    if (!earlier.any()) return true;
    const int level = level_with(earlier);
    return level == 0 || last_barrier[level] > earlier.barriers;
  }
};

// Who has read an element since it was written. Two of the readers stand for all: the last, and of those that no
// barrier orders before it the farthest. A write that follows both follows every read: an earlier reader no farther
// from the last than the writer is ordered by the barrier that orders the last, any other by that of the farthest.
struct Readers {
  Access last;
  Access farthest;

  void add(const Moment &now) {
    const bool stays = !now.follows(farthest) && now.level_with(farthest) > (last.any() ? now.level_with(last) : 0);
    if (!stays) farthest = now.follows(last) ? Access{} : last;
    last = now.access;
  }

  // The read that a write races with, or null.
  const Access *raced(const Moment &now) const {
    if (!now.follows(last)) return &last;
    return now.follows(farthest) ? nullptr : &farthest;
  }
};

}  // namespace rocpy::simt
