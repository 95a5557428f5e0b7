// SPDX-License-Identifier: MIT
// Packing of operands with a scale for every 32 of k.
#include "blocks.hpp"

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

}  // namespace rocpy_host::gemm
