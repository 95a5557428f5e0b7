// SPDX-License-Identifier: MIT
// Scalar conversion between float and the narrow formats: exact one way, rounded to nearest even the other. Internal
// linkage, because files built for different instruction sets include it.
#pragma once

#include <cstdint>
#include <cstring>

namespace rocpy_host {
namespace {

inline uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

inline float float_of(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

inline float bf16_to_float(uint16_t half) { return float_of(static_cast<uint32_t>(half) << 16); }

inline uint16_t float_to_bf16(float value) {
  uint32_t bits = bits_of(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

inline float f16_to_float(uint16_t half) {
  uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  uint32_t exponent = (half >> 10) & 0x1fu, fraction = half & 0x3ffu;
  if (exponent == 0x1fu) {
    // A signalling NaN becomes quiet, as the hardware conversions make it.
    return float_of(sign | 0x7f800000u | (fraction << 13) | (fraction ? 0x400000u : 0u));
  }
  if (exponent == 0) {
    // A subnormal is fraction * 2^-24, exact in float.
    return float_of(sign | bits_of(static_cast<float>(fraction) * 0x1p-24f));
  }
  return float_of(sign | ((exponent + 112u) << 23) | (fraction << 13));
}

inline uint16_t float_to_f16(float value) {
  uint32_t bits = bits_of(value), magnitude = bits & 0x7fffffffu;
  uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
  // 65520 and above round to infinity.
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);
  if (magnitude < 0x38800000u) {
    // Below the smallest normal: adding 0.5 leaves the rounded multiple of 2^-24 in the low bits of the sum.
    return static_cast<uint16_t>(sign | (bits_of(float_of(magnitude) + 0.5f) - 0x3f000000u));
  }
  magnitude += 0xfffu + ((magnitude >> 13) & 1u);
  return static_cast<uint16_t>(sign | ((magnitude - 0x38000000u) >> 13));
}

// What the codes of a small format mean beyond its numbers: nothing (all are finite), the last one NaN, infinity and
// NaN as IEEE has them, or NaN where -0 would be.
enum class Specials : uint8_t { none, last, ieee, minus_zero };

// A format of at most 8 bits: a sign, an exponent, a mantissa, from the highest bit down.
template <int exponent_bits, int mantissa_bits, int exponent_bias, Specials special>
struct SmallFormat {
  static constexpr int mantissa = mantissa_bits, bias = exponent_bias, width = 1 + exponent_bits + mantissa_bits;
  static constexpr Specials specials = special;
  static constexpr uint32_t sign = 1u << (width - 1);
  // Magnitudes, as codes: of the largest number and of NaN.
  static constexpr uint32_t largest = special == Specials::last   ? sign - 2
                                      : special == Specials::ieee ? sign - 1 - (1u << mantissa_bits)
                                                                  : sign - 1;
  static constexpr uint32_t nan = special == Specials::ieee ? sign - 2 : sign - 1;
};
using E4m3 = SmallFormat<4, 3, 7, Specials::last>;
using E5m2 = SmallFormat<5, 2, 15, Specials::ieee>;
using E4m3Fnuz = SmallFormat<4, 3, 8, Specials::minus_zero>;
using E5m2Fnuz = SmallFormat<5, 2, 16, Specials::minus_zero>;
using E2m3 = SmallFormat<2, 3, 1, Specials::none>;
using E3m2 = SmallFormat<3, 2, 3, Specials::none>;
using E2m1 = SmallFormat<2, 1, 1, Specials::none>;

// 2^exponent, a normal number.
constexpr uint32_t power_bits(int exponent) { return static_cast<uint32_t>(127 + exponent) << 23; }

template <class F>
inline float small_to_float(uint8_t code) {
  const uint32_t magnitude = code & (F::sign - 1), sign = code & F::sign ? 0x80000000u : 0u;
  if (F::specials == Specials::minus_zero && code == F::sign) return float_of(0x7fc00000u);
  if (F::specials == Specials::last && magnitude == F::nan) return float_of(sign | 0x7fc00000u);
  if (F::specials == Specials::ieee && magnitude > F::largest) {
    return float_of(sign | (magnitude == F::largest + 1 ? 0x7f800000u : 0x7fc00000u));
  }
  if (magnitude >> F::mantissa == 0) {
    const float value = static_cast<float>(magnitude) * float_of(power_bits(1 - F::bias - F::mantissa));
    return float_of(sign | bits_of(value));
  }
  return float_of(sign | ((magnitude << (23 - F::mantissa)) + power_bits(-F::bias)));
}

// Beyond the largest number, infinity included, it is that number. NaN stays NaN where the format has one, otherwise it
// is the largest number too.
template <class F>
inline uint8_t float_to_small(float value) {
  const uint32_t bits = bits_of(value), sign = bits >> 31 ? F::sign : 0;
  uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {
    if (F::specials == Specials::minus_zero) return static_cast<uint8_t>(F::sign);
    return static_cast<uint8_t>(sign | F::nan);
  }
  if (magnitude < power_bits(1 - F::bias)) {
    // Adding a power of two whose last bit is worth the smallest number leaves the rounded multiple in the low bits.
    const uint32_t magic = power_bits(1 - F::bias - F::mantissa + 23);
    magnitude = bits_of(float_of(magnitude) + float_of(magic)) - magic;
  } else {
    constexpr int shift = 23 - F::mantissa;
    magnitude += (1u << (shift - 1)) - 1 + ((magnitude >> shift) & 1u);
    magnitude = (magnitude >> shift) - (power_bits(-F::bias) >> shift);
    if (magnitude > F::largest) magnitude = F::largest;
  }
  if (F::specials == Specials::minus_zero && magnitude == 0) return 0;
  return static_cast<uint8_t>(sign | magnitude);
}

// A scale of 8 bits: a power of two, 2^-127 to 2^127, or NaN.
inline float e8m0_to_float(uint8_t code) {
  if (code == 0xff) return float_of(0x7fc00000u);
  return float_of(code ? static_cast<uint32_t>(code) << 23 : 0x400000u);
}

}  // namespace
}  // namespace rocpy_host
