// SPDX-License-Identifier: MIT
// Vector comparisons, classes of floats, and the choice by a mask.
#include "handlers.hpp"
#include "operands.hpp"

namespace rocpy_host::amdgpu {

namespace {

// The mask goes to the result; v_cmpx sets EXEC too, from GFX10 on EXEC alone.
template <bool sets_exec>
void store_mask(Wave &w, const Instruction &i, uint64_t mask) {
  if (!sets_exec || w.gfx9()) {
    w.set_lane_mask(i.results[0], mask);
  }
  if (sets_exec) {
    w.set_lane_mask(code_exec, mask);
  }
}

template <bool sets_exec, class T, class F>
void compare(Wave &w, const Instruction &i, F function) {
  const Source a(w, i, 0, Format<T>::type), b(w, i, 1, Format<T>::type);
  uint64_t mask = 0;
  for_lanes(w.exec() & a.valid, [&](int lane) {
    bool is_true = false;
    if constexpr (std::is_same_v<T, Half>) {
      is_true = function(to_float(read<T>(w, a, lane)), to_float(read<T>(w, b, lane)));
    } else {
      is_true = function(read<T>(w, a, lane), read<T>(w, b, lane));
    }
    mask |= static_cast<uint64_t>(is_true) << lane;
  });
  store_mask<sets_exec>(w, i, mask);
}

// Bits of v_cmp_class: NaNs, infinities, normals, denormals and zeros of each sign, by the value's raw format.
template <class U>
unsigned class_of(U bits, int exponent_bits, int mantissa_bits) {
  const U mantissa = bits & ((U(1) << mantissa_bits) - 1);
  const U exponent = bits >> mantissa_bits & ((U(1) << exponent_bits) - 1);
  const bool negative = (bits >> (exponent_bits + mantissa_bits) & 1) != 0;
  if (exponent == (U(1) << exponent_bits) - 1) {
    if (mantissa != 0) {
      return (mantissa >> (mantissa_bits - 1) & 1) != 0 ? 2 : 1;
    }
    return negative ? 4 : 0x200;
  }
  if (exponent == 0) {
    return mantissa != 0 ? (negative ? 0x10 : 0x80) : (negative ? 0x20 : 0x40);
  }
  return negative ? 8 : 0x100;
}

template <bool sets_exec, class T>
void classify(Wave &w, const Instruction &i) {
  constexpr Type wanted = std::is_same_v<T, Half> ? Type::b16 : Type::b32;
  const Source a(w, i, 0, Format<T>::type), b(w, i, 1, wanted);
  uint64_t mask = 0;
  for_lanes(w.exec() & a.valid, [&](int lane) {
    unsigned category = 0;
    if constexpr (std::is_same_v<T, float>) {
      category = class_of<uint32_t>(read<Bits32>(w, a, lane).bits, 8, 23);
    } else if constexpr (std::is_same_v<T, double>) {
      uint64_t bits = a.wide(lane);
      bits = a.absolute ? bits & 0x7fffffffffffffff : bits;
      category = class_of<uint64_t>(a.negate ? bits ^ 0x8000000000000000 : bits, 11, 52);
    } else {
      category = class_of<uint32_t>(read<Bits16>(w, a, lane).bits, 5, 10);
    }
    mask |= static_cast<uint64_t>((category & b.low(lane)) != 0) << lane;
  });
  store_mask<sets_exec>(w, i, mask);
}

template <bool sets_exec, class T>
void add_integers(Handlers &handlers, const std::string &prefix, const char *type) {
  const auto add = [&](const char *relation, Handler handler) {
    handlers.add(prefix + relation + "_" + type, handler);
  };
  add("f", [](Wave &w, const Instruction &i) { compare<sets_exec, T>(w, i, [](T, T) { return false; }); });
  add("lt", [](Wave &w, const Instruction &i) { compare<sets_exec, T>(w, i, [](T a, T b) { return a < b; }); });
  add("eq", [](Wave &w, const Instruction &i) { compare<sets_exec, T>(w, i, [](T a, T b) { return a == b; }); });
  add("le", [](Wave &w, const Instruction &i) { compare<sets_exec, T>(w, i, [](T a, T b) { return a <= b; }); });
  add("gt", [](Wave &w, const Instruction &i) { compare<sets_exec, T>(w, i, [](T a, T b) { return a > b; }); });
  add("ne", [](Wave &w, const Instruction &i) { compare<sets_exec, T>(w, i, [](T a, T b) { return a != b; }); });
  add("ge", [](Wave &w, const Instruction &i) { compare<sets_exec, T>(w, i, [](T a, T b) { return a >= b; }); });
  add("t", [](Wave &w, const Instruction &i) { compare<sets_exec, T>(w, i, [](T, T) { return true; }); });
}

// Sixteen relations: by their number, bit 0 is "less", bit 1 "equal", bit 2 "greater", bit 3 "unordered".
template <bool sets_exec, class T, unsigned relation>
void compare_floats(Wave &w, const Instruction &i) {
  compare<sets_exec, T>(w, i, [](auto a, auto b) {
    const unsigned order = a < b ? 1 : a == b ? 2 : a > b ? 4 : 8;
    return (relation & order) != 0;
  });
}

template <bool sets_exec, class T>
void add_floats(Handlers &handlers, const std::string &prefix, const char *type) {
  const auto add = [&](const char *relation, Handler handler) {
    handlers.add(prefix + relation + "_" + type, handler);
  };
  add("f", compare_floats<sets_exec, T, 0>);
  add("lt", compare_floats<sets_exec, T, 1>);
  add("eq", compare_floats<sets_exec, T, 2>);
  add("le", compare_floats<sets_exec, T, 3>);
  add("gt", compare_floats<sets_exec, T, 4>);
  add("lg", compare_floats<sets_exec, T, 5>);
  add("ge", compare_floats<sets_exec, T, 6>);
  add("o", compare_floats<sets_exec, T, 7>);
  add("u", compare_floats<sets_exec, T, 8>);
  add("nge", compare_floats<sets_exec, T, 9>);
  add("nlg", compare_floats<sets_exec, T, 10>);
  add("ngt", compare_floats<sets_exec, T, 11>);
  add("nle", compare_floats<sets_exec, T, 12>);
  add("neq", compare_floats<sets_exec, T, 13>);
  add("nlt", compare_floats<sets_exec, T, 14>);
  add("tru", compare_floats<sets_exec, T, 15>);
  add("t", compare_floats<sets_exec, T, 15>);
  add("class", classify<sets_exec, T>);
}

template <bool sets_exec>
void add_all(Handlers &handlers, const std::string &prefix) {
  add_integers<sets_exec, int16_t>(handlers, prefix, "i16");
  add_integers<sets_exec, uint16_t>(handlers, prefix, "u16");
  add_integers<sets_exec, int32_t>(handlers, prefix, "i32");
  add_integers<sets_exec, uint32_t>(handlers, prefix, "u32");
  add_integers<sets_exec, int64_t>(handlers, prefix, "i64");
  add_integers<sets_exec, uint64_t>(handlers, prefix, "u64");
  add_floats<sets_exec, Half>(handlers, prefix, "f16");
  add_floats<sets_exec, float>(handlers, prefix, "f32");
  add_floats<sets_exec, double>(handlers, prefix, "f64");
}

template <class T>
void choose(Wave &w, const Instruction &i) {
  const Source a(w, i, 0, Format<T>::type), b(w, i, 1, Format<T>::type);
  Result result(w, i, Format<T>::type);
  const uint64_t mask = w.lane_mask(i.sources[2]);
  for_lanes(w.exec() & a.valid, [&](int lane) {
    write<T>(w, i, result, lane, (mask >> lane & 1) != 0 ? read<T>(w, b, lane) : read<T>(w, a, lane));
  });
}

}  // namespace

void add_compare(Handlers &handlers) {
  add_all<false>(handlers, "v_cmp_");
  add_all<true>(handlers, "v_cmpx_");
  handlers.add("v_cndmask_b32", choose<Bits32>);
  handlers.add("v_cndmask_b16", choose<Bits16>);
}

}  // namespace rocpy_host::amdgpu
