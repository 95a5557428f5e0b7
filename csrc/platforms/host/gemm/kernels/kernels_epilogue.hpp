// SPDX-License-Identifier: MIT
// From a tile of sums to the result: scale, add, activate, convert, store, while the tile is in the innermost cache.
// The usual combinations have a program of their own; `any` takes every combination, with the same operations in the
// same order.
#pragma once

#include "formats.hpp"
#include "kernels.hpp"
#include "math.hpp"

namespace rocpy_host::gemm {
namespace {

template <class T>
ROCPY_INLINE Vec<T> load_typed(const void *data, Type type, int64_t offset, int count) {
  constexpr int lanes = vector_lanes<T>;
  if constexpr (sizeof(T) == 8) {
    return load_some(static_cast<const double *>(data) + offset, count, lanes);
  } else {
    return with_element(type, [&](auto *element) {
      return load_some(reinterpret_cast<decltype(element)>(const_cast<void *>(data)) + offset, count, lanes);
    });
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
  constexpr int lanes = vector_lanes<T>;
  if constexpr (sizeof(T) == 8) {
    store_some(static_cast<double *>(data) + offset, v, count, lanes);
  } else {
    with_element(
        type, [&](auto *element) { store_some(reinterpret_cast<decltype(element)>(data) + offset, v, count, lanes); });
  }
}

template <class T>
ROCPY_INLINE T load_one(const void *data, Type type, int64_t offset) {
  if constexpr (sizeof(T) == 8) {
    return static_cast<const double *>(data)[offset];
  } else {
    return with_element(type, [&](auto *element) {
      return to_compute(reinterpret_cast<decltype(element)>(const_cast<void *>(data))[offset]);
    });
  }
}

// The factors of a problem's sums, at one batch entry. Vectors are null when there are none. Alpha is multiplied by the
// scalar scales, as in AMD's kernels, and by that of their A, which b is here, first.
template <class T>
struct Factors {
  const float *rows = nullptr, *columns = nullptr;
  T alpha = 1, beta = 1, result = 1, aux = 1;

  ROCPY_INLINE void take(const Scale &scale, int64_t g, const float **vector) {
    if (scale.kind != ScaleKind::scalar && scale.kind != ScaleKind::vector) return;
    const float *values = static_cast<const float *>(scale.data) + g * scale.batch_stride;
    if (scale.kind == ScaleKind::vector) {
      *vector = values;
    } else {
      alpha *= values[0];
    }
  }

  ROCPY_INLINE Factors(const Finish<T> &finish, int64_t g) {
    const Problem &p = *finish.problem;
    alpha = p.alpha_vector ? 1 : finish.alpha;
    beta = finish.beta;
    take(p.b.scale, g, &columns);
    take(p.a.scale, g, &rows);
    if (p.c_scale) beta *= *p.c_scale;
    if (p.d_scale) result = *p.d_scale;
    if (p.aux_scale) aux = *p.aux_scale;
  }
};

// The largest magnitude so far, as bits: these have the order of the values, and NaN is above all. A maximum is the
// same in whatever order it is taken.
inline void raise_amax(float *amax, VecU magnitudes) {
  uint32_t lanes[vector_lanes<float>], most = 0;
  __builtin_memcpy(lanes, &magnitudes, sizeof lanes);
  for (uint32_t lane : lanes) most = lane > most ? lane : most;
  uint32_t *to = reinterpret_cast<uint32_t *>(amax), seen = __atomic_load_n(to, __ATOMIC_RELAXED);
  while (seen < most) {
    if (__atomic_compare_exchange_n(to, &seen, most, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) break;
  }
}

// The lanes that exist.
inline VecU lanes_below(int count) {
  VecI index;
  for (int i = 0; i < vector_lanes<float>; i++) index[i] = i;
  return cast<VecU>(index < count);
}

template <class T, class Acc>
ROCPY_INLINE Vec<T> load_sums(const Acc *p) {
  if constexpr (sizeof(T) == sizeof(Acc) && !__is_same(T, Acc)) {
    return __builtin_convertvector(load(p), Vec<T>);
  } else {
    return load(p);
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

// What a sum becomes before it is activated: scaled, times alpha, with c and bias added. The same operations in the
// same order wherever it is used.
template <class T>
struct Affine {
  const Finish<T> &finish;
  const Problem &p;
  const Factors<T> factors;
  const int64_t g, bias;
  const bool scaled;
  int64_t column = 0;  // of the product, where a vector of `count` begins
  int count = 0;
  Vec<T> alpha{}, column_bias{}, scale{};

  ROCPY_INLINE Affine(const Finish<T> &of, int64_t entry)
      : finish(of),
        p(*of.problem),
        factors(of, entry),
        g(entry),
        bias(entry * p.bias_batch_stride),
        scaled(factors.alpha != 1 || p.alpha_vector) {}

  // Whether a sum stays what it is.
  ROCPY_INLINE bool is_nothing() const {
    return !factors.columns && !factors.rows && !scaled && finish.beta == 0 && !p.has_bias;
  }

  ROCPY_INLINE void go_to(int64_t to, int lanes_there) {
    constexpr int lanes = vector_lanes<T>;
    column = to;
    count = lanes_there;
    alpha = splat(factors.alpha);
    if constexpr (sizeof(T) == 4) {
      if (factors.columns) scale = load_some(factors.columns + column, count, lanes);
    }
    if (p.alpha_vector) alpha = alpha * load_some(static_cast<const T *>(p.alpha_vector) + column, count, lanes);
    if (p.has_bias && !p.bias_per_row) column_bias = load_typed<T>(p.bias, p.bias_type, bias + column, count);
  }

  ROCPY_INLINE Vec<T> operator()(Vec<T> x, int64_t row) const {
    if (factors.columns) x = x * scale;
    if (factors.rows) x = x * splat(static_cast<T>(factors.rows[row]));
    if (scaled) x = x * alpha;
    if (finish.beta != 0) {
      const int64_t at = g * p.c_batch_stride + row * p.c_row_stride + column;
      x = fma(splat(factors.beta), load_typed<T>(p.c, p.d_type, at, count), x);
    }
    if (p.has_bias) x = x + (p.bias_per_row ? splat(load_one<T>(p.bias, p.bias_type, bias + row)) : column_bias);
    return x;
  }

  ROCPY_INLINE void store_aux(Vec<T> x, int64_t row) const {
    const int64_t at = g * p.aux_batch_stride + row * p.aux_row_stride + column;
    store_typed<T>(p.aux_data, p.aux_type, at, p.aux_scale ? x * splat(factors.aux) : x, count);
  }
  ROCPY_INLINE Vec<T> load_aux(int64_t row, int64_t from, int some) const {
    const Vec<T> e =
        load_typed<T>(p.aux_data, p.aux_type, g * p.aux_batch_stride + row * p.aux_row_stride + from, some);
    return p.aux_scale ? e / splat(factors.aux) : e;
  }
};

// The magnitudes of the lanes that exist.
template <class T>
ROCPY_INLINE VecU magnitudes(Vec<T> x, int count) {
  const VecU bits = cast<VecU>(x) & 0x7fffffffu;
  return count < vector_lanes<float> ? bits & lanes_below(count) : bits;
}

// Sums are of T, or int32_t before an epilogue of float.
template <class T, class Acc = T>
void epilogue_any(const Finish<T> &finish, const Acc *tile, int64_t stride, const Region &region, T *sums) {
  constexpr int lanes = vector_lanes<T>;
  const auto [g, i0, j0, rows, columns] = region;
  const Problem &p = *finish.problem;
  Affine<T> affine(finish, g);
  VecU most{};
  for (int64_t j = 0; j < columns; j += lanes) {
    const int count = columns - j < lanes ? static_cast<int>(columns - j) : lanes;
    affine.go_to(j0 + j, count);
    Vec<T> total = splat(static_cast<T>(0));
    if (sums) total = load_some(sums + j, count, lanes);
    for (int64_t i = 0; i < rows; i++) {
      Vec<T> x = affine(load_sums<T>(tile + i * stride + j), i0 + i), e = splat(static_cast<T>(0));
      if (p.aux == Aux::store) affine.store_aux(x, i0 + i);
      if (p.aux == Aux::load) e = affine.load_aux(i0 + i, j0 + j, count);
      x = activate<T>(finish, p.activation, x, e);
      total = total + x;
      if constexpr (sizeof(T) == 4) {
        if (p.amax) {
          const VecU magnitude = magnitudes<T>(x, count);
          most = magnitude > most ? magnitude : most;
        }
      }
      if (p.d_scale) x = x * splat(affine.factors.result);
      store_typed<T>(p.d, p.d_type, g * p.d_batch_stride + (i0 + i) * p.d_row_stride + j0 + j, x, count);
    }
    if (sums) store_some(sums + j, total, count, lanes);
  }
  if (p.amax) raise_amax(p.amax, most);
}

// Where a row of results comes from and goes to: c and aux are null where there is none.
template <class T, class E>
struct FastRow {
  const T *tile;
  const E *c;
  E *d;
  E *aux;
};

// The vector of it from the j-th column on.
template <Activation activation, bool has_aux, bool whole, class T, class E>
ROCPY_INLINE void fast_vector(const Finish<T> &finish, const FastRow<T, E> &row, int64_t j, bool scaled,
                              const Vec<T> *bias, int count) {
  constexpr int lanes = vector_lanes<T>;
  Vec<T> x = load(row.tile + j);
  if (scaled) x = x * splat(finish.alpha);
  if (row.c) x = fma(splat(finish.beta), load_some(row.c + j, whole ? lanes : count, lanes), x);
  if (bias) x = x + *bias;
  if constexpr (has_aux) store_some(row.aux + j, x, whole ? lanes : count, lanes);
  store_some(row.d + j, activate<T>(finish, activation, x, x), whole ? lanes : count, lanes);
}

// Row after row, as they lie in memory, of so many vectors whose bias stays near.
template <class T, class E, Activation activation, bool aux>
void epilogue_fast(const Finish<T> &finish, const T *tile, int64_t stride, const Region &region, T *) {
  constexpr int lanes = vector_lanes<T>, together = 16;
  const auto [g, i0, j0, rows, columns] = region;
  const Problem &p = *finish.problem;
  const bool scaled = finish.alpha != 1, biased = p.has_bias;
  for (int64_t first = 0; first < columns; first += together * lanes) {
    const int64_t all = columns - first < together * lanes ? columns - first : together * lanes;
    const int rest = static_cast<int>(all % lanes);
    Vec<T> bias[together];
    for (int64_t j = 0; biased && j < all; j += lanes) {
      const int count = all - j < lanes ? static_cast<int>(all - j) : lanes;
      bias[j / lanes] = load_typed<T>(p.bias, p.bias_type, g * p.bias_batch_stride + j0 + first + j, count);
    }
    for (int64_t i = 0; i < rows; i++) {
      const int64_t r = i0 + i, column = j0 + first;
      FastRow<T, E> row{tile + i * stride + first, nullptr, nullptr, nullptr};
      row.d = static_cast<E *>(p.d) + g * p.d_batch_stride + r * p.d_row_stride + column;
      if (finish.beta != 0) row.c = static_cast<const E *>(p.c) + g * p.c_batch_stride + r * p.c_row_stride + column;
      if (aux) row.aux = static_cast<E *>(p.aux_data) + g * p.aux_batch_stride + r * p.aux_row_stride + column;
      int64_t j = 0;
      for (; j + lanes <= all; j += lanes) {
        fast_vector<activation, aux, true>(finish, row, j, scaled, biased ? bias + j / lanes : nullptr, lanes);
      }
      if (rest) fast_vector<activation, aux, false>(finish, row, j, scaled, biased ? bias + j / lanes : nullptr, rest);
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
  const bool usual = !p.alpha_vector && !(p.has_bias && p.bias_per_row) && p.aux != Aux::load &&
                     (p.aux == Aux::none || p.aux_type == p.d_type) && p.reduction != Reduction::result_columns;
  const bool factors = p.a.scale.kind != ScaleKind::none || p.b.scale.kind != ScaleKind::none || p.c_scale ||
                       p.d_scale || p.aux_scale || p.amax;
  if (!usual || factors) return epilogue_any<T>;
  if constexpr (sizeof(T) == 8) {
    return choose_fast<T, double>(p);
  } else {
    if (p.d_type == Type::f32) return choose_fast<T, float>(p);
    if (p.d_type == Type::f16) return choose_fast<T, F16>(p);
    if (p.d_type == Type::bf16) return choose_fast<T, Bf16>(p);
    return epilogue_any<T>;
  }
}

template <class T>
void write_values(void *data, Type type, int64_t offset, const T *values, int64_t count) {
  constexpr int lanes = vector_lanes<T>;
  for (int64_t i = 0; i < count; i += lanes) {
    int some = count - i < lanes ? static_cast<int>(count - i) : lanes;
    store_typed<T>(data, type, offset + i, load_some(values + i, some, lanes), some);
  }
}

}  // namespace
}  // namespace rocpy_host::gemm
