// SPDX-License-Identifier: MIT
// Runs a program's tests with every kernel set.
#pragma once

#include <cstdio>

#include "blocking.hpp"

namespace gemm_test {

// With those that this CPU has and whose kernels of floating point are their own; returns what main() does.
template <class F>
int with_kernel_sets(F tests, const int64_t &checks, const int &failures) {
  for (const char *isa : {"avx512_bf16", "avx512", "avx2", "neon", "baseline"}) {
    if (!rocpy_host::gemm::use_kernel_set(isa)) continue;
    tests(isa);
    printf("%s: %lld values compared, %d failures\n", isa, static_cast<long long>(checks), failures);
  }
  return failures != 0;
}

}  // namespace gemm_test
