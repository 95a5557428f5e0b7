// SPDX-License-Identifier: MIT
// Tests of the product engine's packed types of 4, 6 and 8 bits with a scale for every 32 neighbours along k: every
// algorithm and kernel set against a reference in double.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <vector>

#include "blocking.hpp"
#include "blocks.hpp"
#include "gemm_case.hpp"
#include "gemm_sets.hpp"
#include "threads.hpp"

namespace gemm_test {
namespace {

int failures = 0;
int64_t checks = 0;

double value_of(Type type, uint8_t code) {
  switch (type) {
    case Type::e2m3:
      return small_to_float<E2m3>(code);
    case Type::e3m2:
      return small_to_float<E3m2>(code);
    case Type::e2m1:
      return small_to_float<E2m1>(code);
    case Type::e4m3:
      return small_to_float<E4m3>(code);
    default:
      return small_to_float<E5m2>(code);
  }
}

// One operand: lines of k packed codes, each a whole number of bytes and of scales apart.
struct Lines {
  Type type;
  int64_t batch, lines, k, line_stride, batch_stride, blocks;
  bool scaled;
  std::vector<uint8_t> bytes, scales;
  std::vector<double> values;

  Lines(Type t, int64_t g, int64_t n, int64_t depth, int64_t gap, bool with_scales, Random &random)
      : type(t), batch(g), lines(n), k(depth), blocks(depth / 32), scaled(with_scales) {
    line_stride = (k + 3) / 4 * 4 + gap * 4;
    batch_stride = line_stride * lines + 4 * gap;
    // Not a byte more than the last element needs: a sanitizer sees what reads beyond.
    const int64_t last = (batch - 1) * batch_stride + (lines - 1) * line_stride + k, width = bits_of(type);
    bytes.assign(static_cast<size_t>((last * width + 7) / 8), 0);
    scales.assign(static_cast<size_t>(batch * lines * blocks), 0);
    for (uint8_t &scale : scales) scale = static_cast<uint8_t>(random.integer(122, 130));
    for (int64_t e = 0; e < batch; e++) {
      for (int64_t i = 0; i < lines; i++) {
        for (int64_t x = 0; x < k; x++) {
          uint8_t code;
          do {
            code = static_cast<uint8_t>(random.integer(0, (1 << width) - 1));
          } while (!(std::fabs(value_of(type, code)) <= 448));
          const int64_t bit = (e * batch_stride + i * line_stride + x) * width;
          for (int64_t j = 0; j < width; j++) {
            if (code >> j & 1) bytes[static_cast<size_t>((bit + j) / 8)] |= static_cast<uint8_t>(1 << (bit + j) % 8);
          }
          const double factor =
              scaled ? std::exp2(scales[static_cast<size_t>((e * lines + i) * blocks + x / 32)] - 127.0) : 1;
          values.push_back(value_of(type, code) * factor);
        }
      }
    }
  }
  double get(int64_t e, int64_t i, int64_t x) const { return values[static_cast<size_t>((e * lines + i) * k + x)]; }

  Matrix matrix(bool left) const {
    Matrix m;
    m.data = bytes.data();
    m.type = type;
    (left ? m.row_stride : m.column_stride) = line_stride;
    (left ? m.column_stride : m.row_stride) = 1;
    m.batch_stride = batch_stride;
    if (scaled) m.scale = {scales.data(), lines * blocks, ScaleKind::block32};
    return m;
  }
};

// A packed copy of an operand and its scales, guarded at its end.
struct Packed {
  std::vector<uint8_t> bytes;
  Packed(const Matrix &b, int64_t k, int64_t n) : bytes(packed_block_bytes(b.type, k, n) + 64, 0xa5) {
    pack_blocks(b, k, n, bytes.data());
    for (size_t i = bytes.size() - 64; i < bytes.size(); i++) failures += bytes[i] != 0xa5;
    bytes.resize(bytes.size() - 64);
  }
  void replace(Matrix *b) const {
    b->data = bytes.data();
    b->packed = true;
    b->scale.data = nullptr;
  }
};

struct Case {
  Type a_type, b_type, d_type;
  int64_t m, n, k, batch, gap;
  bool scaled, packed = false;
};

// What the algorithm wrote beside the rows, or not within the bound of what it should have written.
void compare(const Case &c, const Lines &a, const Lines &b, const Problem &p, const char *name) {
  const auto [a_type, b_type, d_type, m, n, k, batch, gap, scaled, packed] = c;
  const char *d = static_cast<const char *>(p.d);
  const auto size = static_cast<int64_t>(size_of(d_type));
  for (int64_t e = 0; e < batch; e++) {
    for (int64_t i = 0; i < m; i++) {
      const char *row = d + (e * m + i) * p.d_row_stride * size;
      for (int64_t at = n * size; at < p.d_row_stride * size; at++) {
        if (row[at] == '\xa5') continue;
        if (failures++ < 20) {
          printf("FAILED %s %s: wrote beside row %lld of %lld columns\n", isa_name(), name, static_cast<long long>(i),
                 static_cast<long long>(n));
        }
        break;
      }
      for (int64_t j = 0; j < n; j++) {
        double sum = 0, magnitude = 0;
        for (int64_t x = 0; x < k; x++) {
          const double term = a.get(e, i, x) * b.get(e, j, x);
          sum += term;
          magnitude += std::fabs(term);
        }
        const double want = p.alpha * sum, got = read(d, d_type, (e * m + i) * p.d_row_stride + j);
        const double bound = static_cast<double>(k + 8) * 0x1p-24 * p.alpha * magnitude + rounding(d_type, want);
        checks++;
        if (std::fabs(got - want) <= bound) continue;
        if (failures++ < 20) {
          printf("FAILED %s %s: types %d %d %d, (%lld, %lld, %lld) x %lld: [%lld, %lld] is %g, not %g\n", isa_name(),
                 name, static_cast<int>(a_type), static_cast<int>(b_type), static_cast<int>(d_type),
                 static_cast<long long>(m), static_cast<long long>(n), static_cast<long long>(k),
                 static_cast<long long>(batch), static_cast<long long>(i), static_cast<long long>(j), got, want);
        }
      }
    }
  }
}

void check(const Case &c, Random &random) {
  const auto [a_type, b_type, d_type, m, n, k, batch, gap, scaled, packed] = c;
  const Lines a(a_type, batch, m, k, gap, scaled, random), b(b_type, batch, n, k, gap, scaled, random);
  Problem p;
  p.m = m;
  p.n = n;
  p.k = k;
  p.batch = batch;
  p.a = a.matrix(true);
  p.b = b.matrix(false);
  p.d_type = p.bias_type = d_type;
  p.alpha = (m + n) % 2 ? 0.125 : 1;  // with 1, sums that are the result are written by the tiles
  const int64_t beside = 3;           // elements between two rows of the result
  p.d_row_stride = n + beside;
  p.d_batch_stride = m * p.d_row_stride;
  const Packed copy(scaled ? p.b : Matrix{}, scaled ? k : 0, scaled ? n : 0);
  if (packed) copy.replace(&p.b);
  Candidate found[variant_count];
  const int count = rank(p, SIZE_MAX, variant_count, found);
  if (count == 0) failures++;
  for (int r = 0; r < count; r++) {
    for (int threads : {1, 0}) {
      std::vector<char> d(static_cast<size_t>(batch * p.d_batch_stride) * size_of(d_type), '\xa5'),
          workspace(found[r].workspace_bytes + 256);
      p.d = d.data();
      set_thread_limit(threads);
      char *space = workspace.data() + (256 - reinterpret_cast<uintptr_t>(workspace.data()) % 256) % 256;
      if (!run(found[r].id, p, space, found[r].workspace_bytes)) failures++;
      compare(c, a, b, p, algorithm_name(found[r].id));
    }
    set_thread_limit(0);
  }
}

void types() {
  const Type operands[] = {Type::e4m3, Type::e5m2, Type::e2m3, Type::e3m2, Type::e2m1};
  const Type results[] = {Type::f32, Type::f16, Type::bf16};
  Random random;
  int turn = 0;
  for (Type a : operands) {
    for (Type b : operands) {
      const auto large = [](Type type) { return bits_of(type) == 8 || type == Type::e3m2; };
      const Type d = results[turn % 3] == Type::f16 && (large(a) || large(b)) ? Type::f32 : results[turn % 3];
      check({a, b, d, 1 + turn * 5 % 37, 1 + turn * 7 % 67, 32 * (1 + turn % 9), 1 + turn % 2, turn % 3, true}, random);
      check({a, b, d, 1 + turn * 5 % 21, 1 + turn * 7 % 67, 32 * (1 + turn % 9), 1, turn % 3, true, true}, random);
      check({a, b, Type::f32, 1 + turn * 3 % 20, 1 + turn % 40, 1 + turn * 13 % 150, 1 + turn % 2, turn % 2, false},
            random);
      turn++;
    }
  }
}

// Sizes on both sides of register tiles and of every variant's blocks; along k, of the blocks of 32.
void sizes() {
  Random random;
  for (const Variant &v : variants) {
    for (int step = -1; step <= 1; step++) {
      check({Type::e2m1, Type::e2m1, Type::f32, v.rows + step, 5, 64, 1, 0, true}, random);
      check({Type::e2m3, Type::e2m1, Type::f32, 3, v.columns + step, 32, 1, 1, true}, random);
      check({Type::e2m1, Type::e4m3, Type::f32, 3, 5, v.depth + 32 * step, 1, 0, true}, random);
      check({Type::e2m1, Type::e3m2, Type::f32, v.rows + step, 5, v.depth + 32, 1, 0, true, true}, random);
      check({Type::e4m3, Type::e2m1, Type::f32, 3, v.columns + step, 32, 1, 0, true, true}, random);
      check({Type::e2m1, Type::e2m1, Type::f32, 8, 33, v.depth + 32 * step, 1, 0, true, true}, random);
    }
  }
  for (int64_t m : {13, 14, 15}) {
    for (int64_t n : {15, 16, 17, 31, 32, 33}) {
      check({Type::e3m2, Type::e2m1, Type::bf16, m, n, 96, 1, 0, true}, random);
    }
  }
}

// A scale of 255 is NaN, and taints all that its 32 elements touch; one block for each side of the range is exact.
void special_scales() {
  Random random;
  Lines a(Type::e2m1, 1, 3, 64, 0, true, random), b(Type::e2m1, 1, 4, 64, 0, true, random);
  for (uint8_t &byte : a.bytes) byte = 0x22;
  for (uint8_t &byte : b.bytes) byte = 0x22;  // all ones
  for (uint8_t &scale : a.scales) scale = 127;
  for (uint8_t &scale : b.scales) scale = 127;
  a.scales[2] = 255;
  b.scales[2] = 227;
  a.scales[0] = 27;
  b.scales[0] = 0;
  Problem p;
  p.m = 3;
  p.n = 4;
  p.k = 64;
  p.a = a.matrix(true);
  p.b = b.matrix(false);
  p.d_row_stride = 4;
  const Packed copy(p.b, 64, 4);
  for (int i = 0; i < 2 * algorithm_count(); i++) {
    if (i == algorithm_count()) copy.replace(&p.b);
    const int32_t id = algorithm(i % algorithm_count()).id;
    size_t needed = 0;
    float d[12];
    p.d = d;
    if (!supports(id, p, &needed)) continue;
    std::vector<char> workspace(needed + 256);
    char *space = workspace.data() + (256 - reinterpret_cast<uintptr_t>(workspace.data()) % 256) % 256;
    run(id, p, space, needed);
    for (int j = 0; j < 4; j++) failures += !std::isnan(d[4 + j]);
    // Row 0: 2^-100 * 2^-127 vanishes beside 32; column 1 has 32 * 2^100 in its first block.
    failures += d[0] != 32 || d[1] != 64 || d[2] != 32 || d[8] != 32 || d[9] != 32 * 0x1p100f + 32 || d[11] != 64;
    checks++;
  }
}

}  // namespace
}  // namespace gemm_test

int main() {
  using namespace gemm_test;
  return with_kernel_sets(
      [](const char *) {
        types();
        sizes();
        special_scales();
      },
      checks, failures);
}
