// SPDX-License-Identifier: MIT
// The kernels of one instruction set for operands of 8-bit floating point, built as kernels.cpp is.
#include "kernels_elements.hpp"

namespace rocpy_host::gemm::ROCPY_KERNEL_ISA {

const Elements<float> elements_e4m3 = make_elements<float, Byte<E4m3>>();
const Elements<float> elements_e5m2 = make_elements<float, Byte<E5m2>>();
const Elements<float> elements_e4m3_fnuz = make_elements<float, Byte<E4m3Fnuz>>();
const Elements<float> elements_e5m2_fnuz = make_elements<float, Byte<E5m2Fnuz>>();

}  // namespace rocpy_host::gemm::ROCPY_KERNEL_ISA
