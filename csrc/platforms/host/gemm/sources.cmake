# SPDX-License-Identifier: MIT
# The product engine's sources: ROCPY_GEMM_SOURCES, relative to csrc/platforms/host.
set(ROCPY_GEMM_SOURCES threads.cpp gemm/algorithms.cpp)
