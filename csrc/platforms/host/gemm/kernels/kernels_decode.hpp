// SPDX-License-Identifier: MIT
// Lines of packed elements, with or without a scale for every 32 of them, widened to float.
#pragma once

#include "formats.hpp"

namespace rocpy_host::gemm {
namespace {

constexpr int block_length = 32;

// `count` codes, at most block_length, that begin at a whole byte, moved into a byte each; what is missing is 0.
template <class F>
ROCPY_INLINE void spread(const uint8_t *from, int count, uint8_t *codes) {
  uint8_t whole[block_length * F::width / 8] = {};
  if (count < block_length) {
    __builtin_memcpy(whole, from, static_cast<size_t>((count * F::width + 7) / 8));
    from = whole;
  }
  for (int i = 0; i < block_length; i += 8, from += F::width) {
    // Eight at a time: in halves, and in these with shifts.
    uint32_t low = 0;
    __builtin_memcpy(&low, from, 4);
    uint64_t word = low;
    if constexpr (F::width == 6) {
      uint16_t high = 0;
      __builtin_memcpy(&high, from + 4, 2);
      word |= static_cast<uint64_t>(high) << 32;
      word = (word & 0xffffff) | (word << 8 & 0xffffff00000000u);
      word = (word & 0x3f0000003fu) | (word << 2 & 0x3f0000003f00u) | (word << 4 & 0x3f0000003f0000u) |
             (word << 6 & 0x3f0000003f000000u);
    } else {
      word = (word | word << 16) & 0x0000ffff0000ffffu;
      word = (word | word << 8) & 0x00ff00ff00ff00ffu;
      word = (word | word << 4) & 0x0f0f0f0f0f0f0f0fu;
    }
    __builtin_memcpy(codes + i, &word, 8);
  }
}

template <class F>
void decode_line(const uint8_t *line, const uint8_t *scales, int64_t x, int64_t count, float *to) {
  constexpr int lanes = vector_lanes<float>;
  for (int64_t end = x + count; x < end;) {
    // To the end of a block; a part of one begins at a multiple of 8, so at a whole byte.
    const int64_t left = block_length - x % block_length;
    const int some = static_cast<int>(end - x < left ? end - x : left);
    Byte<F> codes[block_length];
    if constexpr (F::width == 8) {
      __builtin_memcpy(codes, line + x, static_cast<size_t>(some));
    } else {
      spread<F>(line + x * F::width / 8, some, &codes[0].bits);
    }
    const float scale = scales ? e8m0_to_float(scales[x / block_length]) : 1.0f;
    for (int i = 0; i < block_length; i += lanes) {
      if (i >= some) break;
      const VecF values = (some - i >= lanes ? load(codes + i) : load_part(codes + i, some - i)) * splat(scale);
      if (some - i >= lanes) {
        store(to + i, values);
      } else {
        store_part(to + i, values, some - i);
      }
    }
    x += some;
    to += some;
  }
}

inline void decode_packed(Type type, const void *line, const uint8_t *scales, int64_t x, int64_t count, float *to) {
  const uint8_t *bytes = static_cast<const uint8_t *>(line);
  switch (type) {
    case Type::e4m3:
      return decode_line<E4m3>(bytes, scales, x, count, to);
    case Type::e5m2:
      return decode_line<E5m2>(bytes, scales, x, count, to);
    case Type::e2m3:
      return decode_line<E2m3>(bytes, scales, x, count, to);
    case Type::e3m2:
      return decode_line<E3m2>(bytes, scales, x, count, to);
    default:
      return decode_line<E2m1>(bytes, scales, x, count, to);
  }
}

}  // namespace
}  // namespace rocpy_host::gemm
