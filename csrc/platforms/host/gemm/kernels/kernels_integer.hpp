// SPDX-License-Identifier: MIT
// Products of 8-bit integers, summed exactly in 32 bits (modulo 2^32): panels of groups of neighbours along k, the
// register tile over them, and the epilogue of integer results.
#pragma once

#include "kernels_epilogue.hpp"
#include "kernels_tile.hpp"

namespace rocpy_host::gemm {
namespace {

// Sums are modulo 2^32, which signed arithmetic is not.
ROCPY_INLINE VecI add_modulo(VecI a, VecI b) { return cast<VecI>(cast<VecU>(a) + cast<VecU>(b)); }
ROCPY_INLINE VecI subtract_modulo(VecI a, VecI b) { return cast<VecI>(cast<VecU>(a) - cast<VecU>(b)); }

// With VNNI a value of a panel holds 4 bytes, the left operand's with 128 added because that instruction multiplies
// unsigned by signed; otherwise it holds 2 halves.
#if defined(__AVX512VNNI__)
constexpr int group_size = 4;
ROCPY_INLINE VecI add_products(VecI sum, VecI left, VecI right) {
  return cast<VecI>(_mm512_dpbusd_epi32(cast<__m512i>(sum), cast<__m512i>(left), cast<__m512i>(right)));
}
#elif defined(__AVXVNNI__)
constexpr int group_size = 4;
ROCPY_INLINE VecI add_products(VecI sum, VecI left, VecI right) {
  return cast<VecI>(_mm256_dpbusd_avx_epi32(cast<__m256i>(sum), cast<__m256i>(left), cast<__m256i>(right)));
}
#else
constexpr int group_size = 2;
ROCPY_INLINE VecI add_products(VecI sum, VecI left, VecI right) {
#if defined(__AVX512BW__)
  return add_modulo(sum, cast<VecI>(_mm512_madd_epi16(cast<__m512i>(left), cast<__m512i>(right))));
#elif defined(__AVX2__)
  return add_modulo(sum, cast<VecI>(_mm256_madd_epi16(cast<__m256i>(left), cast<__m256i>(right))));
#elif defined(__SSE2__)
  return add_modulo(sum, cast<VecI>(_mm_madd_epi16(cast<__m128i>(left), cast<__m128i>(right))));
#else
  const VecI low = (cast<VecI>(cast<VecU>(left) << 16) >> 16) * (cast<VecI>(cast<VecU>(right) << 16) >> 16);
  return add_modulo(sum, add_modulo(low, (left >> 16) * (right >> 16)));
#endif
}
#endif

// The tiles of integers take b as panels only, of values or of pairs of bytes; rows and columns are those of float.
template <class E, int rows, int vectors, bool packed>
void integer_tile(const TileCall<int32_t> &call) {
  constexpr int lanes = vector_lanes<int32_t>;
  const int32_t *a = call.a, *in = call.in;
  const E *b = static_cast<const E *>(call.b);
  const int64_t k = call.k, a_stride = call.a_stride, b_stride = call.b_stride;
  const int64_t pace = call.prefetch_pace, ahead = call.prefetch_stride;
  const char *prefetch = call.prefetch;
  VecI sum[rows][vectors];
  ROCPY_UNROLL
  for (int i = 0; i < rows; i++) {
    ROCPY_UNROLL
    for (int v = 0; v < vectors; v++) sum[i][v] = in ? load(in + i * call.in_stride + v * lanes) : VecI{};
  }
  for (int64_t x = 0; x < k; x++) {
    VecI row[vectors];
    ROCPY_UNROLL
    for (int v = 0; v < vectors; v++) row[v] = load(b + v * lanes);
    __builtin_prefetch(prefetch);
    if constexpr (tile_vectors * lanes * sizeof(E) > 64) __builtin_prefetch(prefetch + 64);
    ROCPY_UNROLL
    for (int i = 0; i < rows; i++) {
      const VecI factor = splat(packed ? a[i] : a[i * a_stride]);
      ROCPY_UNROLL
      for (int v = 0; v < vectors; v++) sum[i][v] = add_products(sum[i][v], factor, row[v]);
    }
    a += packed ? rows : 1;
    b += b_stride;
    if ((x & pace) == pace) prefetch += ahead;
  }
  store_tile(call, lanes, sum);
}

template <class E, int vectors, int rows>
constexpr void fill_integer_tiles(Kernels<int32_t>::Tile *row) {
  row[rows] = integer_tile<E, rows, vectors, true>;
  if constexpr (rows > 1) fill_integer_tiles<E, vectors, rows - 1>(row);
}

// Added to the bytes of the left operand.
template <bool left>
constexpr uint32_t sign_flip = left && group_size == 4 ? 0x80808080u : 0;

ROCPY_INLINE uint32_t group_bits(int element, int at) {
  const uint32_t bits = static_cast<uint32_t>(element);
  return group_size == 4 ? (bits & 0xffu) << (8 * at) : (bits & 0xffffu) << (16 * at);
}

template <bool left>
ROCPY_INLINE void pack_group(const int8_t *from, int64_t x_stride, int64_t c_stride, int some, int count, int width,
                             int32_t *to) {
  for (int c = 0; c < width; c++) {
    uint32_t value = 0;
    for (int i = 0; c < count && i < some; i++) value |= group_bits(from[i * x_stride + c * c_stride], i);
    to[c] = static_cast<int32_t>(value ^ sign_flip<left>);
  }
}

// One vector of groups out of rows of adjacent columns. What is missing, of rows and of columns, is 0.
ROCPY_INLINE VecSB load_row(const int8_t *from, int columns) {
  if (columns >= vector_lanes<int32_t>) return load_bits<VecSB>(from);
#if defined(__AVX512F__)
  return cast<VecSB>(load_bytes(from, columns));
#else
  VecSB row{};
  __builtin_memcpy(&row, from, static_cast<size_t>(columns));
  return row;
#endif
}
ROCPY_INLINE VecI join_rows(const int8_t *from, int64_t x_stride, int64_t rows, int columns) {
  VecU value{};
  ROCPY_UNROLL
  for (int i = 0; i < group_size; i++) {
    const VecSB row = i < rows ? load_row(from + i * x_stride, columns) : VecSB{};
    if constexpr (group_size == 4) {
      value |= widen_bytes(cast<VecB>(row)) << (8 * i);
    } else {
      const VecU wide = cast<VecU>(widen_bytes(row));
      value |= i ? wide << 16 : wide & 0xffffu;
    }
  }
  return cast<VecI>(value);
}

// Vectors of groups that are made together out of whole rows, and what does so. Interleaving works in lanes of 16
// bytes, so the columns are moved before, that they are in order afterwards.
#if defined(__AVX512VNNI__)
constexpr int joined_vectors = 4;
ROCPY_INLINE void join_whole_rows(const int8_t *from, int64_t x_stride, VecI (&joined)[joined_vectors]) {
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  __m512i row[4];
  ROCPY_UNROLL
  for (int i = 0; i < 4; i++) {
    row[i] = _mm512_maskz_permutexvar_epi32(0xffff, order, load_bits<__m512i>(from + i * x_stride));
  }
  const __m512i low[2] = {_mm512_unpacklo_epi8(row[0], row[1]), _mm512_unpacklo_epi8(row[2], row[3])};
  const __m512i high[2] = {_mm512_unpackhi_epi8(row[0], row[1]), _mm512_unpackhi_epi8(row[2], row[3])};
  joined[0] = cast<VecI>(_mm512_unpacklo_epi16(low[0], low[1]));
  joined[1] = cast<VecI>(_mm512_unpackhi_epi16(low[0], low[1]));
  joined[2] = cast<VecI>(_mm512_unpacklo_epi16(high[0], high[1]));
  joined[3] = cast<VecI>(_mm512_unpackhi_epi16(high[0], high[1]));
}
#elif defined(__AVXVNNI__)
constexpr int joined_vectors = 4;
ROCPY_INLINE void join_whole_rows(const int8_t *from, int64_t x_stride, VecI (&joined)[joined_vectors]) {
  const __m256i order = _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7);
  __m256i row[4];
  ROCPY_UNROLL
  for (int i = 0; i < 4; i++) {
    row[i] = _mm256_permutevar8x32_epi32(load_bits<__m256i>(from + i * x_stride), order);
  }
  const __m256i low[2] = {_mm256_unpacklo_epi8(row[0], row[1]), _mm256_unpacklo_epi8(row[2], row[3])};
  const __m256i high[2] = {_mm256_unpackhi_epi8(row[0], row[1]), _mm256_unpackhi_epi8(row[2], row[3])};
  joined[0] = cast<VecI>(_mm256_unpacklo_epi16(low[0], low[1]));
  joined[1] = cast<VecI>(_mm256_unpackhi_epi16(low[0], low[1]));
  joined[2] = cast<VecI>(_mm256_unpacklo_epi16(high[0], high[1]));
  joined[3] = cast<VecI>(_mm256_unpackhi_epi16(high[0], high[1]));
}
#elif defined(__AVX512BW__)
constexpr int joined_vectors = 2;
ROCPY_INLINE void join_whole_rows(const int8_t *from, int64_t x_stride, VecI (&joined)[joined_vectors]) {
  constexpr int order = 0xd8;
  const __m256i first = _mm256_permute4x64_epi64(load_bits<__m256i>(from), order);
  const __m256i second = _mm256_permute4x64_epi64(load_bits<__m256i>(from + x_stride), order);
  joined[0] = cast<VecI>(_mm512_cvtepi8_epi16(_mm256_unpacklo_epi8(first, second)));
  joined[1] = cast<VecI>(_mm512_cvtepi8_epi16(_mm256_unpackhi_epi8(first, second)));
}
#elif defined(__AVX2__)
constexpr int joined_vectors = 2;
ROCPY_INLINE void join_whole_rows(const int8_t *from, int64_t x_stride, VecI (&joined)[joined_vectors]) {
  const __m128i first = load_bits<__m128i>(from), second = load_bits<__m128i>(from + x_stride);
  joined[0] = cast<VecI>(_mm256_cvtepi8_epi16(_mm_unpacklo_epi8(first, second)));
  joined[1] = cast<VecI>(_mm256_cvtepi8_epi16(_mm_unpackhi_epi8(first, second)));
}
#else
constexpr int joined_vectors = 1;
ROCPY_INLINE void join_whole_rows(const int8_t *from, int64_t x_stride, VecI (&joined)[joined_vectors]) {
  joined[0] = join_rows(from, x_stride, group_size, vector_lanes<int32_t>);
}
#endif

// The groups of a panel's columns, two vectors, out of whole rows.
#if defined(__AVX512VNNI__)
ROCPY_INLINE void join_panel(const int8_t *from, int64_t x_stride, VecI (&joined)[2]) {
  // Rows 0 and 1 are interleaved in the lower half, 2 and 3 in the upper one; words of both halves are a group.
  const auto two_rows = [&](int64_t row) {
    return _mm512_maskz_inserti64x4(0xff, _mm512_zextsi256_si512(load_bits<__m256i>(from + row * x_stride)),
                                    load_bits<__m256i>(from + (row + 2) * x_stride), 1);
  };
  const __m512i even = two_rows(0), odd = two_rows(1);
  const __m512i low = _mm512_unpacklo_epi8(even, odd), high = _mm512_unpackhi_epi8(even, odd);
  alignas(64) static constexpr uint16_t first[32] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                                     32, 48, 33, 49, 34, 50, 35, 51, 36, 52, 37, 53, 38, 54, 39, 55};
  const __m512i order = _mm512_load_si512(first), second = _mm512_add_epi16(order, _mm512_set1_epi16(8));
  joined[0] = cast<VecI>(_mm512_permutex2var_epi16(low, order, high));
  joined[1] = cast<VecI>(_mm512_permutex2var_epi16(low, second, high));
}
#elif defined(__AVXVNNI__)
ROCPY_INLINE void join_panel(const int8_t *from, int64_t x_stride, VecI (&joined)[2]) {
  __m128i row[4];
  ROCPY_UNROLL
  for (int i = 0; i < 4; i++) row[i] = load_bits<__m128i>(from + i * x_stride);
  const __m128i low[2] = {_mm_unpacklo_epi8(row[0], row[1]), _mm_unpacklo_epi8(row[2], row[3])};
  const __m128i high[2] = {_mm_unpackhi_epi8(row[0], row[1]), _mm_unpackhi_epi8(row[2], row[3])};
  joined[0] = cast<VecI>(_mm256_set_m128i(_mm_unpackhi_epi16(low[0], low[1]), _mm_unpacklo_epi16(low[0], low[1])));
  joined[1] = cast<VecI>(_mm256_set_m128i(_mm_unpackhi_epi16(high[0], high[1]), _mm_unpacklo_epi16(high[0], high[1])));
}
#elif defined(__AVX2__)
ROCPY_INLINE void join_panel(const int8_t *from, int64_t x_stride, VecI (&joined)[2]) {
  join_whole_rows(from, x_stride, joined);
}
#else
ROCPY_INLINE void join_panel(const int8_t *from, int64_t x_stride, VecI (&joined)[2]) {
  constexpr int lanes = vector_lanes<int32_t>;
  for (int v = 0; v < 2; v++) joined[v] = join_rows(from + v * lanes, x_stride, group_size, lanes);
}
#endif

// A vector of groups of neighbours along x, of which `count` elements exist.
constexpr int group_vector = vector_lanes<int32_t> * group_size;
ROCPY_INLINE VecI load_groups(const int8_t *from) {
#if defined(__AVX512VNNI__) || defined(__AVXVNNI__)
  return load_bits<VecI>(from);
#elif defined(__AVX512BW__)
  return cast<VecI>(_mm512_cvtepi8_epi16(load_bits<__m256i>(from)));
#elif defined(__AVX2__)
  return cast<VecI>(_mm256_cvtepi8_epi16(load_bits<__m128i>(from)));
#else
  typedef int8_t Bytes __attribute__((vector_size(vector_bytes / 2)));
  typedef int16_t Halves __attribute__((vector_size(vector_bytes)));
  return cast<VecI>(__builtin_convertvector(load_bits<Bytes>(from), Halves));
#endif
}

// A group of halves, as bytes.
struct BytePair {
  int8_t values[2];
};
ROCPY_INLINE VecI load(const BytePair *p) { return load_groups(p->values); }

ROCPY_INLINE VecI load_groups(const int8_t *from, int64_t count) {
  if (count >= group_vector) return load_groups(from);
#if defined(__AVX512VNNI__)
  return cast<VecI>(_mm512_maskz_loadu_epi8((uint64_t{1} << count) - 1, from));
#else
  int8_t whole[group_vector] = {};
  __builtin_memcpy(whole, from, static_cast<size_t>(count));
  return load_groups(whole);
#endif
}

template <bool left>
void pack_integers(const void *data, int64_t x_stride, int64_t c_stride, int64_t k, int count, int width, int32_t *to,
                   int64_t to_stride) {
  constexpr int lanes = vector_lanes<int32_t>;
  const int8_t *from = static_cast<const int8_t *>(data);
  if (c_stride == 1 && count > 1) {
    int64_t x = 0;
    if (count == 2 * lanes && width == 2 * lanes) {
      for (; k - x >= group_size; x += group_size, to += to_stride) {
        VecI joined[2];
        join_panel(from + x * x_stride, x_stride, joined);
        for (int v = 0; v < 2; v++) store(to + v * lanes, cast<VecI>(cast<VecU>(joined[v]) ^ sign_flip<left>));
      }
    }
    for (; x < k; x += group_size, to += to_stride) {
      for (int c = 0; c < width; c += lanes) {
        const int columns = count - c < lanes ? count - c : lanes;
        VecI value{};
        if (columns > 0) value = join_rows(from + x * x_stride + c, x_stride, k - x, columns);
        value = cast<VecI>(cast<VecU>(value) ^ sign_flip<left>);
        store_some(to + c, value, width - c, lanes);
      }
    }
  } else if (x_stride == 1 && width == 1 && to_stride == 1) {
    // The groups of a row by itself are neighbours here as there.
    for (int64_t x = 0; x < k; x += group_vector, to += lanes) {
      const int64_t groups = (k - x + group_size - 1) / group_size;
      const VecI row = cast<VecI>(cast<VecU>(load_groups(from + x, k - x)) ^ sign_flip<left>);
      store_some(to, row, groups < lanes ? static_cast<int>(groups) : lanes, lanes);
    }
  } else if (x_stride == 1) {
    for (int64_t x = 0; x < k; x += group_vector, to += lanes * to_stride) {
      const int64_t groups = (k - x + group_size - 1) / group_size;
      for (int c = 0; c < width; c += lanes) {
        VecF block[lanes];
        ROCPY_UNROLL
        for (int i = 0; i < lanes; i++) {
          block[i] = c + i < count ? cast<VecF>(load_groups(from + (c + i) * c_stride + x, k - x)) : VecF{};
        }
        transpose<float>(block);
        for (int i = 0; i < lanes && i < groups; i++) {
          store_some(to + i * to_stride + c, cast<VecI>(cast<VecU>(block[i]) ^ sign_flip<left>), width - c, lanes);
        }
      }
    }
  } else {
    for (int64_t x = 0; x < k; x += group_size, to += to_stride) {
      const int some = k - x < group_size ? static_cast<int>(k - x) : group_size;
      pack_group<left>(from + x * x_stride, x_stride, c_stride, some, count, width, to);
    }
  }
}

// The panels that callers keep where a group is two halves: pairs of bytes.
inline void pack_byte_pairs(const void *data, int64_t x_stride, int64_t c_stride, int64_t k, int count, int width,
                            void *to, int64_t to_stride) {
  typedef int8_t Row __attribute__((vector_size(16)));
  constexpr int together = sizeof(Row);
  const int8_t *from = static_cast<const int8_t *>(data);
  BytePair *out = static_cast<BytePair *>(to);
  for (int64_t x = 0; x < k; x += 2, from += 2 * x_stride, out += to_stride) {
    const bool pair = x + 1 < k;
    int c = 0;
    for (; c_stride == 1 && pair && c + together <= count; c += together) {
      const Row first = load_bits<Row>(from + c), second = load_bits<Row>(from + x_stride + c);
      const Row low = __builtin_shufflevector(first, second, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
      const Row high =
          __builtin_shufflevector(first, second, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
      __builtin_memcpy(out + c, &low, sizeof low);
      __builtin_memcpy(out + c + together / 2, &high, sizeof high);
    }
    for (; c < count; c++) out[c] = {{from[c * c_stride], pair ? from[x_stride + c * c_stride] : int8_t{0}}};
    for (; c < width; c++) out[c] = {{0, 0}};
  }
}

#if defined(__AVX512VNNI__) || defined(__AVXVNNI__)
inline void correct_offset(int64_t k, const int32_t *b, int64_t b_stride, int32_t *out) {
  constexpr int lanes = vector_lanes<int32_t>;
  const VecI offset = splat(static_cast<int32_t>(0x80808080u));
  VecI first{}, second{};
  for (int64_t x = 0; x < k; x++, b += b_stride) {
    first = add_products(first, offset, load(b));
    second = add_products(second, offset, load(b + lanes));
  }
  store(out, -first);
  store(out + lanes, -second);
}
#endif

ROCPY_INLINE VecI load_integers(const void *data, Type type, int64_t offset, int count) {
  constexpr int lanes = vector_lanes<int32_t>;
  if (type == Type::i32) return load_some(static_cast<const int32_t *>(data) + offset, count, lanes);
  return __builtin_convertvector(load_some(static_cast<const Int8 *>(data) + offset, count, lanes), VecI);
}

// alpha * sum + beta * c + bias modulo 2^32, activated, and held to the range of the result.
inline void epilogue_integer(const Finish<int32_t> &finish, const int32_t *tile, int64_t stride, const Region &region,
                             int32_t *) {
  constexpr int lanes = vector_lanes<int32_t>;
  const auto [g, i0, j0, rows, columns] = region;
  const Problem &p = *finish.problem;
  const int64_t bias = g * p.bias_batch_stride;
  for (int64_t j = 0; j < columns; j += lanes) {
    const int count = columns - j < lanes ? static_cast<int>(columns - j) : lanes;
    VecU alpha = cast<VecU>(splat(finish.alpha)), column_bias{};
    if (p.alpha_vector) {
      alpha = cast<VecU>(load_some(static_cast<const int32_t *>(p.alpha_vector) + j0 + j, count, lanes));
    }
    if (p.has_bias && !p.bias_per_row) {
      column_bias = cast<VecU>(load_integers(p.bias, p.bias_type, bias + j0 + j, count));
    }
    for (int64_t i = 0; i < rows; i++) {
      VecU x = cast<VecU>(load(tile + i * stride + j)) * alpha;
      if (finish.beta != 0) {
        const int64_t at = g * p.c_batch_stride + (i0 + i) * p.c_row_stride + j0 + j;
        x += cast<VecU>(splat(finish.beta)) * cast<VecU>(load_integers(p.c, p.d_type, at, count));
      }
      if (p.has_bias) {
        x +=
            p.bias_per_row ? cast<VecU>(load_integers(p.bias, p.bias_type, bias + i0 + i, 1))[0] + VecU{} : column_bias;
      }
      VecI y = cast<VecI>(x);
      if (p.activation == Activation::relu) y = y < 0 ? VecI{} : y;
      if (p.activation == Activation::clamp) {
        y = y > finish.high ? splat(finish.high) : y;
        y = y < finish.low ? splat(finish.low) : y;
      }
      const int64_t at = g * p.d_batch_stride + (i0 + i) * p.d_row_stride + j0 + j;
      if (p.d_type == Type::i32) {
        store_some(static_cast<int32_t *>(p.d) + at, y, count, lanes);
        continue;
      }
      y = y > 127 ? splat(127) : y;
      y = y < -128 ? splat(-128) : y;
      store_some(static_cast<Int8 *>(p.d) + at, __builtin_convertvector(y, VecF), count, lanes);
    }
  }
}

inline void epilogue_real(const Finish<int32_t> &finish, const int32_t *tile, int64_t stride, const Region &region,
                          int32_t *) {
  epilogue_any<float, int32_t>(finish.real, tile, stride, region, nullptr);
}

inline Kernels<int32_t>::Epilogue choose_integer_epilogue(const Problem &p) {
  return integer_epilogue(p) ? epilogue_integer : epilogue_real;
}

}  // namespace
}  // namespace rocpy_host::gemm
