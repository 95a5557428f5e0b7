// SPDX-License-Identifier: MIT
// Which kernel set is in use. Apart from kernels.hpp, so that the files built per instruction set hold no inline
// function of it.
#pragma once

#include "kernels.hpp"

namespace rocpy_host::gemm {

// The set in use: the fastest that the CPU has, or the one that ROCPY_HOST_ISA names if the CPU has it. Chosen at first
// use.
const KernelSet &kernel_set();

// The set for products that take no longer than the call that they are made by. Unless a set was named, one of vectors
// of 256 bits on Intel's processors: multiplying wider ones lowers the clock of all that follows, by 7 to 10 % there.
const KernelSet &brief_kernel_set();

// For tests: uses the named set from now on, or the fastest. False if this CPU has none of that name. Not while a
// product runs.
bool use_kernel_set(const char *name);

// By type, in the order of their declaration.
inline constexpr int64_t element_bits[] = {32, 64, 16, 16, 8, 8, 8, 8, 6, 6, 4, 8, 32, 64, 128, 8};

constexpr int element_index(Type type) {
  switch (type) {
    case Type::f16:
      return 1;
    case Type::bf16:
      return 2;
    case Type::e4m3:
      return 3;
    case Type::e5m2:
      return 4;
    case Type::e4m3_fnuz:
      return 5;
    case Type::e5m2_fnuz:
      return 6;
    default:
      return 0;
  }
}

template <class T>
const Kernels<T> &kernels_of(const KernelSet &set);
template <>
inline const Kernels<float> &kernels_of<float>(const KernelSet &set) {
  return *set.f32;
}
template <>
inline const Kernels<double> &kernels_of<double>(const KernelSet &set) {
  return *set.f64;
}
template <>
inline const Kernels<int32_t> &kernels_of<int32_t>(const KernelSet &set) {
  return *set.i32;
}

template <class T>
const Kernels<T> &kernels() {
  return kernels_of<T>(kernel_set());
}

// Whether a vector of the chosen set takes two cycles of the units that multiply: 512 bits on AMD's Zen 4, whose units
// have 256. Memory is the faster beside them.
bool vectors_take_two_cycles();

// Whether the second cache holds little beside a block of rows and a panel: the 512 KiB of AMD's Zen 3.
bool second_cache_is_small();

// Whether rows of a narrow panel, far apart, come slowly from the outer caches: Intel's cores fetch few lines at a time
// unless these follow each other.
bool far_rows_wait();

// From so many tiles of rows on the first one copies its panel of b for the others: with fewer, several panels are
// copied beforehand. Never where the chosen set has no tiles that copy, nor with vectors of 512 bits on processors
// where it was not measured (AMD's of the fifth generation).
int64_t least_copying_tiles();

}  // namespace rocpy_host::gemm
