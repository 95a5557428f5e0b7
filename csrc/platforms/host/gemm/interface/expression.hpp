// SPDX-License-Identifier: MIT
// Tile programs: straight-line code applied to the elements of a product while they are in cache, in place of an
// activation. Here is what a program is, and its preparation; kernels_program.hpp runs it. Only plain data, because the
// files built per instruction set include it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gemm.hpp"
#include "types_extension.h"

namespace rocpy_host::gemm {

constexpr int most_steps = ROCPY_EXT_PROGRAM_MOST_INSTRUCTIONS;
constexpr int most_inputs = ROCPY_EXT_PROGRAM_MOST_INPUTS, most_outputs = ROCPY_EXT_PROGRAM_MOST_OUTPUTS;

// An instruction whose registers have become slots. Slots that have uniform_bit hold one value for the whole product
// (of a batch entry); the others hold one for each element. Before the first step slot 0 holds the product's elements,
// and with pairs slot 1 the second of each.
constexpr uint16_t uniform_bit = 1u << 15;
struct Step {
  uint16_t opcode, to, from[3];
  uint16_t index;  // of an input or output
  Type type;       // of ROUND
  double immediate;
};

// An array beside the result. Strides are those of the result's rows and columns as the descriptor counts them; a
// problem whose result is transposed says so.
struct ProgramOperand {
  Type type;
  int64_t row_stride, column_stride, batch_stride;
};

struct Program {
  Step steps[most_steps];
  ProgramOperand inputs[most_inputs], outputs[most_outputs];
  int step_count, uniform_steps;  // the steps that are run once come first
  int slot_count, uniform_count;  // of each sort
  int input_count, output_count;
  uint16_t result;  // a slot
  bool pairs, reads_aux;
  bool rounds;  // to less than float
};

// A program and where its operands are.
struct BoundProgram {
  const Program *program;
  const void *inputs[most_inputs];
  void *outputs[most_outputs];
};

// Checks a program and prepares it. Null, or what is wrong with it; *known is false when it is only that an opcode or a
// type is not known here. `read_type` tells the type that a number stands for.
using ReadType = bool (*)(int32_t number, Type *type);
const char *prepare(const rocpyExtProgram_t &source, ReadType read_type, Program *program, bool *known);

}  // namespace rocpy_host::gemm
