// SPDX-License-Identifier: MIT
// An operand as the drivers see it: k and the other axis instead of rows and columns, and blocks of it copied into
// panels, whatever its type, its order in memory and its block scales.
#pragma once

#include "isa.hpp"

namespace rocpy_host::gemm {

// Elements narrower than a byte, and those with a scale per block: widened to float before anything else, and held in
// memory with k adjacent.
inline bool staged(const Matrix &m) {
  return kBits[static_cast<int>(m.type)] < 8 || m.scale.kind == ScaleKind::block32;
}

template <class T>
class Operand {
 public:
  // `left` of a, otherwise of b; `k` is that of the whole product, which tells how many block scales a line has.
  Operand(const Matrix &matrix, bool left, int64_t k)
      : matrix_(matrix),
        left_(left),
        staged_(staged(matrix)),
        k_(k),
        x_stride_(left ? matrix.column_stride : matrix.row_stride),
        c_stride_(left ? matrix.row_stride : matrix.column_stride) {}

  // to[s * to_stride + j] = the s-th value from `step` on of column first + j, for j < count, and 0 up to width. A
  // value is one element, of integers a group, the last one of `elements` along k filled up with zeros. May write up to
  // a vector beyond the last row.
  void pack(int64_t g, int64_t elements, int64_t step, int64_t first, int64_t steps, int count, int width, T *to,
            int64_t to_stride) const {
    if (staged_) return pack_staged(g, step, first, steps, count, width, to, to_stride);
    const int64_t group = kernel_.group, x = step * group;
    const int64_t some = steps * group < elements - x ? steps * group : elements - x;
    const auto run =
        left_ && kernel_.pack_left ? kernel_.pack_left : kernel_.elements[element_index(matrix_.type)]->pack;
    run(static_cast<const char *>(matrix_.data) +
            (g * matrix_.batch_stride + x * x_stride_ + first * c_stride_) * kBits[static_cast<int>(matrix_.type)] / 8,
        x_stride_, c_stride_, some, count, width, to, to_stride);
  }

 private:
  void pack_staged(int64_t g, int64_t step, int64_t first, int64_t steps, int count, int width, T *to,
                   int64_t to_stride) const;

  const Kernels<T> &kernel_ = kernels<T>();
  const Matrix &matrix_;
  bool left_, staged_;
  int64_t k_, x_stride_, c_stride_;
};

}  // namespace rocpy_host::gemm
