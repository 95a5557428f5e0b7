// SPDX-License-Identifier: MIT
// A case of the list as hipBLASLt sees it, and its result in double precision with a bound for each element.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "driver_json.hpp"
#include "types.h"

namespace driver {

// A matrix in device memory: how it is stored, without its bytes.
struct Shape {
  int64_t rows = 0, columns = 0, ld = 0, batch_stride = 0;
  bool by_rows = false;

  int64_t offset(int64_t batch, int64_t row, int64_t column) const {
    return batch * batch_stride + (by_rows ? row * ld + column : column * ld + row);
  }
  int64_t elements(int64_t batch) const { return rows && columns ? offset(batch - 1, rows - 1, columns - 1) + 1 : 0; }
};

// m, n, k and the epilogue are hipBLASLt's own: the list is read as data for column-major products.
struct Case {
  std::string name;
  int64_t m = 0, n = 0, k = 0, batch = 1;
  hipDataType type = HIP_R_32F, result_type = HIP_R_32F;
  uint32_t epilogue = HIPBLASLT_EPILOGUE_DEFAULT;
  hipblasOperation_t op_a = HIPBLAS_OP_N, op_b = HIPBLAS_OP_N;
  Shape a, b, c, d, aux;
  double alpha = 1, beta = 0;
  double low = -0.75, high = 0.5;
  int64_t bias_stride = 0, bias_length = 0;
  bool integers = false;
  bool in_place = false;
  uint32_t seed = 0;

  bool adds_bias = false, writes_bias = false, stores_aux = false, loads_aux = false;
  double flops() const { return 2.0 * double(m) * double(n) * double(k) * double(batch); }
};

// False: hipBLASLt cannot express it without copies (views with steps, broadcasting along some batch extents only).
bool make_case(const Json &json, Case *out);

// Values as they are in memory, rounded to their types.
struct Values {
  std::vector<double> a, b, c, bias, aux;
};
Values make_values(const Case &c);

struct Expected {
  std::vector<double> d, d_bound;  // batch x n x m
  std::vector<double> aux, aux_bound;
  std::vector<double> bias, bias_bound;  // batch x bias_length
};
Expected make_expected(const Case &c, const Values &values);

size_t size_of(hipDataType type);
double round_to(hipDataType type, double value);
void encode(hipDataType type, const std::vector<double> &values, void *out);
double decode(hipDataType type, const void *data, int64_t index);

}  // namespace driver
