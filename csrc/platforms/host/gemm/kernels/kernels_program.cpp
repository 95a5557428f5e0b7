// SPDX-License-Identifier: MIT
// The epilogues of one instruction set that run tile programs, built as kernels.cpp is.
#include "kernels_program.hpp"

namespace rocpy_host::gemm::ROCPY_KERNEL_ISA {

const ProgramKernels programs = {epilogue_program<float>, epilogue_program<double>, epilogue_program_integer};

}  // namespace rocpy_host::gemm::ROCPY_KERNEL_ISA
