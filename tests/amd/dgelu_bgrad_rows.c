/* SPDX-License-Identifier: MIT
 *
 * Shows, without rocpy, for which numbers of columns hipBLASLt offers an algorithm for DGELU_BGRAD and refuses its
 * launch: the sum along them wants a reduction kernel of a height that is not among those that were generated. Of
 * hipBLASLt 0.11.0 on gfx942 those are most numbers below 32.
 *
 *   cc tests/amd/dgelu_bgrad_rows.c -L$ROCM_PATH/lib -Wl,-rpath,$ROCM_PATH/lib -lhipblaslt -lamdhip64 -o rows && ./rows
 *
 * Exits with 1 where a launch is refused. What is a column here is a row in rocpy, whose matrices are row-major.
 */
#include "hipblaslt_calls.h"

enum { M = 64, K = 32, MOST_COLUMNS = 40, INTERNAL_ERROR = 6 };

static object layout_of(uint64_t rows, uint64_t columns) {
  object layout;
  CHECK(hipblasLtMatrixLayoutCreate(&layout, R_32F, rows, columns, (int64_t)rows));
  return layout;
}

static void *zeros(size_t count) {
  void *memory;
  CHECK(hipMalloc(&memory, count * sizeof(float)));
  CHECK(hipMemset(memory, 0, count * sizeof(float)));
  return memory;
}

int main(void) {
  object handle = library(), preference = preference_of(WORKSPACE);
  void *a = zeros(M * K), *b = zeros(K * MOST_COLUMNS), *d = zeros(M * MOST_COLUMNS), *aux = zeros(M * MOST_COLUMNS);
  void *bias = zeros(M), *workspace = zeros(WORKSPACE / sizeof(float));
  int refused = 0;
  for (int columns = 1; columns <= MOST_COLUMNS; ++columns) {
    const float one = 1.0f, zero = 0.0f;
    const int32_t epilogue = EPILOGUE_DGELU_BGRAD, type = R_32F;
    const int64_t ld = M;
    object desc, layout_a = layout_of(M, K), layout_b = layout_of(K, columns), layout_d = layout_of(M, columns);
    result found;
    int returned = 0;
    CHECK(hipblasLtMatmulDescCreate(&desc, COMPUTE_32F, R_32F));
    set(desc, DESC_EPILOGUE, &epilogue, sizeof epilogue);
    set(desc, DESC_AUX, &aux, sizeof aux);
    set(desc, DESC_AUX_LD, &ld, sizeof ld);
    set(desc, DESC_BIAS, &bias, sizeof bias);
    set(desc, DESC_BIAS_TYPE, &type, sizeof type);
    CHECK(hipblasLtMatmulAlgoGetHeuristic(handle, desc, layout_a, layout_b, layout_d, layout_d, preference, 1, &found,
                                          &returned));
    if (returned == 0) {
      printf("%d columns: no algorithm\n", columns);
      continue;
    }
    const int status = hipblasLtMatmul(handle, desc, &one, a, layout_a, b, layout_b, &zero, d, layout_d, d, layout_d,
                                       &found.algo, workspace, WORKSPACE, NULL);
    if (status == INTERNAL_ERROR) {
      printf("%d columns: INTERNAL_ERROR\n", columns);
      ++refused;
    } else {
      check(status, "hipblasLtMatmul");
    }
  }
  CHECK(hipDeviceSynchronize());
  printf("%d numbers of columns are refused at the launch\n", refused);
  return refused != 0;
}
