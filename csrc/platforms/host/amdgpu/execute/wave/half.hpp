// SPDX-License-Identifier: MIT
// Formats of 16 bits and fewer, and rounding to them: to nearest even unless said otherwise.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

namespace rocpy_host::amdgpu {

template <class To, class From>
To bit_copy(From value) {
  static_assert(sizeof(To) == sizeof(From), "a copy of bits changes no size");
  To result;
  std::memcpy(&result, &value, sizeof result);
  return result;
}

struct Half {
  uint16_t bits = 0;
};
struct Brain {
  uint16_t bits = 0;
};

enum Rounding : unsigned { to_nearest = 0, upward = 1, downward = 2, to_zero = 3 };

// A format of `exponent` and `mantissa` bits with a sign; from GFX12 and for OCP formats see fp8.hpp.
inline uint32_t round_to_format(double value, int exponent_bits, int mantissa_bits, unsigned rounding) {
  const uint64_t raw = bit_copy<uint64_t>(value);
  const uint32_t sign = static_cast<uint32_t>(raw >> 63) << (exponent_bits + mantissa_bits);
  const uint32_t infinity = ((1u << exponent_bits) - 1) << mantissa_bits;
  const double magnitude = std::fabs(value);
  if (std::isnan(value)) {
    return sign | infinity | 1u << (mantissa_bits - 1);
  }
  if (std::isinf(value)) {
    return sign | infinity;
  }
  if (magnitude == 0) {
    return sign;
  }
  const int bias = (1 << (exponent_bits - 1)) - 1;
  int exponent = std::ilogb(magnitude);
  if (exponent < 1 - bias) {
    exponent = 1 - bias;
  }
  // The value in units of the last place, an exact number of doubles.
  const double scaled = std::ldexp(magnitude, mantissa_bits - exponent);
  double whole = std::floor(scaled);
  const double rest = scaled - whole;
  const bool up = rounding == to_nearest ? rest > 0.5 || (rest == 0.5 && std::fmod(whole, 2.0) == 1.0)
                  : rounding == upward   ? rest > 0 && sign == 0
                  : rounding == downward ? rest > 0 && sign != 0
                                         : false;
  whole += up ? 1 : 0;
  // Below the smallest normal the exponent field is 0 and the implicit bit absent; a carry moves on into the exponent.
  const uint64_t field = static_cast<uint64_t>(exponent + bias - 1) << mantissa_bits;
  const uint64_t encoded = field + static_cast<uint64_t>(whole);
  if (encoded >= infinity) {
    const bool to_infinity =
        rounding == to_nearest || (rounding == upward && sign == 0) || (rounding == downward && sign != 0);
    return sign | (to_infinity ? infinity : infinity - 1);
  }
  return sign | static_cast<uint32_t>(encoded);
}

inline double from_format(uint32_t bits, int exponent_bits, int mantissa_bits) {
  const uint32_t mantissa = bits & ((1u << mantissa_bits) - 1);
  const uint32_t exponent = bits >> mantissa_bits & ((1u << exponent_bits) - 1);
  const bool negative = (bits >> (exponent_bits + mantissa_bits) & 1) != 0;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  double value = 0;
  if (exponent == (1u << exponent_bits) - 1) {
    value = mantissa != 0 ? std::nan("") : HUGE_VAL;
  } else if (exponent == 0) {
    value = std::ldexp(static_cast<double>(mantissa), 1 - bias - mantissa_bits);
  } else {
    value = std::ldexp(static_cast<double>(mantissa + (1u << mantissa_bits)),
                       static_cast<int>(exponent) - bias - mantissa_bits);
  }
  return negative ? -value : value;
}

inline float to_float(Half h) { return static_cast<float>(from_format(h.bits, 5, 10)); }
inline float to_float(Brain b) { return bit_copy<float>(static_cast<uint32_t>(b.bits) << 16); }
inline Half to_half(double value, unsigned rounding = to_nearest) {
  Half result;
  result.bits = static_cast<uint16_t>(round_to_format(value, 5, 10, rounding));
  return result;
}
inline Brain to_brain(double value, unsigned rounding = to_nearest) {
  Brain result;
  result.bits = static_cast<uint16_t>(round_to_format(value, 8, 7, rounding));
  return result;
}

// a * b + c to be rounded once more to a format of at most 24 bits: the sum of doubles, its last bit odd where it is
// inexact, so that the second rounding sees which side the rest was on.
inline double odd_fma(double a, double b, double c) {
  const double product = a * b;  // exact for factors of 16 bits
  const double sum = product + c;
  if (!std::isfinite(sum)) {
    return sum;
  }
  const double back = sum - product;
  const double error = (product - (sum - back)) + (c - back);
  if (error != 0 && (bit_copy<uint64_t>(sum) & 1) == 0) {
    const bool away = (error > 0) == (sum > 0);
    return bit_copy<double>(bit_copy<uint64_t>(sum) + (away ? 1 : ~0ull));
  }
  return sum;
}

}  // namespace rocpy_host::amdgpu
