// SPDX-License-Identifier: MIT
// What the drivers share: the checked problem in the compute type, the scratch of a thread, and the algorithm table's
// row.
#pragma once

#include <type_traits>

#include "isa.hpp"
#include "operand.hpp"
#include "threads.hpp"

namespace rocpy_host::gemm {

enum class Family : uint8_t { direct, skinny, blocked, split, small };

// One algorithm: a driver and its block sizes. Rows and columns are of float; double takes half the columns.
struct Variant {
  Algorithm algorithm;
  Family family;
  int rows, columns, depth;  // of a task's block; depth is the k of one pass (split: of one part)
};

// A fixed size per thread, enough for every variant's blocks.
constexpr size_t scratch_bytes = size_t{5} << 19;

// The calling thread's scratch, 64-byte aligned, held while this lives. Made at the thread's first product. When memory
// is short the threads take turns with one static buffer.
class Scratch {
 public:
  Scratch();
  ~Scratch();
  Scratch(const Scratch &) = delete;
  Scratch &operator=(const Scratch &) = delete;
  template <class T>
  T *at(size_t bytes) const {
    return reinterpret_cast<T *>(data_ + bytes);
  }

 private:
  char *data_;
  bool shared_ = false;
};

constexpr int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }
constexpr int64_t round_up(int64_t a, int64_t b) { return divide_up(a, b) * b; }
constexpr int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
constexpr int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

// Sums of integers are modulo 2^32.
template <class T>
T sum_of(T a, T b) {
  return a + b;
}
template <>
inline int32_t sum_of(int32_t a, int32_t b) {
  return static_cast<int32_t>(static_cast<uint32_t>(a) + static_cast<uint32_t>(b));
}

inline const char *offset(const void *data, Type type, int64_t elements) {
  return static_cast<const char *>(data) + elements * element_bits[static_cast<int>(type)] / 8;
}

// A product may be absent: with alpha 0 the operands may be null, and then count as empty.
inline int64_t effective_k(const Problem &p) {
  return p.alpha == 0 && !p.alpha_vector && (!p.a.data || !p.b.data) ? 0 : p.k;
}

template <class T>
Finish<T> make_finish(const Problem &p) {
  return {&p, static_cast<T>(p.alpha), static_cast<T>(p.beta), static_cast<T>(p.low), static_cast<T>(p.high)};
}
// Numbers beyond the range of int32_t are held to it.
inline int32_t to_int32(double x) {
  return x >= 2147483647.0 ? INT32_MAX : x >= -2147483648.0 ? static_cast<int32_t>(x) : INT32_MIN;
}
template <>
inline Finish<int32_t> make_finish<int32_t>(const Problem &p) {
  return {&p, to_int32(p.alpha), to_int32(p.beta), to_int32(p.low), to_int32(p.high), make_finish<float>(p)};
}

// The type of compute type T, and the values (elements, or groups of integers) along k.
template <class T>
constexpr Type arithmetic_type = sizeof(T) == 8 ? Type::f64 : Type::f32;
template <>
inline constexpr Type arithmetic_type<int32_t> = Type::i32;
constexpr int64_t values_of(int64_t k, int group) { return group == 1 ? k : group == 2 ? (k + 1) / 2 : (k + 3) / 4; }

// Rows and columns of a register tile.
inline int64_t tile_rows_of(const Problem &p) {
  return p.compute == Type::f64 ? kernels<double>().tile_rows : kernels<float>().tile_rows;
}
inline int64_t tile_columns_of(const Problem &p) {
  return p.compute == Type::f64 ? kernels<double>().tile_columns : kernels<float>().tile_columns;
}

// Of register tiles: products whose operands bfloat16 can hold are made of pairs where an instruction multiplies these,
// and where so many rows read b, which is always copied then, that it pays. No bit of a result depends on it.
bool multiplies_pairs(const Problem &p);
// The same of few rows against a large matrix that is read where it is. Of bytes no number is so small that pairs would
// lose it; of bfloat16 it may be.
bool multiplies_few_pairs(const Problem &p);
template <class T>
const Kernels<T> &tile_kernels(const Problem &p) {
  if constexpr (std::is_same_v<T, float>) {
    if (multiplies_pairs(p)) return *kernel_set().pairs;
  }
  return kernels<T>();
}
inline int group_of(const Problem &p) {
  return p.compute == Type::i32 ? kernels<int32_t>().group : multiplies_pairs(p) ? 2 : 1;
}

// Low tiles are of sets with 16 registers: they read b more often, and have narrower panels.
template <class T>
bool low_tiles(const Kernels<T> &kernel) {
  return kernel.tile_rows <= 8;
}
inline bool low_tiles(const Problem &p) {
  return p.compute == Type::f64 ? low_tiles(kernels<double>()) : low_tiles(kernels<float>());
}

// Too little work to be cut into tasks for several threads.
inline bool is_small(const Problem &p) {
  return static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k) < 4e6;
}
// Tasks that threads find enough to share: of two threads so many for each, since more copy operands more often.
constexpr int64_t tasks_of_threads = 12, tasks_of_each_thread = 4;

// Factors that belong to the epilogue.
inline bool has_factors(const Problem &p) {
  const auto factor = [](const Scale &s) { return s.kind == ScaleKind::scalar || s.kind == ScaleKind::vector; };
  return factor(p.a.scale) || factor(p.b.scale) || p.c_scale || p.d_scale || p.aux_scale || p.amax;
}

// Whether the sums, of `type`, are the result, but for a bias of each column, of that type.
inline bool is_plain_but_bias(const Problem &p, Type type) {
  return p.d_type == type && p.alpha == 1 && !p.alpha_vector && p.beta == 0 && !has_factors(p) &&
         p.activation == Activation::none && !p.program && p.aux == Aux::none &&
         p.reduction != Reduction::result_columns && (!p.has_bias || (!p.bias_per_row && p.bias_type == type));
}
inline bool is_plain(const Problem &p, Type type) { return !p.has_bias && is_plain_but_bias(p, type); }

// Whether rows of the result and of all that goes into it lie one behind the other, and no number is of a row or a
// column alone: they may count as one row.
inline bool rows_are_one(const Problem &p) {
  return p.d_row_stride == p.n && (p.beta == 0 || p.c_row_stride == p.n) && !p.has_bias && !p.alpha_vector &&
         !p.program && (p.aux == Aux::none || p.aux_row_stride == p.n) && p.a.scale.kind != ScaleKind::vector &&
         p.b.scale.kind != ScaleKind::vector;
}

// Threads worth waking for so much work: some microseconds each. Those of them that the caller may use.
int useful_threads(double multiplications, double bytes);
int threads_for(double multiplications, double bytes);

// Partial column sums of the result: `blocks` rows of n values per batch entry, in the workspace.
inline size_t sums_bytes(const Problem &p, int64_t blocks) {
  if (p.reduction != Reduction::result_columns) return 0;
  size_t value = p.compute == Type::f64 ? 8 : 4;
  return static_cast<size_t>(round_up(static_cast<int64_t>(value) * p.n * blocks * p.batch, 64));
}

// Adds the partial sums in block order and writes the bias gradient. Batch entries with bias stride 0 share one
// gradient.
template <class T>
void finish_sums(const Problem &p, const T *sums, int64_t blocks);
// The sums over a's rows or b's columns, which are no part of the product.
template <class T>
void operand_sums(const Problem &p);

// Each family: does the variant take the problem (types and shapes have been checked), the workspace it needs, and the
// run.
struct Blocks {
  int64_t tiles, tile_rows, block_tiles, blocks;  // of rows
  int64_t panels, chunk_panels, chunks;           // of columns
  int64_t depth;                                  // of a pass: so many values of a row of a are copied together
  int64_t panel_depth;                            // of a panel within it, before the next panel
  int64_t copied_depth;                           // of a panel that is copied, if one is
  bool a_in_place;                                // tiles read rows of a where they are
};
// `threads` that take the tasks, 0 where that is not known yet: columns are cut for them. No bit depends on how these
// are cut.
Blocks make_blocks(const Variant &variant, const Problem &p, int threads = 0);

// Into how many tasks `units` are cut, as many for each of `alike` parts, so that the thread that does most does least:
// as near to `wanted` as can be, at most by half as few and twice as many, not below `least`, and not beyond `most`.
struct TaskCounts {
  int64_t least, wanted, most;
};
int64_t shared_evenly(const TaskCounts &counts, int64_t units, int64_t alike, int64_t threads);

size_t tiled_workspace(const Variant &variant, const Problem &p);
template <class T>
void run_tiled(const Variant &variant, const Problem &p, void *workspace);

// The product alone, into parts of m x n adjacent values: part s has the s-th `depth` of k. b is not packed.
template <class T>
void run_parts(const Variant &variant, const Problem &p, int64_t g, int64_t depth, int64_t parts, T *out);

// What a skinny product reads of its large matrix, b beside few rows or a beside few columns: vectors along its lines
// (wide), each of which is one of k, or dot products with lines along k.
enum class SkinnyShape : uint8_t { none, rows_wide, rows_dot, columns_wide, columns_dot };
SkinnyShape skinny_shape(const Problem &p);
constexpr bool along_rows(SkinnyShape shape) {
  return shape == SkinnyShape::rows_wide || shape == SkinnyShape::rows_dot;
}
constexpr bool along_k(SkinnyShape shape) {
  return shape == SkinnyShape::rows_dot || shape == SkinnyShape::columns_dot;
}

// b as rows, where it was packed and one panel holds all of it: a panel's rows are a panel's width apart.
Problem with_rows(const Problem &p);
bool skinny_takes(const Problem &p);
size_t skinny_workspace(const Variant &variant, const Problem &p);
template <class T>
void run_skinny(const Variant &variant, const Problem &p, void *workspace);

// No workspace. Sums are those of tiles.
bool small_takes(const Variant &variant, const Problem &p);
// Whether rows of b, which fall on the same cache sets, are copied for so many rows of tiles.
bool small_copies(const Problem &p, int64_t tiles);
template <class T>
void run_small(const Problem &p);

bool split_takes(const Variant &variant, const Problem &p);
size_t split_workspace(const Variant &variant, const Problem &p);
template <class T>
void run_split(const Variant &variant, const Problem &p, void *workspace);

// The least magnitude of an operand for pairs that was packed, or is of bytes: of bfloat16 it lies behind the panels,
// of bytes it is that of all formats.
constexpr int least_byte = (127 - 17) << 7, no_magnitude = 0x10000;
int least_packed(const Problem &p);
// Whether an instruction that takes subnormal numbers for zero meets none, be it in a product or in a sum: all of these
// are multiples of the last bit of the least product.
bool loses_nothing(int least_left, int least_right);
int64_t panels_bytes(Type type, int64_t k, int64_t n);

// Panels of a whole operand b: tile_columns wide, all of k in each, the last one filled up with zeros.
template <class T>
void pack_operand(const Kernels<T> &kernel, const Matrix &b, int64_t k, int64_t n, bool same_type, void *to);

}  // namespace rocpy_host::gemm
