/* SPDX-License-Identifier: MIT
 *
 * Shows, without rocpy, two faults of hipBLASLt 0.11.0 on gfx942 in products of bfloat16, each of some of its
 * solutions: DGELU reads the wrong element of aux at odd rows; GELU_AUX, where a thread stores a single element, rounds
 * the activation's argument in place for aux and computes GELU of what lies there then, half an ulp of bfloat16 beside
 * it. It runs every solution that the heuristic offers and compares it with double precision.
 *
 *   cc tests/amd/gelu_bfloat16.c -L$ROCM_PATH/lib -Wl,-rpath,$ROCM_PATH/lib -lhipblaslt -lamdhip64 -lm -o gelu &&
 * ./gelu
 *
 * Exits with 1 where a solution is wrong.
 */
#include "hipblaslt_calls.h"

enum { N = 12, K = 31, BATCH = 2, MOST = 64 };

static float widen(uint16_t bits) {
  uint32_t word = (uint32_t)bits << 16;
  float value;
  memcpy(&value, &word, sizeof value);
  return value;
}

/* Random bfloat16 from -2 to 2, kept on the host and copied to the device. */
static uint16_t *random_matrix(size_t count, void **device) {
  uint16_t *host = malloc(count * sizeof *host);
  for (size_t i = 0; i < count; ++i) {
    float value = (float)rand() / (float)RAND_MAX * 4.0f - 2.0f;
    uint32_t word;
    memcpy(&word, &value, sizeof word);
    host[i] = (uint16_t)(word >> 16);
  }
  CHECK(hipMalloc(device, count * sizeof *host));
  CHECK(hipMemcpy(*device, host, count * sizeof *host, TO_DEVICE));
  return host;
}

static object layout_of(uint64_t rows, uint64_t columns) {
  object layout;
  int32_t batch = BATCH;
  int64_t stride = (int64_t)(rows * columns);
  CHECK(hipblasLtMatrixLayoutCreate(&layout, R_16BF, rows, columns, (int64_t)rows));
  CHECK(hipblasLtMatrixLayoutSetAttribute(layout, LAYOUT_BATCH_COUNT, &batch, sizeof batch));
  CHECK(hipblasLtMatrixLayoutSetAttribute(layout, LAYOUT_STRIDE, &stride, sizeof stride));
  return layout;
}

static double gelu(double x, int wants_slope) {
  const double root = sqrt(2.0 / 3.14159265358979323846), t = tanh(root * (x + 0.044715 * x * x * x));
  if (!wants_slope) return 0.5 * x * (1.0 + t);
  return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * root * (1.0 + 3.0 * 0.044715 * x * x);
}

typedef struct {
  const char *name;
  int32_t epilogue;
  int rows, transposed;
} product;

/* Runs each solution of a product; returns how many are wrong. */
static int wrong_solutions(object handle, const product *p) {
  const int m = p->rows, count = BATCH * m * N;
  void *a, *b, *e, *d, *workspace;
  uint16_t *host_a = random_matrix((size_t)BATCH * m * K, &a), *host_b = random_matrix((size_t)BATCH * K * N, &b);
  uint16_t *host_e = random_matrix(count, &e), *host_d = random_matrix(count, &d);
  object desc, preference = preference_of(WORKSPACE), layout_b = layout_of(K, N), layout_d = layout_of(m, N);
  object layout_a = p->transposed ? layout_of(K, m) : layout_of(m, K);
  CHECK(hipMalloc(&workspace, WORKSPACE));
  CHECK(hipblasLtMatmulDescCreate(&desc, COMPUTE_32F, R_32F));
  int32_t transposed = TRANSPOSED;
  int64_t ld = m, stride = (int64_t)m * N;
  if (p->transposed) set(desc, DESC_TRANSPOSE_A, &transposed, sizeof transposed);
  set(desc, DESC_EPILOGUE, &p->epilogue, sizeof p->epilogue);
  set(desc, DESC_AUX, &e, sizeof e);
  set(desc, DESC_AUX_LD, &ld, sizeof ld);
  set(desc, DESC_AUX_STRIDE, &stride, sizeof stride);
  static result results[MOST];
  int returned = 0, wrong = 0;
  CHECK(hipblasLtMatmulAlgoGetHeuristic(handle, desc, layout_a, layout_b, layout_d, layout_d, preference, MOST, results,
                                        &returned));
  printf("%s, %d solutions\n", p->name, returned);
  for (int solution = 0; solution < returned; ++solution) {
    const float alpha = 0.25f, zero = 0.0f;
    int32_t index;
    memcpy(&index, &results[solution].algo, sizeof index);
    CHECK(hipMemset(d, 0, count * sizeof *host_d));
    CHECK(hipblasLtMatmul(handle, desc, &alpha, a, layout_a, b, layout_b, &zero, d, layout_d, d, layout_d,
                          &results[solution].algo, workspace, WORKSPACE, NULL));
    CHECK(hipDeviceSynchronize());
    CHECK(hipMemcpy(host_d, d, count * sizeof *host_d, TO_HOST));
    int odd = 0, even = 0, last = 0;
    for (int i = 0; i < count; ++i) {
      const int row = i % m, column = i / m % N, entry = i / m / N;
      double sum = 0, size = 0;
      for (int k = 0; k < K; ++k) {
        const int of_a = p->transposed ? (entry * m + row) * K + k : (entry * K + k) * m + row;
        const double term = 0.25 * widen(host_a[of_a]) * widen(host_b[(entry * N + column) * K + k]);
        sum += term;
        size += fabs(term);
      }
      const double exact = p->epilogue == EPILOGUE_DGELU ? gelu(widen(host_e[i]), 1) * sum : gelu(sum, 0);
      /* An ulp of bfloat16, and what the sum in float32 and the six digits of the slope may be off by. */
      if (fabs(widen(host_d[i]) - exact) <= fabs(exact) / 128 + size * 1e-5) continue;
      ++*(row % 2 ? &odd : &even);
      last += row == m - 1;
    }
    if (odd + even == 0) continue;
    ++wrong;
    printf("  solution %d: wrong at %d odd and %d even rows, %d of them the last, of %d elements\n", index, odd, even,
           last, count);
  }
  return wrong;
}

int main(void) {
  const product products[] = {{"DGELU", EPILOGUE_DGELU, 20, 0}, {"GELU_AUX", EPILOGUE_GELU_AUX, 33, 1}};
  object handle = library();
  int wrong = 0;
  for (size_t i = 0; i < sizeof products / sizeof *products; ++i) wrong += wrong_solutions(handle, &products[i]);
  printf("%d solutions are wrong\n", wrong);
  return wrong != 0;
}
