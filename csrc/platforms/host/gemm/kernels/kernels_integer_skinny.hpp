// SPDX-License-Identifier: MIT
// A few rows of 8-bit integers against a large matrix of them, which is read once where it is. As kernels_skinny.hpp,
// but sums are exact, so their order is free.
#pragma once

#include "kernels_integer.hpp"
#include "kernels_skinny.hpp"

namespace rocpy_host::gemm {
namespace {

// What the 128 that is added to the left operand's bytes has added to a sum.
ROCPY_INLINE VecI add_offset(VecI sum, VecI right) {
  if constexpr (group_size == 4) return add_products(sum, splat(static_cast<int32_t>(0x80808080u)), right);
  return sum;
}

// As wide_block.
template <int rows, int vectors>
ROCPY_INLINE void integer_wide_block(const WideCall<int32_t> &call, int64_t j, int last) {
  constexpr int lanes = vector_lanes<int32_t>;
  const int64_t k = call.k, a_stride = call.a_stride, b_stride = call.b_stride, acc_stride = call.acc_stride;
  const bool first = call.first;
  const int32_t *a = call.a;
  const int8_t *b = static_cast<const int8_t *>(call.b) + j;
  int32_t *acc = call.acc + j;
  VecI sum[rows][vectors], offset[vectors] = {};
  ROCPY_UNROLL
  for (int i = 0; i < rows; i++) {
    ROCPY_UNROLL
    for (int v = 0; v < vectors; v++) sum[i][v] = first ? VecI{} : load(acc + i * acc_stride + v * lanes);
  }
  for (int64_t x = 0; x < k; x += group_size, a += a_stride, b += group_size * b_stride) {
    ROCPY_UNROLL
    for (int v = 0; v < vectors; v++) {
      const VecI row = join_rows(b + v * lanes, b_stride, k - x, v == vectors - 1 ? last : lanes);
      offset[v] = add_offset(offset[v], row);
      ROCPY_UNROLL
      for (int i = 0; i < rows; i++) sum[i][v] = add_products(sum[i][v], splat(a[i]), row);
    }
  }
  ROCPY_UNROLL
  for (int i = 0; i < rows; i++) {
    ROCPY_UNROLL
    for (int v = 0; v < vectors; v++) store(acc + i * acc_stride + v * lanes, subtract_modulo(sum[i][v], offset[v]));
  }
}

template <int rows>
void integer_wide(const WideCall<int32_t> &arguments) {
  constexpr int lanes = vector_lanes<int32_t>, vectors = skinny_vectors(rows) > 4 ? 4 : skinny_vectors(rows);
  const WideCall<int32_t> call = arguments;
  int64_t j = 0;
  for (; j + vectors * lanes <= call.n; j += vectors * lanes) integer_wide_block<rows, vectors>(call, j, lanes);
  for (; j < call.n; j += lanes) {
    const int last = call.n - j < lanes ? static_cast<int>(call.n - j) : lanes;
    integer_wide_block<rows, 1>(call, j, last);
  }
}

template <int rows>
void integer_dot(const DotCall<int32_t> &call) {
  constexpr int lanes = vector_lanes<int32_t>, columns = skinny_vectors(rows) > 4 ? 4 : skinny_vectors(rows);
  const auto [k, a, a_stride, b_data, b_stride, n, out, out_row, out_column, first] = call;
  const int8_t *b = static_cast<const int8_t *>(b_data);
  for (int64_t j = 0; j < n; j += columns) {
    const int8_t *column[columns];
    // Past the end the last column is read again; its sums are dropped.
    ROCPY_UNROLL
    for (int c = 0; c < columns; c++) column[c] = b + (j + c < n ? j + c : n - 1) * b_stride;
    VecI sum[rows][columns] = {}, offset[columns] = {};
    const int64_t next = columns * b_stride - k + dot_ahead;
    for (int64_t x = 0; x < k; x += group_vector) {
      const int64_t ahead = k - x > dot_ahead ? dot_ahead : next;
      VecI factor[columns];
      ROCPY_UNROLL
      for (int c = 0; c < columns; c++) {
        factor[c] = load_groups(column[c] + x, k - x);
        __builtin_prefetch(column[c] + x + ahead);
        offset[c] = add_offset(offset[c], factor[c]);
      }
      const int32_t *groups = a + x / group_size;
      const int some = k - x >= group_vector ? lanes : static_cast<int>((k - x + group_size - 1) / group_size);
      ROCPY_UNROLL
      for (int i = 0; i < rows; i++) {
        const VecI row = load_some(groups + i * a_stride, some, lanes);
        ROCPY_UNROLL
        for (int c = 0; c < columns; c++) sum[i][c] = add_products(sum[i][c], row, factor[c]);
      }
    }
    const int valid = n - j < columns ? static_cast<int>(n - j) : columns;
    ROCPY_UNROLL
    for (int i = 0; i < rows; i++) {
      ROCPY_UNROLL
      for (int c = 0; c < columns; c++) {
        if (c >= valid) break;
        int32_t *to = out + i * out_row + (j + c) * out_column;
        const VecU total = cast<VecU>(subtract_modulo(sum[i][c], offset[c]));
        uint32_t part = first ? 0 : static_cast<uint32_t>(*to);
        for (int l = 0; l < lanes; l++) part += total[l];
        *to = static_cast<int32_t>(part);
      }
    }
  }
}

template <int rows>
constexpr void fill_integer_skinny(Elements<int32_t> &elements) {
  elements.wide[rows] = integer_wide<rows>;
  elements.dot[rows] = integer_dot<rows>;
  if constexpr (rows > 1) fill_integer_skinny<rows - 1>(elements);
}

}  // namespace
}  // namespace rocpy_host::gemm
