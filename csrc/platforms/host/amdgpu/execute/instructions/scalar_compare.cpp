// SPDX-License-Identifier: MIT
// Scalar comparisons, instructions with a constant of 16 bits, and scalar floats of GFX11 and later.
#include "handlers.hpp"
#include "scalar_operands.hpp"

#include <cmath>

namespace rocpy_host::amdgpu {

namespace {

template <class T, bool (*relation)(T, T)>
void compare(Wave &w, const Instruction &i) {
  w.scc = relation(source<T>(w, i, 0), source<T>(w, i, 1));
}

// The constant is sign extended for signed operands, zero extended for the others.
template <class T, bool (*relation)(T, T)>
void compare_constant(Wave &w, const Instruction &i) {
  const T constant = std::is_signed_v<T> ? static_cast<T>(i.offset) : static_cast<T>(i.offset & 0xffff);
  w.scc = relation(source<T>(w, i, 0), constant);
}

template <class T>
bool eq(T a, T b) {
  return a == b;
}
template <class T>
bool lg(T a, T b) {
  return a != b;
}
template <class T>
bool gt(T a, T b) {
  return a > b;
}
template <class T>
bool ge(T a, T b) {
  return a >= b;
}
template <class T>
bool lt(T a, T b) {
  return a < b;
}
template <class T>
bool le(T a, T b) {
  return a <= b;
}

template <class T>
void add_relations(Handlers &handlers, const std::string &type) {
  handlers.add("s_cmp_eq_" + type, compare<T, eq<T>>);
  handlers.add("s_cmp_lg_" + type, compare<T, lg<T>>);
  handlers.add("s_cmp_gt_" + type, compare<T, gt<T>>);
  handlers.add("s_cmp_ge_" + type, compare<T, ge<T>>);
  handlers.add("s_cmp_lt_" + type, compare<T, lt<T>>);
  handlers.add("s_cmp_le_" + type, compare<T, le<T>>);
  if constexpr (sizeof(T) == 4) {
    handlers.add("s_cmpk_eq_" + type, compare_constant<T, eq<T>>);
    handlers.add("s_cmpk_lg_" + type, compare_constant<T, lg<T>>);
    handlers.add("s_cmpk_gt_" + type, compare_constant<T, gt<T>>);
    handlers.add("s_cmpk_ge_" + type, compare_constant<T, ge<T>>);
    handlers.add("s_cmpk_lt_" + type, compare_constant<T, lt<T>>);
    handlers.add("s_cmpk_le_" + type, compare_constant<T, le<T>>);
  }
}

float value_of(float v) { return v; }
float value_of(Half v) { return to_float(v); }

// Bit 0 of a relation is "less", bit 1 "equal", bit 2 "greater", bit 3 "unordered".
template <class T, unsigned relation>
void compare_floats(Wave &w, const Instruction &i) {
  const float a = value_of(source<T>(w, i, 0)), b = value_of(source<T>(w, i, 1));
  const unsigned order = a < b ? 1 : a == b ? 2 : a > b ? 4 : 8;
  w.scc = (relation & order) != 0;
}

template <class T>
void add_float_relations(Handlers &handlers, const std::string &type) {
  handlers.add("s_cmp_lt_" + type, compare_floats<T, 1>);
  handlers.add("s_cmp_eq_" + type, compare_floats<T, 2>);
  handlers.add("s_cmp_le_" + type, compare_floats<T, 3>);
  handlers.add("s_cmp_gt_" + type, compare_floats<T, 4>);
  handlers.add("s_cmp_lg_" + type, compare_floats<T, 5>);
  handlers.add("s_cmp_ge_" + type, compare_floats<T, 6>);
  handlers.add("s_cmp_o_" + type, compare_floats<T, 7>);
  handlers.add("s_cmp_u_" + type, compare_floats<T, 8>);
  handlers.add("s_cmp_nge_" + type, compare_floats<T, 9>);
  handlers.add("s_cmp_nlg_" + type, compare_floats<T, 10>);
  handlers.add("s_cmp_ngt_" + type, compare_floats<T, 11>);
  handlers.add("s_cmp_nle_" + type, compare_floats<T, 12>);
  handlers.add("s_cmp_neq_" + type, compare_floats<T, 13>);
  handlers.add("s_cmp_nlt_" + type, compare_floats<T, 14>);
}

template <class To>
To to_integer(float value) {
  if (std::isnan(value)) {
    return 0;
  }
  const double whole = std::trunc(static_cast<double>(value));
  constexpr double low = std::numeric_limits<To>::min(), high = std::numeric_limits<To>::max();
  return whole <= low    ? std::numeric_limits<To>::min()
         : whole >= high ? std::numeric_limits<To>::max()
                         : static_cast<To>(whole);
}

}  // namespace

void add_scalar_compare(Handlers &handlers) {
  add_relations<i32>(handlers, "i32");
  add_relations<u32>(handlers, "u32");
  add_relations<u64>(handlers, "u64");
  add_float_relations<float>(handlers, "f32");
  add_float_relations<Half>(handlers, "f16");
  handlers.add("s_movk_i32",
               [](Wave &w, const Instruction &i) { w.write32(i.results[0], static_cast<u32>(i.offset)); });
  handlers.add("s_cmovk_i32", [](Wave &w, const Instruction &i) {
    if (w.scc) {
      w.write32(i.results[0], static_cast<u32>(i.offset));
    }
  });
  for (const char *name : {"s_addk_i32", "s_addk_co_i32"}) {
    handlers.add(name, [](Wave &w, const Instruction &i) {
      i32 sum = 0;
      w.scc = __builtin_add_overflow(static_cast<i32>(w.read32(i.results[0], 0)), i.offset, &sum);
      w.write32(i.results[0], static_cast<u32>(sum));
    });
  }
  handlers.add("s_mulk_i32", [](Wave &w, const Instruction &i) {
    w.write32(i.results[0], w.read32(i.results[0], 0) * static_cast<u32>(i.offset));
  });
}

void add_scalar_float(Handlers &handlers) {
  ROCPY_SCALAR2("s_add_f32", float, float, float, a + b, w.scc);
  ROCPY_SCALAR2("s_sub_f32", float, float, float, a - b, w.scc);
  ROCPY_SCALAR2("s_mul_f32", float, float, float, a *b, w.scc);
  for (const char *name : {"s_min_f32", "s_min_num_f32"}) {
    ROCPY_SCALAR2(name, float, float, float, std::signbit(a) && a == b ? a : std::fmin(a, b), w.scc);
  }
  for (const char *name : {"s_max_f32", "s_max_num_f32"}) {
    ROCPY_SCALAR2(name, float, float, float, std::signbit(a) && a == b ? b : std::fmax(a, b), w.scc);
  }
  for (const char *name : {"s_fmaak_f32", "s_fmamk_f32"}) {
    handlers.add(name, [](Wave &w, const Instruction &i) {
      give<float>(w, i, std::fma(source<float>(w, i, 0), source<float>(w, i, 1), source<float>(w, i, 2)));
    });
  }
  handlers.add("s_fmac_f32", [](Wave &w, const Instruction &i) {
    const float sum = bit_copy<float>(w.read32(i.results[0], 0));
    give<float>(w, i, std::fma(source<float>(w, i, 0), source<float>(w, i, 1), sum));
  });
  ROCPY_SCALAR1("s_ceil_f32", float, float, std::ceil(a), w.scc);
  ROCPY_SCALAR1("s_floor_f32", float, float, std::floor(a), w.scc);
  ROCPY_SCALAR1("s_trunc_f32", float, float, std::trunc(a), w.scc);
  ROCPY_SCALAR1("s_rndne_f32", float, float, std::nearbyint(a), w.scc);
  ROCPY_SCALAR1("s_cvt_f32_i32", float, i32, a, w.scc);
  ROCPY_SCALAR1("s_cvt_f32_u32", float, u32, a, w.scc);
  ROCPY_SCALAR1("s_cvt_i32_f32", i32, float, to_integer<i32>(a), w.scc);
  ROCPY_SCALAR1("s_cvt_u32_f32", u32, float, to_integer<u32>(a), w.scc);
  ROCPY_SCALAR1("s_cvt_f16_f32", Half, float, to_half(a, w.round64()), w.scc);
  ROCPY_SCALAR1("s_cvt_f32_f16", float, Half, to_float(a), w.scc);
  ROCPY_SCALAR1("s_cvt_hi_f32_f16", float, u32, to_float(Half{static_cast<uint16_t>(a >> 16)}), w.scc);
  ROCPY_SCALAR2("s_add_f16", Half, Half, Half, to_half(static_cast<double>(to_float(a)) + to_float(b)), w.scc);
  ROCPY_SCALAR2("s_sub_f16", Half, Half, Half, to_half(static_cast<double>(to_float(a)) - to_float(b)), w.scc);
  ROCPY_SCALAR2("s_mul_f16", Half, Half, Half, to_half(static_cast<double>(to_float(a)) * to_float(b)), w.scc);
  ROCPY_SCALAR2("s_cvt_pk_rtz_f16_f32", u32, float, float,
                to_half(a, to_zero).bits | static_cast<u32>(to_half(b, to_zero).bits) << 16, w.scc);
}

}  // namespace rocpy_host::amdgpu
