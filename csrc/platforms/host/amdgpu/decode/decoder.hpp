// SPDX-License-Identifier: MIT
// The decoder's state while it takes one instruction apart, for the sources of the decoder only.
#pragma once

#include "instruction.hpp"

#include <string>

namespace rocpy_host::amdgpu {

constexpr uint32_t bits(uint32_t word, int high, int low) { return (word >> low) & ((1u << (high - low + 1)) - 1); }

inline int32_t sign_extended(uint32_t value, int width) {
  return static_cast<int32_t>(value << (32 - width)) >> (32 - width);
}

class Decoder {
 public:
  Decoder(Architecture architecture, const uint32_t *code, size_t words, Instruction *out, Instruction *second)
      : arch_(architecture), code_(code), words_(words), out_(*out), second_(second) {}

  bool run() {
    out_ = Instruction();
    if (words_ == 0) {
      return false;
    }
    const bool known = family();
    if (!known || !ok_ || (is_gfx9() && !has_even_tuples())) {
      return false;
    }
    out_.bytes = static_cast<uint8_t>(4 * length_);
    return true;
  }

 private:
  uint32_t word(size_t index) {
    if (index >= words_) {
      ok_ = false;
      return 0;
    }
    length_ = length_ > index + 1 ? length_ : index + 1;
    return code_[index];
  }

  bool find(Encoding encoding, unsigned number) {
    out_.opcode = find_opcode(arch_, encoding, number);
    return out_.opcode != nullptr;
  }

  bool is_gfx9() const { return amdgpu::is_gfx9(arch_); }
  bool is_gfx12() const { return amdgpu::is_gfx12(arch_); }

  bool family();
  bool is_operand(uint32_t field) const;
  uint16_t scalar_source(uint32_t field);
  void scalar_result(uint32_t field);
  bool scalar(uint32_t w);
  void constant_operand();
  bool scalar_memory(uint32_t w);
  uint16_t short_register(uint32_t field, Type type, int position);
  uint16_t vector_source(uint32_t field, size_t literal_at);
  bool first_source(uint32_t field, Type type, bool is_compare);
  void data_parallel(uint32_t w);
  void data_parallel8(uint32_t w, bool fetch_inactive);
  bool sub_dword(uint32_t w, bool is_compare);
  uint16_t second_source(uint32_t field, Type type);
  bool vector_short(uint32_t w);
  void implicit_masks();
  bool is_compare_exec() const;
  bool vector_long(uint32_t w);
  void truth_table();
  bool is_constant_form() const;
  bool long_sources(uint32_t w1);
  bool vector_packed(uint32_t w);
  bool is_matrix_name() const;
  void accumulator_registers(uint32_t w, uint32_t w1);
  bool dual(uint32_t w);
  void dual_sources(Instruction *half, uint32_t first, uint32_t second);
  void registers(uint32_t result, uint32_t address, uint32_t data0, uint32_t data1, bool is_accumulator);
  bool shared(uint32_t w);
  bool flat(uint32_t w);
  bool flat12(uint32_t w);
  bool buffer(uint32_t w);
  bool buffer12(uint32_t w);
  bool goes_to_shared() const;
  bool has_even_tuples() const;

  Architecture arch_;
  const uint32_t *code_;
  size_t words_, length_ = 0;
  Instruction &out_;
  Instruction *second_;
  bool ok_ = true, sdwa_scalar1_ = false;
};

}  // namespace rocpy_host::amdgpu
