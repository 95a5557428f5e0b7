// SPDX-License-Identifier: MIT
// Vector exp and the activations made of it, in the compute type. Arguments of exp are clamped so that no intermediate
// is subnormal: on many CPUs one subnormal costs more than the rest of the activation.
#pragma once

#include "simd.hpp"

namespace rocpy_host::gemm {
namespace {

// NaN stays NaN.
template <class T>
ROCPY_INLINE Vec<T> limit(Vec<T> x, T low, T high) {
  return greater(splat(low), lesser(splat(high), x));
}

// e^r - 1 for |r| <= ln(2) / 2.
ROCPY_INLINE VecF exp_less_one(VecF r) {
  VecF p = splat(1.0f / 5040);
  p = fma(p, r, splat(1.0f / 720));
  p = fma(p, r, splat(1.0f / 120));
  p = fma(p, r, splat(1.0f / 24));
  p = fma(p, r, splat(1.0f / 6));
  p = fma(p, r, splat(0.5f));
  return fma(p, r * r, r);
}

ROCPY_INLINE VecD exp_less_one(VecD r) {
  VecD p = splat(1.0 / 6227020800.0);
  p = fma(p, r, splat(1.0 / 479001600.0));
  p = fma(p, r, splat(1.0 / 39916800.0));
  p = fma(p, r, splat(1.0 / 3628800.0));
  p = fma(p, r, splat(1.0 / 362880.0));
  p = fma(p, r, splat(1.0 / 40320.0));
  p = fma(p, r, splat(1.0 / 5040.0));
  p = fma(p, r, splat(1.0 / 720.0));
  p = fma(p, r, splat(1.0 / 120.0));
  p = fma(p, r, splat(1.0 / 24.0));
  p = fma(p, r, splat(1.0 / 6.0));
  p = fma(p, r, splat(0.5));
  return fma(p, r * r, r);
}

// e^x for |x| <= 87 (float) or 700 (double), NaN excepted. Adding `magic` rounds to an integer and leaves it in the low
// bits, from where it is shifted into the exponent.
ROCPY_INLINE VecF exp_in_range(VecF x) {
  const VecF magic = splat(12582912.0f);
  VecF shifted = fma(x, splat(1.44269504f), magic);
  VecF n = shifted - magic;
  VecF r = fma(n, splat(-0.693359375f), x);
  r = fma(n, splat(2.12194440e-4f), r);
  const VecF p = exp_less_one(r) + splat(1.0f);
  return cast<VecF>(cast<VecU>(p) + (cast<VecU>(shifted) << 23));
}

ROCPY_INLINE VecD exp_in_range(VecD x) {
  const VecD magic = splat(6755399441055744.0);
  VecD shifted = fma(x, splat(1.4426950408889634), magic);
  VecD n = shifted - magic;
  VecD r = fma(n, splat(-0.6931471803691238), x);
  r = fma(n, splat(-1.9082149292705877e-10), r);
  const VecD p = exp_less_one(r) + splat(1.0);
  return cast<VecD>(cast<VecUL>(p) + (cast<VecUL>(shifted) << 52));
}

// tanh-GELU is x * sigmoid(2u) with 2u = x * (gelu_1 + gelu_3 * x^2). Below gelu_zero it is 0 to far less than an ulp
// of 1, and the clamped exp is no longer right.
template <class T>
struct Range;
template <>
struct Range<float> {
  static constexpr float exp_limit = 87.0f, gelu_zero = -9.95f;
};
template <>
struct Range<double> {
  static constexpr double exp_limit = 700.0, gelu_zero = -21.0;
};
constexpr double gelu_1 = 1.5957691216057308, gelu_3 = 0.07135481627260025;

// exp(-x) with x clamped; NaN gives some finite value or NaN, so callers multiply by x or select.
template <class T>
ROCPY_INLINE Vec<T> exp_of_minus(Vec<T> x) {
  return exp_in_range(limit<T>(-x, -Range<T>::exp_limit, Range<T>::exp_limit));
}

template <class T>
ROCPY_INLINE Vec<T> gelu(Vec<T> x) {
  Vec<T> z = x * fma(x * x, splat(static_cast<T>(gelu_3)), splat(static_cast<T>(gelu_1)));
  Vec<T> y = x / (splat(static_cast<T>(1)) + exp_of_minus<T>(z));
  return x < splat(Range<T>::gelu_zero) ? splat(static_cast<T>(-0.0)) : y;
}

template <class T>
ROCPY_INLINE Vec<T> sigmoid(Vec<T> x) {
  Vec<T> y = splat(static_cast<T>(1)) / (splat(static_cast<T>(1)) + exp_of_minus<T>(x));
  y = x < splat(-Range<T>::exp_limit) ? splat(static_cast<T>(0)) : y;
  return x == x ? y : x;
}

template <class T>
ROCPY_INLINE Vec<T> silu(Vec<T> x) {
  Vec<T> y = x / (splat(static_cast<T>(1)) + exp_of_minus<T>(x));
  return x < splat(-Range<T>::exp_limit) ? splat(static_cast<T>(-0.0)) : y;
}

// The derivative of gelu: s + x s (1 - s) (2u)', where s (1 - s) = e / (1 + e)^2. Beyond the clamp it is 1 or 0.
template <class T>
ROCPY_INLINE Vec<T> gelu_gradient(Vec<T> x) {
  const Vec<T> one = splat(static_cast<T>(1)), c1 = splat(static_cast<T>(gelu_1)), c3 = splat(static_cast<T>(gelu_3));
  Vec<T> t = limit<T>(x, Range<T>::gelu_zero, -Range<T>::gelu_zero);
  Vec<T> square = t * t;
  Vec<T> e = exp_of_minus<T>(t * fma(square, c3, c1));
  Vec<T> s = one / (one + e);
  Vec<T> slope = fma(square, splat(static_cast<T>(3 * gelu_3)), c1);
  Vec<T> y = fma(t * slope, (e * s) * s, s);
  return x < splat(Range<T>::gelu_zero) ? splat(static_cast<T>(0)) : y;
}

// As numpy.maximum(x, 0): NaN stays NaN.
template <class T>
ROCPY_INLINE Vec<T> relu(Vec<T> x) {
  return x < splat(static_cast<T>(0)) ? splat(static_cast<T>(0)) : x;
}

}  // namespace
}  // namespace rocpy_host::gemm
