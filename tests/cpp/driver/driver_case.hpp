// SPDX-License-Identifier: MIT
// A call of the library as driver_cases.py wrote it: what it takes, what must come out, and how near.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "driver_json.hpp"
#include "types.h"

namespace driver {

// Bytes of the file of arrays, which stays mapped.
struct Bytes {
  const unsigned char *data = nullptr;
  size_t count = 0;
};

// A matrix in device memory, or a vector of one column.
struct Matrix {
  hipDataType type = HIP_R_32F;
  int64_t rows = 0, columns = 1, ld = 0, batch_stride = 0;
  bool by_rows = false;
  Bytes bytes;

  int64_t offset(int64_t batch, int64_t row, int64_t column) const {
    return batch * batch_stride + (by_rows ? row * ld + column : column * ld + row);
  }
  int64_t elements(int64_t batch) const { return offset(batch - 1, rows - 1, columns - 1) + 1; }
};

// What an output must be: by batch entry, column and row; components of complex numbers side by side. One bound for
// each element.
struct Wanted {
  const double *values = nullptr, *bounds = nullptr;
};

struct Case {
  std::string name;
  int64_t m = 0, n = 0, k = 0, batch = 1;
  double flops = 0;
  uint32_t epilogue = HIPBLASLT_EPILOGUE_DEFAULT;
  hipblasComputeType_t compute = HIPBLAS_COMPUTE_32F;
  hipDataType factor_type = HIP_R_32F;
  hipblasOperation_t op_a = HIPBLAS_OP_N, op_b = HIPBLAS_OP_N;
  Matrix a, b, c, d, bias, aux;
  double alpha[2] = {1, 0}, beta[2] = {0, 0};
  float low = 0, high = 0;
  int32_t scale_mode = 0;
  Bytes scale_a, scale_b, scale_d;
  bool in_place = false, amax = false;
  bool adds_bias = false, writes_bias = false, stores_aux = false, loads_aux = false;
  Wanted d_wanted, aux_wanted, bias_wanted;
  double amax_wanted = 0, amax_bound = 0;
};

// Reads NAME.json and maps NAME.bin.
std::vector<Case> read_cases(const std::string &json_path);

size_t size_of(hipDataType type);
bool is_complex(hipDataType type);
// Beyond it a number is infinite; infinity for types of which no case comes near.
double largest_of(hipDataType type);
// One component of an element: 0 is the real one.
double decode(hipDataType type, const void *data, int64_t index, int component);

}  // namespace driver
