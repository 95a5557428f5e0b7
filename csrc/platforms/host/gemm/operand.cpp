// SPDX-License-Identifier: MIT
// Operands that are widened before they are packed: elements narrower than a byte and scales per block of 32. And the
// panels of a whole operand b.
#include "drivers.hpp"

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

namespace {

// Panels of a whole operand b, which the blocked family makes in the workspace and callers may keep.
template <class T>
struct PackTasks {
  const Kernels<T> &kernel;
  const Matrix &b;
  int64_t elements, k, n, groups;  // along k: elements, and values
  Operand<T> right;
  bool same;
  char *to;
  // Rows of b are read along their length, some panels wide: where tiles are low, panels are narrow too, so that there
  // are more of them, and fewer rows at a time. With k adjacent a panel is finished before the next.
  const bool along_rows = b.row_stride != 1, narrow = along_rows && low_tiles(kernel);
  const int64_t group_panels = narrow ? 64 : 16, task_depth = narrow ? 64 : 256;
  const int64_t step = narrow ? 8 : along_rows ? 32 : task_depth;

  PackTasks(const Kernels<T> &kernels, const Matrix &operand, int64_t depth, int64_t columns, bool same_type, void *out)
      : kernel(kernels),
        b(operand),
        elements(depth),
        k(values_of(depth, kernel.group)),
        n(columns),
        right(kernels, operand, false, depth),
        same(same_type && (kernel.group == 1 || kernel.elements[integer_bytes_index])),
        to(static_cast<char *>(out)) {
    groups = divide_up(divide_up(n, kernel.tile_columns), group_panels);
  }

  void run(int64_t index) const {
    const int64_t width = kernel.tile_columns, first = index % groups * group_panels;
    const int64_t begin = index / groups * task_depth, end = smaller(k, begin + task_depth);
    const int64_t panels = smaller(group_panels, divide_up(n, width) - first);
    const int element = kernel.group == 1 ? element_index(b.type) : integer_bytes_index;
    const int64_t group = kernel.group;
    const int64_t size = same ? static_cast<int64_t>(size_of(b.type)) * group : static_cast<int64_t>(sizeof(T));
    for (int64_t x = begin; x < end; x += step) {
      for (int64_t q = first; q < first + panels; q++) {
        const int64_t j = q * width, count = smaller(step, end - x);
        const int columns = static_cast<int>(smaller(width, n - j));
        char *out = to + (q * k + x) * width * size;
        if (same) {
          const void *from = offset(b.data, b.type, x * group * b.row_stride + j * b.column_stride);
          kernel.elements[element]->pack_same(from, b.row_stride, b.column_stride,
                                              smaller(count * group, elements - x * group), columns,
                                              static_cast<int>(width), out, width);
        } else {
          right.pack({0, elements, x, j, count, columns}, static_cast<int>(width), reinterpret_cast<T *>(out), width);
        }
      }
    }
  }

  static void task(void *context, int64_t index) { static_cast<const PackTasks *>(context)->run(index); }
};

}  // namespace

template <class T>
void pack_operand(const Kernels<T> &kernel, const Matrix &b, int64_t k, int64_t n, bool same_type, void *to) {
  PackTasks<T> tasks(kernel, b, k, n, same_type, to);
  const double bytes = static_cast<double>(k) * static_cast<double>(n) * 8.0;
  parallel_for(tasks.groups * divide_up(tasks.k, tasks.task_depth), useful_threads(0, bytes), PackTasks<T>::task,
               &tasks);
}

template void pack_operand<float>(const Kernels<float> &, const Matrix &, int64_t, int64_t, bool, void *);
template void pack_operand<double>(const Kernels<double> &, const Matrix &, int64_t, int64_t, bool, void *);
template void pack_operand<int32_t>(const Kernels<int32_t> &, const Matrix &, int64_t, int64_t, bool, void *);

}  // namespace rocpy_host::gemm
