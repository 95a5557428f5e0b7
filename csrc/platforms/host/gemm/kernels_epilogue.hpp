// SPDX-License-Identifier: MIT
// From a tile of sums to the result: scale, add, activate, convert, store, while the tile is in the innermost cache.
// The usual combinations have a program of their own; `any` takes every combination, with the same operations in the
// same order.
#pragma once

#include "math.hpp"
#include "simd.hpp"

namespace rocpy_host::gemm {
namespace {

template <class T>
ROCPY_INLINE Vec<T> load_typed(const void *data, Type type, int64_t offset, int count) {
  constexpr int lanes = kLanes<T>;
  if constexpr (sizeof(T) == 8) {
    return load_some(static_cast<const double *>(data) + offset, count, lanes);
  } else {
    if (type == Type::f32) return load_some(static_cast<const float *>(data) + offset, count, lanes);
    if (type == Type::f16) return load_some(static_cast<const F16 *>(data) + offset, count, lanes);
    return load_some(static_cast<const Bf16 *>(data) + offset, count, lanes);
  }
}

template <class E, class V>
ROCPY_INLINE void store_some(E *p, V v, int count, int lanes) {
  if (count >= lanes) {
    store(p, v);
  } else {
    store_part(p, v, count);
  }
}

template <class T>
ROCPY_INLINE void store_typed(void *data, Type type, int64_t offset, Vec<T> v, int count) {
  constexpr int lanes = kLanes<T>;
  if constexpr (sizeof(T) == 8) {
    store_some(static_cast<double *>(data) + offset, v, count, lanes);
  } else {
    if (type == Type::f32) return store_some(static_cast<float *>(data) + offset, v, count, lanes);
    if (type == Type::f16) return store_some(static_cast<F16 *>(data) + offset, v, count, lanes);
    store_some(static_cast<Bf16 *>(data) + offset, v, count, lanes);
  }
}

template <class T>
ROCPY_INLINE T load_one(const void *data, Type type, int64_t offset) {
  if constexpr (sizeof(T) == 8) {
    return static_cast<const double *>(data)[offset];
  } else {
    if (type == Type::f32) return static_cast<const float *>(data)[offset];
    if (type == Type::f16) return to_compute(static_cast<const F16 *>(data)[offset]);
    return to_compute(static_cast<const Bf16 *>(data)[offset]);
  }
}

template <class T>
ROCPY_INLINE Vec<T> activate(const Finish<T> &finish, Activation activation, Vec<T> x, Vec<T> e) {
  const Vec<T> zero = splat(static_cast<T>(0));
  switch (activation) {
    case Activation::none:
      return x;
    case Activation::relu:
      return relu<T>(x);
    case Activation::gelu:
      return gelu<T>(x);
    case Activation::silu:
      return silu<T>(x);
    case Activation::sigmoid:
      return sigmoid<T>(x);
    case Activation::clamp:
      return limit<T>(x, finish.low, finish.high);
    case Activation::drelu:
      return e > zero ? x : zero;
    case Activation::dgelu:
      return x * gelu_gradient<T>(e);
  }
  return x;
}

template <class T>
void epilogue_any(const Finish<T> &finish, const T *tile, int64_t stride, int64_t g, int64_t i0, int64_t j0,
                  int64_t rows, int64_t columns, T *sums) {
  constexpr int lanes = kLanes<T>;
  const Problem &p = *finish.problem;
  const int64_t bias = g * p.bias_batch_stride;
  const bool scaled = finish.alpha != 1 && !p.alpha_vector;
  for (int64_t j = 0; j < columns; j += lanes) {
    const int count = columns - j < lanes ? static_cast<int>(columns - j) : lanes;
    const Vec<T> zero = splat(static_cast<T>(0));
    Vec<T> alpha = splat(finish.alpha), column_bias = zero, total = zero;
    if (p.alpha_vector) alpha = load_some(static_cast<const T *>(p.alpha_vector) + j0 + j, count, lanes);
    if (p.has_bias && !p.bias_per_row) column_bias = load_typed<T>(p.bias, p.bias_type, bias + j0 + j, count);
    if (sums) total = load_some(sums + j, count, lanes);
    for (int64_t i = 0; i < rows; i++) {
      Vec<T> x = load(tile + i * stride + j);
      if (scaled || p.alpha_vector) x = x * alpha;
      if (finish.beta != 0) {
        int64_t at = g * p.c_batch_stride + (i0 + i) * p.c_row_stride + j0 + j;
        x = fma(splat(finish.beta), load_typed<T>(p.c, p.d_type, at, count), x);
      }
      if (p.has_bias) x = x + (p.bias_per_row ? splat(load_one<T>(p.bias, p.bias_type, bias + i0 + i)) : column_bias);
      Vec<T> e = zero;
      if (p.aux != Aux::none) {
        int64_t at = g * p.aux_batch_stride + (i0 + i) * p.aux_row_stride + j0 + j;
        if (p.aux == Aux::store) {
          store_typed<T>(p.aux_data, p.aux_type, at, x, count);
        } else {
          e = load_typed<T>(p.aux_data, p.aux_type, at, count);
        }
      }
      x = activate<T>(finish, p.activation, x, e);
      total = total + x;
      store_typed<T>(p.d, p.d_type, g * p.d_batch_stride + (i0 + i) * p.d_row_stride + j0 + j, x, count);
    }
    if (sums) store_some(sums + j, total, count, lanes);
  }
}

template <class T, class E, Activation activation, bool aux, bool whole>
ROCPY_INLINE void fast_column(const Finish<T> &finish, const T *tile, int64_t stride, E *d, int64_t d_stride, E *x_out,
                              int64_t x_stride, bool biased, Vec<T> bias, int64_t rows, int count) {
  for (int64_t i = 0; i < rows; i++, tile += stride, d += d_stride) {
    Vec<T> x = load(tile);
    if (biased) x = x + bias;
    if constexpr (aux) {
      if constexpr (whole) {
        store(x_out, x);
      } else {
        store_part(x_out, x, count);
      }
      x_out += x_stride;
    }
    x = activate<T>(finish, activation, x, x);
    if constexpr (whole) {
      store(d, x);
    } else {
      store_part(d, x, count);
    }
  }
}

template <class T, class E, Activation activation, bool aux>
void epilogue_fast(const Finish<T> &finish, const T *tile, int64_t stride, int64_t g, int64_t i0, int64_t j0,
                   int64_t rows, int64_t columns, T *) {
  constexpr int lanes = kLanes<T>;
  const Problem &p = *finish.problem;
  E *d = static_cast<E *>(p.d) + g * p.d_batch_stride + i0 * p.d_row_stride + j0;
  E *x = aux ? static_cast<E *>(p.aux_data) + g * p.aux_batch_stride + i0 * p.aux_row_stride + j0 : nullptr;
  for (int64_t j = 0; j < columns; j += lanes, tile += lanes, d += lanes) {
    const int count = columns - j < lanes ? static_cast<int>(columns - j) : lanes;
    Vec<T> bias = splat(static_cast<T>(0));
    if (p.has_bias) bias = load_typed<T>(p.bias, p.bias_type, g * p.bias_batch_stride + j0 + j, count);
    E *to = aux ? x + j : nullptr;
    if (count == lanes) {
      fast_column<T, E, activation, aux, true>(finish, tile, stride, d, p.d_row_stride, to, p.aux_row_stride,
                                               p.has_bias, bias, rows, lanes);
    } else {
      fast_column<T, E, activation, aux, false>(finish, tile, stride, d, p.d_row_stride, to, p.aux_row_stride,
                                                p.has_bias, bias, rows, count);
    }
  }
}

template <class T, class E>
typename Kernels<T>::Epilogue choose_fast(const Problem &p) {
  const bool aux = p.aux == Aux::store;
  switch (p.activation) {
    case Activation::none:
      return aux ? epilogue_fast<T, E, Activation::none, true> : epilogue_fast<T, E, Activation::none, false>;
    case Activation::relu:
      return aux ? epilogue_fast<T, E, Activation::relu, true> : epilogue_fast<T, E, Activation::relu, false>;
    case Activation::gelu:
      return aux ? epilogue_fast<T, E, Activation::gelu, true> : epilogue_fast<T, E, Activation::gelu, false>;
    default:
      return epilogue_any<T>;
  }
}

template <class T>
typename Kernels<T>::Epilogue choose_epilogue(const Problem &p) {
  const bool usual = p.alpha == 1 && !p.alpha_vector && p.beta == 0 && !(p.has_bias && p.bias_per_row) &&
                     p.aux != Aux::load && (p.aux == Aux::none || p.aux_type == p.d_type) &&
                     p.reduction != Reduction::result_columns;
  if (!usual) return epilogue_any<T>;
  if constexpr (sizeof(T) == 8) {
    return choose_fast<T, double>(p);
  } else {
    if (p.d_type == Type::f32) return choose_fast<T, float>(p);
    if (p.d_type == Type::f16) return choose_fast<T, F16>(p);
    return choose_fast<T, Bf16>(p);
  }
}

template <class T>
void write_values(void *data, Type type, int64_t offset, const T *values, int64_t count) {
  constexpr int lanes = kLanes<T>;
  for (int64_t i = 0; i < count; i += lanes) {
    int some = count - i < lanes ? static_cast<int>(count - i) : lanes;
    store_typed<T>(data, type, offset + i, load_some(values + i, some, lanes), some);
  }
}

}  // namespace
}  // namespace rocpy_host::gemm
