// SPDX-License-Identifier: MIT
// What a plan is found by: everything that decides it, as plain words. Which settings share a word is known here alone.
#pragma once

#include <cstdint>
#include <cstring>

#include "operand.hpp"

namespace rocpy {

// What a plan is of: equal settings and operands are other plans for each of these.
enum class PlanKind : int32_t { product, program, groups_of_m, groups_of_n, groups_of_k };

// A value's place in a word: `bits` bits from `first` on.
template <int first, int bits>
constexpr uint64_t field(int32_t value) {
  return (static_cast<uint64_t>(static_cast<uint32_t>(value)) & ((uint64_t{1} << bits) - 1)) << first;
}

// The settings of a product that are neither numbers nor operands.
struct PlanSettings {
  PlanKind kind = PlanKind::product;
  int32_t epilogue = 0;  // the index of its row
  int32_t dtype = -1;    // hipDataType of the result; -1: by default
  int32_t compute = 0;   // as rocpy.blaslt.model.settings numbers the types; 0: by default
  bool packed = false;   // b is a packed weight
  bool scaled = false;   // an operand or the result has a scale
  bool listed = false;   // more algorithms than one were asked for

  int64_t word() const {
    return static_cast<int64_t>(field<0, 8>(static_cast<int32_t>(kind)) | field<8, 16>(epilogue) |
                                field<24, 16>(dtype) | field<40, 8>(compute) | field<48, 1>(packed) |
                                field<49, 1>(scaled) | field<50, 1>(listed));
  }
};

// Which scales a product has.
struct ScaleSettings {
  int32_t a = 0, b = 0;  // kinds; 0: none
  bool c = false, d = false, amax = false;

  int64_t word() const {
    return static_cast<int64_t>(field<0, 8>(a) | field<8, 8>(b) | field<16, 1>(c) | field<17, 1>(d) |
                                field<18, 1>(amax));
  }
};

// What a product does about tuning. A cached plan whose choice may be out of date has another generation.
struct TuningSettings {
  int32_t generation = 0;  // counts what makes cached plans out of date
  int32_t mode = 0;        // as rocpy.blaslt.selection.tuning_state numbers them
  bool trial = false;      // planned apart from other threads

  int64_t word() const {
    return static_cast<int64_t>(field<0, 8>(mode) | field<8, 1>(trial) | field<16, 32>(generation));
  }
};

// Built anew for each call on the stack.
struct PlanKey {
  static constexpr int capacity = 480;  // five operands of 32 axes with shape and stride each, and a margin
  int size = 0;
  int64_t words[capacity];

  void begin(const PlanSettings &settings) {
    size = 0;
    add(settings.word());
  }
  void add(int64_t word) {
    if (size < capacity) words[size] = word;
    ++size;
  }
  void add_number(double number) {
    int64_t word;
    std::memcpy(&word, &number, sizeof word);
    add(word);
  }
  void add_scales(const ScaleSettings &scales) { add(scales.word()); }
  // What decides a plan of an operand: type, shape and strides, and by its position which operand it is.
  void add_operand(int32_t position, const Operand &operand) {
    add(static_cast<int64_t>(field<0, 8>(operand.ndim) | field<8, 1>(operand.conjugated) | field<16, 16>(operand.type) |
                             field<32, 16>(position)));
    for (int32_t axis = 0; axis < operand.ndim; ++axis) {
      add(operand.shape[axis]);
      add(operand.strides[axis]);
    }
  }
  bool fits() const { return size <= capacity; }
  uint64_t hash() const;
};

}  // namespace rocpy
