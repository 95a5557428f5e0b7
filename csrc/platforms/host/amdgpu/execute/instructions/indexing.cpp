// SPDX-License-Identifier: MIT
// Registers whose numbers are computed: GFX9's index mode, and relative moves.
#include "indexing.hpp"

#include "handlers.hpp"
#include "operands.hpp"

namespace rocpy_host::amdgpu {

namespace {

constexpr uint32_t index_enable = 1u << 27;  // of MODE
constexpr unsigned vector_count = 256, scalar_count = 106;

uint16_t moved_vector(uint16_t code, uint32_t index) {
  const uint64_t number = static_cast<uint64_t>(code - code_vgpr) + index;
  if (number >= vector_count) {
    fault(Fault::Kind::instruction, "index %u from v%u does not select a register", index, code - code_vgpr);
  }
  return static_cast<uint16_t>(code_vgpr + number);
}

uint16_t moved_scalar(uint16_t code, uint32_t index) {
  if (code >= scalar_count || index >= scalar_count || code + index >= scalar_count) {
    fault(Fault::Kind::instruction, "index %u from s%u does not select a register", index, code);
  }
  return static_cast<uint16_t>(code + index);
}

bool is_vector_register(uint16_t code) { return code >= code_vgpr && code < code_agpr; }

void set_m0(Wave &w, uint32_t mask, uint32_t bits) {
  uint32_t &m0 = w.scalar[m0_code(w.architecture)];
  m0 = (m0 & ~mask) | (bits & mask);
}

// M0: the index, and from bit 12 on which operands it is added to: the three sources, the result.
void set_index_on(Wave &w, const Instruction &i) {
  set_m0(w, 0xf0ff, (w.read32(i.sources[0], i.literal) & 0xff) | static_cast<uint32_t>(i.offset) << 12);
  w.mode |= index_enable;
}

void set_index_off(Wave &w, const Instruction &) { w.mode &= ~index_enable; }

void set_index(Wave &w, const Instruction &i) { set_m0(w, 0xff, w.read32(i.sources[0], i.literal)); }

void set_index_mode(Wave &w, const Instruction &i) { set_m0(w, 0xf000, static_cast<uint32_t>(i.offset) << 12); }

// Whose numbers the index is added to, and whether both have their own: ten bits each.
template <bool moves_source, bool moves_result, bool has_two>
Instruction relative(const Wave &w, const Instruction &i) {
  if (i.lanes != Lanes::plain) {
    fault(Fault::Kind::instruction, "a relative move from other lanes is not emulated");
  }
  const uint32_t m0 = w.m0(), of_source = has_two ? m0 & 0x3ff : m0, of_result = has_two ? m0 >> 16 & 0x3ff : m0;
  Instruction moved = i;
  if (moves_source && is_vector_register(i.sources[0])) {
    moved.sources[0] = moved_vector(i.sources[0], of_source);
  }
  if (moves_result) {
    moved.results[0] = moved_vector(i.results[0], of_result);
  }
  return moved;
}

template <bool moves_source, bool moves_result, bool has_two>
void move_relative(Wave &w, const Instruction &i) {
  each1<Bits32, Bits32>(w, relative<moves_source, moves_result, has_two>(w, i), [](Bits32 a) { return a; });
}

void swap_relative(Wave &w, const Instruction &i) {
  const Instruction moved = relative<true, true, true>(w, i);
  uint32_t *a = w.vector(moved.results[0]), *b = w.vector(moved.sources[0]);
  for_lanes(w.exec(), [&](int lane) { std::swap(a[lane], b[lane]); });
}

template <bool moves_source, bool has_two, bool is_wide>
void move_scalar(Wave &w, const Instruction &i) {
  const uint32_t m0 = w.m0();
  const bool moves_result = !moves_source || has_two;
  const uint16_t from = moves_source ? moved_scalar(i.sources[0], has_two ? m0 & 0x3ff : m0) : i.sources[0];
  const uint16_t to = moves_result ? moved_scalar(i.results[0], has_two ? m0 >> 16 & 0x3ff : m0) : i.results[0];
  if (is_wide) {
    w.write64(to, w.read64(from, i.literal));
  } else {
    w.write32(to, w.read32(from, i.literal));
  }
}

}  // namespace

Instruction with_indexed_registers(const Wave &w, const Instruction &i) {
  const Encoding encoding = i.opcode->encoding;
  if (encoding != Encoding::VOP1 && encoding != Encoding::VOP2 && encoding != Encoding::VOPC &&
      encoding != Encoding::VOP3 && encoding != Encoding::VOP3P) {
    return i;
  }
  const std::string name = i.opcode->name;
  const bool crosses_lanes = i.lanes != Lanes::plain || name.find("lane") != std::string::npos;
  if (crosses_lanes || name.find("mfma") != std::string::npos || name.find("accvgpr") != std::string::npos) {
    fault(Fault::Kind::instruction, "%s is not emulated while registers are indexed", i.opcode->name);
  }
  const uint32_t index = w.m0() & 0xff, operands = w.m0() >> 12 & 15;
  Instruction moved = i;
  for (unsigned k = 0; k < 3; ++k) {
    if ((operands >> k & 1) != 0 && is_vector_register(i.sources[k])) {
      moved.sources[k] = moved_vector(i.sources[k], index);
    }
  }
  if ((operands & 8) != 0 && is_vector_register(i.results[0])) {
    moved.results[0] = moved_vector(i.results[0], index);
  }
  return moved;
}

void add_indexing(Handlers &handlers) {
  handlers.add("s_set_gpr_idx_on", set_index_on);
  handlers.add("s_set_gpr_idx_off", set_index_off);
  handlers.add("s_set_gpr_idx_idx", set_index);
  handlers.add("s_set_gpr_idx_mode", set_index_mode);
  handlers.add("v_movrels_b32", move_relative<true, false, false>);
  handlers.add("v_movreld_b32", move_relative<false, true, false>);
  handlers.add("v_movrelsd_b32", move_relative<true, true, false>);
  handlers.add("v_movrelsd_2_b32", move_relative<true, true, true>);
  handlers.add("v_swaprel_b32", swap_relative);
  handlers.add("s_movrels_b32", move_scalar<true, false, false>);
  handlers.add("s_movrels_b64", move_scalar<true, false, true>);
  handlers.add("s_movreld_b32", move_scalar<false, false, false>);
  handlers.add("s_movreld_b64", move_scalar<false, false, true>);
  handlers.add("s_movrelsd_2_b32", move_scalar<true, true, false>);
}

}  // namespace rocpy_host::amdgpu
