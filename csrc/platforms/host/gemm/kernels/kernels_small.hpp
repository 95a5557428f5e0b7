// SPDX-License-Identifier: MIT
// Register tiles of products that fit the innermost cache: both operands are read where they are, and no more columns
// are written than the result has.
#pragma once

#include "kernels.hpp"
#include "kernels_tile.hpp"

namespace rocpy_host::gemm {
namespace {

// Where a part of a vector is loaded as fast as a whole one.
#if defined(__AVX2__)
constexpr bool loads_parts = true;
#else
constexpr bool loads_parts = false;
#endif

template <class T, int rows, int vectors>
void small(const SmallCall<T> &arguments) {
  constexpr int lanes = vector_lanes<T>;
  const SmallCall<T> call = arguments;
  // As of tiles, addresses of rows are a pointer for each three of them.
  const T *from[(rows + 2) / 3];
  ROCPY_UNROLL
  for (int q = 0; q < (rows + 2) / 3; q++) from[q] = call.a + 3 * q * call.a_row;
  const T *b = call.b;
  Vec<T> sum[rows][vectors];
  ROCPY_UNROLL
  for (int i = 0; i < rows; i++) {
    ROCPY_UNROLL
    for (int v = 0; v < vectors; v++) sum[i][v] = splat(static_cast<T>(0));
  }
  for (int64_t x = 0; x < call.k; x++, b += call.b_step) {
    Vec<T> row[vectors];
    ROCPY_UNROLL
    for (int v = 0; v + 1 < vectors; v++) row[v] = load(b + v * lanes);
    const T *last = b + (vectors - 1) * lanes;
    row[vectors - 1] = loads_parts ? load_part(last, call.loaded) : load_some(last, call.loaded, lanes);
    ROCPY_UNROLL
    for (int i = 0; i < rows; i++) {
      const Vec<T> factor = splat(from[i / 3][i % 3 * call.a_row]);
      ROCPY_UNROLL
      for (int v = 0; v < vectors; v++) sum[i][v] = fma(factor, row[v], sum[i][v]);
    }
    ROCPY_UNROLL
    for (int q = 0; q < (rows + 2) / 3; q++) from[q] += call.a_step;
  }
  ROCPY_UNROLL
  for (int i = 0; i < rows; i++) {
    T *out = call.out + i * call.out_stride;
    ROCPY_UNROLL
    for (int v = 0; v + 1 < vectors; v++) store(out + v * lanes, sum[i][v]);
    T *last = out + (vectors - 1) * lanes;
    if (call.stored == lanes) {
      store(last, sum[i][vectors - 1]);
    } else {
      store_part(last, sum[i][vectors - 1], call.stored);
    }
  }
}

template <class T, int vectors, int rows>
constexpr void fill_small(typename Kernels<T>::Small *row) {
  row[rows] = small<T, rows, vectors>;
  if constexpr (rows > 1) fill_small<T, vectors, rows - 1>(row);
}

}  // namespace
}  // namespace rocpy_host::gemm
