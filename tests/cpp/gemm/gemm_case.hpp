// SPDX-License-Identifier: MIT
// One product for the tests of the engine: its description, its buffers with guard bands, and a reference in double
// with error bounds.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "gemm.hpp"
#include "scalar.hpp"

namespace gemm_test {

using namespace rocpy_host;
using namespace rocpy_host::gemm;

inline double read(const void *data, Type type, int64_t i) {
  switch (type) {
    case Type::f32:
      return static_cast<const float *>(data)[i];
    case Type::f64:
      return static_cast<const double *>(data)[i];
    case Type::f16:
      return f16_to_float(static_cast<const uint16_t *>(data)[i]);
    case Type::e4m3:
      return small_to_float<E4m3>(static_cast<const uint8_t *>(data)[i]);
    case Type::e5m2:
      return small_to_float<E5m2>(static_cast<const uint8_t *>(data)[i]);
    case Type::e4m3_fnuz:
      return small_to_float<E4m3Fnuz>(static_cast<const uint8_t *>(data)[i]);
    case Type::e5m2_fnuz:
      return small_to_float<E5m2Fnuz>(static_cast<const uint8_t *>(data)[i]);
    case Type::i8:
      return static_cast<const int8_t *>(data)[i];
    case Type::i32:
      return static_cast<const int32_t *>(data)[i];
    default:
      return bf16_to_float(static_cast<const uint16_t *>(data)[i]);
  }
}

inline void write(void *data, Type type, int64_t i, double value) {
  const float single = static_cast<float>(value);
  uint8_t *byte = static_cast<uint8_t *>(data) + (bits_of(type) == 8 ? i : 0);
  switch (type) {
    case Type::e4m3:
      *byte = float_to_small<E4m3>(single);
      break;
    case Type::e5m2:
      *byte = float_to_small<E5m2>(single);
      break;
    case Type::e4m3_fnuz:
      *byte = float_to_small<E4m3Fnuz>(single);
      break;
    case Type::e5m2_fnuz:
      *byte = float_to_small<E5m2Fnuz>(single);
      break;
    case Type::i8:
      *byte = static_cast<uint8_t>(static_cast<int8_t>(value == value ? value : 77));
      break;
    case Type::i32:
      static_cast<int32_t *>(data)[i] = value == value ? static_cast<int32_t>(value) : 77777;
      break;
    case Type::f32:
      static_cast<float *>(data)[i] = static_cast<float>(value);
      break;
    case Type::f64:
      static_cast<double *>(data)[i] = value;
      break;
    case Type::f16:
      static_cast<uint16_t *>(data)[i] = float_to_f16(static_cast<float>(value));
      break;
    default:
      static_cast<uint16_t *>(data)[i] = float_to_bf16(static_cast<float>(value));
  }
}

// Half an ulp, relative, and the absolute floor of subnormals.
inline double rounding(Type type, double value) {
  switch (type) {
    case Type::f32:
      return std::fabs(value) * 0x1p-24 + 0x1p-149;
    case Type::f64:
      return std::fabs(value) * 0x1p-53;
    case Type::f16:
      return std::fabs(value) * 0x1p-11 + 0x1p-25;
    case Type::e4m3:
    case Type::e4m3_fnuz:
      return std::fabs(value) * 0x1p-4 + (type == Type::e4m3 ? 0x1p-10 : 0x1p-11);
    case Type::e5m2:
    case Type::e5m2_fnuz:
      return std::fabs(value) * 0x1p-3 + (type == Type::e5m2 ? 0x1p-17 : 0x1p-18);
    case Type::i8:
      return 0.5;
    case Type::i32:
      return 0;
    default:
      return std::fabs(value) * 0x1p-8;
  }
}

// What a value beyond a format's range becomes there.
inline double held(Type type, double value) {
  const auto within = [&](double low, double high) { return value < low ? low : value > high ? high : value; };
  switch (type) {
    case Type::e4m3:
      return within(-448, 448);
    case Type::e4m3_fnuz:
      return within(-240, 240);
    case Type::e5m2:
    case Type::e5m2_fnuz:
      return within(-57344, 57344);
    case Type::i8:
      return within(-128, 127);
    default:
      return value;
  }
}

inline bool integer(Type type) { return type == Type::i8 || type == Type::i32; }
inline Type compute_of(Type a) { return a == Type::f64 ? Type::f64 : a == Type::i8 ? Type::i32 : Type::f32; }

// Values in a block of memory whose every other byte must stay as it was.
struct Buffer {
  Type type = Type::f32;
  int64_t rows = 0, columns = 0, row_stride = 0, batch_stride = 0, batch = 1, shift = 0;
  std::vector<unsigned char> bytes, before;
  static constexpr int64_t guard_elements = 64;

  void make(Type t, int64_t batches, int64_t r, int64_t c, int64_t gap, int64_t offset) {
    type = t;
    batch = batches;
    rows = r;
    columns = c;
    row_stride = c + gap;
    batch_stride = r * row_stride + gap;
    shift = guard_elements + offset;
    bytes.assign(static_cast<size_t>(shift + batch * batch_stride + guard_elements) * size_of(t), 0xA5);
  }
  void *data() { return bytes.data() + static_cast<size_t>(shift) * size_of(type); }
  const void *data() const { return bytes.data() + static_cast<size_t>(shift) * size_of(type); }
  int64_t at(int64_t g, int64_t i, int64_t j) const { return g * batch_stride + i * row_stride + j; }
  double get(int64_t g, int64_t i, int64_t j) const { return read(data(), type, at(g, i, j)); }
  void set(int64_t g, int64_t i, int64_t j, double v) { write(data(), type, at(g, i, j), v); }
  template <class F>
  void fill(F value) {
    for (int64_t g = 0; g < batch; g++) {
      for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < columns; j++) set(g, i, j, value());
      }
    }
  }
  void remember() { before = bytes; }
  // Whether all that is no element still has its bytes.
  bool guards_hold() const {
    std::vector<unsigned char> expected = before;
    size_t size = size_of(type);
    for (int64_t g = 0; g < batch; g++) {
      for (int64_t i = 0; i < rows; i++) {
        size_t from = static_cast<size_t>(shift + at(g, i, 0)) * size;
        memcpy(expected.data() + from, bytes.data() + from, static_cast<size_t>(columns) * size);
      }
    }
    return expected == bytes;
  }
};

struct Random {
  uint64_t state = 88172645463325252ull;
  uint64_t next() {
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
  }
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-52 - 1.0; }
  int64_t integer(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(next() % static_cast<uint64_t>(high - low + 1));
  }
};

enum class Layout { row, column, strided };

struct Case {
  int64_t m = 1, n = 1, k = 1, batch = 1;
  Type a = Type::f32, b = Type::f32, d = Type::f32, bias = Type::f32, aux = Type::f32;
  Layout a_layout = Layout::row, b_layout = Layout::row;
  Activation activation = Activation::none;
  Aux aux_use = Aux::none;
  Reduction reduction = Reduction::none;
  bool has_bias = false, per_row = false, alpha_vector = false, in_place = false, packed = false, integers = false,
       share_b = false;
  double alpha = 1, beta = 0, low = -0.3, high = 0.4;
  int64_t gap = 0, shift = 0;
  ScaleKind a_scale = ScaleKind::none, b_scale = ScaleKind::none;
  bool result_scales = false, amax = false;

  std::string text() const {
    char out[400];
    snprintf(out, sizeof out,
             "m %lld n %lld k %lld batch %lld types %d%d%d bias %d aux %d layouts %d%d act %d aux_use %d red %d "
             "has_bias %d row %d "
             "av %d in_place %d packed %d scales %d%d%d amax %d alpha %g beta %g gap %lld shift %lld",
             static_cast<long long>(m), static_cast<long long>(n), static_cast<long long>(k),
             static_cast<long long>(batch), static_cast<int>(a), static_cast<int>(b), static_cast<int>(d),
             static_cast<int>(bias), static_cast<int>(aux), static_cast<int>(a_layout), static_cast<int>(b_layout),
             static_cast<int>(activation), static_cast<int>(aux_use), static_cast<int>(reduction), has_bias, per_row,
             alpha_vector, in_place, packed, static_cast<int>(a_scale), static_cast<int>(b_scale), result_scales, amax,
             alpha, beta, static_cast<long long>(gap), static_cast<long long>(shift));
    return out;
  }
};

inline double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
inline double gelu_argument(double x) { return 2 * std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x); }
inline double gelu(double x) { return std::isinf(x) ? (x > 0 ? x : 0) : x * sigmoid(gelu_argument(x)); }
inline double gelu_gradient(double x) {
  if (std::fabs(x) > 30) return x > 0;
  double s = sigmoid(gelu_argument(x));
  return s + x * s * (1 - s) * 2 * std::sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
}

// The operands of a case, laid out and filled.
struct Operands {
  Case c;
  Type compute;
  Buffer a, b, d, old, aux, bias, alpha, a_scales, b_scales;
  float c_scale = 0.75f, d_scale = 1.5f, aux_scale = 0.625f, amax = -1;
  std::vector<unsigned char> packed;
  Problem problem;

  explicit Operands(const Case &which) : c(which), compute(compute_of(which.a)) {
    Random random;
    auto value = [&] { return c.integers ? static_cast<double>(random.integer(-2, 2)) : random.uniform(); };
    // Of an integer type all values are whole, and of 8 bits all 256 occur.
    auto whole = [&] { return static_cast<double>(c.integers ? random.integer(-2, 2) : random.integer(-128, 127)); };
    auto fill = [&](Buffer &buffer) {
      if (integer(buffer.type)) {
        buffer.fill(whole);
      } else {
        buffer.fill(value);
      }
    };
    int64_t b_batch = c.packed || c.share_b ? 1 : c.batch;
    problem.a = lay(a, c.a, c.batch, c.m, c.k, c.a_layout, fill);
    problem.b = lay(b, c.b, b_batch, c.k, c.n, c.b_layout, fill);
    auto scale_value = [&] {
      return std::exp2(static_cast<double>(random.integer(-2, 1))) * (1 + 0.5 * random.uniform());
    };
    problem.a.scale = lay_scale(a_scales, c.a_scale, c.batch, c.m, scale_value);
    problem.b.scale = lay_scale(b_scales, c.b_scale, b_batch, c.n, scale_value);
    if (b_batch == 1) problem.b.batch_stride = 0;
    d.make(c.d, c.batch, c.m, c.n, c.gap, c.shift);
    old.make(c.d, c.batch, c.m, c.n, c.gap + (c.in_place ? 0 : 1), c.shift);
    fill(old);
    if (c.beta == 0) old.fill([] { return NAN; });
    if (c.in_place) d.bytes = old.bytes;
    int64_t values = c.reduction == Reduction::a_rows || c.per_row ? c.m : c.n;
    bias.make(c.bias, c.batch, 1, values, 0, c.shift);
    fill(bias);
    aux.make(c.aux, c.batch, c.m, c.n, c.gap, c.shift);
    aux.fill([&] { return 3 * value(); });
    alpha.make(compute == Type::i32 && !exact_epilogue() ? Type::f32 : compute, 1, 1, c.n, 0, 0);
    fill(alpha);
    problem.m = c.m;
    problem.n = c.n;
    problem.k = c.k;
    problem.batch = c.batch;
    problem.compute = compute;
    problem.d = d.data();
    problem.d_row_stride = d.row_stride;
    problem.d_batch_stride = d.batch_stride;
    problem.c = c.in_place ? d.data() : old.data();
    problem.c_row_stride = old.row_stride;
    problem.c_batch_stride = old.batch_stride;
    problem.alpha = c.alpha;
    problem.beta = c.beta;
    if (c.result_scales) {
      problem.c_scale = &c_scale;
      problem.d_scale = &d_scale;
      problem.aux_scale = &aux_scale;
    }
    if (c.amax) problem.amax = &amax;
    problem.alpha_vector = c.alpha_vector ? alpha.data() : nullptr;
    problem.bias = c.has_bias || c.reduction != Reduction::none ? bias.data() : nullptr;
    problem.bias_batch_stride = bias.batch_stride;
    problem.aux_data = c.aux_use != Aux::none ? aux.data() : nullptr;
    problem.aux_row_stride = aux.row_stride;
    problem.aux_batch_stride = aux.batch_stride;
    problem.low = c.low;
    problem.high = c.high;
    problem.d_type = c.d;
    problem.bias_type = c.bias;
    problem.aux_type = c.aux;
    problem.activation = c.activation;
    problem.aux = c.aux_use;
    problem.reduction = c.reduction;
    problem.has_bias = c.has_bias;
    problem.bias_per_row = c.per_row;
    remember();
  }

  // Sums of integers whose result is an integer without scales.
  bool exact_epilogue() const {
    const bool scaled = c.a_scale != ScaleKind::none || c.b_scale != ScaleKind::none || c.result_scales;
    return integer(c.d) && !(c.d == Type::i8 && (scaled || (c.has_bias && !integer(c.bias))));
  }

  // For the kernel set in use: the packed order is its own.
  void pack_b() {
    if (!c.packed) return;
    Matrix plain = problem.b;
    plain.packed = false;
    plain.data = b.data();
    packed.assign(packed_bytes(c.b, compute, c.k, c.n) + 64, 0);
    void *to = packed.data() + (64 - reinterpret_cast<uintptr_t>(packed.data()) % 64) % 64;
    pack(plain, compute, c.k, c.n, to);
    problem.b.data = to;
    problem.b.packed = true;
  }

  void remember() {
    d.remember();
    aux.remember();
    bias.remember();
  }
  void restore() {
    d.bytes = d.before;
    aux.bytes = aux.before;
    bias.bytes = bias.before;
  }

  double scale_a(int64_t g, int64_t i) const { return factor(a_scales, c.a_scale, g, i); }
  double scale_b(int64_t g, int64_t j) const { return factor(b_scales, c.b_scale, b.batch == 1 ? 0 : g, j); }
  double get_a(int64_t g, int64_t i, int64_t x) const { return element(a, c.a_layout, g, i, x); }
  double get_b(int64_t g, int64_t x, int64_t j) const { return element(b, c.b_layout, b.batch == 1 ? 0 : g, x, j); }

 private:
  static double element(const Buffer &buffer, Layout layout, int64_t g, int64_t i, int64_t j) {
    if (layout == Layout::row) return buffer.get(g, i, j);
    if (layout == Layout::column) return buffer.get(g, j, i);
    return buffer.get(g, i, 2 * j);
  }

  static double factor(const Buffer &buffer, ScaleKind kind, int64_t g, int64_t i) {
    return kind == ScaleKind::none ? 1 : buffer.get(g, 0, kind == ScaleKind::scalar ? 0 : i);
  }

  template <class F>
  static Scale lay_scale(Buffer &buffer, ScaleKind kind, int64_t batch, int64_t count, F value) {
    if (kind == ScaleKind::none) return {};
    buffer.make(Type::f32, batch, 1, kind == ScaleKind::scalar ? 1 : count, 0, 0);
    buffer.fill(value);
    return {buffer.data(), batch == 1 ? 0 : buffer.batch_stride, kind};
  }

  template <class F>
  Matrix lay(Buffer &buffer, Type type, int64_t batch, int64_t rows, int64_t columns, Layout layout, F fill) {
    if (layout == Layout::row) buffer.make(type, batch, rows, columns, c.gap, c.shift);
    if (layout == Layout::column) buffer.make(type, batch, columns, rows, c.gap, c.shift);
    if (layout == Layout::strided) buffer.make(type, batch, rows, 2 * columns, c.gap, c.shift);
    fill(buffer);
    Matrix m;
    m.data = buffer.data();
    m.type = type;
    m.batch_stride = buffer.batch_stride;
    m.row_stride = layout == Layout::column ? 1 : buffer.row_stride;
    m.column_stride = layout == Layout::row ? 1 : layout == Layout::column ? buffer.row_stride : 2;
    return m;
  }
};

}  // namespace gemm_test
