// SPDX-License-Identifier: MIT
// What kernels compiled from Python call by name: the state of their thread, barriers, memory.
// rocpy/cooperative/numba/runtime.py calls the same on the CPU, where csrc/simt answers. Groups are named by their
// width; 0 is the block.
#pragma once

#include "rocpy_coop.h"
#include "rocpy_coop_math.h"

#define COOP_PYTHON extern "C" __attribute__((device)) __attribute__((always_inline))

// A function of rocpy_coop_math.h under the names that kernels call it by.
#define COOP_PYTHON_MATH(name)                                                    \
  COOP_PYTHON double rocpy_math_##name(double x) { return rocpy::math::name(x); } \
  COOP_PYTHON float rocpy_math_##name##f(float x) {                               \
    return static_cast<float>(rocpy::math::name(static_cast<double>(x)));         \
  }

namespace rocpy::python {

COOP_DEVICE unsigned extent(unsigned axis) {
  return axis == 0   ? __builtin_amdgcn_workgroup_size_x()
         : axis == 1 ? __builtin_amdgcn_workgroup_size_y()
                     : __builtin_amdgcn_workgroup_size_z();
}

// What a launch puts behind the kernel's own arguments (code object version 5).
constexpr unsigned block_count_word = 0;
constexpr unsigned dynamic_lds_word = 30;
COOP_DEVICE unsigned hidden(unsigned word) { return ((const unsigned *)__builtin_amdgcn_implicitarg_ptr())[word]; }

extern "C" __attribute__((device)) __attribute__((shared)) unsigned char rocpy_device_dynamic[];

// A warp of Python's: its width may be known only when the kernel runs.
COOP_DEVICE Warp warp(unsigned width) { return Warp{width}; }
COOP_DEVICE unsigned rank_in(unsigned width) { return width == 0 ? Block<>::rank() : warp(width).rank(); }
COOP_DEVICE unsigned size_of(unsigned width) {
  return width == 0 ? Block<>::size() : warp(width).size(Block<>::rank(), Block<>::size());
}

template <class T, class Op>
COOP_DEVICE void reduce(T *value, int width, long long valid, Op op) {
  const unsigned size = size_of(width);
  const unsigned limit = valid < 0 ? 0 : valid < static_cast<long long>(size) ? static_cast<unsigned>(valid) : size;
  *value = width == 0 ? block_reduce<T>(*value, op, limit) : warp_reduce(warp(width), *value, op, limit);
}

template <class T, class Op>
COOP_DEVICE void scan(T *value, T *before, T *total, int width, Op op) {
  const Scanned<T> scanned =
      width == 0 ? block_scan<T>(*value, op) : warp_scan(warp(width), *value, op, size_of(width));
  *value = scanned.inclusive;
  *before = scanned.before;
  *total = scanned.total;
}

template <class T>
COOP_DEVICE void shuffle(T *value, int width, long long source) {
  if (width == 0) {
    *value = block_shuffle<T>(*value, source, Block<>::rank(), Block<>::size());
  } else {
    *value = warp_shuffle(warp(width), *value, source, size_of(width));
  }
}

template <class T>
COOP_DEVICE void broadcast(T *value, int width, long long source) {
  if (width == 0) {
    *value = block_broadcast(*value, static_cast<unsigned>(source), Block<>::rank());
  } else {
    *value = warp_shuffle(warp(width), *value, source, size_of(width));
  }
}

// An operator that Python defines: the compiled function is linked in and becomes part of the kernel.
template <class T, void (*Function)(T *, const T *, const T *)>
struct Operator {
  COOP_DEVICE T operator()(T a, T b) const {
    T result = a;
    Function(&result, &a, &b);
    return result;
  }
};

// The same of two keys: whether the first comes before the second.
template <class T, void (*Function)(unsigned char *, const T *, const T *)>
struct Before {
  COOP_DEVICE bool operator()(const T &a, const T &b) const {
    unsigned char result = 0;
    Function(&result, &a, &b);
    return result != 0;
  }
};

// Values that only their size is known of: complex numbers, structured values.
template <unsigned Size, unsigned Alignment>
struct alignas(Alignment) Bytes {
  unsigned char data[Size];
};

// A group of Python's with its own part of the block's shared memory, which the caller gives.
struct Group {
  unsigned width;
  unsigned char *memory;
  static constexpr unsigned most_threads = COOP_MOST_THREADS;  // of the block
  COOP_DEVICE unsigned rank() const { return rank_in(width); }
  COOP_DEVICE unsigned size() const { return size_of(width); }
  COOP_DEVICE void sync() const {
    if (width == 0) {
      barrier();
    } else {
      warp_barrier();
    }
  }
};

template <class T, unsigned Each>
COOP_DEVICE T *scratch_of(Group group) {
  return reinterpret_cast<T *>(group.memory);
}

template <class T, class Op>
COOP_DEVICE Scanned<T> scan_in(Group group, T value, Op op) {
  return group.width == 0 ? block_scan<T>(value, op) : warp_scan(warp(group.width), value, op, group.size());
}

COOP_DEVICE unsigned clamped(long long value, unsigned most) {
  return value < 0 ? 0 : value < static_cast<long long>(most) ? static_cast<unsigned>(value) : most;
}

template <unsigned Items, class T>
COOP_DEVICE T (&items_at(T *first)) [Items] { return *reinterpret_cast<T(*)[Items]>(first); }

template <unsigned Items, class K, class Order>
COOP_DEVICE void merge_sort_keys(Group group, K *keys, Order order, long long valid, long long) {
  rocpy::merge_sort_keys(group, items_at<Items>(keys), order, clamped(valid, group.size() * Items));
}

template <unsigned Items, class K, class V, class Order>
COOP_DEVICE void merge_sort_pairs(Group group, K *keys, V *values, Order order, long long valid, long long) {
  const unsigned n = clamped(valid, group.size() * Items);
  rocpy::merge_sort_pairs(group, items_at<Items>(keys), items_at<Items>(values), order, n);
}

template <unsigned Items, class K, class Order>
COOP_DEVICE void topk_keys(Group group, K *keys, Order order, long long k, long long valid) {
  const unsigned n = clamped(valid, group.size() * Items);
  detail::merge_sort(group, items_at<Items>(keys), order, n, clamped(k, n));
}

template <unsigned Items, class K, class V, class Order>
COOP_DEVICE void topk_pairs(Group group, K *keys, V *values, Order order, long long k, long long valid) {
  const unsigned n = clamped(valid, group.size() * Items);
  detail::merge_pairs(group, items_at<Items>(keys), items_at<Items>(values), order, n, clamped(k, n));
}

// From blocked to striped, for what is sorted.
template <unsigned Items, class T>
COOP_DEVICE void stripe(Group group, T (&items)[Items]) {
  T *const scratch = scratch_of<T, Items>(group);
  const unsigned rank = group.rank(), size = group.size();
#pragma unroll
  for (unsigned k = 0; k < Items; ++k) scratch[rank * Items + k] = items[k];
  group.sync();
#pragma unroll
  for (unsigned k = 0; k < Items; ++k) items[k] = scratch[k * size + rank];
  group.sync();
}

template <bool Descending, bool Striped, unsigned Bits, unsigned Items, class K>
COOP_DEVICE void radix_sort_keys(Group group, K *keys, long long begin, long long end) {
  auto &own = items_at<Items>(keys);
  rocpy::radix_sort_keys<Descending>(group, own, clamped(begin, Bits), clamped(end, Bits));
  if (Striped) stripe(group, own);
}

template <bool Descending, bool Striped, unsigned Bits, unsigned Items, class K, class V>
COOP_DEVICE void radix_sort_pairs(Group group, K *keys, V *values, long long begin, long long end) {
  auto &own = items_at<Items>(keys);
  auto &others = items_at<Items>(values);
  rocpy::radix_sort_pairs<Descending>(group, own, others, clamped(begin, Bits), clamped(end, Bits));
  if (Striped) {
    stripe(group, own);
    stripe(group, others);
  }
}

template <bool Descending, unsigned Bits, unsigned Items, class K>
COOP_DEVICE void radix_rank(Group group, const K *keys, int *ranks, long long begin, long long end) {
  rocpy::radix_rank<Descending>(group, items_at<Items>(keys), items_at<Items>(ranks), clamped(begin, Bits),
                                clamped(end, Bits));
}

}  // namespace rocpy::python

// Files that are linked with one that has these define COOP_PYTHON_PART.
#ifndef COOP_PYTHON_PART

// Words of rocpy_simt_state (csrc/simt/simt.h), by their number.
COOP_PYTHON int rocpy_device_word(int word) {
  switch (word) {
    case 0:
      return static_cast<int>(__builtin_amdgcn_workitem_id_x());
    case 1:
      return static_cast<int>(__builtin_amdgcn_workitem_id_y());
    case 2:
      return static_cast<int>(__builtin_amdgcn_workitem_id_z());
    case 3:
      return static_cast<int>(__builtin_amdgcn_workgroup_id_x());
    case 4:
      return static_cast<int>(__builtin_amdgcn_workgroup_id_y());
    case 5:
      return static_cast<int>(__builtin_amdgcn_workgroup_id_z());
    case 6:
    case 7:
    case 8:
      return static_cast<int>(rocpy::python::extent(word - 6));
    case 9:
    case 10:
    case 11:
      return static_cast<int>(rocpy::python::hidden(rocpy::python::block_count_word + word - 9));
    case 12:
      return static_cast<int>(rocpy::Block<>::rank());
    case 13:
      return static_cast<int>(rocpy::Block<>::size());
    case 14:
      return static_cast<int>(rocpy::warp_size);
    default:
      return 0;  // debug mode is the CPU's
  }
}

COOP_PYTHON int rocpy_device_group_size(int width) { return static_cast<int>(rocpy::python::size_of(width)); }

COOP_PYTHON void rocpy_device_barrier(int width) {
  if (width == 0) {
    rocpy::barrier();
  } else {
    rocpy::warp_barrier();
  }
}

COOP_PYTHON unsigned char *rocpy_device_dynamic_shared() { return rocpy::python::rocpy_device_dynamic; }

COOP_PYTHON long long rocpy_device_dynamic_shared_bytes() {
  return rocpy::python::hidden(rocpy::python::dynamic_lds_word);
}

COOP_PYTHON unsigned long long rocpy_device_ballot(int width, bool condition) {
  return rocpy::warp_ballot(rocpy::python::warp(width), condition);
}

COOP_PYTHON bool rocpy_device_any(int width, bool condition) {
  return width == 0 ? rocpy::block_any(condition) : rocpy::warp_ballot(rocpy::python::warp(width), condition) != 0;
}

COOP_PYTHON bool rocpy_device_all(int width, bool condition) {
  return width == 0 ? rocpy::block_all(condition) : rocpy::warp_ballot(rocpy::python::warp(width), !condition) == 0;
}

COOP_PYTHON float rocpy_math_powf(float x, float y) { return rocpy::math::pow(x, y); }

#endif  // COOP_PYTHON_PART
