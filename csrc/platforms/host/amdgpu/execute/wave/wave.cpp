// SPDX-License-Identifier: MIT
// Reading and writing scalar operands: registers, constants, apertures.
#include "wave.hpp"

#include <cstdarg>
#include <cstdio>

namespace rocpy_host::amdgpu {

void fault(Fault::Kind kind, const char *format, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  throw Fault(kind, text);
}

bool inline_constant(unsigned code, Type type, uint64_t *value) {
  if (code >= 128 && code <= 192) {
    *value = code - 128;
    return true;
  }
  if (code >= 193 && code <= 208) {
    *value = ~static_cast<uint64_t>(code - 193);  // -1 .. -16
    return true;
  }
  if (code < 240 || code > 248) {
    return false;
  }
  // 0.5, -0.5, 1, -1, 2, -2, 4, -4 and 1 / (2 pi), in the format that the operand has.
  constexpr uint16_t half[9] = {0x3800, 0xb800, 0x3c00, 0xbc00, 0x4000, 0xc000, 0x4400, 0xc400, 0x3118};
  constexpr uint16_t brain[9] = {0x3f00, 0xbf00, 0x3f80, 0xbf80, 0x4000, 0xc000, 0x4080, 0xc080, 0x3e22};
  constexpr uint32_t single[9] = {0x3f000000, 0xbf000000, 0x3f800000, 0xbf800000, 0x40000000,
                                  0xc0000000, 0x40800000, 0xc0800000, 0x3e22f983};
  constexpr uint64_t twice[9] = {0x3fe0000000000000, 0xbfe0000000000000, 0x3ff0000000000000,
                                 0xbff0000000000000, 0x4000000000000000, 0xc000000000000000,
                                 0x4010000000000000, 0xc010000000000000, 0x3fc45f306dc9c882};
  const unsigned index = code - 240;
  if (is_half(type) || type == Type::pf16) {
    *value = half[index];
  } else if (type == Type::pbf16) {
    *value = brain[index];
  } else if (bits_of(type) == 64 && type != Type::pf32) {
    *value = twice[index];
  } else {
    *value = type == Type::pf32 ? single[index] | static_cast<uint64_t>(single[index]) << 32 : single[index];
  }
  return true;
}

uint32_t Wave::read32(unsigned code, uint32_t literal) const {
  if (code < 128) {
    return is_null(code) ? 0 : scalar[code];
  }
  if (code == code_literal) {
    return literal;
  }
  uint64_t constant = 0;
  if (inline_constant(code, Type::b32, &constant)) {
    return static_cast<uint32_t>(constant);
  }
  switch (code) {
    case 235:
    case 237:
      return 0;  // the low words of the apertures' bases
    case 236:
    case 238:
      return 0xffffffff;
    case 251:
      return lane_mask(code_vcc) == 0;
    case 252:
      return exec() == 0;
    case code_scc:
      return scc;
    default:
      fault(Fault::Kind::instruction, "source operand %u is not emulated", code);
  }
}

uint64_t Wave::read64(unsigned code, uint32_t literal, Type type) const {
  if (code < 127) {
    return is_null(code) ? 0 : pair(code);
  }
  if (code == code_literal) {
    return type == Type::f64   ? static_cast<uint64_t>(literal) << 32
           : type == Type::i64 ? static_cast<uint64_t>(static_cast<int64_t>(static_cast<int32_t>(literal)))
                               : literal;
  }
  uint64_t constant = 0;
  if (inline_constant(code, type, &constant)) {
    return constant;
  }
  if (code == 235 || code == 236) {
    return static_cast<uint64_t>(shared_aperture) << 32 | read32(code, 0);
  }
  if (code == 237 || code == 238) {
    return static_cast<uint64_t>(private_aperture) << 32 | read32(code, 0);
  }
  return read32(code, literal);
}

void Wave::write32(unsigned code, uint32_t value) {
  if (code >= 128) {
    fault(Fault::Kind::instruction, "result operand %u is not a scalar register", code);
  }
  if (!is_null(code)) {
    scalar[code] = value;
  }
}

void Wave::write64(unsigned code, uint64_t value) {
  if (code >= 127) {
    fault(Fault::Kind::instruction, "result operand %u is not a pair of scalar registers", code);
  }
  if (!is_null(code)) {
    set_pair(code, value);
  }
}

}  // namespace rocpy_host::amdgpu
