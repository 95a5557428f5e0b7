// SPDX-License-Identifier: MIT
// Vector instructions of float32 and float64: arithmetic, the steps of correctly rounded division, and functions.
//
// Arithmetic is exact to the bit. Reciprocals, roots, exponentials, logarithms, sines and cosines are rounded from
// float64 and so within half an ulp; the hardware promises one or more. NaN payloads are not modelled.
#include "vector_functions.hpp"

#include <algorithm>
#include <cfenv>

namespace rocpy_host::amdgpu {

namespace {

template <class T>
T minimum_number(T a, T b) {
  if (std::isnan(a)) {
    return b;
  }
  if (std::isnan(b)) {
    return a;
  }
  return a < b || (a == b && std::signbit(a)) ? a : b;
}

template <class T>
T maximum_number(T a, T b) {
  if (std::isnan(a)) {
    return b;
  }
  if (std::isnan(b)) {
    return a;
  }
  return a > b || (a == b && !std::signbit(a)) ? a : b;
}

template <class T>
T minimum(T a, T b) {
  return std::isnan(a) || std::isnan(b) ? std::numeric_limits<T>::quiet_NaN() : minimum_number(a, b);
}

template <class T>
T maximum(T a, T b) {
  return std::isnan(a) || std::isnan(b) ? std::numeric_limits<T>::quiet_NaN() : maximum_number(a, b);
}

template <class T>
T median(T a, T b, T c) {
  if (std::isnan(a) || std::isnan(b) || std::isnan(c)) {
    return minimum_number(minimum_number(a, b), c);
  }
  return maximum_number(minimum_number(a, b), minimum_number(maximum_number(a, b), c));
}

// Zero times anything is zero, NaN and infinity too.
float legacy_product(float a, float b) { return a == 0 || b == 0 ? 0.0f : a * b; }

template <class T>
struct Layout;
template <>
struct Layout<float> {
  static constexpr int special = 255, spread = 96, tiny = 23, scale = 64, gap = -150;
};
template <>
struct Layout<double> {
  static constexpr int special = 2047, spread = 768, tiny = 53, scale = 128, gap = -1075;
};

int exponent_field(float v) { return static_cast<int>(bit_copy<uint32_t>(v) >> 23 & 255); }
int exponent_field(double v) { return static_cast<int>(bit_copy<uint64_t>(v) >> 52 & 2047); }

template <class T>
bool is_subnormal(T v) {
  return std::fpclassify(v) == FP_SUBNORMAL;
}

// The operand of a division that `which` (the denominator or the numerator itself) is, scaled so that the steps that
// follow neither overflow nor lose bits; *flag tells v_div_fmas to scale back.
template <class T>
T division_scale(T which, T denominator, T numerator, bool *flag) {
  using L = Layout<T>;
  *flag = false;
  const bool is_denominator = bit_copy<decltype(std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>())>(which) ==
                              bit_copy<decltype(std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>())>(denominator);
  const bool is_numerator = bit_copy<decltype(std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>())>(which) ==
                            bit_copy<decltype(std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>())>(numerator);
  if (numerator == 0 || denominator == 0) {
    return std::numeric_limits<T>::quiet_NaN();
  }
  const bool reciprocal_is_tiny = is_subnormal(static_cast<T>(T(1) / denominator));
  const bool quotient_is_tiny = [&] {
    const T quotient = numerator / denominator;
    return is_subnormal(quotient) || quotient == 0;
  }();
  if (exponent_field(numerator) - exponent_field(denominator) >= L::spread) {
    *flag = true;
    return is_denominator ? std::ldexp(which, L::scale) : which;
  }
  if (is_subnormal(denominator)) {
    return std::ldexp(which, L::scale);
  }
  if (reciprocal_is_tiny && quotient_is_tiny) {
    *flag = true;
    return is_denominator ? std::ldexp(which, -L::scale) : which;
  }
  if (reciprocal_is_tiny) {
    return std::ldexp(which, -L::scale);
  }
  if (quotient_is_tiny) {
    *flag = true;
    return is_numerator ? std::ldexp(which, L::scale) : which;
  }
  if (exponent_field(numerator) <= L::tiny) {
    return std::ldexp(which, L::scale);
  }
  return which;
}

template <class T>
void scale_division(Wave &w, const Instruction &i) {
  constexpr Type type = Format<T>::type;
  const Source a(w, i, 0, type), b(w, i, 1, type), c(w, i, 2, type);
  Result result(w, i, type);
  uint64_t flags = 0;
  for_lanes(w.exec(), [&](int lane) {
    bool flag = false;
    const T value = division_scale(read<T>(w, a, lane), read<T>(w, b, lane), read<T>(w, c, lane), &flag);
    flags |= static_cast<uint64_t>(flag) << lane;
    write<T>(w, i, result, lane, value);
  });
  w.set_lane_mask(i.results[1], flags);
}

// a * b + c times a power of two, rounded once: where the result is subnormal, what the sum lost decides a tie.
template <class T>
T scaled_fma(T a, T b, T c, int exponent) {
  constexpr T least = std::numeric_limits<T>::denorm_min();
  const T sum = std::fma(a, b, c);
  const T value = std::ldexp(sum, exponent);
  const T lost = sum - std::ldexp(value, -exponent);
  const bool tied = lost != 0 && std::fabs(lost) == std::ldexp(least, -exponent - 1);
  if (!tied || std::fegetround() != FE_TONEAREST) return value;
  const T product = a * b, rough = product + c, part = rough - product;
  const T rest = (rough - sum) + ((product - (rough - part)) + (c - part) + std::fma(a, b, -product));
  const bool beyond = rest != 0 && std::signbit(rest) == std::signbit(lost);
  return beyond ? value + std::copysign(least, lost) : value;
}

template <class T>
void fuse_division(Wave &w, const Instruction &i) {
  using L = Layout<T>;
  const uint64_t flags = w.lane_mask(code_vcc);
  const Source a(w, i, 0, Format<T>::type), b(w, i, 1, Format<T>::type), c(w, i, 2, Format<T>::type);
  Result result(w, i, Format<T>::type);
  const RoundingScope scope(rounding_of<T>(w));
  for_lanes(w.exec(), [&](int lane) {
    const T estimate = read<T>(w, c, lane);
    const int exponent = exponent_field(estimate) > L::special / 2 ? L::scale : -L::scale;
    const bool scaled = (flags >> lane & 1) != 0;
    write<T>(w, i, result, lane, scaled_fma(read<T>(w, a, lane), read<T>(w, b, lane), estimate, scaled ? exponent : 0));
  });
}

template <class T>
T fix_division(T quotient, T denominator, T numerator) {
  using L = Layout<T>;
  const bool negative = std::signbit(denominator) != std::signbit(numerator);
  const auto with_sign = [&](T v) { return negative ? -v : v; };
  if (std::isnan(numerator) || std::isnan(denominator)) {
    return std::numeric_limits<T>::quiet_NaN();
  }
  if ((numerator == 0 && denominator == 0) || (std::isinf(numerator) && std::isinf(denominator))) {
    return std::numeric_limits<T>::quiet_NaN();
  }
  if (denominator == 0 || std::isinf(numerator)) {
    return with_sign(std::numeric_limits<T>::infinity());
  }
  if (std::isinf(denominator) || numerator == 0) {
    return with_sign(T(0));
  }
  if (exponent_field(numerator) - exponent_field(denominator) < L::gap) {
    return with_sign(T(0));
  }
  // The steps before it make a NaN of a quotient far beyond the range, as of the largest number and the least normal
  // one. AMD's pseudocode passes it on; divisions on GPUs, which OpenCL's conformance tests check, give infinity.
  if (std::isnan(quotient)) {
    return with_sign(std::numeric_limits<T>::infinity());
  }
  return with_sign(std::fabs(quotient));
}

template <class T>
T fraction(T v) {
  if (std::isinf(v) || std::isnan(v)) {
    return std::numeric_limits<T>::quiet_NaN();
  }
  constexpr T below_one = T(1) - std::numeric_limits<T>::epsilon() / 2;
  return std::min(v - std::floor(v), below_one);
}

template <class T>
int exponent_of(T v) {
  int exponent = 0;
  if (std::isfinite(v)) {
    std::frexp(v, &exponent);
  }
  return exponent;
}

template <class T>
T mantissa_of(T v) {
  int exponent = 0;
  return std::isfinite(v) ? std::frexp(v, &exponent) : v;
}

float sine_of_turns(float turns, bool cosine) {
  if (!std::isfinite(turns)) {
    return std::numeric_limits<float>::quiet_NaN();
  }
  const double part = std::fmod(static_cast<double>(turns), 1.0), pi = 3.14159265358979323846;
  return static_cast<float>(cosine ? std::cos(2 * pi * part) : std::sin(2 * pi * part));
}

void add_arithmetic32(Handlers &handlers) {
  ROCPY_LANES2("v_add_f32", float, float, float, a + b);
  ROCPY_LANES2("v_sub_f32", float, float, float, a - b);
  ROCPY_LANES2("v_subrev_f32", float, float, float, b - a);
  ROCPY_LANES2("v_mul_f32", float, float, float, a *b);
  for (const char *name : {"v_mul_legacy_f32", "v_mul_dx9_zero_f32"}) {
    ROCPY_LANES2(name, float, float, float, legacy_product(a, b));
  }
  ROCPY_LANES3("v_fma_f32", float, float, float, float, std::fma(a, b, c));
  ROCPY_LANES3("v_mad_f32", float, float, float, float, a *b + c);
  for (const char *name : {"v_fma_legacy_f32", "v_fma_dx9_zero_f32"}) {
    ROCPY_LANES3(name, float, float, float, float, a == 0 || b == 0 ? c : std::fma(a, b, c));
  }
  handlers.add("v_fmac_f32", [](Wave &w, const Instruction &i) {
    accumulate<float, float, float>(w, i, [](float a, float b, float c) { return std::fma(a, b, c); });
  });
  for (const char *name : {"v_fmac_legacy_f32", "v_fmac_dx9_zero_f32"}) {
    handlers.add(name, [](Wave &w, const Instruction &i) {
      accumulate<float, float, float>(
          w, i, [](float a, float b, float c) { return a == 0 || b == 0 ? c : std::fma(a, b, c); });
    });
  }
  for (const char *name : {"v_fmamk_f32", "v_fmaak_f32"}) {
    ROCPY_LANES3(name, float, float, float, float, std::fma(a, b, c));
  }
  ROCPY_LANES2("v_ldexp_f32", float, float, int32_t, std::ldexp(a, b));
}

#define ROCPY_ORDER(T, suffix)                                      \
  ROCPY_LANES2("v_min_" suffix, T, T, T, minimum_number(a, b));     \
  ROCPY_LANES2("v_max_" suffix, T, T, T, maximum_number(a, b));     \
  ROCPY_LANES2("v_min_num_" suffix, T, T, T, minimum_number(a, b)); \
  ROCPY_LANES2("v_max_num_" suffix, T, T, T, maximum_number(a, b)); \
  ROCPY_LANES2("v_minimum_" suffix, T, T, T, minimum(a, b));        \
  ROCPY_LANES2("v_maximum_" suffix, T, T, T, maximum(a, b));

void add_order(Handlers &handlers) {
  ROCPY_ORDER(float, "f32")
  ROCPY_ORDER(double, "f64")
  for (const char *name : {"v_min3_f32", "v_min3_num_f32"}) {
    ROCPY_LANES3(name, float, float, float, float, minimum_number(minimum_number(a, b), c));
  }
  for (const char *name : {"v_max3_f32", "v_max3_num_f32"}) {
    ROCPY_LANES3(name, float, float, float, float, maximum_number(maximum_number(a, b), c));
  }
  for (const char *name : {"v_med3_f32", "v_med3_num_f32"}) {
    ROCPY_LANES3(name, float, float, float, float, median(a, b, c));
  }
  for (const char *name : {"v_minmax_f32", "v_minmax_num_f32"}) {
    ROCPY_LANES3(name, float, float, float, float, maximum_number(minimum_number(a, b), c));
  }
  for (const char *name : {"v_maxmin_f32", "v_maxmin_num_f32"}) {
    ROCPY_LANES3(name, float, float, float, float, minimum_number(maximum_number(a, b), c));
  }
  ROCPY_LANES3("v_minimum3_f32", float, float, float, float, minimum(minimum(a, b), c));
  ROCPY_LANES3("v_maximum3_f32", float, float, float, float, maximum(maximum(a, b), c));
  ROCPY_LANES3("v_minimummaximum_f32", float, float, float, float, maximum(minimum(a, b), c));
  ROCPY_LANES3("v_maximumminimum_f32", float, float, float, float, minimum(maximum(a, b), c));
}

void add_functions32(Handlers &handlers) {
  ROCPY_LANES1("v_floor_f32", float, float, std::floor(a));
  ROCPY_LANES1("v_ceil_f32", float, float, std::ceil(a));
  ROCPY_LANES1("v_trunc_f32", float, float, std::trunc(a));
  ROCPY_LANES1("v_rndne_f32", float, float, std::nearbyint(a));
  ROCPY_LANES1("v_fract_f32", float, float, fraction(a));
  ROCPY_LANES1("v_frexp_mant_f32", float, float, mantissa_of(a));
  ROCPY_LANES1("v_frexp_exp_i32_f32", int32_t, float, exponent_of(a));
  add_function<float, reciprocal>(handlers, {"v_rcp_f32", "v_rcp_iflag_f32"}, "v_s_rcp_f32");
  add_function<float, reciprocal_root>(handlers, {"v_rsq_f32"}, "v_s_rsq_f32");
  add_function<float, root>(handlers, {"v_sqrt_f32"}, "v_s_sqrt_f32");
  add_function<float, power_of_two>(handlers, {"v_exp_f32", "v_exp_legacy_f32"}, "v_s_exp_f32");
  add_function<float, logarithm>(handlers, {"v_log_f32", "v_log_legacy_f32"}, "v_s_log_f32");
  ROCPY_LANES1("v_sin_f32", float, float, sine_of_turns(a, false));
  ROCPY_LANES1("v_cos_f32", float, float, sine_of_turns(a, true));
  handlers.add("v_div_scale_f32", scale_division<float>);
  handlers.add("v_div_fmas_f32", fuse_division<float>);
  ROCPY_LANES3("v_div_fixup_f32", float, float, float, float, fix_division(a, b, c));
}

void add_doubles(Handlers &handlers) {
  ROCPY_LANES2("v_add_f64", double, double, double, a + b);
  ROCPY_LANES2("v_mul_f64", double, double, double, a *b);
  ROCPY_LANES3("v_fma_f64", double, double, double, double, std::fma(a, b, c));
  handlers.add("v_fmac_f64", [](Wave &w, const Instruction &i) {
    accumulate<double, double, double>(w, i, [](double a, double b, double c) { return std::fma(a, b, c); });
  });
  ROCPY_LANES2("v_ldexp_f64", double, double, int32_t, std::ldexp(a, b));
  ROCPY_LANES1("v_floor_f64", double, double, std::floor(a));
  ROCPY_LANES1("v_ceil_f64", double, double, std::ceil(a));
  ROCPY_LANES1("v_trunc_f64", double, double, std::trunc(a));
  ROCPY_LANES1("v_rndne_f64", double, double, std::nearbyint(a));
  ROCPY_LANES1("v_fract_f64", double, double, fraction(a));
  ROCPY_LANES1("v_frexp_mant_f64", double, double, mantissa_of(a));
  ROCPY_LANES1("v_frexp_exp_i32_f64", int32_t, double, exponent_of(a));
  ROCPY_LANES1("v_rcp_f64", double, double, 1 / a);
  ROCPY_LANES1("v_rsq_f64", double, double, 1 / std::sqrt(a));
  ROCPY_LANES1("v_sqrt_f64", double, double, std::sqrt(a));
  handlers.add("v_div_scale_f64", scale_division<double>);
  handlers.add("v_div_fmas_f64", fuse_division<double>);
  ROCPY_LANES3("v_div_fixup_f64", double, double, double, double, fix_division(a, b, c));
}

}  // namespace

void add_float(Handlers &handlers) {
  add_arithmetic32(handlers);
  add_order(handlers);
  add_functions32(handlers);
  add_doubles(handlers);
}

}  // namespace rocpy_host::amdgpu
