// SPDX-License-Identifier: MIT
// What an instruction of an AMD GPU is once it is decoded, and the table that its name comes from.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace rocpy_host::amdgpu {

enum class Architecture : uint8_t { gfx90a, gfx942, gfx950, gfx1100, gfx1201 };
constexpr int architecture_count = 5;

// Families that share encodings: CDNA (GFX9), RDNA 3 (GFX11) and RDNA 4 (GFX12).
constexpr bool is_gfx9(Architecture a) { return a <= Architecture::gfx950; }
constexpr bool is_gfx11(Architecture a) { return a == Architecture::gfx1100; }
constexpr bool is_gfx12(Architecture a) { return a == Architecture::gfx1201; }
constexpr int default_lanes(Architecture a) { return is_gfx9(a) ? 64 : 32; }
const char *name_of(Architecture architecture);
// False: there is no emulation of it. Members of a family that differ in no instruction count as its first.
bool find_architecture(const std::string &name, Architecture *out);

enum class Encoding : uint8_t {
  SOP2,
  SOP1,
  SOPK,
  SOPC,
  SOPP,
  SMEM,
  VOP2,
  VOP1,
  VOPC,
  VOP3,
  VOP3P,
  DS,
  FLAT,
  GLOBAL,
  SCRATCH,
  MUBUF,
  VOPDX,
  VOPDY
};
constexpr int encoding_count = 18;

// Types of operands, as the signatures of the tables name them. Bits (b..) take no sign; p.. are pairs; s.. are scalar
// results of vector instructions; mask is a bit for each lane.
enum class Type : uint8_t {
  none,
  b16,
  b32,
  b64,
  b96,
  b128,
  b256,
  b512,
  b1024,
  u16,
  u24,
  u32,
  u64,
  i16,
  i24,
  i32,
  i64,
  f16,
  f32,
  f64,
  pi16,
  pu16,
  pf16,
  pbf16,
  pf32,
  mix,
  mask,
  s32,
  l32,
  a,
  K,
  k,
  rel,
  hwreg,
  null_,
  waitcnt,
  msg,
  bar,
  base,
  swap,
  lds,
  void_
};

int bits_of(Type type);
constexpr bool is_half(Type t) { return t == Type::f16 || t == Type::b16 || t == Type::u16 || t == Type::i16; }
constexpr bool is_float(Type t) {
  return t == Type::f16 || t == Type::f32 || t == Type::f64 || t == Type::pf16 || t == Type::pbf16 || t == Type::pf32 ||
         t == Type::mix;
}

struct Opcode {
  const char *name;
  Encoding encoding;
  std::array<int16_t, architecture_count> numbers;  // -1: the architecture lacks it
  std::array<Type, 2> results;
  std::array<Type, 4> sources;
  uint8_t result_count, source_count;
};

const std::vector<Opcode> &opcodes();
inline bool is_grid_barrier(const Opcode &opcode) { return std::string(opcode.name) == "ds_gws_barrier"; }
inline size_t row_of(const Opcode &opcode) { return static_cast<size_t>(&opcode - opcodes().data()); }
// Null: the architecture has no such instruction.
const Opcode *find_opcode(Architecture architecture, Encoding encoding, unsigned number);

// Operands are numbered as the nine bits of the encodings do: scalar registers, constants, then vector registers.
enum Code : uint16_t {
  code_vcc = 106,
  code_ttmp = 108,
  code_exec = 126,
  code_zero = 128,
  code_scc = 253,
  code_literal = 255,
  code_vgpr = 256,
  code_agpr = 512,
  code_none = 0xffff
};
constexpr uint16_t m0_code(Architecture a) { return is_gfx9(a) ? 124 : 125; }

enum class Lanes : uint8_t { plain, dpp, dpp8, sdwa };

struct Instruction {
  const Opcode *opcode = nullptr;
  uint64_t address = 0;  // offset in the code object's memory
  uint8_t bytes = 0;
  bool is_long = false;     // VOP3 form of a short instruction
  bool has_second = false;  // VOPD: the next decoded instruction is its other half
  std::array<uint16_t, 2> results{code_none, code_none};
  std::array<uint16_t, 4> sources{code_none, code_none, code_none, code_none};
  uint32_t literal = 0;

  // Modifiers of vector instructions, a bit for each source; of `select` bit 3 is the result's.
  uint8_t negate = 0, negate_high = 0, absolute = 0, select = 0, select_high = 7, output_scale = 0;
  bool clamp = false;
  uint8_t matrix_bits[3] = {0, 0, 0};  // cbsz, abid, blgp of matrix products
  uint8_t truth_table = 0;             // of v_bitop3, the bit 4a + 2b + c

  Lanes lanes = Lanes::plain;
  uint16_t dpp_control = 0;
  uint32_t dpp8_lanes = 0;
  uint8_t row_mask = 15, bank_mask = 15;
  bool bound_control = false, fetch_inactive = false;
  uint8_t part[3] = {6, 6, 6}, unused = 0;  // SDWA: parts of source 0, source 1 and result
  uint8_t sign_extend = 0;

  // Memory.
  int32_t offset = 0, offset1 = 0;
  uint16_t scalar_base = code_none, scalar_offset = code_none;
  bool to_shared = false;  // what is loaded goes to shared memory
  bool returns = false, offset_enable = false, index_enable = false, is_scratch_vector = false;
  uint8_t cache = 0;  // cache policy bits, as they stand
};

}  // namespace rocpy_host::amdgpu
