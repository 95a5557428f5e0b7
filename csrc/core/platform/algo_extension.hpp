// SPDX-License-Identifier: MIT
// What only hipBLASLt's C++ extension functions, or rocpy's own rows, tell of one algorithm. They are found by symbol
// in the loaded library; what it lacks is reported as not supported, never assumed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "status.hpp"
#include "types.h"

namespace rocpy {

// Each function of hipblaslt_ext.def, and whether the loaded library has it.
struct ExtensionFunction {
  const char *name;
  const char *symbol;
  bool present;
};
std::vector<ExtensionFunction> extension_functions();

// The algorithm's name in the library's own words; it outlives indices, which are positions in one build.
Status algo_name(hipblasLtHandle_t handle, const hipblasLtMatmulAlgo_t &algo, std::string *name);

// The algorithm with this index. An index that the library does not know is a success with *exists false.
Status algo_from_index(hipblasLtHandle_t handle, int32_t index, hipblasLtMatmulAlgo_t *algo, bool *exists);

// The index of an algorithm, or -1 where it has none that is a number.
int32_t algo_index(const hipblasLtMatmulAlgo_t &algo);

// What a platform promises of an algorithm: the ROCPY_EXT_ALGO_* bits of types_extension.h, each by its name.
struct AlgoTraits {
  bool run_to_run = false, batch_invariant = false;

  bool any() const noexcept { return run_to_run || batch_invariant; }
  bool include(const AlgoTraits &required) const noexcept {
    return (run_to_run || !required.run_to_run) && (batch_invariant || !required.batch_invariant);
  }
};

// The traits of an algorithm on one problem. A platform that promises nothing is a success with none of them.
Status algo_traits(hipblasLtHandle_t handle, const hipblasLtMatmulAlgo_t &algo, hipblasLtMatmulDesc_t desc,
                   hipblasLtMatrixLayout_t a, hipblasLtMatrixLayout_t b, hipblasLtMatrixLayout_t c,
                   hipblasLtMatrixLayout_t d, AlgoTraits *traits);

}  // namespace rocpy
