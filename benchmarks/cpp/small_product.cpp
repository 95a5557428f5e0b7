// SPDX-License-Identifier: MIT
// Times hipblasLtMatmul of a platform's library for small square float32 products, called from C with everything
// prepared, so that nothing but the library is measured. Usage: small_product LIBHIPBLASLT WINDOWS EXTENT...; prints
// one JSON object, best of the windows.
#include <dlfcn.h>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "prototypes.h"

namespace {

using Clock = std::chrono::steady_clock;

void *library = nullptr;

template <class Function>
Function *look_up(const char *name) {
  void *found = dlsym(library, name);
  if (!found) {
    std::fprintf(stderr, "%s\n", dlerror());
    std::exit(1);
  }
  return reinterpret_cast<Function *>(found);
}

#define LOOK_UP(name) const auto name##_ = look_up<decltype(name)>(#name)

void check(hipblasStatus_t status, const char *function) {
  if (status == HIPBLAS_STATUS_SUCCESS) return;
  std::fprintf(stderr, "%s: status %d\n", function, static_cast<int>(status));
  std::exit(1);
}

std::vector<float> normal(size_t count, unsigned seed) {
  std::mt19937 bits(seed);
  std::normal_distribution<float> distribution;
  std::vector<float> values(count);
  for (float &value : values) value = distribution(bits);
  return values;
}

double best_us(int64_t extent, int windows) {
  LOOK_UP(hipblasLtCreate);
  LOOK_UP(hipblasLtDestroy);
  LOOK_UP(hipblasLtMatrixLayoutCreate);
  LOOK_UP(hipblasLtMatrixLayoutDestroy);
  LOOK_UP(hipblasLtMatmulDescCreate);
  LOOK_UP(hipblasLtMatmulDescDestroy);
  LOOK_UP(hipblasLtMatmulPreferenceCreate);
  LOOK_UP(hipblasLtMatmulPreferenceDestroy);
  LOOK_UP(hipblasLtMatmulAlgoGetHeuristic);
  LOOK_UP(hipblasLtMatmul);
  const auto count = static_cast<size_t>(extent * extent);
  const std::vector<float> a = normal(count, 1), b = normal(count, 2);
  std::vector<float> d(count);
  hipblasLtHandle_t handle = nullptr;
  hipblasLtMatrixLayout_t layout = nullptr;
  hipblasLtMatmulDesc_t desc = nullptr;
  hipblasLtMatmulPreference_t preference = nullptr;
  check(hipblasLtCreate_(&handle), "hipblasLtCreate");
  check(hipblasLtMatrixLayoutCreate_(&layout, HIP_R_32F, count / extent, count / extent, extent),
        "hipblasLtMatrixLayoutCreate");
  check(hipblasLtMatmulDescCreate_(&desc, HIPBLAS_COMPUTE_32F, HIP_R_32F), "hipblasLtMatmulDescCreate");
  check(hipblasLtMatmulPreferenceCreate_(&preference), "hipblasLtMatmulPreferenceCreate");
  hipblasLtMatmulHeuristicResult_t result{};
  int found = 0;
  check(hipblasLtMatmulAlgoGetHeuristic_(handle, desc, layout, layout, layout, layout, preference, 1, &result, &found),
        "hipblasLtMatmulAlgoGetHeuristic");
  if (found == 0) {
    std::fprintf(stderr, "no algorithm without workspace for %lld\n", static_cast<long long>(extent));
    std::exit(1);
  }
  const float alpha = 1, beta = 0;
  const auto call = [&] {
    check(hipblasLtMatmul_(handle, desc, &alpha, a.data(), layout, b.data(), layout, &beta, d.data(), layout, d.data(),
                           layout, &result.algo, nullptr, 0, nullptr),
          "hipblasLtMatmul");
  };
  for (int i = 0; i < 100; ++i) call();
  constexpr int calls = 500;
  double best = 1e300;
  for (int window = 0; window < windows; ++window) {
    const auto begin = Clock::now();
    for (int i = 0; i < calls; ++i) call();
    best = std::min(best, std::chrono::duration<double, std::micro>(Clock::now() - begin).count() / calls);
  }
  // The last element, summed here in double: a wrong product is not worth timing.
  double expected = 0;
  for (int64_t i = 0; i < extent; ++i) {
    expected += static_cast<double>(a[i * extent + extent - 1]) * b[count - extent + i];
  }
  if (!(std::abs(expected - d.back()) < 1e-4 * static_cast<double>(extent))) {
    std::fprintf(stderr, "wrong product for %lld: %g, expected %g\n", static_cast<long long>(extent),
                 static_cast<double>(d.back()), expected);
    std::exit(1);
  }
  hipblasLtMatmulPreferenceDestroy_(preference);
  hipblasLtMatmulDescDestroy_(desc);
  hipblasLtMatrixLayoutDestroy_(layout);
  hipblasLtDestroy_(handle);
  return best;
}

}  // namespace

int main(int count, char **words) {
  if (count < 4) {
    std::fprintf(stderr, "usage: small_product LIBHIPBLASLT WINDOWS EXTENT...\n");
    return 2;
  }
  library = dlopen(words[1], RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    std::fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  std::printf("{");
  for (int i = 3; i < count; ++i) {
    const int64_t extent = std::max(1, std::atoi(words[i]));
    std::printf("%s\"%lld\": %.5f", i > 3 ? ", " : "", static_cast<long long>(extent),
                best_us(extent, std::max(1, std::atoi(words[2]))));
  }
  std::printf("}\n");
  return 0;
}
