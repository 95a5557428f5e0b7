// SPDX-License-Identifier: MIT
// What a kernel set offers the drivers: plain function pointers, one table per instruction set and compute type, all
// made from kernels.cpp. Drivers hold the loops over blocks; kernels never see a thread, a batch loop or the workspace.
#pragma once

#include "complex.hpp"
#include "gemm.hpp"

namespace rocpy_host::gemm {

constexpr int max_tile_rows = 14;
constexpr int max_skinny_rows = 8;
constexpr int most_wide_rows = 3;  // of small tiles of four vectors
constexpr int max_thin_rows = 8;
constexpr int max_strip_rows = 10;
constexpr int max_turn_rows = 2;
// Of at most four panels of two of the widest vectors.
constexpr int64_t most_strip_columns = 4 * 2 * 16;

// Element types as table index: of compute type float, f32 f16 bf16 and the 8-bit formats; of double, only f64 (index
// 0); of int32_t, i8 (index 0), and where a value of a panel holds halves the bytes of panels that callers keep. The
// first few are read in place by register tiles, the others are widened first.
constexpr int element_type_count = 7, tile_element_type_count = 3, integer_bytes_index = 1;
// Element types that may have a scale for every 32 of k, as table index: see block_index().
constexpr int block_type_count = 5;

// What the epilogue needs of a problem, with scalars in the compute type.
template <class T>
struct Finish {
  const Problem *problem = nullptr;
  T alpha = 1, beta = 0, low = 0, high = 0;
};
// Sums of integers: the result is an integer, or the epilogue is that of float.
template <>
struct Finish<int32_t> {
  const Problem *problem = nullptr;
  int32_t alpha = 1, beta = 0, low = 0, high = 0;
  Finish<float> real;
};

namespace {
// Whether the epilogue after sums of integers is one of integers.
inline bool integer_epilogue(const Problem &p) {
  const auto integer = [](Type type) { return type == Type::i8 || type == Type::i32; };
  const bool scaled = p.a.scale.kind != ScaleKind::none || p.b.scale.kind != ScaleKind::none || p.c_scale || p.d_scale;
  return p.d_type == Type::i32 ||
         (p.d_type == Type::i8 && !scaled && !p.program && !(p.has_bias && !integer(p.bias_type)));
}
}  // namespace

// Products of few rows with several packed panels at once, panel_stride elements apart: sums of row i and panel q are
// at in + q * in_panel + i * in_stride, and go to out likewise. As Kernels::tile otherwise, a packed.
template <class T>
struct StripCall {
  int64_t k;
  const T *a;
  const void *b;
  int64_t panel_stride;
  const T *in;
  int64_t in_stride, in_panel;
  T *out;
  int64_t out_stride, out_panel;
  bool from_memory;         // b is larger than caches are taken to be
  bool one_by_one = false;  // of pairs: as the tiles at one_by_one_index
  // Of turns: how far apart the steps of a are, and what of each panel is fetched, in bytes from b on and a step.
  int64_t a_step = 0, fetch_ahead = 0, fetch_step = 0;
};
template <class T>
struct Strips {
  using Kernel = void (*)(const StripCall<T> &);
  Kernel kernel[max_strip_rows + 1];  // by rows; null where there is none
  int panels[max_strip_rows + 1];
  // Of rows that take turns: turn_rows at a time or fewer, with as many panels as turn_rows have; 0 where none do.
  Kernel turn[max_turn_rows + 1];
  int turn_rows;
  // Tiles of other numbers of rows were measured to be faster by themselves.
  bool takes_turns(int64_t rows, int64_t rows_of_tile) const {
    return turn_rows && rows_of_tile == 2 * turn_rows && rows <= 4 * turn_rows;
  }
};

// out[i][j] = in[i][j] + sum over x of a(i, x) * b(x, j), x ascending, every step one fused multiply-add (two roundings
// where the instruction set has none), plus bias[j] where there is one. in may be null (zero). a is packed as
// [x][rows], or has rows at a_stride with x adjacent. b has columns adjacent and x at b_stride. A row of as much as a
// tile reads of b is prefetched for every prefetch_pace + 1 of x, which is a power of two, or for fewer, from prefetch
// on at prefetch_stride. Tiles that copy write the rows of b to `copy` too, in the compute type and one after the
// other.
template <class T>
struct TileCall {
  int64_t k;
  const T *a;
  int64_t a_stride;
  const void *b;
  int64_t b_stride;
  const T *in;
  int64_t in_stride;
  T *out;
  int64_t out_stride;
  const char *prefetch;
  int64_t prefetch_stride, prefetch_pace;
  int loaded, stored;  // lanes of the last vector of b and of out that exist; all of them where tiles have no masks
  T *copy = nullptr;
  const T *bias = nullptr;  // as much of it as of a row of out is there
};

// out(i, j) = sum over x of a(i, x) * b(x, j), x ascending, plus bias[j] where there is one, with b's columns adjacent:
// both operands where they are. Of so many tiles as lie side by side, all alike.
template <class T>
struct SmallCall {
  int64_t k;
  const T *a;
  int64_t a_row, a_step;  // between rows, and along k
  const T *b;
  int64_t b_step;
  T *out;
  int64_t out_stride;
  int loaded, stored;  // lanes of a tile's last vector of b that exist, and of out that are written
  int64_t tiles = 1;
  const T *bias = nullptr;  // as much of it as of a row of out is there
};

// Lines of b that the rows of sums read side by side. All may fall on the same set of the innermost cache, whose ways
// they are as many as.
constexpr int lines_side_by_side = 8;

// acc[i][j] (+)= sum over x of a[x * a_stride + i] * b(x, j) for j < n: a few rows against long rows of b.
template <class T>
struct WideCall {
  int64_t k;
  const T *a;
  int64_t a_stride;
  const void *b;
  int64_t b_stride, n;
  T *acc;
  int64_t acc_stride;
  bool first;            // acc holds nothing yet
  int *least = nullptr;  // of kernels for pairs of bfloat16: is lowered to the least magnitude of b
};

// out(i, j) (+)= sum over x of a(i, x) * b(x, j), x adjacent in both, for j < n. Each vector lane sums every lanes-th
// x, then the lanes are added by halves.
template <class T>
struct DotCall {
  int64_t k;
  const T *a;
  int64_t a_stride;
  const void *b;
  int64_t b_stride, n;
  T *out;
  int64_t out_row, out_column;
  bool first;
  int *least = nullptr;  // as WideCall's
  bool again = false;    // the lines have been read for other rows, and are in a cache
};

// The same of lines with a scale for every 32 of k. The strides of lines and scales are in bytes; k is whole blocks.
struct BlockDotCall {
  DotCall<float> lines;
  const uint8_t *scales;
  int64_t scale_stride;
};

// What depends on the type of an operand's elements.
template <class T>
struct Elements {
  // to[x * to_stride + c] = from(x, c) in the compute type for c < count, and 0 up to width. May write up to a vector
  // beyond the last row.
  using Pack = void (*)(const void *from, int64_t x_stride, int64_t c_stride, int64_t k, int count, int width, T *to,
                        int64_t to_stride);
  Pack pack;
  Pack pack_left;  // of left operands; null where it is the same
  // The same, the type kept.
  using PackSame = void (*)(const void *from, int64_t x_stride, int64_t c_stride, int64_t k, int count, int width,
                            void *to, int64_t to_stride);
  PackSame pack_same;

  void (*wide[max_skinny_rows + 1])(const WideCall<T> &);  // by rows
  int64_t burst[max_skinny_rows + 1];                      // rows of b for one call of it
  void (*dot[max_skinny_rows + 1])(const DotCall<T> &);

  // Tiles of few rows over a packed panel of this type: as Kernels::tile, two vectors wide, a packed. Null where
  // Kernels::tile has the type.
  using Tile = void (*)(const TileCall<T> &);
  Tile thin[max_thin_rows + 1];
  Strips<T> strips;

  // out[c] = sum over x of from(x, c) for c < count.
  using Sum = void (*)(const void *from, int64_t x_stride, int64_t c_stride, int64_t k, int64_t count, T *out);
  Sum sum;
};

// Of operands with a scale for every 32 of k: what depends on the type of their elements.
struct BlockElements {
  void (*dot[max_skinny_rows + 1])(const BlockDotCall &);  // by rows

  // As Elements::thin over a packed panel from the beginning of a block; k is whole blocks.
  Elements<float>::Tile thin[max_thin_rows + 1];

  // `count` rows of a packed panel, from the x-th on, as floats.
  void (*widen)(const void *panel, int64_t x, int64_t count, float *to);
};

// A part of the result: rows x columns of it at (i, j) of batch entry g.
struct Region {
  int64_t g, i, j, rows, columns;
};

// Beside tiles of pairs of bfloat16, those that multiply them one by one.
constexpr int one_by_one_index = 1;

template <class T>
struct Kernels {
  int tile_rows;     // most rows of a register tile
  int tile_columns;  // columns of a register tile and of a packed panel
  int group;         // elements of k in one value of a panel: 1, but of bytes 4 or 2, of pairs of bfloat16 2

  bool masks;  // tiles read and write a part of their last vector, as TileCall says

  using Tile = typename Elements<T>::Tile;
  Tile tile[tile_element_type_count][2][2][max_tile_rows + 1];  // element of b, one or two vectors wide, a packed, rows

  Tile copying[tile_element_type_count][2][max_tile_rows + 1];  // two vectors wide; null where copies go first

  using Small = void (*)(const SmallCall<T> &);
  Small small[3][max_tile_rows + 1];  // one, two or four vectors wide, rows; null of integers

  const Elements<T> *elements[element_type_count];

  // Of integers and of pairs, pack joins a group of x in one value, the last group filled up; the k that kernels take
  // is of values, but in pack, wide and dot of elements. Where bytes of the left operand (a of those functions) have
  // 128 added, `correct` tells tiles what takes it away again: out[j] = -128 * the sum over x of b(x, j). Null
  // otherwise.
  using Correct = void (*)(int64_t k, const T *b, int64_t b_stride, T *out);
  Correct correct;

  // Of pairs of bfloat16, what tells whether tiles may use an instruction that takes subnormal numbers for zero: the
  // least magnitude that is not 0, as its bits, of rows of values at `stride`; 0x10000: there is none. Null otherwise.
  int (*least_magnitude)(const T *from, int64_t rows, int64_t columns, int64_t stride);

  // Turns a tile of sums into a region of the result. Adds the results' column sums to sums unless null.
  using Epilogue = void (*)(const Finish<T> &finish, const T *tile, int64_t stride, const Region &region, T *sums);
  Epilogue (*epilogue)(const Problem &problem);

  // `count` elements, from the x-th on, of a line of packed elements -> float, times the power of two of every 32
  // unless scales is null. x is a multiple of 8.
  void (*decode)(Type type, const void *line, const uint8_t *scales, int64_t x, int64_t count, T *to);

  const BlockElements *blocks;  // by block_index(); null unless T is float

  // values -> an adjacent array of `type` at element offset.
  void (*write)(void *data, Type type, int64_t offset, const T *values, int64_t count);
};

// The epilogues that run a problem's tile program.
struct ProgramKernels {
  Kernels<float>::Epilogue f32;
  Kernels<double>::Epilogue f64;
  Kernels<int32_t>::Epilogue i32;  // of sums of integers, in float
};

struct KernelSet {
  const char *name;
  const Kernels<float> *f32;
  const Kernels<double> *f64;
  const Kernels<int32_t> *i32;
  const ComplexKernels<float> *c32;
  const ComplexKernels<double> *c64;
  // Of products whose operands bfloat16 can hold, some functions of tiled drivers alone; null where no instruction
  // multiplies pairs.
  const Kernels<float> *pairs = nullptr;
};

// The tables of one instruction set, each of which some files are built for.
#define ROCPY_KERNEL_SET(isa)                                                                        \
  namespace isa {                                                                                    \
  extern const Kernels<float> kernels_f32;                                                           \
  extern const Kernels<double> kernels_f64;                                                          \
  extern const Kernels<float> kernels_pairs;                                                         \
  extern const Kernels<int32_t> kernels_i32;                                                         \
  extern const ComplexKernels<float> kernels_c32;                                                    \
  extern const ProgramKernels programs;                                                              \
  extern const ComplexKernels<double> kernels_c64;                                                   \
  extern const Elements<float> elements_e4m3, elements_e5m2, elements_e4m3_fnuz, elements_e5m2_fnuz; \
  extern const BlockElements elements_blocks[block_type_count];                                      \
  }
#if defined(__x86_64__)
ROCPY_KERNEL_SET(avx512_bf16)
ROCPY_KERNEL_SET(avx512_vbmi)
ROCPY_KERNEL_SET(avx512_vnni)
ROCPY_KERNEL_SET(avx512)
ROCPY_KERNEL_SET(avx2)
#elif defined(__aarch64__)
ROCPY_KERNEL_SET(neon)
#endif
ROCPY_KERNEL_SET(baseline)
#undef ROCPY_KERNEL_SET

// Sets that share files with another name it when they are built.
#if defined(ROCPY_KERNEL_ISA) && !defined(ROCPY_KERNEL_BASE)
#define ROCPY_KERNEL_BASE ROCPY_KERNEL_ISA
#endif

}  // namespace rocpy_host::gemm
