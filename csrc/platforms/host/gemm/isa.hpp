// SPDX-License-Identifier: MIT
// Which kernel set is in use. Apart from kernels.hpp, so that the files built per instruction set hold no inline
// function of it.
#pragma once

#include "kernels.hpp"

namespace rocpy_host::gemm {

// The set in use: the best that the CPU has, or the one that ROCPY_HOST_ISA names if the CPU has it. Chosen at first
// use.
const KernelSet &kernel_set();

// For tests: uses the named set from now on. False if this CPU has none of that name. Not while a product runs.
bool use_kernel_set(const char *name);

constexpr int element_index(Type type) { return type == Type::f16 ? 1 : type == Type::bf16 ? 2 : 0; }

template <class T>
const Kernels<T> &kernels();
template <>
inline const Kernels<float> &kernels<float>() {
  return *kernel_set().f32;
}
template <>
inline const Kernels<double> &kernels<double>() {
  return *kernel_set().f64;
}

}  // namespace rocpy_host::gemm
