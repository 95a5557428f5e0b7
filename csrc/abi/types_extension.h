/* SPDX-License-Identifier: MIT */
/* What rocpy adds to the ABI: values that a platform may understand beyond AMD's own. See extension.def. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Matrix order of an operand that rocpyExtPack made. Chosen far from hipBLASLt's own numbers (0, 1, 99-103). */
#define ROCPY_EXT_ORDER_PACKED 7498593

/* What rocpyExtAlgoTraits promises. Run to run: the same bits at each call, whatever the stream, the threads and what
 * else runs. Batch invariant: the bits of a column of D (of a row, if D is stored in rows) are the same whatever other
 * columns (rows) there are, among all algorithms that say so; such an algorithm takes every number of them. */
#define ROCPY_EXT_ALGO_RUN_TO_RUN 1
#define ROCPY_EXT_ALGO_BATCH_INVARIANT 2

/* A tile program: straight-line code that a platform applies to each element of a product while it is still in cache.
 *
 * It stands in place of the activation of the descriptor's epilogue, whichever that is, and of nothing else:
 *
 *     value = scales * alpha * op(A) op(B) + beta * C + bias
 *     D = rounded(d_scale * program(value, aux, inputs))
 *
 * so that the bias is added when the epilogue has one, an epilogue _AUX stores the value, one that reads aux hands it
 * to the program, _BGRAD sums what the program gives, and amax is taken of it. The program computes in float32, of
 * float64 products in float64; of int8 products in float32 on the rounded sum. There are none for complex products.
 * Everything is in the order of the instructions: nothing is contracted or reordered.
 *
 * Registers are numbered and hold one element each. One may be written again; none may be read before it is written.
 * After the last instruction D is taken from register `result`. */
#define ROCPY_EXT_PROGRAM_MOST_INSTRUCTIONS 256
#define ROCPY_EXT_PROGRAM_MOST_REGISTERS 256
#define ROCPY_EXT_PROGRAM_MOST_INPUTS 16
#define ROCPY_EXT_PROGRAM_MOST_OUTPUTS 8

/* Flag: each element of D is made of two neighbours of the product, its rows 2i and 2i + 1 (as a gated layer has them
 * when the columns of its two weights alternate). op(A) has twice as many rows as D then; so have the bias and the
 * matrix that _AUX stores. beta is 0, alpha is one number, and the epilogue reads no aux and writes no gradient. */
#define ROCPY_EXT_PROGRAM_PAIRS 1

typedef enum rocpyExtOpcode_t {
  ROCPY_EXT_OP_NONE = 0,
#define ROCPY_TILE_OPCODE(name, number, sources, meaning) ROCPY_EXT_OP_##name = number,
#include "tile_opcodes.def"
#undef ROCPY_TILE_OPCODE
} rocpyExtOpcode_t;

/* What an instruction has no use for is 0. */
typedef struct rocpyExtInstruction_t {
  uint16_t opcode;      /* rocpyExtOpcode_t */
  uint16_t destination; /* a register */
  uint16_t sources[3];  /* registers */
  uint16_t index;       /* of an input or output, or a hipDataType */
  uint32_t reserved;    /* 0 */
  double immediate;
} rocpyExtInstruction_t;

/* An array beside the product, with an element for each element (i, j) of D in batch entry g: at i * row_stride + j *
 * column_stride + g * batch_stride, in elements. D is column-major unless its layout says otherwise: i is the index
 * along which its elements lie side by side. Strides of inputs may be anything; 0 repeats an element. The elements of
 * an output lie apart.
 *
 * Types of inputs: float64, float32, float16, bfloat16, 8-bit floats, int32, int8, uint8 (a truth value of one byte
 * among them); they are converted to the type the program computes in. Of outputs: those that D can have with the same
 * compute type, and uint8. */
typedef struct rocpyExtProgramOperand_t {
  int32_t type;      /* hipDataType */
  uint32_t reserved; /* 0 */
  int64_t row_stride, column_stride, batch_stride;
} rocpyExtProgramOperand_t;

typedef struct rocpyExtProgram_t {
  uint32_t instruction_count, register_count, input_count, output_count;
  uint32_t result; /* a register */
  uint32_t flags;  /* ROCPY_EXT_PROGRAM_PAIRS, or 0 */
  const rocpyExtInstruction_t *instructions;
  const rocpyExtProgramOperand_t *inputs;
  const rocpyExtProgramOperand_t *outputs;
} rocpyExtProgram_t;

/* A kernel for an AMD GPU, run by a platform that emulates its instructions: rocpyExtEmulatorRun. */
typedef struct rocpyExtEmulatorRange_t {
  const void *address;
  size_t bytes;
  int32_t is_writable;
  uint32_t reserved; /* 0 */
} rocpyExtEmulatorRange_t;

typedef struct rocpyExtEmulatorLaunch_t {
  const void *image; /* a code object: an ELF file */
  size_t image_bytes;
  const char *kernel; /* as the code object names it */
  uint32_t grid[3], block[3];
  uint32_t shared_bytes; /* dynamic shared memory of a block */
  uint32_t trace_lines;  /* instructions that the report lists */
  const void *const *arguments;
  const size_t *argument_bytes;
  size_t argument_count;
  const rocpyExtEmulatorRange_t *ranges; /* what the kernel may touch beside its own memory */
  size_t range_count;
  uint64_t most_instructions; /* 0: no limit */
} rocpyExtEmulatorLaunch_t;

/* Whether a wait is to end: not 0. */
typedef int (*rocpyExtInterrupt_t)(void *context);
