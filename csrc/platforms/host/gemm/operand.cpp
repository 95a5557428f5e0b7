// SPDX-License-Identifier: MIT
// Operands that are widened before they are packed: elements narrower than a byte and scales per block of 32.
#include "operand.hpp"

namespace rocpy_host::gemm {
namespace {

constexpr int64_t stage_steps = 64;    // elements of a column widened at a time
constexpr int64_t stage_columns = 64;  // at most, of a panel

}  // namespace

template <>
void Operand<float>::pack_staged(const OperandPart &part, int width, float *to, int64_t to_stride) const {
  const auto [g, elements, step, first, steps, count] = part;
  alignas(64) float stage[stage_columns * stage_steps];
  const uint8_t *scales = nullptr;
  if (matrix_.scale.kind == ScaleKind::block32) {
    scales = static_cast<const uint8_t *>(matrix_.scale.data) + g * matrix_.scale.batch_stride;
  }
  const int64_t bits = element_bits[static_cast<int>(matrix_.type)], blocks = (k_ + 31) / 32;
  for (int64_t x = step; x < step + steps; x += stage_steps) {
    const int64_t some = step + steps - x < stage_steps ? step + steps - x : stage_steps;
    for (int c = 0; c < count; c++) {
      const int64_t line = g * matrix_.batch_stride + (first + c) * c_stride_;
      kernel_.decode(matrix_.type, static_cast<const char *>(matrix_.data) + line * bits / 8,
                     scales ? scales + (first + c) * blocks : nullptr, x, some, stage + c * stage_steps);
    }
    kernel_.elements[0]->pack(stage, 1, stage_steps, some, count, width, to + (x - step) * to_stride, to_stride);
  }
}

// These compute types have no such operands.
template <>
void Operand<double>::pack_staged(const OperandPart &, int, double *, int64_t) const {}
template <>
void Operand<int32_t>::pack_staged(const OperandPart &, int, int32_t *, int64_t) const {}

}  // namespace rocpy_host::gemm
