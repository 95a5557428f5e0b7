// SPDX-License-Identifier: MIT
// Tests of the product engine: few rows against weights that are packed, and against 8-bit floats that are no numbers.
#include "blocking.hpp"
#include "gemm_check.hpp"
#include "gemm_sets.hpp"

namespace gemm_test {
namespace {

// Packed panels that few rows read from end to end: one tile and several, in one pass, in several, and in the most that
// a thread's scratch must hold; few columns and more than registers take side by side.
void packed_few_rows() {
  const Type sets[][3] = {{Type::f32, Type::f32, Type::f32},
                          {Type::bf16, Type::bf16, Type::f32},
                          {Type::bf16, Type::e4m3, Type::f32},
                          {Type::f64, Type::f64, Type::f64}};
  int turn = 0;
  for (auto &set : sets) {
    Case c;
    c.a = set[0];
    c.b = set[1];
    c.d = c.bias = set[2];
    c.packed = true;
    for (int64_t m : {1, 2, 3, 4, 6, 7, 8, 12, 13, 18, 19, 28, 29, 42, 43}) {
      for (int64_t k : {0, 1, 31, 32, 33, 511, 1025}) {
        c.m = m;
        c.n = turn % 3 ? 131 : 15;
        c.k = k;
        c.has_bias = turn % 2;
        c.activation = turn % 2 ? Activation::gelu : Activation::none;
        c.a_layout = turn % 5 ? Layout::row : Layout::column;
        c.b_layout = turn % 7 ? Layout::row : Layout::column;
        turn++;
        run_case(c);
      }
    }
    for (int64_t m : {1, 2, 4, 5, 8, 13, 17}) {
      c.m = m;
      c.n = 70;
      c.k = held_bytes / (m * static_cast<int64_t>(size_of(c.d))) + 9;
      run_case(c);
    }
  }
}

// Puts a code at `at` that is NaN, or one that is a number, subnormal ones often.
void put_code(unsigned char *codes, int64_t at, Type type, bool nan, Random &random) {
  double value = 0;
  do {
    codes[at] = static_cast<unsigned char>(random.next() & (random.next() % 4 ? 0xff : 0x83));
    value = read(codes, type, at);
  } while (nan ? !std::isnan(value) : !std::isfinite(value));
}

// Kernels that take any code for a number, or scale a's elements in place of b's, must tell where that is wrong: NaN in
// a third of the columns, and in one place of a's first row what scaled would be beyond float32, or is infinite.
void special_bytes() {
  Random random;
  int turn = 0;
  for (Type type : {Type::e4m3, Type::e4m3_fnuz, Type::e5m2, Type::e5m2_fnuz}) {
    for (int64_t m : {1, 2, 3, 4, 6}) {
      for (double largest : {1.0, 0x1p119, 0x1p121, static_cast<double>(INFINITY)}) {
        for (int kind = 0; kind < 3; kind++) {
          Case c;
          c.m = m;
          c.n = 115;
          c.k = 61 + 8 * (turn++ % 3);
          c.b = type;
          c.packed = kind == 2;
          c.b_layout = kind == 1 ? Layout::column : Layout::row;
          Operands o(c);
          unsigned char *codes = static_cast<unsigned char *>(o.b.data());
          for (int64_t i = 0; i < c.k * c.n; i++) put_code(codes, i, type, false, random);
          const int64_t place = random.integer(0, c.k - 1);
          o.a.set(0, 0, place, largest);
          for (int64_t j = 0; j < c.n; j++) {
            const bool rows = kind != 1;
            o.b.set(0, rows ? place : j, rows ? j : place, 0.5);
            const int64_t x = random.integer(0, c.k - 1);
            if (j % 3 == 0) put_code(codes, o.b.at(0, rows ? x : j, rows ? j : x), type, true, random);
          }
          o.pack_b();
          const Expected want = reference(o);
          with_each_algorithm(o, [&](int32_t id) {
            for (int64_t i = 0; i < m; i++) {
              for (int64_t j = 0; j < c.n; j++) {
                const size_t at = static_cast<size_t>(i * c.n + j);
                const double got = o.d.get(0, i, j);
                checks++;
                if (got != want.d[at] && !close(got, want.d[at], want.d_bound[at], false)) {
                  return fail("a special byte, or a special factor of bytes", c, id);
                }
              }
            }
          });
        }
      }
    }
  }
}

}  // namespace
}  // namespace gemm_test

int main() {
  using namespace gemm_test;
  return with_kernel_sets(
      [](const char *) {
        packed_few_rows();
        special_bytes();
      },
      checks, failures);
}
