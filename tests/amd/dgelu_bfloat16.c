/* SPDX-License-Identifier: MIT
 *
 * Shows, without rocpy, that some solutions of hipBLASLt 0.11.0 on gfx942 compute DGELU of bfloat16 wrongly at odd
 * places: runs every solution that the heuristic offers for D = gelu'(E) * (A B) and compares it with double precision.
 *
 *   cc tests/amd/dgelu_bfloat16.c -L$ROCM_PATH/lib -Wl,-rpath,$ROCM_PATH/lib -lhipblaslt -lamdhip64 -lm -o dgelu &&
 * ./dgelu
 *
 * Exits with 1 where a solution is wrong. It declares what it calls itself, so that it needs no headers of ROCm.
 */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void *object;
typedef struct {
  uint8_t data[16];
  size_t max_workspace_bytes;
} algorithm;
typedef struct {
  algorithm algo;
  size_t workspace_bytes;
  int state;
  float waves;
  int reserved[4];
} result;

int hipMalloc(void **pointer, size_t bytes);
int hipMemcpy(void *to, const void *from, size_t bytes, int kind);
int hipMemset(void *to, int value, size_t bytes);
int hipDeviceSynchronize(void);
int hipblasLtCreate(object *handle);
int hipblasLtGetVersion(object handle, int *version);
int hipblasLtMatrixLayoutCreate(object *layout, int type, uint64_t rows, uint64_t columns, int64_t ld);
int hipblasLtMatrixLayoutSetAttribute(object layout, int attribute, const void *value, size_t bytes);
int hipblasLtMatmulDescCreate(object *desc, int compute, int scale);
int hipblasLtMatmulDescSetAttribute(object desc, int attribute, const void *value, size_t bytes);
int hipblasLtMatmulPreferenceCreate(object *preference);
int hipblasLtMatmulPreferenceSetAttribute(object preference, int attribute, const void *value, size_t bytes);
int hipblasLtMatmulAlgoGetHeuristic(object handle, object desc, object a, object b, object c, object d,
                                    object preference, int requested, result *results, int *returned);
int hipblasLtMatmul(object handle, object desc, const void *alpha, const void *a, object a_layout, const void *b,
                    object b_layout, const void *beta, const void *c, object c_layout, void *d, object d_layout,
                    const algorithm *algo, void *workspace, size_t workspace_bytes, object stream);

enum { M = 20, N = 12, K = 31, BATCH = 2, MOST = 64, WORKSPACE = 1 << 25 };
enum { R_32F = 0, R_16BF = 14, COMPUTE_32F = 2, EPILOGUE_DGELU = 192, TO_DEVICE = 1, TO_HOST = 2 };
enum { LAYOUT_BATCH_COUNT = 0, LAYOUT_STRIDE = 1, PREFERENCE_WORKSPACE = 1 };
enum { DESC_EPILOGUE = 2, DESC_AUX = 10, DESC_AUX_LD = 11, DESC_AUX_STRIDE = 12 };

static void check(int status, const char *what) {
  if (status == 0) return;
  fprintf(stderr, "%s: status %d\n", what, status);
  exit(2);
}
#define CHECK(call) check(call, #call)

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

static double slope(double x) {
  const double root = sqrt(2.0 / 3.14159265358979323846), t = tanh(root * (x + 0.044715 * x * x * x));
  return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * root * (1.0 + 3.0 * 0.044715 * x * x);
}

int main(void) {
  void *a, *b, *e, *d, *workspace;
  uint16_t *host_a = random_matrix(BATCH * M * K, &a), *host_b = random_matrix(BATCH * K * N, &b);
  uint16_t *host_e = random_matrix(BATCH * M * N, &e), *host_d = random_matrix(BATCH * M * N, &d);
  object handle, desc, preference, layout_a = layout_of(M, K), layout_b = layout_of(K, N), layout_d = layout_of(M, N);
  CHECK(hipMalloc(&workspace, WORKSPACE));
  CHECK(hipblasLtCreate(&handle));
  int version = 0, returned = 0, wrong_solutions = 0;
  CHECK(hipblasLtGetVersion(handle, &version));
  CHECK(hipblasLtMatmulDescCreate(&desc, COMPUTE_32F, R_32F));
  int32_t epilogue = EPILOGUE_DGELU;
  int64_t ld = M, stride = M * N;
  CHECK(hipblasLtMatmulDescSetAttribute(desc, DESC_EPILOGUE, &epilogue, sizeof epilogue));
  CHECK(hipblasLtMatmulDescSetAttribute(desc, DESC_AUX, &e, sizeof e));
  CHECK(hipblasLtMatmulDescSetAttribute(desc, DESC_AUX_LD, &ld, sizeof ld));
  CHECK(hipblasLtMatmulDescSetAttribute(desc, DESC_AUX_STRIDE, &stride, sizeof stride));
  CHECK(hipblasLtMatmulPreferenceCreate(&preference));
  uint64_t limit = WORKSPACE;
  CHECK(hipblasLtMatmulPreferenceSetAttribute(preference, PREFERENCE_WORKSPACE, &limit, sizeof limit));
  static result results[MOST];
  CHECK(hipblasLtMatmulAlgoGetHeuristic(handle, desc, layout_a, layout_b, layout_d, layout_d, preference, MOST, results,
                                        &returned));
  printf("hipBLASLt %d.%d.%d, %d solutions\n", version / 100000, version / 100 % 1000, version % 100, returned);
  for (int solution = 0; solution < returned; ++solution) {
    const float one = 1.0f, zero = 0.0f;
    int32_t index;
    memcpy(&index, &results[solution].algo, sizeof index);
    CHECK(hipMemset(d, 0, BATCH * M * N * sizeof *host_d));
    CHECK(hipblasLtMatmul(handle, desc, &one, a, layout_a, b, layout_b, &zero, d, layout_d, d, layout_d,
                          &results[solution].algo, workspace, WORKSPACE, NULL));
    CHECK(hipDeviceSynchronize());
    CHECK(hipMemcpy(host_d, d, BATCH * M * N * sizeof *host_d, TO_HOST));
    int odd = 0, even = 0;
    for (int entry = 0; entry < BATCH; ++entry) {
      for (int column = 0; column < N; ++column) {
        for (int row = 0; row < M; ++row) {
          double sum = 0, size = 0;
          for (int k = 0; k < K; ++k) {
            double term =
                (double)widen(host_a[(entry * K + k) * M + row]) * widen(host_b[(entry * N + column) * K + k]);
            sum += term;
            size += fabs(term);
          }
          int place = (entry * N + column) * M + row;
          double exact = slope(widen(host_e[place])) * sum;
          /* An ulp of bfloat16, and what the sum in float32 and the six digits of the slope may be off by. */
          if (fabs(widen(host_d[place]) - exact) > fabs(exact) / 128 + size * 1e-5) ++*(row % 2 ? &odd : &even);
        }
      }
    }
    if (odd + even) {
      ++wrong_solutions;
      printf("solution %d: wrong at %d odd and %d even rows of %d elements\n", index, odd, even, BATCH * M * N);
    }
  }
  printf("%d solutions are wrong\n", wrong_solutions);
  return wrong_solutions != 0;
}
