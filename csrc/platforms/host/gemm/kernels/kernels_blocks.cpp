// SPDX-License-Identifier: MIT
// The kernels of one instruction set for operands with a scale for every 32 of k, built as kernels.cpp is.
#include "kernels_blocks.hpp"

namespace rocpy_host::gemm::ROCPY_KERNEL_ISA {

const BlockElements elements_blocks[block_type_count] = {make_block_elements<E4m3>(), make_block_elements<E5m2>(),
                                                         make_block_elements<E2m3>(), make_block_elements<E3m2>(),
                                                         make_block_elements<E2m1>()};

}  // namespace rocpy_host::gemm::ROCPY_KERNEL_ISA
