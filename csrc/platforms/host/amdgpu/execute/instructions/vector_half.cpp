// SPDX-License-Identifier: MIT
// Vector instructions of float16. Sums and products are exact in float64 and rounded once.
#include "vector_functions.hpp"

namespace rocpy_host::amdgpu {

namespace {

double wide(Half h) { return to_float(h); }
bool is_nan(Half h) { return (h.bits & 0x7fff) > 0x7c00; }
Half nan_half() { return Half{0x7e00}; }

Half smaller(Half a, Half b) {
  if (is_nan(a) || is_nan(b)) {
    return is_nan(a) ? b : a;
  }
  const float x = to_float(a), y = to_float(b);
  return x < y || (x == y && (a.bits & 0x8000) != 0) ? a : b;
}

Half larger(Half a, Half b) {
  if (is_nan(a) || is_nan(b)) {
    return is_nan(a) ? b : a;
  }
  const float x = to_float(a), y = to_float(b);
  return x > y || (x == y && (a.bits & 0x8000) == 0) ? a : b;
}

Half smallest(Half a, Half b) { return is_nan(a) || is_nan(b) ? nan_half() : smaller(a, b); }
Half largest(Half a, Half b) { return is_nan(a) || is_nan(b) ? nan_half() : larger(a, b); }

Half median(Half a, Half b, Half c) {
  if (is_nan(a) || is_nan(b) || is_nan(c)) {
    return smaller(smaller(a, b), c);
  }
  return larger(smaller(a, b), smaller(larger(a, b), c));
}

Half fixed_quotient(Half quotient, Half denominator, Half numerator) {
  const float d = to_float(denominator), n = to_float(numerator);
  const uint16_t sign = (denominator.bits ^ numerator.bits) & 0x8000;
  const auto with_sign = [&](unsigned bits) { return Half{static_cast<uint16_t>((bits & 0x7fff) | sign)}; };
  if (std::isnan(n) || std::isnan(d) || (n == 0 && d == 0) || (std::isinf(n) && std::isinf(d))) {
    return nan_half();
  }
  if (d == 0 || std::isinf(n)) {
    return with_sign(0x7c00);
  }
  if (std::isinf(d) || n == 0) {
    return with_sign(0);
  }
  return with_sign(quotient.bits);
}

Half fraction(Half v) {
  if (!std::isfinite(to_float(v))) {
    return nan_half();
  }
  const float result = to_float(v) - std::floor(to_float(v));
  return result >= 1.0f ? Half{0x3bff} : to_half(std::fmin(result, 0.99951171875f));
}

Half sine_or_cosine(Half v, bool cosine) {
  if (!std::isfinite(to_float(v))) {
    return nan_half();
  }
  const double part = std::fmod(wide(v), 1.0), pi = 3.14159265358979323846;
  return to_half(cosine ? std::cos(2 * pi * part) : std::sin(2 * pi * part));
}

int exponent_of(Half v) {
  int exponent = 0;
  if (std::isfinite(to_float(v))) {
    std::frexp(to_float(v), &exponent);
  }
  return exponent;
}

Half mantissa_of(Half v) {
  int exponent = 0;
  return std::isfinite(to_float(v)) ? to_half(std::frexp(to_float(v), &exponent)) : v;
}

void add_arithmetic16(Handlers &handlers) {
  ROCPY_LANES2("v_add_f16", Half, Half, Half, to_half(wide(a) + wide(b), w.round64()));
  ROCPY_LANES2("v_sub_f16", Half, Half, Half, to_half(wide(a) - wide(b), w.round64()));
  ROCPY_LANES2("v_subrev_f16", Half, Half, Half, to_half(wide(b) - wide(a), w.round64()));
  ROCPY_LANES2("v_mul_f16", Half, Half, Half, to_half(wide(a) * wide(b), w.round64()));
  for (const char *name : {"v_fma_f16", "v_fmamk_f16", "v_fmaak_f16", "v_fma_legacy_f16"}) {
    ROCPY_LANES3(name, Half, Half, Half, Half, to_half(odd_fma(wide(a), wide(b), wide(c)), w.round64()));
  }
  for (const char *name : {"v_mad_f16", "v_mad_legacy_f16"}) {
    ROCPY_LANES3(name, Half, Half, Half, Half,
                 to_half(wide(to_half(wide(a) * wide(b), w.round64())) + wide(c), w.round64()));
  }
  handlers.add("v_fmac_f16", [](Wave &w, const Instruction &i) {
    accumulate<Half, Half, Half>(
        w, i, [&](Half a, Half b, Half c) { return to_half(odd_fma(wide(a), wide(b), wide(c)), w.round64()); });
  });
  ROCPY_LANES2("v_ldexp_f16", Half, Half, int16_t, to_half(std::ldexp(wide(a), b), w.round64()));
  for (const char *name : {"v_div_fixup_f16", "v_div_fixup_legacy_f16"}) {
    ROCPY_LANES3(name, Half, Half, Half, Half, fixed_quotient(a, b, c));
  }
}

void add_order16(Handlers &handlers) {
  for (const char *name : {"v_min_f16", "v_min_num_f16"}) {
    ROCPY_LANES2(name, Half, Half, Half, smaller(a, b));
  }
  for (const char *name : {"v_max_f16", "v_max_num_f16"}) {
    ROCPY_LANES2(name, Half, Half, Half, larger(a, b));
  }
  ROCPY_LANES2("v_minimum_f16", Half, Half, Half, smallest(a, b));
  ROCPY_LANES2("v_maximum_f16", Half, Half, Half, largest(a, b));
  for (const char *name : {"v_min3_f16", "v_min3_num_f16"}) {
    ROCPY_LANES3(name, Half, Half, Half, Half, smaller(smaller(a, b), c));
  }
  for (const char *name : {"v_max3_f16", "v_max3_num_f16"}) {
    ROCPY_LANES3(name, Half, Half, Half, Half, larger(larger(a, b), c));
  }
  for (const char *name : {"v_med3_f16", "v_med3_num_f16"}) {
    ROCPY_LANES3(name, Half, Half, Half, Half, median(a, b, c));
  }
  for (const char *name : {"v_minmax_f16", "v_minmax_num_f16"}) {
    ROCPY_LANES3(name, Half, Half, Half, Half, larger(smaller(a, b), c));
  }
  for (const char *name : {"v_maxmin_f16", "v_maxmin_num_f16"}) {
    ROCPY_LANES3(name, Half, Half, Half, Half, smaller(larger(a, b), c));
  }
  ROCPY_LANES3("v_minimum3_f16", Half, Half, Half, Half, smallest(smallest(a, b), c));
  ROCPY_LANES3("v_maximum3_f16", Half, Half, Half, Half, largest(largest(a, b), c));
}

void add_functions16(Handlers &handlers) {
  add_function<Half, reciprocal>(handlers, {"v_rcp_f16"}, "v_s_rcp_f16");
  add_function<Half, root>(handlers, {"v_sqrt_f16"}, "v_s_sqrt_f16");
  add_function<Half, reciprocal_root>(handlers, {"v_rsq_f16"}, "v_s_rsq_f16");
  add_function<Half, logarithm>(handlers, {"v_log_f16"}, "v_s_log_f16");
  add_function<Half, power_of_two>(handlers, {"v_exp_f16"}, "v_s_exp_f16");
  ROCPY_LANES1("v_floor_f16", Half, Half, to_half(std::floor(wide(a))));
  ROCPY_LANES1("v_ceil_f16", Half, Half, to_half(std::ceil(wide(a))));
  ROCPY_LANES1("v_trunc_f16", Half, Half, to_half(std::trunc(wide(a))));
  ROCPY_LANES1("v_rndne_f16", Half, Half, to_half(std::nearbyint(wide(a))));
  ROCPY_LANES1("v_fract_f16", Half, Half, fraction(a));
  ROCPY_LANES1("v_sin_f16", Half, Half, sine_or_cosine(a, false));
  ROCPY_LANES1("v_cos_f16", Half, Half, sine_or_cosine(a, true));
  ROCPY_LANES1("v_frexp_mant_f16", Half, Half, mantissa_of(a));
  ROCPY_LANES1("v_frexp_exp_i16_f16", int16_t, Half, static_cast<int16_t>(exponent_of(a)));
}

}  // namespace

void add_half(Handlers &handlers) {
  add_arithmetic16(handlers);
  add_order16(handlers);
  add_functions16(handlers);
}

}  // namespace rocpy_host::amdgpu
