// SPDX-License-Identifier: MIT
// Vectors of 8-bit elements: floating-point bytes are widened to float by integer arithmetic, or as halves where the
// processor converts these, and rounded back by integer arithmetic: alike on every instruction set, and without
// subnormal numbers of float.
#pragma once

#include <limits>

#include "gemm.hpp"
#include "simd.hpp"

namespace rocpy_host::gemm {
namespace {

// One element of format F, or an 8-bit integer.
template <class F>
struct Byte {
  uint8_t bits;
};
struct Int8 {
  int8_t value;
};

typedef uint8_t VecB __attribute__((vector_size(vector_bytes / 4)));
typedef int8_t VecSB __attribute__((vector_size(vector_bytes / 4)));

// Between bytes and 32 bits. Compilers split these conversions into several steps where the CPU has one.
#if defined(__AVX512F__)
ROCPY_INLINE VecU widen_bytes(VecB v) { return cast<VecU>(_mm512_maskz_cvtepu8_epi32(0xffff, cast<__m128i>(v))); }
ROCPY_INLINE VecI widen_bytes(VecSB v) { return cast<VecI>(_mm512_maskz_cvtepi8_epi32(0xffff, cast<__m128i>(v))); }
ROCPY_INLINE VecB narrow_bytes(VecU v) { return cast<VecB>(_mm512_maskz_cvtepi32_epi8(0xffff, cast<__m512i>(v))); }
ROCPY_INLINE VecH widen_halves(VecB v) { return cast<VecH>(_mm256_cvtepu8_epi16(cast<__m128i>(v))); }
ROCPY_INLINE VecH widen_halves(VecSB v) { return cast<VecH>(_mm256_cvtepi8_epi16(cast<__m128i>(v))); }
#elif defined(__AVX2__)
ROCPY_INLINE __m128i lower(VecB v) { return _mm_cvtsi64_si128(cast<int64_t>(v)); }
ROCPY_INLINE VecU widen_bytes(VecB v) { return cast<VecU>(_mm256_cvtepu8_epi32(lower(v))); }
ROCPY_INLINE VecI widen_bytes(VecSB v) { return cast<VecI>(_mm256_cvtepi8_epi32(lower(cast<VecB>(v)))); }
ROCPY_INLINE VecB narrow_bytes(VecU v) { return __builtin_convertvector(v, VecB); }
ROCPY_INLINE VecH widen_halves(VecB v) { return cast<VecH>(_mm_cvtepu8_epi16(lower(v))); }
ROCPY_INLINE VecH widen_halves(VecSB v) { return cast<VecH>(_mm_cvtepi8_epi16(lower(cast<VecB>(v)))); }
#else
typedef int16_t VecSH __attribute__((vector_size(vector_bytes / 2)));
ROCPY_INLINE VecU widen_bytes(VecB v) { return __builtin_convertvector(v, VecU); }
ROCPY_INLINE VecI widen_bytes(VecSB v) { return __builtin_convertvector(v, VecI); }
ROCPY_INLINE VecB narrow_bytes(VecU v) { return __builtin_convertvector(v, VecB); }
ROCPY_INLINE VecH widen_halves(VecB v) { return __builtin_convertvector(v, VecH); }
ROCPY_INLINE VecH widen_halves(VecSB v) { return cast<VecH>(__builtin_convertvector(v, VecSH)); }
#endif

// With conversions of f16 at hand, those whose numbers are also numbers of f16, but for a power of two, are moved
// there.
#if defined(__AVX2__) || defined(__aarch64__)
constexpr bool half_conversion = true;
#else
constexpr bool half_conversion = false;
#endif
// Formats whose numbers halves have, but for a power of two.
template <class F>
constexpr bool are_halves = F::width == 8 && (F::mantissa == 3 || F::specials == Specials::ieee);

template <class F>
ROCPY_INLINE VecF decode_as_half(VecB codes) {
  if constexpr (F::specials == Specials::ieee) {
    return widen(static_cast<F16 *>(nullptr), widen_halves(codes) << (10 - F::mantissa));
  } else {
    // The sign extended and moved up: the bit below the highest is then a copy of it.
    const VecH moved = widen_halves(cast<VecSB>(codes)) << (10 - F::mantissa);
    VecH half = moved & 0xbfff;
    if constexpr (F::specials == Specials::last) {
      // Only the last code carries into that bit, and NaN is what it then is.
      half |= (half + (1u << (10 - F::mantissa))) & 0x4000;
    } else {
      half = half == 0x8000 ? half | 0x7e00 : half;
    }
    return widen(static_cast<F16 *>(nullptr), half) * splat(float_of(power_bits(15 - F::bias)));
  }
}

template <class F>
ROCPY_INLINE VecF decode(VecB codes) {
  if constexpr (half_conversion && are_halves<F>) {
    return decode_as_half<F>(codes);
  }
  const VecU code = widen_bytes(codes);
  const VecU magnitude = code & (F::sign - 1);
  const VecU sign = (code & F::sign) << (32 - F::width);
  const VecU normal = (magnitude << (23 - F::mantissa)) + power_bits(-F::bias);
  const VecF small =
      __builtin_convertvector(cast<VecI>(magnitude), VecF) * splat(float_of(power_bits(1 - F::bias - F::mantissa)));
  VecU bits = magnitude < (1u << F::mantissa) ? cast<VecU>(small) : normal;
  if constexpr (F::specials == Specials::last) bits = magnitude == F::nan ? bits * 0 + 0x7fc00000u : bits;
  if constexpr (F::specials == Specials::ieee) {
    const VecU beyond = magnitude == F::largest + 1 ? bits * 0 + 0x7f800000u : bits * 0 + 0x7fc00000u;
    bits = magnitude > F::largest ? beyond : bits;
  }
  bits |= sign;
  if constexpr (F::specials == Specials::minus_zero) bits = code == F::sign ? bits * 0 + 0x7fc00000u : bits;
  return cast<VecF>(bits);
}

// As float_to_small.
template <class F>
ROCPY_INLINE VecB encode(VecF v) {
  const VecU bits = cast<VecU>(v), magnitude = bits & 0x7fffffffu;
  const VecU sign = (bits >> (32 - F::width)) & F::sign;
  const uint32_t magic = power_bits(1 - F::bias - F::mantissa + 23);
  constexpr int shift = 23 - F::mantissa;
  const VecU small = cast<VecU>(cast<VecF>(magnitude) + splat(float_of(magic))) - magic;
  VecU normal = magnitude + (((magnitude >> shift) & 1u) + ((1u << (shift - 1)) - 1));
  normal = (normal >> shift) - (power_bits(-F::bias) >> shift);
  normal = normal > F::largest ? normal * 0 + F::largest : normal;
  VecU code = magnitude < power_bits(1 - F::bias) ? small : normal;
  if constexpr (F::specials == Specials::minus_zero) {
    code = code == 0 ? code : code | sign;
    code = magnitude > 0x7f800000u ? code * 0 + F::sign : code;
  } else {
    code = (magnitude > 0x7f800000u ? code * 0 + F::nan : code) | sign;
  }
  return narrow_bytes(code);
}

// Rounded to nearest even and held to the range; NaN is 0.
ROCPY_INLINE VecSB to_int8(VecF v) {
  v = v == v ? v : splat(0.0f);
  v = v > splat(127.0f) ? splat(127.0f) : v;
  v = v < splat(-128.0f) ? splat(-128.0f) : v;
  const VecF magic = splat(12582912.0f);
  const VecI whole = cast<VecI>(v + magic) - cast<VecI>(magic);
  return cast<VecSB>(narrow_bytes(cast<VecU>(whole)));
}

template <class F>
ROCPY_INLINE float to_compute(Byte<F> x) {
  return small_to_float<F>(x.bits);
}
template <class F>
ROCPY_INLINE void from_compute(Byte<F> &to, float x) {
  to.bits = float_to_small<F>(x);
}
ROCPY_INLINE float to_compute(Int8 x) { return x.value; }

template <class F>
ROCPY_INLINE bool is_nan(Byte<F> x) {
  return F::specials == Specials::last ? (x.bits & F::nan) == F::nan
                                       : F::specials == Specials::minus_zero && x.bits == F::sign;
}

template <class F>
ROCPY_INLINE VecF load(const Byte<F> *p) {
  return decode<F>(load_bits<VecB>(p));
}
template <class F>
ROCPY_INLINE void store(Byte<F> *p, VecF v) {
  const VecB codes = encode<F>(v);
  __builtin_memcpy(p, &codes, sizeof codes);
}
ROCPY_INLINE VecF load(const Int8 *p) { return __builtin_convertvector(widen_bytes(load_bits<VecSB>(p)), VecF); }
ROCPY_INLINE void store(Int8 *p, VecF v) {
  const VecSB values = to_int8(v);
  __builtin_memcpy(p, &values, sizeof values);
}

// Two vectors' worth of bytes are moved to halves together, where a register holds so many of these.
#if defined(__AVX2__)
typedef uint16_t VecHH __attribute__((vector_size(vector_bytes)));
#if defined(__AVX512F__)
ROCPY_INLINE VecHH widen_more(const void *p, bool sign) {
  const __m256i codes = _mm256_loadu_si256(static_cast<const __m256i *>(p));
  return cast<VecHH>(sign ? _mm512_cvtepi8_epi16(codes) : _mm512_cvtepu8_epi16(codes));
}
ROCPY_INLINE VecH lower_part(VecHH v) {
  VecH lower;  // GCC's own word for it reads an undefined vector
  __builtin_memcpy(&lower, &v, sizeof lower);
  return lower;
}
ROCPY_INLINE VecH upper_part(VecHH v) { return cast<VecH>(_mm512_maskz_extracti64x4_epi64(0xf, cast<__m512i>(v), 1)); }
// half | (carried & 0x4000)
ROCPY_INLINE VecHH with_carry(VecHH half, VecHH carried) {
  const VecHH bit = half * 0 + 0x4000;
  return cast<VecHH>(_mm512_ternarylogic_epi32(cast<__m512i>(half), cast<__m512i>(carried), cast<__m512i>(bit), 0xf8));
}
#else
ROCPY_INLINE VecHH widen_more(const void *p, bool sign) {
  const __m128i codes = _mm_loadu_si128(static_cast<const __m128i *>(p));
  return cast<VecHH>(sign ? _mm256_cvtepi8_epi16(codes) : _mm256_cvtepu8_epi16(codes));
}
ROCPY_INLINE VecH lower_part(VecHH v) { return cast<VecH>(_mm256_castsi256_si128(cast<__m256i>(v))); }
ROCPY_INLINE VecH upper_part(VecHH v) { return cast<VecH>(_mm256_extracti128_si256(cast<__m256i>(v), 1)); }
ROCPY_INLINE VecHH with_carry(VecHH half, VecHH carried) { return half | (carried & 0x4000); }
#endif

// The halves of two vectors' worth of codes; as decode_as_half.
template <class F>
ROCPY_INLINE VecHH load_halves(const Byte<F> *p) {
  VecHH half = widen_more(p, F::specials != Specials::ieee) << (10 - F::mantissa);
  if constexpr (F::specials != Specials::ieee) half &= 0xbfff;
  if constexpr (F::specials == Specials::last) half = with_carry(half, half + (1u << (10 - F::mantissa)));
  if constexpr (F::specials == Specials::minus_zero) half = half == 0x8000 ? half | 0x7e00 : half;
  return half;
}

template <class F, int vectors>
ROCPY_INLINE void scale_halves(VecF (&values)[vectors]) {
  if constexpr (F::specials != Specials::ieee) {
    ROCPY_UNROLL
    for (int v = 0; v < vectors; v++) values[v] *= splat(float_of(power_bits(15 - F::bias)));
  }
}

template <class F>
ROCPY_INLINE void load_pair(const Byte<F> *p, VecF (&pair)[2]) {
  if constexpr (!are_halves<F>) {
    pair[0] = load(p);
    pair[1] = load(p + vector_bytes / 4);
  } else {
    const F16 *f16 = nullptr;
    const VecHH half = load_halves(p);
    pair[0] = widen(f16, lower_part(half));
    pair[1] = widen(f16, upper_part(half));
    scale_halves<F>(pair);
  }
}
#endif

// The same of a row of a packed panel.
template <class E, class V>
ROCPY_INLINE void load_panel_row(const E *p, V (&pair)[2]) {
  load_pair(p, pair);
}
#if defined(__AVX2__) && !defined(__AVX512F__)
// Halves are converted from memory twice as fast as from registers, whose upper parts have to be moved down first: a
// gain where one panel after the other is read, but not beside the lines of several dot products.
template <int pairs>
struct StoredHalves {
  __m256i pair[pairs];

  ROCPY_INLINE VecF widened(int v) const {
    return _mm256_cvtph_ps(_mm_load_si128(reinterpret_cast<const __m128i *>(pair) + v));
  }
};

template <class F>
ROCPY_INLINE void load_panel_row(const Byte<F> *p, VecF (&pair)[2]) {
  if constexpr (!are_halves<F>) {
    load_pair(p, pair);
  } else {
    StoredHalves<1> stored{{cast<__m256i>(load_halves(p))}};
    __asm__("" : "+m"(stored));  // or else the compiler knows what it has in registers
    pair[0] = stored.widened(0);
    pair[1] = stored.widened(1);
    scale_halves<F>(pair);
  }
}
#endif

#if defined(__AVX512F__)
ROCPY_INLINE VecB load_bytes(const void *p, int count) { return cast<VecB>(_mm_maskz_loadu_epi8(mask16(count), p)); }
ROCPY_INLINE void store_bytes(void *p, VecB v, int count) { _mm_mask_storeu_epi8(p, mask16(count), cast<__m128i>(v)); }
template <class F>
ROCPY_INLINE VecF load_part(const Byte<F> *p, int count) {
  return decode<F>(load_bytes(p, count));
}
template <class F>
ROCPY_INLINE void store_part(Byte<F> *p, VecF v, int count) {
  store_bytes(p, encode<F>(v), count);
}
ROCPY_INLINE VecF load_part(const Int8 *p, int count) {
  return __builtin_convertvector(widen_bytes(cast<VecSB>(load_bytes(p, count))), VecF);
}
ROCPY_INLINE void store_part(Int8 *p, VecF v, int count) { store_bytes(p, cast<VecB>(to_int8(v)), count); }
#endif

// Four vectors' worth of bytes, for which there is a faster way than for two.
template <class E>
constexpr bool loads_fours = false;

// Whether kernels read them so beside so many sums in registers, of which that way takes some too.
constexpr int most_sums_with_fours = vector_registers == 32 ? 16 : 12;
template <class E>
constexpr bool reads_fours(int sums) {
  return loads_fours<E> && sums <= most_sums_with_fours;
}

// What the values that are read so have to be multiplied by.
template <class E>
constexpr float four_scale = 1;

// Whether that can be done with these factors of theirs instead: none goes beyond the largest number.
template <class E, class T>
bool scales_factors(const T *factors, int64_t count) {
  const float limit = std::numeric_limits<float>::max() / four_scale<E>;
  bool fit = true;
  for (int64_t x = 0; x < count; x++) fit &= factors[x] >= -limit && factors[x] <= limit;
  return fit;
}

// Of the codes that were read as fours, whether NaN was among those whose values were taken for numbers.
template <class E>
struct NanSeen {
  static constexpr bool nan() { return false; }
};

#if defined(__AVX512VBMI__)
template <class F>
constexpr bool loads_fours<Byte<F>> = F::width == 8;

// The bytes of bf16, which has all numbers of these formats, by the code without its sign.
template <class F>
struct ByteTables {
  alignas(64) uint8_t high[128];
  alignas(64) uint8_t low[128];
};

template <class F>
constexpr uint32_t magnitude_as_bf16(uint32_t code) {
  if (F::specials == Specials::last && code == F::nan) return 0x7fc0;
  if (F::specials == Specials::ieee && code > F::largest) return code == F::largest + 1 ? 0x7f80 : 0x7fc0;
  if (code == 0) return 0;
  if (code >> F::mantissa != 0) return (code << (7 - F::mantissa)) + ((127 - F::bias) << 7);
  int bit = 0;  // of a subnormal, the highest
  while (code >> (bit + 1) != 0) bit++;
  return static_cast<uint32_t>(128 - F::bias - F::mantissa + bit) << 7 | ((code << (7 - bit)) & 0x7f);
}

template <class F>
constexpr ByteTables<F> make_byte_tables() {
  ByteTables<F> tables{};
  for (uint32_t code = 0; code < 128; code++) {
    tables.high[code] = static_cast<uint8_t>(magnitude_as_bf16<F>(code) >> 8);
    tables.low[code] = static_cast<uint8_t>(magnitude_as_bf16<F>(code) & 0xff);
  }
  return tables;
}

template <class F>
constexpr ByteTables<F> byte_tables = make_byte_tables<F>();

// Where the codes go first, so that the vectors of even and odd words of their halves are theirs in order.
struct ByteOrder {
  alignas(64) uint8_t from[64];
};
constexpr ByteOrder make_byte_order() {
  ByteOrder order{};
  for (int vector = 0; vector < 4; vector++) {
    for (int lane = 0; lane < 16; lane++) {
      const int to = lane / 4 * 16 + vector / 2 * 8 + lane % 4 * 2 + vector % 2;
      order.from[to] = static_cast<uint8_t>(16 * vector + lane);
    }
  }
  return order;
}
constexpr ByteOrder byte_order = make_byte_order();

// Codes as bf16: of each 16 of them, the lower 8 and the upper 8.
template <class F>
ROCPY_INLINE void as_bf16(__m512i codes, VecU &lower, VecU &upper) {
  const ByteTables<F> &tables = byte_tables<F>;
  const __m512i sign = _mm512_set1_epi8(static_cast<char>(0x80));
  __m512i high = _mm512_permutex2var_epi8(_mm512_load_si512(tables.high), codes, _mm512_load_si512(tables.high + 64));
  __m512i low = _mm512_permutex2var_epi8(_mm512_load_si512(tables.low), codes, _mm512_load_si512(tables.low + 64));
  high = _mm512_ternarylogic_epi32(high, codes, sign, 0xf8);  // high | (codes & sign)
  if constexpr (F::specials == Specials::minus_zero) {
    const __mmask64 nan = _mm512_cmpeq_epi8_mask(codes, sign);
    high = _mm512_mask_blend_epi8(nan, high, _mm512_set1_epi8(0x7f));
    low = _mm512_mask_blend_epi8(nan, low, _mm512_set1_epi8(static_cast<char>(0xc0)));
  }
  lower = cast<VecU>(_mm512_unpacklo_epi8(low, high));
  upper = cast<VecU>(_mm512_unpackhi_epi8(low, high));
}

template <class F>
ROCPY_INLINE void load_four(const Byte<F> *p, VecF (&four)[4], NanSeen<Byte<F>> &) {
  const __m512i codes =
      _mm512_maskz_permutexvar_epi8(~__mmask64{}, _mm512_load_si512(byte_order.from), _mm512_loadu_si512(p));
  VecU lower, upper;
  as_bf16<F>(codes, lower, upper);
  four[0] = cast<VecF>(lower << 16);
  four[1] = cast<VecF>(lower & 0xffff0000u);
  four[2] = cast<VecF>(upper << 16);
  four[3] = cast<VecF>(upper & 0xffff0000u);
}
#elif defined(__AVX2__) && !defined(__AVX512F__)
template <class F>
constexpr bool loads_fours<Byte<F>> = F::width == 8 && F::mantissa == 3;

template <class F>
constexpr float four_scale<Byte<F>> = 1 << (loads_fours<Byte<F>> ? 15 - F::bias : 0);

// NaN that halves do not have where its code is: the largest magnitude, or the least number.
template <>
struct NanSeen<Byte<E4m3>> {
  __m256i most = _mm256_setzero_si256();
  ROCPY_INLINE void add(__m256i codes) {
    most = _mm256_max_epu8(most, _mm256_and_si256(codes, _mm256_set1_epi8(E4m3::nan)));
  }
  ROCPY_INLINE bool nan() const {
    return _mm256_movemask_epi8(_mm256_cmpeq_epi8(most, _mm256_set1_epi8(E4m3::nan))) != 0;
  }
};
template <>
struct NanSeen<Byte<E4m3Fnuz>> {
  __m256i least = _mm256_setzero_si256();
  ROCPY_INLINE void add(__m256i codes) { least = _mm256_min_epi8(least, codes); }
  ROCPY_INLINE bool nan() const {
    return _mm256_movemask_epi8(_mm256_cmpeq_epi8(least, _mm256_set1_epi8(INT8_MIN))) != 0;
  }
};

// As load_panel_row, but for NaN and the power of two.
template <class F>
ROCPY_INLINE void load_four(const Byte<F> *p, VecF (&four)[4], NanSeen<Byte<F>> &seen) {
  const __m256i codes = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(p)), zero = _mm256_setzero_si256();
  const __m256i mask = _mm256_set1_epi16(static_cast<int16_t>(0xbfff));
  StoredHalves<2> stored{{_mm256_and_si256(_mm256_srai_epi16(_mm256_unpacklo_epi8(zero, codes), 1), mask),
                          _mm256_and_si256(_mm256_srai_epi16(_mm256_unpackhi_epi8(zero, codes), 1), mask)}};
  seen.add(codes);
  __asm__("" : "+m"(stored));
  // Of each half of the codes the lower bytes are in one vector, the upper ones in the other.
  four[0] = stored.widened(0);
  four[1] = stored.widened(2);
  four[2] = stored.widened(1);
  four[3] = stored.widened(3);
}
#endif

// Two vectors, or four.
template <class E, class V>
ROCPY_INLINE void load_group(const E *p, V (&values)[2], NanSeen<E> &) {
  load_pair(p, values);
}
template <class E, class V>
ROCPY_INLINE void load_group(const E *p, V (&values)[4], NanSeen<E> &seen) {
  load_four(p, values, seen);
  ROCPY_UNROLL
  for (int v = 0; v < 4 && four_scale<E> != 1; v++) values[v] *= splat(four_scale<E>);
}

// Of sums of k products each, those with NaN among their elements become NaN.
template <class F>
__attribute__((noinline, cold)) void mark_nan(const Byte<F> *b, int64_t k, int64_t k_stride, int64_t columns,
                                              float *out, int rows, int64_t out_stride) {
  for (int64_t j = 0; j < columns; j++) {
    int64_t x = 0;
    while (x < k && !is_nan(b[x * k_stride + j])) x++;
    for (int i = 0; x < k && i < rows; i++) out[i * out_stride + j] = float_of(0x7fc00000u);
  }
}

// Calls `use` with a null pointer to the element that stands for a type of the float epilogue.
template <class Use>
ROCPY_INLINE auto with_element(Type type, Use use) {
  switch (type) {
    case Type::f16:
      return use(static_cast<F16 *>(nullptr));
    case Type::bf16:
      return use(static_cast<Bf16 *>(nullptr));
    case Type::e4m3:
      return use(static_cast<Byte<E4m3> *>(nullptr));
    case Type::e5m2:
      return use(static_cast<Byte<E5m2> *>(nullptr));
    case Type::e4m3_fnuz:
      return use(static_cast<Byte<E4m3Fnuz> *>(nullptr));
    case Type::e5m2_fnuz:
      return use(static_cast<Byte<E5m2Fnuz> *>(nullptr));
    case Type::i8:
      return use(static_cast<Int8 *>(nullptr));
    default:
      return use(static_cast<float *>(nullptr));
  }
}

}  // namespace
}  // namespace rocpy_host::gemm
