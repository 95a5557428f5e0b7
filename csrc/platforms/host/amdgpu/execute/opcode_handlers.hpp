// SPDX-License-Identifier: MIT
// The functions of all instructions, in the order of the table's rows.
#pragma once

#include "handlers.hpp"

#include <vector>

namespace rocpy_host::amdgpu {

// The function that executes each row of opcodes(). Null: the instruction is decoded, not executed.
const std::vector<Handler> &opcode_handlers();
inline Handler handler_of(const Opcode &opcode) { return opcode_handlers()[row_of(opcode)]; }

}  // namespace rocpy_host::amdgpu
