// SPDX-License-Identifier: MIT
// Copies blocks of a matrix into panels: x-major, a fixed number of columns per x, any strides, any element type.
#pragma once

#include "formats.hpp"

namespace rocpy_host::gemm {
namespace {

template <class T, class E, class To>
ROCPY_INLINE void pack_scalar(const E *from, int64_t x_stride, int64_t c_stride, int64_t k, int count, int width,
                              To *to, int64_t to_stride) {
  for (int64_t x = 0; x < k; x++, from += x_stride, to += to_stride) {
    for (int c = 0; c < count; c++) from_compute(to[c], to_compute(from[c * c_stride]));
    for (int c = count; c < width; c++) from_compute(to[c], static_cast<T>(0));
  }
}

constexpr int panels_ahead = 4;

// Columns adjacent: vectors are copied.
template <class T, class E, class To>
ROCPY_INLINE void pack_rows(const E *from, int64_t x_stride, int64_t k, int count, int width, To *to,
                            int64_t to_stride) {
  constexpr int lanes = vector_lanes<T>;
  if (count == 2 * lanes && width == count) {
    for (int64_t x = 0; x < k; x++, from += x_stride, to += to_stride) {
      // Rows are far apart, so that no hardware fetches what the panels to the right will read of them.
      // Of a row that begins within a cache line the panel to the left has fetched the first one.
      const char *ahead = reinterpret_cast<const char *>(from + panels_ahead * 2 * lanes);
      constexpr int bytes = 2 * lanes * static_cast<int>(sizeof(E));
      __builtin_prefetch(ahead + (bytes > 64 ? 63 : bytes - 1));
      if constexpr (bytes > 64) __builtin_prefetch(ahead + bytes - 1);
      Vec<T> pair[2];
      load_pair(from, pair);
      store(to, pair[0]);
      store(to + lanes, pair[1]);
    }
    return;
  }
  int64_t x = 0;
  if (count <= lanes && width == count) {
    // As for the rows of a tile.
    for (; x + 1 < k; x++, from += x_stride, to += to_stride) store(to, load_part(from, count));
  }
  for (; x + 1 < k; x++, from += x_stride, to += to_stride) {
    int c = 0;
    for (; c + lanes <= count; c += lanes) store(to + c, load(from + c));
    if (c < count) {
      store(to + c, load_part(from + c, count - c));
      c += lanes;
    }
    for (; c < width; c += lanes) store(to + c, splat(static_cast<T>(0)));
  }
  // What a row writes beyond `width` the next one overwrites. The last one writes nothing there, where the panel beside
  // this one may have been filled before.
  for (int c = 0; k > 0 && c < width; c += lanes) {
    const int wanted = width - c < lanes ? width - c : lanes;
    const Vec<T> row = c < count ? load_some(from + c, count - c, lanes) : splat(static_cast<T>(0));
    store_part(to + c, row, wanted);
  }
}

// No more columns are wanted than there are, at most so many vectors of them, as for the rows of a tile: blocks of x
// are transposed in registers. Lanes beyond the columns repeat the last one, and what a block's row writes of them the
// next row overwrites. Returns the x that was reached.
template <int vectors, class T, class E, class To>
ROCPY_INLINE int64_t pack_tile_rows(const E *from, int64_t c_stride, int64_t k, int count, To *to, int64_t to_stride) {
  constexpr int lanes = vector_lanes<T>;
  const E *columns[vectors * lanes];
  for (int i = 0; i < vectors * lanes; i++) columns[i] = from + (i < count ? i : count - 1) * c_stride;
  int64_t x = 0;
  for (; x + lanes <= k; x += lanes, to += lanes * to_stride) {
    Vec<T> block[vectors][lanes];
    ROCPY_UNROLL
    for (int v = 0; v < vectors; v++) {
      ROCPY_UNROLL
      for (int i = 0; i < lanes; i++) {
        // The next tile's rows are copied next; hardware that follows rows begins anew with each of them.
        __builtin_prefetch(columns[v * lanes + i] + x + count * c_stride, 0, 2);
        block[v][i] = load(columns[v * lanes + i] + x);
      }
      transpose<T>(block[v]);
    }
    ROCPY_UNROLL
    for (int i = 0; i < lanes; i++) {
      ROCPY_UNROLL
      for (int v = 0; v < vectors; v++) store(to + i * to_stride + v * lanes, block[v][i]);
    }
  }
  return x;
}

// x adjacent: square blocks are transposed in registers. A block's rows are written whole and in ascending order, so
// what one writes beyond `width` the next one overwrites.
template <class T, class E, class To>
ROCPY_INLINE void pack_columns(const E *from, int64_t c_stride, int64_t k, int count, int width, To *to,
                               int64_t to_stride) {
  constexpr int lanes = vector_lanes<T>;
  // Blocks of columns must not spill into one another: only the last may be narrower than a vector.
  int64_t x = 0;
  if (count == width && width <= lanes) {
    x = pack_tile_rows<1, T>(from, c_stride, k, count, to, to_stride);
  } else if (count == width && width < 2 * lanes) {
    x = pack_tile_rows<2, T>(from, c_stride, k, count, to, to_stride);
  }
  for (; x + lanes <= k; x += lanes) {
    if (width <= lanes || to_stride >= (width + lanes - 1) / lanes * lanes) {
      for (int c = 0; c < width; c += lanes) {
        Vec<T> block[lanes];
        ROCPY_UNROLL
        for (int i = 0; i < lanes; i++) {
          // No hardware follows so many columns at once; the panel to the right is copied next.
          __builtin_prefetch(from + (c + i + width) * c_stride + x, 0, 2);
          block[i] = c + i < count ? load(from + (c + i) * c_stride + x) : splat(static_cast<T>(0));
        }
        transpose<T>(block);
        ROCPY_UNROLL
        for (int i = 0; i < lanes; i++) store(to + (x + i) * to_stride + c, block[i]);
      }
    } else {
      for (int c = 0; c < width; c += lanes) {
        Vec<T> block[lanes];
        int whole = width - c < lanes ? width - c : lanes;
        ROCPY_UNROLL
        for (int i = 0; i < lanes; i++) {
          block[i] = c + i < count ? load(from + (c + i) * c_stride + x) : splat(static_cast<T>(0));
        }
        transpose<T>(block);
        for (int i = 0; i < lanes; i++) {
          if (whole == lanes) {
            store(to + (x + i) * to_stride + c, block[i]);
          } else {
            store_part(to + (x + i) * to_stride + c, block[i], whole);
          }
        }
      }
    }
  }
  pack_scalar<T>(from + x, 1, c_stride, k - x, count, width, to + x * to_stride, to_stride);
}

template <class T, class E, class To>
void pack_any(const void *data, int64_t x_stride, int64_t c_stride, int64_t k, int count, int width, To *to,
              int64_t to_stride) {
  const E *from = static_cast<const E *>(data);
  if (c_stride == 1 && (count > 1 || x_stride != 1)) {
    return pack_rows<T>(from, x_stride, k, count, width, to, to_stride);
  }
  if (x_stride == 1) return pack_columns<T>(from, c_stride, k, count, width, to, to_stride);
  pack_scalar<T>(from, x_stride, c_stride, k, count, width, to, to_stride);
}

template <class T, class E>
void pack(const void *data, int64_t x_stride, int64_t c_stride, int64_t k, int count, int width, T *to,
          int64_t to_stride) {
  pack_any<T, E, T>(data, x_stride, c_stride, k, count, width, to, to_stride);
}

template <class T, class E>
void pack_same(const void *data, int64_t x_stride, int64_t c_stride, int64_t k, int count, int width, void *to,
               int64_t to_stride) {
  if constexpr (sizeof(E) > 1) {
    pack_any<T, E, E>(data, x_stride, c_stride, k, count, width, static_cast<E *>(to), to_stride);
  } else {
    const uint8_t *from = static_cast<const uint8_t *>(data);
    uint8_t *out = static_cast<uint8_t *>(to);
    for (int64_t x = 0; x < k; x++, from += x_stride, out += to_stride) {
      if (c_stride == 1) {
        __builtin_memcpy(out, from, static_cast<size_t>(count));
      } else {
        for (int c = 0; c < count; c++) out[c] = from[c * c_stride];
      }
      for (int c = count; c < width; c++) out[c] = 0;
    }
  }
}

// Column sums. Columns adjacent: one chain per column. x adjacent: four vectors of partial sums, then their lanes by
// halves.
template <class T, class E>
void sum(const void *data, int64_t x_stride, int64_t c_stride, int64_t k, int64_t count, T *out) {
  constexpr int lanes = vector_lanes<T>;
  const E *from = static_cast<const E *>(data);
  if (c_stride == 1 && x_stride != 1) {
    for (int64_t c = 0; c < count; c += lanes) {
      int some = count - c < lanes ? static_cast<int>(count - c) : lanes;
      Vec<T> total = splat(static_cast<T>(0));
      for (int64_t x = 0; x < k; x++) total += load_some(from + c + x * x_stride, some, lanes);
      store_part(out + c, total, some);
    }
    return;
  }
  for (int64_t c = 0; c < count; c++) {
    const E *column = from + c * c_stride;
    T total = 0;
    if (x_stride == 1) {
      Vec<T> part[4];
      for (auto &p : part) p = splat(static_cast<T>(0));
      int64_t x = 0;
      for (; x + 4 * lanes <= k; x += 4 * lanes) {
        for (int i = 0; i < 4; i++) part[i] += load(column + x + i * lanes);
      }
      for (int i = 0; x < k; x += lanes, i++) {
        part[i] += load_some(column + x, k - x < lanes ? static_cast<int>(k - x) : lanes, lanes);
      }
      total = sum_lanes<T>((part[0] + part[1]) + (part[2] + part[3]));
    } else {
      for (int64_t x = 0; x < k; x++) total += to_compute(column[x * x_stride]);
    }
    out[c] = total;
  }
}

}  // namespace
}  // namespace rocpy_host::gemm
