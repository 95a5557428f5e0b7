// SPDX-License-Identifier: MIT
// Functions of tile programs that are right over the whole range: exp, log, tanh, erf and those made of them, in the
// compute type. NaN stays NaN, infinities give the limits, and a small result keeps its digits.
#pragma once

#include "math.hpp"

namespace rocpy_host::gemm {
namespace {

// Of a binary format: its exponents, what rounds to whole numbers when added, and where the functions become constant.
template <class T>
struct Format;
template <>
struct Format<float> {
  static constexpr int mantissa = 23, bias = 127;
  static constexpr float magic = 12582912.0f, log2e = 1.44269504f, ln2_high = 0.693359375f, ln2_low = -2.12194440e-4f;
  static constexpr float exp_low = -104.0f, exp_high = 89.0f, tanh_limit = 10.0f, least_normal = 0x1p-126f;
  static constexpr float erfc_limit = 10.5f, gelu_limit = 13.1f;
  static constexpr uint32_t sqrt_half = 0x3f3504f3u;
};
template <>
struct Format<double> {
  static constexpr int mantissa = 52, bias = 1023;
  static constexpr double magic = 6755399441055744.0, log2e = 1.4426950408889634;
  static constexpr double ln2_high = 0.6931471803691238, ln2_low = 1.9082149292705877e-10;
  static constexpr double exp_low = -746.0, exp_high = 710.0, tanh_limit = 22.0, least_normal = 0x1p-1022;
  static constexpr double erfc_limit = 28.0, gelu_limit = 37.4;
  static constexpr uint64_t sqrt_half = 0x3fe6a09e667f3bcdu;
};
template <class T>
using Unsigned = typename Vector<T>::U;
template <class T>
using Signed = typename Vector<T>::I;

template <class T>
ROCPY_INLINE Unsigned<T> sign_bit() {
  return Unsigned<T>{} + (decltype(Unsigned<T>{}[0] + 0u){1} << (sizeof(T) * 8 - 1));
}
template <class T>
ROCPY_INLINE Vec<T> magnitude(Vec<T> x) {
  return cast<Vec<T>>(cast<Unsigned<T>>(x) & ~sign_bit<T>());
}
// y, which is not negative, with the sign of x.
template <class T>
ROCPY_INLINE Vec<T> with_sign(Vec<T> y, Vec<T> x) {
  return cast<Vec<T>>(cast<Unsigned<T>>(y) | (cast<Unsigned<T>>(x) & sign_bit<T>()));
}

template <class T>
ROCPY_INLINE Vec<T> whole(Vec<T> x) {
  return (x + splat(Format<T>::magic)) - splat(Format<T>::magic);
}
// 2^n of a whole n within the exponents of normal numbers.
template <class T>
ROCPY_INLINE Vec<T> power_of_two(Vec<T> n) {
  return cast<Vec<T>>(cast<Unsigned<T>>(n + splat(Format<T>::magic + Format<T>::bias)) << Format<T>::mantissa);
}

// x = n ln 2 + r: e^r - 1, and 2^n in two factors, because one would leave the normal numbers before e^x does.
template <class T>
struct Powers {
  Vec<T> less_one, first, second, inverse;  // inverse: of the second
  ROCPY_INLINE explicit Powers(Vec<T> x) {
    const Vec<T> n = whole<T>(x * splat(Format<T>::log2e));
    Vec<T> r = fma(n, splat(-Format<T>::ln2_high), x);
    r = fma(n, splat(-Format<T>::ln2_low), r);
    less_one = exp_less_one(r);
    const Vec<T> half = whole<T>(n * splat(static_cast<T>(0.5)));
    first = power_of_two<T>(half);
    second = power_of_two<T>(n - half);
    inverse = power_of_two<T>(half - n);
  }
};

template <class T>
ROCPY_INLINE Vec<T> exponential(Vec<T> x) {
  const Powers<T> e(limit<T>(x, Format<T>::exp_low, Format<T>::exp_high));
  return ((e.less_one + splat(static_cast<T>(1))) * e.first) * e.second;
}

template <class T>
ROCPY_INLINE Vec<T> exponential_less_one(Vec<T> x) {
  const Powers<T> e(limit<T>(x, static_cast<T>(-40), Format<T>::exp_high));
  const Vec<T> y = fma(e.less_one, e.first, e.first - e.inverse) * e.second;
  return x == splat(static_cast<T>(0)) ? x : y;
}

template <class T>
ROCPY_INLINE Vec<T> tangent(Vec<T> x) {
  const Vec<T> a = magnitude<T>(x), two = splat(static_cast<T>(2));
  const Powers<T> e(limit<T>(a, static_cast<T>(0), Format<T>::tanh_limit) * two);
  const Vec<T> less_one = fma(e.less_one, e.first, e.first - e.inverse) * e.second;
  return with_sign<T>(less_one / (less_one + two), x);
}

// Of a number as 2^k m with m between sqrt(1/2) and sqrt(2): log m by the series of 2 artanh((m - 1) / (m + 1)).
template <class T>
ROCPY_INLINE Vec<T> logarithm(Vec<T> x) {
  using U = Unsigned<T>;
  constexpr int mantissa = Format<T>::mantissa, terms = sizeof(T) == 4 ? 4 : 11;
  const Vec<T> zero = splat(static_cast<T>(0)), one = splat(static_cast<T>(1));
  const auto small = x < splat(Format<T>::least_normal);
  const T up = static_cast<T>(sizeof(T) == 4 ? 0x1p23 : 0x1p52);
  const U bits = cast<U>(small ? x * splat(up) : x);
  const Signed<T> k = cast<Signed<T>>(bits - (U{} + Format<T>::sqrt_half)) >> mantissa;
  const Vec<T> f = cast<Vec<T>>(bits - (cast<U>(k) << mantissa)) - one;
  Vec<T> n = __builtin_convertvector(k, Vec<T>);
  n = small ? n - splat(static_cast<T>(mantissa)) : n;
  const Vec<T> s = f / (f + splat(static_cast<T>(2))), z = s * s, half = f * f * splat(static_cast<T>(0.5));
  Vec<T> series = splat(static_cast<T>(2.0 / (2 * terms + 1)));
  ROCPY_UNROLL
  for (int i = terms - 1; i > 0; i--) series = fma(series, z, splat(static_cast<T>(2.0 / (2 * i + 1))));
  const Vec<T> rest = half - fma(n, splat(Format<T>::ln2_low), s * fma(series, z, half));
  Vec<T> y = fma(n, splat(Format<T>::ln2_high), f - rest);
  const Vec<T> infinity = splat(static_cast<T>(__builtin_inf()));
  y = x == infinity ? infinity : y;
  y = x == zero ? -infinity : y;
  return x < zero ? splat(static_cast<T>(__builtin_nan(""))) : x == x ? y : x;
}

#if defined(__AVX512F__)
ROCPY_INLINE VecF square_root(VecF x) { return _mm512_maskz_sqrt_ps(0xffff, x); }
ROCPY_INLINE VecD square_root(VecD x) { return _mm512_maskz_sqrt_pd(0xff, x); }
#elif defined(__AVX2__)
ROCPY_INLINE VecF square_root(VecF x) { return _mm256_sqrt_ps(x); }
ROCPY_INLINE VecD square_root(VecD x) { return _mm256_sqrt_pd(x); }
#elif defined(__SSE2__)
ROCPY_INLINE VecF square_root(VecF x) { return _mm_sqrt_ps(x); }
ROCPY_INLINE VecD square_root(VecD x) { return _mm_sqrt_pd(x); }
#elif defined(__aarch64__)
ROCPY_INLINE VecF square_root(VecF x) { return cast<VecF>(vsqrtq_f32(cast<float32x4_t>(x))); }
ROCPY_INLINE VecD square_root(VecD x) { return cast<VecD>(vsqrtq_f64(cast<float64x2_t>(x))); }
#endif

// What rounding took from x * x, exactly.
template <class T>
ROCPY_INLINE Vec<T> square_rest(Vec<T> x, Vec<T> square) {
#if defined(__AVX512F__) || defined(__AVX2__) || defined(__aarch64__)
  return fma(x, x, -square);
#else
  // Without a fused instruction: x in two parts, whose products are exact.
  const Unsigned<T> low = Unsigned<T>{} + ((decltype(Unsigned<T>{}[0] + 0u){1} << (sizeof(T) == 4 ? 12 : 27)) - 1);
  const Vec<T> high = cast<Vec<T>>(cast<Unsigned<T>>(x) & ~low), rest = x - high;
  return ((high * high - square) + high * rest * splat(static_cast<T>(2))) + rest * rest;
#endif
}

// exp(z^2) erfc(z) for z from 0 to erfc_limit: (1 + 2z) times it hardly varies, and is a polynomial in
// (z - 3.75) / (z + 3.75), fitted at Chebyshev's points.
ROCPY_INLINE VecF horner(const float *c, int count, VecF x) {
  VecF y = splat(c[count - 1]);
  ROCPY_UNROLL
  for (int i = count - 2; i >= 0; i--) y = fma(y, x, splat(c[i]));
  return y;
}
ROCPY_INLINE VecD horner(const double *c, int count, VecD x) {
  VecD y = splat(c[count - 1]);
  ROCPY_UNROLL
  for (int i = count - 2; i >= 0; i--) y = fma(y, x, splat(c[i]));
  return y;
}
constexpr float tail_f32[] = {1.23751264f,     -1.40240517e-1f, 3.58468069e-3f,  8.22727355e-2f,
                              -1.08791838e-1f, 9.23629006e-2f,  -5.87320259e-2f, 2.80343547e-2f,
                              -9.92879602e-3f, 2.31518549e-3f,  1.09999664e-3f};
constexpr double tail_f64[] = {
    1.2375126308378276,     -1.4024059858554668e-1,  3.5854154854637791e-3,  8.2276738490112037e-2,
    -1.0880393014171236e-1, 9.2304321161531156e-2,   -5.8693398590309412e-2, 2.8362277400457723e-2,
    -9.7465795534318737e-3, 1.7556260171520038e-3,   2.9371366631088616e-4,  -2.9015496529570926e-4,
    5.1648913469599862e-5,  2.2387259638230134e-5,   -1.1442990926805438e-5, -9.8016667558585775e-7,
    1.7481190468391964e-6,  -4.815839621672849e-8,   -2.5261465267715505e-7, 1.5996335215573708e-8,
    3.2850835562333159e-8,  -8.7821257348035202e-10, -2.410821536542233e-9};
// erf(z) / z in z^2, for z up to 0.9.
constexpr float erf_f32[] = {1.12837915f,     -3.76125288e-1f, 1.12821941e-1f,
                             -2.67807191e-2f, 5.01448415e-3f,  -6.10268704e-4f};
constexpr double erf_f64[] = {1.1283791670955126,     -3.761263890318373e-1, 1.1283791670953794e-1,
                              -2.6866170644823731e-2, 5.2239776217703724e-3, -8.5483267644665423e-4,
                              1.2055321382481122e-4,  -1.492530753550859e-5, 1.6455328747938096e-6,
                              -1.6276526722586206e-7, 1.4051482766989913e-8, -8.4939987970809436e-10};
ROCPY_INLINE VecF tail_series(VecF u) { return horner(tail_f32, 11, u); }
ROCPY_INLINE VecD tail_series(VecD u) { return horner(tail_f64, 23, u); }
ROCPY_INLINE VecF erf_series(VecF square) { return horner(erf_f32, 6, square); }
ROCPY_INLINE VecD erf_series(VecD square) { return horner(erf_f64, 12, square); }

template <class T>
ROCPY_INLINE Vec<T> scaled_tail(Vec<T> z) {
  const Vec<T> center = splat(static_cast<T>(3.75)), one = splat(static_cast<T>(1));
  // (z - center) / (z + center) by a quotient that is small near 0, where the polynomial is steep.
  const Vec<T> u = fma(z / (z + center), splat(static_cast<T>(2)), -one);
  return tail_series(u) / (one + (z + z));
}

// erfc(|x|).
template <class T>
ROCPY_INLINE Vec<T> error_tail(Vec<T> x) {
  const Vec<T> z = limit<T>(magnitude<T>(x), static_cast<T>(0), Format<T>::erfc_limit), square = z * z;
  const Vec<T> e = exponential<T>(-square);
  return (e - e * square_rest<T>(z, square)) * scaled_tail<T>(z);
}

template <class T>
ROCPY_INLINE Vec<T> error_complement(Vec<T> x) {
  const Vec<T> tail = error_tail<T>(x);
  return x < splat(static_cast<T>(0)) ? splat(static_cast<T>(2)) - tail : tail;
}

template <class T>
ROCPY_INLINE Vec<T> error_function(Vec<T> x) {
  const Vec<T> a = magnitude<T>(x);
  const Vec<T> far = splat(static_cast<T>(1)) - error_tail<T>(x);
  const Vec<T> near = a * erf_series(a * a);
  return with_sign<T>(a < splat(static_cast<T>(0.9)) ? near : far, x);
}

// The normal distribution at x: Phi(x), and exp(-x^2 / 2). Right between gelu_limit and its negative, at which x is
// held; there the exponential is still a normal number.
template <class T>
struct Normal {
  Vec<T> phi, bell;
  ROCPY_INLINE explicit Normal(Vec<T> x) {
    const Vec<T> half = splat(static_cast<T>(0.5)), one = splat(static_cast<T>(1));
    const Vec<T> a = limit<T>(magnitude<T>(x), static_cast<T>(0), Format<T>::gelu_limit), square = a * a;
    bell = exp_in_range(square * -half);
    bell = bell - bell * (square_rest<T>(a, square) * half);
    const Vec<T> tail = bell * scaled_tail<T>(a * splat(static_cast<T>(0.70710678118654752440))) * half;
    phi = x < splat(static_cast<T>(0)) ? tail : one - tail;
  }
};

template <class T>
ROCPY_INLINE Vec<T> gelu_erf(Vec<T> x) {
  const Vec<T> y = x * Normal<T>(x).phi;
  return x < splat(-Format<T>::gelu_limit) ? splat(static_cast<T>(-0.0)) : y;
}

template <class T>
ROCPY_INLINE Vec<T> gelu_erf_gradient(Vec<T> x) {
  const Normal<T> normal(x);
  const Vec<T> held = limit<T>(x, -Format<T>::gelu_limit, Format<T>::gelu_limit);
  const Vec<T> y = fma(held * splat(static_cast<T>(0.39894228040143267794)), normal.bell, normal.phi);
  return x < splat(-Format<T>::gelu_limit) ? splat(static_cast<T>(-0.0)) : x == x ? y : x;
}

// The derivative of silu: s + x s (1 - s) with 1 - s = e s.
template <class T>
ROCPY_INLINE Vec<T> silu_gradient(Vec<T> x) {
  const Vec<T> one = splat(static_cast<T>(1));
  const Sigmoid<T> sigmoid(x);
  const Vec<T> e = sigmoid.growth, s = one / (one + e);
  const Vec<T> held = limit<T>(x, Range<T>::sigmoid_zero, Range<T>::exp_limit);
  const Vec<T> y = fma(held * s, e * s, s) * sigmoid.scaled(one);
  return x < splat(Range<T>::sigmoid_zero) ? splat(static_cast<T>(-0.0)) : x == x ? y : x;
}

// Whole numbers: beyond the mantissa all are.
template <class T>
ROCPY_INLINE Vec<T> round_magnitude(Vec<T> a) {
  const Vec<T> beyond = splat(static_cast<T>(sizeof(T) == 4 ? 0x1p23 : 0x1p52));
  return a < beyond ? (a + beyond) - beyond : a;
}
template <class T>
ROCPY_INLINE Vec<T> round_even(Vec<T> x) {
  return with_sign<T>(round_magnitude<T>(magnitude<T>(x)), x);
}
template <class T>
ROCPY_INLINE Vec<T> round_down(Vec<T> x) {
  const Vec<T> y = round_even<T>(x);
  return y > x ? y - splat(static_cast<T>(1)) : y;
}
template <class T>
ROCPY_INLINE Vec<T> round_up(Vec<T> x) {
  const Vec<T> y = round_even<T>(x);
  return y < x ? with_sign<T>(magnitude<T>(y + splat(static_cast<T>(1))), x) : y;
}
template <class T>
ROCPY_INLINE Vec<T> round_to_zero(Vec<T> x) {
  const Vec<T> a = magnitude<T>(x), y = round_magnitude<T>(a);
  return with_sign<T>(y > a ? y - splat(static_cast<T>(1)) : y, x);
}

}  // namespace
}  // namespace rocpy_host::gemm
