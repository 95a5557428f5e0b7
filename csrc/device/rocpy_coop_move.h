// SPDX-License-Identifier: MIT
// Items between threads and memory, and from one arrangement to another.
//
// Arrangements of n items of each thread: blocked, item k of rank r is number r * n + k; striped, number k * size + r;
// warp-striped, striped within each wave, whose items lie together.
#pragma once

#include "rocpy_coop_groups.h"

namespace rocpy {

// How a tile is read or written. The items are blocked, of `striped` striped. direct: each thread its own; vectorize:
// by 16 bytes where addresses allow it; transpose and warp_transpose: neighbours in memory by neighbouring threads of
// the group or of the wave, then through LDS.
enum class Memory { direct, striped, vectorize, transpose, warp_transpose };

enum class Exchange {
  blocked_to_striped,
  striped_to_blocked,
  blocked_to_warp_striped,
  warp_striped_to_blocked,
};

namespace detail {

typedef unsigned Quad __attribute__((ext_vector_type(4), may_alias));

template <class T, unsigned Items>
COOP_DEVICE bool goes_by_quads(const T *memory) {
  return sizeof(T) * Items % sizeof(Quad) == 0 && reinterpret_cast<unsigned long long>(memory) % sizeof(Quad) == 0;
}

template <unsigned Items, class Group, class T>
COOP_DEVICE void read_transposed(Group group, const T *source, T (&out)[Items], unsigned valid) {
  T *const scratch = scratch_of<T, Items>(group);
  const unsigned rank = group.rank(), size = group.size();
#pragma unroll
  for (unsigned k = 0; k < Items; ++k) {
    const unsigned at = k * size + rank;
    if (at < valid) scratch[at] = source[at];
  }
  group.sync();
#pragma unroll
  for (unsigned k = 0; k < Items; ++k) {
    if (rank * Items + k < valid) out[k] = scratch[rank * Items + k];
  }
  group.sync();
}

template <unsigned Items, class Group, class T>
COOP_DEVICE void write_transposed(Group group, T *target, const T (&items)[Items], unsigned valid) {
  T *const scratch = scratch_of<T, Items>(group);
  const unsigned rank = group.rank(), size = group.size();
#pragma unroll
  for (unsigned k = 0; k < Items; ++k) scratch[rank * Items + k] = items[k];
  group.sync();
#pragma unroll
  for (unsigned k = 0; k < Items; ++k) {
    const unsigned at = k * size + rank;
    if (at < valid) target[at] = scratch[at];
  }
  group.sync();
}

// The waves of a block, or a tile itself, and the rank in the group of the first thread of each.
template <unsigned X, unsigned Y, unsigned Z>
COOP_DEVICE Tile<warp_size, Block<X, Y, Z>::most_threads> wave_of(Block<X, Y, Z>) {
  return {};
}
template <unsigned Width, unsigned Most>
COOP_DEVICE Tile<Width, Most> wave_of(Tile<Width, Most> tile) {
  return tile;
}

template <class Group>
COOP_DEVICE unsigned first_of_wave(Group group) {
  return group.rank() - wave_of(group).rank();
}

COOP_DEVICE unsigned beyond(unsigned valid, unsigned first) { return valid > first ? valid - first : 0; }

template <bool Striped, unsigned Items>
COOP_DEVICE unsigned index_of(unsigned rank, unsigned size, unsigned k) {
  return Striped ? k * size + rank : rank * Items + k;
}

}  // namespace detail

// Fills the items from a tile that begins at `source`; those from `valid` on keep what they held.
template <Memory Strategy = Memory::direct, class Group, class T, unsigned Items>
COOP_DEVICE void load(Group group, const T *source, T (&out)[Items], unsigned valid = all_items) {
  const unsigned rank = group.rank(), size = group.size();
  if (Strategy == Memory::transpose) {
    detail::read_transposed(group, source, out, valid);
  } else if (Strategy == Memory::warp_transpose) {
    const unsigned first = detail::first_of_wave(group) * Items;
    detail::read_transposed(detail::wave_of(group), source + first, out, detail::beyond(valid, first));
  } else if (Strategy == Memory::vectorize && size * Items <= valid && detail::goes_by_quads<T, Items>(source)) {
    const detail::Quad *from = reinterpret_cast<const detail::Quad *>(source + rank * Items);
#pragma unroll
    for (unsigned k = 0; k < sizeof(out) / sizeof(detail::Quad); ++k) {
      const detail::Quad quad = from[k];
      __builtin_memcpy(reinterpret_cast<unsigned char *>(out) + k * sizeof quad, &quad, sizeof quad);
    }
  } else {
#pragma unroll
    for (unsigned k = 0; k < Items; ++k) {
      const unsigned at = detail::index_of<Strategy == Memory::striped, Items>(rank, size, k);
      if (at < valid) out[k] = source[at];
    }
  }
}

// The same; items from `valid` on get `instead`.
template <Memory Strategy = Memory::direct, class Group, class T, unsigned Items>
COOP_DEVICE void load(Group group, const T *source, T (&out)[Items], unsigned valid, T instead) {
#pragma unroll
  for (unsigned k = 0; k < Items; ++k) out[k] = instead;
  load<Strategy>(group, source, out, valid);
}

// Writes the items to a tile that begins at `target`, as far as there are `valid` ones.
template <Memory Strategy = Memory::direct, class Group, class T, unsigned Items>
COOP_DEVICE void store(Group group, T *target, const T (&items)[Items], unsigned valid = all_items) {
  const unsigned rank = group.rank(), size = group.size();
  if (Strategy == Memory::transpose) {
    detail::write_transposed(group, target, items, valid);
  } else if (Strategy == Memory::warp_transpose) {
    const unsigned first = detail::first_of_wave(group) * Items;
    detail::write_transposed(detail::wave_of(group), target + first, items, detail::beyond(valid, first));
  } else if (Strategy == Memory::vectorize && size * Items <= valid && detail::goes_by_quads<T, Items>(target)) {
    detail::Quad *to = reinterpret_cast<detail::Quad *>(target + rank * Items);
#pragma unroll
    for (unsigned k = 0; k < sizeof(items) / sizeof(detail::Quad); ++k) {
      detail::Quad quad;
      __builtin_memcpy(&quad, reinterpret_cast<const unsigned char *>(items) + k * sizeof quad, sizeof quad);
      to[k] = quad;
    }
  } else {
#pragma unroll
    for (unsigned k = 0; k < Items; ++k) {
      const unsigned at = detail::index_of<Strategy == Memory::striped, Items>(rank, size, k);
      if (at < valid) target[at] = items[k];
    }
  }
}

namespace detail {

enum class Order { blocked, striped, warp_striped };

template <Order Arrangement, unsigned Items, class Group>
COOP_DEVICE unsigned number_of(Group group, unsigned k) {
  const unsigned rank = group.rank();
  if (Arrangement == Order::blocked) return rank * Items + k;
  if (Arrangement == Order::striped) return k * group.size() + rank;
  const auto wave = wave_of(group);
  return first_of_wave(group) * Items + k * wave.size() + wave.rank();
}

template <Order From, Order To, class Group, class T, unsigned Items>
COOP_DEVICE void rearrange(Group group, const T (&items)[Items], T (&out)[Items]) {
  T *const scratch = scratch_of<T, Items>(group);
#pragma unroll
  for (unsigned k = 0; k < Items; ++k) scratch[number_of<From, Items>(group, k)] = items[k];
  group.sync();
#pragma unroll
  for (unsigned k = 0; k < Items; ++k) out[k] = scratch[number_of<To, Items>(group, k)];
  group.sync();
}

template <Order To, class Group, class T, class Rank, unsigned Items, class Takes>
COOP_DEVICE void scatter(Group group, const T (&items)[Items], const Rank (&ranks)[Items], T (&out)[Items],
                         Takes takes) {
  T *const scratch = scratch_of<T, Items>(group);
#pragma unroll
  for (unsigned k = 0; k < Items; ++k) {
    if (takes(k)) scratch[ranks[k]] = items[k];
  }
  group.sync();
#pragma unroll
  for (unsigned k = 0; k < Items; ++k) out[k] = scratch[number_of<To, Items>(group, k)];
  group.sync();
}

}  // namespace detail

template <Exchange Mode, class Group, class T, unsigned Items>
COOP_DEVICE void exchange(Group group, const T (&items)[Items], T (&out)[Items]) {
  using detail::Order;
  constexpr Order from = Mode == Exchange::striped_to_blocked        ? Order::striped
                         : Mode == Exchange::warp_striped_to_blocked ? Order::warp_striped
                                                                     : Order::blocked;
  constexpr Order to = Mode == Exchange::blocked_to_striped        ? Order::striped
                       : Mode == Exchange::blocked_to_warp_striped ? Order::warp_striped
                                                                   : Order::blocked;
  detail::rearrange<from, to>(group, items, out);
}

// Each item gets the number that `ranks` says, all different over the group. What none names is undefined in `out`.
template <class Group, class T, class Rank, unsigned Items>
COOP_DEVICE void scatter_to_blocked(Group group, const T (&items)[Items], const Rank (&ranks)[Items], T (&out)[Items]) {
  detail::scatter<detail::Order::blocked>(group, items, ranks, out, [](unsigned) { return true; });
}
template <class Group, class T, class Rank, unsigned Items>
COOP_DEVICE void scatter_to_striped(Group group, const T (&items)[Items], const Rank (&ranks)[Items], T (&out)[Items]) {
  detail::scatter<detail::Order::striped>(group, items, ranks, out, [](unsigned) { return true; });
}
// Items of a negative rank are dropped.
template <class Group, class T, class Rank, unsigned Items>
COOP_DEVICE void scatter_to_striped_guarded(Group group, const T (&items)[Items], const Rank (&ranks)[Items],
                                            T (&out)[Items]) {
  detail::scatter<detail::Order::striped>(group, items, ranks, out, [&](unsigned k) { return ranks[k] >= 0; });
}
// Items whose flag is 0 are dropped.
template <class Group, class T, class Rank, class Flag, unsigned Items>
COOP_DEVICE void scatter_to_striped_flagged(Group group, const T (&items)[Items], const Rank (&ranks)[Items],
                                            const Flag (&flags)[Items], T (&out)[Items]) {
  detail::scatter<detail::Order::striped>(group, items, ranks, out, [&](unsigned k) { return flags[k] != 0; });
}

}  // namespace rocpy
