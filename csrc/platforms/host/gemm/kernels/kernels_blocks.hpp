// SPDX-License-Identifier: MIT
// Operands narrower than a byte and with a scale for every 32 of k: lines of them widened to float, thin products of
// lines as they are given, and of panels that were packed with their scales. Elements become floats in registers,
// scaled before they are multiplied.
#pragma once

#include "kernels_skinny.hpp"
#include "kernels_tile.hpp"

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

typedef uint8_t Bytes16 __attribute__((vector_size(16)));

// Codes in the lowest bits of a vector of bytes.
template <class F>
ROCPY_INLINE VecF decode_codes(VecB codes) {
  return decode<F>(codes);
}
#if defined(__AVX512F__)
// Four bits choose one of sixteen lanes, whatever the bits above them are.
template <>
ROCPY_INLINE VecF decode_codes<E2m1>(VecB codes) {
  const VecF numbers = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};
  return _mm512_maskz_permutexvar_ps(0xffff, cast<__m512i>(widen_bytes(codes)), numbers);
}
#elif defined(__AVX2__)
template <>
ROCPY_INLINE VecF decode_codes<E2m1>(VecB codes) {
  const VecF numbers = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  const VecU wide = widen_bytes(codes);
  const VecF magnitude = _mm256_permutevar8x32_ps(numbers, cast<__m256i>(wide));
  return cast<VecF>(cast<VecU>(magnitude) | (wide & 8u) << 28);
}
#endif

// The 32 elements of a block of a line.
template <class F>
ROCPY_INLINE void load_block(const uint8_t *from, VecF *to) {
  constexpr int lanes = vector_lanes<float>;
  alignas(16) uint8_t codes[block_length];
  if constexpr (F::width == 4) {
    const Bytes16 pairs = load_bits<Bytes16>(from), low = pairs & 15, high = pairs >> 4;
    const Bytes16 first = ROCPY_SHUFFLE(Bytes16, low, high, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const Bytes16 second =
        ROCPY_SHUFFLE(Bytes16, low, high, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    __builtin_memcpy(codes, &first, 16);
    __builtin_memcpy(codes + 16, &second, 16);
    from = codes;
  } else if constexpr (F::width == 6) {
    spread<F>(from, block_length, codes);
    from = codes;
  }
  ROCPY_UNROLL
  for (int i = 0; i < block_length / lanes; i++) to[i] = decode_codes<F>(load_bits<VecB>(from + i * lanes));
}

template <class F, int rows>
void dot_blocks(const BlockDotCall &call) {
  constexpr int lanes = vector_lanes<float>, columns = skinny_vectors(rows) < 4 ? skinny_vectors(rows) : 4;
  constexpr int parts = block_length / lanes, block = block_length * F::width / 8;
  const auto [k, a, a_stride, b_data, b_stride, n, out, out_row, out_column, first, least, again] = call.lines;
  const uint8_t *b = static_cast<const uint8_t *>(b_data), *scales = call.scales;
  const int64_t scale_stride = call.scale_stride;
  for (int64_t j = 0; j < n; j += columns) {
    const uint8_t *line[columns], *scale[columns];
    // Past the end the last column is read again; its sums are dropped.
    for (int c = 0; c < columns; c++) {
      const int64_t column = j + c < n ? j + c : n - 1;
      line[c] = b + column * b_stride;
      scale[c] = scales + column * scale_stride;
    }
    VecF sum[rows][columns];
    ROCPY_UNROLL
    for (int i = 0; i < rows; i++) {
      ROCPY_UNROLL
      for (int c = 0; c < columns; c++) sum[i][c] = splat(0.0f);
    }
    for (int64_t x = 0; x < k; x += block_length) {
      ROCPY_UNROLL
      for (int c = 0; c < columns; c++) {
        VecF values[parts];
        load_block<F>(line[c], values);
        fetch_far(line[c] + dot_ahead<uint8_t>);
        line[c] += block;
        const VecF factor = splat(e8m0_to_float(*scale[c]++));
        ROCPY_UNROLL
        for (int part = 0; part < parts; part++) {
          const VecF scaled = values[part] * factor;
          ROCPY_UNROLL
          for (int i = 0; i < rows; i++) {
            sum[i][c] = fma(load(a + i * a_stride + x + part * lanes), scaled, sum[i][c]);
          }
        }
      }
    }
    const int valid = n - j < columns ? static_cast<int>(n - j) : columns;
    for (int i = 0; i < rows; i++) {
      ROCPY_UNROLL
      for (int c = 0; c < columns; c++) {
        if (c >= valid) break;
        float *to = out + i * out_row + (j + c) * out_column;
        const float total = sum_lanes<float>(sum[i][c]);
        *to = first ? total : *to + total;
      }
    }
  }
}

// A vector of e8m0 scales.
ROCPY_INLINE VecF load_scales(const uint8_t *p) {
  const VecU codes = widen_bytes(load_bits<VecB>(p));
  const VecU least = codes * 0 + 0x400000u, nan = codes * 0 + 0x7fc00000u;
  VecU bits = codes == 0 ? least : codes << 23;
  bits = codes == 255 ? nan : bits;
  return cast<VecF>(bits);
}

// One row of codes of a packed panel, two vectors wide.
template <class F>
ROCPY_INLINE void load_row(const uint8_t *codes, VecF *first, VecF *second) {
  if constexpr (F::width == 4) {
    const VecB pairs = load_bits<VecB>(codes);
    *first = decode_codes<F>(pairs & 15);
    *second = decode_codes<F>(pairs >> 4);
  } else {
    *first = decode_codes<F>(load_bits<VecB>(codes));
    *second = decode_codes<F>(load_bits<VecB>(codes + vector_lanes<float>));
  }
}
template <class F>
constexpr int block_row_bytes = F::width == 4 ? vector_lanes<float> : 2 * vector_lanes<float>;

// As Kernels::tile over a packed panel from the beginning of a block, two vectors wide, a packed; k is whole blocks.
template <class F, int rows>
void thin_blocks(const TileCall<float> &call) {
  constexpr int lanes = vector_lanes<float>;
  const float *a = call.a, *in = call.in;
  const int64_t k = call.k;
  const int stored = call.stored;
  const uint8_t *b = static_cast<const uint8_t *>(call.b);
  VecF sum[rows][2];
  ROCPY_UNROLL
  for (int i = 0; i < rows; i++) {
    ROCPY_UNROLL
    for (int v = 0; v < 2; v++) sum[i][v] = in ? load(in + i * call.in_stride + v * lanes) : splat(0.0f);
  }
  for (int64_t x = 0; x < k; x += block_length) {
    const VecF scale[2] = {load_scales(b), load_scales(b + lanes)};
    b += 2 * lanes;
    for (int r = 0; r < block_length; r++, b += block_row_bytes<F>, a += rows) {
      VecF first, second;
      load_row<F>(b, &first, &second);
      fetch_far(b + dot_ahead<uint8_t>);
      first = first * scale[0];
      second = second * scale[1];
      ROCPY_UNROLL
      for (int i = 0; i < rows; i++) {
        const VecF factor = splat(a[i]);
        sum[i][0] = fma(factor, first, sum[i][0]);
        sum[i][1] = fma(factor, second, sum[i][1]);
      }
    }
  }
  store_tile(call, stored, sum);
}

// `count` rows of a packed panel, from the x-th on, as floats.
template <class F>
void widen_panel(const void *data, int64_t x, int64_t count, float *to) {
  constexpr int lanes = vector_lanes<float>;
  const uint8_t *panel = static_cast<const uint8_t *>(data);
  constexpr int64_t block_bytes = 2 * lanes + block_length * block_row_bytes<F>;
  for (const int64_t end = x + count; x < end;) {
    const uint8_t *block = panel + x / block_length * block_bytes;
    const VecF scale[2] = {load_scales(block), load_scales(block + lanes)};
    const uint8_t *codes = block + 2 * lanes + x % block_length * block_row_bytes<F>;
    int64_t left = block_length - x % block_length;
    if (left > end - x) left = end - x;
    for (x += left; left > 0; left--, codes += block_row_bytes<F>, to += 2 * lanes) {
      VecF first, second;
      load_row<F>(codes, &first, &second);
      store(to, first * scale[0]);
      store(to + lanes, second * scale[1]);
    }
  }
}

template <class F, int rows>
constexpr void fill_blocks(BlockElements &elements) {
  elements.dot[rows] = dot_blocks<F, rows>;
  elements.thin[rows] = thin_blocks<F, rows>;
  if constexpr (rows > 1) fill_blocks<F, rows - 1>(elements);
}
template <class F>
constexpr BlockElements make_block_elements() {
  BlockElements elements{};
  elements.widen = widen_panel<F>;
  fill_blocks<F, max_skinny_rows>(elements);
  return elements;
}

}  // namespace
}  // namespace rocpy_host::gemm
