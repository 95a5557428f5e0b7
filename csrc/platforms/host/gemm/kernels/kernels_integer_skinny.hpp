// SPDX-License-Identifier: MIT
// A few rows of 8-bit integers against a large matrix of them, which is read once where it is. As kernels_skinny.hpp,
// but sums are exact, so their order is free.
#pragma once

#include "kernels_integer.hpp"
#include "kernels_skinny.hpp"

namespace rocpy_host::gemm {
namespace {

// The left operand's bytes come with 128 added where groups are of 4. That is moved to the large matrix: what it adds
// to a sum is then the same for all columns.
ROCPY_INLINE VecI plain_left(VecI left) { return cast<VecI>(cast<VecU>(left) ^ sign_flip<true>); }
ROCPY_INLINE VecI add_right_products(VecI sum, VecI left, VecI right) {
  if constexpr (group_size == 2) return add_products(sum, left, right);
  return add_products(sum, right, left);
}
ROCPY_INLINE VecI flipped_right(VecI right) { return cast<VecI>(cast<VecU>(right) ^ sign_flip<true>); }

// What the 128 has added to a row's sums, which the groups of the row tell.
ROCPY_INLINE VecI add_excess(VecI excess, VecI left) {
  if constexpr (group_size == 2) return excess;
  return add_products(excess, splat(static_cast<int32_t>(0x80808080u)), left);
}

// The sums of some vectors of columns from the j-th on, less what the 128 will add; every lane of that is the same.
template <int rows, int vectors>
ROCPY_INLINE void load_sums(const WideCall<int32_t> &call, int64_t j, const VecI (&excess)[rows],
                            VecI (&sum)[rows][vectors]) {
  constexpr int lanes = vector_lanes<int32_t>;
  ROCPY_UNROLL
  for (int i = 0; i < rows; i++) {
    ROCPY_UNROLL
    for (int v = 0; v < vectors; v++) {
      const VecI before = call.first ? VecI{} : load(call.acc + j + i * call.acc_stride + v * lanes);
      sum[i][v] = subtract_modulo(before, excess[i]);
    }
  }
}
template <int rows, int vectors>
ROCPY_INLINE void store_sums(const WideCall<int32_t> &call, int64_t j, const VecI (&sum)[rows][vectors]) {
  constexpr int lanes = vector_lanes<int32_t>;
  ROCPY_UNROLL
  for (int i = 0; i < rows; i++) {
    ROCPY_UNROLL
    for (int v = 0; v < vectors; v++) store(call.acc + j + i * call.acc_stride + v * lanes, sum[i][v]);
  }
}

// As wide_block.
template <int rows, int vectors>
ROCPY_INLINE void integer_wide_block(const WideCall<int32_t> &call, int64_t j, int last, const VecI (&excess)[rows],
                                     LinesAhead<int8_t> &ahead) {
  constexpr int lanes = vector_lanes<int32_t>, together = vectors % joined_vectors == 0 ? joined_vectors : 1;
  const int64_t k = call.k, a_stride = call.a_stride, b_stride = call.b_stride;
  const int32_t *a = call.a;
  const int8_t *b = static_cast<const int8_t *>(call.b) + j;
  VecI sum[rows][vectors];
  load_sums(call, j, excess, sum);
  for (int64_t x = 0; x < k; x += group_size, a += a_stride, b += group_size * b_stride) {
    ahead.fetch<vectors * lanes * group_size>();
    ROCPY_UNROLL
    for (int v = 0; v < vectors; v += together) {
      VecI row[together];
      if (together > 1 && k - x >= group_size) {
        if constexpr (together == joined_vectors) join_whole_rows(b + v * lanes, b_stride, row);
      } else {
        ROCPY_UNROLL
        for (int u = 0; u < together; u++) {
          row[u] = join_rows(b + (v + u) * lanes, b_stride, k - x, v + u == vectors - 1 ? last : lanes);
        }
      }
      ROCPY_UNROLL
      for (int u = 0; u < together; u++) {
        row[u] = flipped_right(row[u]);
        ROCPY_UNROLL
        for (int i = 0; i < rows; i++) {
          sum[i][v + u] = add_right_products(sum[i][v + u], plain_left(splat(a[i])), row[u]);
        }
      }
    }
  }
  store_sums(call, j, sum);
}

// Vectors of columns that so many rows take together: as many as are joined, where these are a whole line of a cache or
// the registers suffice.
constexpr bool joins_lines = joined_vectors * vector_lanes<int32_t> == 64;
constexpr int integer_vectors(int rows) {
  if (joins_lines) return joined_vectors;
  const int vectors = skinny_vectors(rows) > 4 ? 4 : skinny_vectors(rows);
  return vectors > joined_vectors ? vectors / joined_vectors * joined_vectors : vectors;
}

template <int rows>
__attribute__((noinline)) void integer_wide_in_place(const WideCall<int32_t> &arguments) {
  constexpr int lanes = vector_lanes<int32_t>, vectors = integer_vectors(rows);
  const WideCall<int32_t> call = arguments;
  VecI excess[rows] = {};
  for (int64_t x = 0; x < call.k; x += group_size) {
    ROCPY_UNROLL
    for (int i = 0; i < rows; i++) {
      excess[i] = add_excess(excess[i], plain_left(splat(call.a[x / group_size * call.a_stride + i])));
    }
  }
  int64_t j = 0;
  LinesAhead<int8_t> ahead(call);
  if constexpr (joins_lines) {
    // Vectors of sums are stored whole.
    const int64_t before = columns_before_line<int32_t, int8_t>(call);
    for (; before % lanes == 0 && j < before; j += lanes) integer_wide_block<rows, 1>(call, j, lanes, excess, ahead);
  }
  for (; j + vectors * lanes <= call.n; j += vectors * lanes) {
    integer_wide_block<rows, vectors>(call, j, lanes, excess, ahead);
  }
  for (; j < call.n; j += lanes) {
    const int last = call.n - j < lanes ? static_cast<int>(call.n - j) : lanes;
    integer_wide_block<rows, 1>(call, j, last, excess, ahead);
  }
}

// Lines in a call. Whole lines of a cache are read once and go, so that there may be more of them for each time that
// sums come and go.
constexpr int64_t integer_burst = joins_lines ? 32 : 4 * group_size;

template <int rows>
void integer_wide(const WideCall<int32_t> &call) {
  // Sums of few columns stay in the innermost cache, from which more lines would drive them.
  constexpr int64_t few_columns = 2048, lines = 16;
  if (!joins_lines || rows > 4 || call.n >= few_columns) return integer_wide_in_place<rows>(call);
  WideCall<int32_t> part = call;
  for (int64_t x = 0; x < call.k; x += lines) {
    part.k = call.k - x < lines ? call.k - x : lines;
    integer_wide_in_place<rows>(part);
    part.a += lines / group_size * call.a_stride;
    part.b = static_cast<const int8_t *>(part.b) + lines * call.b_stride;
    part.first = false;
  }
}

// Lines side by side, as dot_columns.
constexpr int integer_columns(int rows) { return rows == 1 ? 8 : skinny_vectors(rows) > 4 ? 4 : skinny_vectors(rows); }

template <int rows>
void integer_dot(const DotCall<int32_t> &call) {
  constexpr int lanes = vector_lanes<int32_t>, columns = integer_columns(rows);
  const auto [k, a, a_stride, b_data, b_stride, n, out, out_row, out_column, first, least, again] = call;
  const int8_t *b = static_cast<const int8_t *>(b_data);
  VecI excess[rows] = {};
  for (int64_t x = 0; x < k; x += group_vector) {
    const int some = k - x >= group_vector ? lanes : static_cast<int>((k - x + group_size - 1) / group_size);
    ROCPY_UNROLL
    for (int i = 0; i < rows; i++) {
      excess[i] = add_excess(excess[i], plain_left(load_some(a + x / group_size + i * a_stride, some, lanes)));
    }
  }
  DotsAhead<int32_t, int8_t, rows, columns> ahead(call);
  for (int64_t j = 0; j < n; j += columns) {
    const int8_t *column[columns];
    // Past the end the last column is read again; its sums are dropped.
    ROCPY_UNROLL
    for (int c = 0; c < columns; c++) column[c] = b + (j + c < n ? j + c : n - 1) * b_stride;
    VecI sum[rows][columns] = {};
    for (int64_t x = 0; x < k; x += group_vector) {
      ahead.template fetch<group_vector>();
      VecI factor[columns];
      ROCPY_UNROLL
      for (int c = 0; c < columns; c++) {
        factor[c] = flipped_right(load_groups(column[c] + x, k - x));
        ahead.fetch_in(column[c], x);
      }
      const int32_t *groups = a + x / group_size;
      const int some = k - x >= group_vector ? lanes : static_cast<int>((k - x + group_size - 1) / group_size);
      ROCPY_UNROLL
      for (int i = 0; i < rows; i++) {
        const VecI row = plain_left(load_some(groups + i * a_stride, some, lanes));
        ROCPY_UNROLL
        for (int c = 0; c < columns; c++) sum[i][c] = add_right_products(sum[i][c], row, factor[c]);
      }
    }
    const int valid = n - j < columns ? static_cast<int>(n - j) : columns;
    ROCPY_UNROLL
    for (int i = 0; i < rows; i++) {
      ROCPY_UNROLL
      for (int c = 0; c < columns; c++) {
        if (c >= valid) break;
        int32_t *to = out + i * out_row + (j + c) * out_column;
        const VecU total = cast<VecU>(subtract_modulo(sum[i][c], excess[i]));
        uint32_t part = first ? 0 : static_cast<uint32_t>(*to);
        for (int l = 0; l < lanes; l++) part += total[l];
        *to = static_cast<int32_t>(part);
      }
    }
  }
}

// As strip.
template <class E, int rows>
void integer_strip(const StripCall<int32_t> &call) {
  constexpr int lanes = vector_lanes<int32_t>, panels = strip_panels<int32_t, E>(rows),
                line = 64 / static_cast<int>(sizeof(E));
  const int64_t k = call.k, panel_stride = call.panel_stride;
  const int32_t *a = call.a;
  const E *b = static_cast<const E *>(call.b);
  VecI excess[rows] = {}, sum[panels][rows][tile_vectors];
  load_strip(call, sum);
  for (int64_t x = 0; x < k; x++, a += rows, b += tile_vectors * lanes) {
    VecI factor[rows];
    ROCPY_UNROLL
    for (int i = 0; i < rows; i++) {
      factor[i] = plain_left(splat(a[i]));
      excess[i] = add_excess(excess[i], factor[i]);
    }
    ROCPY_UNROLL
    for (int q = 0; q < panels; q++) {
      const E *row = b + q * panel_stride;
      ROCPY_UNROLL
      for (int v = 0; v < tile_vectors; v++) {
        if (v * lanes % line == 0) {
          __builtin_prefetch(reinterpret_cast<const char *>(row + v * lanes) + strip_ahead);
        }
        const VecI values = flipped_right(load(row + v * lanes));
        ROCPY_UNROLL
        for (int i = 0; i < rows; i++) sum[q][i][v] = add_right_products(sum[q][i][v], factor[i], values);
      }
    }
  }
  ROCPY_UNROLL
  for (int q = 0; q < panels; q++) {
    ROCPY_UNROLL
    for (int i = 0; i < rows; i++) {
      ROCPY_UNROLL
      for (int v = 0; v < tile_vectors; v++) {
        sum[q][i][v] = subtract_modulo(sum[q][i][v], excess[i]);
      }
    }
  }
  store_strip(call, sum);
}

template <class E, int rows>
constexpr void fill_integer_strips(Strips<int32_t> &strips) {
  if constexpr (strip_panels<int32_t, E>(rows) > 1) {
    strips.kernel[rows] = integer_strip<E, rows>;
    strips.panels[rows] = strip_panels<int32_t, E>(rows);
  }
  if constexpr (rows > 1) fill_integer_strips<E, rows - 1>(strips);
}

template <int rows>
constexpr void fill_integer_skinny(Elements<int32_t> &elements) {
  elements.wide[rows] = integer_wide<rows>;
  elements.burst[rows] = integer_burst;
  elements.dot[rows] = integer_dot<rows>;
  if constexpr (rows > 1) fill_integer_skinny<rows - 1>(elements);
}

}  // namespace
}  // namespace rocpy_host::gemm
