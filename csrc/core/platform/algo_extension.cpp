// SPDX-License-Identifier: MIT
// Calls hipBLASLt's C++ extension functions by the addresses of their symbols. A function that takes a C++ type by
// reference or returns one is called as what it is: this file is built against the same C++ library as ROCm, and where
// it is not, those functions count as absent.
#include "algo_extension.hpp"

#include <cstring>
#include <new>

#include "hipblaslt_ext.h"
#include "platform.hpp"
#include "table.hpp"

namespace rocpy {
namespace {

#if defined(_GLIBCXX_USE_CXX11_ABI) && _GLIBCXX_USE_CXX11_ABI
constexpr bool same_strings = true;
#else
constexpr bool same_strings = false;
#endif

enum Index {
#define ROCPY_SYMBOL(name, symbol) index_##name,
#include "hipblaslt_ext.def"
#undef ROCPY_SYMBOL
};

constexpr struct {
  const char *name, *symbol;
} symbols[] = {
#define ROCPY_SYMBOL(name, symbol) {#name, #symbol},
#include "hipblaslt_ext.def"
#undef ROCPY_SYMBOL
};

bool callable(Index index) {
  return same_strings || (index != index_getKernelNameFromAlgo && index != index_getSolutionNameFromAlgo);
}

template <class Function>
Function *find(Index index) {
  if (!callable(index)) return nullptr;
  return reinterpret_cast<Function *>(find_symbol(Library::hipblaslt, symbols[index].symbol));
}

Status status_of(hipblasStatus_t code, const char *function) { return Status{Library::hipblaslt, code, function}; }

// Absent functions answer as a missing row does.
Status absent(const char *function) { return status_of(HIPBLAS_STATUS_NOT_SUPPORTED, function); }

// The library's C++ functions may throw, and what they throw is not rocpy's to pass on.
template <class Call>
Status guarded(const char *function, Call call) {
  try {
    return status_of(call(), function);
  } catch (const std::bad_alloc &) {
    return status_of(HIPBLAS_STATUS_ALLOC_FAILED, function);
  } catch (...) {
    return status_of(HIPBLAS_STATUS_INTERNAL_ERROR, function);
  }
}

}  // namespace

std::vector<ExtensionFunction> extension_functions() {
  std::vector<ExtensionFunction> functions;
  int index = 0;
  for (const auto &row : symbols) {
    bool present = callable(static_cast<Index>(index)) && find_symbol(Library::hipblaslt, row.symbol) != nullptr;
    functions.push_back({row.name, row.symbol, present});
    ++index;
  }
  return functions;
}

Status algo_name(hipblasLtHandle_t handle, const hipblasLtMatmulAlgo_t &algo, std::string *name) {
  name->clear();
  if (has("rocpyExtAlgoName")) {
    char text[256] = "";
    Status status = status_of(table.rocpyExtAlgoName(handle, &algo, text, sizeof text), "rocpyExtAlgoName");
    if (status.ok()) *name = text;
    return status;
  }
  constexpr char function[] = "hipblaslt_ext::getKernelNameFromAlgo";
  auto *get = find<decltype(hipblaslt_ext::getKernelNameFromAlgo)>(index_getKernelNameFromAlgo);
  if (!get) get = find<decltype(hipblaslt_ext::getSolutionNameFromAlgo)>(index_getSolutionNameFromAlgo);
  if (!get) return absent(function);
  return guarded(function, [&] {
    hipblasLtMatmulAlgo_t copy = algo;
    *name = get(handle, copy);
    return HIPBLAS_STATUS_SUCCESS;
  });
}

int32_t algo_index(const hipblasLtMatmulAlgo_t &algo) {
  if (auto *get = find<decltype(hipblaslt_ext::getIndexFromAlgo)>(index_getIndexFromAlgo)) {
    hipblasLtMatmulAlgo_t copy = algo;
    return get(copy);
  }
  // Where every version so far keeps it.
  int32_t index;
  std::memcpy(&index, algo.data, sizeof index);
  return index < 0 ? -1 : index;
}

Status algo_from_index(hipblasLtHandle_t handle, int32_t index, hipblasLtMatmulAlgo_t *algo, bool *exists) {
  *exists = false;
  constexpr char function[] = "hipblaslt_ext::getAlgosFromIndex";
  auto *get = find<decltype(hipblaslt_ext::getAlgosFromIndex)>(index_getAlgosFromIndex);
  if (!get) return absent(function);
  std::vector<hipblasLtMatmulHeuristicResult_t> results;
  Status status = guarded(function, [&] {
    std::vector<int> indices{index};
    return get(handle, indices, results);
  });
  // An index out of the library's range is refused as an invalid value.
  if (status.code == HIPBLAS_STATUS_INVALID_VALUE) return Status{};
  if (!status.ok()) return status;
  for (const auto &result : results) {
    if (result.state != HIPBLAS_STATUS_SUCCESS || algo_index(result.algo) != index) continue;
    *algo = result.algo;
    *exists = true;
    break;
  }
  return Status{};
}

Status algo_traits(hipblasLtHandle_t handle, const hipblasLtMatmulAlgo_t &algo, hipblasLtMatmulDesc_t desc,
                   hipblasLtMatrixLayout_t a, hipblasLtMatrixLayout_t b, hipblasLtMatrixLayout_t c,
                   hipblasLtMatrixLayout_t d, AlgoTraits *traits) {
  *traits = AlgoTraits{};
  if (!has("rocpyExtAlgoTraits")) return Status{};
  uint32_t bits = 0;
  const Status status =
      status_of(table.rocpyExtAlgoTraits(handle, &algo, desc, a, b, c, d, &bits), "rocpyExtAlgoTraits");
  if (!status.ok()) return status;
  traits->run_to_run = bits & ROCPY_EXT_ALGO_RUN_TO_RUN;
  traits->batch_invariant = bits & ROCPY_EXT_ALGO_BATCH_INVARIANT;
  return status;
}

}  // namespace rocpy
