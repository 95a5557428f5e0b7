// SPDX-License-Identifier: MIT
// The names of registers and constants in LLVM's assembler.
#include "operand_names.hpp"

#include <cstdio>

namespace rocpy_host::amdgpu {

namespace {

std::string formatted(const char *format, int64_t value) {
  char text[32];
  std::snprintf(text, sizeof text, format, static_cast<long long>(value));
  return text;
}

}  // namespace

std::string hex(uint32_t value) { return formatted("0x%llx", value); }

std::string register_range(const char *prefix, unsigned first, int bits) {
  const unsigned words = bits <= 32 ? 1 : static_cast<unsigned>(bits) / 32;
  const std::string from = std::to_string(first);
  return words == 1 ? prefix + from : prefix + ("[" + from) + ":" + std::to_string(first + words - 1) + "]";
}

std::string scalar_name(Architecture architecture, unsigned code, int bits) {
  const bool wide = bits == 64;
  if (code == code_vcc || code == code_exec) {
    const std::string name = code == code_vcc ? "vcc" : "exec";
    return wide ? name : name + "_lo";
  }
  if (code == code_vcc + 1) {
    return "vcc_hi";
  }
  if (code == code_exec + 1) {
    return "exec_hi";
  }
  if (code == m0_code(architecture)) {
    return "m0";
  }
  if (!is_gfx9(architecture) && code == 124) {
    return "null";
  }
  if (is_gfx9(architecture) && code >= 102 && code < 106) {
    const std::string name = code < 104 ? "flat_scratch" : "xnack_mask";
    return wide ? name : name + (code % 2 == 0 ? "_lo" : "_hi");
  }
  if (code >= code_ttmp && code < 124) {
    return register_range("ttmp", code - code_ttmp, bits);
  }
  return register_range("s", code, bits);
}

std::string constant_name(unsigned code, Type type, uint32_t literal) {
  if (code <= 192) {
    return std::to_string(static_cast<int>(code) - 128);
  }
  if (code <= 208) {
    return std::to_string(192 - static_cast<int>(code));
  }
  constexpr const char *names[] = {"0.5", "-0.5", "1.0", "-1.0", "2.0", "-2.0", "4.0", "-4.0"};
  if (code >= 240 && code < 248) {
    return names[code - 240];
  }
  if (code == 248) {
    return bits_of(type) == 64                       ? "0.15915494309189532"
           : type == Type::f16 || type == Type::pf16 ? "0.1592"
                                                     : "0.15915494";
  }
  switch (code) {
    case 235:
      return "src_shared_base";
    case 236:
      return "src_shared_limit";
    case 237:
      return "src_private_base";
    case 238:
      return "src_private_limit";
    case 251:
      return "src_vccz";
    case 252:
      return "src_execz";
    case 253:
      return "src_scc";
    case code_literal:
      return hex(literal);
    default:
      return "src_" + std::to_string(code);
  }
}

}  // namespace rocpy_host::amdgpu
