// SPDX-License-Identifier: MIT
// Packed arithmetic on pairs of 16-bit values and of float32, mixed precision, and dot products.
#include "handlers.hpp"
#include "operands.hpp"

#include <algorithm>

namespace rocpy_host::amdgpu {

namespace {

// A source of a packed instruction: which half each half of the result takes, and its sign.
struct Pair {
  Pair(Wave &w, const Instruction &i, int index, Type type)
      : source(w, i, index, type),
        shift{16 * (i.select >> index & 1u), 16 * (i.select_high >> index & 1u)},
        flip{(i.negate >> index & 1u) << 15, (i.negate_high >> index & 1u) << 15} {}
  uint16_t bits(int lane, int part) const { return static_cast<uint16_t>(source.low(lane) >> shift[part]); }
  Half half(int lane, int part) const { return Half{static_cast<uint16_t>(bits(lane, part) ^ flip[part])}; }
  Source source;
  unsigned shift[2], flip[2];
};

template <class F>
void each_half(Wave &w, const Instruction &i, F function) {
  const Pair a(w, i, 0, Type::pf16), b(w, i, 1, Type::pf16);
  const Pair c(w, i, i.opcode->source_count > 2 ? 2 : 1, Type::pf16);
  uint32_t *to = w.vector(i.results[0]);
  for_lanes(w.exec() & a.source.valid, [&](int lane) {
    uint32_t packed = 0;
    for (int part = 0; part < 2; ++part) {
      Half value = function(a.half(lane, part), b.half(lane, part), c.half(lane, part));
      if (i.clamp) {
        value = to_half(clamped(w, to_float(value)));
      }
      if (w.flush_out64() && is_denormal(value)) {
        value.bits &= 0x8000;
      }
      packed |= static_cast<uint32_t>(value.bits) << (16 * part);
    }
    to[lane] = packed;
  });
}

// T is the element; the function gives the exact result, which wraps or saturates.
template <class T, class F>
void each_integer(Wave &w, const Instruction &i, F function) {
  const Pair a(w, i, 0, Type::pu16), b(w, i, 1, Type::pu16), c(w, i, i.opcode->source_count > 2 ? 2 : 1, Type::pu16);
  uint32_t *to = w.vector(i.results[0]);
  for_lanes(w.exec(), [&](int lane) {
    uint32_t packed = 0;
    for (int part = 0; part < 2; ++part) {
      const auto x = static_cast<T>(a.bits(lane, part)), y = static_cast<T>(b.bits(lane, part)),
                 z = static_cast<T>(c.bits(lane, part));
      const T value = saturated<T>(i, [&] { return static_cast<__int128>(function(x, y, z)); });
      packed |= static_cast<uint32_t>(static_cast<uint16_t>(value)) << (16 * part);
    }
    to[lane] = packed;
  });
}

double wide(Half h) { return to_float(h); }
bool is_nan(Half h) { return (h.bits & 0x7fff) > 0x7c00; }

template <bool is_larger, bool propagates>
Half chosen(Half a, Half b) {
  if (is_nan(a) || is_nan(b)) {
    return propagates ? Half{0x7e00} : is_nan(a) ? b : a;
  }
  const float x = to_float(a), y = to_float(b);
  const bool first = x == y ? ((a.bits & 0x8000) != 0) != is_larger : (x > y) == is_larger;
  return first ? a : b;
}

#define ROCPY_HALVES(name, expression)                    \
  handlers.add(name, [](Wave &w, const Instruction &i) {  \
    each_half(w, i, [&](Half a, Half b, Half c) -> Half { \
      (void)c;                                            \
      return expression;                                  \
    });                                                   \
  })
#define ROCPY_PAIRS(name, T, expression)                                   \
  handlers.add(name, [](Wave &w, const Instruction &i) {                   \
    each_integer<T>(w, i, [](int64_t a, int64_t b, int64_t c) -> int64_t { \
      (void)c;                                                             \
      return expression;                                                   \
    });                                                                    \
  })

void add_pairs16(Handlers &handlers) {
  ROCPY_HALVES("v_pk_add_f16", to_half(wide(a) + wide(b), w.round64()));
  ROCPY_HALVES("v_pk_mul_f16", to_half(wide(a) * wide(b), w.round64()));
  ROCPY_HALVES("v_pk_fma_f16", to_half(odd_fma(wide(a), wide(b), wide(c)), w.round64()));
  for (const char *name : {"v_pk_min_f16", "v_pk_min_num_f16"}) {
    ROCPY_HALVES(name, (chosen<false, false>(a, b)));
  }
  for (const char *name : {"v_pk_max_f16", "v_pk_max_num_f16"}) {
    ROCPY_HALVES(name, (chosen<true, false>(a, b)));
  }
  ROCPY_HALVES("v_pk_minimum_f16", (chosen<false, true>(a, b)));
  ROCPY_HALVES("v_pk_maximum_f16", (chosen<true, true>(a, b)));
  ROCPY_HALVES("v_pk_minimum3_f16", (chosen<false, true>(chosen<false, true>(a, b), c)));
  ROCPY_HALVES("v_pk_maximum3_f16", (chosen<true, true>(chosen<true, true>(a, b), c)));
  ROCPY_PAIRS("v_pk_add_u16", uint16_t, a + b);
  ROCPY_PAIRS("v_pk_sub_u16", uint16_t, a - b);
  ROCPY_PAIRS("v_pk_mul_lo_u16", uint16_t, a * b & 0xffff);
  ROCPY_PAIRS("v_pk_mad_u16", uint16_t, a *b + c);
  ROCPY_PAIRS("v_pk_min_u16", uint16_t, std::min(a, b));
  ROCPY_PAIRS("v_pk_max_u16", uint16_t, std::max(a, b));
  ROCPY_PAIRS("v_pk_lshlrev_b16", uint16_t, b << (a & 15) & 0xffff);
  ROCPY_PAIRS("v_pk_lshrrev_b16", uint16_t, b >> (a & 15));
  ROCPY_PAIRS("v_pk_add_i16", int16_t, a + b);
  ROCPY_PAIRS("v_pk_sub_i16", int16_t, a - b);
  ROCPY_PAIRS("v_pk_mad_i16", int16_t, a *b + c);
  ROCPY_PAIRS("v_pk_min_i16", int16_t, std::min(a, b));
  ROCPY_PAIRS("v_pk_max_i16", int16_t, std::max(a, b));
  ROCPY_PAIRS("v_pk_ashrrev_i16", int16_t, b >> (a & 15));
}

// ---- pairs of float32 ----

template <class F>
void each_single(Wave &w, const Instruction &i, F function) {
  const int third = i.opcode->source_count > 2 ? 2 : 1;
  const Source a(w, i, 0, Type::pf32), b(w, i, 1, Type::pf32), c(w, i, third, Type::pf32);
  const auto part_of = [&](const Source &s, int index, int lane, int part) {
    const unsigned selector = part == 0 ? i.select : i.select_high, signs = part == 0 ? i.negate : i.negate_high;
    auto bits = static_cast<uint32_t>(s.wide(lane) >> (32 * (selector >> index & 1)));
    bits ^= (signs >> index & 1u) << 31;
    return flushed(bit_copy<float>(bits), w.flush_in32());
  };
  Result result(w, i, Type::pf32);
  const RoundingScope scope(w.round32());
  for_lanes(w.exec(), [&](int lane) {
    uint64_t packed = 0;
    for (int part = 0; part < 2; ++part) {
      float value = function(part_of(a, 0, lane, part), part_of(b, 1, lane, part), part_of(c, third, lane, part));
      value = flushed(scaled_and_clamped(w, i, value), w.flush_out32());
      packed |= static_cast<uint64_t>(bit_copy<uint32_t>(value)) << (32 * part);
    }
    result.set64(lane, packed);
  });
}

// The low word from the first source, the high word from the second.
void move_pair(Wave &w, const Instruction &i) {
  const Source a(w, i, 0, Type::b64), b(w, i, 1, Type::b64);
  Result result(w, i, Type::b64);
  for_lanes(w.exec(), [&](int lane) {
    const auto low = static_cast<uint32_t>(a.wide(lane) >> (32 * (i.select & 1)));
    const auto high = static_cast<uint32_t>(b.wide(lane) >> (32 * (i.select >> 1 & 1)));
    result.set64(lane, low | static_cast<uint64_t>(high) << 32);
  });
}

// ---- mixed precision: each source is a float32 or one half of a register ----

float mixed(const Wave &w, const Instruction &i, const Source &s, int index, int lane) {
  const bool is_half = (i.select_high >> index & 1) != 0;
  uint64_t constant = 0;
  float value = 0;
  if (!is_half) {
    value = flushed(bit_copy<float>(s.low(lane)), w.flush_in32());
  } else if (inline_constant(i.sources[static_cast<size_t>(index)], Type::f16, &constant)) {
    value = to_float(Half{static_cast<uint16_t>(constant)});
  } else {
    value = to_float(Half{static_cast<uint16_t>(s.low(lane) >> (16 * (i.select >> index & 1)))});
  }
  value = (i.negate_high >> index & 1) != 0 ? std::fabs(value) : value;
  return (i.negate >> index & 1) != 0 ? -value : value;
}

enum class Into { whole, low, high };

template <Into into, bool is_fused>
void multiply_mixed(Wave &w, const Instruction &i) {
  const Source a(w, i, 0, Type::mix), b(w, i, 1, Type::mix), c(w, i, 2, Type::mix);
  uint32_t *to = w.vector(i.results[0]);
  for_lanes(w.exec() & a.valid, [&](int lane) {
    const float x = mixed(w, i, a, 0, lane), y = mixed(w, i, b, 1, lane), z = mixed(w, i, c, 2, lane);
    float value = is_fused ? std::fma(x, y, z) : x * y + z;
    value = i.clamp ? clamped(w, value) : value;
    if (into == Into::whole) {
      to[lane] = bit_copy<uint32_t>(flushed(value, w.flush_out32()));
    } else {
      const uint32_t bits = to_half(value, w.round64()).bits;
      to[lane] = into == Into::low ? (to[lane] & 0xffff0000) | bits : (to[lane] & 0xffff) | bits << 16;
    }
  });
}

// ---- dot products ----

template <class Element>
float element(uint32_t bits, int part) {
  return to_float(Element{static_cast<uint16_t>(bits >> (16 * part))});
}

template <class Element, bool is_accumulating>
void dot_floats(Wave &w, const Instruction &instruction) {
  Instruction i = instruction;
  if (is_accumulating) {
    i.sources[2] = i.results[0];
    i.select_high = 7;
  }
  // The clamp bit does nothing to a sum of halves: the device library (ockl) sets it always, and results are above 1.
  i.clamp = i.clamp && !std::is_same_v<Element, Half>;
  constexpr Type type = std::is_same_v<Element, Half> ? Type::pf16 : Type::pbf16;
  const Pair a(w, i, 0, type), b(w, i, 1, type);
  const Source c(w, i, 2, Type::f32);
  Result result(w, i, Type::f32);
  for_lanes(w.exec() & a.source.valid, [&](int lane) {
    float sum = read<float>(w, c, lane);
    for (int part = 0; part < 2; ++part) {
      sum = std::fma(element<Element>(a.half(lane, part).bits, 0), element<Element>(b.half(lane, part).bits, 0), sum);
    }
    write<float>(w, i, result, lane, sum);
  });
}

// Sums of products of fields of `width` bits, each signed or not; where `by_sign` the modifiers of sign say which.
template <int width, bool is_signed, bool by_sign, bool is_accumulating>
void dot_integers(Wave &w, const Instruction &instruction) {
  Instruction i = instruction;
  if (is_accumulating) {
    i.sources[2] = i.results[0];
  }
  const Source a(w, i, 0, Type::b32), b(w, i, 1, Type::b32), c(w, i, 2, Type::b32);
  const bool signed_a = by_sign ? (i.negate & 1) != 0 : is_signed, signed_b = by_sign ? (i.negate & 2) != 0 : is_signed;
  Result result(w, i, Type::b32);
  const auto field = [](uint32_t bits, int at, bool has_sign) -> int64_t {
    const uint32_t raw = bits >> at & ((1u << width) - 1);
    return has_sign ? static_cast<int32_t>(raw << (32 - width)) >> (32 - width) : static_cast<int64_t>(raw);
  };
  for_lanes(w.exec() & a.valid, [&](int lane) {
    const bool any_sign = signed_a || signed_b || is_signed;
    int64_t sum = any_sign ? static_cast<int32_t>(c.low(lane)) : static_cast<int64_t>(c.low(lane));
    for (int at = 0; at < 32; at += width) {
      sum += field(a.low(lane), at, signed_a) * field(b.low(lane), at, signed_b);
    }
    result.set32(lane, any_sign ? static_cast<uint32_t>(saturated<int32_t>(i, [&] { return sum; }))
                                : saturated<uint32_t>(i, [&] { return sum; }));
  });
}

}  // namespace

void add_packed(Handlers &handlers) {
  add_pairs16(handlers);
  handlers.add("v_pk_add_f32",
               [](Wave &w, const Instruction &i) { each_single(w, i, [](float a, float b, float) { return a + b; }); });
  handlers.add("v_pk_mul_f32",
               [](Wave &w, const Instruction &i) { each_single(w, i, [](float a, float b, float) { return a * b; }); });
  handlers.add("v_pk_fma_f32", [](Wave &w, const Instruction &i) {
    each_single(w, i, [](float a, float b, float c) { return std::fma(a, b, c); });
  });
  handlers.add("v_pk_mov_b32", move_pair);
  handlers.add("v_fma_mix_f32", multiply_mixed<Into::whole, true>);
  handlers.add("v_fma_mixlo_f16", multiply_mixed<Into::low, true>);
  handlers.add("v_fma_mixhi_f16", multiply_mixed<Into::high, true>);
  handlers.add("v_dot2_f32_f16", dot_floats<Half, false>);
  handlers.add("v_dot2_f32_bf16", dot_floats<Brain, false>);
  for (const char *name : {"v_dot2c_f32_f16", "v_dot2acc_f32_f16"}) {
    handlers.add(name, dot_floats<Half, true>);
  }
  for (const char *name : {"v_dot2c_f32_bf16", "v_dot2acc_f32_bf16"}) {
    handlers.add(name, dot_floats<Brain, true>);
  }
  handlers.add("v_dot2_i32_i16", dot_integers<16, true, false, false>);
  handlers.add("v_dot2_u32_u16", dot_integers<16, false, false, false>);
  handlers.add("v_dot4_i32_i8", dot_integers<8, true, false, false>);
  handlers.add("v_dot4_u32_u8", dot_integers<8, false, false, false>);
  handlers.add("v_dot8_i32_i4", dot_integers<4, true, false, false>);
  handlers.add("v_dot8_u32_u4", dot_integers<4, false, false, false>);
  handlers.add("v_dot4_i32_iu8", dot_integers<8, false, true, false>);
  handlers.add("v_dot8_i32_iu4", dot_integers<4, false, true, false>);
  handlers.add("v_dot4c_i32_i8", dot_integers<8, true, false, true>);
  handlers.add("v_dot2c_i32_i16", dot_integers<16, true, false, true>);
  handlers.add("v_dot8c_i32_i4", dot_integers<4, true, false, true>);
}

}  // namespace rocpy_host::amdgpu
