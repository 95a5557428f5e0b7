// SPDX-License-Identifier: MIT
// hipBLASLt's C++ extension functions through the core's shim, on the host platform as it is loaded: names, indices,
// support with workspace, promises; and the other functions by their symbols.
#include <cstring>
#include <string>

#include "algo_extension.hpp"
#include "check.hpp"
#include "hipblaslt_ext.h"
#include "platform.hpp"
#include "table.hpp"

using namespace rocpy;

namespace {

template <class Function>
Function *symbol(const char *name) {
  for (const ExtensionFunction &row : extension_functions()) {
    if (std::strcmp(row.name, name) == 0) {
      return reinterpret_cast<Function *>(find_symbol(Library::hipblaslt, row.symbol));
    }
  }
  return nullptr;
}

struct Product {
  hipblasLtHandle_t handle = nullptr;
  hipblasLtMatmulDesc_t desc = nullptr;
  hipblasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
  hipblasLtMatmulPreference_t preference = nullptr;
  hipblasLtMatmulHeuristicResult_t results[16];
  int count = 0;

  Product(uint64_t m, uint64_t n, uint64_t k) {
    CHECK_EQUAL(table.hipblasLtCreate(&handle), 0);
    CHECK_EQUAL(table.hipblasLtMatmulDescCreate(&desc, HIPBLAS_COMPUTE_32F, HIP_R_32F), 0);
    CHECK_EQUAL(table.hipblasLtMatrixLayoutCreate(&a, HIP_R_32F, m, k, int64_t(m)), 0);
    CHECK_EQUAL(table.hipblasLtMatrixLayoutCreate(&b, HIP_R_32F, k, n, int64_t(k)), 0);
    CHECK_EQUAL(table.hipblasLtMatrixLayoutCreate(&c, HIP_R_32F, m, n, int64_t(m)), 0);
    CHECK_EQUAL(table.hipblasLtMatmulPreferenceCreate(&preference), 0);
    uint64_t limit = uint64_t{64} << 20;
    CHECK_EQUAL(table.hipblasLtMatmulPreferenceSetAttribute(preference, HIPBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                            &limit, sizeof limit),
                0);
    CHECK_EQUAL(table.hipblasLtMatmulAlgoGetHeuristic(handle, desc, a, b, c, c, preference, 16, results, &count), 0);
    CHECK(count > 1);
  }
  ~Product() {
    table.hipblasLtMatmulPreferenceDestroy(preference);
    for (hipblasLtMatrixLayout_t layout : {a, b, c}) table.hipblasLtMatrixLayoutDestroy(layout);
    table.hipblasLtMatmulDescDestroy(desc);
    table.hipblasLtDestroy(handle);
  }
};

void each_algorithm_by_name_and_index() {
  Product p(256, 192, 512);
  auto ask = symbol<decltype(hipblaslt_ext::matmulIsAlgoSupported)>("matmulIsAlgoSupported");
  std::string last;
  for (int i = 0; i < p.count; i++) {
    const hipblasLtMatmulHeuristicResult_t &result = p.results[i];
    std::string name;
    CHECK(algo_name(p.handle, result.algo, &name).ok());
    CHECK(!name.empty() && name != last);
    last = name;

    hipblasLtMatmulAlgo_t again;
    bool found = false;
    CHECK(algo_from_index(p.handle, algo_index(result.algo), &again, &found).ok());
    CHECK(found);
    std::string same;
    CHECK(algo_name(p.handle, again, &same).ok() && same == name);

    // Of an algorithm made from its index the workspace is what the heuristic said.
    size_t workspace = 0;
    const float one = 1.0f;
    CHECK_EQUAL(ask(p.handle, p.desc, &one, p.a, p.b, &one, p.c, p.c, again, workspace), HIPBLAS_STATUS_SUCCESS);
    CHECK_EQUAL(workspace, result.workspaceSize);

    AlgoTraits traits;
    CHECK(algo_traits(p.handle, again, p.desc, p.a, p.b, p.c, p.c, &traits).ok());
    CHECK(traits.run_to_run);

    // It runs, with its own workspace and no less.
    std::string memory(size_t{4} * (256 * 512 + 512 * 192 + 256 * 192), '\0'), scratch(workspace + 1, '\0');
    char *data = &memory[0];
    CHECK_EQUAL(table.hipblasLtMatmul(p.handle, p.desc, &one, data, p.a, data + 4 * 256 * 512, p.b, &one,
                                      data + 4 * (256 * 512 + 512 * 192), p.c, data + 4 * (256 * 512 + 512 * 192), p.c,
                                      &again, workspace ? &scratch[0] : nullptr, workspace, nullptr),
                0);
    CHECK_EQUAL(table.hipStreamSynchronize(nullptr), 0);
  }
}

void what_is_not_there() {
  Product p(64, 48, 32);
  hipblasLtMatmulAlgo_t algo;
  bool found = true;
  CHECK(algo_from_index(p.handle, 77777, &algo, &found).ok());
  CHECK(!found);
  std::memset(&algo, 0, sizeof algo);
  std::string name = "old";
  CHECK(!algo_name(p.handle, algo, &name).ok());
  CHECK(name.empty());
  auto ask = symbol<decltype(hipblaslt_ext::matmulIsAlgoSupported)>("matmulIsAlgoSupported");
  const float one = 1.0f;
  size_t workspace = 0;
  CHECK(ask(p.handle, p.desc, &one, p.a, p.b, &one, p.c, p.c, algo, workspace) != HIPBLAS_STATUS_SUCCESS);
  CHECK_EQUAL(workspace, 0);
  // A problem that nobody can read is an error, not an answer.
  CHECK_EQUAL(ask(p.handle, nullptr, &one, p.a, p.b, &one, p.c, p.c, algo, workspace), HIPBLAS_STATUS_NOT_INITIALIZED);
  // Layouts that do not fit each other.
  CHECK(ask(p.handle, p.desc, &one, p.b, p.a, &one, p.c, p.c, p.results[0].algo, workspace) != HIPBLAS_STATUS_SUCCESS);
  AlgoTraits traits{true, true};
  CHECK(!algo_traits(p.handle, algo, p.desc, p.a, p.b, p.c, p.c, &traits).ok());
  CHECK(!traits.any());
}

void every_function_by_its_symbol() {
  for (const ExtensionFunction &row : extension_functions()) {
    if (!row.present) std::fprintf(stderr, "%s is not exported as %s\n", row.name, row.symbol);
    CHECK(row.present);
  }
  Product p(64, 48, 32);
  auto all = symbol<decltype(hipblaslt_ext::getAllAlgos)>("getAllAlgos");
  std::vector<hipblasLtMatmulHeuristicResult_t> results;
  CHECK_EQUAL(all(p.handle, hipblaslt_ext::GemmType::HIPBLASLT_GEMM, HIPBLAS_OP_N, HIPBLAS_OP_T, HIP_R_32F, HIP_R_32F,
                  HIP_R_32F, HIP_R_32F, HIPBLAS_COMPUTE_32F, results),
              0);
  CHECK(int(results.size()) >= p.count);
  for (int i = 0; i < p.count; i++) {
    bool listed = false;
    for (const auto &result : results) listed = listed || algo_index(result.algo) == algo_index(p.results[i].algo);
    CHECK(listed);
  }
  CHECK_EQUAL(all(p.handle, hipblaslt_ext::GemmType::HIPBLASLT_GEMM, HIPBLAS_OP_N, HIPBLAS_OP_N, HIP_R_32F, HIP_R_64F,
                  HIP_R_32F, HIP_R_32F, HIPBLAS_COMPUTE_32F, results),
              0);
  CHECK(results.empty());
  CHECK_EQUAL(all(p.handle, hipblaslt_ext::GemmType::HIPBLASLT_GROUPED_GEMM, HIPBLAS_OP_N, HIPBLAS_OP_N, HIP_R_32F,
                  HIP_R_32F, HIP_R_32F, HIP_R_32F, HIPBLAS_COMPUTE_32F, results),
              HIPBLAS_STATUS_INVALID_VALUE);

  auto kernel = symbol<decltype(hipblaslt_ext::getKernelNameFromAlgo)>("getKernelNameFromAlgo");
  auto solution = symbol<decltype(hipblaslt_ext::getSolutionNameFromAlgo)>("getSolutionNameFromAlgo");
  CHECK(!kernel(p.handle, p.results[0].algo).empty());
  CHECK(kernel(p.handle, p.results[0].algo) == solution(p.handle, p.results[0].algo));
  hipblasLtMatmulAlgo_t negative;
  std::memset(&negative, 0xff, sizeof negative);
  CHECK_EQUAL(algo_index(negative), -1);
  CHECK(kernel(p.handle, negative).empty());

  auto tuned = symbol<decltype(hipblaslt_ext::matmulIsTuned)>("matmulIsTuned");
  CHECK_EQUAL(tuned(p.handle, p.desc, p.a, p.b, p.c, p.c), 0);
  CHECK_EQUAL(tuned(p.handle, nullptr, p.a, p.b, p.c, p.c), -1);

  auto copy = symbol<decltype(hipblaslt_ext::copyMatmul)>("copyMatmul");
  hipblasLtMatmulDesc_t other = nullptr;
  CHECK_EQUAL(table.hipblasLtMatmulDescCreate(&other, HIPBLAS_COMPUTE_64F, HIP_R_64F), 0);
  int32_t epilogue = HIPBLASLT_EPILOGUE_GELU, seen = 0;
  CHECK_EQUAL(table.hipblasLtMatmulDescSetAttribute(p.desc, HIPBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, 4), 0);
  CHECK_EQUAL(copy(p.desc, other), 0);
  CHECK_EQUAL(table.hipblasLtMatmulDescGetAttribute(other, HIPBLASLT_MATMUL_DESC_EPILOGUE, &seen, 4, nullptr), 0);
  CHECK_EQUAL(seen, epilogue);
  CHECK_EQUAL(copy(nullptr, other), HIPBLAS_STATUS_NOT_INITIALIZED);
  CHECK_EQUAL(table.hipblasLtMatmulDescDestroy(other), 0);
}

}  // namespace

int main(int, char **arguments) {
  for (const ExtensionFunction &row : extension_functions()) CHECK(!row.present);  // nothing is loaded
  Tree tree;
  tree.directories = {arguments[1]};
  Attempt attempt = load_platform(tree);
  if (attempt.outcome != Outcome::loaded) {
    std::fprintf(stderr, "no platform: %s\n", attempt.reason.c_str());
    return 1;
  }
  each_algorithm_by_name_and_index();
  what_is_not_there();
  every_function_by_its_symbol();
  return failures ? 1 : 0;
}
