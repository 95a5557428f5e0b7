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

// Columns adjacent: vectors are copied.
template <class T, class E, class To>
ROCPY_INLINE void pack_rows(const E *from, int64_t x_stride, int64_t k, int count, int width, To *to,
                            int64_t to_stride) {
  constexpr int lanes = kLanes<T>;
  if (count == 2 * lanes && width == count) {
    for (int64_t x = 0; x < k; x++, from += x_stride, to += to_stride) {
      Vec<T> first = load(from), second = load(from + lanes);
      store(to, first);
      store(to + lanes, second);
    }
    return;
  }
  for (int64_t x = 0; x < k; x++, from += x_stride, to += to_stride) {
    int c = 0;
    for (; c + lanes <= count; c += lanes) store(to + c, load(from + c));
    if (c < count) {
      store(to + c, load_part(from + c, count - c));
      c += lanes;
    }
    for (; c < width; c += lanes) store(to + c, splat(static_cast<T>(0)));
  }
}

// x adjacent: square blocks are transposed in registers. A block's rows are written whole and in ascending order, so
// what one writes beyond `width` the next one overwrites.
template <class T, class E, class To>
ROCPY_INLINE void pack_columns(const E *from, int64_t c_stride, int64_t k, int count, int width, To *to,
                               int64_t to_stride) {
  constexpr int lanes = kLanes<T>;
  // Blocks of columns must not spill into one another: only the last may be narrower than a vector.
  int64_t x = 0;
  for (; x + lanes <= k; x += lanes) {
    if (width <= lanes || to_stride >= (width + lanes - 1) / lanes * lanes) {
      for (int c = 0; c < width; c += lanes) {
        Vec<T> block[lanes];
        ROCPY_UNROLL
        for (int i = 0; i < lanes; i++) {
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
  if (c_stride == 1 && (count > 1 || x_stride != 1))
    return pack_rows<T>(from, x_stride, k, count, width, to, to_stride);
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
  pack_any<T, E, E>(data, x_stride, c_stride, k, count, width, static_cast<E *>(to), to_stride);
}

// Elements narrower than a byte: each is moved into a byte of its own, 32 at a time, and widened from there.
template <class F>
void decode_packed(const uint8_t *data, int64_t first, int64_t count, float *to) {
  constexpr int lanes = kLanes<float>;
  for (int64_t i = 0; i < count; i += 32) {
    const int some = count - i < 32 ? static_cast<int>(count - i) : 32;
    Byte<F> codes[32] = {};
    for (int j = 0; j < some; j++) {
      const int64_t bit = (first + i + j) * F::width;
      const uint8_t *from = data + bit / 8;
      const int low = static_cast<int>(bit % 8);
      uint32_t value = from[0];
      if (low + F::width > 8) value |= static_cast<uint32_t>(from[1]) << 8;
      codes[j].bits = static_cast<uint8_t>((value >> low) & (2 * F::sign - 1));
    }
    for (int j = 0; j < some; j += lanes) {
      const VecF values = load(codes + j);
      if (some - j >= lanes) {
        store(to + i + j, values);
      } else {
        store_part(to + i + j, values, some - j);
      }
    }
  }
}

inline void decode_stream(Type type, const void *data, int64_t first, int64_t count, float *to) {
  const uint8_t *bytes = static_cast<const uint8_t *>(data);
  switch (type) {
    case Type::e2m3:
      return decode_packed<E2m3>(bytes, first, count, to);
    case Type::e3m2:
      return decode_packed<E3m2>(bytes, first, count, to);
    case Type::e2m1:
      return decode_packed<E2m1>(bytes, first, count, to);
    default:
      with_element(type, [&](auto *element) {
        constexpr int lanes = kLanes<float>;
        const auto *from = reinterpret_cast<decltype(element)>(const_cast<void *>(data)) + first;
        for (int64_t i = 0; i < count; i += lanes) {
          if (count - i >= lanes) {
            store(to + i, load(from + i));
          } else {
            store_part(to + i, load_part(from + i, static_cast<int>(count - i)), static_cast<int>(count - i));
          }
        }
      });
  }
}

// Column sums. Columns adjacent: one chain per column. x adjacent: four vectors of partial sums, then their lanes by
// halves.
template <class T, class E>
void sum(const void *data, int64_t x_stride, int64_t c_stride, int64_t k, int64_t count, T *out) {
  constexpr int lanes = kLanes<T>;
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
