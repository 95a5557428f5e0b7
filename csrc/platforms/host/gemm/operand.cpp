// SPDX-License-Identifier: MIT
// Operands that are widened before they are packed: elements narrower than a byte and scales per block of 32.
#include "operand.hpp"

#include "scalar.hpp"

namespace rocpy_host::gemm {
namespace {

constexpr int64_t kStage = 64;    // elements of a column widened at a time
constexpr int64_t kColumns = 64;  // at most, of a panel

}  // namespace

template <>
void Operand<float>::pack_staged(int64_t g, int64_t step, int64_t first, int64_t steps, int count, int width, float *to,
                                 int64_t to_stride) const {
  alignas(64) float stage[kColumns * kStage];
  const int64_t blocks = (k_ + 31) / 32;
  const uint8_t *scales = static_cast<const uint8_t *>(matrix_.scale.data);
  const bool scaled = matrix_.scale.kind == ScaleKind::block32;
  for (int64_t x = step; x < step + steps; x += kStage) {
    const int64_t some = step + steps - x < kStage ? step + steps - x : kStage;
    for (int c = 0; c < count; c++) {
      float *column = stage + c * kStage;
      kernel_.decode(matrix_.type, matrix_.data, g * matrix_.batch_stride + (first + c) * c_stride_ + x, some, column);
      for (int64_t i = 0; scaled && i < some;) {
        const int64_t block = (x + i) / 32, end = (block + 1) * 32 - x < some ? (block + 1) * 32 - x : some;
        const float scale = e8m0_to_float(scales[g * matrix_.scale.batch_stride + (first + c) * blocks + block]);
        for (; i < end; i++) column[i] *= scale;
      }
    }
    kernel_.pack[0](stage, 1, kStage, some, count, width, to + (x - step) * to_stride, to_stride);
  }
}

// These compute types have no such operands.
template <>
void Operand<double>::pack_staged(int64_t, int64_t, int64_t, int64_t, int, int, double *, int64_t) const {}
template <>
void Operand<int32_t>::pack_staged(int64_t, int64_t, int64_t, int64_t, int, int, int32_t *, int64_t) const {}

}  // namespace rocpy_host::gemm
