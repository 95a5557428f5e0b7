// SPDX-License-Identifier: MIT
// A few rows of numbers that bfloat16 has, multiplied as pairs, against a large matrix of them that is read where it
// is.
#pragma once

#include "kernels_skinny.hpp"
#include "pair_words.hpp"

namespace rocpy_host::gemm {
namespace {

// Vectors of columns whose sums of so many rows are in registers together.
template <class E>
constexpr int pair_wide_vectors(int rows) {
  return sizeof(E) == 2 || rows > 5 ? 2 : 4;
}

// Lines in a call: more, where they are short or their products take longer than sums take to come and go.
template <class E>
constexpr int64_t pair_burst(int rows) {
  return sizeof(E) == 1 ? 32 : rows > 2 ? 16 : 8;
}

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
                                LeastSeen<Byte<F>> &, VecF (&sum)[rows][vectors]) {
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

template <int rows, int vectors>
ROCPY_INLINE void add_line_pair(const float *a, const Bf16 *b, const Bf16 *second, __mmask64 mask,
                                LeastSeen<Bf16> &seen, VecF (&sum)[rows][vectors]) {
  ROCPY_UNROLL
  for (int half = 0; half < vectors / 2; half++) {
    const __mmask32 some = static_cast<__mmask32>(mask >> (pair_lanes * half));
    const __m512i above = load_many(b + pair_lanes * half, some);
    const __m512i below = second ? load_many(second + pair_lanes * half, some) : _mm512_setzero_si512();
    seen.add(above);
    seen.add(below);
    ROCPY_UNROLL
    for (int v = 0; v < 2; v++) {
      const VecF words = cast<VecF>(_mm512_permutex2var_epi16(above, _mm512_load_si512(half_order.from[v]), below));
      ROCPY_UNROLL
      for (int i = 0; i < rows; i++) {
        sum[i][2 * half + v] = add_pairs<false>(sum[i][2 * half + v], splat(a[i]), words);
      }
    }
  }
}

// The columns in the mask, from the j-th on, of all of the call's lines; `whole`: all columns are.
template <class E, int rows, int vectors, bool whole>
ROCPY_INLINE void pair_wide_block(const WideCall<float> &call, int64_t j, __mmask64 mask, LinesAhead<E> &ahead,
                                  LeastSeen<E> &seen) {
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
    ahead.template fetch<2 * vectors * lanes>();
    add_line_pair<rows, vectors>(a, b, b + stride, mask, seen, sum);
  }
  if (x < k) add_line_pair<rows, vectors>(a, b, static_cast<const E *>(nullptr), mask, seen, sum);
  ROCPY_UNROLL
  for (int i = 0; i < rows; i++) {
    ROCPY_UNROLL
    for (int v = 0; v < vectors; v++) {
      float *to = acc + i * call.acc_stride + v * lanes;
      if constexpr (whole) {
        store(to, sum[i][v]);
      } else {
        _mm512_mask_storeu_ps(to, static_cast<__mmask16>(mask >> (v * lanes)), sum[i][v]);
      }
    }
  }
}

// As wide(): sums are the same.
template <class E, int rows>
void pair_wide(const WideCall<float> &arguments) {
  constexpr int vectors = pair_wide_vectors<E>(rows), columns = vectors * lanes;
  constexpr __mmask64 all = columns == 64 ? ~__mmask64{} : (__mmask64{1} << (columns % 64)) - 1;
  const WideCall<float> call = arguments;
  LinesAhead<E> ahead(call);
  LeastSeen<E> seen;
  const auto some = [&](int64_t first, int64_t count) {
    pair_wide_block<E, rows, vectors, false>(call, first, (__mmask64{1} << count) - 1, ahead, seen);
  };
  int64_t j = columns_before_line<float, E>(call);
  if (j >= columns) j = 0;
  if (j > 0) some(0, j);
  for (; j + columns <= call.n; j += columns) pair_wide_block<E, rows, vectors, true>(call, j, all, ahead, seen);
  if (j < call.n) some(j, call.n - j);
  seen.lower(call.least);
}

// Lines side by side, beside whose sums and words there are registers for the tables of codes, if there are any.
template <class E>
constexpr int pair_dot_columns(int rows) {
  if (sizeof(E) == 2) return rows <= 3 ? 6 : rows == 4 ? 4 : rows <= 6 ? 3 : 2;
  return rows <= 2 ? 8 : rows == 3 ? 5 : rows == 4 ? 4 : rows <= 6 ? 3 : 2;
}

// A line's codes of 64 neighbours along k as words of the lanes that dot() adds them to.
constexpr CodeOrder order_of_dots = make_dot_order();

template <class F>
ROCPY_INLINE void load_dots(const Byte<F> *from, __mmask64 mask, VecF (&words)[2]) {
  join_codes<F>(load_codes<4>(from, mask), order_of_dots, words);
}

template <class F, int rows, int columns>
ROCPY_INLINE void add_dot_words(const float *a, int64_t a_stride, const Byte<F> *const (&column)[columns], int64_t x,
                                int64_t k, DotsAhead<float, Byte<F>, rows, columns> &ahead, LeastSeen<Byte<F>> &,
                                VecF (&sum)[rows][columns]) {
  const __mmask64 mask = k - x >= 2 * pair_lanes ? ~__mmask64{} : (__mmask64{1} << (k - x)) - 1;
  ROCPY_UNROLL
  for (int c = 0; c < columns; c++) {
    VecF words[2];
    load_dots(column[c] + x, mask, words);
    ahead.fetch_in(column[c], x);
    ROCPY_UNROLL
    for (int i = 0; i < rows; i++) {
      ROCPY_UNROLL
      for (int v = 0; v < 2; v++) {
        sum[i][c] = add_pairs<false>(sum[i][c], load(a + i * a_stride + v * lanes), words[v]);
      }
    }
  }
}
// Halves of 32 neighbours along k as the same words.
constexpr WordOrder order_of_dot_words = make_dot_word_order();

template <int rows, int columns>
ROCPY_INLINE void add_dot_words(const float *a, int64_t a_stride, const Bf16 *const (&column)[columns], int64_t x,
                                int64_t k, DotsAhead<float, Bf16, rows, columns> &ahead, LeastSeen<Bf16> &seen,
                                VecF (&sum)[rows][columns]) {
  const __mmask32 mask = mask32(k - x);
  VecF words[columns];
  ROCPY_UNROLL
  for (int c = 0; c < columns; c++) {
    const __m512i halves = load_many(column[c] + x, mask);
    seen.add(halves);
    words[c] =
        cast<VecF>(_mm512_maskz_permutexvar_epi16(~__mmask32{}, _mm512_load_si512(order_of_dot_words.from), halves));
    ahead.fetch_in(column[c], x);
  }
  ROCPY_UNROLL
  for (int i = 0; i < rows; i++) {
    const VecF row = load(a + i * a_stride);
    ROCPY_UNROLL
    for (int c = 0; c < columns; c++) sum[i][c] = add_pairs<false>(sum[i][c], row, words[c]);
  }
}

// As dot(): sums are the same. A word of a's rows has two numbers that go to the same lane of a sum, one after the
// other.
template <class E, int rows>
void pair_dot(const DotCall<float> &call) {
  constexpr int columns = pair_dot_columns<E>(rows), together = 64 / sizeof(E);
  const int64_t k = call.k, b_stride = call.b_stride, n = call.n;
  LeastSeen<E> seen;
  const E *b = static_cast<const E *>(call.b);
  DotsAhead<float, E, rows, columns> ahead(call);
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
    for (int64_t x = 0; x < k; x += together) {
      ahead.template fetch<together>();
      add_dot_words(call.a + x / 2, call.a_stride, column, x, k, ahead, seen, sum);
    }
    add_dots<float, rows, columns>(call, j, n - j < columns ? static_cast<int>(n - j) : columns, sum);
  }
  seen.lower(call.least);
}

template <class E, int rows>
constexpr void fill_pair_skinny(Elements<float> &elements) {
  elements.wide[rows] = pair_wide<E, rows>;
  elements.burst[rows] = pair_burst<E>(rows);
  elements.dot[rows] = pair_dot<E, rows>;
  if constexpr (rows > 1) fill_pair_skinny<E, rows - 1>(elements);
}

}  // namespace
}  // namespace rocpy_host::gemm
