// SPDX-License-Identifier: MIT
// Vectors of 8-bit elements: floating-point bytes are widened to float and rounded back with integer arithmetic alone,
// which is alike on every instruction set and meets no subnormal.
#pragma once

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

typedef uint8_t VecB __attribute__((vector_size(kVectorBytes / 4)));
typedef int8_t VecSB __attribute__((vector_size(kVectorBytes / 4)));

template <class F>
ROCPY_INLINE VecF decode(VecB codes) {
  const VecU code = __builtin_convertvector(codes, VecU);
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
  return __builtin_convertvector(code, VecB);
}

// Rounded to nearest even and held to the range; NaN is 0.
ROCPY_INLINE VecSB to_int8(VecF v) {
  v = v == v ? v : splat(0.0f);
  v = v > splat(127.0f) ? splat(127.0f) : v;
  v = v < splat(-128.0f) ? splat(-128.0f) : v;
  const VecF magic = splat(12582912.0f);
  const VecI whole = cast<VecI>(v + magic) - cast<VecI>(magic);
  return __builtin_convertvector(whole, VecSB);
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
ROCPY_INLINE VecF load(const Byte<F> *p) {
  return decode<F>(load_bits<VecB>(p));
}
template <class F>
ROCPY_INLINE void store(Byte<F> *p, VecF v) {
  const VecB codes = encode<F>(v);
  __builtin_memcpy(p, &codes, sizeof codes);
}
ROCPY_INLINE VecF load(const Int8 *p) {
  return __builtin_convertvector(__builtin_convertvector(load_bits<VecSB>(p), VecI), VecF);
}
ROCPY_INLINE void store(Int8 *p, VecF v) {
  const VecSB values = to_int8(v);
  __builtin_memcpy(p, &values, sizeof values);
}

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
  return __builtin_convertvector(__builtin_convertvector(cast<VecSB>(load_bytes(p, count)), VecI), VecF);
}
ROCPY_INLINE void store_part(Int8 *p, VecF v, int count) { store_bytes(p, cast<VecB>(to_int8(v)), count); }
#endif

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
