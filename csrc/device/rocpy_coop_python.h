// SPDX-License-Identifier: MIT
// What kernels compiled from Python call by name: the state of their thread, barriers, memory.
// rocpy/cooperative/numba_runtime.py calls the same on the CPU, where csrc/simt answers. Groups are named by their
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
constexpr unsigned kBlockCountWord = 0;
constexpr unsigned kDynamicLdsWord = 30;
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

// Values that only their size is known of: complex numbers, structured values.
template <unsigned Size, unsigned Alignment>
struct alignas(Alignment) Bytes {
  unsigned char data[Size];
};

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
      return static_cast<int>(rocpy::python::hidden(rocpy::python::kBlockCountWord + word - 9));
    case 12:
      return static_cast<int>(rocpy::Block<>::rank());
    case 13:
      return static_cast<int>(rocpy::Block<>::size());
    case 14:
      return static_cast<int>(rocpy::kWarp);
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
  return rocpy::python::hidden(rocpy::python::kDynamicLdsWord);
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
