// SPDX-License-Identifier: MIT
// Every function that executes an instruction, found by the name of its row.
#include "opcode_handlers.hpp"
#include "lazy.h"

namespace rocpy_host::amdgpu {

namespace {

Handlers all_handlers() {
  Handlers handlers;
  for (auto *add :
       {add_scalar, add_scalar_memory, add_program, add_indexing, add_integer, add_float, add_half, add_convert,
        add_compare, add_cross_lane, add_packed, add_matrix, add_lds, add_memory, add_atomics}) {
    add(handlers);
  }
  return handlers;
}

std::vector<Handler> find_handlers() {
  const Handlers handlers = all_handlers();
  std::vector<Handler> result;
  result.reserve(opcodes().size());
  for (const Opcode &opcode : opcodes()) {
    result.push_back(handlers.find(opcode.encoding, opcode.name));
  }
  return result;
}

}  // namespace

const std::vector<Handler> &opcode_handlers() {
  static rocpy::Lazy<const std::vector<Handler>> table;
  return table.get([] { return new std::vector<Handler>(find_handlers()); });
}

}  // namespace rocpy_host::amdgpu
