// SPDX-License-Identifier: MIT
// The matrices that an epilogue reads as well as the sums. A tile's part of them is a few bytes of many rows, far
// apart, which no hardware fetches ahead.
#pragma once

#include "expression.hpp"
#include "isa.hpp"

namespace rocpy_host::gemm {

struct EpilogueMatrices {
  struct Matrix {
    const char *data;
    int64_t row_bytes, column_bytes, batch_bytes;
  };
  Matrix matrices[most_inputs + 2];
  int count = 0, pairs = 1;

  explicit EpilogueMatrices(const Problem &p) {
    const auto add = [this](const void *data, Type type, int64_t row, int64_t column, int64_t batch) {
      const int64_t size = static_cast<int64_t>(size_of(type));
      if (row != 0 && column == 1) {
        matrices[count++] = {static_cast<const char *>(data), row * size, size, batch * size};
      }
    };
    if (p.beta != 0) add(p.c, p.d_type, p.c_row_stride, 1, p.c_batch_stride);
    if (p.aux == Aux::load) add(p.aux_data, p.aux_type, p.aux_row_stride, 1, p.aux_batch_stride);
    if (!p.program) return;
    const Program &program = *p.program->program;
    pairs = program.pairs ? 2 : 1;
    for (int i = 0; i < program.input_count; i++) {
      const ProgramOperand &one = program.inputs[i];
      const int64_t down = p.program_transposed ? one.column_stride : one.row_stride;
      const int64_t right = p.program_transposed ? one.row_stride : one.column_stride;
      add(p.program->inputs[i], one.type, down, right, one.batch_stride);
    }
  }

  const char *at(int m, const Region &region) const {
    const Matrix &one = matrices[m];
    return one.data + region.g * one.batch_bytes + region.i * one.row_bytes + region.j / pairs * one.column_bytes;
  }

  // What a tile will read of the matrices from the first-th on, into the outer caches: its rows may all fall on one
  // set of the innermost.
  void fetch(int first, const Region &region) const {
    for (int m = first; m < count; m++) {
      const Matrix &matrix = matrices[m];
      const char *from = at(m, region);
      const int64_t bytes = (region.columns / pairs) * matrix.column_bytes;
      for (int64_t r = 0; r < region.rows; r++, from += matrix.row_bytes) {
        for (int64_t b = 0; b < bytes; b += 64) __builtin_prefetch(from + b, 0, 2);
      }
    }
  }
};

}  // namespace rocpy_host::gemm
