// SPDX-License-Identifier: MIT
// An operand as the drivers see it: k and the other axis instead of rows and columns, and blocks of it copied into
// panels, whatever its type, its order in memory and its block scales.
#pragma once

#include "isa.hpp"

namespace rocpy_host::gemm {

// Elements narrower than a byte, and those with a scale per block: widened to float before anything else, and held in
// memory with k adjacent.
inline bool staged(const Matrix &m) {
  return element_bits[static_cast<int>(m.type)] < 8 || m.scale.kind == ScaleKind::block32;
}

// A part of an operand: values [step, step + steps) along k of the `count` lines from the first-th on. A value is one
// element, of integers and pairs a group, the last one of the batch entry's `elements` along k filled up with zeros.
struct OperandPart {
  int64_t g, elements;
  int64_t step, first, steps;
  int count;
};

template <class T>
class Operand {
 public:
  // `left` of a, otherwise of b; `k` is that of the whole product, which tells how many block scales a line has.
  Operand(const Kernels<T> &kernel, const Matrix &matrix, bool left, int64_t k)
      : kernel_(kernel),
        matrix_(matrix),
        left_(left),
        staged_(staged(matrix)),
        k_(k),
        x_stride_(left ? matrix.column_stride : matrix.row_stride),
        c_stride_(left ? matrix.row_stride : matrix.column_stride) {}

  // to[s * to_stride + j] = the s-th value of the part's j-th line, for j < part.count, and 0 up to width. May write up
  // to a vector beyond the last row.
  void pack(const OperandPart &part, int width, T *to, int64_t to_stride) const {
    if (staged_) return pack_staged(part, width, to, to_stride);
    const int64_t group = kernel_.group, x = part.step * group;
    const int64_t some = part.steps * group < part.elements - x ? part.steps * group : part.elements - x;
    const Elements<T> &elements = *kernel_.elements[element_index(matrix_.type)];
    const auto run = left_ && elements.pack_left ? elements.pack_left : elements.pack;
    const int64_t at = part.g * matrix_.batch_stride + x * x_stride_ + part.first * c_stride_;
    run(static_cast<const char *>(matrix_.data) + at * element_bits[static_cast<int>(matrix_.type)] / 8, x_stride_,
        c_stride_, some, part.count, width, to, to_stride);
  }

 private:
  void pack_staged(const OperandPart &part, int width, T *to, int64_t to_stride) const;

  const Kernels<T> &kernel_;
  const Matrix &matrix_;
  bool left_, staged_;
  int64_t k_, x_stride_, c_stride_;
};

}  // namespace rocpy_host::gemm
