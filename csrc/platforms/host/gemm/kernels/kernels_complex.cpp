// SPDX-License-Identifier: MIT
// The kernels of one instruction set for complex products, built as kernels.cpp is.
#include "kernels.hpp"
#include "simd.hpp"

namespace rocpy_host::gemm::ROCPY_KERNEL_ISA {
namespace {

// Sums of both parts, two vectors of b's parts each, and a factor fit the registers.
constexpr int complex_rows = vector_registers == 32 ? 6 : 2;
constexpr int complex_vectors = 2;

template <class T, int rows>
void tile(int64_t k, const T *a, const T *b, T *acc, bool first) {
  constexpr int lanes = vector_lanes<T>, width = complex_vectors * lanes;
  Vec<T> re[rows][complex_vectors], im[rows][complex_vectors];
  ROCPY_UNROLL
  for (int i = 0; i < rows; i++) {
    ROCPY_UNROLL
    for (int v = 0; v < complex_vectors; v++) {
      re[i][v] = first ? splat(static_cast<T>(0)) : load(acc + i * 2 * width + v * lanes);
      im[i][v] = first ? splat(static_cast<T>(0)) : load(acc + i * 2 * width + width + v * lanes);
    }
  }
  for (int64_t x = 0; x < k; x++, a += 3 * rows, b += 2 * width) {
    Vec<T> b_re[complex_vectors], b_im[complex_vectors];
    ROCPY_UNROLL
    for (int v = 0; v < complex_vectors; v++) {
      b_re[v] = load(b + v * lanes);
      b_im[v] = load(b + width + v * lanes);
    }
    ROCPY_UNROLL
    for (int i = 0; i < rows; i++) {
      const Vec<T> a_re = splat(a[3 * i]), a_im = splat(a[3 * i + 1]), minus = splat(a[3 * i + 2]);
      ROCPY_UNROLL
      for (int v = 0; v < complex_vectors; v++) {
        re[i][v] = fma(a_re, b_re[v], re[i][v]);
        im[i][v] = fma(a_re, b_im[v], im[i][v]);
      }
      ROCPY_UNROLL
      for (int v = 0; v < complex_vectors; v++) {
        re[i][v] = fma(minus, b_im[v], re[i][v]);
        im[i][v] = fma(a_im, b_re[v], im[i][v]);
      }
    }
  }
  ROCPY_UNROLL
  for (int i = 0; i < rows; i++) {
    ROCPY_UNROLL
    for (int v = 0; v < complex_vectors; v++) {
      store(acc + i * 2 * width + v * lanes, re[i][v]);
      store(acc + i * 2 * width + width + v * lanes, im[i][v]);
    }
  }
}

template <class T>
void pack_rows(const T *from, int64_t x_stride, int64_t row_stride, T sign, int64_t k, int rows, T *to) {
  for (int i = 0; i < rows; i++) {
    const T *line = from + 2 * i * row_stride;
    T *out = to + 3 * i;
    for (int64_t x = 0; x < k; x++, line += 2 * x_stride, out += 3 * rows) {
      const T im = sign * line[1];
      out[0] = line[0];
      out[1] = im;
      out[2] = -im;
    }
  }
}

// Columns adjacent: a row's parts are taken apart side by side. Else a few rows at a time, so that what one column
// brings into the cache serves the next rows.
template <class T>
void pack_columns(const T *from, int64_t x_stride, int64_t column_stride, T sign, int64_t k, int count, T *to) {
  constexpr int width = complex_vectors * vector_lanes<T>;
  constexpr int64_t step = 8;
  for (int64_t x0 = 0; x0 < k; x0 += step) {
    const int64_t some = k - x0 < step ? k - x0 : step;
    if (column_stride == 1 && count == width) {
      for (int64_t x = x0; x < x0 + some; x++) {
        const T *line = from + 2 * x * x_stride;
        T *out = to + x * 2 * width;
        for (int c = 0; c < width; c++) {
          out[c] = line[2 * c];
          out[width + c] = sign * line[2 * c + 1];
        }
      }
      continue;
    }
    for (int c = 0; c < width; c++) {
      const T *line = from + 2 * (c * column_stride + x0 * x_stride);
      T *out = to + x0 * 2 * width + c;
      for (int64_t x = 0; x < some; x++, out += 2 * width) {
        out[0] = c < count ? line[2 * x * x_stride] : 0;
        out[width] = c < count ? sign * line[2 * x * x_stride + 1] : 0;
      }
    }
  }
}

// A factor without an imaginary part multiplies the parts alone: an infinity in one must not make the other NaN.
template <class T>
ROCPY_INLINE void multiply(T re, T im, T factor_re, T factor_im, T *to_re, T *to_im) {
  if (factor_im == 0) {
    *to_re = factor_re * re;
    *to_im = factor_re * im;
  } else {
    *to_re = factor_re * re - factor_im * im;
    *to_im = factor_re * im + factor_im * re;
  }
}

template <class T>
void finish(const Problem &p, const T *acc, int64_t width, int64_t g, int64_t i, int64_t j, int64_t rows,
            int64_t columns) {
  const T alpha_re = static_cast<T>(p.alpha), alpha_im = static_cast<T>(p.alpha_imaginary);
  const T beta_re = static_cast<T>(p.beta), beta_im = static_cast<T>(p.beta_imaginary);
  const bool one = alpha_re == 1 && alpha_im == 0, reads_c = beta_re != 0 || beta_im != 0;
  const T *bias = p.has_bias ? static_cast<const T *>(p.bias) + 2 * g * p.bias_batch_stride : nullptr;
  for (int64_t r = 0; r < rows; r++, acc += 2 * width) {
    T *d = static_cast<T *>(p.d) + 2 * (g * p.d_batch_stride + (i + r) * p.d_row_stride + j);
    const T *c = reads_c ? static_cast<const T *>(p.c) + 2 * (g * p.c_batch_stride + (i + r) * p.c_row_stride + j) : d;
    if (one && !reads_c && !bias) {
      for (int64_t x = 0; x < columns; x++) {
        d[2 * x] = acc[x];
        d[2 * x + 1] = acc[width + x];
      }
      continue;
    }
    for (int64_t x = 0; x < columns; x++) {
      T re, im;
      multiply(acc[x], acc[width + x], alpha_re, alpha_im, &re, &im);
      if (reads_c) {
        T c_re, c_im;
        multiply(c[2 * x], c[2 * x + 1], beta_re, beta_im, &c_re, &c_im);
        re += c_re;
        im += c_im;
      }
      if (bias) {
        const T *add = bias + 2 * (p.bias_per_row ? i + r : j + x);
        re += add[0];
        im += add[1];
      }
      d[2 * x] = re;
      d[2 * x + 1] = im;
    }
  }
}

// The parts of each element change places.
template <class T>
ROCPY_INLINE Vec<T> swap_parts(Vec<T> v) {
  using I = typename Vector<T>::I;
  if constexpr (vector_lanes<T> == 16) {
    return ROCPY_SHUFFLE(I, v, v, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14);
  } else if constexpr (vector_lanes<T> == 8) {
    return ROCPY_SHUFFLE(I, v, v, 1, 0, 3, 2, 5, 4, 7, 6);
  } else if constexpr (vector_lanes<T> == 4) {
    return ROCPY_SHUFFLE(I, v, v, 1, 0, 3, 2);
  } else {
    return ROCPY_SHUFFLE(I, v, v, 1, 0);
  }
}

// Lines of b side by side, and the sums that take turns along a line: of one row there are few others.
constexpr int dot_lines(int rows) { return vector_registers == 32 ? (rows < 3 ? 4 : 2) : rows < 3 ? 2 : 1; }
constexpr int dot_turns(int rows) { return rows == 1 ? 2 : 1; }

// Of the even lanes, and of the odd ones.
template <class T>
ROCPY_INLINE void sum_parts(Vec<T> v, T *even, T *odd) {
  T part[vector_lanes<T>];
  __builtin_memcpy(part, &v, sizeof v);
  for (int half = vector_lanes<T> / 2; half > 1; half /= 2) {
    for (int i = 0; i < half; i++) part[i] += part[i + half];
  }
  *even = part[0];
  *odd = part[1];
}

// A step of the sums of products of equal parts, and of the crossed ones.
template <class T, int rows, int lines>
ROCPY_INLINE void dot_step(const Vec<T> (&factor)[lines], const Vec<T> (&row)[rows], Vec<T> (&equal)[rows][lines],
                           Vec<T> (&crossed)[rows][lines]) {
  ROCPY_UNROLL
  for (int i = 0; i < rows; i++) {
    const Vec<T> swapped = swap_parts<T>(row[i]);
    ROCPY_UNROLL
    for (int c = 0; c < lines; c++) {
      equal[i][c] = fma(factor[c], row[i], equal[i][c]);
      crossed[i][c] = fma(factor[c], swapped, crossed[i][c]);
    }
  }
}

// The products with `lines` lines of b from the j-th on.
template <class T, int rows, int lines>
ROCPY_INLINE void dots(const ComplexDotCall<T> &call, int64_t j) {
  constexpr int lanes = vector_lanes<T>, turns = dot_turns(rows);
  const int64_t parts = 2 * call.k, a_stride = 2 * call.a_stride, b_stride = 2 * call.b_stride;
  const T *a = call.a, *b = call.b + j * b_stride;
  Vec<T> equal[turns][rows][lines], crossed[turns][rows][lines];
  ROCPY_UNROLL
  for (int t = 0; t < turns; t++) {
    ROCPY_UNROLL
    for (int i = 0; i < rows; i++) {
      ROCPY_UNROLL
      for (int c = 0; c < lines; c++) equal[t][i][c] = crossed[t][i][c] = splat(static_cast<T>(0));
    }
  }
  const auto load_all = [&](int64_t x, int count, Vec<T>(&factor)[lines], Vec<T>(&row)[rows]) {
    ROCPY_UNROLL
    for (int c = 0; c < lines; c++) factor[c] = load_some(b + c * b_stride + x, count, lanes);
    ROCPY_UNROLL
    for (int i = 0; i < rows; i++) row[i] = load_some(a + i * a_stride + x, count, lanes);
  };
  Vec<T> factor[lines], row[rows];
  int64_t x = 0;
  for (; x + turns * lanes <= parts; x += turns * lanes) {
    ROCPY_UNROLL
    for (int t = 0; t < turns; t++) {
      load_all(x + t * lanes, lanes, factor, row);
      dot_step<T, rows, lines>(factor, row, equal[t], crossed[t]);
    }
  }
  for (; x < parts; x += lanes) {
    load_all(x, parts - x < lanes ? static_cast<int>(parts - x) : lanes, factor, row);
    dot_step<T, rows, lines>(factor, row, equal[0], crossed[0]);
  }
  ROCPY_LOOP
  for (int i = 0; i < rows; i++) {
    ROCPY_LOOP
    for (int c = 0; c < lines; c++) {
      Vec<T> same = equal[0][i][c], other = crossed[0][i][c];
      if constexpr (turns == 2) {
        same = same + equal[1][i][c];
        other = other + crossed[1][i][c];
      }
      T re, im, minus, rest;
      sum_parts<T>(same, &re, &minus);
      sum_parts<T>(other, &im, &rest);
      re -= call.a_sign * call.b_sign * minus;
      im = call.a_sign * im + call.b_sign * rest;
      T *to = call.out + i * call.out_row + (j + c) * call.out_column;
      to[0] = call.first ? re : to[0] + re;
      to[call.imaginary] = call.first ? im : to[call.imaginary] + im;
    }
  }
}

// A line's bits do not depend on how many lie beside it.
template <class T, int rows>
void dot(const ComplexDotCall<T> &arguments) {
  constexpr int lines = dot_lines(rows);
  const ComplexDotCall<T> call = arguments;
  int64_t j = 0;
  for (; j + lines <= call.n; j += lines) dots<T, rows, lines>(call, j);
  for (; j < call.n; j++) dots<T, rows, 1>(call, j);
}

template <class T, int rows, int vectors>
ROCPY_INLINE void wide_block(const ComplexWideCall<T> &call, int64_t j, int last) {
  constexpr int lanes = vector_lanes<T>;
  const T *a = call.a, *b = call.b + j;
  T *acc = call.acc + j;
  const int64_t acc_stride = call.acc_stride;
  Vec<T> sum[2 * rows][vectors];
  ROCPY_UNROLL
  for (int i = 0; i < 2 * rows; i++) {
    ROCPY_UNROLL
    for (int v = 0; v < vectors; v++) {
      sum[i][v] = call.first ? splat(static_cast<T>(0)) : load(acc + i * acc_stride + v * lanes);
    }
  }
  for (int64_t x = 0; x < call.k; x++, a += call.a_stride, b += 2 * call.b_stride) {
    Vec<T> line[vectors];
    ROCPY_UNROLL
    for (int v = 0; v < vectors; v++) line[v] = load_some(b + v * lanes, v == vectors - 1 ? last : lanes, lanes);
    ROCPY_UNROLL
    for (int i = 0; i < 2 * rows; i++) {
      const Vec<T> part = splat(a[i]);
      ROCPY_UNROLL
      for (int v = 0; v < vectors; v++) sum[i][v] = fma(part, line[v], sum[i][v]);
    }
  }
  ROCPY_UNROLL
  for (int i = 0; i < 2 * rows; i++) {
    ROCPY_UNROLL
    for (int v = 0; v < vectors; v++) store(acc + i * acc_stride + v * lanes, sum[i][v]);
  }
}

template <class T, int rows>
void wide(const ComplexWideCall<T> &arguments) {
  constexpr int lanes = vector_lanes<T>, vectors = vector_registers == 32 || rows < 4 ? 2 : 1;
  const ComplexWideCall<T> call = arguments;
  const int64_t parts = 2 * call.n;
  int64_t j = 0;
  for (; j + vectors * lanes <= parts; j += vectors * lanes) wide_block<T, rows, vectors>(call, j, lanes);
  for (; j < parts; j += lanes) {
    wide_block<T, rows, 1>(call, j, parts - j < lanes ? static_cast<int>(parts - j) : lanes);
  }
}

template <class T, int rows>
constexpr void fill_few(ComplexKernels<T> &set) {
  set.dot[rows] = dot<T, rows>;
  set.wide[rows] = wide<T, rows>;
  if constexpr (rows > 1) fill_few<T, rows - 1>(set);
}

template <class T, int rows>
constexpr void fill(ComplexKernels<T> &set) {
  set.tile[rows] = tile<T, rows>;
  if constexpr (rows > 1) fill<T, rows - 1>(set);
}

template <class T>
constexpr ComplexKernels<T> make_complex() {
  ComplexKernels<T> set{};
  set.rows = complex_rows;
  set.width = complex_vectors * vector_lanes<T>;
  fill<T, complex_rows>(set);
  fill_few<T, max_few_complex>(set);
  set.pack_rows = pack_rows<T>;
  set.pack_columns = pack_columns<T>;
  set.finish = finish<T>;
  return set;
}

}  // namespace

const ComplexKernels<float> kernels_c32 = make_complex<float>();
const ComplexKernels<double> kernels_c64 = make_complex<double>();

}  // namespace rocpy_host::gemm::ROCPY_KERNEL_ISA
