// SPDX-License-Identifier: MIT
// A few rows of floating-point bytes, multiplied as pairs, against a large matrix of them that is read where it is.
#pragma once

#include "kernels_skinny.hpp"
#include "pair_words.hpp"

namespace rocpy_host::gemm {
namespace {

// Vectors of columns whose sums of so many rows are in registers together.
constexpr int pair_wide_vectors(int rows) { return rows > 5 ? 2 : 4; }

// Where the codes of 32 columns from the first on, or from the 33rd, lie in two lines of them.
constexpr CodeOrder order_of_lines[] = {make_code_order(1, 64, 0), make_code_order(1, 64, 32)};

template <int vectors, class F>
ROCPY_INLINE __m512i load_codes(const Byte<F> *from, __mmask64 mask) {
  if constexpr (vectors == 2) return _mm512_castsi256_si512(load_many(from, static_cast<__mmask32>(mask)));
  return _mm512_maskz_loadu_epi8(mask, from);
}

// Two lines of b, of which the columns in the mask exist, the second one only if there is one, times two neighbours of
// each row of a.
template <int rows, int vectors, class F>
ROCPY_INLINE void add_line_pair(const float *a, const Byte<F> *b, const Byte<F> *second, __mmask64 mask,
                                VecF (&sum)[rows][vectors]) {
  const __m512i above = load_codes<vectors>(b, mask);
  const __m512i below = second ? load_codes<vectors>(second, mask) : _mm512_setzero_si512();
  ROCPY_UNROLL
  for (int half = 0; half < vectors / 2; half++) {
    VecU words[2];
    as_bf16<F>(_mm512_permutex2var_epi8(above, _mm512_load_si512(order_of_lines[half].from), below), words[0],
               words[1]);
    ROCPY_UNROLL
    for (int v = 0; v < 2; v++) {
      ROCPY_UNROLL
      for (int i = 0; i < rows; i++) {
        sum[i][2 * half + v] = add_pairs<false>(sum[i][2 * half + v], splat(a[i]), cast<VecF>(words[v]));
      }
    }
  }
}

// The columns in the mask, from the j-th on, of all of the call's lines; `whole`: all columns are.
template <class E, int rows, int vectors, bool whole>
ROCPY_INLINE void pair_wide_block(const WideCall<float> &call, int64_t j, __mmask64 mask) {
  const float *a = call.a;
  const E *b = static_cast<const E *>(call.b) + j;
  float *acc = call.acc + j;
  const int64_t k = call.k, stride = call.b_stride;
  const auto stored = [&](int v) { return whole || (mask >> (v * lanes)) != 0; };
  VecF sum[rows][vectors];
  ROCPY_UNROLL
  for (int i = 0; i < rows; i++) {
    ROCPY_UNROLL
    for (int v = 0; v < vectors; v++) {
      sum[i][v] = call.first || !stored(v) ? splat(0.0f) : load(acc + i * call.acc_stride + v * lanes);
    }
  }
  int64_t x = 0;
  for (; x + 2 <= k; x += 2, a += call.a_stride, b += 2 * stride) {
    add_line_pair<rows, vectors>(a, b, b + stride, mask, sum);
  }
  if (x < k) add_line_pair<rows, vectors>(a, b, static_cast<const E *>(nullptr), mask, sum);
  ROCPY_UNROLL
  for (int i = 0; i < rows; i++) {
    ROCPY_UNROLL
    for (int v = 0; v < vectors; v++) {
      if (stored(v)) store(acc + i * call.acc_stride + v * lanes, sum[i][v]);
    }
  }
}

// As wide(), of floating-point bytes: sums are the same.
template <class E, int rows>
void pair_wide(const WideCall<float> &arguments) {
  constexpr int vectors = pair_wide_vectors(rows), columns = vectors * lanes;
  constexpr __mmask64 all = columns == 64 ? ~__mmask64{} : (__mmask64{1} << (columns % 64)) - 1;
  const WideCall<float> call = arguments;
  const Ahead<float, E, rows> ahead(call);
  int64_t j = 0;
  for (; j + columns <= call.n; j += columns) {
    if (j % 64 == 0) {
      const char *at = static_cast<const char *>(call.b) + j + ahead.at(j);
      for (int64_t x = 0; x < call.k; x++) fetch_line<rows>(at + x * call.b_stride);
    }
    pair_wide_block<E, rows, vectors, true>(call, j, all);
  }
  if (j < call.n) pair_wide_block<E, rows, vectors, false>(call, j, (__mmask64{1} << (call.n - j)) - 1);
}

// Lines side by side, beside whose sums and words there are registers for the tables of codes.
constexpr int pair_dot_columns(int rows) { return rows <= 2 ? 8 : rows == 3 ? 5 : rows == 4 ? 4 : rows <= 6 ? 3 : 2; }

// A line's codes of 64 neighbours along k as words of the lanes that dot() adds them to.
constexpr CodeOrder order_of_dots = make_dot_order();

template <class F>
ROCPY_INLINE void load_dots(const Byte<F> *from, __mmask64 mask, VecF (&words)[2]) {
  join_codes<F>(load_codes<4>(from, mask), order_of_dots, words);
}

// As dot(), of floating-point bytes: sums are the same. A word of a's rows has two numbers that go to the same lane of
// a sum, one after the other.
template <class E, int rows>
void pair_dot(const DotCall<float> &call) {
  constexpr int columns = pair_dot_columns(rows), together = 2 * pair_lanes;
  const int64_t k = call.k, a_stride = call.a_stride, b_stride = call.b_stride, n = call.n;
  const E *b = static_cast<const E *>(call.b);
  for (int64_t j = 0; j < n; j += columns) {
    const E *column[columns];
    // Past the end the last column is read again; its sums are dropped.
    ROCPY_UNROLL
    for (int c = 0; c < columns; c++) column[c] = b + (j + c < n ? j + c : n - 1) * b_stride;
    VecF sum[rows][columns];
    ROCPY_UNROLL
    for (int i = 0; i < rows; i++) {
      ROCPY_UNROLL
      for (int c = 0; c < columns; c++) sum[i][c] = splat(0.0f);
    }
    const int64_t next = columns * b_stride - k + dot_ahead<E>;
    for (int64_t x = 0; x < k; x += together) {
      const int64_t ahead = k - x > dot_ahead<E> ? dot_ahead<E> : next;
      const __mmask64 mask = k - x >= together ? ~__mmask64{} : (__mmask64{1} << (k - x)) - 1;
      const float *words_of_rows = call.a + x / 2;
      ROCPY_UNROLL
      for (int c = 0; c < columns; c++) {
        VecF words[2];
        load_dots(column[c] + x, mask, words);
        if constexpr (rows > 1) fetch_far(reinterpret_cast<const char *>(column[c] + x) + ahead);
        ROCPY_UNROLL
        for (int i = 0; i < rows; i++) {
          ROCPY_UNROLL
          for (int v = 0; v < 2; v++) {
            sum[i][c] = add_pairs<false>(sum[i][c], load(words_of_rows + i * a_stride + v * lanes), words[v]);
          }
        }
      }
    }
    add_dots<float, rows, columns>(call, j, n - j < columns ? static_cast<int>(n - j) : columns, sum);
  }
}

template <class E, int rows>
constexpr void fill_pair_skinny(Elements<float> &elements) {
  elements.wide[rows] = pair_wide<E, rows>;
  elements.burst[rows] = lines_side_by_side;
  elements.dot[rows] = pair_dot<E, rows>;
  if constexpr (rows > 1) fill_pair_skinny<E, rows - 1>(elements);
}

}  // namespace
}  // namespace rocpy_host::gemm
