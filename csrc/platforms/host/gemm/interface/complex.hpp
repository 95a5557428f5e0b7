// SPDX-License-Identifier: MIT
// Complex products: a family of their own, whose kernels see real and imaginary parts as separate planes.
#pragma once

#include "gemm.hpp"

namespace rocpy_host::gemm {

constexpr int max_complex_rows = 6;
constexpr int max_few_complex = 4;  // rows of a small matrix against the lines of a large one

// Sums over x of a(i, x) * b(j, x) for j < n, x adjacent in both: their real parts go to out[i * out_row +
// j * out_column], the imaginary ones `imaginary` behind. Strides of a and b are in elements, those of out in parts; a
// sign of -1 multiplies the conjugate. Each lane of a vector sums its own share of x, then the lanes are added by
// halves.
template <class T>
struct ComplexDotCall {
  int64_t k;
  const T *a;
  int64_t a_stride;
  const T *b;
  int64_t b_stride, n;
  T a_sign, b_sign;
  T *out;
  int64_t out_row, out_column, imaginary;
  bool first;  // out holds nothing yet
};

// Sums over x of a(x, i) * b(x, j) for j < n, x ascending: those with the real parts of a at acc + 2 * i * acc_stride,
// those with the imaginary ones acc_stride behind, the parts of b side by side. a is [x][re, im of each row], a_stride
// apart. acc is written up to whole vectors; its stride, and a's, are in parts.
template <class T>
struct ComplexWideCall {
  int64_t k;
  const T *a;
  int64_t a_stride;
  const T *b;
  int64_t b_stride, n;
  T *acc;
  int64_t acc_stride;
  bool first;
};

// What a kernel set offers complex products; T is the type of a part.
template <class T>
struct ComplexKernels {
  int rows;   // most rows of a register tile
  int width;  // columns of a register tile and of a packed panel

  // acc (+)= a tile of a times a panel of b, k ascending: of each element four fused multiply-adds a step, those of the
  // real part ar*br then -ai*bi, those of the imaginary part ar*bi then ai*br. a is packed as [x][rows][re, im, -im], b
  // as [x][re * width, im * width], acc as [rows][re * width, im * width].
  using Tile = void (*)(int64_t k, const T *a, const T *b, T *acc, bool first);
  Tile tile[max_complex_rows + 1];

  // A block of a matrix in that order. Strides are in elements; `sign` is -1 for the conjugate.
  void (*pack_rows)(const T *from, int64_t x_stride, int64_t row_stride, T sign, int64_t k, int rows, T *to);
  void (*pack_columns)(const T *from, int64_t x_stride, int64_t column_stride, T sign, int64_t k, int count, T *to);

  // By rows of a.
  void (*dot[max_few_complex + 1])(const ComplexDotCall<T> &);
  void (*wide[max_few_complex + 1])(const ComplexWideCall<T> &);

  // rows x columns of d at (i, j) of batch entry g from a tile of sums, [rows][re * tile_columns, im * tile_columns].
  void (*finish)(const Problem &p, const T *acc, int64_t tile_columns, int64_t g, int64_t i, int64_t j, int64_t rows,
                 int64_t columns);
};

// Ids are recorded in tuning databases: an id is never given to another meaning. 501 and 502 were these before.
constexpr Algorithm complex_algorithms[] = {{601, "complex-direct"}, {602, "complex-blocked"}, {603, "complex-skinny"}};
constexpr int complex_count = 3;

inline bool is_complex(Type type) { return type == Type::c32 || type == Type::c64; }
const Algorithm *find_complex(int32_t id);

// As the functions of gemm.hpp, for problems whose compute type is complex.
bool complex_supports(int32_t id, const Problem &problem, size_t *workspace_bytes);
bool complex_batch_invariant(int32_t id, const Problem &problem);
int complex_rank(const Problem &problem, size_t max_workspace_bytes, int capacity, Candidate *candidates);
bool complex_run(int32_t id, const Problem &problem, void *workspace, size_t workspace_bytes);
size_t complex_packed_bytes(Type compute, int64_t k, int64_t n);
void complex_pack(const Matrix &b, Type compute, int64_t k, int64_t n, void *packed);

}  // namespace rocpy_host::gemm
