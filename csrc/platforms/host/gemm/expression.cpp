// SPDX-License-Identifier: MIT
// Checks tile programs and prepares them: what the result does not need is left out, what is the same for all elements
// is done first and once, and registers become as few slots as are in use at a time.
#include "expression.hpp"

#include <cstring>

namespace rocpy_host::gemm {
namespace {

int sources_of(uint16_t opcode) {
  switch (opcode) {
#define ROCPY_TILE_OPCODE(name, number, sources, meaning) \
  case ROCPY_EXT_OP_##name:                               \
    return sources;
#include "tile_opcodes.def"
#undef ROCPY_TILE_OPCODE
    default:
      return -1;
  }
}

// Whether the elements of an input or output can be of it.
bool taken(Type type) {
  switch (type) {
    case Type::f32:
    case Type::f64:
    case Type::f16:
    case Type::bf16:
    case Type::e4m3:
    case Type::e5m2:
    case Type::e4m3_fnuz:
    case Type::e5m2_fnuz:
    case Type::i8:
    case Type::u8:
    case Type::i32:
      return true;
    default:
      return false;
  }
}

constexpr int no_value = -1;

// The product's elements are in their slots from the beginning.
bool is_input(uint16_t opcode) { return opcode == ROCPY_EXT_OP_VALUE || opcode == ROCPY_EXT_OP_PARTNER; }

// A value: what one instruction makes.
struct Value {
  rocpyExtInstruction_t code;
  int from[3] = {no_value, no_value, no_value};  // values
  bool needed = false, uniform = false;
  int last_use = no_value;  // an index in the order of the steps
  uint16_t slot = 0;
};

struct Preparation {
  const rocpyExtProgram_t &source;
  ReadType read_type;
  Program *program;
  bool *known;
  Value values[most_steps];
  int latest[ROCPY_EXT_PROGRAM_MOST_REGISTERS];  // the value in each register
  int order[most_steps];
  int first[2] = {no_value, no_value};  // of VALUE and PARTNER: those that come again stand for the first

  bool operand_type(int32_t number, Type *out) const { return read_type(number, out) && taken(*out); }

  const char *check_operands(const rocpyExtProgramOperand_t *from, uint32_t count, ProgramOperand *to) {
    for (uint32_t i = 0; i < count; i++) {
      if (from[i].reserved != 0) return "a reserved member is not 0";
      if (!operand_type(from[i].type, &to[i].type)) {
        *known = false;
        return "an input or output has a type that programs do not support";
      }
      to[i].row_stride = from[i].row_stride;
      to[i].column_stride = from[i].column_stride;
      to[i].batch_stride = from[i].batch_stride;
    }
    return nullptr;
  }

  const char *check_index(const rocpyExtInstruction_t &code) {
    const bool pairs = source.flags & ROCPY_EXT_PROGRAM_PAIRS;
    switch (code.opcode) {
      case ROCPY_EXT_OP_INPUT:
        return code.index < source.input_count ? nullptr : "an instruction names an input that does not exist";
      case ROCPY_EXT_OP_OUTPUT:
        return code.index < source.output_count ? nullptr : "an instruction names an output that does not exist";
      case ROCPY_EXT_OP_PARTNER:
        return pairs ? nullptr : "PARTNER without ROCPY_EXT_PROGRAM_PAIRS";
      case ROCPY_EXT_OP_AUX:
        program->reads_aux = true;
        return pairs ? "AUX with ROCPY_EXT_PROGRAM_PAIRS" : nullptr;
      case ROCPY_EXT_OP_ROUND: {
        Type type;
        if (operand_type(code.index, &type) && type != Type::i32 && type != Type::u8) {
          program->rounds = program->rounds || (type != Type::f32 && type != Type::f64);
          return nullptr;
        }
        *known = false;
        return "ROUND to a type that programs do not round to";
      }
      default:
        return nullptr;
    }
  }

  const char *read(int at) {
    Value &value = values[at];
    value = Value{};
    value.code = source.instructions[at];
    const rocpyExtInstruction_t &code = value.code;
    const int count = sources_of(code.opcode);
    if (code.opcode == ROCPY_EXT_OP_NONE || code.reserved != 0) return "an instruction is not filled in";
    if (count < 0) {
      *known = false;
      return "an opcode is not known";
    }
    for (int s = 0; s < count; s++) {
      if (code.sources[s] >= source.register_count) return "an instruction names a register that does not exist";
      value.from[s] = latest[code.sources[s]];
      if (value.from[s] == no_value) return "a register is read before it is written";
    }
    if (const char *wrong = check_index(code)) return wrong;
    if (code.opcode == ROCPY_EXT_OP_OUTPUT) return nullptr;
    if (code.destination >= source.register_count) return "an instruction names a register that does not exist";
    latest[code.destination] = at;
    if (is_input(code.opcode)) {
      int &before = first[code.opcode == ROCPY_EXT_OP_PARTNER];
      if (before == no_value) before = at;
      latest[code.destination] = before;
    }
    return nullptr;
  }

  bool is_uniform(const Value &value) const {
    switch (value.code.opcode) {
      case ROCPY_EXT_OP_CONSTANT:
        return true;
      case ROCPY_EXT_OP_INPUT: {
        const ProgramOperand &input = program->inputs[value.code.index];
        return input.row_stride == 0 && input.column_stride == 0;
      }
      case ROCPY_EXT_OP_VALUE:
      case ROCPY_EXT_OP_PARTNER:
      case ROCPY_EXT_OP_AUX:
      case ROCPY_EXT_OP_OUTPUT:
        return false;
      default:
        for (int from : value.from) {
          if (from != no_value && !values[from].uniform) return false;
        }
        return true;
    }
  }

  // Marks what is needed, from the end to the beginning, and puts the steps in order.
  int arrange(int result) {
    const int count = static_cast<int>(source.instruction_count);
    values[result].needed = true;
    for (int at = count - 1; at >= 0; at--) {
      Value &value = values[at];
      if (value.code.opcode == ROCPY_EXT_OP_OUTPUT) value.needed = true;
      for (int from : value.from) {
        if (value.needed && from != no_value) values[from].needed = true;
      }
    }
    int steps = 0;
    for (int at = 0; at < count; at++) {
      values[at].uniform = is_uniform(values[at]);
      if (values[at].needed && values[at].uniform) order[steps++] = at;
    }
    program->uniform_steps = steps;
    for (int at = 0; at < count; at++) {
      if (values[at].needed && !values[at].uniform && !is_input(values[at].code.opcode)) order[steps++] = at;
    }
    for (int step = 0; step < steps; step++) {
      for (int from : values[order[step]].from) {
        if (from != no_value) values[from].last_use = step;
      }
    }
    values[result].last_use = steps;
    return steps;
  }

  // A step may write to the slot of a source that it is the last to use: it goes from element to element.
  void assign_slots(int steps) {
    bool taken[most_steps] = {true, program->pairs};
    program->slot_count = program->pairs ? 2 : 1;
    program->uniform_count = 0;
    if (first[1] != no_value) values[first[1]].slot = 1;
    for (int step = 0; step < steps; step++) {
      Value &value = values[order[step]];
      if (value.uniform) {
        value.slot = static_cast<uint16_t>(uniform_bit + program->uniform_count++);
        continue;
      }
      for (int from : value.from) {
        if (from != no_value && !values[from].uniform && values[from].last_use == step) {
          taken[values[from].slot] = false;
        }
      }
      if (value.code.opcode == ROCPY_EXT_OP_OUTPUT) continue;
      int slot = 0;
      while (taken[slot]) slot++;
      taken[slot] = true;
      value.slot = static_cast<uint16_t>(slot);
      if (slot >= program->slot_count) program->slot_count = slot + 1;
    }
  }

  const char *run() {
    if (source.flags & ~uint32_t{ROCPY_EXT_PROGRAM_PAIRS}) return "a flag is not known";
    if (source.instruction_count < 1 || source.instruction_count > most_steps || source.input_count > most_inputs ||
        source.output_count > most_outputs || source.register_count > ROCPY_EXT_PROGRAM_MOST_REGISTERS) {
      return "there are too many instructions, registers, inputs or outputs, or no instructions";
    }
    if (!source.instructions || (source.input_count && !source.inputs) || (source.output_count && !source.outputs)) {
      return "a pointer is null";
    }
    program->pairs = source.flags & ROCPY_EXT_PROGRAM_PAIRS;
    program->reads_aux = false;
    program->input_count = static_cast<int>(source.input_count);
    program->output_count = static_cast<int>(source.output_count);
    if (const char *wrong = check_operands(source.inputs, source.input_count, program->inputs)) return wrong;
    if (const char *wrong = check_operands(source.outputs, source.output_count, program->outputs)) return wrong;
    bool written[most_outputs] = {};
    for (int &value : latest) value = no_value;
    for (int at = 0; at < static_cast<int>(source.instruction_count); at++) {
      if (const char *wrong = read(at)) return wrong;
      if (values[at].code.opcode != ROCPY_EXT_OP_OUTPUT) continue;
      if (written[values[at].code.index]) return "an output is written twice";
      written[values[at].code.index] = true;
    }
    for (uint32_t i = 0; i < source.output_count; i++) {
      if (!written[i]) return "an output is not written";
    }
    if (source.result >= source.register_count) return "the result names a register that does not exist";
    const int result = latest[source.result];
    if (result == no_value) return "the result's register is not written";

    program->step_count = arrange(result);
    assign_slots(program->step_count);
    for (int i = 0; i < program->step_count; i++) {
      const Value &value = values[order[i]];
      Step &step = program->steps[i];
      step = Step{};
      step.opcode = value.code.opcode;
      step.to = value.slot;
      for (int s = 0; s < 3; s++) step.from[s] = value.from[s] == no_value ? 0 : values[value.from[s]].slot;
      step.index = value.code.index;
      if (step.opcode == ROCPY_EXT_OP_ROUND) operand_type(value.code.index, &step.type);
      step.immediate = value.code.immediate;
    }
    program->result = values[result].slot;
    return nullptr;
  }
};

}  // namespace

const char *prepare(const rocpyExtProgram_t &source, ReadType read_type, Program *program, bool *known) {
  *known = true;
  std::memset(static_cast<void *>(program), 0, sizeof *program);
  Preparation preparation{source, read_type, program, known, {}, {}, {}, {no_value, no_value}};
  return preparation.run();
}

}  // namespace rocpy_host::gemm
