// SPDX-License-Identifier: MIT
// Machine code to instructions: shared memory, FLAT, GLOBAL, SCRATCH and buffers.
#include "decoder.hpp"

namespace rocpy_host::amdgpu {

void Decoder::registers(uint32_t result, uint32_t address, uint32_t data0, uint32_t data1, bool is_accumulator) {
  const Opcode &opcode = *out_.opcode;
  const auto data = static_cast<uint16_t>(is_accumulator ? code_agpr : code_vgpr);
  if (opcode.result_count > 0 && opcode.results[0] != Type::lds) {
    out_.results[0] = static_cast<uint16_t>(data + result);
  }
  out_.sources[0] = static_cast<uint16_t>(code_vgpr + address);
  out_.sources[1] = static_cast<uint16_t>(data + data0);
  out_.sources[2] = static_cast<uint16_t>(data + data1);
}

bool Decoder::shared(uint32_t w) {
  if (!find(Encoding::DS, is_gfx9() ? bits(w, 24, 17) : bits(w, 25, 18))) {
    return false;
  }
  const unsigned global_bit = is_gfx9() ? 16 : 17;  // what all groups share: of that only barriers are known
  if (bits(w, global_bit, global_bit) != (is_grid_barrier(*out_.opcode) ? 1 : 0)) {
    return false;
  }
  const uint32_t w1 = word(1);
  out_.offset = static_cast<int32_t>(bits(w, 7, 0));
  out_.offset1 = static_cast<int32_t>(bits(w, 15, 8));
  registers(bits(w1, 31, 24), bits(w1, 7, 0), bits(w1, 15, 8), bits(w1, 23, 16), is_gfx9() && bits(w, 25, 25) != 0);
  return true;
}

// Loads that may leave their data in shared memory: of at most a word, and on gfx950 of three or four.
bool Decoder::goes_to_shared() const {
  const std::string name = out_.opcode->name;
  for (const char *kind : {"_load_ubyte", "_load_sbyte", "_load_ushort", "_load_sshort", "_load_dword"}) {
    const size_t at = name.find(kind);
    if (at != std::string::npos && at + std::string(kind).size() == name.size()) {
      return true;
    }
  }
  return arch_ == Architecture::gfx950 && (name == "buffer_load_dwordx3" || name == "buffer_load_dwordx4");
}

bool Decoder::flat(uint32_t w) {
  constexpr Encoding segments[3] = {Encoding::FLAT, Encoding::SCRATCH, Encoding::GLOBAL};
  const uint32_t segment = is_gfx9() ? bits(w, 15, 14) : bits(w, 17, 16);
  if (segment > 2 || !find(segments[segment], bits(w, 24, 18))) {
    return false;
  }
  const uint32_t w1 = word(1);
  const bool is_accumulator = is_gfx9() && bits(w1, 23, 23) != 0;
  registers(bits(w1, 31, 24), bits(w1, 7, 0), bits(w1, 15, 8), 0, is_accumulator);
  out_.offset = segment == 0 ? static_cast<int32_t>(bits(w, 11, 0)) : sign_extended(bits(w, 12, 0), 13);
  const uint32_t base = bits(w1, 22, 16), off = is_gfx9() ? 127 : 124;
  if (segment != 0 && base != off) {
    out_.scalar_base = static_cast<uint16_t>(base);
  }
  if (is_gfx9()) {
    out_.is_scratch_vector = arch_ == Architecture::gfx90a ? out_.scalar_base == code_none : bits(w, 13, 13) != 0;
    out_.to_shared = out_.opcode->results[0] == Type::lds;
    if (arch_ == Architecture::gfx90a && bits(w, 13, 13) != 0) {
      out_.to_shared = segment != 0 && goes_to_shared();
      if (!out_.to_shared) {
        return false;
      }
    }
    out_.returns = bits(w, 16, 16) != 0;
    out_.cache = static_cast<uint8_t>(bits(w, 17, 16) | bits(w, 25, 25) << 2);
  } else {
    out_.is_scratch_vector = bits(w1, 23, 23) != 0;
    out_.returns = bits(w, 14, 14) != 0;
    out_.cache = static_cast<uint8_t>(bits(w, 15, 13));
  }
  return true;
}

bool Decoder::flat12(uint32_t w) {
  constexpr Encoding segments[3] = {Encoding::FLAT, Encoding::SCRATCH, Encoding::GLOBAL};
  const uint32_t segment = bits(w, 25, 24);
  if (segment > 2 || !find(segments[segment], bits(w, 21, 14))) {
    return false;
  }
  const uint32_t w1 = word(1), w2 = word(2);
  registers(bits(w1, 7, 0), bits(w2, 7, 0), bits(w1, 30, 23), 0, false);
  out_.offset = sign_extended(bits(w2, 31, 8), 24);
  if (bits(w, 6, 0) != 124) {
    out_.scalar_base = static_cast<uint16_t>(bits(w, 6, 0));
  }
  out_.is_scratch_vector = bits(w1, 17, 17) != 0;
  out_.cache = static_cast<uint8_t>(bits(w1, 22, 18));
  out_.returns = bits(w1, 20, 20) != 0;  // the lowest bit of an atomic's temporal hint
  return true;
}

bool Decoder::buffer(uint32_t w) {
  if (!find(Encoding::MUBUF, is_gfx9() ? bits(w, 24, 18) : bits(w, 25, 18))) {
    return false;
  }
  const uint32_t w1 = word(1);
  registers(bits(w1, 15, 8), bits(w1, 7, 0), bits(w1, 15, 8), 0, is_gfx9() && bits(w1, 23, 23) != 0);
  out_.offset = static_cast<int32_t>(bits(w, 11, 0));
  out_.scalar_base = static_cast<uint16_t>(bits(w1, 20, 16) << 2);
  out_.scalar_offset = static_cast<uint16_t>(bits(w1, 31, 24));
  if (is_gfx9()) {
    out_.index_enable = bits(w, 13, 13) != 0;
    out_.offset_enable = bits(w, 12, 12) != 0;
    out_.cache = static_cast<uint8_t>(bits(w, 14, 14) | bits(w, 17, 17) << 1 | bits(w, 15, 15) << 2);
    out_.to_shared = bits(w, 16, 16) != 0;
    if (out_.to_shared && !goes_to_shared()) {
      return false;
    }
  } else {
    out_.index_enable = bits(w1, 23, 23) != 0;
    out_.offset_enable = bits(w1, 22, 22) != 0;
    out_.cache = static_cast<uint8_t>(bits(w, 14, 12));
  }
  out_.returns = bits(w, 14, 14) != 0;
  return true;
}

bool Decoder::buffer12(uint32_t w) {
  if (!find(Encoding::MUBUF, bits(w, 21, 14))) {
    return false;
  }
  const uint32_t w1 = word(1), w2 = word(2);
  registers(bits(w1, 7, 0), bits(w2, 7, 0), bits(w1, 7, 0), 0, false);
  out_.offset = sign_extended(bits(w2, 31, 8), 24);
  out_.scalar_base = static_cast<uint16_t>(bits(w1, 17, 9));
  out_.scalar_offset = static_cast<uint16_t>(bits(w, 6, 0));
  out_.cache = static_cast<uint8_t>(bits(w1, 22, 18));
  out_.returns = bits(w1, 20, 20) != 0;
  out_.offset_enable = bits(w1, 30, 30) != 0;
  out_.index_enable = bits(w1, 31, 31) != 0;
  return true;
}

}  // namespace rocpy_host::amdgpu
