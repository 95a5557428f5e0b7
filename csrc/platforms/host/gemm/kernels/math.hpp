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
  static constexpr float sigmoid_far = -64.0f, sigmoid_zero = -110.0f;
  static constexpr uint32_t sigmoid_shift = 32u << 23;
};
template <>
struct Range<double> {
  static constexpr double exp_limit = 700.0, gelu_zero = -21.0;
  static constexpr double sigmoid_far = -500.0, sigmoid_zero = -753.0;
  static constexpr uint64_t sigmoid_shift = uint64_t{256} << 52;
};
constexpr double gelu_1 = 1.5957691216057308, gelu_3 = 0.07135481627260025;

// Whether a lane is below a number.
#if defined(__AVX512F__)
ROCPY_INLINE bool any_below(VecF x, float most) {
  return _mm512_cmp_ps_mask(cast<__m512>(x), _mm512_set1_ps(most), _CMP_LT_OQ) != 0;
}
ROCPY_INLINE bool any_below(VecD x, double most) {
  return _mm512_cmp_pd_mask(cast<__m512d>(x), _mm512_set1_pd(most), _CMP_LT_OQ) != 0;
}
#elif defined(__AVX2__)
ROCPY_INLINE bool any_below(VecF x, float most) { return _mm256_movemask_ps(cast<__m256>(x < splat(most))) != 0; }
ROCPY_INLINE bool any_below(VecD x, double most) { return _mm256_movemask_pd(cast<__m256d>(x < splat(most))) != 0; }
#elif defined(__SSE2__)
ROCPY_INLINE bool any_below(VecF x, float most) { return _mm_movemask_ps(cast<__m128>(x < splat(most))) != 0; }
ROCPY_INLINE bool any_below(VecD x, double most) { return _mm_movemask_pd(cast<__m128d>(x < splat(most))) != 0; }
#else
template <class V, class T>
ROCPY_INLINE bool any_below(V x, T most) {
  const auto below = x < splat(most);
  bool any = false;
  for (int i = 0; i < vector_lanes<T>; i++) any |= below[i] != 0;
  return any;
}
#endif

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

// sigmoid(x) as 1 / (1 + growth), where growth is e^-x. Far to the left that leaves the numbers before its inverse
// does: there both sides of the quotient are smaller by a power of two, and the 1 is less than half an ulp of growth.
// Below sigmoid_zero x sigmoid(x) is 0. NaN gives some growth.
template <class T>
struct Sigmoid {
  using U = typename Vector<T>::U;
  U shift;
  Vec<T> growth;
  ROCPY_INLINE explicit Sigmoid(Vec<T> x)
      : shift(cast<U>(x < splat(Range<T>::sigmoid_far)) & (U{} + Range<T>::sigmoid_shift)),
        growth(scaled(exp_in_range(limit<T>(-x, -Range<T>::exp_limit, -Range<T>::sigmoid_zero)))) {}
  ROCPY_INLINE Vec<T> scaled(Vec<T> x) const { return cast<Vec<T>>(cast<U>(x) - shift); }
};

// x sigmoid(x), or sigmoid(x) of a factor of 1, where some of x are below -exp_limit: hardly any are. What is 0 is so
// before the division, which is slow where it gives a subnormal number.
template <class T>
__attribute__((noinline)) Vec<T> far_sigmoid(Vec<T> x, Vec<T> factor, T zero) {
  const Sigmoid<T> s(x);
  const Vec<T> y = x < splat(Range<T>::sigmoid_zero) ? splat(zero) : s.scaled(factor);
  return y / (splat(static_cast<T>(1)) + s.growth);
}

template <class T>
ROCPY_INLINE Vec<T> sigmoid(Vec<T> x) {
  const Vec<T> one = splat(static_cast<T>(1));
  Vec<T> y = one / (one + exp_of_minus<T>(x));
  if (any_below(x, -Range<T>::exp_limit)) y = far_sigmoid<T>(x, one, static_cast<T>(0));
  return x == x ? y : x;
}

template <class T>
ROCPY_INLINE Vec<T> silu(Vec<T> x) {
  if (any_below(x, -Range<T>::exp_limit)) return far_sigmoid<T>(x, x, static_cast<T>(-0.0));
  return x / (splat(static_cast<T>(1)) + exp_of_minus<T>(x));
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
