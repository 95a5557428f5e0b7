// SPDX-License-Identifier: MIT
// Operands of vector instructions, lane by lane: constants and registers, modifiers, DPP and SDWA, denormals and
// clamping.
#pragma once

#include "half.hpp"
#include "wave.hpp"

#include <cfenv>
#include <cmath>
#include <limits>
#include <tuple>
#include <utility>

namespace rocpy_host::amdgpu {

// Raw bits that still take the sign modifiers of floats, as v_cndmask's and v_mov's do.
struct Bits32 {
  uint32_t bits = 0;
};
struct Bits16 {
  uint16_t bits = 0;
};

template <class T>
struct Format;
template <>
struct Format<float> {
  static constexpr Type type = Type::f32;
};
template <>
struct Format<double> {
  static constexpr Type type = Type::f64;
};
template <>
struct Format<Half> {
  static constexpr Type type = Type::f16;
};
template <>
struct Format<Bits32> {
  static constexpr Type type = Type::b32;
};
template <>
struct Format<Bits16> {
  static constexpr Type type = Type::b16;
};
template <>
struct Format<uint16_t> {
  static constexpr Type type = Type::u16;
};
template <>
struct Format<int16_t> {
  static constexpr Type type = Type::i16;
};
template <>
struct Format<uint32_t> {
  static constexpr Type type = Type::u32;
};
template <>
struct Format<int32_t> {
  static constexpr Type type = Type::i32;
};
template <>
struct Format<uint64_t> {
  static constexpr Type type = Type::u64;
};
template <>
struct Format<int64_t> {
  static constexpr Type type = Type::i64;
};

// The bits of a source in each lane, fetched once for the instruction. `words` 1 or 2.
class Source {
 public:
  Source(Wave &wave, const Instruction &instruction, int index, Type type);
  Source(const Source &) = delete;
  Source &operator=(const Source &) = delete;

  uint32_t low(int lane) const { return low_[lane * stride_]; }
  uint64_t wide(int lane) const { return low_[lane * stride_] | static_cast<uint64_t>(high_[lane * stride_]) << 32; }
  uint16_t half(int lane) const { return static_cast<uint16_t>(low_[lane * stride_] >> shift_); }
  bool negate, absolute;
  uint64_t valid = ~0ull;  // lanes that DPP lets take part

 private:
  void apply_dpp(Wave &wave, const Instruction &instruction, bool is_wide);
  void apply_sdwa(Wave &wave, const Instruction &instruction, int index, Type type);
  const uint32_t *low_, *high_;
  unsigned stride_, shift_ = 0;
  uint32_t constant_[2] = {0, 0};
  uint32_t moved_[2][most_lanes];
};

// Lane that a DPP control takes its value from; -1: none.
int dpp_source_lane(const Instruction &instruction, Architecture architecture, int lane);

inline float flushed(float value, bool flush) {
  return flush && std::fpclassify(value) == FP_SUBNORMAL ? std::copysign(0.0f, value) : value;
}
inline double flushed(double value, bool flush) {
  return flush && std::fpclassify(value) == FP_SUBNORMAL ? std::copysign(0.0, value) : value;
}
inline bool is_denormal(Half h) { return (h.bits & 0x7c00) == 0 && (h.bits & 0x3ff) != 0; }

template <class T>
T read(const Wave &wave, const Source &source, int lane) {
  if constexpr (std::is_same_v<T, float> || std::is_same_v<T, Bits32>) {
    uint32_t bits = source.low(lane);
    bits = source.absolute ? bits & 0x7fffffff : bits;
    bits = source.negate ? bits ^ 0x80000000 : bits;
    if constexpr (std::is_same_v<T, float>) {
      return flushed(bit_copy<float>(bits), wave.flush_in32());
    } else {
      return {bits};
    }
  } else if constexpr (std::is_same_v<T, double>) {
    uint64_t bits = source.wide(lane);
    bits = source.absolute ? bits & 0x7fffffffffffffff : bits;
    bits = source.negate ? bits ^ 0x8000000000000000 : bits;
    return flushed(bit_copy<double>(bits), wave.flush_in64());
  } else if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, Bits16>) {
    uint16_t bits = source.half(lane);
    bits = source.absolute ? bits & 0x7fff : bits;
    bits = source.negate ? bits ^ 0x8000 : bits;
    if constexpr (std::is_same_v<T, Half>) {
      const Half unflushed{bits};
      return wave.flush_in64() && is_denormal(unflushed) ? Half{static_cast<uint16_t>(bits & 0x8000)} : unflushed;
    } else {
      return {bits};
    }
  } else if constexpr (sizeof(T) == 2) {
    return static_cast<T>(source.half(lane));
  } else if constexpr (sizeof(T) == 4) {
    return static_cast<T>(source.low(lane));
  } else {
    return static_cast<T>(source.wide(lane));
  }
}

// Negative zero becomes zero.
template <class T>
T clamped(const Wave &wave, T value) {
  if (std::isnan(value)) {
    return wave.clamps_nan() ? T(0) : value;
  }
  return std::signbit(value) ? T(0) : value > T(1) ? T(1) : value;
}

// The output modifier, of a result that has been rounded: zeros and denormals become positive zero, and what would
// become one, zero of its sign. Before GFX12 it counts only where the wave flushes denormals and is not in IEEE mode.
template <class T>
T output_scaled(const Wave &wave, const Instruction &i, T value) {
  const bool flushes = std::is_same_v<T, float> ? wave.flush_out32() : wave.flush_out64();
  if (i.output_scale == 0 || !wave.scales_output(flushes)) {
    return value;
  }
  if (value == T(0) || std::fpclassify(value) == FP_SUBNORMAL) {
    return T(0);
  }
  constexpr T factors[4] = {T(1), T(2), T(4), T(0.5)};
  return flushed(value * factors[i.output_scale], true);
}

inline Half output_scaled(const Wave &wave, const Instruction &i, Half value) {
  if (i.output_scale == 0 || !wave.scales_output(wave.flush_out64())) {
    return value;
  }
  if ((value.bits & 0x7c00) == 0) {
    return Half{};
  }
  constexpr float factors[4] = {1, 2, 4, 0.5f};
  const Half scaled = to_half(to_float(value) * factors[i.output_scale], wave.round64());
  return is_denormal(scaled) ? Half{static_cast<uint16_t>(scaled.bits & 0x8000)} : scaled;
}

template <class T>
T scaled_and_clamped(const Wave &wave, const Instruction &i, T value) {
  value = output_scaled(wave, i, value);
  return i.clamp ? clamped(wave, value) : value;
}

// Where an instruction's result goes.
class Result {
 public:
  Result(Wave &wave, const Instruction &instruction, Type type);

  void set32(int lane, uint32_t bits) {
    if (instruction_.lanes == Lanes::sdwa) {
      set_part(lane, bits);
    } else {
      low_[lane] = bits;
    }
  }
  void set64(int lane, uint64_t bits) {
    low_[lane] = static_cast<uint32_t>(bits);
    high_[lane] = static_cast<uint32_t>(bits >> 32);
  }
  void set16(int lane, uint16_t bits);

 private:
  void set_part(int lane, uint32_t bits);
  const Instruction &instruction_;
  uint32_t *low_, *high_ = nullptr;
  bool keeps_other_half_, upper_;
};

template <class T>
void write(const Wave &wave, const Instruction &i, Result &result, int lane, T value) {
  if constexpr (std::is_same_v<T, float>) {
    result.set32(lane, bit_copy<uint32_t>(flushed(scaled_and_clamped(wave, i, value), wave.flush_out32())));
  } else if constexpr (std::is_same_v<T, double>) {
    result.set64(lane, bit_copy<uint64_t>(flushed(scaled_and_clamped(wave, i, value), wave.flush_out64())));
  } else if constexpr (std::is_same_v<T, Half>) {
    value = output_scaled(wave, i, value);
    if (i.clamp) {
      value = to_half(clamped(wave, to_float(value)));
    }
    if (wave.flush_out64() && is_denormal(value)) {
      value.bits &= 0x8000;
    }
    result.set16(lane, value.bits);
  } else if constexpr (std::is_same_v<T, Bits32>) {
    result.set32(lane, value.bits);
  } else if constexpr (std::is_same_v<T, Bits16>) {
    result.set16(lane, value.bits);
  } else if constexpr (sizeof(T) == 2) {
    result.set16(lane, static_cast<uint16_t>(value));
  } else if constexpr (sizeof(T) == 4) {
    result.set32(lane, static_cast<uint32_t>(value));
  } else {
    result.set64(lane, static_cast<uint64_t>(value));
  }
}

// The processor's rounding follows the wave's while an instruction of floats runs; to nearest, it costs a comparison.
class RoundingScope {
 public:
  explicit RoundingScope(unsigned rounding) : changed_(rounding != to_nearest) {
    if (changed_) {
      constexpr int modes[4] = {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
      std::fesetround(modes[rounding]);
    }
  }
  ~RoundingScope() {
    if (changed_) {
      std::fesetround(FE_TONEAREST);
    }
  }
  RoundingScope(const RoundingScope &) = delete;
  RoundingScope &operator=(const RoundingScope &) = delete;

 private:
  bool changed_;
};

template <class D>
unsigned rounding_of(const Wave &wave) {
  if constexpr (std::is_same_v<D, float>) {
    return wave.round32();
  } else if constexpr (std::is_same_v<D, double>) {
    return wave.round64();
  } else {
    return to_nearest;  // halves are rounded in software
  }
}

template <class F>
void for_lanes(uint64_t active, F body) {
  while (active != 0) {
    const int lane = __builtin_ctzll(active);
    active &= active - 1;
    body(lane);
  }
}

// Result = function(sources) in each active lane.
template <class D, class A, class F>
void each1(Wave &wave, const Instruction &i, F function) {
  const Source a(wave, i, 0, Format<A>::type);
  Result result(wave, i, Format<D>::type);
  const RoundingScope scope(rounding_of<D>(wave));
  for_lanes(wave.exec() & a.valid,
            [&](int lane) { write<D>(wave, i, result, lane, function(read<A>(wave, a, lane))); });
}

template <class D, class A, class B, class F>
void each2(Wave &wave, const Instruction &i, F function) {
  const Source a(wave, i, 0, Format<A>::type), b(wave, i, 1, Format<B>::type);
  Result result(wave, i, Format<D>::type);
  const RoundingScope scope(rounding_of<D>(wave));
  for_lanes(wave.exec() & a.valid, [&](int lane) {
    write<D>(wave, i, result, lane, function(read<A>(wave, a, lane), read<B>(wave, b, lane)));
  });
}

template <class D, class A, class B, class C, class F>
void each3(Wave &wave, const Instruction &i, F function) {
  const Source a(wave, i, 0, Format<A>::type), b(wave, i, 1, Format<B>::type), c(wave, i, 2, Format<C>::type);
  Result result(wave, i, Format<D>::type);
  const RoundingScope scope(rounding_of<D>(wave));
  for_lanes(wave.exec() & a.valid, [&](int lane) {
    write<D>(wave, i, result, lane, function(read<A>(wave, a, lane), read<B>(wave, b, lane), read<C>(wave, c, lane)));
  });
}

// The result register is the third source: d = function(a, b, d).
template <class D, class A, class B, class F>
void accumulate(Wave &wave, const Instruction &i, F function) {
  Instruction with = i;
  with.sources[2] = i.results[0];
  if (is_half(Format<D>::type) && (i.select & 8) != 0) {
    with.select |= 4;
  }
  with.negate &= 3;
  with.absolute &= 3;
  each3<D, A, B, D>(wave, with, function);
}

// An integer result that the clamp modifier saturates: the function gives it exactly, in 64 bits.
template <class D, class F>
D saturated(const Instruction &i, F exact) {
  const __int128 value = exact();
  if (i.clamp) {
    constexpr __int128 low = std::numeric_limits<D>::min(), high = std::numeric_limits<D>::max();
    return static_cast<D>(value < low ? low : value > high ? high : value);
  }
  return static_cast<D>(value);
}

// Short forms for the tables: the sources are a, b and c, the instruction is i and the wave w.
#define ROCPY_LANES1(name, D, A, expression) \
  handlers.add(name, [](Wave &w, const Instruction &i) { each1<D, A>(w, i, [&](A a) -> D { return expression; }); })
#define ROCPY_LANES2(name, D, A, B, expression) \
  handlers.add(name,                            \
               [](Wave &w, const Instruction &i) { each2<D, A, B>(w, i, [&](A a, B b) -> D { return expression; }); })
#define ROCPY_LANES3(name, D, A, B, C, expression)                           \
  handlers.add(name, [](Wave &w, const Instruction &i) {                     \
    each3<D, A, B, C>(w, i, [&](A a, B b, C c) -> D { return expression; }); \
  })

}  // namespace rocpy_host::amdgpu
