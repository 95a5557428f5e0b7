// SPDX-License-Identifier: MIT
// From gfx90a on, CDNA takes values of 64 bits and more from registers that begin with an even one.
#include "decoder.hpp"

namespace rocpy_host::amdgpu {

namespace {

bool is_even(uint16_t code, Type type) {
  return code == code_none || code < code_vgpr || bits_of(type) < 64 || code % 2 == 0;
}

bool is_atomic(const Opcode &opcode) { return std::string(opcode.name).find("_atomic_") != std::string::npos; }

// Registers of memory instructions: an address, then what is stored.
bool has_even_data(const Instruction &i, Type address) {
  const Opcode &opcode = *i.opcode;
  if (!is_even(i.sources[0], address) ||
      ((!is_atomic(opcode) || i.returns) && !is_even(i.results[0], opcode.results[0]))) {
    return false;
  }
  size_t data = 1;
  for (int k = 0; k < opcode.source_count; ++k) {
    const Type type = opcode.sources[static_cast<size_t>(k)];
    if (type != Type::a && !is_even(i.sources[data++], type)) {
      return false;
    }
  }
  return true;
}

}  // namespace

bool Decoder::has_even_tuples() const {
  const Opcode &opcode = *out_.opcode;
  switch (opcode.encoding) {
    case Encoding::SOP2:
    case Encoding::SOP1:
    case Encoding::SOPK:
    case Encoding::SOPC:
    case Encoding::SOPP:
    case Encoding::SMEM:
      return true;
    case Encoding::DS:
      return std::string(opcode.name) == "ds_read_b96_tr_b6" || has_even_data(out_, Type::b32);
    case Encoding::FLAT:
    case Encoding::GLOBAL:
      return has_even_data(out_, out_.scalar_base == code_none ? Type::b64 : Type::b32);
    case Encoding::SCRATCH:
      return has_even_data(out_, Type::b32);
    case Encoding::MUBUF:
      return has_even_data(out_, out_.index_enable && out_.offset_enable ? Type::b64 : Type::b32);
    default:
      break;
  }
  for (size_t k = 0; k < opcode.result_count; ++k) {
    if (!is_even(out_.results[k], opcode.results[k])) {
      return false;
    }
  }
  for (size_t k = 0; k < opcode.source_count; ++k) {
    if (!is_even(out_.sources[k], opcode.sources[k])) {
      return false;
    }
  }
  return true;
}

}  // namespace rocpy_host::amdgpu
