// SPDX-License-Identifier: MIT
// Tests of the product engine: few rows against packed weights.
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
    for (int64_t m : {1, 2, 3, 4, 6, 7, 12, 13, 18, 19, 28, 29, 42, 43}) {
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
    for (int64_t m : {1, 2, 5, 13, 17}) {
      c.m = m;
      c.n = 70;
      c.k = held_bytes / (m * static_cast<int64_t>(size_of(c.d))) + 9;
      run_case(c);
    }
  }
}

}  // namespace
}  // namespace gemm_test

int main() {
  using namespace gemm_test;
  return with_kernel_sets([](const char *) { packed_few_rows(); }, checks, failures);
}
