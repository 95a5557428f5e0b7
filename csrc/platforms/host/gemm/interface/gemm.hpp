// SPDX-License-Identifier: MIT
// The product engine behind hipblasLtMatmul: what a problem is, which algorithms there are and how one runs. It knows
// neither HIP nor hipBLASLt; hipblaslt_matmul.cpp translates. The engine is row-major: a column-major product of
// hipBLASLt arrives transposed, so hipBLASLt's m is `n` here, its A is `b` and its bias along m lies along the columns.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rocpy_host::gemm {

// c32 and c64 are pairs of floats and doubles. The types of less than a byte lie packed along the axis whose stride is
// 1, the first element in the lowest bits: two e2m1 to a byte, four e2m3 or e3m2 to three bytes.
enum class Type : uint8_t {
  f32,
  f64,
  f16,
  bf16,
  e4m3,
  e5m2,
  e4m3_fnuz,
  e5m2_fnuz,
  e2m3,
  e3m2,
  e2m1,
  i8,
  i32,
  c32,
  c64,
  u8  // only beside a product: operands of tile programs
};
int bits_of(Type type);
size_t size_of(Type type);  // bytes; of whole-byte types only

enum class Activation : uint8_t { none, relu, gelu, silu, sigmoid, clamp, drelu, dgelu };

// What happens to the auxiliary matrix: the pre-activation is stored, or read by a gradient (drelu and dgelu, and only
// these).
enum class Aux : uint8_t { none, store, load };

// A bias gradient: a sum that is written to `bias` (then an output), of the unrounded result's columns, of a's rows, or
// of b's columns (b not packed). With bias_batch_stride 0 the batch entries are summed into one.
enum class Reduction : uint8_t { none, result_columns, a_rows, b_columns };

// Factors of an operand's elements, applied before the product: one float; one float for each row of a or column of b;
// or one e8m0 byte for every 32 neighbours along k, k / 32 adjacent bytes for each row of a or column of b.
enum class ScaleKind : uint8_t { none, scalar, vector, block32 };
struct Scale {
  const void *data = nullptr;
  int64_t batch_stride = 0;  // elements
  ScaleKind kind = ScaleKind::none;
};

// An operand that is read. Strides are in elements and may be anything, zero and negative included.
struct Matrix {
  const void *data = nullptr;
  int64_t row_stride = 0, column_stride = 0, batch_stride = 0;
  Type type = Type::f32;
  bool packed = false;      // made by pack(); only for `b`; strides are then ignored and every batch entry uses it
  bool conjugated = false;  // of complex types: the conjugate is multiplied
  Scale scale;
};

struct BoundProgram;  // expression.hpp

// D = activation(alpha * (a @ b) + beta * c + bias), per batch entry; see facts on order in hipblaslt_matmul.cpp.
// Pointers may be null while a problem is only ranked: no decision may look at a pointer or at the number of threads.
struct Problem {
  int64_t m = 0, n = 0, k = 0, batch = 1;
  // Of accumulation: f32, f64, i32 (of i8 operands), c32 or c64. The epilogue is in the same type, but after i32 in f32
  // when the result is not an integer.
  Type compute = Type::f32;
  Matrix a, b;  // m x k and k x n
  const void *c =
      nullptr;        // m x n of d's type, columns adjacent; never read when beta is 0; may equal d with equal strides
  void *d = nullptr;  // m x n, columns adjacent
  int64_t c_row_stride = 0, c_batch_stride = 0, d_row_stride = 0, d_batch_stride = 0;
  double alpha = 1.0, beta = 0.0;
  double alpha_imaginary = 0.0, beta_imaginary = 0.0;  // of complex compute types
  const void *alpha_vector = nullptr;                  // n factors of the epilogue's type, in place of alpha
  void *bias = nullptr;  // n (m if bias_per_row) elements, adjacent; output when reduction is not none
  int64_t bias_batch_stride = 0;
  void *aux_data = nullptr;  // m x n, columns adjacent
  int64_t aux_row_stride = 0, aux_batch_stride = 0;
  double low = 0.0, high = 0.0;  // of clamp
  // One float each, or null for 1: c is multiplied by c_scale before beta, the result by d_scale and what is stored in
  // aux by aux_scale after the epilogue, just before rounding. A loaded aux is divided by aux_scale.
  const float *c_scale = nullptr, *d_scale = nullptr, *aux_scale = nullptr;
  float *amax = nullptr;  // output: the largest magnitude of the result, over the batch, before d_scale
  Type d_type = Type::f32, bias_type = Type::f32, aux_type = Type::f32;
  Activation activation = Activation::none;
  Aux aux = Aux::none;
  Reduction reduction = Reduction::none;
  bool has_bias = false;  // the bias is added (and reduction is none)
  bool bias_per_row = false;
  // In place of the activation, which only decides about aux then. With a program of pairs n counts the product's
  // columns, which are also those of bias and aux; d has half as many. Strides of its operands are those of d's rows
  // and columns, or, if transposed, of its columns and rows.
  const BoundProgram *program = nullptr;
  bool program_transposed = false;
  // An algorithm that is known to take the problem without a workspace, whatever its pointers and factors are; 0: none.
  int32_t taken_by = 0;
};

struct Algorithm {
  int32_t id;  // stable across builds: recorded in tuning databases
  const char *name;
};

struct Candidate {
  int32_t id;
  size_t workspace_bytes;
  float predicted_us;  // one thread, relative worth only
};

int algorithm_count();
const Algorithm &algorithm(int index);
const char *algorithm_name(int32_t id);  // null when there is none with this id

// Whether algorithm `id` takes the problem, and with how much workspace (256-byte aligned by the caller).
bool supports(int32_t id, const Problem &problem, size_t *workspace_bytes);

// Writes the algorithms that take the problem within the limit, best first; returns how many were written.
int rank(const Problem &problem, size_t max_workspace_bytes, int capacity, Candidate *candidates);

// Whether a row's bits are the same whatever m is and whatever the other rows hold, among all algorithms of which this
// is true: such an algorithm takes every m.
bool batch_invariant(int32_t id, const Problem &problem);

// Runs it on the calling thread and the pool. False: the algorithm does not take the problem or the workspace is too
// small; nothing was written then. Never throws, keeps no state, and leaves the floating-point environment as it was.
bool run(int32_t id, const Problem &problem, void *workspace, size_t workspace_bytes);

// An opaque copy of a k x n operand `b` that run() takes without packing it again.
size_t packed_bytes(Type type, Type compute, int64_t k, int64_t n);
void pack(const Matrix &b, Type compute, int64_t k, int64_t n, void *packed);

// The kernel set in use: avx512_bf16, avx512_vbmi, avx512_vnni, avx512, avx2_vnni, avx2, neon or baseline.
const char *isa_name();

}  // namespace rocpy_host::gemm
