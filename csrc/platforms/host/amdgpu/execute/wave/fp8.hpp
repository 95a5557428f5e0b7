// SPDX-License-Identifier: MIT
// The 8-bit floats of AMD's matrix units: OCP's, and FNUZ, which has one zero and one NaN and no infinity.
#pragma once

#include "half.hpp"
#include "instruction.hpp"

#include <algorithm>
#include <limits>

namespace rocpy_host::amdgpu {

enum class Fp8 : uint8_t { e4m3, e5m2, e4m3_fnuz, e5m2_fnuz };

constexpr bool is_fnuz(Fp8 f) { return f == Fp8::e4m3_fnuz || f == Fp8::e5m2_fnuz; }
constexpr int mantissa_bits_of(Fp8 f) { return f == Fp8::e4m3 || f == Fp8::e4m3_fnuz ? 3 : 2; }

// FNUZ on gfx942, OCP's on gfx950 and GFX12.
constexpr Fp8 fp8_of(Architecture architecture, bool is_e5m2) {
  const bool is_fnuz = architecture == Architecture::gfx942;
  return is_e5m2 ? (is_fnuz ? Fp8::e5m2_fnuz : Fp8::e5m2) : (is_fnuz ? Fp8::e4m3_fnuz : Fp8::e4m3);
}

inline float from_fp8(uint8_t bits, Fp8 format) {
  const int mantissa_bits = mantissa_bits_of(format), exponent_bits = 7 - mantissa_bits;
  const int bias = (1 << (exponent_bits - 1)) - 1 + (is_fnuz(format) ? 1 : 0);
  const int mantissa = bits & ((1 << mantissa_bits) - 1), exponent = bits >> mantissa_bits & ((1 << exponent_bits) - 1);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  if (is_fnuz(format) ? bits == 0x80 : format == Fp8::e4m3 && (bits & 0x7f) == 0x7f) {
    return nan;
  }
  double value = 0;
  if (format == Fp8::e5m2 && exponent == 31) {
    if (mantissa != 0) {
      return nan;
    }
    value = HUGE_VAL;
  } else {
    value = exponent == 0 ? std::ldexp(mantissa, 1 - bias - mantissa_bits)
                          : std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
  }
  return static_cast<float>((bits & 0x80) != 0 ? -value : value);
}

// To nearest even. What is too large becomes infinity, or NaN where there is none; the largest number if `saturates`.
inline uint32_t to_fp8(float value, Fp8 format, bool saturates) {
  const int mantissa_bits = mantissa_bits_of(format), exponent_bits = 7 - mantissa_bits;
  const int bias = (1 << (exponent_bits - 1)) - 1 + (is_fnuz(format) ? 1 : 0);
  const uint32_t sign = std::signbit(value) ? 0x80 : 0;
  const uint32_t nan = is_fnuz(format) ? 0x80 : sign | 0x7f;
  const uint32_t largest = is_fnuz(format) ? 0x7f : format == Fp8::e4m3 ? 0x7e : 0x7b;
  const uint32_t overflow = sign | largest;
  const uint32_t beyond = is_fnuz(format) ? 0x80 : format == Fp8::e5m2 ? sign | 0x7c : nan;
  if (std::isnan(value)) {
    return nan;
  }
  const double magnitude = std::fabs(static_cast<double>(value));
  if (magnitude == 0) {
    return is_fnuz(format) ? 0 : sign;
  }
  if (std::isinf(value)) {
    return saturates ? overflow : beyond;
  }
  const int exponent = std::max(std::ilogb(magnitude), 1 - bias);
  const double scaled = std::ldexp(magnitude, mantissa_bits - exponent);
  double whole = std::floor(scaled);
  const double rest = scaled - whole;
  whole += rest > 0.5 || (rest == 0.5 && std::fmod(whole, 2.0) == 1.0) ? 1 : 0;
  const uint64_t encoded = (static_cast<uint64_t>(exponent + bias - 1) << mantissa_bits) + static_cast<uint64_t>(whole);
  if (encoded > largest) {
    return saturates ? overflow : beyond;
  }
  if (encoded == 0) {
    return is_fnuz(format) ? 0 : sign;
  }
  return sign | static_cast<uint32_t>(encoded);
}

}  // namespace rocpy_host::amdgpu
