// SPDX-License-Identifier: MIT
// The primitives by group: the functions of this file and of the parts that follow take a Block or a Tile first, which
// all its threads give together. Items are the elements that each thread holds, in the order of ranks unless said
// otherwise.
//
// A part of rocpy_coop.h, which includes it.
#pragma once

namespace rocpy {

// An aligned run of Width lanes of a wave. The last one of a block may have fewer.
template <unsigned Width = warp_size, unsigned MostThreads = COOP_MOST_THREADS>
struct Tile {
  static_assert(Width != 0 && (Width & (Width - 1)) == 0 && Width <= warp_size, "a power of two, at most a wave");
  static constexpr unsigned most_threads = MostThreads;  // of the block
  COOP_DEVICE static unsigned rank() { return lanes::own() & (Width - 1); }
  COOP_DEVICE static unsigned first() { return Block<>::rank() & ~(Width - 1); }
  COOP_DEVICE static unsigned size() { return Warp{Width}.size(Block<>::rank(), Block<>::size()); }
  COOP_DEVICE static void sync() { warp_barrier(); }
};

constexpr unsigned all_items = ~0u;  // valid items of a group whose items are all there

namespace detail {

// LDS of a group, scratch for `Each` values of every thread. Groups of a block have their own parts.
template <class T, unsigned Each, class Group>
COOP_DEVICE T *scratch_of(Group group) {
  constexpr unsigned bytes = (Group::most_threads * Each * sizeof(T) + 15) / 16 * 16;
  return reinterpret_cast<T *>(shared_slots<unsigned char, bytes>()) + group.first() * Each;
}

template <class T, unsigned X, unsigned Y, unsigned Z, class Op>
COOP_DEVICE T reduce_in(Block<X, Y, Z>, T value, Op op, unsigned valid) {
  return block_reduce<T, X, Y, Z>(value, op, valid);
}
template <class T, unsigned Width, unsigned Most, class Op>
COOP_DEVICE T reduce_in(Tile<Width, Most>, T value, Op op, unsigned valid) {
  return warp_reduce(Warp{Width}, value, op, valid);
}

template <class T, unsigned X, unsigned Y, unsigned Z, class Op>
COOP_DEVICE Scanned<T> scan_in(Block<X, Y, Z>, T value, Op op) {
  return block_scan<T, X, Y, Z>(value, op);
}
template <class T, unsigned Width, unsigned Most, class Op>
COOP_DEVICE Scanned<T> scan_in(Tile<Width, Most> tile, T value, Op op) {
  return warp_scan(Warp{Width}, value, op, tile.size());
}

template <class T, unsigned X, unsigned Y, unsigned Z>
COOP_DEVICE T take_in(Block<X, Y, Z> block, T value, long long source) {
  return block_shuffle<T, Block<X, Y, Z>::most_threads>(value, source, block.rank(), block.size());
}
template <class T, unsigned Width, unsigned Most>
COOP_DEVICE T take_in(Tile<Width, Most> tile, T value, long long source) {
  return warp_shuffle(Warp{Width}, value, source, tile.size());
}

template <unsigned Items, class Group>
COOP_DEVICE unsigned items_of(Group group, unsigned valid) {
  return smaller(valid, group.size() * Items);
}

}  // namespace detail

// ---- reductions: the result is every thread's ----

template <class Group, class T, class Op>
COOP_DEVICE T reduce(Group group, T value, Op op, unsigned valid = all_items) {
  return detail::reduce_in(group, value, op, detail::smaller(valid, group.size()));
}

// Each thread's items from left to right, then the threads'.
template <class Group, class T, unsigned Items, class Op>
COOP_DEVICE T reduce(Group group, const T (&items)[Items], Op op, unsigned valid = all_items) {
  const unsigned n = detail::items_of<Items>(group, valid), begin = group.rank() * Items;
  T own = items[0];
#pragma unroll
  for (unsigned k = 1; k < Items; ++k) {
    if (begin + k < n) own = op(own, items[k]);
  }
  return detail::reduce_in(group, own, op, (n + Items - 1) / Items);
}

template <class Group, class V>
COOP_DEVICE auto sum(Group group, const V &value, unsigned valid = all_items) {
  return reduce(group, value, Plus{}, valid);
}
template <class Group, class V>
COOP_DEVICE auto min(Group group, const V &value, unsigned valid = all_items) {
  return reduce(group, value, Min{}, valid);
}
template <class Group, class V>
COOP_DEVICE auto max(Group group, const V &value, unsigned valid = all_items) {
  return reduce(group, value, Max{}, valid);
}

// Element k of the results is the reduction of the threads' elements k.
template <class Group, class T, unsigned Items, class Op>
COOP_DEVICE void reduce_batched(Group group, const T (&items)[Items], T (&results)[Items], Op op) {
#pragma unroll
  for (unsigned k = 0; k < Items; ++k) results[k] = detail::reduce_in(group, items[k], op, group.size());
}

// ---- scans: of single values, or of items into `out`; these return the combination of all, without `initial` ----

template <class Group, class T, class Op>
COOP_DEVICE T inclusive_scan(Group group, T value, Op op) {
  return detail::scan_in(group, value, op).inclusive;
}

template <class Group, class T, class Op>
COOP_DEVICE T exclusive_scan(Group group, T value, Op op, T initial) {
  const Scanned<T> scanned = detail::scan_in(group, value, op);
  const T before = op(initial, scanned.before);
  return group.rank() == 0 ? initial : before;
}

namespace detail {

// Where each thread's items begin: what stands before them, if anything does.
template <class T>
struct Before {
  T value, total;
  bool is_there;
};

template <class Group, class T, unsigned Items, class Op>
COOP_DEVICE Before<T> before_items(Group group, const T (&items)[Items], Op op) {
  T own = items[0];
#pragma unroll
  for (unsigned k = 1; k < Items; ++k) own = op(own, items[k]);
  const Scanned<T> scanned = scan_in(group, own, op);
  return {scanned.before, scanned.total, group.rank() != 0};
}

template <class T, unsigned Items, class Op>
COOP_DEVICE void scan_items(const Before<T> &before, const T (&items)[Items], T (&out)[Items], Op op, bool inclusive) {
  T running = before.value;
#pragma unroll
  for (unsigned k = 0; k < Items; ++k) {
    const T next = k == 0 && !before.is_there ? items[0] : op(running, items[k]);
    out[k] = inclusive ? next : running;
    running = next;
  }
}

template <class T, class Op>
COOP_DEVICE Before<T> started(Before<T> before, T initial, Op op) {
  const T joined = op(initial, before.value);
  before.value = before.is_there ? joined : initial;
  before.is_there = true;
  return before;
}

}  // namespace detail

template <class Group, class T, unsigned Items, class Op>
COOP_DEVICE T inclusive_scan(Group group, const T (&items)[Items], T (&out)[Items], Op op) {
  const detail::Before<T> before = detail::before_items(group, items, op);
  detail::scan_items(before, items, out, op, true);
  return before.total;
}

template <class Group, class T, unsigned Items, class Op>
COOP_DEVICE T exclusive_scan(Group group, const T (&items)[Items], T (&out)[Items], Op op, T initial) {
  const detail::Before<T> before = detail::before_items(group, items, op);
  detail::scan_items(detail::started(before, initial, op), items, out, op, false);
  return before.total;
}

// `prefix(total)` runs in rank 0; what it returns comes before the first item.
template <class Group, class T, unsigned Items, class Op, class Prefix>
COOP_DEVICE T inclusive_scan_after(Group group, const T (&items)[Items], T (&out)[Items], Op op, Prefix prefix) {
  const detail::Before<T> before = detail::before_items(group, items, op);
  T initial = before.total;
  if (group.rank() == 0) initial = prefix(before.total);
  initial = detail::take_in(group, initial, 0);
  detail::scan_items(detail::started(before, initial, op), items, out, op, true);
  return before.total;
}

template <class Group, class T, unsigned Items, class Op, class Prefix>
COOP_DEVICE T exclusive_scan_after(Group group, const T (&items)[Items], T (&out)[Items], Op op, Prefix prefix) {
  const detail::Before<T> before = detail::before_items(group, items, op);
  T initial = before.total;
  if (group.rank() == 0) initial = prefix(before.total);
  initial = detail::take_in(group, initial, 0);
  detail::scan_items(detail::started(before, initial, op), items, out, op, false);
  return before.total;
}

// ---- votes and other threads' values ----

template <class Group>
COOP_DEVICE bool any(Group group, bool condition) {
  return detail::reduce_in(group, static_cast<int>(condition), Or{}, group.size()) != 0;
}
template <class Group>
COOP_DEVICE bool all(Group group, bool condition) {
  return detail::reduce_in(group, static_cast<int>(condition), And{}, group.size()) != 0;
}
template <unsigned Width, unsigned Most>
COOP_DEVICE unsigned long long ballot(Tile<Width, Most>, bool condition) {
  return warp_ballot(Warp{Width}, condition);
}
template <unsigned Width, unsigned Most, class T>
COOP_DEVICE unsigned long long match(Tile<Width, Most>, T value) {
  return warp_match(Warp{Width}, value);
}

template <class Group, class T>
COOP_DEVICE T broadcast(Group group, T value, unsigned source) {
  return detail::take_in(group, value, source);
}
template <class Group, class T, unsigned Items>
COOP_DEVICE void broadcast(Group group, const T (&items)[Items], T (&out)[Items], unsigned source) {
#pragma unroll
  for (unsigned k = 0; k < Items; ++k) out[k] = detail::take_in(group, items[k], source);
}

// Whose value a thread of rank r gets: up r - d, down r + d, rotate (r + d) modulo the size, exchange r ^ d, index d. A
// source outside the group gives the thread its own.
enum class Shuffle { up, down, rotate, exchange, index };

template <Shuffle Mode, class Group, class T>
COOP_DEVICE T shuffle(Group group, T value, long long distance) {
  const long long rank = group.rank(), size = group.size();
  const long long rotated = (rank + distance) % size;
  const long long source = Mode == Shuffle::up         ? rank - distance
                           : Mode == Shuffle::down     ? rank + distance
                           : Mode == Shuffle::rotate   ? (rotated < 0 ? rotated + size : rotated)
                           : Mode == Shuffle::exchange ? rank ^ distance
                                                       : distance;
  return detail::take_in(group, value, source);
}

}  // namespace rocpy
