// SPDX-License-Identifier: MIT
// Items and their neighbours, runs of equal ones, and how often each is there.
#pragma once

#include "rocpy_coop_groups.h"

namespace rocpy {

struct Differs {
  template <class T>
  COOP_DEVICE bool operator()(T a, T b) const {
    return a != b;
  }
};
struct Minus {
  template <class T>
  COOP_DEVICE T operator()(T a, T b) const {
#pragma clang fp contract(off)
    return static_cast<T>(a - b);
  }
};

namespace detail {

template <class T>
struct Ends {
  T first, last;
};

// The last item of the thread to the left and the first of the one to the right; at the ends of the group their own.
template <class Group, class T, unsigned Items>
COOP_DEVICE Ends<T> adjacent(Group group, const T (&items)[Items]) {
  const long long rank = group.rank();
  return {take_in(group, items[Items - 1], rank - 1), take_in(group, items[0], rank + 1)};
}

}  // namespace detail

// 1 where an item differs from the one before it, and in the first one without a `predecessor`.
template <class Group, class T, unsigned Items, class Op = Differs>
COOP_DEVICE void flag_heads(Group group, const T (&items)[Items], int (&flags)[Items], Op differs = {},
                            const T *predecessor = nullptr) {
  const T left = detail::adjacent(group, items).first;
  const bool is_first = group.rank() == 0;
  flags[0] = is_first ? (predecessor == nullptr || differs(*predecessor, items[0])) : differs(left, items[0]);
#pragma unroll
  for (unsigned k = 1; k < Items; ++k) flags[k] = differs(items[k - 1], items[k]);
}

// 1 where an item differs from the one after it, and in the last one without a `successor`.
template <class Group, class T, unsigned Items, class Op = Differs>
COOP_DEVICE void flag_tails(Group group, const T (&items)[Items], int (&flags)[Items], Op differs = {},
                            const T *successor = nullptr) {
  const T right = detail::adjacent(group, items).last;
  const bool is_last = group.rank() + 1 == group.size();
  flags[Items - 1] =
      is_last ? (successor == nullptr || differs(items[Items - 1], *successor)) : differs(items[Items - 1], right);
#pragma unroll
  for (unsigned k = 1; k < Items; ++k) flags[k - 1] = differs(items[k - 1], items[k]);
}

template <class Group, class T, unsigned Items, class Op = Differs>
COOP_DEVICE void flag_heads_and_tails(Group group, const T (&items)[Items], int (&heads)[Items], int (&tails)[Items],
                                      Op differs = {}, const T *predecessor = nullptr, const T *successor = nullptr) {
  flag_heads(group, items, heads, differs, predecessor);
  flag_tails(group, items, tails, differs, successor);
}

// Each of the first `valid` items combined with the one before it; the first stays as it is without a `predecessor`.
template <class Group, class T, unsigned Items, class Op = Minus>
COOP_DEVICE void subtract_left(Group group, const T (&items)[Items], T (&out)[Items], Op op = {},
                               unsigned valid = all_items, const T *predecessor = nullptr) {
  const T left = detail::adjacent(group, items).first;
  const unsigned begin = group.rank() * Items;
#pragma unroll
  for (unsigned k = Items - 1; k > 0; --k) out[k] = begin + k < valid ? op(items[k], items[k - 1]) : items[k];
  T first = items[0];
  if (begin < valid && begin > 0) first = op(first, left);
  if (begin < valid && begin == 0 && predecessor != nullptr) first = op(first, *predecessor);
  out[0] = first;
}

// The same with the one after it; the last stays as it is without a `successor`.
template <class Group, class T, unsigned Items, class Op = Minus>
COOP_DEVICE void subtract_right(Group group, const T (&items)[Items], T (&out)[Items], Op op = {},
                                unsigned valid = all_items, const T *successor = nullptr) {
  const T right = detail::adjacent(group, items).last;
  const unsigned begin = group.rank() * Items, n = detail::items_of<Items>(group, valid);
#pragma unroll
  for (unsigned k = 0; k < Items; ++k) {
    T combined = items[k];
    if (begin + k + 1 < n) {
      combined = op(combined, k + 1 < Items ? items[k + 1 < Items ? k + 1 : 0] : right);
    } else if (begin + k + 1 == n && successor != nullptr) {
      combined = op(combined, *successor);
    }
    out[k] = combined;
  }
}

// The runs of a group: thread r holds Items of them, each a value and how often it is repeated. Made once, they are
// decoded window by window. LDS of their own holds them, one for each type of runs.
template <class Group, class T, unsigned Items>
class Runs {
 public:
  template <class Length>
  COOP_DEVICE Runs(Group group, const T (&values)[Items], const Length (&lengths)[Items]) : group_(group) {
    held_ = detail::shared_slots<Run, Group::most_threads * Items>() + Group::first() * Items;
    group.sync();  // other runs of this type may still be read
    unsigned own[Items], ends[Items];
#pragma unroll
    for (unsigned k = 0; k < Items; ++k) own[k] = static_cast<unsigned>(lengths[k]);
    total_ = inclusive_scan(group, own, ends, Plus{});
#pragma unroll
    for (unsigned k = 0; k < Items; ++k) held_[group.rank() * Items + k] = {values[k], ends[k]};
    group.sync();
  }

  COOP_DEVICE unsigned total() const { return total_; }

  // Decoded items from number `window` on, blocked, and the offset of each in its run; those beyond the total keep what
  // they held.
  template <unsigned Decoded>
  COOP_DEVICE void decode(unsigned window, T (&items)[Decoded], int (&offsets)[Decoded]) const {
#pragma unroll
    for (unsigned k = 0; k < Decoded; ++k) {
      const unsigned at = window + group_.rank() * Decoded + k;
      if (at < total_) {
        const unsigned run = find(at);
        items[k] = held_[run].value;
        offsets[k] = static_cast<int>(at - (run > 0 ? held_[run - 1].end : 0));
      }
    }
  }

  template <unsigned Decoded>
  COOP_DEVICE void decode(unsigned window, T (&items)[Decoded]) const {
    int offsets[Decoded];
    decode(window, items, offsets);
  }

  // Writes all decoded items.
  COOP_DEVICE void decode_into(T *target) const {
    for (unsigned at = group_.rank(); at < total_; at += group_.size()) target[at] = held_[find(at)].value;
  }

 private:
  struct Run {
    T value;
    unsigned end;
  };

  COOP_DEVICE unsigned find(unsigned at) const {
    unsigned low = 0, high = group_.size() * Items;
    while (low < high) {
      const unsigned middle = (low + high) / 2;
      if (held_[middle].end > at) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return low;
  }

  Group group_;
  Run *held_;
  unsigned total_;
};

// How often each number from 0 to Bins - 1 is among the items: element k of rank r counts bin k * size + r, and is 0
// where there is none. Items that are no bin are not counted.
template <unsigned Bins, class Group, class T, unsigned Items, unsigned PerThread>
COOP_DEVICE void histogram(Group group, const T (&items)[Items], int (&counts)[PerThread]) {
  constexpr unsigned most = Group::most_threads * PerThread;
  static_assert(Bins <= most, "the threads of the group have too few counters");
  int *const scratch = detail::scratch_of<int, PerThread>(group);
  const unsigned rank = group.rank(), size = group.size();
#pragma unroll
  for (unsigned k = 0; k < PerThread; ++k) scratch[k * size + rank] = 0;
  group.sync();
#pragma unroll
  for (unsigned k = 0; k < Items; ++k) {
    const long long bin = static_cast<long long>(items[k]);
    if (bin >= 0 && bin < static_cast<long long>(detail::smaller(Bins, size * PerThread))) {
      __hip_atomic_fetch_add(scratch + bin, 1, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);
    }
  }
  group.sync();
#pragma unroll
  for (unsigned k = 0; k < PerThread; ++k) counts[k] = scratch[k * size + rank];
  group.sync();
}

}  // namespace rocpy
