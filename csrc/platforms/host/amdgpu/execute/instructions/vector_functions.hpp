// SPDX-License-Identifier: MIT
// Reciprocals, roots, exponentials and logarithms: computed in float64 and rounded once, in lanes and of scalars.
#pragma once

#include "handlers.hpp"
#include "operands.hpp"

namespace rocpy_host::amdgpu {

inline double reciprocal(double v) { return 1 / v; }
inline double root(double v) { return std::sqrt(v); }
inline double reciprocal_root(double v) { return 1 / std::sqrt(v); }
inline double power_of_two(double v) { return std::exp2(v); }
inline double logarithm(double v) { return std::log2(v); }

template <double (*function)(double)>
Half rounded(Half v) {
  return to_half(function(to_float(v)));
}
// Denormals of float32 count as zero in these, whatever the mode.
template <double (*function)(double)>
float rounded(float v) {
  return flushed(static_cast<float>(function(flushed(v, true))), true);
}

template <class T, double (*function)(double)>
void function_of_lanes(Wave &w, const Instruction &i) {
  each1<T, T>(w, i, [](T a) { return rounded<function>(a); });
}

template <class T, double (*function)(double)>
void function_of_scalar(Wave &w, const Instruction &i) {
  const Source a(w, i, 0, Format<T>::type);
  const T value = rounded<function>(read<T>(w, a, 0));
  if constexpr (std::is_same_v<T, Half>) {
    w.write32(i.results[0], to_half(scaled_and_clamped(w, i, to_float(value))).bits);
  } else {
    w.write32(i.results[0], bit_copy<uint32_t>(scaled_and_clamped(w, i, value)));
  }
}

template <class T, double (*function)(double)>
void add_function(Handlers &handlers, std::initializer_list<const char *> of_lanes, const char *of_scalar) {
  for (const char *name : of_lanes) {
    handlers.add(name, function_of_lanes<T, function>);
  }
  handlers.add(of_scalar, function_of_scalar<T, function>);
}

}  // namespace rocpy_host::amdgpu
