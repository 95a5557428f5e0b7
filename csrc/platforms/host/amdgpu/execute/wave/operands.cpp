// SPDX-License-Identifier: MIT
// Fetching vector sources, through DPP and SDWA where the instruction asks for it, and placing results.
#include "operands.hpp"

namespace rocpy_host::amdgpu {

namespace {

// DPP controls: 0x100 + n shifts within rows of 16 lanes to the left, and so on.
constexpr unsigned row_shl = 0x100, row_shr = 0x110, row_ror = 0x120, wave_shl1 = 0x130, wave_rol1 = 0x134,
                   wave_shr1 = 0x138, wave_ror1 = 0x13c, row_mirror = 0x140, row_half_mirror = 0x141,
                   row_bcast15 = 0x142, row_bcast31 = 0x143, row_newbcast = 0x150, row_xmask = 0x160;

}  // namespace

int dpp_source_lane(const Instruction &i, Architecture architecture, int lane) {
  if (i.lanes == Lanes::dpp8) {
    return (lane & ~7) | static_cast<int>(i.dpp8_lanes >> (3 * (lane & 7)) & 7);
  }
  const unsigned control = i.dpp_control;
  const int row = lane & ~15, at = lane & 15, n = static_cast<int>(control & 15);
  if (control < 0x100) {
    return (lane & ~3) | static_cast<int>(control >> (2 * (lane & 3)) & 3);
  }
  if (control > row_shl && control < row_shr) {
    return at + n < 16 ? lane + n : -1;
  }
  if (control > row_shr && control < row_ror) {
    return at >= n ? lane - n : -1;
  }
  if (control > row_ror && control < wave_shl1) {
    return row | ((at - n) & 15);
  }
  if (control == row_mirror) {
    return row | (15 - at);
  }
  if (control == row_half_mirror) {
    return (lane & ~7) | (7 - (lane & 7));
  }
  if (is_gfx9(architecture)) {
    switch (control) {
      case wave_shl1:
        return lane + 1 < 64 ? lane + 1 : -1;
      case wave_rol1:
        return (lane + 1) & 63;
      case wave_shr1:
        return lane - 1;
      case wave_ror1:
        return (lane - 1) & 63;
      case row_bcast15:
        return lane >= 16 ? row - 1 : -1;
      case row_bcast31:
        return lane >= 32 ? 31 : -1;
      default:
        break;
    }
  } else if (control >= row_xmask && control < row_xmask + 16) {
    return row | (at ^ n);
  }
  if (control >= row_newbcast && control < row_newbcast + 16) {
    return row | n;  // row_share on RDNA
  }
  fault(Fault::Kind::instruction, "DPP control 0x%x is not emulated", control);
}

Source::Source(Wave &wave, const Instruction &i, int index, Type type) {
  const uint16_t code = i.sources[index];
  negate = (i.negate >> index & 1) != 0;
  absolute = (i.absolute >> index & 1) != 0;
  const bool is_wide = bits_of(type) == 64;
  if (code >= code_vgpr && code != code_none) {
    low_ = wave.vectors(code, is_wide ? 2 : 1);
    high_ = is_wide ? low_ + wave.lanes : low_;
    stride_ = 1;
  } else {
    stride_ = 0;
    low_ = &constant_[0];
    high_ = &constant_[1];
    uint64_t value = 0;
    if (is_wide) {
      value = wave.read64(code, i.literal, type);
    } else if (!inline_constant(code, type, &value)) {
      value = wave.read32(code, i.literal);
    }
    constant_[0] = static_cast<uint32_t>(value);
    constant_[1] = static_cast<uint32_t>(value >> 32);
  }
  if (is_half(type) && (i.select >> index & 1) != 0 && i.lanes != Lanes::sdwa) {
    shift_ = 16;
  }
  if (i.lanes == Lanes::sdwa && index < 2) {
    apply_sdwa(wave, i, index, type);
  } else if ((i.lanes == Lanes::dpp || i.lanes == Lanes::dpp8) && index == 0) {
    apply_dpp(wave, i, is_wide);
  }
}

void Source::apply_dpp(Wave &wave, const Instruction &i, bool is_wide) {
  const uint64_t exec = wave.exec();
  for (int lane = 0; lane < wave.lanes; ++lane) {
    const int from = dpp_source_lane(i, wave.architecture, lane);
    const bool is_there = from >= 0 && (i.fetch_inactive || (exec >> from & 1) != 0);
    const bool is_masked =
        i.lanes == Lanes::dpp && ((i.row_mask >> (lane / 16) & 1) == 0 || (i.bank_mask >> (lane % 16 / 4) & 1) == 0);
    moved_[0][lane] = is_there ? low(from) : 0;
    moved_[1][lane] = is_there && is_wide ? high_[from * static_cast<int>(stride_)] : 0;
    // Nothing to read: zero where the instruction bounds the access (always in DPP8), else the lane keeps its result.
    if (is_masked || (!is_there && !i.bound_control && i.lanes == Lanes::dpp)) {
      valid &= ~(1ull << lane);
    }
  }
  low_ = moved_[0];
  high_ = moved_[1];
  stride_ = 1;
}

void Source::apply_sdwa(Wave &wave, const Instruction &i, int index, Type type) {
  const unsigned part = i.part[index];
  const bool is_signed = (i.sign_extend >> index & 1) != 0;
  for (int lane = 0; lane < wave.lanes; ++lane) {
    uint32_t bits = low(lane);
    if (part < 4) {
      bits = bits >> (8 * part) & 0xff;
      bits = is_signed ? static_cast<uint32_t>(static_cast<int32_t>(static_cast<int8_t>(bits))) : bits;
    } else if (part < 6) {
      bits = bits >> (16 * (part - 4)) & 0xffff;
      bits = is_signed ? static_cast<uint32_t>(static_cast<int32_t>(static_cast<int16_t>(bits))) : bits;
    }
    moved_[0][lane] = bits;
    moved_[1][lane] = 0;
  }
  // A half of a register read as float32 has no sign bit to change but the half's own.
  (void)type;
  low_ = moved_[0];
  high_ = moved_[1];
  stride_ = 1;
}

Result::Result(Wave &wave, const Instruction &i, Type type) : instruction_(i) {
  const bool is_wide = bits_of(type) == 64;
  low_ = wave.vectors(i.results[0], is_wide ? 2 : 1);
  if (is_wide) {
    high_ = low_ + wave.lanes;
  }
  upper_ = (i.select & 8) != 0;
  // GFX9 clears the other half, except where the instruction has the long form alone and so chooses a half.
  keeps_other_half_ = !wave.gfx9() || upper_ || (i.opcode != nullptr && i.opcode->encoding == Encoding::VOP3);
}

void Result::set16(int lane, uint16_t bits) {
  if (instruction_.lanes == Lanes::sdwa) {
    set_part(lane, bits);
  } else if (!keeps_other_half_) {
    low_[lane] = bits;
  } else if (upper_) {
    low_[lane] = (low_[lane] & 0xffff) | static_cast<uint32_t>(bits) << 16;
  } else {
    low_[lane] = (low_[lane] & 0xffff0000) | bits;
  }
}

void Result::set_part(int lane, uint32_t bits) {
  const unsigned part = instruction_.part[2];
  if (part == 6) {
    low_[lane] = bits;
    return;
  }
  const unsigned width = part < 4 ? 8 : 16, shift = part < 4 ? 8 * part : 16 * (part - 4);
  const uint32_t mask = ((1u << width) - 1) << shift;
  const uint32_t placed = bits << shift & mask;
  constexpr unsigned pad = 0, extend = 1;
  if (instruction_.unused == pad) {
    low_[lane] = placed;
  } else if (instruction_.unused == extend) {
    const bool negative = (bits >> (width - 1) & 1) != 0;
    const uint32_t above = static_cast<uint32_t>(~((static_cast<uint64_t>(1) << (shift + width)) - 1));
    low_[lane] = placed | (negative ? above : 0);
  } else {
    low_[lane] = (low_[lane] & ~mask) | placed;
  }
}

}  // namespace rocpy_host::amdgpu
