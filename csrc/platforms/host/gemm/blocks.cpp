// SPDX-License-Identifier: MIT
// Operands with a scale for every 32 of k: their packing, and products with scales that float32 has no room for.
#include "blocks.hpp"

#include <cmath>
#include <cstring>
#include <new>

#include "drivers.hpp"

namespace rocpy_host::gemm {
namespace {

// The x-th code of a line.
uint8_t code_at(const uint8_t *line, int64_t bits, int64_t x) {
  if (bits == 8) return line[x];
  const int64_t at = x * bits;
  const unsigned shift = static_cast<unsigned>(at % 8);
  unsigned word = line[at / 8];
  // A code of six bits may end in the next byte.
  if (static_cast<int64_t>(shift) + bits > 8) word |= static_cast<unsigned>(line[at / 8 + 1]) << 8;
  return static_cast<uint8_t>(word >> shift & ((1u << bits) - 1));
}

struct BlockTasks {
  const Matrix &b;
  int64_t k, n, width;
  uint8_t *to;

  void run(int64_t panel) const {
    const int64_t bits = element_bits[static_cast<int>(b.type)], blocks = k / block_depth, first = panel * width;
    const int64_t columns = smaller(width, n - first), half = width / 2;
    const bool shared = b.type == Type::e2m1;
    const int64_t row_bytes = shared ? half : width;
    const auto *scales = static_cast<const uint8_t *>(b.scale.data);
    const auto *data = static_cast<const uint8_t *>(b.data);
    uint8_t *out = to + panel * blocks * bytes_of_block(b.type, width);
    for (int64_t block = 0; block < blocks; block++, out += row_bytes * block_depth) {
      // Columns that only fill the panel up have zeros, and a scale of 1.
      for (int64_t c = 0; c < width; c++) *out++ = c < columns ? scales[(first + c) * blocks + block] : 127;
      for (int64_t i = 0; i < row_bytes * block_depth; i++) out[i] = 0;
      for (int64_t c = 0; c < columns; c++) {
        const uint8_t *line = data + (first + c) * b.column_stride * bits / 8;
        uint8_t *at = out + (shared && c >= half ? c - half : c);
        const unsigned up = shared && c >= half ? 4 : 0;
        for (int64_t x = 0; x < block_depth; x++, at += row_bytes) {
          *at = static_cast<uint8_t>(*at | code_at(line, bits, block * block_depth + x) << up);
        }
      }
    }
  }

  static void task(void *context, int64_t index) { static_cast<const BlockTasks *>(context)->run(index); }
};

// Products with scales so large that an element times its scale is beyond float32, although the sum may not be: the
// scale of the other operand may be small. Elements are multiplied without scales, and sums of blocks with both, in
// double, whose range holds them all. No bit of a row depends on another row.
constexpr int64_t task_columns = 64, block_rows = 64;

// The largest scale that no element of a type exceeds float32 with.
constexpr int largest_scale(Type type) {
  switch (type) {
    case Type::e4m3:
      return 254 - 8;
    case Type::e5m2:
      return 254 - 15;
    case Type::e3m2:
      return 254 - 4;
    default:
      return 254 - 2;
  }
}

constexpr uint8_t scale_of_nan = 255;

bool any_large(const uint8_t *scales, int64_t count, Type type) {
  const int largest = largest_scale(type);
  int64_t i = 0;
  // None is below 240: its four upper bits are set.
  for (; i + 8 <= count; i += 8) {
    uint64_t word;
    std::memcpy(&word, scales + i, sizeof word);
    if ((word & word << 1 & word << 2 & word << 3 & 0x8080808080808080u) == 0) continue;
    for (int64_t j = i; j < i + 8; j++) {
      if (scales[j] > largest && scales[j] != scale_of_nan) return true;
    }
  }
  for (; i < count; i++) {
    if (scales[i] > largest && scales[i] != scale_of_nan) return true;
  }
  return false;
}

const uint8_t *scales_of(const Matrix &m, int64_t g) {
  return static_cast<const uint8_t *>(m.scale.data) + g * m.scale.batch_stride;
}

double factor_of(uint8_t scale) { return scale == scale_of_nan ? std::nan("") : std::ldexp(1.0, scale - 127); }

struct LargeScales {
  const Problem &p;
  const Kernels<float> &kernel = kernels<float>();
  Finish<float> finish = make_finish<float>(p);
  Kernels<float>::Epilogue epilogue = kernel.epilogue(p);
  const int64_t blocks = p.k / block_depth, chunks = divide_up(p.n, task_columns);
  float *sums = nullptr;

  // Elements of one block of a line, without their scale, which is returned.
  double line(const Matrix &m, int64_t g, int64_t at, int64_t stride, int64_t block, float *to) const {
    const int64_t bits = element_bits[static_cast<int>(m.type)];
    const auto *from = static_cast<const uint8_t *>(m.data) + (g * m.batch_stride + at * stride) * bits / 8;
    kernel.decode(m.type, from, nullptr, block * block_depth, block_depth, to);
    return factor_of(scales_of(m, g)[at * blocks + block]);
  }

  // The same of `count` columns of b.
  void columns(int64_t g, int64_t j0, int64_t count, int64_t block, float *to, double *factors) const {
    if (!p.b.packed) {
      for (int64_t c = 0; c < count; c++) {
        factors[c] = line(p.b, g, j0 + c, p.b.column_stride, block, to + c * block_depth);
      }
      return;
    }
    const int64_t width = kernel.tile_columns, bytes = bytes_of_block(p.b.type, width);
    uint8_t copy[task_columns * (block_depth + 1)];
    float rows[task_columns * block_depth];
    for (int64_t c = 0; c < count; c += width) {
      const auto *panel = static_cast<const uint8_t *>(p.b.data) + ((j0 + c) / width * blocks + block) * bytes;
      std::memcpy(copy, panel, static_cast<size_t>(bytes));
      std::memset(copy, 127, static_cast<size_t>(width));
      kernel.blocks[block_index(p.b.type)].widen(copy, 0, block_depth, rows);
      for (int64_t j = 0; j < smaller(width, count - c); j++) {
        factors[c + j] = factor_of(panel[j]);
        for (int64_t x = 0; x < block_depth; x++) to[(c + j) * block_depth + x] = rows[x * width + j];
      }
    }
  }

  void run(int64_t index) const {
    const int64_t g = index / chunks, j0 = index % chunks * task_columns, count = smaller(task_columns, p.n - j0);
    Scratch scratch;
    float *tile = scratch.at<float>(0);  // with room for the vector that an epilogue may read beyond the last column
    double *total = scratch.at<double>(2 * block_rows * task_columns * sizeof(float));
    float *partial = sums ? sums + g * p.n + j0 : nullptr;
    float left[block_depth], right[task_columns * block_depth];
    double factors[task_columns];
    for (int64_t i0 = 0; i0 < p.m; i0 += block_rows) {
      const int64_t rows = smaller(block_rows, p.m - i0);
      for (int64_t i = 0; i < rows * task_columns; i++) total[i] = 0;
      for (int64_t block = 0; block < blocks; block++) {
        columns(g, j0, count, block, right, factors);
        for (int64_t i = 0; i < rows; i++) {
          const double factor = line(p.a, g, i0 + i, p.a.row_stride, block, left);
          for (int64_t j = 0; j < count; j++) {
            double sum = 0;
            for (int64_t x = 0; x < block_depth; x++) {
              sum += static_cast<double>(left[x]) * static_cast<double>(right[j * block_depth + x]);
            }
            total[i * task_columns + j] += sum * factor * factors[j];
          }
        }
      }
      for (int64_t i = 0; i < rows * task_columns; i++) tile[i] = static_cast<float>(total[i]);
      epilogue(finish, tile, task_columns, {g, i0, j0, rows, count}, partial);
    }
  }

  static void task(void *context, int64_t index) { static_cast<const LargeScales *>(context)->run(index); }
};

static_assert(block_rows * task_columns * (2 * sizeof(float) + sizeof(double)) <= scratch_bytes);

}  // namespace

int64_t panels_of_blocks_bytes(Type type, int64_t k, int64_t n) {
  const int64_t width = kernels<float>().tile_columns;
  return divide_up(n, width) * (k / block_depth) * bytes_of_block(type, width);
}

size_t packed_block_bytes(Type type, int64_t k, int64_t n) {
  return static_cast<size_t>(panels_of_blocks_bytes(type, k, n) + 1);
}

void pack_blocks(const Matrix &b, int64_t k, int64_t n, void *packed) {
  BlockTasks tasks{b, k, n, kernels<float>().tile_columns, static_cast<uint8_t *>(packed)};
  const double elements = static_cast<double>(k) * static_cast<double>(n);
  parallel_for(divide_up(n, tasks.width), useful_threads(elements, elements), BlockTasks::task, &tasks);
  static_cast<char *>(packed)[panels_of_blocks_bytes(b.type, k, n)] = has_large_scales(b, n, k, 1);
}

bool has_large_scales(const Matrix &m, int64_t lines, int64_t k, int64_t batch) {
  if (m.scale.kind != ScaleKind::block32 || block_index(m.type) < 0) return false;
  if (m.packed) return static_cast<const char *>(m.data)[panels_of_blocks_bytes(m.type, k, lines)] != 0;
  if (!m.scale.data) return false;
  const int64_t count = lines * (k / block_depth);
  for (int64_t g = 0; g < (m.scale.batch_stride ? batch : smaller(1, batch)); g++) {
    if (any_large(scales_of(m, g), count, m.type)) return true;
  }
  return false;
}

bool run_large_scales(const Problem &p) {
  if (p.amax) *p.amax = 0;
  if (p.m == 0 || p.n == 0 || p.batch == 0) return false;
  LargeScales tasks{p, kernels<float>(), make_finish<float>(p), kernels<float>().epilogue(p)};
  if (p.reduction == Reduction::result_columns) {
    tasks.sums = new (std::nothrow) float[static_cast<size_t>(p.batch * p.n)]();
    if (!tasks.sums) return false;
  }
  const double work = static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k * p.batch);
  parallel_for(tasks.chunks * p.batch, useful_threads(work, 0), LargeScales::task, &tasks);
  if (tasks.sums) finish_sums<float>(p, tasks.sums, 1);
  delete[] tasks.sums;
  return true;
}

}  // namespace rocpy_host::gemm
