// SPDX-License-Identifier: MIT
// Vectors of the instruction set that the including file is built for: loads with conversion, partial access, fused
// multiply-add. Arithmetic is written with the compiler's vector operators; intrinsics only where those have no word.
// Contraction is off in these files and every fused multiply-add is written out, so that one expression rounds alike
// wherever it is inlined. All is internal to the including file: nothing built with wide instructions may be merged
// into code for a smaller CPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#elif defined(__SSE2__)
#include <emmintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include "scalar.hpp"

#if defined(__clang__)
#define ROCPY_UNROLL _Pragma("unroll")
#define ROCPY_LOOP _Pragma("nounroll")
#define ROCPY_SHUFFLE(type, a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define ROCPY_UNROLL _Pragma("GCC unroll 16")
#define ROCPY_LOOP _Pragma("GCC unroll 1")
#define ROCPY_SHUFFLE(type, a, b, ...) __builtin_shuffle(a, b, type{__VA_ARGS__})
#endif
#define ROCPY_INLINE inline __attribute__((always_inline))

namespace rocpy_host::gemm {
namespace {

#if defined(__AVX512F__)
constexpr int vector_bytes = 64, vector_registers = 32;
#elif defined(__AVX2__)
constexpr int vector_bytes = 32, vector_registers = 16;
#elif defined(__aarch64__)
constexpr int vector_bytes = 16, vector_registers = 32;
#else
constexpr int vector_bytes = 16, vector_registers = 16;
#endif

typedef float VecF __attribute__((vector_size(vector_bytes)));
typedef double VecD __attribute__((vector_size(vector_bytes)));
typedef float VecHalfF __attribute__((vector_size(vector_bytes / 2)));  // as many as there are doubles
typedef int32_t VecI __attribute__((vector_size(vector_bytes)));
typedef uint32_t VecU __attribute__((vector_size(vector_bytes)));
typedef int64_t VecL __attribute__((vector_size(vector_bytes)));
typedef uint64_t VecUL __attribute__((vector_size(vector_bytes)));
typedef uint16_t VecH __attribute__((vector_size(vector_bytes / 2)));

struct F16 {
  uint16_t bits;
};
struct Bf16 {
  uint16_t bits;
};

template <class T>
struct Vector;
template <>
struct Vector<float> {
  using V = VecF;
  using I = VecI;
  using U = VecU;
  static constexpr int lanes = vector_bytes / 4;
};
template <>
struct Vector<double> {
  using V = VecD;
  using I = VecL;
  using U = VecUL;
  static constexpr int lanes = vector_bytes / 8;
};
template <>
struct Vector<int32_t> {
  using V = VecI;
  using I = VecI;
  using U = VecU;
  static constexpr int lanes = vector_bytes / 4;
};
template <class T>
using Vec = typename Vector<T>::V;
template <class T>
constexpr int vector_lanes = Vector<T>::lanes;

template <class To, class From>
ROCPY_INLINE To cast(From from) {
  static_assert(sizeof(To) == sizeof(From), "a cast keeps the bits");
  To to;
  __builtin_memcpy(&to, &from, sizeof to);
  return to;
}

// lesser() is a < b ? a : b and greater() a > b ? a : b, for which x86 has an instruction: b where either is NaN.
// The masked forms of these and of the conversions: the others read an undefined vector in GCC's headers, which warns.
#if defined(__AVX512F__)
ROCPY_INLINE VecF splat(float x) { return _mm512_set1_ps(x); }
ROCPY_INLINE VecD splat(double x) { return _mm512_set1_pd(x); }
ROCPY_INLINE VecF fma(VecF a, VecF b, VecF c) { return _mm512_fmadd_ps(a, b, c); }
ROCPY_INLINE VecD fma(VecD a, VecD b, VecD c) { return _mm512_fmadd_pd(a, b, c); }
ROCPY_INLINE VecF lesser(VecF a, VecF b) { return _mm512_maskz_min_ps(0xffff, a, b); }
ROCPY_INLINE VecD lesser(VecD a, VecD b) { return _mm512_maskz_min_pd(0xff, a, b); }
ROCPY_INLINE VecF greater(VecF a, VecF b) { return _mm512_maskz_max_ps(0xffff, a, b); }
ROCPY_INLINE VecD greater(VecD a, VecD b) { return _mm512_maskz_max_pd(0xff, a, b); }
ROCPY_INLINE VecF widen(const F16 *, VecH half) { return _mm512_maskz_cvtph_ps(0xffff, cast<__m256i>(half)); }
ROCPY_INLINE VecH narrow(const F16 *, VecF v) {
  return cast<VecH>(_mm512_maskz_cvtps_ph(0xffff, v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
ROCPY_INLINE VecU words_of(VecH v) { return cast<VecU>(_mm512_maskz_cvtepu16_epi32(0xffff, cast<__m256i>(v))); }
ROCPY_INLINE VecH halves_of(VecU v) { return cast<VecH>(_mm512_maskz_cvtepi32_epi16(0xffff, cast<__m512i>(v))); }
#elif defined(__AVX2__)
ROCPY_INLINE VecF splat(float x) { return _mm256_set1_ps(x); }
ROCPY_INLINE VecD splat(double x) { return _mm256_set1_pd(x); }
ROCPY_INLINE VecF fma(VecF a, VecF b, VecF c) { return _mm256_fmadd_ps(a, b, c); }
ROCPY_INLINE VecD fma(VecD a, VecD b, VecD c) { return _mm256_fmadd_pd(a, b, c); }
ROCPY_INLINE VecF lesser(VecF a, VecF b) { return _mm256_min_ps(a, b); }
ROCPY_INLINE VecD lesser(VecD a, VecD b) { return _mm256_min_pd(a, b); }
ROCPY_INLINE VecF greater(VecF a, VecF b) { return _mm256_max_ps(a, b); }
ROCPY_INLINE VecD greater(VecD a, VecD b) { return _mm256_max_pd(a, b); }
ROCPY_INLINE VecF widen(const F16 *, VecH half) { return _mm256_cvtph_ps(cast<__m128i>(half)); }
ROCPY_INLINE VecH narrow(const F16 *, VecF v) {
  return cast<VecH>(_mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
ROCPY_INLINE VecU words_of(VecH v) { return cast<VecU>(_mm256_cvtepu16_epi32(cast<__m128i>(v))); }
ROCPY_INLINE VecH halves_of(VecU v) {
  const __m256i values = cast<__m256i>(v);
  return cast<VecH>(_mm_packus_epi32(_mm256_castsi256_si128(values), _mm256_extracti128_si256(values, 1)));
}
#elif defined(__aarch64__)
ROCPY_INLINE VecF splat(float x) { return VecF{x, x, x, x}; }
ROCPY_INLINE VecD splat(double x) { return VecD{x, x}; }
ROCPY_INLINE VecF fma(VecF a, VecF b, VecF c) {
  return cast<VecF>(vfmaq_f32(cast<float32x4_t>(c), cast<float32x4_t>(a), cast<float32x4_t>(b)));
}
ROCPY_INLINE VecD fma(VecD a, VecD b, VecD c) {
  return cast<VecD>(vfmaq_f64(cast<float64x2_t>(c), cast<float64x2_t>(a), cast<float64x2_t>(b)));
}
ROCPY_INLINE VecF widen(const F16 *, VecH half) { return cast<VecF>(vcvt_f32_f16(cast<float16x4_t>(half))); }
ROCPY_INLINE VecH narrow(const F16 *, VecF v) { return cast<VecH>(vcvt_f16_f32(cast<float32x4_t>(v))); }
#else
ROCPY_INLINE VecF splat(float x) { return VecF{x, x, x, x}; }
ROCPY_INLINE VecD splat(double x) { return VecD{x, x}; }
// Without a fused instruction: two roundings, everywhere alike.
ROCPY_INLINE VecF fma(VecF a, VecF b, VecF c) { return a * b + c; }
ROCPY_INLINE VecD fma(VecD a, VecD b, VecD c) { return a * b + c; }
ROCPY_INLINE VecF widen(const F16 *, VecH half) {
  return VecF{f16_to_float(half[0]), f16_to_float(half[1]), f16_to_float(half[2]), f16_to_float(half[3])};
}
ROCPY_INLINE VecH narrow(const F16 *, VecF v) {
  return VecH{float_to_f16(v[0]), float_to_f16(v[1]), float_to_f16(v[2]), float_to_f16(v[3])};
}
#endif

// Between 16 and 32 bits, values below 2^16. Compilers split these conversions where the CPU has one.
#if !defined(__AVX2__)
ROCPY_INLINE VecF lesser(VecF a, VecF b) { return a < b ? a : b; }
ROCPY_INLINE VecD lesser(VecD a, VecD b) { return a < b ? a : b; }
ROCPY_INLINE VecF greater(VecF a, VecF b) { return a > b ? a : b; }
ROCPY_INLINE VecD greater(VecD a, VecD b) { return a > b ? a : b; }
ROCPY_INLINE VecU words_of(VecH v) { return __builtin_convertvector(v, VecU); }
ROCPY_INLINE VecH halves_of(VecU v) { return __builtin_convertvector(v, VecH); }
#endif

ROCPY_INLINE VecI splat(int32_t x) { return VecI{} + x; }

ROCPY_INLINE VecF widen(const Bf16 *, VecH half) { return cast<VecF>(words_of(half) << 16); }

ROCPY_INLINE VecH narrow(const Bf16 *, VecF v) {
  VecU bits = cast<VecU>(v), magnitude = bits & 0x7fffffffu;
  VecU rounded = (bits + (((bits >> 16) & 1u) + 0x7fffu)) >> 16;
  VecU quiet = (bits >> 16) | 0x40u;
  return halves_of(magnitude > 0x7f800000u ? quiet : rounded);
}

// Element conversion, for what is too narrow for a vector.
ROCPY_INLINE float to_compute(float x) { return x; }
ROCPY_INLINE double to_compute(double x) { return x; }
ROCPY_INLINE float to_compute(F16 x) { return f16_to_float(x.bits); }
ROCPY_INLINE float to_compute(Bf16 x) { return bf16_to_float(x.bits); }
ROCPY_INLINE void from_compute(float &to, float x) { to = x; }
ROCPY_INLINE void from_compute(double &to, double x) { to = x; }
ROCPY_INLINE void from_compute(F16 &to, float x) { to.bits = float_to_f16(x); }
ROCPY_INLINE void from_compute(Bf16 &to, float x) { to.bits = float_to_bf16(x); }

template <class T>
ROCPY_INLINE T load_bits(const void *p) {
  T v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}

ROCPY_INLINE VecF load(const float *p) { return load_bits<VecF>(p); }
ROCPY_INLINE VecD load(const double *p) { return load_bits<VecD>(p); }
ROCPY_INLINE VecI load(const int32_t *p) { return load_bits<VecI>(p); }
ROCPY_INLINE VecF load(const F16 *p) { return widen(p, load_bits<VecH>(p)); }
ROCPY_INLINE VecF load(const Bf16 *p) { return widen(p, load_bits<VecH>(p)); }
ROCPY_INLINE void store(float *p, VecF v) { __builtin_memcpy(p, &v, sizeof v); }
ROCPY_INLINE void store(double *p, VecD v) { __builtin_memcpy(p, &v, sizeof v); }
ROCPY_INLINE void store(int32_t *p, VecI v) { __builtin_memcpy(p, &v, sizeof v); }
ROCPY_INLINE void store_half(void *p, VecH half) { __builtin_memcpy(p, &half, sizeof half); }
ROCPY_INLINE void store(F16 *p, VecF v) { store_half(p, narrow(p, v)); }
ROCPY_INLINE void store(Bf16 *p, VecF v) { store_half(p, narrow(p, v)); }

// Partial access: `count` lanes, at least 1 and at most all; the rest of a load is zero.
#if defined(__AVX512F__)
ROCPY_INLINE __mmask16 mask16(int count) { return static_cast<__mmask16>((1u << count) - 1u); }
ROCPY_INLINE VecF load_part(const float *p, int count) { return _mm512_maskz_loadu_ps(mask16(count), p); }
ROCPY_INLINE VecD load_part(const double *p, int count) {
  return _mm512_maskz_loadu_pd(static_cast<__mmask8>(mask16(count)), p);
}
ROCPY_INLINE VecI load_part(const int32_t *p, int count) {
  return cast<VecI>(_mm512_maskz_loadu_epi32(mask16(count), p));
}
ROCPY_INLINE VecF load_part(const F16 *p, int count) {
  return widen(p, cast<VecH>(_mm256_maskz_loadu_epi16(mask16(count), p)));
}
ROCPY_INLINE VecF load_part(const Bf16 *p, int count) {
  return widen(p, cast<VecH>(_mm256_maskz_loadu_epi16(mask16(count), p)));
}
ROCPY_INLINE void store_part(float *p, VecF v, int count) { _mm512_mask_storeu_ps(p, mask16(count), v); }
ROCPY_INLINE void store_part(double *p, VecD v, int count) {
  _mm512_mask_storeu_pd(p, static_cast<__mmask8>(mask16(count)), v);
}
ROCPY_INLINE void store_part(int32_t *p, VecI v, int count) {
  _mm512_mask_storeu_epi32(p, mask16(count), cast<__m512i>(v));
}
ROCPY_INLINE void store_part(F16 *p, VecF v, int count) {
  _mm256_mask_storeu_epi16(p, mask16(count), cast<__m256i>(narrow(p, v)));
}
ROCPY_INLINE void store_part(Bf16 *p, VecF v, int count) {
  _mm256_mask_storeu_epi16(p, mask16(count), cast<__m256i>(narrow(p, v)));
}
#else
#if defined(__AVX2__)
// A lane is read where its number is below `count`; what lies behind is not touched.
ROCPY_INLINE __m256i mask32(int count) {
  alignas(64) static constexpr int32_t edge[16] = {-1, -1, -1, -1, -1, -1, -1, -1};
  return _mm256_loadu_si256(reinterpret_cast<const __m256i *>(edge + 8 - count));
}
ROCPY_INLINE VecF load_part(const float *p, int count) { return _mm256_maskload_ps(p, mask32(count)); }
ROCPY_INLINE VecD load_part(const double *p, int count) { return _mm256_maskload_pd(p, mask32(2 * count)); }
ROCPY_INLINE VecI load_part(const int32_t *p, int count) { return cast<VecI>(_mm256_maskload_epi32(p, mask32(count))); }
// By halves: masked stores are microcoded on AMD's processors.
ROCPY_INLINE void store_pair(float *p, __m128 v, int count) {
  if (count & 2) {
    _mm_storel_pi(reinterpret_cast<__m64 *>(p), v);
    v = _mm_movehl_ps(v, v);
    p += 2;
  }
  if (count & 1) _mm_store_ss(p, v);
}
ROCPY_INLINE void store_pair(double *p, __m128d v, int count) {
  if (count & 1) _mm_store_sd(p, v);
}
ROCPY_INLINE __m128 lower_half(VecF v) { return _mm256_castps256_ps128(v); }
ROCPY_INLINE __m128d lower_half(VecD v) { return _mm256_castpd256_pd128(v); }
ROCPY_INLINE __m128 upper_half(VecF v) { return _mm256_extractf128_ps(v, 1); }
ROCPY_INLINE __m128d upper_half(VecD v) { return _mm256_extractf128_pd(v, 1); }
template <class T, class V>
ROCPY_INLINE void store_halves(T *p, V v, int count) {
  constexpr int half = vector_lanes<T> / 2;
  if (count >= 2 * half) return store(p, v);
  if (count < half) return store_pair(p, lower_half(v), count);
  const auto lower = lower_half(v);
  __builtin_memcpy(p, &lower, sizeof lower);
  store_pair(p + half, upper_half(v), count - half);
}
ROCPY_INLINE void store_part(float *p, VecF v, int count) { store_halves(p, v, count); }
ROCPY_INLINE void store_part(double *p, VecD v, int count) { store_halves(p, v, count); }
#endif
template <class E>
ROCPY_INLINE auto load_part(const E *p, int count) {
  E whole[vector_bytes / 4] = {};
  for (int i = 0; i < count; i++) whole[i] = p[i];
  return load(whole);
}
template <class E, class V>
ROCPY_INLINE void store_part(E *p, V v, int count) {
  E whole[vector_bytes / 4];
  store(whole, v);
  for (int i = 0; i < count; i++) p[i] = whole[i];
}
#endif

// Two vectors, which some elements have a faster way to than one after the other.
template <class E, class V>
ROCPY_INLINE void load_pair(const E *p, V (&pair)[2]) {
  pair[0] = load(p);
  pair[1] = load(p + sizeof(V) / sizeof(pair[0][0]));
}

template <class E>
ROCPY_INLINE auto load_some(const E *p, int count, int lanes) {
  return count >= lanes ? load(p) : load_part(p, count);
}

// a0 b0 a1 b1 ... of the lower and of the upper halves: log2(lanes) rounds of it transpose a square block.
#if defined(__AVX512F__)
ROCPY_INLINE VecF interleave_low(VecF a, VecF b) {
  return ROCPY_SHUFFLE(VecI, a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}
ROCPY_INLINE VecF interleave_high(VecF a, VecF b) {
  return ROCPY_SHUFFLE(VecI, a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}
ROCPY_INLINE VecD interleave_low(VecD a, VecD b) { return ROCPY_SHUFFLE(VecL, a, b, 0, 8, 1, 9, 2, 10, 3, 11); }
ROCPY_INLINE VecD interleave_high(VecD a, VecD b) { return ROCPY_SHUFFLE(VecL, a, b, 4, 12, 5, 13, 6, 14, 7, 15); }
#elif defined(__AVX2__)
ROCPY_INLINE VecF interleave_low(VecF a, VecF b) { return ROCPY_SHUFFLE(VecI, a, b, 0, 8, 1, 9, 2, 10, 3, 11); }
ROCPY_INLINE VecF interleave_high(VecF a, VecF b) { return ROCPY_SHUFFLE(VecI, a, b, 4, 12, 5, 13, 6, 14, 7, 15); }
ROCPY_INLINE VecD interleave_low(VecD a, VecD b) { return ROCPY_SHUFFLE(VecL, a, b, 0, 4, 1, 5); }
ROCPY_INLINE VecD interleave_high(VecD a, VecD b) { return ROCPY_SHUFFLE(VecL, a, b, 2, 6, 3, 7); }
#else
ROCPY_INLINE VecF interleave_low(VecF a, VecF b) { return ROCPY_SHUFFLE(VecI, a, b, 0, 4, 1, 5); }
ROCPY_INLINE VecF interleave_high(VecF a, VecF b) { return ROCPY_SHUFFLE(VecI, a, b, 2, 6, 3, 7); }
ROCPY_INLINE VecD interleave_low(VecD a, VecD b) { return ROCPY_SHUFFLE(VecL, a, b, 0, 2); }
ROCPY_INLINE VecD interleave_high(VecD a, VecD b) { return ROCPY_SHUFFLE(VecL, a, b, 1, 3); }
#endif

#if defined(__AVX2__) && !defined(__AVX512F__)
// Vectors of two halves: the halves' own blocks first, then the halves change places, which is the only step between
// them. A third of the shuffles that interleaving whole vectors takes.
ROCPY_INLINE void transpose_halves(VecF (&r)[8]) {
  VecF pairs[8], fours[8];
  ROCPY_UNROLL
  for (int i = 0; i < 8; i += 2) {
    pairs[i] = ROCPY_SHUFFLE(VecI, r[i], r[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
    pairs[i + 1] = ROCPY_SHUFFLE(VecI, r[i], r[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
  }
  ROCPY_UNROLL
  for (int i = 0; i < 8; i += 4) {
    ROCPY_UNROLL
    for (int j = 0; j < 2; j++) {
      fours[i + 2 * j] = ROCPY_SHUFFLE(VecI, pairs[i + j], pairs[i + j + 2], 0, 1, 8, 9, 4, 5, 12, 13);
      fours[i + 2 * j + 1] = ROCPY_SHUFFLE(VecI, pairs[i + j], pairs[i + j + 2], 2, 3, 10, 11, 6, 7, 14, 15);
    }
  }
  ROCPY_UNROLL
  for (int i = 0; i < 4; i++) {
    r[i] = ROCPY_SHUFFLE(VecI, fours[i], fours[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    r[i + 4] = ROCPY_SHUFFLE(VecI, fours[i], fours[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  }
}
ROCPY_INLINE void transpose_halves(VecD (&r)[4]) {
  VecD pairs[4];
  ROCPY_UNROLL
  for (int i = 0; i < 4; i += 2) {
    pairs[i] = ROCPY_SHUFFLE(VecL, r[i], r[i + 1], 0, 4, 2, 6);
    pairs[i + 1] = ROCPY_SHUFFLE(VecL, r[i], r[i + 1], 1, 5, 3, 7);
  }
  ROCPY_UNROLL
  for (int i = 0; i < 2; i++) {
    r[i] = ROCPY_SHUFFLE(VecL, pairs[i], pairs[i + 2], 0, 1, 4, 5);
    r[i + 2] = ROCPY_SHUFFLE(VecL, pairs[i], pairs[i + 2], 2, 3, 6, 7);
  }
}
#endif

template <class T>
ROCPY_INLINE void transpose(Vec<T> (&rows)[vector_lanes<T>]) {
#if defined(__AVX2__) && !defined(__AVX512F__)
  if constexpr (!std::is_same_v<T, int32_t>) return transpose_halves(rows);
#endif
  constexpr int lanes = vector_lanes<T>;
  ROCPY_UNROLL
  for (int round = 1; round < lanes; round *= 2) {
    Vec<T> next[lanes];
    ROCPY_UNROLL
    for (int i = 0; i < lanes / 2; i++) {
      next[2 * i] = interleave_low(rows[i], rows[i + lanes / 2]);
      next[2 * i + 1] = interleave_high(rows[i], rows[i + lanes / 2]);
    }
    ROCPY_UNROLL
    for (int i = 0; i < lanes; i++) rows[i] = next[i];
  }
}

// The sum of the lanes: halves are added until one is left.
template <class T>
ROCPY_INLINE T sum_lanes(Vec<T> v) {
  T part[vector_lanes<T>];
  __builtin_memcpy(part, &v, sizeof v);
  for (int half = vector_lanes<T> / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; i++) part[i] += part[i + half];
  }
  return part[0];
}

}  // namespace
}  // namespace rocpy_host::gemm
