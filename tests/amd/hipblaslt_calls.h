/* SPDX-License-Identifier: MIT
 *
 * What the programs of this folder call of HIP and hipBLASLt, declared here so that they need no headers of ROCm.
 */
#pragma once

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

enum { R_32F = 0, R_16BF = 14, COMPUTE_32F = 2, TO_DEVICE = 1, TO_HOST = 2, TRANSPOSED = 112 };
enum { EPILOGUE_GELU_AUX = 160, EPILOGUE_DGELU = 192, EPILOGUE_DGELU_BGRAD = 208 };
enum { LAYOUT_BATCH_COUNT = 0, LAYOUT_STRIDE = 1, PREFERENCE_WORKSPACE = 1 };
enum { DESC_TRANSPOSE_A = 0, DESC_EPILOGUE = 2, DESC_BIAS = 3, DESC_BIAS_TYPE = 4 };
enum { DESC_AUX = 10, DESC_AUX_LD = 11, DESC_AUX_STRIDE = 12, WORKSPACE = 1 << 25 };

static inline void check(int status, const char *what) {
  if (status == 0) return;
  fprintf(stderr, "%s: status %d\n", what, status);
  exit(2);
}
#define CHECK(call) check(call, #call)

static inline void set(object desc, int attribute, const void *value, size_t bytes) {
  CHECK(hipblasLtMatmulDescSetAttribute(desc, attribute, value, bytes));
}

static inline object preference_of(uint64_t workspace_bytes) {
  object preference;
  CHECK(hipblasLtMatmulPreferenceCreate(&preference));
  CHECK(hipblasLtMatmulPreferenceSetAttribute(preference, PREFERENCE_WORKSPACE, &workspace_bytes,
                                              sizeof workspace_bytes));
  return preference;
}

static inline object library(void) {
  object handle;
  int version = 0;
  CHECK(hipblasLtCreate(&handle));
  CHECK(hipblasLtGetVersion(handle, &version));
  printf("hipBLASLt %d.%d.%d\n", version / 100000, version / 100 % 1000, version % 100);
  return handle;
}
