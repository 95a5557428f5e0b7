// SPDX-License-Identifier: MIT
// The table of instructions: names, numbers and operand types of each architecture.
#include "instruction.hpp"

#include <cstring>
#include <stdexcept>
#include <unordered_map>

#include "lazy.h"

namespace rocpy_host::amdgpu {

namespace {

struct TypeName {
  const char *name;
  Type type;
  int bits;
};

constexpr TypeName type_names[] = {
    {"b16", Type::b16, 16},
    {"b32", Type::b32, 32},
    {"b64", Type::b64, 64},
    {"b96", Type::b96, 96},
    {"b128", Type::b128, 128},
    {"b256", Type::b256, 256},
    {"b512", Type::b512, 512},
    {"b1024", Type::b1024, 1024},
    {"u16", Type::u16, 16},
    {"u24", Type::u24, 32},
    {"u32", Type::u32, 32},
    {"u64", Type::u64, 64},
    {"i16", Type::i16, 16},
    {"i24", Type::i24, 32},
    {"i32", Type::i32, 32},
    {"i64", Type::i64, 64},
    {"f16", Type::f16, 16},
    {"f32", Type::f32, 32},
    {"f64", Type::f64, 64},
    {"pi16", Type::pi16, 32},
    {"pu16", Type::pu16, 32},
    {"pf16", Type::pf16, 32},
    {"pbf16", Type::pbf16, 32},
    {"pf32", Type::pf32, 64},
    {"mix", Type::mix, 32},
    {"mask", Type::mask, 64},
    {"s32", Type::s32, 32},
    {"l32", Type::l32, 32},
    {"a", Type::a, 32},
    {"K", Type::K, 32},
    {"k", Type::k, 16},
    {"rel", Type::rel, 16},
    {"hwreg", Type::hwreg, 16},
    {"null", Type::null_, 0},
    {"waitcnt", Type::waitcnt, 16},
    {"msg", Type::msg, 16},
    {"bar", Type::bar, 16},
    {"base", Type::base, 64},
    {"swap", Type::swap, 32},
    {"lds", Type::lds, 0},
    {"void", Type::void_, 0},
};

Type type_of(const std::string &text) {
  for (const TypeName &known : type_names) {
    if (text == known.name) {
      return known.type;
    }
  }
  throw std::logic_error("unknown operand type " + text);
}

template <size_t count>
uint8_t parse_types(const std::string &text, std::array<Type, count> *types) {
  uint8_t filled = 0;
  types->fill(Type::none);
  for (size_t at = 0; at < text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    types->at(filled++) = type_of(text.substr(at, comma - at));
    at = comma + 1;
  }
  return filled;
}

std::vector<Opcode> make_opcodes() {
  struct Row {
    Encoding encoding;
    const char *name, *signature;
    std::array<int16_t, architecture_count> numbers;
  };
  const Row rows[] = {
#define ROCPY_OPCODE(encoding, name, signature, ...) {Encoding::encoding, #name, signature, {__VA_ARGS__}},
#include "opcodes.def"
#undef ROCPY_OPCODE
  };
  std::vector<Opcode> result;
  result.reserve(std::size(rows));
  for (const Row &row : rows) {
    Opcode opcode{};
    opcode.name = row.name;
    opcode.encoding = row.encoding;
    opcode.numbers = row.numbers;
    const std::string signature = row.signature;
    const size_t equals = signature.find('=');
    if (equals != std::string::npos) {
      opcode.result_count = parse_types(signature.substr(0, equals), &opcode.results);
      opcode.source_count = parse_types(signature.substr(equals + 1), &opcode.sources);
    }
    result.push_back(opcode);
  }
  return result;
}

constexpr unsigned most_numbers = 1024;

struct Index {
  std::vector<uint16_t> rows = std::vector<uint16_t>(architecture_count * encoding_count * most_numbers, 0xffff);
  static size_t at(Architecture architecture, Encoding encoding, unsigned number) {
    return (static_cast<size_t>(architecture) * encoding_count + static_cast<size_t>(encoding)) * most_numbers + number;
  }
  Index() {
    const auto &table = opcodes();
    for (size_t row = 0; row < table.size(); ++row) {
      for (int a = 0; a < architecture_count; ++a) {
        if (table[row].numbers[a] >= 0) {
          rows[at(static_cast<Architecture>(a), table[row].encoding, static_cast<unsigned>(table[row].numbers[a]))] =
              static_cast<uint16_t>(row);
        }
      }
    }
  }
};

}  // namespace

const std::vector<Opcode> &opcodes() {
  static rocpy::Lazy<const std::vector<Opcode>> table;
  return table.get([] { return new std::vector<Opcode>(make_opcodes()); });
}

const Opcode *find_opcode(Architecture architecture, Encoding encoding, unsigned number) {
  static rocpy::Lazy<const Index> index;
  if (number >= most_numbers) {
    return nullptr;
  }
  const uint16_t row = index.get().rows[Index::at(architecture, encoding, number)];
  return row == 0xffff ? nullptr : &opcodes()[row];
}

int bits_of(Type type) {
  for (const TypeName &known : type_names) {
    if (known.type == type) {
      return known.bits;
    }
  }
  return 0;
}

const char *name_of(Architecture architecture) {
  constexpr const char *names[architecture_count] = {"gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"};
  return names[static_cast<int>(architecture)];
}

bool find_architecture(const std::string &name, Architecture *out) {
  struct Member {
    const char *name;
    Architecture architecture;
  };
  constexpr Member members[] = {
      {"gfx90a", Architecture::gfx90a},
      {"gfx942", Architecture::gfx942},
      {"gfx950", Architecture::gfx950},
      {"gfx1100", Architecture::gfx1100},
      {"gfx1101", Architecture::gfx1100},
      {"gfx1102", Architecture::gfx1100},
      {"gfx1103", Architecture::gfx1100},
      {"gfx1200", Architecture::gfx1201},
      {"gfx1201", Architecture::gfx1201},
      // Code for a family uses what all its members have.
      {"gfx9-4-generic", Architecture::gfx942},
      {"gfx11-generic", Architecture::gfx1100},
      {"gfx12-generic", Architecture::gfx1201},
  };
  const std::string base = name.substr(0, name.find(':'));
  for (const Member &member : members) {
    if (base == member.name) {
      *out = member.architecture;
      return true;
    }
  }
  return false;
}

}  // namespace rocpy_host::amdgpu
