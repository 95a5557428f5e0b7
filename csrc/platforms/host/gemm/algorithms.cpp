// SPDX-License-Identifier: MIT
// The algorithm table of the product engine and the plain algorithm that takes every problem.
#include <cmath>
#include <cstring>

#include "gemm.hpp"
#include "scalar.hpp"
#include "threads.hpp"

namespace rocpy_host::gemm {
namespace {

constexpr Algorithm kAlgorithms[] = {{1, "plain"}};

double load(const void *data, Type type, int64_t i) {
  switch (type) {
    case Type::f32:
      return static_cast<const float *>(data)[i];
    case Type::f64:
      return static_cast<const double *>(data)[i];
    case Type::f16:
      return f16_to_float(static_cast<const uint16_t *>(data)[i]);
    default:
      return bf16_to_float(static_cast<const uint16_t *>(data)[i]);
  }
}

void store(void *data, Type type, int64_t i, double value) {
  switch (type) {
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

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

constexpr double kGelu1 = 1.5957691216057308, kGelu3 = 0.07135481282052306;

double activate(const Problem &p, double x, double e) {
  switch (p.activation) {
    case Activation::relu:
      return x < 0 ? 0 : x;
    case Activation::gelu:
      return x < -30 ? 0 : x * sigmoid(x * (kGelu1 + kGelu3 * x * x));
    case Activation::silu:
      return x < -800 ? 0 : x * sigmoid(x);
    case Activation::sigmoid:
      return sigmoid(x);
    case Activation::clamp:
      x = x > p.high ? p.high : x;
      return x < p.low ? p.low : x;
    case Activation::drelu:
      return e > 0 ? x : 0;
    case Activation::dgelu: {
      double t = e > 30 ? 30 : e < -30 ? -30 : e;
      double s = sigmoid(t * (kGelu1 + kGelu3 * t * t));
      return x * (s + t * s * (1 - s) * (kGelu1 + 3 * kGelu3 * t * t));
    }
    default:
      return x;
  }
}

template <class T>
struct Plain {
  const Problem &p;
  const Matrix &b;
  int64_t k;

  T product(int64_t g, int64_t i, int64_t j) const {
    T sum = 0;
    int64_t a0 = g * p.a.batch_stride + i * p.a.row_stride, b0 = g * b.batch_stride + j * b.column_stride;
    for (int64_t x = 0; x < k; x++) {
      sum += static_cast<T>(load(p.a.data, p.a.type, a0 + x * p.a.column_stride)) *
             static_cast<T>(load(b.data, b.type, b0 + x * b.row_stride));
    }
    return sum;
  }

  T element(int64_t g, int64_t i, int64_t j) const {
    T x = (p.alpha_vector ? static_cast<const T *>(p.alpha_vector)[j] : static_cast<T>(p.alpha)) * product(g, i, j);
    if (p.beta != 0) {
      x += static_cast<T>(p.beta) * static_cast<T>(load(p.c, p.d_type, g * p.c_batch_stride + i * p.c_row_stride + j));
    }
    if (p.has_bias) {
      x += static_cast<T>(load(p.bias, p.bias_type, g * p.bias_batch_stride + (p.bias_per_row ? i : j)));
    }
    int64_t at = g * p.aux_batch_stride + i * p.aux_row_stride + j;
    T e = p.aux == Aux::load ? static_cast<T>(load(p.aux_data, p.aux_type, at)) : 0;
    if (p.aux == Aux::store) store(p.aux_data, p.aux_type, at, x);
    T z = static_cast<T>(activate(p, x, e));
    store(p.d, p.d_type, g * p.d_batch_stride + i * p.d_row_stride + j, z);
    return z;
  }

  // A column of the result, top to bottom, so that its sum has one order.
  static void column(void *context, int64_t index) {
    const Plain &self = *static_cast<const Plain *>(context);
    const Problem &p = self.p;
    int64_t g = index / p.n, j = index % p.n;
    T sum = 0;
    for (int64_t i = 0; i < p.m; i++) sum += self.element(g, i, j);
    if (p.reduction == Reduction::result_columns) store(p.bias, p.bias_type, g * p.bias_batch_stride + j, sum);
  }

  void sums() const {
    bool rows = p.reduction == Reduction::a_rows;
    int64_t count = rows ? p.m : p.n;
    for (int64_t g = 0; g < p.batch; g++) {
      for (int64_t i = 0; i < count; i++) {
        T sum = 0;
        for (int64_t x = 0; x < p.k; x++) {
          sum += static_cast<T>(
              rows ? load(p.a.data, p.a.type, g * p.a.batch_stride + i * p.a.row_stride + x * p.a.column_stride)
                   : load(b.data, b.type, g * b.batch_stride + i * b.column_stride + x * b.row_stride));
        }
        store(p.bias, p.bias_type, g * p.bias_batch_stride + i, sum);
      }
    }
  }
};

template <class T>
void run_plain(const Problem &p) {
  Matrix b = p.b;
  if (b.packed) {
    b.row_stride = p.n;
    b.column_stride = 1;
    b.batch_stride = 0;
  }
  bool absent = p.alpha == 0 && !p.alpha_vector && (!p.a.data || !p.b.data);
  Plain<T> plain{p, b, absent ? 0 : p.k};
  if (p.m > 0) {
    parallel_for(p.batch * p.n, p.m * p.n * p.batch * (p.k + 8) < 20000 ? 1 : 1024, Plain<T>::column, &plain);
  } else if (p.reduction == Reduction::result_columns) {
    for (int64_t g = 0; g < p.batch; g++) {
      for (int64_t j = 0; j < p.n; j++) store(p.bias, p.bias_type, g * p.bias_batch_stride + j, 0);
    }
  }
  if (p.reduction == Reduction::a_rows || p.reduction == Reduction::b_columns) plain.sums();
}

}  // namespace

size_t size_of(Type type) { return type == Type::f64 ? 8 : type == Type::f32 ? 4 : 2; }

int algorithm_count() { return 1; }
const Algorithm &algorithm(int index) { return kAlgorithms[index]; }
const char *algorithm_name(int32_t id) { return id == 1 ? kAlgorithms[0].name : nullptr; }

bool supports(int32_t id, const Problem &p, size_t *workspace_bytes) {
  if (workspace_bytes) *workspace_bytes = 0;
  if (id != 1 || p.m < 0 || p.n < 0 || p.k < 0 || p.batch < 0) return false;
  bool wide = p.compute == Type::f64;
  if (!wide && p.compute != Type::f32) return false;
  return wide == (p.a.type == Type::f64) && wide == (p.b.type == Type::f64) && wide == (p.d_type == Type::f64);
}

int rank(const Problem &problem, size_t, int capacity, Candidate *candidates) {
  if (capacity < 1 || !supports(1, problem, nullptr)) return 0;
  candidates[0] = {1, 0, 1.0f};
  return 1;
}

bool run(int32_t id, const Problem &problem, void *, size_t) {
  if (!supports(id, problem, nullptr)) return false;
  if (problem.compute == Type::f64) {
    run_plain<double>(problem);
  } else {
    run_plain<float>(problem);
  }
  return true;
}

size_t packed_bytes(Type type, Type, int64_t k, int64_t n) { return size_of(type) * static_cast<size_t>(k * n); }

void pack(const Matrix &b, Type, int64_t k, int64_t n, void *packed) {
  size_t size = size_of(b.type);
  for (int64_t i = 0; i < k; i++) {
    for (int64_t j = 0; j < n; j++) {
      memcpy(static_cast<char *>(packed) + static_cast<size_t>(i * n + j) * size,
             static_cast<const char *>(b.data) + (i * b.row_stride + j * b.column_stride) * static_cast<int64_t>(size), size);
    }
  }
}

const char *isa_name() { return "baseline"; }

}  // namespace rocpy_host::gemm
