// SPDX-License-Identifier: MIT
// Machine code to instructions: the fields of each encoding, by AMD's instruction set documents.
#include "decode.hpp"
#include "decoder.hpp"

namespace rocpy_host::amdgpu {

namespace {

constexpr unsigned src_sdwa = 249, src_dpp = 250, src_dpp8 = 233, src_dpp8_inactive = 234;

}  // namespace

bool Decoder::family() {
  const uint32_t w = word(0);
  if (bits(w, 31, 31) == 0) {
    return vector_short(w);
  }
  if (bits(w, 31, 30) == 2) {
    return scalar(w);
  }
  switch (bits(w, 31, 26)) {
    case 0x30:
      return is_gfx9() ? scalar_memory(w) : false;
    case 0x3d:
      return is_gfx9() ? false : scalar_memory(w);
    case 0x32:
      return is_gfx9() ? false : dual(w);
    case 0x33:
      return is_gfx9() ? false : vector_packed(w);
    case 0x34:
      return is_gfx9() ? (bits(w, 31, 23) == 0x1a7 ? vector_packed(w) : vector_long(w)) : false;
    case 0x35:
      return is_gfx9() ? false : vector_long(w);
    case 0x36:
      return shared(w);
    case 0x37:
      return is_gfx12() ? false : flat(w);
    case 0x3b:
      return is_gfx12() ? flat12(w) : false;
    case 0x38:
      return is_gfx12() ? false : buffer(w);
    case 0x31:
      return is_gfx12() ? buffer12(w) : false;
    default:
      return false;
  }
}

// ---- scalar ----

// Registers and constants; the numbers between are reserved, or announce what only a first source may be.
bool Decoder::is_operand(uint32_t field) const {
  const bool is_register = field < 128 && !(is_gfx9() && field == 125);
  const bool is_constant =
      (field >= 128 && field <= 208) || (field >= 235 && field <= 238) || (field >= 240 && field <= 248);
  return is_register || is_constant || (field >= 251 && field <= 253) || field >= code_literal;
}

uint16_t Decoder::scalar_source(uint32_t field) {
  ok_ = ok_ && is_operand(field);
  if (field == code_literal) {
    out_.literal = word(1);
  }
  return static_cast<uint16_t>(field);
}

void Decoder::scalar_result(uint32_t field) { out_.results[0] = static_cast<uint16_t>(field); }

bool Decoder::scalar(uint32_t w) {
  if (bits(w, 31, 23) == 0x17d) {
    if (!find(Encoding::SOP1, bits(w, 15, 8))) {
      return false;
    }
    if (out_.opcode->result_count > 0) {
      scalar_result(bits(w, 22, 16));
    }
    if (out_.opcode->source_count > 0) {
      out_.sources[0] = scalar_source(bits(w, 7, 0));
    }
    return true;
  }
  if (bits(w, 31, 23) == 0x17e) {
    if (!find(Encoding::SOPC, bits(w, 22, 16))) {
      return false;
    }
    out_.sources[0] = scalar_source(bits(w, 7, 0));
    if (out_.opcode->sources[1] == Type::k) {
      out_.offset = static_cast<int32_t>(bits(w, 15, 8));
      return out_.offset < 16;
    }
    out_.sources[1] = scalar_source(bits(w, 15, 8));
    return true;
  }
  if (bits(w, 31, 23) == 0x17f) {
    out_.offset = sign_extended(bits(w, 15, 0), 16);
    return find(Encoding::SOPP, bits(w, 22, 16));
  }
  if (bits(w, 31, 28) == 0xb) {
    if (!find(Encoding::SOPK, bits(w, 27, 23))) {
      return false;
    }
    out_.offset = sign_extended(bits(w, 15, 0), 16);
    const Opcode &opcode = *out_.opcode;
    if (opcode.result_count > 0) {
      scalar_result(bits(w, 22, 16));
    } else if (opcode.sources[0] == Type::hwreg) {
      if (opcode.sources[1] == Type::K) {
        out_.literal = word(1);
        out_.sources[1] = code_literal;
      } else {
        out_.sources[1] = static_cast<uint16_t>(bits(w, 22, 16));
      }
    } else {
      out_.sources[0] = static_cast<uint16_t>(bits(w, 22, 16));
    }
    return true;
  }
  if (!find(Encoding::SOP2, bits(w, 29, 23))) {
    return false;
  }
  scalar_result(bits(w, 22, 16));
  out_.sources[0] = scalar_source(bits(w, 7, 0));
  out_.sources[1] = scalar_source(bits(w, 15, 8));
  constant_operand();
  return true;
}

// fmamk and fmaak have a constant behind the instruction, as their middle or last operand.
void Decoder::constant_operand() {
  const Opcode &opcode = *out_.opcode;
  for (int k = 0; k < opcode.source_count; ++k) {
    if (opcode.sources[k] == Type::K) {
      out_.literal = word(1);
      if (k == 1) {
        out_.sources[2] = out_.sources[1];
      }
      out_.sources[k] = code_literal;
    }
  }
}

bool Decoder::scalar_memory(uint32_t w) {
  if (!find(Encoding::SMEM, is_gfx12() ? bits(w, 18, 13) : bits(w, 25, 18))) {
    return false;
  }
  const uint32_t w1 = word(1);
  if (out_.opcode->result_count > 0) {
    scalar_result(bits(w, 12, 6));
  }
  if (out_.opcode->source_count > 0) {
    out_.scalar_base = static_cast<uint16_t>(bits(w, 5, 0) << 1);
    out_.offset = is_gfx12() ? sign_extended(bits(w1, 23, 0), 24) : sign_extended(bits(w1, 20, 0), 21);
    const uint16_t register_offset = static_cast<uint16_t>(bits(w1, 31, 25));
    if (is_gfx9()) {
      const bool has_immediate = bits(w, 17, 17) != 0, has_register = bits(w, 14, 14) != 0;
      if (has_register) {
        out_.scalar_offset = register_offset;
      } else if (!has_immediate) {
        out_.scalar_offset = static_cast<uint16_t>(bits(w1, 6, 0));
      }
      if (!has_immediate) {
        out_.offset = 0;
      }
    } else if (register_offset != 124) {
      out_.scalar_offset = register_offset;
    }
  }
  out_.cache = static_cast<uint8_t>(is_gfx12() ? bits(w, 22, 21) | bits(w, 24, 23) << 2 : bits(w, 16, 13));
  return true;
}

// ---- vector ----

// An eight-bit register field of a 16-bit operand has the half in its top bit, from GFX11 on.
uint16_t Decoder::short_register(uint32_t field, Type type, int position) {
  if (!is_gfx9() && is_half(type)) {
    out_.select = static_cast<uint8_t>(out_.select | (field >> 7) << position);
    field &= 127;
  }
  return static_cast<uint16_t>(code_vgpr + field);
}

uint16_t Decoder::vector_source(uint32_t field, size_t literal_at) {
  ok_ = ok_ && is_operand(field);
  if (field == code_literal) {
    out_.literal = word(literal_at);
  }
  return static_cast<uint16_t>(field);
}

// The first source of a short form, which may announce DPP or SDWA.
bool Decoder::first_source(uint32_t field, Type type, bool is_compare) {
  if (field == src_sdwa && is_gfx9()) {
    return sub_dword(word(1), is_compare);
  }
  if (field == src_dpp) {
    data_parallel(word(1));
  } else if ((field == src_dpp8 || field == src_dpp8_inactive) && !is_gfx9()) {
    data_parallel8(word(1), field == src_dpp8_inactive);
  } else if (field >= code_vgpr) {
    out_.sources[0] = short_register(field - code_vgpr, type, 0);
    return true;
  } else {
    out_.sources[0] = vector_source(field, 1);
    return true;
  }
  if (!is_gfx9() && is_half(type)) {
    out_.sources[0] = short_register(out_.sources[0] - code_vgpr, type, 0);
  }
  return true;
}

void Decoder::data_parallel(uint32_t w) {
  out_.lanes = Lanes::dpp;
  out_.sources[0] = static_cast<uint16_t>(code_vgpr + bits(w, 7, 0));
  out_.dpp_control = static_cast<uint16_t>(bits(w, 16, 8));
  out_.fetch_inactive = !is_gfx9() && bits(w, 18, 18) != 0;
  out_.bound_control = bits(w, 19, 19) != 0;
  out_.bank_mask = static_cast<uint8_t>(bits(w, 27, 24));
  out_.row_mask = static_cast<uint8_t>(bits(w, 31, 28));
  if (!out_.is_long) {
    out_.negate = static_cast<uint8_t>(bits(w, 20, 20) | bits(w, 22, 22) << 1);
    out_.absolute = static_cast<uint8_t>(bits(w, 21, 21) | bits(w, 23, 23) << 1);
  }
}

void Decoder::data_parallel8(uint32_t w, bool fetch_inactive) {
  out_.lanes = Lanes::dpp8;
  out_.fetch_inactive = fetch_inactive;
  out_.sources[0] = static_cast<uint16_t>(code_vgpr + bits(w, 7, 0));
  out_.dpp8_lanes = bits(w, 31, 8);
}

bool Decoder::sub_dword(uint32_t w, bool is_compare) {
  out_.lanes = Lanes::sdwa;
  out_.sources[0] = static_cast<uint16_t>(bits(w, 7, 0) + (bits(w, 23, 23) != 0 ? 0 : code_vgpr));
  out_.part[0] = static_cast<uint8_t>(bits(w, 18, 16));
  out_.part[1] = static_cast<uint8_t>(bits(w, 26, 24));
  out_.sign_extend = static_cast<uint8_t>(bits(w, 19, 19) | bits(w, 27, 27) << 1);
  out_.negate = static_cast<uint8_t>(bits(w, 20, 20) | bits(w, 28, 28) << 1);
  out_.absolute = static_cast<uint8_t>(bits(w, 21, 21) | bits(w, 29, 29) << 1);
  sdwa_scalar1_ = bits(w, 31, 31) != 0;
  if (is_compare) {
    out_.results[0] = bits(w, 15, 15) != 0 ? static_cast<uint16_t>(bits(w, 14, 8)) : static_cast<uint16_t>(code_vcc);
  } else {
    out_.part[2] = static_cast<uint8_t>(bits(w, 10, 8));
    out_.unused = static_cast<uint8_t>(bits(w, 12, 11));
    out_.clamp = bits(w, 13, 13) != 0;
    out_.output_scale = static_cast<uint8_t>(bits(w, 15, 14));
  }
  return out_.part[0] <= 6 && out_.part[1] <= 6 && out_.part[2] <= 6 && out_.unused <= 2;
}

uint16_t Decoder::second_source(uint32_t field, Type type) {
  if (out_.lanes == Lanes::sdwa) {
    return static_cast<uint16_t>(field + (sdwa_scalar1_ ? 0 : code_vgpr));
  }
  return short_register(field, type, 1);
}

bool Decoder::vector_short(uint32_t w) {
  if (bits(w, 31, 25) == 0x3f) {
    if (!find(Encoding::VOP1, bits(w, 16, 9))) {
      return false;
    }
    const Opcode &opcode = *out_.opcode;
    if (opcode.source_count > 0 && !first_source(bits(w, 8, 0), opcode.sources[0], false)) {
      return false;
    }
    if (opcode.result_count > 0) {
      const uint32_t field = bits(w, 24, 17);
      out_.results[0] =
          opcode.results[0] == Type::s32 ? static_cast<uint16_t>(field) : short_register(field, opcode.results[0], 3);
    }
    if (std::string(opcode.name) == "v_accvgpr_mov_b32") {
      out_.results[0] = static_cast<uint16_t>(out_.results[0] + 256);
      out_.sources[0] = static_cast<uint16_t>(out_.sources[0] + 256);
    }
    return true;
  }
  if (bits(w, 31, 25) == 0x3e) {
    if (!find(Encoding::VOPC, bits(w, 24, 17))) {
      return false;
    }
    const Opcode &opcode = *out_.opcode;
    out_.results[0] = is_compare_exec() ? static_cast<uint16_t>(code_exec) : static_cast<uint16_t>(code_vcc);
    if (!first_source(bits(w, 8, 0), opcode.sources[0], true)) {
      return false;
    }
    out_.sources[1] = second_source(bits(w, 16, 9), opcode.sources[1]);
    return true;
  }
  if (!find(Encoding::VOP2, bits(w, 30, 25))) {
    return false;
  }
  const Opcode &opcode = *out_.opcode;
  if (!first_source(bits(w, 8, 0), opcode.sources[0], false)) {
    return false;
  }
  out_.results[0] = short_register(bits(w, 24, 17), opcode.results[0], 3);
  const Type second_type = opcode.sources[1] == Type::K ? opcode.sources[2] : opcode.sources[1];
  out_.sources[1] = second_source(bits(w, 16, 9), second_type);
  for (int k = 0; k < opcode.source_count; ++k) {
    if (opcode.sources[k] == Type::K && out_.lanes != Lanes::plain) {
      return false;
    }
  }
  constant_operand();
  if (opcode.sources[1] == Type::K && (out_.select & 2) != 0) {
    out_.select = static_cast<uint8_t>((out_.select & ~2u) | 4u);
  }
  implicit_masks();
  return true;
}

void Decoder::implicit_masks() {
  const Opcode &opcode = *out_.opcode;
  if (opcode.results[1] == Type::mask) {
    out_.results[1] = code_vcc;
  }
  if (opcode.source_count == 3 && opcode.sources[2] == Type::mask) {
    out_.sources[2] = code_vcc;
  }
}

// From GFX10 on v_cmpx writes EXEC alone.
bool Decoder::is_compare_exec() const { return !is_gfx9() && out_.opcode->name[5] == 'x'; }

bool Decoder::vector_long(uint32_t w) {
  const unsigned number = bits(w, 25, 16), only_long = is_gfx9() ? 448 : 512, one_source = is_gfx9() ? 320 : 384;
  out_.is_long = true;
  const bool known = number < 256          ? find(Encoding::VOPC, number)
                     : number >= only_long ? find(Encoding::VOP3, number)
                     : number < 320        ? find(Encoding::VOP2, number - 256)
                     : number < one_source ? false
                                           : find(Encoding::VOP1, number - one_source);
  if (!known) {
    return false;
  }
  const Opcode &opcode = *out_.opcode;
  const uint32_t w1 = word(1);
  out_.clamp = bits(w, 15, 15) != 0;
  const uint32_t result = bits(w, 7, 0);
  if (number < 256) {
    out_.results[0] = is_compare_exec() ? static_cast<uint16_t>(code_exec) : static_cast<uint16_t>(result);
  } else if (opcode.result_count > 0) {
    const bool is_scalar = opcode.results[0] == Type::s32;
    out_.results[0] = static_cast<uint16_t>(is_scalar ? result : code_vgpr + result);
  }
  if (opcode.results[1] == Type::mask) {
    out_.results[1] = static_cast<uint16_t>(bits(w, 14, 8));
  } else {
    out_.absolute = static_cast<uint8_t>(bits(w, 10, 8));
    out_.select = static_cast<uint8_t>(bits(w, 14, 11));
  }
  out_.negate = static_cast<uint8_t>(bits(w1, 31, 29));
  out_.output_scale = static_cast<uint8_t>(bits(w1, 28, 27));
  if (is_constant_form()) {
    return false;
  }
  truth_table();
  return long_sources(w1);
}

// v_bitop3 has its truth table where others have modifiers.
void Decoder::truth_table() {
  if (std::string(out_.opcode->name).compare(0, 8, "v_bitop3") == 0) {
    out_.truth_table = static_cast<uint8_t>(out_.negate | out_.absolute << 3 | out_.output_scale << 6);
    out_.negate = out_.absolute = out_.output_scale = 0;
  }
}

bool Decoder::is_constant_form() const {
  for (int k = 0; k < out_.opcode->source_count; ++k) {
    if (out_.opcode->sources[k] == Type::K) {
      return true;
    }
  }
  return false;
}

bool Decoder::long_sources(uint32_t w1) {
  const int count = out_.opcode->source_count;
  const uint32_t fields[3] = {bits(w1, 8, 0), bits(w1, 17, 9), bits(w1, 26, 18)};
  for (int k = 0; k < count && k < 3; ++k) {
    if (k == 0 && !is_gfx9() && fields[0] == src_dpp) {
      data_parallel(word(2));
    } else if (k == 0 && !is_gfx9() && (fields[0] == src_dpp8 || fields[0] == src_dpp8_inactive)) {
      data_parallel8(word(2), fields[0] == src_dpp8_inactive);
    } else if (is_gfx9() && fields[k] == code_literal) {
      return false;
    } else {
      out_.sources[k] = vector_source(fields[k], 2);
    }
  }
  return true;
}

bool Decoder::vector_packed(uint32_t w) {
  if (!is_gfx9() && bits(w, 25, 24) != 0) {
    return false;
  }
  if (!find(Encoding::VOP3P, bits(w, 22, 16))) {
    return false;
  }
  out_.is_long = true;
  const uint32_t w1 = word(1);
  const bool is_matrix = is_gfx9() && is_matrix_name();
  out_.results[0] = static_cast<uint16_t>(code_vgpr + bits(w, 7, 0));
  if (is_matrix) {
    out_.matrix_bits[0] = static_cast<uint8_t>(bits(w, 10, 8));
    out_.matrix_bits[1] = static_cast<uint8_t>(bits(w, 14, 11));
    out_.matrix_bits[2] = static_cast<uint8_t>(bits(w1, 31, 29));
    if (bits(w, 15, 15) != 0) {
      out_.results[0] = static_cast<uint16_t>(code_agpr + bits(w, 7, 0));
    }
  } else {
    out_.clamp = bits(w, 15, 15) != 0;
    out_.negate_high = static_cast<uint8_t>(bits(w, 10, 8));
    out_.select = static_cast<uint8_t>(bits(w, 13, 11));
    out_.select_high = static_cast<uint8_t>(bits(w1, 28, 27) | bits(w, 14, 14) << 2);
    out_.negate = static_cast<uint8_t>(bits(w1, 31, 29));
  }
  if (!long_sources(w1)) {
    return false;
  }
  if (is_matrix) {
    accumulator_registers(w, w1);
  }
  return true;
}

bool Decoder::is_matrix_name() const {
  const std::string name = out_.opcode->name;
  return name.compare(0, 7, "v_mfma_") == 0 || name.compare(0, 8, "v_accvgp") == 0;
}

void Decoder::accumulator_registers(uint32_t w, uint32_t w1) {
  const bool is_move = std::string(out_.opcode->name).compare(0, 8, "v_accvgp") == 0;
  const bool writes = std::string(out_.opcode->name) == "v_accvgpr_write_b32";
  const uint32_t acc = writes ? 0 : bits(w1, 28, 27);
  for (int k = 0; k < 3; ++k) {
    const bool is_accumulator = k < 2 ? ((acc >> k) & 1) != 0 : bits(w, 15, 15) != 0;
    uint16_t &source = out_.sources[k];
    if (is_accumulator && source != code_none && source >= code_vgpr) {
      source = static_cast<uint16_t>(source + 256);
    }
  }
  if (is_move) {
    out_.results[0] = static_cast<uint16_t>((writes ? code_agpr : code_vgpr) + bits(w, 7, 0));
  }
}

// Two instructions in one, on the two halves of the register file.
bool Decoder::dual(uint32_t w) {
  const uint32_t w1 = word(1);
  const Opcode *x = find_opcode(arch_, Encoding::VOPDX, bits(w, 25, 22));
  const Opcode *y = find_opcode(arch_, Encoding::VOPDY, bits(w, 21, 17));
  if (x == nullptr || y == nullptr || second_ == nullptr) {
    return false;
  }
  *second_ = Instruction();
  Instruction &other = *second_;
  out_.opcode = x;
  other.opcode = y;
  out_.has_second = true;
  const uint32_t x_result = bits(w1, 31, 24);
  out_.results[0] = static_cast<uint16_t>(code_vgpr + x_result);
  other.results[0] = static_cast<uint16_t>(code_vgpr + (bits(w1, 23, 17) << 1 | (~x_result & 1)));
  dual_sources(&out_, bits(w, 8, 0), bits(w, 16, 9));
  dual_sources(&other, bits(w1, 8, 0), bits(w1, 16, 9));
  other.literal = out_.literal;
  return true;
}

void Decoder::dual_sources(Instruction *half, uint32_t first, uint32_t second) {
  half->sources[0] = vector_source(first, 2);
  const Opcode &opcode = *half->opcode;
  if (opcode.source_count > 1) {
    half->sources[1] = static_cast<uint16_t>(code_vgpr + second);
  }
  for (int k = 1; k < opcode.source_count; ++k) {
    if (opcode.sources[k] == Type::K) {
      out_.literal = word(2);
      if (k == 1) {
        half->sources[2] = half->sources[1];
      }
      half->sources[k] = code_literal;
    } else if (opcode.sources[k] == Type::mask) {
      half->sources[k] = code_vcc;
    }
  }
}

bool decode(Architecture architecture, const uint32_t *code, size_t words, Instruction *out, Instruction *second) {
  return Decoder(architecture, code, words, out, second).run();
}

}  // namespace rocpy_host::amdgpu
