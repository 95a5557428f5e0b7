// SPDX-License-Identifier: MIT
// Tile programs for the tests of the engine: instructions one after the other, and the prepared program with its
// pointers.
#pragma once

#include <cstdint>
#include <cstdio>
#include <vector>

#include "expression.hpp"
#include "gemm_check.hpp"
#include "hipblaslt_types.hpp"
#include "types.h"

namespace gemm_test {

using rocpy_host::gemm::BoundProgram;
using rocpy_host::gemm::prepare;
using rocpy_host::gemm::Program;

namespace {
void require(bool holds, const char *what) {
  checks++;
  if (!holds && failures++ < 25) printf("FAILED %s [%s]\n", what, isa_name());
}
}  // namespace

struct Builder {
  std::vector<rocpyExtInstruction_t> code;
  std::vector<rocpyExtProgramOperand_t> inputs, outputs;
  std::vector<const void *> from;
  std::vector<void *> to;
  uint32_t flags = 0;
  Program program;
  BoundProgram bound;

  // Each gives the register that it writes.
  int step(int opcode, int x = 0, int y = 0, int z = 0, int index = 0, double immediate = 0) {
    rocpyExtInstruction_t made{};
    made.opcode = static_cast<uint16_t>(opcode);
    made.destination = static_cast<uint16_t>(code.size());
    made.sources[0] = static_cast<uint16_t>(x);
    made.sources[1] = static_cast<uint16_t>(y);
    made.sources[2] = static_cast<uint16_t>(z);
    made.index = static_cast<uint16_t>(index);
    made.immediate = immediate;
    code.push_back(made);
    return made.destination;
  }
  int value() { return step(ROCPY_EXT_OP_VALUE); }
  int constant(double x) { return step(ROCPY_EXT_OP_CONSTANT, 0, 0, 0, 0, x); }
  int input(int type, const void *data, int64_t row_stride, int64_t column_stride, int64_t batch_stride) {
    inputs.push_back({type, 0, row_stride, column_stride, batch_stride});
    from.push_back(data);
    return step(ROCPY_EXT_OP_INPUT, 0, 0, 0, static_cast<int>(inputs.size()) - 1);
  }
  void output(int x, int type, void *data, int64_t row_stride, int64_t column_stride, int64_t batch_stride) {
    outputs.push_back({type, 0, row_stride, column_stride, batch_stride});
    to.push_back(data);
    step(ROCPY_EXT_OP_OUTPUT, x, 0, 0, static_cast<int>(outputs.size()) - 1);
  }

  rocpyExtProgram_t source(int result) const {
    rocpyExtProgram_t made{};
    made.instruction_count = made.register_count = static_cast<uint32_t>(code.size());
    made.input_count = static_cast<uint32_t>(inputs.size());
    made.output_count = static_cast<uint32_t>(outputs.size());
    made.result = static_cast<uint32_t>(result);
    made.flags = flags;
    made.instructions = code.data();
    made.inputs = inputs.data();
    made.outputs = outputs.data();
    return made;
  }
  static bool read_type(int32_t number, rocpy_host::gemm::Type *type) {
    return rocpy_host::lt::engine_type(number, type);
  }
  // Null when it is taken.
  const char *finish(int result) {
    bool known = false;
    const char *wrong = prepare(source(result), read_type, &program, &known);
    bound = BoundProgram{};
    bound.program = &program;
    for (size_t i = 0; i < from.size(); i++) bound.inputs[i] = from[i];
    for (size_t i = 0; i < to.size(); i++) bound.outputs[i] = to[i];
    return wrong;
  }
};

}  // namespace gemm_test
