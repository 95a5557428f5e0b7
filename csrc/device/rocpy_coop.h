// SPDX-License-Identifier: MIT
// Block and warp primitives for AMD GPUs: reductions, scans, votes, moves, memory. Includes nothing but its own parts,
// so that hipRTC, hipcc and clang take it alike. All threads of a group must call a primitive together.
//
// Order of operands. A reduction combines neighbours, then neighbours of those: with n values, value i + d goes to
// value i for d = 1, 2, 4 ... where i is a multiple of 2d and i + d < n. A scan doubles distances within rows of 16,
// then joins pairs of rows, pairs of those, and so on. Neither depends on the size of a wave, and the CPU runtime does
// the same: floats agree bit for bit.
#pragma once

#include "rocpy_coop_lanes.h"

namespace rocpy {

namespace detail {

constexpr unsigned power_of_two(unsigned n) {
  unsigned power = 1;
  while (power < n) power *= 2;
  return power;
}

// LDS for one value of each wave, or of each thread. One variable for each type and number: primitives end with a
// barrier, so that the next one may use it again.
template <class T, unsigned Count>
COOP_DEVICE T *shared_slots() {
  COOP_SHARED alignas(16) static unsigned char storage[Count * sizeof(T)];
  return reinterpret_cast<T *>(storage);
}

template <unsigned X, unsigned Y, unsigned Z>
constexpr unsigned warps_of() {
  return X == 0 ? most_warps : (X * Y * Z + warp_size - 1) / warp_size;
}

// Whether the block's last wave has fewer lanes than the block has waves, whose values they would hold.
template <unsigned Known>
COOP_DEVICE bool has_short_wave(unsigned size, unsigned waves) {
  if (Known != 0 && Known % warp_size == 0) return false;
  return size % warp_size != 0 && size % warp_size < waves;
}

template <unsigned Width>
COOP_DEVICE void check_width() {
  static_assert(Width != 0 && (Width & (Width - 1)) == 0 && Width <= warp_size,
                "a width is a power of two, at most a wave");
}

COOP_DEVICE unsigned smaller(unsigned a, unsigned b) { return a < b ? a : b; }
COOP_DEVICE unsigned warp_of(unsigned rank) { return __builtin_amdgcn_readfirstlane(rank / warp_size); }

// The waves' scans while they are joined: a thread's own, what the wave before and the last wave end with.
template <class T>
struct Joined {
  T inclusive, before, total;
};

// One level: a wave with bit `Level` set takes what the 2^Level waves to its left end with.
template <unsigned Level, class T, class Op, class LeftOf>
COOP_DEVICE void join(Joined<T> &joined, unsigned warp, unsigned last, Op op, LeftOf left_of) {
  const unsigned previous = warp == 0 ? 0 : warp - 1;
  if (warp >> Level & 1) joined.inclusive = op(left_of((warp >> Level) - 1), joined.inclusive);
  if (previous >> Level & 1) joined.before = op(left_of((previous >> Level) - 1), joined.before);
  if (last >> Level & 1) joined.total = op(left_of((last >> Level) - 1), joined.total);
}

// Lane g << Level holds what the g-th run of 2^Level waves ends with.
template <unsigned Level, unsigned Warps, class T, class Op>
COOP_DEVICE void join_by_lanes(Joined<T> &joined, T ends, unsigned warp, unsigned last, unsigned lane, Op op) {
  if constexpr ((1u << Level) < Warps) {
    join<Level>(joined, warp, last, op, [&](unsigned run) { return lanes::from_uniform(ends, run << Level); });
    if constexpr ((2u << Level) < Warps) {
      const T right = lanes::down<(1 << Level)>(ends);
      if (lane + (1u << Level) <= last) ends = op(ends, right);
      join_by_lanes<Level + 1, Warps>(joined, ends, warp, last, lane, op);
    }
  }
}

// The same out of shared memory: element g << Level. The first wave, which has lanes enough, makes the next level.
template <unsigned Level, unsigned Warps, class T, class Op>
COOP_DEVICE void join_by_memory(Joined<T> &joined, T *ends, unsigned rank, unsigned warp, unsigned last, Op op) {
  if constexpr ((1u << Level) < Warps) {
    join<Level>(joined, warp, last, op, [&](unsigned run) { return ends[run << Level]; });
    if constexpr ((2u << Level) < Warps) {
      barrier();
      const unsigned right = rank + (1u << Level);
      if (rank % (2u << Level) == 0 && right <= last) ends[rank] = op(ends[rank], ends[right]);
      barrier();
      join_by_memory<Level + 1, Warps>(joined, ends, rank, warp, last, op);
    }
  }
}

}  // namespace detail

// What a scan gives each thread. `before` is the inclusive result of the thread to the left, and means nothing in rank
// 0.
template <class T>
struct Scanned {
  T inclusive;
  T before;
  T total;
};

// ---- warps: aligned runs of `width` lanes, a power of two ----

// The result is that of the first `valid` ranks. Defined in every thread.
template <class T, class Op>
COOP_DEVICE T warp_reduce(Warp warp, T value, Op op, unsigned valid) {
  const unsigned rank = warp.rank();
  value = lanes::reduce(value, rank, warp.width, valid, false, op);
  return warp.width == warp_size ? lanes::from_first(value) : lanes::from(value, lanes::own() & ~(warp.width - 1));
}

template <class T, unsigned Width = warp_size, class Op>
COOP_DEVICE T warp_reduce(T value, Op op) {
  detail::check_width<Width>();
  const unsigned lane = lanes::own();
  value = lanes::reduce(value, lane & (Width - 1), Width, Width, true, op);
  return Width == warp_size ? lanes::from_first(value) : lanes::from(value, lane & ~(Width - 1));
}

template <class T, class Op>
COOP_DEVICE Scanned<T> warp_scan(Warp warp, T value, Op op, unsigned size) {
  const unsigned lane = lanes::own();
  Scanned<T> scanned;
  scanned.inclusive = lanes::scan(value, lane, warp.width, op);
  scanned.before = lanes::from(scanned.inclusive, (lane - 1) % warp_size);
  scanned.total = lanes::from(scanned.inclusive, (lane & ~(warp.width - 1)) + size - 1);
  return scanned;
}

template <class T, unsigned Width = warp_size, class Op>
COOP_DEVICE T warp_inclusive_scan(T value, Op op) {
  detail::check_width<Width>();
  return lanes::scan(value, lanes::own(), Width, op);
}

template <class T, unsigned Width = warp_size, class Op>
COOP_DEVICE T warp_exclusive_scan(T value, Op op, T initial) {
  detail::check_width<Width>();
  const Scanned<T> scanned = warp_scan(Warp{Width}, value, op, Width);
  const T before = op(initial, scanned.before);
  return (lanes::own() & (Width - 1)) ? before : initial;
}

// Bit r belongs to rank r of the warp.
COOP_DEVICE unsigned long long warp_ballot(Warp warp, bool condition) {
  const unsigned long long mask = lanes::ballot(condition);
  const unsigned first = lanes::own() & ~(warp.width - 1);
  return warp.width == 64 ? mask : (mask >> first) & ((1ull << warp.width) - 1);
}

// Ranks of the warp whose value is the thread's own. One turn for each different value of the wave.
template <class T>
COOP_DEVICE unsigned long long warp_match(Warp warp, T value) {
  unsigned long long mine = 0;
  bool open = true;
  while (open) {
    const T first = lanes::from_first(value);
    const bool same = value == first;
    const unsigned long long mask = lanes::ballot(same);
    if (same) mine = mask;
    open = !same && value == value;
  }
  // Lanes leave the loop with those that share their value, wherever in the wave they are: cut the warp's part out.
  const unsigned first = lanes::own() & ~(warp.width - 1);
  return warp.width == 64 ? mine : (mine >> first) & ((1ull << warp.width) - 1);
}

// A source outside the warp gives the thread its own value.
template <class T>
COOP_DEVICE T warp_shuffle(Warp warp, T value, long long source, unsigned size) {
  const unsigned lane = lanes::own();
  const bool inside = source >= 0 && source < static_cast<long long>(size);
  return lanes::from(value, inside ? (lane & ~(warp.width - 1)) + static_cast<unsigned>(source) : lane);
}

// ---- blocks; extents of zero mean those of the launch ----

// The result is that of the first `valid` ranks. Defined in every thread.
template <class T, unsigned X = 0, unsigned Y = 1, unsigned Z = 1, class Op>
COOP_DEVICE T block_reduce(T value, Op op, unsigned valid) {
  using Threads = Block<X, Y, Z>;
  constexpr unsigned slots = detail::warps_of<X, Y, Z>();
  const unsigned lane = lanes::own(), warp = detail::warp_of(Threads::rank());
  const unsigned left = valid > warp * warp_size ? valid - warp * warp_size : 0;
  if (left >= warp_size) {
    value = lanes::reduce(value, lane, warp_size, warp_size, true, op);
  } else {
    value = lanes::reduce(value, lane, warp_size, left, false, op);
  }
  if (slots > 1 && Threads::size() > warp_size) {
    T *shared = detail::shared_slots<T, slots>();
    if (lane == 0) shared[warp] = value;
    barrier();
    const unsigned count = (valid + warp_size - 1) / warp_size;
    value = shared[lane < count ? lane : 0];
    value = lanes::reduce(value, lane, detail::power_of_two(slots), count, false, op);
    barrier();
    if (detail::has_short_wave<X * Y * Z>(Threads::size(), count)) {  // the first wave has lanes for all
      if (warp == 0 && lane == 0) shared[0] = value;
      barrier();
      value = shared[0];
      barrier();
    }
  }
  return lanes::from_first(value);
}

template <class T, unsigned X, unsigned Y = 1, unsigned Z = 1, class Op>
COOP_DEVICE T block_reduce(T value, Op op) {
  return block_reduce<T, X, Y, Z>(value, op, Block<X, Y, Z>::size());
}

template <class T, unsigned X, unsigned Y = 1, unsigned Z = 1>
COOP_DEVICE T block_sum(T value) {
  return block_reduce<T, X, Y, Z>(value, Plus{});
}

template <class T, unsigned X, unsigned Y = 1, unsigned Z = 1>
COOP_DEVICE T block_min(T value) {
  return block_reduce<T, X, Y, Z>(value, Min{});
}

template <class T, unsigned X, unsigned Y = 1, unsigned Z = 1>
COOP_DEVICE T block_max(T value) {
  return block_reduce<T, X, Y, Z>(value, Max{});
}

// Joins the waves' scans. At level k, a wave with bit k set takes what the 2^k waves to its left end with.
template <class T, unsigned X = 0, unsigned Y = 1, unsigned Z = 1, class Op>
COOP_DEVICE Scanned<T> block_scan(T value, Op op) {
  using Threads = Block<X, Y, Z>;
  constexpr unsigned slots = detail::warps_of<X, Y, Z>();
  const unsigned size = Threads::size(), lane = lanes::own(), warp = detail::warp_of(Threads::rank());
  Scanned<T> scanned;
  scanned.inclusive = lanes::scan(value, lane, warp_size, op);
  if (slots == 1 || size <= warp_size) {
    scanned.before = lanes::from(scanned.inclusive, (lane - 1) % warp_size);
    scanned.total = lanes::from_uniform(scanned.inclusive, size - 1);
    return scanned;
  }
  T *shared = detail::shared_slots<T, slots>();
  const unsigned warps = (size + warp_size - 1) / warp_size;
  if (lane == detail::smaller(warp_size, size - warp * warp_size) - 1) shared[warp] = scanned.inclusive;
  barrier();
  const unsigned last = warps - 1;
  detail::Joined<T> joined{scanned.inclusive, shared[warp == 0 ? 0 : warp - 1], shared[last]};
  if (detail::has_short_wave<X * Y * Z>(size, warps)) {
    detail::join_by_memory<0, slots>(joined, shared, Threads::rank(), warp, last, op);
  } else {
    detail::join_by_lanes<0, slots>(joined, shared[lane < warps ? lane : 0], warp, last, lane, op);
  }
  barrier();
  scanned.inclusive = joined.inclusive;
  scanned.total = joined.total;
  const T neighbour = lanes::from(scanned.inclusive, (lane - 1) % warp_size);
  scanned.before = lane == 0 ? joined.before : neighbour;
  return scanned;
}

template <class T, unsigned X, unsigned Y = 1, unsigned Z = 1, class Op>
COOP_DEVICE T block_inclusive_scan(T value, Op op) {
  return block_scan<T, X, Y, Z>(value, op).inclusive;
}

template <class T, unsigned X, unsigned Y = 1, unsigned Z = 1, class Op>
COOP_DEVICE T block_exclusive_scan(T value, Op op, T initial) {
  const Scanned<T> scanned = block_scan<T, X, Y, Z>(value, op);
  const T before = op(initial, scanned.before);
  return Block<X, Y, Z>::rank() == 0 ? initial : before;
}

COOP_DEVICE bool block_any(bool condition) { return block_reduce<int>(condition, Or{}, Block<>::size()) != 0; }
COOP_DEVICE bool block_all(bool condition) { return block_reduce<int>(condition, And{}, Block<>::size()) != 0; }

// The value of one thread, in every thread.
template <class T>
COOP_DEVICE T block_broadcast(T value, unsigned source, unsigned rank) {
  T *shared = detail::shared_slots<T, 1>();
  if (rank == source) *shared = value;
  barrier();
  const T taken = *shared;
  barrier();
  return taken;
}

// A source outside the block gives the thread its own value. LDS for a value of each thread.
template <class T, unsigned Threads = COOP_MOST_THREADS>
COOP_DEVICE T block_shuffle(T value, long long source, unsigned rank, unsigned size) {
  T *shared = detail::shared_slots<T, Threads>();
  shared[rank] = value;
  barrier();
  const bool inside = source >= 0 && source < static_cast<long long>(size);
  const T taken = shared[inside ? static_cast<unsigned>(source) : rank];
  barrier();
  return taken;
}

}  // namespace rocpy

#include "rocpy_coop_groups.h"
#include "rocpy_coop_move.h"
#include "rocpy_coop_neighbours.h"
#include "rocpy_coop_sort.h"
