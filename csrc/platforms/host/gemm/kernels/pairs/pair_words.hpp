// SPDX-License-Identifier: MIT
// Words of two numbers of bfloat16: how they are made, and the instruction that multiplies them.
#pragma once

#include "formats.hpp"
#include "simd.hpp"

namespace rocpy_host::gemm {
namespace {

constexpr int lanes = vector_lanes<float>, pair_lanes = 2 * lanes;

typedef uint16_t VecHalves __attribute__((vector_size(vector_bytes)));

// The least magnitude of numbers that have been met, but for zero. Bytes are never so small that it matters.
template <class E>
struct LeastSeen {
  ROCPY_INLINE void add(__m512i) {}
  ROCPY_INLINE void lower(int *) const {}
};
template <>
struct LeastSeen<Bf16> {
  VecHalves least = ~VecHalves{};
  ROCPY_INLINE void add(__m512i numbers) {
    // Zero becomes the largest.
    const VecHalves values = (cast<VecHalves>(numbers) & 0x7fff) - 1;
    least = cast<VecHalves>(_mm512_min_epu16(cast<__m512i>(least), cast<__m512i>(values)));
  }
  ROCPY_INLINE void lower(int *to) const {
    for (int i = 0; i < pair_lanes; i++) *to = least[i] + 1 < *to ? least[i] + 1 : *to;
  }
};

ROCPY_INLINE VecF upper(VecF pairs) { return cast<VecF>(cast<VecU>(pairs) & 0xffff0000u); }
ROCPY_INLINE VecF lower(VecF pairs) { return cast<VecF>(cast<VecU>(pairs) << 16); }

// sum + the product of the upper halves, then + that of the lower ones.
template <bool one_by_one>
ROCPY_INLINE VecF add_pairs(VecF sum, VecF left, VecF right) {
  if constexpr (one_by_one) return fma(lower(left), lower(right), fma(upper(left), upper(right), sum));
  return _mm512_dpbf16_ps(sum, cast<__m512bh>(right), cast<__m512bh>(left));
}

// Where the halves of words come from, an odd one from the first of two rows.
struct HalfOrder {
  alignas(64) uint16_t from[2][pair_lanes];
};
constexpr HalfOrder make_half_order() {
  HalfOrder order{};
  for (int half = 0; half < 2 * pair_lanes; half++) {
    order.from[half / pair_lanes][half % pair_lanes] = static_cast<uint16_t>(half / 2 + (half % 2 ? 0 : pair_lanes));
  }
  return order;
}
constexpr HalfOrder half_order = make_half_order();

// Where codes go, so that as_bf16() makes words in order of them: of two rows, or of neighbours in one.
struct CodeOrder {
  alignas(64) uint8_t from[2 * pair_lanes];
};
constexpr CodeOrder make_code_order(int between_columns, int between_rows, int first = 0) {
  CodeOrder order{};
  for (int half = 0; half < 2 * pair_lanes; half++) {
    const int to = half % pair_lanes / 8 * 16 + half / pair_lanes * 8 + half % 8;
    order.from[to] = static_cast<uint8_t>(first + half / 2 * between_columns + (half % 2 ? 0 : between_rows));
  }
  return order;
}
constexpr CodeOrder order_of_rows = make_code_order(1, pair_lanes), order_of_neighbours = make_code_order(2, 1);

// The same, so that words have numbers a vector of lanes apart: of 64 numbers the first 32, then the others.
constexpr CodeOrder make_dot_order() {
  CodeOrder order{};
  for (int half = 0; half < 2 * pair_lanes; half++) {
    const int to = half % pair_lanes / 8 * 16 + half / pair_lanes * 8 + half % 8, word = half / 2;
    order.from[to] = static_cast<uint8_t>(word % lanes + word / lanes * pair_lanes + (half % 2 ? 0 : lanes));
  }
  return order;
}

// Where halves go, so that words have numbers a vector of lanes apart, the first one in the upper half.
struct WordOrder {
  alignas(64) uint16_t from[pair_lanes];
};
constexpr WordOrder make_dot_word_order() {
  WordOrder order{};
  for (int half = 0; half < pair_lanes; half++) {
    order.from[half] = static_cast<uint16_t>(half / 2 + (half % 2 ? 0 : lanes));
  }
  return order;
}

ROCPY_INLINE __mmask32 mask32(int64_t count) {
  return count >= pair_lanes ? ~__mmask32{} : static_cast<__mmask32>((uint32_t{1} << count) - 1);
}
ROCPY_INLINE __m512i load_many(const Bf16 *from, __mmask32 mask) { return _mm512_maskz_loadu_epi16(mask, from); }
template <class F>
ROCPY_INLINE __m256i load_many(const Byte<F> *from, __mmask32 mask) {
  return _mm256_maskz_loadu_epi8(mask, from);
}

// The words of two rows along k, of which so many columns exist, the others being 0.
ROCPY_INLINE void join_rows(const Bf16 *first, const Bf16 *second, __mmask32 mask, __mmask32 second_mask,
                            VecF (&words)[2]) {
  const __m512i above = load_many(first, mask), below = load_many(second, second_mask);
  ROCPY_UNROLL
  for (int v = 0; v < 2; v++) {
    words[v] = cast<VecF>(_mm512_permutex2var_epi16(above, _mm512_load_si512(half_order.from[v]), below));
  }
}
template <class F>
ROCPY_INLINE void join_codes(__m512i codes, const CodeOrder &order, VecF (&words)[2]) {
  codes = _mm512_maskz_permutexvar_epi8(~__mmask64{}, _mm512_load_si512(order.from), codes);
  VecU lower, upper;
  as_bf16<F>(codes, lower, upper);
  words[0] = cast<VecF>(lower);
  words[1] = cast<VecF>(upper);
}
template <class F>
ROCPY_INLINE void join_rows(const Byte<F> *first, const Byte<F> *second, __mmask32 mask, __mmask32 second_mask,
                            VecF (&words)[2]) {
  const __m512i above = _mm512_castsi256_si512(load_many(first, mask));
  join_codes<F>(_mm512_maskz_inserti64x4(0xff, above, load_many(second, second_mask), 1), order_of_rows, words);
}

// The words of neighbours along k.
ROCPY_INLINE VecF load_words(const Bf16 *from, __mmask32 mask) {
  const VecU halves = cast<VecU>(load_many(from, mask));
  return cast<VecF>((halves << 16) | (halves >> 16));
}
template <class F>
ROCPY_INLINE VecF load_words(const Byte<F> *from, __mmask32 mask) {
  VecF words[2];
  join_codes<F>(_mm512_castsi256_si512(load_many(from, mask)), order_of_neighbours, words);
  return words[0];  // the others are of nothing
}

}  // namespace
}  // namespace rocpy_host::gemm
