// SPDX-License-Identifier: MIT
// The register tile: rows x one or two vectors of sums, held in registers while k runs.
#pragma once

#include "formats.hpp"
#include "kernels.hpp"

namespace rocpy_host::gemm {
namespace {

// Rows that fit beside the vectors of b and one value of a.
constexpr int kTileRows = kRegisters == 32 ? (kVectorBytes == 64 ? 14 : 12) : (kVectorBytes == 32 ? 6 : 4);
constexpr int kTileVectors = 2;

template <class T, class E, int rows, int vectors, bool packed>
void tile(int64_t k, const T *a, int64_t a_stride, const void *b_data, int64_t b_stride, const T *in, int64_t in_stride,
          T *out, int64_t out_stride, const char *prefetch, int64_t prefetch_stride, int64_t prefetch_pace) {
  constexpr int lanes = kLanes<T>;
  const E *b = static_cast<const E *>(b_data);
  Vec<T> sum[rows][vectors];
  ROCPY_UNROLL
  for (int i = 0; i < rows; i++) {
    ROCPY_UNROLL
    for (int v = 0; v < vectors; v++) sum[i][v] = in ? load(in + i * in_stride + v * lanes) : splat(static_cast<T>(0));
  }
  for (int64_t x = 0; x < k; x++) {
    Vec<T> row[vectors];
    ROCPY_UNROLL
    for (int v = 0; v < vectors; v++) row[v] = load(b + v * lanes);
    __builtin_prefetch(prefetch);
    if constexpr (kTileVectors * lanes * sizeof(E) > 64) __builtin_prefetch(prefetch + 64);
    ROCPY_UNROLL
    for (int i = 0; i < rows; i++) {
      Vec<T> factor = splat(packed ? a[i] : a[i * a_stride]);
      ROCPY_UNROLL
      for (int v = 0; v < vectors; v++) sum[i][v] = fma(factor, row[v], sum[i][v]);
    }
    a += packed ? rows : 1;
    b += b_stride;
    if ((x & prefetch_pace) == prefetch_pace) prefetch += prefetch_stride;
  }
  ROCPY_UNROLL
  for (int i = 0; i < rows; i++) {
    ROCPY_UNROLL
    for (int v = 0; v < vectors; v++) store(out + i * out_stride + v * lanes, sum[i][v]);
  }
}

template <class T, class E, int vectors, bool packed, int rows>
constexpr void fill_tiles(typename Kernels<T>::Tile *row) {
  row[rows] = tile<T, E, rows, vectors, packed>;
  if constexpr (rows > 1) fill_tiles<T, E, vectors, packed, rows - 1>(row);
}

template <class T, class E>
constexpr void fill_element_tiles(typename Kernels<T>::Tile (*tiles)[2][kMaxTileRows + 1]) {
  fill_tiles<T, E, 1, false, kTileRows>(tiles[0][0]);
  fill_tiles<T, E, 1, true, kTileRows>(tiles[0][1]);
  fill_tiles<T, E, 2, false, kTileRows>(tiles[1][0]);
  fill_tiles<T, E, 2, true, kTileRows>(tiles[1][1]);
}

}  // namespace
}  // namespace rocpy_host::gemm
