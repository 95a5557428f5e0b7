// SPDX-License-Identifier: MIT
// How an element is held in memory, the type that it is computed in, and the way from one to the other.
#pragma once

#include <cstdint>

#include "scalar.hpp"

namespace rocpy_host {
namespace {

template <class T>
struct Plain {
  using Stored = T;
  using Computed = T;
  static T load(T value) { return value; }
  static T store(T value) { return value; }
};
struct Half {
  using Stored = uint16_t;
  using Computed = float;
  static float load(uint16_t value) { return f16_to_float(value); }
  static uint16_t store(float value) { return float_to_f16(value); }
};
struct Brain {
  using Stored = uint16_t;
  using Computed = float;
  static float load(uint16_t value) { return bf16_to_float(value); }
  static uint16_t store(float value) { return float_to_bf16(value); }
};
template <class Format>
struct Small {
  using Stored = uint8_t;
  using Computed = float;
  static float load(uint8_t value) { return small_to_float<Format>(value); }
  static uint8_t store(float value) { return float_to_small<Format>(value); }
};

}  // namespace
}  // namespace rocpy_host
