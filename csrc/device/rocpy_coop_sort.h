// SPDX-License-Identifier: MIT
// Sorts and top-k of the items of a group. All are stable: equal keys keep their order. The results are blocked.
//
// Merge sort: each thread sorts its own, then runs of neighbours are merged, every thread finding by bisection where
// its part of the merged run begins. Radix sort: four bits at a time, from the lowest.
#pragma once

#include "rocpy_coop_groups.h"

namespace rocpy {

// Which of two keys comes first. A NaN counts as the greatest.
struct Less {
  template <class T>
  COOP_DEVICE bool operator()(T a, T b) const {
    return (a < b) | ((b != b) & (a == a));
  }
};
struct Greater {
  template <class T>
  COOP_DEVICE bool operator()(T a, T b) const {
    return Less{}(b, a);
  }
};

namespace detail {

// A key with the number that it began with.
template <class T>
struct Numbered {
  T key;
  unsigned number;
};

template <class Order>
struct ByKey {
  Order order;
  template <class T>
  COOP_DEVICE bool operator()(const Numbered<T> &a, const Numbered<T> &b) const {
    return order(a.key, b.key);
  }
};

// Of the first `diagonal` elements of the merged run, how many come from a.
template <class E, class Order>
COOP_DEVICE unsigned merge_cut(const E *a, unsigned a_count, const E *b, unsigned b_count, unsigned diagonal,
                               Order order) {
  unsigned low = diagonal > b_count ? diagonal - b_count : 0, high = smaller(diagonal, a_count);
  while (low < high) {
    const unsigned middle = (low + high) / 2;
    if (order(b[diagonal - 1 - middle], a[middle])) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

template <unsigned Items, class E, class Order>
COOP_DEVICE void sort_own(E (&own)[Items], unsigned begin, unsigned n, Order order) {
#pragma unroll
  for (unsigned round = 0; round < Items; ++round) {
#pragma unroll
    for (unsigned k = round % 2; k + 1 < Items; k += 2) {
      const bool turns = (begin + k + 1 < n) & order(own[k + 1], own[k]);
      const E left = own[k], right = own[k + 1];
      own[k] = turns ? right : left;
      own[k + 1] = turns ? left : right;
    }
  }
}

// Orders the first n items; of each merged run no more than `wanted` are made, so that the rest is undefined when
// `wanted` is less than n.
template <class Group, class E, unsigned Items, class Order>
COOP_DEVICE void merge_sort(Group group, E (&own)[Items], Order order, unsigned n, unsigned wanted) {
  const unsigned rank = group.rank(), begin = rank * Items;
  sort_own(own, begin, n, order);
  E *const scratch = scratch_of<E, Items>(group);
  for (unsigned threads = 1; threads * Items < n; threads *= 2) {
#pragma unroll
    for (unsigned k = 0; k < Items; ++k) scratch[begin + k] = own[k];
    group.sync();
    const unsigned width = threads * Items, first = rank / (2 * threads) * 2 * width;
    const unsigned middle = smaller(first + width, n), end = smaller(first + 2 * width, n);
    const unsigned a_count = smaller(middle - smaller(first, middle), wanted);
    const unsigned b_count = smaller(end - middle, wanted), diagonal = begin - first;
    if (diagonal < a_count + b_count) {
      const E *const a = scratch + first, *const b = scratch + first + width;
      unsigned i = merge_cut(a, a_count, b, b_count, diagonal, order), j = diagonal - i;
#pragma unroll
      for (unsigned k = 0; k < Items; ++k) {
        if (i + j < a_count + b_count) {
          const bool from_b = i >= a_count || (j < b_count && order(b[j], a[i]));
          own[k] = from_b ? b[j++] : a[i++];
        }
      }
    }
    group.sync();
  }
}

template <class Group, class T, unsigned Items>
COOP_DEVICE void number(Group group, const T (&keys)[Items], Numbered<T> (&numbered)[Items]) {
#pragma unroll
  for (unsigned k = 0; k < Items; ++k) numbered[k] = {keys[k], group.rank() * Items + k};
}

// Takes the keys back, and the values that began where they did, of the first n.
template <class Group, class T, class V, unsigned Items>
COOP_DEVICE void take_pairs(Group group, const Numbered<T> (&numbered)[Items], T (&keys)[Items], V (&values)[Items],
                            unsigned n) {
  V *const scratch = scratch_of<V, Items>(group);
#pragma unroll
  for (unsigned k = 0; k < Items; ++k) scratch[group.rank() * Items + k] = values[k];
  group.sync();
#pragma unroll
  for (unsigned k = 0; k < Items; ++k) {
    keys[k] = numbered[k].key;
    if (group.rank() * Items + k < n) values[k] = scratch[numbered[k].number];
  }
  group.sync();
}

template <class Group, class T, class V, unsigned Items, class Order>
COOP_DEVICE void merge_pairs(Group group, T (&keys)[Items], V (&values)[Items], Order order, unsigned n,
                             unsigned wanted) {
  Numbered<T> numbered[Items];
  number(group, keys, numbered);
  merge_sort(group, numbered, ByKey<Order>{order}, n, wanted);
  take_pairs(group, numbered, keys, values, smaller(n, wanted));
}

// ---- bits of keys ----

template <unsigned Bytes>
struct WordOf;
template <>
struct WordOf<1> {
  using type = unsigned char;
};
template <>
struct WordOf<2> {
  using type = unsigned short;
};
template <>
struct WordOf<4> {
  using type = unsigned;
};
template <>
struct WordOf<8> {
  using type = unsigned long long;
};

// A key as an unsigned integer of the same order: -0 and 0 are one, a NaN comes beyond the infinity of its sign.
template <class T>
COOP_DEVICE unsigned long long bits_of(T key) {
  using Word = typename WordOf<sizeof(T)>::type;
  constexpr Word top = static_cast<Word>(Word(1) << (sizeof(T) * 8 - 1));
  Word word;
  if (static_cast<T>(1.5f) != static_cast<T>(1)) {
    const T normalized = key == static_cast<T>(0) ? static_cast<T>(0) : key;
    __builtin_memcpy(&word, &normalized, sizeof word);
    word = static_cast<Word>((word & top) ? ~word : word ^ top);
  } else {
    __builtin_memcpy(&word, &key, sizeof word);
    if (static_cast<T>(-1) < static_cast<T>(0)) word = static_cast<Word>(word ^ top);
  }
  return word;
}

template <class T>
COOP_DEVICE T key_of(T key) {
  return key;
}
template <class T>
COOP_DEVICE T key_of(const Numbered<T> &numbered) {
  return numbered.key;
}

constexpr unsigned digit_bits = 4, digit_count = 1u << digit_bits;

// The type that counts the positions of so many items.
template <bool Few>
struct CounterIf {
  using type = unsigned short;
};
template <>
struct CounterIf<false> {
  using type = unsigned;
};
template <unsigned Count>
using CounterOf = typename CounterIf<(Count <= 65536)>::type;

// Orders by one digit: a column of counters for each thread, which a scan over all turns into positions.
template <class Group, class E, unsigned Items, class Digit>
COOP_DEVICE void sort_digit(Group group, E (&own)[Items], Digit digit_of) {
  using Counter = CounterOf<Group::most_threads * Items>;
  const unsigned rank = group.rank(), size = group.size();
  Counter *const counters = scratch_of<Counter, digit_count>(group);
  unsigned position[Items];
#pragma unroll
  for (unsigned d = 0; d < digit_count; ++d) counters[d * size + rank] = 0;
#pragma unroll
  for (unsigned k = 0; k < Items; ++k) {
    Counter &counter = counters[digit_of(own[k]) * size + rank];
    position[k] = counter;
    counter = static_cast<Counter>(position[k] + 1);
  }
  group.sync();
  unsigned counts[digit_count], total = 0;
#pragma unroll
  for (unsigned d = 0; d < digit_count; ++d) {
    counts[d] = counters[rank * digit_count + d];
    total += counts[d];
  }
  unsigned before = scan_in(group, total, Plus{}).inclusive - total;
#pragma unroll
  for (unsigned d = 0; d < digit_count; ++d) {
    counters[rank * digit_count + d] = static_cast<Counter>(before);
    before += counts[d];
  }
  group.sync();
#pragma unroll
  for (unsigned k = 0; k < Items; ++k) position[k] += counters[digit_of(own[k]) * size + rank];
  E *const scratch = scratch_of<E, Items>(group);
  group.sync();
#pragma unroll
  for (unsigned k = 0; k < Items; ++k) scratch[position[k]] = own[k];
  group.sync();
#pragma unroll
  for (unsigned k = 0; k < Items; ++k) own[k] = scratch[rank * Items + k];
  group.sync();
}

template <bool Descending, class Group, class E, unsigned Items>
COOP_DEVICE void radix_sort(Group group, E (&own)[Items], unsigned begin_bit, unsigned end_bit) {
  for (unsigned bit = begin_bit; bit < end_bit; bit += digit_bits) {
    const unsigned mask = (1u << smaller(digit_bits, end_bit - bit)) - 1;
    sort_digit(group, own, [=](const E &element) {
      const unsigned digit = static_cast<unsigned>(bits_of(key_of(element)) >> bit) & mask;
      return Descending ? digit ^ mask : digit;
    });
  }
}

}  // namespace detail

// ---- merge sort: the first `valid` items; the others stay where they are ----

template <class Group, class T, unsigned Items, class Order = Less>
COOP_DEVICE void merge_sort_keys(Group group, T (&keys)[Items], Order order = {}, unsigned valid = all_items) {
  detail::merge_sort(group, keys, order, detail::items_of<Items>(group, valid), all_items);
}

template <class Group, class T, class V, unsigned Items, class Order = Less>
COOP_DEVICE void merge_sort_pairs(Group group, T (&keys)[Items], V (&values)[Items], Order order = {},
                                  unsigned valid = all_items) {
  detail::merge_pairs(group, keys, values, order, detail::items_of<Items>(group, valid), all_items);
}

// ---- radix sort: by the bits from `begin_bit` up to `end_bit` ----

template <bool Descending = false, class Group, class T, unsigned Items>
COOP_DEVICE void radix_sort_keys(Group group, T (&keys)[Items], unsigned begin_bit = 0,
                                 unsigned end_bit = 8 * sizeof(T)) {
  detail::radix_sort<Descending>(group, keys, begin_bit, end_bit);
}

template <bool Descending = false, class Group, class T, class V, unsigned Items>
COOP_DEVICE void radix_sort_pairs(Group group, T (&keys)[Items], V (&values)[Items], unsigned begin_bit = 0,
                                  unsigned end_bit = 8 * sizeof(T)) {
  detail::Numbered<T> numbered[Items];
  detail::number(group, keys, numbered);
  detail::radix_sort<Descending>(group, numbered, begin_bit, end_bit);
  detail::take_pairs(group, numbered, keys, values, all_items);
}

// The number that each key would have after a radix sort.
template <bool Descending = false, class Group, class T, unsigned Items>
COOP_DEVICE void radix_rank(Group group, const T (&keys)[Items], int (&ranks)[Items], unsigned begin_bit = 0,
                            unsigned end_bit = 8 * sizeof(T)) {
  detail::Numbered<T> numbered[Items];
  detail::number(group, keys, numbered);
  detail::radix_sort<Descending>(group, numbered, begin_bit, end_bit);
  using detail::scratch_of;
  int *const scratch = scratch_of<int, Items>(group);
  const unsigned begin = group.rank() * Items;
#pragma unroll
  for (unsigned k = 0; k < Items; ++k) scratch[numbered[k].number] = static_cast<int>(begin + k);
  group.sync();
#pragma unroll
  for (unsigned k = 0; k < Items; ++k) ranks[k] = scratch[begin + k];
  group.sync();
}

// ---- top-k: the k first of the first `valid` items, in order; items from the smaller of the two on are undefined ----

template <class Group, class T, unsigned Items>
COOP_DEVICE void topk_max_keys(Group group, T (&keys)[Items], unsigned k, unsigned valid = all_items) {
  detail::merge_sort(group, keys, Greater{}, detail::items_of<Items>(group, valid), k);
}
template <class Group, class T, unsigned Items>
COOP_DEVICE void topk_min_keys(Group group, T (&keys)[Items], unsigned k, unsigned valid = all_items) {
  detail::merge_sort(group, keys, Less{}, detail::items_of<Items>(group, valid), k);
}
template <class Group, class T, class V, unsigned Items>
COOP_DEVICE void topk_max_pairs(Group group, T (&keys)[Items], V (&values)[Items], unsigned k,
                                unsigned valid = all_items) {
  detail::merge_pairs(group, keys, values, Greater{}, detail::items_of<Items>(group, valid), k);
}
template <class Group, class T, class V, unsigned Items>
COOP_DEVICE void topk_min_pairs(Group group, T (&keys)[Items], V (&values)[Items], unsigned k,
                                unsigned valid = all_items) {
  detail::merge_pairs(group, keys, values, Less{}, detail::items_of<Items>(group, valid), k);
}

}  // namespace rocpy
