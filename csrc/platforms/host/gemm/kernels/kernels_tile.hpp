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

// Packed panels whose sums of so many rows fit the registers together.
constexpr int strip_panels(int rows) {
  const int panels = (kRegisters == 32 ? 24 : 12) / kTileVectors / rows;
  return panels > 4 ? 4 : panels;
}

// How far ahead of its use a line of each panel is fetched, in bytes.
constexpr int64_t kStripAhead = 1024;

// Memory sets the pace here. Of one panel there is but one stream to read and too few sums to hide their latency.
template <class T, class E, int rows>
void strip(int64_t k, const T *a, const void *b_data, int64_t panel_stride, const T *in, int64_t in_stride,
           int64_t in_panel, T *out, int64_t out_stride, int64_t out_panel) {
  constexpr int lanes = kLanes<T>, panels = strip_panels(rows), line = 64 / static_cast<int>(sizeof(E));
  const E *b = static_cast<const E *>(b_data);
  Vec<T> sum[panels][rows][kTileVectors];
  ROCPY_UNROLL
  for (int q = 0; q < panels; q++) {
    ROCPY_UNROLL
    for (int i = 0; i < rows; i++) {
      ROCPY_UNROLL
      for (int v = 0; v < kTileVectors; v++) {
        sum[q][i][v] = in ? load(in + q * in_panel + i * in_stride + v * lanes) : splat(static_cast<T>(0));
      }
    }
  }
  for (int64_t x = 0; x < k; x++, a += rows, b += kTileVectors * lanes) {
    Vec<T> factor[rows];
    ROCPY_UNROLL
    for (int i = 0; i < rows; i++) factor[i] = splat(a[i]);
    ROCPY_UNROLL
    for (int q = 0; q < panels; q++) {
      const E *row = b + q * panel_stride;
      ROCPY_UNROLL
      for (int v = 0; v < kTileVectors; v++) {
        if (v * lanes % line == 0) {
          __builtin_prefetch(reinterpret_cast<const char *>(row + v * lanes) + kStripAhead);
        }
        const Vec<T> values = load(row + v * lanes);
        ROCPY_UNROLL
        for (int i = 0; i < rows; i++) sum[q][i][v] = fma(factor[i], values, sum[q][i][v]);
      }
    }
  }
  ROCPY_UNROLL
  for (int q = 0; q < panels; q++) {
    ROCPY_UNROLL
    for (int i = 0; i < rows; i++) {
      ROCPY_UNROLL
      for (int v = 0; v < kTileVectors; v++) store(out + q * out_panel + i * out_stride + v * lanes, sum[q][i][v]);
    }
  }
}

template <class T, class E, int rows>
constexpr void fill_strips(Strips<T> &strips) {
  strips.kernel[rows] = strip<T, E, rows>;
  strips.panels[rows] = strip_panels(rows);
  if constexpr (rows > 1) fill_strips<T, E, rows - 1>(strips);
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
