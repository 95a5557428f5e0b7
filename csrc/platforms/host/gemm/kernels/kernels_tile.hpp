// SPDX-License-Identifier: MIT
// The register tile: rows x one or two vectors of sums, held in registers while k runs.
#pragma once

#include "formats.hpp"
#include "kernels.hpp"

namespace rocpy_host::gemm {
namespace {

// Rows that fit beside the vectors of b and one value of a.
constexpr int tile_rows = vector_registers == 32 ? (vector_bytes == 64 ? 14 : 12) : (vector_bytes == 32 ? 6 : 4);
constexpr int tile_vectors = 2;

// Where the values of a are for one step of k: side by side, or in rows. Addresses of rows are a pointer for each three
// of them and the distance of one: as many registers as there are without going to the stack.
template <class T, int rows, bool packed>
struct Column {
  static constexpr int pointers = packed ? 1 : (rows + 2) / 3;
  const T *from[pointers];
  int64_t stride;

  ROCPY_INLINE Column(const T *a, int64_t a_stride) : stride(a_stride) {
    ROCPY_UNROLL
    for (int q = 0; q < pointers; q++) from[q] = a + 3 * q * a_stride;
  }
  ROCPY_INLINE T at(int i, int step) const {
    return packed ? from[0][step * rows + i] : from[i / 3][i % 3 * stride + step];
  }
  ROCPY_INLINE void advance(int steps) {
    ROCPY_UNROLL
    for (int q = 0; q < pointers; q++) from[q] += packed ? steps * rows : steps;
  }
};

// With masks a part of a vector is read and written like a whole one. Bytes are of panels, which are whole.
constexpr bool has_masks = vector_bytes == 64;
template <class E>
constexpr bool masks_loads = has_masks && sizeof(E) > 1;

// The first tile of a panel can copy it for the others, which hides the copying behind the arithmetic.
constexpr bool tiles_copy = vector_bytes >= 32;

// Three tiles of about equal height, or more, have at least so many rows; fewer do not copy.
constexpr int least_copying_rows = 2 * tile_rows / 3 + 1;

// A tile fetches the rows that it will write, and the sums that the next one goes on with. Measured with vectors of 32
// bytes and more.
constexpr bool fetches_result = vector_bytes >= 32;

// Steps of the loop over k that are written out. A tile of few steps gains nothing by that.
constexpr int64_t steps_together = vector_bytes == 32 ? 4 : 2;
constexpr int64_t few_steps = 16;

// sum = fma(factor, row, sum). With 16 registers the compiler has none to spare when it chooses another operand to
// overwrite, or reads a row from memory for each product.
template <class T>
ROCPY_INLINE void add_product(Vec<T> &sum, const Vec<T> &factor, const Vec<T> &row) {
#if defined(__x86_64__) && defined(__FMA__)
  if constexpr (vector_bytes == 32 && sizeof(T) == 4) {
    __asm__("vfmadd231ps %2, %1, %0" : "+x"(sum) : "x"(factor), "x"(row));
    return;
  } else if constexpr (vector_bytes == 32) {
    __asm__("vfmadd231pd %2, %1, %0" : "+x"(sum) : "x"(factor), "x"(row));
    return;
  }
#endif
  sum = fma(factor, row, sum);
}

// One step of k: a row of b, of whose last vector some lanes exist, times a column of a.
template <int step, bool copies, bool parts, class T, int rows, int vectors, bool packed, class E>
ROCPY_INLINE void tile_step(const Column<T, rows, packed> &a, const E *b, [[maybe_unused]] int last,
                            [[maybe_unused]] T *copy, Vec<T> (&sum)[rows][vectors]) {
  constexpr int lanes = vector_lanes<T>;
  Vec<T> row[vectors];
  if constexpr (vectors == 2 && !parts) {
    load_panel_row(b, row);
  } else {
    ROCPY_UNROLL
    for (int v = 0; v < vectors; v++) {
      row[v] = parts && v == vectors - 1 ? load_part(b + v * lanes, last) : load(b + v * lanes);
    }
  }
  if constexpr (copies) {
    ROCPY_UNROLL
    for (int v = 0; v < vectors; v++) store(copy + (step * vectors + v) * lanes, row[v]);
  }
  ROCPY_UNROLL
  for (int i = 0; i < rows; i++) {
    Vec<T> factor = splat(a.at(i, step));
    ROCPY_UNROLL
    for (int v = 0; v < vectors; v++) {
      add_product<T>(sum[i][v], factor, row[v]);
    }
  }
}

// What a tile fetches of a row of b.
template <class T, class E>
ROCPY_INLINE void fetch_row(const char *at) {
  __builtin_prefetch(at, 0, 2);
  if constexpr (tile_vectors * vector_lanes<T> * sizeof(E) > 64) __builtin_prefetch(at + 64, 0, 2);
}

// Adds a bias to a tile's sums, of which `last` lanes of the last vector are there.
template <class T, int rows, int vectors>
ROCPY_INLINE void add_bias(const T *bias, int last, Vec<T> (&sum)[rows][vectors]) {
  constexpr int lanes = vector_lanes<T>;
  ROCPY_UNROLL
  for (int v = 0; v < vectors; v++) {
    const Vec<T> some = v + 1 < vectors ? load(bias + v * lanes) : load_some(bias + v * lanes, last, lanes);
    ROCPY_UNROLL
    for (int i = 0; i < rows; i++) sum[i][v] = sum[i][v] + some;
  }
}

// Writes a tile's sums, `stored` lanes of the last vector.
template <class T, int rows, int vectors>
ROCPY_INLINE void store_tile(const TileCall<T> &call, [[maybe_unused]] int stored, Vec<T> (&sum)[rows][vectors]) {
  constexpr int lanes = vector_lanes<T>;
  if constexpr (!std::is_same_v<T, int32_t>) {
    if (call.bias) add_bias<T>(call.bias, stored, sum);
  }
  T *out = call.out;
  const int64_t out_stride = call.out_stride;
  // Masked stores are the slower ones.
  if (has_masks && stored < lanes) {
    ROCPY_UNROLL
    for (int i = 0; i < rows; i++, out += out_stride) {
      ROCPY_UNROLL
      for (int v = 0; v + 1 < vectors; v++) store(out + v * lanes, sum[i][v]);
      store_part(out + (vectors - 1) * lanes, sum[i][vectors - 1], stored);
    }
    return;
  }
  ROCPY_UNROLL
  for (int i = 0; i < rows; i++) {
    ROCPY_UNROLL
    for (int v = 0; v < vectors; v++) store(out + i * out_stride + v * lanes, sum[i][v]);
  }
}

// The sums of a tile over all of k; `parts`: of the last vector of a row of b only a part exists.
template <bool copies, bool parts, bool packed, class T, class E, int rows, int vectors>
ROCPY_INLINE void tile_sums(const TileCall<T> &call, const E *b, Vec<T> (&sum)[rows][vectors]) {
  constexpr int lanes = vector_lanes<T>;
  Column<T, rows, packed> column(call.a, call.a_stride);
  const int64_t k = call.k, b_stride = call.b_stride, pace = call.prefetch_pace, ahead = call.prefetch_stride;
  const char *prefetch = call.prefetch;
  const int loaded = call.loaded;
  [[maybe_unused]] T *copy = call.copy;
  // Several steps at a time, unless there are few: the loop's own instructions compete with the fused ones.
  const int64_t whole = k > few_steps ? k / steps_together * steps_together : 0;
  int64_t x = 0;
  for (; x < whole; x += steps_together) {
    tile_step<0, copies, parts>(column, b, loaded, copy, sum);
    tile_step<1, copies, parts>(column, b + b_stride, loaded, copy, sum);
    if constexpr (steps_together == 4) {
      tile_step<2, copies, parts>(column, b + 2 * b_stride, loaded, copy, sum);
      tile_step<3, copies, parts>(column, b + 3 * b_stride, loaded, copy, sum);
    }
    column.advance(steps_together);
    b += steps_together * b_stride;
    if constexpr (copies) copy += steps_together * vectors * lanes;
    if (pace >= steps_together - 1) {
      fetch_row<T, E>(prefetch);
      if ((x & pace) == (pace & -steps_together)) prefetch += ahead;
    } else {
      ROCPY_UNROLL
      for (int i = 0; i < steps_together; i++) fetch_row<T, E>(prefetch + i * ahead);
      if (steps_together == 2 || ((x >> 1) & pace) == pace) prefetch += steps_together * ahead;
    }
  }
  for (; x < k; x++) {
    fetch_row<T, E>(prefetch);
    tile_step<0, copies, parts>(column, b, loaded, copy, sum);
    column.advance(1);
    b += b_stride;
    if constexpr (copies) copy += vectors * lanes;
    prefetch += ahead;
  }
}

template <class T, class E, int rows, int vectors, bool packed, bool copies = false>
void tile(const TileCall<T> &call) {
  constexpr int lanes = vector_lanes<T>;
  const E *b = static_cast<const E *>(call.b);
  const T *in = call.in;
  if constexpr (fetches_result) {
    ROCPY_UNROLL
    for (int i = 0; i < rows; i++) {
      const char *row = reinterpret_cast<const char *>(call.out + i * call.out_stride);
      constexpr int bytes = vectors * lanes * static_cast<int>(sizeof(T));
      __builtin_prefetch(row, 1);
      if constexpr (bytes > 64) __builtin_prefetch(row + bytes - 1, 1);
      if (in) __builtin_prefetch(in + (rows + i) * call.in_stride);
    }
  }
  Vec<T> sum[rows][vectors];
  ROCPY_UNROLL
  for (int i = 0; i < rows; i++) {
    ROCPY_UNROLL
    for (int v = 0; v < vectors; v++) {
      sum[i][v] = in ? load(in + i * call.in_stride + v * lanes) : splat(static_cast<T>(0));
    }
  }
  // Where a masked load takes a unit that multiplies, whole vectors are better off without.
  if (masks_loads<E> && call.loaded < lanes) {
    tile_sums<copies, masks_loads<E>, packed>(call, b, sum);
  } else {
    tile_sums<copies, false, packed>(call, b, sum);
  }
  store_tile(call, call.stored, sum);
}

// Packed panels whose sums of so many rows fit the registers together, beside tables where elements have these, and
// beside factors and what is widened: else those would come and go with every step.
template <class T, class E>
constexpr int strip_panels(int rows) {
  const int sums = vector_registers == 32 ? (loads_fours<E> && rows <= 4 ? most_sums_with_fours : 24) : 12;
  const int panels = sums / tile_vectors / rows;
  const bool spills = panels * rows * tile_vectors + rows + tile_vectors > vector_registers;
  if (sizeof(E) < sizeof(T) && spills) return 1;
  return panels > 4 ? 4 : panels;
}

// With few registers twice and four times as many rows take turns, so many at a time, of elements that are read as they
// are: of one panel memory delivers less than of several. Measured on EPYCs of the fourth generation with AVX2.
constexpr int turn_rows = vector_registers == 16 && vector_bytes == 32 ? max_turn_rows : 0;

// How far ahead of its use a line of each panel is fetched, in bytes. Measured on processors of AMD's third generation
// (vectors of 32 bytes) and fourth: what is fetched earlier has left the innermost cache again before it is used.
constexpr int64_t strip_ahead = vector_bytes == 32 ? 512 : 1024;

// Of elements of 16 bits a line takes as long as two of float: memory falls behind unless it is asked earlier too, for
// the second cache.
constexpr int64_t strip_far_ahead = 4096;
template <class E>
constexpr bool asks_memory_early = sizeof(E) == 2;

template <class T, int panels, int rows>
ROCPY_INLINE void load_strip(const StripCall<T> &call, Vec<T> (&sum)[panels][rows][tile_vectors]) {
  constexpr int lanes = vector_lanes<T>;
  ROCPY_UNROLL
  for (int q = 0; q < panels; q++) {
    ROCPY_UNROLL
    for (int i = 0; i < rows; i++) {
      const T *from = call.in ? call.in + q * call.in_panel + i * call.in_stride : nullptr;
      ROCPY_UNROLL
      for (int v = 0; v < tile_vectors; v++) sum[q][i][v] = from ? load(from + v * lanes) : splat(static_cast<T>(0));
    }
  }
}

template <class T, int panels, int rows>
ROCPY_INLINE void store_strip(const StripCall<T> &call, const Vec<T> (&sum)[panels][rows][tile_vectors]) {
  constexpr int lanes = vector_lanes<T>;
  ROCPY_UNROLL
  for (int q = 0; q < panels; q++) {
    ROCPY_UNROLL
    for (int i = 0; i < rows; i++) {
      T *to = call.out + q * call.out_panel + i * call.out_stride;
      ROCPY_UNROLL
      for (int v = 0; v < tile_vectors; v++) store(to + v * lanes, sum[q][i][v]);
    }
  }
}

// Memory sets the pace here. Of one panel there is but one stream to read and too few sums to hide their latency.
template <class T, class E, int rows, bool early>
ROCPY_INLINE void strip_of(const StripCall<T> &call) {
  constexpr int lanes = vector_lanes<T>, panels = strip_panels<T, E>(rows), line = 64 / static_cast<int>(sizeof(E));
  const int64_t k = call.k, panel_stride = call.panel_stride;
  const T *a = call.a;
  const E *b = static_cast<const E *>(call.b);
  Vec<T> sum[panels][rows][tile_vectors];
  load_strip(call, sum);
  [[maybe_unused]] NanSeen<E> seen;
  int64_t x = 0;
  if constexpr (tile_vectors == 2 && reads_fours<E>(panels * rows * tile_vectors)) {
    // Two rows of each panel, which lie together.
    for (; x + 2 <= k; x += 2, a += 2 * rows, b += 2 * tile_vectors * lanes) {
      ROCPY_UNROLL
      for (int q = 0; q < panels; q++) {
        Vec<T> values[2 * tile_vectors];
        load_group(b + q * panel_stride, values, seen);
        __builtin_prefetch(reinterpret_cast<const char *>(b + q * panel_stride) + strip_ahead);
        ROCPY_UNROLL
        for (int v = 0; v < 2 * tile_vectors; v++) {
          ROCPY_UNROLL
          for (int i = 0; i < rows; i++) {
            Vec<T> &to = sum[q][i][v % tile_vectors];
            to = fma(splat(a[v / tile_vectors * rows + i]), values[v], to);
          }
        }
      }
    }
  }
  for (; x < k; x++, a += rows, b += tile_vectors * lanes) {
    Vec<T> factor[rows];
    ROCPY_UNROLL
    for (int i = 0; i < rows; i++) factor[i] = splat(a[i]);
    ROCPY_UNROLL
    for (int q = 0; q < panels; q++) {
      const E *row = b + q * panel_stride;
      Vec<T> values[tile_vectors];
      load_panel_row(row, values);
      ROCPY_UNROLL
      for (int v = 0; v < tile_vectors; v++) {
        if (v * lanes % line == 0) {
          const char *at = reinterpret_cast<const char *>(row + v * lanes);
          __builtin_prefetch(at + strip_ahead);
          if constexpr (early) __builtin_prefetch(at + strip_far_ahead, 0, 2);
        }
        ROCPY_UNROLL
        for (int i = 0; i < rows; i++) sum[q][i][v] = fma(factor[i], values[v], sum[q][i][v]);
      }
    }
  }
  store_strip(call, sum);
  if constexpr (loads_fours<E>) {
    for (int q = 0; seen.nan() && q < panels; q++) {
      mark_nan(static_cast<const E *>(call.b) + q * panel_stride, k, tile_vectors * lanes, tile_vectors * lanes,
               call.out + q * call.out_panel, rows, call.out_stride);
    }
  }
}

template <class T, class E, int rows>
void strip(const StripCall<T> &call) {
  if constexpr (asks_memory_early<E>) {
    if (call.from_memory) return strip_of<T, E, rows, true>(call);
  }
  strip_of<T, E, rows, false>(call);
}

// The same of rows that take turns: a is packed for more of them, and each turn fetches its share of what follows for
// the second cache.
template <class T, int rows>
void strip_turn(const StripCall<T> &call) {
  constexpr int lanes = vector_lanes<T>, panels = strip_panels<T, T>(turn_rows);
  const int64_t k = call.k, panel_stride = call.panel_stride, a_step = call.a_step, fetch_step = call.fetch_step;
  const T *a = call.a, *b = static_cast<const T *>(call.b);
  const char *fetch = static_cast<const char *>(call.b) + call.fetch_ahead;
  Vec<T> sum[panels][rows][tile_vectors];
  load_strip(call, sum);
  for (int64_t x = 0; x < k; x++, a += a_step, b += tile_vectors * lanes, fetch += fetch_step) {
    Vec<T> factor[rows];
    ROCPY_UNROLL
    for (int i = 0; i < rows; i++) factor[i] = splat(a[i]);
    ROCPY_UNROLL
    for (int q = 0; q < panels; q++) {
      __builtin_prefetch(fetch + q * panel_stride * static_cast<int64_t>(sizeof(T)), 0, 2);
      ROCPY_UNROLL
      for (int v = 0; v < tile_vectors; v++) {
        const Vec<T> value = load(b + q * panel_stride + v * lanes);
        ROCPY_UNROLL
        for (int i = 0; i < rows; i++) sum[q][i][v] = fma(factor[i], value, sum[q][i][v]);
      }
    }
  }
  store_strip(call, sum);
}

template <class T, class E, int rows>
constexpr void fill_strips(Strips<T> &strips) {
  if constexpr (strip_panels<T, E>(rows) > 1) {
    strips.kernel[rows] = strip<T, E, rows>;
    strips.panels[rows] = strip_panels<T, E>(rows);
  }
  if constexpr (std::is_same_v<T, E> && rows <= turn_rows) {
    strips.turn[rows] = strip_turn<T, rows>;
    strips.turn_rows = turn_rows;
  }
  if constexpr (rows > 1) fill_strips<T, E, rows - 1>(strips);
}

template <class T, class E, int vectors, bool packed, int rows, bool copies = false>
constexpr void fill_tiles(typename Kernels<T>::Tile *row) {
  row[rows] = tile<T, E, rows, vectors, packed, copies>;
  constexpr int least = copies ? least_copying_rows : 1;
  if constexpr (rows > least) fill_tiles<T, E, vectors, packed, rows - 1, copies>(row);
}

template <class T, class E>
constexpr void fill_copying_tiles(typename Kernels<T>::Tile (*tiles)[max_tile_rows + 1]) {
  if constexpr (tiles_copy) {
    fill_tiles<T, E, 2, false, tile_rows, true>(tiles[0]);
    fill_tiles<T, E, 2, true, tile_rows, true>(tiles[1]);
  }
}

template <class T, class E>
constexpr void fill_element_tiles(typename Kernels<T>::Tile (*tiles)[2][max_tile_rows + 1]) {
  fill_tiles<T, E, 1, false, tile_rows>(tiles[0][0]);
  fill_tiles<T, E, 1, true, tile_rows>(tiles[0][1]);
  fill_tiles<T, E, 2, false, tile_rows>(tiles[1][0]);
  fill_tiles<T, E, 2, true, tile_rows>(tiles[1][1]);
}

// Where a part of a vector is loaded as fast as a whole one.
#if defined(__AVX2__)
constexpr bool loads_parts = true;
#else
constexpr bool loads_parts = false;
#endif

// Of short sums: both operands are read where they are, and no more columns are written than the result has. `parts`:
// of the last vector of a row of b only a part exists; reading it takes a unit that multiplies.
template <bool parts, class T, int rows, int vectors>
ROCPY_INLINE void small_tile(const SmallCall<T> &call, const T *b, T *out, const T *bias) {
  constexpr int lanes = vector_lanes<T>;
  // As of tiles, addresses of rows are a pointer for each three of them.
  const T *from[(rows + 2) / 3];
  ROCPY_UNROLL
  for (int q = 0; q < (rows + 2) / 3; q++) from[q] = call.a + 3 * q * call.a_row;
  Vec<T> sum[rows][vectors];
  ROCPY_UNROLL
  for (int i = 0; i < rows; i++) {
    ROCPY_UNROLL
    for (int v = 0; v < vectors; v++) sum[i][v] = splat(static_cast<T>(0));
  }
  for (int64_t x = 0; x < call.k; x++, b += call.b_step) {
    Vec<T> row[vectors];
    ROCPY_UNROLL
    for (int v = 0; v + 1 < vectors; v++) row[v] = load(b + v * lanes);
    const T *last = b + (vectors - 1) * lanes;
    row[vectors - 1] = !parts        ? load(last)
                       : loads_parts ? load_part(last, call.loaded)
                                     : load_some(last, call.loaded, lanes);
    ROCPY_UNROLL
    for (int i = 0; i < rows; i++) {
      const Vec<T> factor = splat(from[i / 3][i % 3 * call.a_row]);
      ROCPY_UNROLL
      for (int v = 0; v < vectors; v++) sum[i][v] = fma(factor, row[v], sum[i][v]);
    }
    ROCPY_UNROLL
    for (int q = 0; q < (rows + 2) / 3; q++) from[q] += call.a_step;
  }
  if (bias) add_bias<T>(bias, call.stored, sum);
  ROCPY_UNROLL
  for (int i = 0; i < rows; i++) {
    T *line = out + i * call.out_stride;
    ROCPY_UNROLL
    for (int v = 0; v + 1 < vectors; v++) store(line + v * lanes, sum[i][v]);
    T *last = line + (vectors - 1) * lanes;
    if (call.stored == lanes) {
      store(last, sum[i][vectors - 1]);
    } else {
      store_part(last, sum[i][vectors - 1], call.stored);
    }
  }
}

template <class T, int rows, int vectors>
void small(const SmallCall<T> &arguments) {
  constexpr int64_t columns = vectors * vector_lanes<T>;
  const SmallCall<T> call = arguments;
  if (call.loaded < vector_lanes<T>) return small_tile<true, T, rows, vectors>(call, call.b, call.out, call.bias);
  for (int64_t t = 0; t < call.tiles; t++) {
    const T *bias = call.bias ? call.bias + t * columns : nullptr;
    small_tile<false, T, rows, vectors>(call, call.b + t * columns, call.out + t * columns, bias);
  }
}

template <class T, int vectors, int rows>
constexpr void fill_small(typename Kernels<T>::Small *row) {
  row[rows] = small<T, rows, vectors>;
  if constexpr (rows > 1) fill_small<T, vectors, rows - 1>(row);
}

}  // namespace
}  // namespace rocpy_host::gemm
