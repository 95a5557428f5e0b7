// SPDX-License-Identifier: MIT
// Products of operands whose numbers bfloat16 has, by the instruction that multiplies pairs of its numbers. A value of
// a panel is a word of two neighbours along k, the first in the upper half, which the instruction adds first: fused,
// and rounded to nearest even each. So sums are those of the other tiles, bit for bit, as long as it meets no subnormal
// number, which it takes and leaves for zero.
#include "kernels_epilogue.hpp"
#include "kernels_pairs_skinny.hpp"
#include "kernels_tile.hpp"

namespace rocpy_host::gemm::ROCPY_KERNEL_ISA {
namespace {

template <bool one_by_one, int rows, int vectors>
void pair_tile(const TileCall<float> &call) {
  const float *a = call.a, *b = static_cast<const float *>(call.b);
  const int64_t k = call.k, b_stride = call.b_stride, pace = call.prefetch_pace, ahead = call.prefetch_stride;
  const char *prefetch = call.prefetch;
  VecF sum[rows][vectors];
  ROCPY_UNROLL
  for (int i = 0; i < rows; i++) {
    ROCPY_UNROLL
    for (int v = 0; v < vectors; v++) {
      sum[i][v] = call.in ? load(call.in + i * call.in_stride + v * lanes) : splat(0.0f);
    }
  }
  for (int64_t x = 0; x < k; x++, a += rows, b += b_stride) {
    VecF row[vectors];
    ROCPY_UNROLL
    for (int v = 0; v < vectors; v++) row[v] = load(b + v * lanes);
    fetch_row<float, float>(prefetch);
    ROCPY_UNROLL
    for (int i = 0; i < rows; i++) {
      const VecF pair = splat(a[i]);
      ROCPY_UNROLL
      for (int v = 0; v < vectors; v++) sum[i][v] = add_pairs<one_by_one>(sum[i][v], pair, row[v]);
    }
    if ((x & pace) == pace) prefetch += ahead;
  }
  store_tile(call, call.stored, sum);
}

template <bool one_by_one, int vectors, int rows = tile_rows>
constexpr void fill_pair_tiles(Kernels<float>::Tile *row) {
  row[rows] = pair_tile<one_by_one, rows, vectors>;
  if constexpr (rows > 1) fill_pair_tiles<one_by_one, vectors, rows - 1>(row);
}

// What a row writes beyond `width` the next one overwrites; the last one writes nothing there.
ROCPY_INLINE void store_row(float *to, VecF pairs, int width, bool last) {
  if (last && width < lanes) return store_part(to, pairs, width);
  store(to, pairs);
}

// As for panels of one number a value.
constexpr int panels_ahead = 4;
template <class E>
constexpr int fetched_ahead = pair_lanes * static_cast<int>(sizeof(E)) - 1;

template <class E>
void pack_rows(const E *from, int64_t x_stride, int64_t k, int count, int width, float *to, int64_t to_stride) {
  for (int64_t x = 0; x < k; x += 2, from += 2 * x_stride, to += to_stride) {
    const bool both = x + 1 < k, last = x + 2 >= k;
    const E *second = both ? from + x_stride : from;
    // No hardware fetches rows that are far apart; panels to the right are copied next.
    const int64_t ahead = panels_ahead * width * static_cast<int64_t>(sizeof(E)) + fetched_ahead<E>;
    __builtin_prefetch(reinterpret_cast<const char *>(from) + ahead);
    __builtin_prefetch(reinterpret_cast<const char *>(second) + ahead);
    for (int c = 0; c < width; c += pair_lanes) {
      const __mmask32 mask = c < count ? mask32(count - c) : 0;
      VecF words[2];
      join_rows(from + c, second + c, mask, both ? mask : 0, words);
      store_row(to + c, words[0], width - c, last);
      if (width - c > lanes) store_row(to + c + lanes, words[1], width - c - lanes, last);
    }
  }
}

// Blocks of words are transposed in registers.
template <class E>
void pack_columns(const E *from, int64_t c_stride, int64_t k, int count, int width, float *to, int64_t to_stride) {
  for (int64_t x = 0; x < k; x += pair_lanes, to += lanes * to_stride) {
    const int64_t steps = (k - x + 1) / 2;
    const __mmask32 mask = mask32(k - x);
    // Whether all rows may be written whole.
    const bool whole = steps >= lanes && (width % lanes == 0 || (width < lanes && steps > lanes));
    for (int c = 0; c < width; c += lanes) {
      VecF block[lanes];
      ROCPY_UNROLL
      for (int i = 0; i < lanes; i++) {
        const E *line = from + (c + i) * c_stride + x;
        // No hardware follows so many lines at once; those beside them are copied next.
        __builtin_prefetch(line + width * c_stride, 0, 2);
        block[i] = c + i < count ? load_words(line, mask) : splat(0.0f);
      }
      transpose<float>(block);
      if (whole) {
        ROCPY_UNROLL
        for (int i = 0; i < lanes; i++) store(to + i * to_stride + c, block[i]);
        continue;
      }
      for (int i = 0; i < lanes && i < steps; i++) {
        // Of several blocks of columns the next row's first one has been written before.
        const bool last = width > lanes || x / 2 + i + 1 == (k + 1) / 2;
        store_row(to + i * to_stride + c, block[i], width - c, last);
      }
    }
  }
}

// The words of two rows of a packed panel, which lie together.
ROCPY_INLINE void load_two_rows(const Bf16 *from, VecF (&words)[2]) {
  join_rows(from, from + pair_lanes, ~__mmask32{}, ~__mmask32{}, words);
}
template <class F>
ROCPY_INLINE void load_two_rows(const Byte<F> *from, VecF (&words)[2]) {
  join_codes<F>(load_bits<__m512i>(from), order_of_rows, words);
}

// Packed panels whose sums of so many rows fit the registers together, beside what the words are made with.
template <class E>
constexpr int pair_strip_panels(int rows) {
  constexpr int most_sums = sizeof(E) == 1 ? 20 : 24, most = 4;
  const int panels = most_sums / tile_vectors / rows;
  return panels > most ? most : panels;
}

template <class E, int rows, bool early, bool one_by_one>
ROCPY_INLINE void pair_strip_of(const StripCall<float> &call) {
  constexpr int panels = pair_strip_panels<E>(rows), bytes = 2 * pair_lanes * static_cast<int>(sizeof(E));
  const float *a = call.a;
  const E *b = static_cast<const E *>(call.b);
  VecF sum[panels][rows][tile_vectors];
  load_strip(call, sum);
  for (int64_t x = 0; x < call.k; x++, a += rows, b += 2 * pair_lanes) {
    ROCPY_UNROLL
    for (int q = 0; q < panels; q++) {
      const E *two = b + q * call.panel_stride;
      const char *ahead = reinterpret_cast<const char *>(two);
      ROCPY_UNROLL
      for (int byte = 0; byte < bytes; byte += 64) {
        __builtin_prefetch(ahead + byte + strip_ahead);
        if constexpr (early) __builtin_prefetch(ahead + byte + strip_far_ahead, 0, 2);
      }
      VecF words[2];
      load_two_rows(two, words);
      ROCPY_UNROLL
      for (int i = 0; i < rows; i++) {
        const VecF pair = splat(a[i]);
        ROCPY_UNROLL
        for (int v = 0; v < tile_vectors; v++) sum[q][i][v] = add_pairs<one_by_one>(sum[q][i][v], pair, words[v]);
      }
    }
  }
  store_strip(call, sum);
}

template <class E, int rows>
void pair_strip(const StripCall<float> &call) {
  // One row waits for memory, and was measured to wait longer where its arithmetic is faster.
  const bool waits = rows == 1 && sizeof(E) == 2 && call.from_memory;
  if (call.one_by_one || waits) return pair_strip_of<E, rows, asks_memory_early<E>, true>(call);
  if constexpr (asks_memory_early<E>) {
    if (call.from_memory) return pair_strip_of<E, rows, true, false>(call);
  }
  pair_strip_of<E, rows, false, false>(call);
}

template <class E, int rows>
constexpr void fill_pair_strips(Strips<float> &strips) {
  if constexpr (pair_strip_panels<E>(rows) > 0) {
    strips.kernel[rows] = pair_strip<E, rows>;
    strips.panels[rows] = pair_strip_panels<E>(rows);
  }
  if constexpr (rows > 1) fill_pair_strips<E, rows - 1>(strips);
}

// One by one.
template <class E>
void pack_apart(const E *from, int64_t x_stride, int64_t c_stride, int64_t k, int count, int width, float *to,
                int64_t to_stride) {
  for (int64_t x = 0; x < k; x += 2, from += 2 * x_stride, to += to_stride) {
    for (int c = 0; c < width; c++) {
      const E *pair = from + c * c_stride;
      const uint32_t first = c < count ? rocpy_host::bits_of(to_compute(pair[0])) : 0;
      const uint32_t second = c < count && x + 1 < k ? rocpy_host::bits_of(to_compute(pair[x_stride])) : 0;
      to[c] = float_of(first | second >> 16);
    }
  }
}

template <class E, bool left>
void pack_pairs(const void *data, int64_t x_stride, int64_t c_stride, int64_t k, int count, int width, float *to,
                int64_t to_stride) {
  const E *from = static_cast<const E *>(data);
  if (c_stride == 1 && (count > 1 || x_stride != 1)) {
    pack_rows(from, x_stride, k, count, width, to, to_stride);
  } else if (x_stride == 1) {
    pack_columns(from, c_stride, k, count, width, to, to_stride);
  } else {
    pack_apart(from, x_stride, c_stride, k, count, width, to, to_stride);
  }
  // A last pair of one number has a second product of 0 and -0: adding that changes no sum, not even -0.
  if (left || k % 2 == 0) return;
  to += k / 2 * to_stride;
  for (int c = 0; c < count; c++) to[c] = float_of(rocpy_host::bits_of(to[c]) | 0x8000u);
}

template <class E>
constexpr Elements<float> make_pair_elements() {
  Elements<float> elements{};
  fill_pair_skinny<E, max_skinny_rows>(elements);
  elements.pack = pack_pairs<E, false>;
  elements.pack_left = pack_pairs<E, true>;
  fill_pair_strips<E, max_strip_rows>(elements.strips);
  return elements;
}

int least_magnitude(const float *from, int64_t rows, int64_t columns, int64_t stride) {
  LeastSeen<Bf16> seen;
  for (int64_t i = 0; i < rows; i++, from += stride) {
    for (int64_t c = 0; c < columns; c += lanes) {
      const int some = columns - c < lanes ? static_cast<int>(columns - c) : lanes;
      seen.add(cast<__m512i>(load_some(from + c, some, lanes)));
    }
  }
  int least = 0x10000;
  seen.lower(&least);
  return least;
}

constexpr Elements<float> elements_bf16 = make_pair_elements<Bf16>();
constexpr Elements<float> elements_e4m3 = make_pair_elements<Byte<E4m3>>();
constexpr Elements<float> elements_e5m2 = make_pair_elements<Byte<E5m2>>();
constexpr Elements<float> elements_e4m3_fnuz = make_pair_elements<Byte<E4m3Fnuz>>();
constexpr Elements<float> elements_e5m2_fnuz = make_pair_elements<Byte<E5m2Fnuz>>();

constexpr Kernels<float> make_pairs() {
  Kernels<float> set{};
  set.tile_rows = tile_rows;
  set.tile_columns = tile_vectors * lanes;
  set.group = 2;
  set.masks = has_masks;
  fill_pair_tiles<false, 1>(set.tile[0][0][1]);
  fill_pair_tiles<false, 2>(set.tile[0][1][1]);
  fill_pair_tiles<true, 1>(set.tile[one_by_one_index][0][1]);
  fill_pair_tiles<true, 2>(set.tile[one_by_one_index][1][1]);
  set.elements[2] = &elements_bf16;
  set.elements[3] = &elements_e4m3;
  set.elements[4] = &elements_e5m2;
  set.elements[5] = &elements_e4m3_fnuz;
  set.elements[6] = &elements_e5m2_fnuz;
  set.least_magnitude = least_magnitude;
  return set;
}

}  // namespace

constexpr Kernels<float> kernels_pairs = make_pairs();

}  // namespace rocpy_host::gemm::ROCPY_KERNEL_ISA
