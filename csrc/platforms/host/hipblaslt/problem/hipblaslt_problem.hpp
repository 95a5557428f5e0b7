// SPDX-License-Identifier: MIT
// From hipBLASLt's descriptors to the engine's problem.
#pragma once

#include "gemm.hpp"
#include "hipblaslt_objects.hpp"
#include "types.h"

namespace rocpy_host::lt {

struct Layouts {
  const Layout *a, *b, *c, *d;
};

// What the caller of hipblasLtMatmul hands over beside descriptors.
struct Operands {
  const void *alpha, *a, *b, *beta, *c;
  void *d;
};

struct Call {
  gemm::Problem problem;                          // of one batch entry when `pointer_array`
  int32_t batch = 1;                              // entries of the pointer arrays
  bool pointer_array = false;                     // a, b, c and d point to arrays of pointers
  bool empty = false;                             // no element of D: success, and nothing is touched
  std::shared_ptr<const ProgramBinding> program;  // what the problem points to
  bool skips_product = false;  // alpha is zero: k was set to zero so that A and B, which may be null, are not read
  // Then the sums along k of A or B, which an epilogue returns as well, are made apart from the product.
  gemm::Reduction sums = gemm::Reduction::none;
  int64_t sums_k = 0;
  gemm::Problem *noted = nullptr;  // this thread's note of such calls, until its next one
};

// Fills *call or says why not, in the order in which the library checks. `operands` is null while algorithms are
// searched: alpha and beta then count as 1, and a missing bias is no fault. `function` names the caller on stderr.
hipblasStatus_t translate(const char *function, const MatmulDesc &desc, const Layouts &layouts,
                          const Operands *operands, Call *call);

// The same for objects of the pools, which each thread remembers as long as none of them changes.
hipblasStatus_t translate_pooled(const char *function, const MatmulDesc &desc, const Layouts &layouts,
                                 const Operands &operands, Call *call);

// Pointer-array batches take plain products only.
bool pointer_array_conflict(const MatmulDesc &desc);

// The engine wants its workspace aligned to this; so much is added to what it asks for, and taken from what a caller
// gives.
constexpr size_t workspace_alignment = 256;

inline size_t published_workspace(size_t engine_bytes) { return engine_bytes ? engine_bytes + workspace_alignment : 0; }
inline size_t engine_workspace(size_t caller_bytes) {
  return caller_bytes > workspace_alignment ? caller_bytes - workspace_alignment : 0;
}
inline void *align_workspace(void *workspace) {
  return reinterpret_cast<void *>((reinterpret_cast<uintptr_t>(workspace) + workspace_alignment - 1) &
                                  ~(workspace_alignment - 1));
}

}  // namespace rocpy_host::lt
