// SPDX-License-Identifier: MIT
// Scalar conversion between float and the 16-bit formats: exact one way, rounded to nearest even the other. Internal
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

}  // namespace
}  // namespace rocpy_host
