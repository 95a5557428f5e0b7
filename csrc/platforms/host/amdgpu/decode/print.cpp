// SPDX-License-Identifier: MIT
// Instructions as text, in the syntax of LLVM's assembler: assembled again they give the same bytes, which tests check.
#include "decode.hpp"
#include "operand_names.hpp"

namespace rocpy_host::amdgpu {

namespace {

class Printer {
 public:
  Printer(Architecture architecture, int lanes, const Instruction &instruction)
      : arch_(architecture), lanes_(lanes), i_(instruction), opcode_(*instruction.opcode) {}

  std::string run() {
    text_ = opcode_.name + suffix();
    switch (opcode_.encoding) {
      case Encoding::SOP2:
      case Encoding::SOP1:
      case Encoding::SOPC:
      case Encoding::SOPK:
      case Encoding::SOPP:
        scalar();
        break;
      case Encoding::SMEM:
        scalar_memory();
        break;
      case Encoding::DS:
        shared();
        break;
      case Encoding::FLAT:
      case Encoding::GLOBAL:
      case Encoding::SCRATCH:
        flat();
        break;
      case Encoding::MUBUF:
        buffer();
        break;
      default:
        vector();
    }
    return text_;
  }

 private:
  bool gfx9() const { return is_gfx9(arch_); }

  std::string suffix() const {
    const Encoding e = opcode_.encoding;
    const bool has_short = e == Encoding::VOP1 || e == Encoding::VOP2 || e == Encoding::VOPC;
    const bool is_dpp = i_.lanes == Lanes::dpp || i_.lanes == Lanes::dpp8;
    if (i_.lanes == Lanes::sdwa) {
      return "_sdwa";
    }
    if (is_dpp) {
      return i_.is_long ? "_e64_dpp" : "_dpp";
    }
    const std::string name = opcode_.name;
    if (!has_short || name.find("fmamk") != std::string::npos || name.find("fmaak") != std::string::npos ||
        name.find("swap") != std::string::npos || name.find("accvgpr") != std::string::npos) {
      return "";
    }
    return i_.is_long ? "_e64" : "_e32";
  }

  void operand(const std::string &what) {
    text_ += count_++ == 0 ? " " : ", ";
    text_ += what;
  }

  int width_of(Type type) const { return type == Type::mask ? lanes_ : bits_of(type); }

  std::string plain(unsigned code, Type type, int position) const {
    if (code >= code_agpr) {
      return register_range("a", code - code_agpr, width_of(type));
    }
    if (code >= code_vgpr) {
      std::string name = register_range("v", code - code_vgpr, width_of(type));
      if (arch_ == Architecture::gfx1100 && is_half(type) && position >= 0 && opcode_.encoding != Encoding::VOP3P) {
        name += (i_.select >> position & 1) != 0 ? ".h" : ".l";
      }
      return name;
    }
    return code < 128 ? scalar_name(arch_, code, width_of(type)) : constant_name(code, type, i_.literal);
  }

  std::string with_modifiers(int k, Type type) const {
    const unsigned code = i_.sources[static_cast<size_t>(k)];
    std::string name = plain(code, type, k);
    if (opcode_.encoding == Encoding::VOP3P && type != Type::mix) {
      return name;
    }
    if (i_.lanes == Lanes::sdwa && (i_.sign_extend >> k & 1) != 0) {
      return "sext(" + name + ")";
    }
    const bool absolute =
        opcode_.encoding == Encoding::VOP3P ? (i_.negate_high >> k & 1) != 0 : (i_.absolute >> k & 1) != 0;
    if (absolute) {
      name = "|" + name + "|";
    }
    if ((i_.negate >> k & 1) != 0) {
      name = code >= 128 && code < code_vgpr && !absolute ? "neg(" + name + ")" : "-" + name;
    }
    return name;
  }

  // ---- scalar ----

  void scalar() {
    for (int k = 0; k < opcode_.result_count; ++k) {
      operand(plain(i_.results[static_cast<size_t>(k)], opcode_.results[static_cast<size_t>(k)], -1));
    }
    for (int k = 0; k < opcode_.source_count; ++k) {
      const Type type = opcode_.sources[static_cast<size_t>(k)];
      const auto field = static_cast<uint32_t>(i_.offset) & 0xffff;
      switch (type) {
        case Type::k:
          operand(opcode_.encoding == Encoding::SOPK || std::string(opcode_.name) == "s_barrier_wait"
                      ? std::to_string(i_.offset)
                      : hex(field));
          break;
        case Type::rel:
          operand(std::to_string(field));
          break;
        case Type::waitcnt:
          operand(hex(field));
          break;
        case Type::hwreg:
          operand("hwreg(" + std::to_string(field & 63) + ", " + std::to_string(field >> 6 & 31) + ", " +
                  std::to_string((field >> 11 & 31) + 1) + ")");
          break;
        case Type::msg:
          operand(opcode_.encoding == Encoding::SOPP ? std::to_string(field) : std::to_string(i_.sources[0]));
          break;
        case Type::null_:
          operand(plain(i_.sources[0], Type::b32, -1));
          break;
        default:
          operand(plain(i_.sources[static_cast<size_t>(k)], type, -1));
      }
    }
  }

  void scalar_memory() {
    if (opcode_.result_count > 0) {
      operand(plain(i_.results[0], opcode_.results[0], -1));
    }
    if (opcode_.source_count == 0) {
      return;
    }
    const bool is_buffer = std::string(opcode_.name).compare(0, 8, "s_buffer") == 0;
    operand(plain(i_.scalar_base, is_buffer ? Type::b128 : Type::b64, -1));
    if (i_.scalar_offset == code_none) {
      operand(hex_signed(i_.offset));
    } else {
      operand(plain(i_.scalar_offset, Type::b32, -1));
      if (i_.offset != 0) {
        text_ += " offset:" + hex_signed(i_.offset);
      }
    }
    if (gfx9() && (i_.cache >> 3 & 1) != 0) {
      text_ += " glc";
    } else if (is_gfx11(arch_)) {
      text_ += (i_.cache >> 1 & 1) != 0 ? " glc" : "";
      text_ += (i_.cache & 1) != 0 ? " dlc" : "";
    } else if (is_gfx12(arch_)) {
      cache12(false, false);
    }
  }

  static std::string hex_signed(int32_t value) {
    return value < 0 ? "-" + hex(static_cast<uint32_t>(-value)) : hex(static_cast<uint32_t>(value));
  }

  // ---- vector ----

  std::string bits(unsigned value, int count) const {
    std::string list = "[";
    for (int k = 0; k < count; ++k) {
      list += (k != 0 ? "," : "") + std::string((value >> k & 1) != 0 ? "1" : "0");
    }
    return list + "]";
  }

  void vector() {
    const bool skips_result = opcode_.encoding == Encoding::VOPC && i_.results[0] == code_exec && !gfx9();
    for (int k = 0; k < opcode_.result_count && !skips_result; ++k) {
      const Type type = opcode_.results[static_cast<size_t>(k)];
      operand(plain(i_.results[static_cast<size_t>(k)], type == Type::swap ? Type::b32 : type, k == 0 ? 3 : -1));
    }
    for (int k = 0; k < opcode_.source_count; ++k) {
      const Type type = opcode_.sources[static_cast<size_t>(k)];
      const bool is_implicit_dual = opcode_.encoding == Encoding::VOPDX || opcode_.encoding == Encoding::VOPDY;
      if (type == Type::mask && is_implicit_dual) {
        continue;
      }
      operand(type == Type::K ? hex(i_.literal) : with_modifiers(k, type));
    }
    if (is_matrix()) {
      matrix_modifiers();
      return;
    }
    modifiers();
    if (i_.lanes == Lanes::sdwa) {
      sdwa();
    } else if (i_.lanes != Lanes::plain) {
      dpp();
    }
  }

  bool is_matrix() const { return std::string(opcode_.name).compare(0, 7, "v_mfma_") == 0; }

  void matrix_modifiers() {
    constexpr const char *names[3] = {" cbsz:", " abid:", " blgp:"};
    const bool is_double = std::string(opcode_.name).find("f64") != std::string::npos;
    for (int k = 0; k < 3; ++k) {
      if (i_.matrix_bits[k] != 0) {
        text_ += k == 2 && is_double && arch_ != Architecture::gfx90a ? " neg:" + bits(i_.matrix_bits[2], 3)
                                                                      : names[k] + std::to_string(i_.matrix_bits[k]);
      }
    }
  }

  void modifiers() {
    const int sources = opcode_.source_count;
    const bool is_true16 = arch_ == Architecture::gfx1100;
    if (i_.truth_table != 0) {
      text_ += " bitop3:" + hex(i_.truth_table);
    }
    if (opcode_.encoding == Encoding::VOP3P) {
      const unsigned all = (1u << sources) - 1;
      const bool is_mix = opcode_.sources[0] == Type::mix;
      if ((i_.select & all) != 0) {
        text_ += " op_sel:" + bits(i_.select, sources);
      }
      if (is_mix ? (i_.select_high & all) != 0 : (i_.select_high & all) != all) {
        text_ += " op_sel_hi:" + bits(i_.select_high, sources);
      }
      if (!is_mix && (i_.negate & all) != 0) {
        text_ += " neg_lo:" + bits(i_.negate, sources);
      }
      if (!is_mix && (i_.negate_high & all) != 0) {
        text_ += " neg_hi:" + bits(i_.negate_high, sources);
      }
    } else if (i_.is_long && i_.select != 0 && !shows_halves(is_true16)) {
      const unsigned list = (i_.select & ((1u << sources) - 1)) | (i_.select >> 3 & 1u) << sources;
      text_ += " op_sel:" + bits(list, sources + (has_result_select() ? 1 : 0));
    }
    text_ += i_.clamp ? " clamp" : "";
    constexpr const char *scales[4] = {"", " mul:2", " mul:4", " div:2"};
    text_ += scales[i_.output_scale];
  }

  // Whether the halves are part of the registers' names.
  bool shows_halves(bool is_true16) const {
    if (!is_true16) {
      return false;
    }
    for (Type type : opcode_.sources) {
      if (is_half(type)) {
        return true;
      }
    }
    return is_half(opcode_.results[0]);
  }

  bool has_result_select() const { return opcode_.result_count > 0 && opcode_.encoding != Encoding::VOPC; }

  void sdwa() {
    constexpr const char *parts[7] = {"BYTE_0", "BYTE_1", "BYTE_2", "BYTE_3", "WORD_0", "WORD_1", "DWORD"};
    constexpr const char *unused[3] = {"UNUSED_PAD", "UNUSED_SEXT", "UNUSED_PRESERVE"};
    if (opcode_.encoding != Encoding::VOPC) {
      text_ += std::string(" dst_sel:") + parts[i_.part[2]] + " dst_unused:" + unused[i_.unused];
    }
    text_ += std::string(" src0_sel:") + parts[i_.part[0]];
    if (opcode_.source_count > 1) {
      text_ += std::string(" src1_sel:") + parts[i_.part[1]];
    }
  }

  void dpp() {
    if (i_.lanes == Lanes::dpp8) {
      text_ += " dpp8:[";
      for (int k = 0; k < 8; ++k) {
        text_ += (k != 0 ? "," : "") + std::to_string(i_.dpp8_lanes >> (3 * k) & 7);
      }
      text_ += i_.fetch_inactive ? "] fi:1" : "]";
      return;
    }
    text_ += " " + dpp_control();
    text_ += " row_mask:" + hex(i_.row_mask) + " bank_mask:" + hex(i_.bank_mask);
    text_ += i_.bound_control ? " bound_ctrl:1" : "";
    text_ += i_.fetch_inactive ? " fi:1" : "";
  }

  std::string dpp_control() const {
    const unsigned c = i_.dpp_control;
    if (c < 0x100) {
      return "quad_perm:[" + std::to_string(c & 3) + "," + std::to_string(c >> 2 & 3) + "," +
             std::to_string(c >> 4 & 3) + "," + std::to_string(c >> 6 & 3) + "]";
    }
    const std::string n = std::to_string(c & 15);
    switch (c >> 4) {
      case 0x10:
        return "row_shl:" + n;
      case 0x11:
        return "row_shr:" + n;
      case 0x12:
        return "row_ror:" + n;
      case 0x15:
        return (gfx9() ? "row_newbcast:" : "row_share:") + n;
      case 0x16:
        return "row_xmask:" + n;
      default:
        break;
    }
    switch (c) {
      case 0x130:
        return "wave_shl:1";
      case 0x134:
        return "wave_rol:1";
      case 0x138:
        return "wave_shr:1";
      case 0x13c:
        return "wave_ror:1";
      case 0x140:
        return "row_mirror";
      case 0x141:
        return "row_half_mirror";
      case 0x142:
        return "row_bcast:15";
      case 0x143:
        return "row_bcast:31";
      default:
        return "dpp_ctrl:" + hex(c);
    }
  }

  // ---- memory ----

  void shared() {
    if (opcode_.result_count > 0) {
      operand(plain(i_.results[0], opcode_.results[0], -1));
    }
    int data = 1;
    for (int k = 0; k < opcode_.source_count; ++k) {
      const Type type = opcode_.sources[static_cast<size_t>(k)];
      operand(type == Type::a ? plain(i_.sources[0], type, -1)
                              : plain(i_.sources[static_cast<size_t>(data++)], type, -1));
    }
    const std::string name = opcode_.name;
    const bool has_two = name.find("2st64") != std::string::npos || name.find("_2addr") != std::string::npos ||
                         name.compare(0, 8, "ds_read2") == 0 || name.compare(0, 9, "ds_write2") == 0 ||
                         name.find("xchg2") != std::string::npos;
    if (has_two) {
      text_ += i_.offset != 0 ? " offset0:" + std::to_string(i_.offset) : "";
      text_ += i_.offset1 != 0 ? " offset1:" + std::to_string(i_.offset1) : "";
    } else if ((i_.offset | i_.offset1) != 0) {
      text_ += " offset:" + std::to_string(i_.offset | i_.offset1 << 8);
    }
    text_ += is_grid_barrier(opcode_) ? " gds" : "";
  }

  bool is_atomic() const { return std::string(opcode_.name).find("_atomic_") != std::string::npos; }

  void flat() {
    const bool is_scratch = opcode_.encoding == Encoding::SCRATCH, is_flat = opcode_.encoding == Encoding::FLAT;
    const bool is_void = opcode_.source_count > 0 && opcode_.sources[0] == Type::void_;
    const bool has_result = opcode_.result_count > 0 && !i_.to_shared;
    if (has_result && (!is_atomic() || i_.returns)) {
      operand(plain(i_.results[0], opcode_.results[0], -1));
    }
    if (!is_void) {
      const bool has_base = i_.scalar_base != code_none;
      operand(is_scratch && !i_.is_scratch_vector
                  ? "off"
                  : plain(i_.sources[0], has_base || is_scratch ? Type::b32 : Type::b64, -1));
      if (opcode_.source_count > 0) {
        operand(plain(i_.sources[1], opcode_.sources[0], -1));
      }
      if (!is_flat || (has_base && is_gfx12(arch_))) {
        operand(has_base ? plain(i_.scalar_base, is_scratch ? Type::b32 : Type::b64, -1) : "off");
      }
      text_ += i_.offset != 0 ? " offset:" + std::to_string(i_.offset) : "";
    }
    cache_policy(opcode_.result_count > 0, is_atomic(), is_void);
    text_ += i_.to_shared && opcode_.results[0] != Type::lds ? " lds" : "";
  }

  void buffer() {
    const bool is_void = opcode_.source_count > 0 && opcode_.sources[0] == Type::void_;
    if (!is_void) {
      const Type type = opcode_.source_count > 0 ? opcode_.sources[0] : opcode_.results[0];
      if (!i_.to_shared) {
        operand(plain(opcode_.source_count > 0 ? i_.sources[1] : i_.results[0], type, -1));
      }
      const bool has_vector = i_.offset_enable || i_.index_enable;
      operand(has_vector ? plain(i_.sources[0], i_.offset_enable && i_.index_enable ? Type::b64 : Type::b32, -1)
                         : "off");
      operand(plain(i_.scalar_base, Type::b128, -1));
      operand(plain(i_.scalar_offset, Type::b32, -1));
      text_ += i_.index_enable ? " idxen" : "";
      text_ += i_.offset_enable ? " offen" : "";
      text_ += i_.offset != 0 ? " offset:" + std::to_string(i_.offset) : "";
    }
    cache_policy(opcode_.result_count > 0, is_atomic(), is_void);
    text_ += i_.to_shared ? " lds" : "";
  }

  void cache_policy(bool is_load, bool is_atomic, bool is_void) {
    constexpr const char *gfx90a[3] = {" glc", " slc", " scc"}, *gfx942[3] = {" sc0", " nt", " sc1"};
    constexpr const char *gfx11[3] = {" dlc", " glc", " slc"}, *buffer11[3] = {" slc", " dlc", " glc"};
    if (is_gfx12(arch_)) {
      cache12(!is_load, is_atomic, is_void);
      return;
    }
    const bool is_buffer = opcode_.encoding == Encoding::MUBUF;
    for (int k = 0; k < 3; ++k) {
      if ((i_.cache >> k & 1) != 0) {
        text_ += is_gfx11(arch_)                 ? (is_buffer ? buffer11[k] : gfx11[k])
                 : arch_ == Architecture::gfx90a ? gfx90a[k]
                                                 : gfx942[k];
      }
    }
  }

  void cache12(bool is_store, bool is_atomic, bool is_void = false) {
    constexpr const char *scopes[4] = {"", " scope:SCOPE_SE", " scope:SCOPE_DEV", " scope:SCOPE_SYS"};
    constexpr const char *loads[8] = {"", "NT", "HT", "LU", "NT_RT", "RT_NT", "NT_HT", "BYPASS"};
    constexpr const char *stores[8] = {"", "NT", "HT", "WB", "NT_RT", "RT_NT", "NT_HT", "BYPASS"};
    constexpr const char *atomics[8] = {"", "RETURN", "NT", "NT_RETURN", "CASCADE_RT", "5", "CASCADE_NT", "7"};
    const unsigned hint = i_.cache >> 2 & 7;
    if (hint != 0 && !is_void) {
      text_ += is_atomic  ? std::string(" th:TH_ATOMIC_") + atomics[hint]
               : is_store ? std::string(" th:TH_STORE_") + stores[hint]
                          : std::string(" th:TH_LOAD_") + loads[hint];
    }
    text_ += scopes[i_.cache & 3];
  }

  Architecture arch_;
  int lanes_;
  const Instruction &i_;
  const Opcode &opcode_;
  std::string text_;
  int count_ = 0;
};

}  // namespace

std::string to_text(Architecture architecture, int lanes, const Instruction &instruction, const Instruction *second) {
  std::string text = Printer(architecture, lanes, instruction).run();
  if (instruction.has_second && second != nullptr) {
    text += " :: " + Printer(architecture, lanes, *second).run();
  }
  return text;
}

}  // namespace rocpy_host::amdgpu
