// SPDX-License-Identifier: MIT
// Functions of numbers that AMD's instructions lack, within 4 units of the last place of a double; erf within 12. Those
// of float are computed in double. Angles up to 2^30 are reduced without loss.
#pragma once

#ifndef COOP_DEVICE
#define COOP_DEVICE __attribute__((device)) __attribute__((always_inline)) inline
#endif

namespace rocpy::math {

COOP_DEVICE double fma(double a, double b, double c) { return __builtin_fma(a, b, c); }

// The value of a polynomial, its constant last.
template <unsigned Count>
COOP_DEVICE double polynomial(double x, const double (&coefficients)[Count]) {
  double value = coefficients[0];
#pragma unroll
  for (unsigned i = 1; i < Count; ++i) value = fma(value, x, coefficients[i]);
  return value;
}

constexpr double infinity = __builtin_huge_val();
constexpr double ln2_high = 6.93147180369123816490e-01, ln2_low = 1.90821492927058770002e-10;  // high has 33 bits
constexpr double log2_e = 1.44269504088896340736, log10_e = 0.43429448190325182765, log10_2 = 0.30102999566398119521;

// 1/13!, 1/12! ... 1: e to the power of |r| < 0.35.
COOP_DEVICE double exp_near_zero(double r) {
  constexpr double terms[] = {
      1.0 / 6227020800, 1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040,
      1.0 / 720,        1.0 / 120,       1.0 / 24,       1.0 / 6,       0.5,          1.0,         1.0};
  return polynomial(r, terms);
}

COOP_DEVICE double exp(double x) {
  const double steps = __builtin_rint(x * log2_e);
  const double r = fma(-steps, ln2_low, fma(-steps, ln2_high, x));
  const double value = __builtin_ldexp(exp_near_zero(r), static_cast<int>(steps));
  return x > 709.79 ? infinity : x < -745.2 ? 0.0 : value;
}

COOP_DEVICE double exp2(double x) {
  const double steps = __builtin_rint(x), r = (x - steps) * 0.69314718055994530942;
  const double value = __builtin_ldexp(exp_near_zero(r), static_cast<int>(steps));
  return x > 1024 ? infinity : x < -1080 ? 0.0 : value;
}

COOP_DEVICE double expm1(double x) {
  constexpr double terms[] = {
      1.0 / 87178291200, 1.0 / 6227020800, 1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320,
      1.0 / 5040,        1.0 / 720,        1.0 / 120,       1.0 / 24,       1.0 / 6,       0.5,          1.0};
  return __builtin_fabs(x) < 0.35 ? x * polynomial(x, terms) : exp(x) - 1;
}

// A number is 2^exponent * mantissa, the mantissa from sqrt(1/2) to sqrt(2).
struct Parts {
  double mantissa;
  int exponent;
};
COOP_DEVICE Parts parts_of(double x) {
  Parts parts{__builtin_amdgcn_frexp_mant(x), __builtin_amdgcn_frexp_exp(x)};
  if (parts.mantissa < 0.70710678118654752440) {
    parts.mantissa *= 2;
    --parts.exponent;
  }
  return parts;
}

// 2 * artanh((m - 1) / (m + 1)), by odd powers.
COOP_DEVICE double log_near_one(double m) {
  const double f = (m - 1) / (m + 1), s = f * f;
  constexpr double terms[] = {2.0 / 25, 2.0 / 23, 2.0 / 21, 2.0 / 19, 2.0 / 17, 2.0 / 15, 2.0 / 13,
                              2.0 / 11, 2.0 / 9,  2.0 / 7,  2.0 / 5,  2.0 / 3,  2.0};
  return f * polynomial(s, terms);
}

COOP_DEVICE double log_of_edge(double x, double value) {
  if (x == 0) return -infinity;
  if (x < 0) return __builtin_nan("");
  return x < infinity ? value : x;
}

COOP_DEVICE double log(double x) {
  const Parts parts = parts_of(x);
  const double e = parts.exponent;
  return log_of_edge(x, fma(e, ln2_high, fma(e, ln2_low, log_near_one(parts.mantissa))));
}
COOP_DEVICE double log2(double x) {
  const Parts parts = parts_of(x);
  return log_of_edge(x, fma(log_near_one(parts.mantissa), log2_e, parts.exponent));
}
COOP_DEVICE double log10(double x) {
  const Parts parts = parts_of(x);
  return log_of_edge(x, fma(parts.exponent, log10_2, log_near_one(parts.mantissa) * log10_e));
}
COOP_DEVICE double log1p(double x) {
  const double u = 1 + x;  // what is lost here is made good by the quotient
  return u == 1 || x == infinity ? x : log(u) * (x / (u - 1));
}

struct Angle {
  double rest;  // from -pi/4 to pi/4
  int quarter;
};
COOP_DEVICE Angle reduced(double x) {
  const double quarters = __builtin_rint(x * 0.63661977236758134308);
  double rest = fma(-quarters, 1.57079632679489655800, x);  // pi/2 in three parts
  rest = fma(-quarters, 6.12323399573676603587e-17, rest);
  rest = fma(-quarters, -1.49738490485916983e-33, rest);
  return {rest, static_cast<int>(quarters)};
}
COOP_DEVICE double sin_near_zero(double r) {
  constexpr double terms[] = {1.0 / 355687428096000, -1.0 / 1307674368000, 1.0 / 6227020800, -1.0 / 39916800,
                              1.0 / 362880,          -1.0 / 5040,          1.0 / 120,        -1.0 / 6};
  const double s = r * r;
  return fma(r * s, polynomial(s, terms), r);
}
COOP_DEVICE double cos_near_zero(double r) {
  constexpr double terms[] = {-1.0 / 6402373705728000, 1.0 / 20922789888000, -1.0 / 87178291200, 1.0 / 479001600,
                              -1.0 / 3628800,          1.0 / 40320,          -1.0 / 720,         1.0 / 24};
  const double s = r * r;
  return fma(s * s, polynomial(s, terms), fma(s, -0.5, 1.0));
}
COOP_DEVICE double sin(double x) {
  const Angle angle = reduced(x);
  const double value = (angle.quarter & 1) ? cos_near_zero(angle.rest) : sin_near_zero(angle.rest);
  return x == 0 ? x : (angle.quarter & 2) ? -value : value;
}
COOP_DEVICE double cos(double x) {
  const Angle angle = reduced(x);
  const double value = (angle.quarter & 1) ? sin_near_zero(angle.rest) : cos_near_zero(angle.rest);
  return ((angle.quarter + 1) & 2) ? -value : value;
}
COOP_DEVICE double tan(double x) { return sin(x) / cos(x); }

COOP_DEVICE double sinh(double x) {
  const double a = __builtin_fabs(x), e = expm1(a), half = exp(0.5 * a);
  return __builtin_copysign(a < 20 ? 0.5 * (e + e / (e + 1)) : 0.5 * half * half, x);
}
COOP_DEVICE double cosh(double x) {
  const double a = __builtin_fabs(x), e = exp(a), half = exp(0.5 * a);
  return a < 20 ? 0.5 * (e + 1 / e) : 0.5 * half * half;
}
COOP_DEVICE double tanh(double x) {
  const double a = __builtin_fabs(x), e = expm1(2 * a);
  return __builtin_copysign(a < 20 ? e / (e + 2) : (x == x ? 1.0 : x), x);
}

// Up to 3 the series of positive terms; from there what is missing to 1, as a continued fraction.
COOP_DEVICE double erf(double x) {
  const double a = __builtin_fabs(x), square = a * a;
  if (!(a < 6)) return x == x ? __builtin_copysign(1.0, x) : x;
  if (a < 3) {
    double term = a, sum = a;
    for (int n = 1; term > sum * 1e-17; ++n) {
      term *= 2 * square / (2 * n + 1);
      sum += term;
    }
    return __builtin_copysign(1.12837916709551257390 * exp(-square) * sum, x);
  }
  double fraction = a;
  for (int n = 60; n > 0; --n) fraction = a + 0.5 * n / fraction;
  return __builtin_copysign(1 - exp(-square) * 0.56418958354775628695 / fraction, x);
}

// Of floats alone: in double the logarithm would have to be known to more digits.
COOP_DEVICE float pow(float x, float y) {
  const double magnitude = exp(y * log(__builtin_fabs(static_cast<double>(x))));
  const bool whole = __builtin_rintf(y) == y, odd = whole && __builtin_rintf(y * 0.5f) != y * 0.5f;
  if (y == 0 || x == 1) return 1;
  if (x < 0 && !whole && x > -infinity) return __builtin_nanf("");
  return static_cast<float>(__builtin_copysign(1.0f, x) < 0 && odd ? -magnitude : magnitude);
}

}  // namespace rocpy::math
