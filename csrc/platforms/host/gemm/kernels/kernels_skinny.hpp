// SPDX-License-Identifier: MIT
// Kernels for a few rows against a large matrix: it is read once, in order, and memory sets the pace.
#pragma once

#include <type_traits>

#include "fetching.hpp"
#include "formats.hpp"

namespace rocpy_host::gemm {
namespace {

// Vectors (of columns, or columns of a dot product) that fit beside the sums of so many rows.
constexpr int skinny_vectors(int rows) {
  int sums = vector_registers == 32 ? 24 : 12, most = vector_registers == 32 ? 8 : 4;
  int vectors = sums / rows;
  return vectors > most ? most : vectors < 1 ? 1 : vectors;
}

// The same beside elements of 16 bits, which are in a register each before they are multiplied.
template <class E>
constexpr int element_vectors(int rows) {
  const int vectors = skinny_vectors(rows);
  const bool spills = vector_registers == 16 && rows * vectors + vectors + 1 > vector_registers;
  return sizeof(E) == 2 && spills ? vectors - 1 : vectors;
}

// Of one row the stretch of each line that is read at once is longer.
template <class E>
constexpr int wide_vectors(int rows) {
  return rows > 1 ? element_vectors<E>(rows) : 8;
}

// Elements of which two vectors are read at a time.
template <class E>
constexpr bool reads_pairs = vector_bytes >= 32 && sizeof(E) == 1;

// Some vectors of columns from the j-th on, `last` lanes of the last of them: all, where there are several.
template <class T, class E, int rows, int vectors, bool fours>
ROCPY_INLINE void wide_block(const WideCall<T> &call, int64_t j, int last, LinesAhead<E> &ahead) {
  constexpr int lanes = vector_lanes<T>;
  constexpr bool takes_fours = fours && reads_fours<E>(rows * vectors) && vectors % 4 == 0;
  const int64_t k = call.k, a_stride = call.a_stride, b_stride = call.b_stride, acc_stride = call.acc_stride;
  // Else the compiler keeps the sums of no line at all in memory, beside those in registers.
  if (k < 1) __builtin_unreachable();
  const bool first = call.first;
  const T *a = call.a;
  const E *b = static_cast<const E *>(call.b) + j;
  T *acc = call.acc + j;
  Vec<T> sum[rows][vectors];
  ROCPY_UNROLL
  for (int i = 0; i < rows; i++) {
    ROCPY_UNROLL
    for (int v = 0; v < vectors; v++) {
      sum[i][v] = first ? splat(static_cast<T>(0)) : load(acc + i * acc_stride + v * lanes);
    }
  }
  [[maybe_unused]] NanSeen<E> seen;
  for (int64_t x = 0; x < k; x++, a += a_stride, b += b_stride) {
    ahead.template fetch<vectors * lanes>();
    Vec<T> row[vectors];
    ROCPY_UNROLL
    for (int v = 0; v < vectors; v++) {
      if constexpr (takes_fours) {
        if (v % 4 == 0) {
          Vec<T> four[4];
          load_four(b + v * lanes, four, seen);
          ROCPY_UNROLL
          for (int i = 0; i < 4; i++) row[v + i] = four[i];
        }
      } else if constexpr (reads_pairs<E> && vectors > 1) {
        if (v % 2 == 0 && v + 1 < vectors) {
          Vec<T> pair[2];
          load_pair(b + v * lanes, pair);
          row[v] = pair[0];
          row[v + 1] = pair[1];
        } else if (v % 2 == 0) {
          row[v] = load(b + v * lanes);
        }
      } else {
        row[v] = v == vectors - 1 ? load_some(b + v * lanes, last, lanes) : load(b + v * lanes);
      }
      if constexpr (vector_registers == 32) {
        ROCPY_UNROLL
        for (int i = 0; i < rows; i++) sum[i][v] = fma(splat(a[i]), row[v], sum[i][v]);
      }
    }
    // With few registers there is a load for nearly every multiplication: a factor is loaded once for all vectors.
    if constexpr (vector_registers != 32) {
      ROCPY_UNROLL
      for (int i = 0; i < rows; i++) {
        const Vec<T> factor = splat(takes_fours && four_scale<E> != 1 ? a[i] * static_cast<T>(four_scale<E>) : a[i]);
        ROCPY_UNROLL
        for (int v = 0; v < vectors; v++) sum[i][v] = fma(factor, row[v], sum[i][v]);
      }
    }
  }
  ROCPY_UNROLL
  for (int i = 0; i < rows; i++) {
    ROCPY_UNROLL
    for (int v = 0; v < vectors; v++) store(acc + i * acc_stride + v * lanes, sum[i][v]);
  }
  if constexpr (takes_fours) {
    if (seen.nan()) mark_nan(static_cast<const E *>(call.b) + j, k, b_stride, vectors * lanes, acc, rows, acc_stride);
  }
}

// Rows whose factors of all lines are in registers, or near them.
constexpr int rows_side_by_side = vector_registers == 32 ? 4 : 2;

template <class E>
constexpr bool reads_side_by_side = sizeof(E) > 1 || loads_fours<E>;

// A vector of columns, `last` lanes of it, of the rows' sums and of the lines of b that are read side by side.
template <class T, class E, int rows>
ROCPY_INLINE void side_by_side_vector(const Vec<T> (&factor)[lines_side_by_side][rows], const E *b, int64_t b_stride,
                                      int last, T *acc, int64_t acc_stride, bool first) {
  constexpr int lanes = vector_lanes<T>;
  Vec<T> sum[rows];
  ROCPY_UNROLL
  for (int i = 0; i < rows; i++) sum[i] = first ? splat(static_cast<T>(0)) : load(acc + i * acc_stride);
  ROCPY_UNROLL
  for (int x = 0; x < lines_side_by_side; x++) {
    const Vec<T> line = load_some(b + x * b_stride, last, lanes);
    ROCPY_UNROLL
    for (int i = 0; i < rows; i++) sum[i] = fma(factor[x][i], line, sum[i]);
  }
  ROCPY_UNROLL
  for (int i = 0; i < rows; i++) store(acc + i * acc_stride, sum[i]);
}

// Four vectors of columns.
template <class T, class E, int rows>
ROCPY_INLINE void side_by_side_four(const Vec<T> (&factor)[lines_side_by_side][rows], const E *b, int64_t b_stride,
                                    T *acc, int64_t acc_stride, bool first) {
  constexpr int lanes = vector_lanes<T>;
  Vec<T> sum[rows][4];
  ROCPY_UNROLL
  for (int i = 0; i < rows; i++) {
    ROCPY_UNROLL
    for (int v = 0; v < 4; v++) sum[i][v] = first ? splat(static_cast<T>(0)) : load(acc + i * acc_stride + v * lanes);
  }
  NanSeen<E> seen;
  ROCPY_UNROLL
  for (int x = 0; x < lines_side_by_side; x++) {
    Vec<T> line[4];
    load_four(b + x * b_stride, line, seen);
    ROCPY_UNROLL
    for (int i = 0; i < rows; i++) {
      ROCPY_UNROLL
      for (int v = 0; v < 4; v++) sum[i][v] = fma(factor[x][i], line[v], sum[i][v]);
    }
  }
  ROCPY_UNROLL
  for (int i = 0; i < rows; i++) {
    ROCPY_UNROLL
    for (int v = 0; v < 4; v++) store(acc + i * acc_stride + v * lanes, sum[i][v]);
  }
  if (seen.nan()) mark_nan(b, lines_side_by_side, b_stride, 4 * lanes, acc, rows, acc_stride);
}

template <class T, class E, int rows>
void side_by_side(const WideCall<T> &call) {
  constexpr int lanes = vector_lanes<T>;
  const int64_t n = call.n, stride = call.b_stride, acc_stride = call.acc_stride;
  const bool first = call.first;
  const E *b = static_cast<const E *>(call.b);
  T *acc = call.acc;
  std::conditional_t<vector_registers == 32 && (rows > 1), ColumnsAhead<E>, LinesAhead<E>> ahead(call);
  Vec<T> factor[lines_side_by_side][rows];
  int64_t j = 0;
  if constexpr (loads_fours<E>) {
    ROCPY_UNROLL
    for (int x = 0; x < lines_side_by_side; x++) {
      ROCPY_UNROLL
      for (int i = 0; i < rows; i++) factor[x][i] = splat(call.a[x * call.a_stride + i] * four_scale<E>);
    }
    for (; j + 4 * lanes <= n; j += 4 * lanes) {
      ahead.template fetch_side_by_side<4 * lanes>(b, j);
      side_by_side_four<T, E, rows>(factor, b + j, stride, acc + j, acc_stride, first);
    }
  }
  ROCPY_UNROLL
  for (int x = 0; x < lines_side_by_side; x++) {
    ROCPY_UNROLL
    for (int i = 0; i < rows; i++) factor[x][i] = splat(call.a[x * call.a_stride + i]);
  }
  for (; j + 2 * lanes <= n; j += 2 * lanes) {
    ahead.template fetch_side_by_side<2 * lanes>(b, j);
    side_by_side_vector<T, E, rows>(factor, b + j, stride, lanes, acc + j, acc_stride, first);
    side_by_side_vector<T, E, rows>(factor, b + j + lanes, stride, lanes, acc + j + lanes, acc_stride, first);
  }
  for (; j < n; j += lanes) {
    const int last = n - j < lanes ? static_cast<int>(n - j) : lanes;
    side_by_side_vector<T, E, rows>(factor, b + j, stride, last, acc + j, acc_stride, first);
  }
}

// acc has whole vectors: it is written beyond n, up to a multiple of the lanes.
template <class T, class E, int rows, bool fours>
void wide_of(const WideCall<T> &arguments) {
  if constexpr (rows <= rows_side_by_side && reads_side_by_side<E> && fours) {
    if (arguments.k == lines_side_by_side) return side_by_side<T, E, rows>(arguments);
  }
  constexpr int lanes = vector_lanes<T>, vectors = wide_vectors<E>(rows);
  const WideCall<T> call = arguments;
  const int64_t n = call.n;
  LinesAhead<E> ahead(call);
  int64_t j = 0;
  for (; j + vectors * lanes <= n; j += vectors * lanes) {
    wide_block<T, E, rows, vectors, fours>(call, j, lanes, ahead);
  }
  for (; j < n; j += lanes) {
    int last = n - j < lanes ? static_cast<int>(n - j) : lanes;
    wide_block<T, E, rows, 1, fours>(call, j, last, ahead);
  }
}

template <class T, class E, int rows>
void wide(const WideCall<T> &call) {
  if constexpr (four_scale<E> != 1) {
    for (int64_t x = 0; x < call.k; x++) {
      if (!scales_factors<E>(call.a + x * call.a_stride, rows)) return wide_of<T, E, rows, false>(call);
    }
  }
  wide_of<T, E, rows, true>(call);
}

// Lines of a dot product side by side.
template <class E>
constexpr int dot_columns(int rows) {
  return rows == 1 ? 8 : element_vectors<E>(rows);
}

// The same of lines that begin in the same sets of a cache, which have eight ways for them and the rows: fewer, above
// all while they come from memory. Measured with AVX-512 on EPYCs of the fourth generation, where products of three
// rows take two thirds of the time and of four to eight rows seven eighths; 16-bit ones would take longer.
template <class E>
constexpr int sharing_columns(int rows, bool again) {
  const bool fewer = vector_registers == 32 && sizeof(E) > 2 && rows > 1;
  const int all = dot_columns<E>(rows), most = again && rows > 3 ? 6 : 12 / rows;
  return fewer && most < all ? most : all;
}
constexpr int64_t bytes_of_sets = 4096;

// Of elements that are read in pairs of vectors, or in fours; returns the x that was reached.
template <class T, class E, int rows, int columns>
ROCPY_INLINE int64_t dot_groups(const DotCall<T> &call, const E *const (&column)[columns],
                                DotsAhead<T, E, rows, columns> &ahead, Vec<T> (&sum)[rows][columns], NanSeen<E> &seen) {
  // Of only two lines the vectors that are read together are enough as pairs.
  constexpr bool fours = reads_fours<E>(rows * columns) && columns > 2;
  constexpr int lanes = vector_lanes<T>, together = fours ? 4 : 2;
  const int64_t k = call.k, a_stride = call.a_stride;
  const T *a = call.a;
  int64_t x = 0;
  for (; x + together * lanes <= k; x += together * lanes) {
    ahead.template fetch<together * lanes>();
    ROCPY_UNROLL
    for (int c = 0; c < columns; c++) {
      Vec<T> values[together];
      load_group(column[c] + x, values, seen);
      ahead.fetch_in(column[c], x);
      ROCPY_UNROLL
      for (int i = 0; i < rows; i++) {
        ROCPY_UNROLL
        for (int v = 0; v < together; v++) {
          sum[i][c] = fma(load(a + i * a_stride + x + v * lanes), values[v], sum[i][c]);
        }
      }
    }
  }
  return x;
}

// The products with the first `valid` lines of those from the j-th on: their sums' lanes added by halves.
template <class T, int rows, int columns>
ROCPY_INLINE void add_dots(const DotCall<T> &call, int64_t j, int valid, const Vec<T> (&sum)[rows][columns]) {
  // From memory, in a loop: a sum over lanes is long, and there would be one for each register.
  Vec<T> sums[rows][columns];
  ROCPY_UNROLL
  for (int i = 0; i < rows; i++) {
    ROCPY_UNROLL
    for (int c = 0; c < columns; c++) sums[i][c] = sum[i][c];
  }
  ROCPY_LOOP
  for (int i = 0; i < rows; i++) {
    ROCPY_LOOP
    for (int c = 0; c < valid; c++) {
      T *to = call.out + i * call.out_row + (j + c) * call.out_column;
      const T total = sum_lanes<T>(sums[i][c]);
      *to = call.first ? total : *to + total;
    }
  }
}

template <class T, class E, int rows, int columns>
ROCPY_INLINE void dot_lines(const DotCall<T> &call) {
  constexpr int lanes = vector_lanes<T>;
  const int64_t k = call.k, a_stride = call.a_stride, b_stride = call.b_stride, n = call.n;
  const T *a = call.a;
  const E *b = static_cast<const E *>(call.b);
  DotsAhead<T, E, rows, columns> ahead(call);
  for (int64_t j = 0; j < n; j += columns) {
    const E *column[columns];
    // Past the end the last column is read again; its sums are dropped.
    ROCPY_UNROLL
    for (int c = 0; c < columns; c++) column[c] = b + (j + c < n ? j + c : n - 1) * b_stride;
    Vec<T> sum[rows][columns];
    ROCPY_UNROLL
    for (int i = 0; i < rows; i++) {
      ROCPY_UNROLL
      for (int c = 0; c < columns; c++) sum[i][c] = splat(static_cast<T>(0));
    }
    [[maybe_unused]] NanSeen<E> seen;
    int64_t x = 0;
    if constexpr (reads_pairs<E>) x = dot_groups<T, E, rows, columns>(call, column, ahead, sum, seen);
    for (; x + lanes <= k; x += lanes) {
      ahead.template fetch<lanes>();
      Vec<T> factor[columns];
      ROCPY_UNROLL
      for (int c = 0; c < columns; c++) {
        factor[c] = load(column[c] + x);
        ahead.fetch_in(column[c], x);
      }
      ROCPY_UNROLL
      for (int i = 0; i < rows; i++) {
        Vec<T> row = load(a + i * a_stride + x);
        ROCPY_UNROLL
        for (int c = 0; c < columns; c++) sum[i][c] = fma(row, factor[c], sum[i][c]);
      }
    }
    if (x < k) {
      int last = static_cast<int>(k - x);
      Vec<T> factor[columns];
      ROCPY_UNROLL
      for (int c = 0; c < columns; c++) factor[c] = load_part(column[c] + x, last);
      ROCPY_UNROLL
      for (int i = 0; i < rows; i++) {
        Vec<T> row = load_part(a + i * a_stride + x, last);
        ROCPY_UNROLL
        for (int c = 0; c < columns; c++) sum[i][c] = fma(row, factor[c], sum[i][c]);
      }
    }
    const int valid = n - j < columns ? static_cast<int>(n - j) : columns;
    add_dots<T, rows, columns>(call, j, valid, sum);
    if constexpr (loads_fours<E>) {
      for (int c = 0; seen.nan() && c < valid; c++) {
        mark_nan(column[c], k, 1, 1, call.out + (j + c) * call.out_column, rows, call.out_row);
      }
    }
  }
}

template <class T, class E, int rows>
void dot(const DotCall<T> &call) {
  constexpr int columns = dot_columns<E>(rows);
  if constexpr (sharing_columns<E>(rows, false) < columns) {
    if (call.b_stride * static_cast<int64_t>(sizeof(E)) % bytes_of_sets == 0) {
      if (call.again) return dot_lines<T, E, rows, sharing_columns<E>(rows, true)>(call);
      return dot_lines<T, E, rows, sharing_columns<E>(rows, false)>(call);
    }
  }
  dot_lines<T, E, rows, columns>(call);
}

template <class T, class E, int rows>
constexpr void fill_skinny(Elements<T> &elements) {
  elements.wide[rows] = wide<T, E, rows>;
  elements.dot[rows] = dot<T, E, rows>;
  if constexpr (rows > 1) fill_skinny<T, E, rows - 1>(elements);
}

}  // namespace
}  // namespace rocpy_host::gemm
