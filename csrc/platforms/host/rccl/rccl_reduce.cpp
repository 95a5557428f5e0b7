// SPDX-License-Identifier: MIT
// The loops behind a reduction, one for each type and operator.
#include "rccl_reduce.hpp"

#include "elements.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

namespace rocpy_host {

namespace {

// Integers wrap, which only unsigned arithmetic may.
template <class T>
T add(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<U>(static_cast<U>(a) + static_cast<U>(b)));
  } else {
    return a + b;
  }
}
template <class T>
T multiply(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<U>(static_cast<U>(a) * static_cast<U>(b)));
  } else {
    return a * b;
  }
}

struct Sum {
  template <class T>
  static T apply(T a, T b) {
    return add(a, b);
  }
};
struct Prod {
  template <class T>
  static T apply(T a, T b) {
    return multiply(a, b);
  }
};
// A NaN loses against a number, as in C's fmax and fmin; of equal values the one of the lower rank stays.
struct Max {
  template <class T>
  static T apply(T a, T b) {
    return b > a || a != a ? b : a;
  }
};
struct Min {
  template <class T>
  static T apply(T a, T b) {
    return b < a || a != a ? b : a;
  }
};

// FP8 as RCCL rounds it (src/include/rccl_float8.h of RCCL: rccl_narrow_sat_f32 with RCCL_NARROW_FP_SATURATE_INF 0, and
// hminmax2, which clamps nothing): what numbers come to beyond the largest number is that number, an infinity among the
// inputs stays one, which is NaN where the format has none.
template <class Format>
struct Float8 : Small<Format> {
  static uint8_t store(float value) {
    if (!std::isinf(value)) return float_to_small<Format>(value);
    const uint32_t sign = std::signbit(value) ? Format::sign : 0;
    return static_cast<uint8_t>(sign | (Format::specials == Specials::ieee ? Format::largest + 1 : Format::nan));
  }
};

// Of FP8: a product of numbers that is too large for float32 is still one of numbers. RCCL, which rounds each product,
// does not get there.
struct ProdOfFloat8 {
  static float apply(float a, float b) {
    const float product = a * b;
    if (!std::isinf(product) || std::isinf(a) || std::isinf(b)) return product;
    return std::copysign(std::numeric_limits<float>::max(), product);
  }
};

constexpr size_t block = 1024;

// The same of elements that are computed as they are stored, with nothing but the operator between them: the first two
// sources are read in one pass, and the last one writes the result. An element of `out` is written after it was read,
// whichever source it is.
template <class T, class Op>
void combine_plain(T *out, const void *const *sources, int source_count, const void *bias, size_t count) {
  const int rest = source_count - 2 + (bias != nullptr ? 1 : 0);  // sources after the first two
  T sums[block];
  for (size_t start = 0; start < count; start += block) {
    const size_t length = std::min(block, count - start);
    const T *first = static_cast<const T *>(sources[0]) + start, *second = static_cast<const T *>(sources[1]) + start;
    T *result = rest == 0 ? out + start : sums;
#pragma GCC ivdep
    for (size_t i = 0; i < length; ++i) result[i] = Op::apply(first[i], second[i]);
    for (int s = 0; s < rest; ++s) {
      const T *next = static_cast<const T *>(s + 2 < source_count ? sources[s + 2] : bias) + start;
      result = s + 1 == rest ? out + start : sums;
#pragma GCC ivdep
      for (size_t i = 0; i < length; ++i) result[i] = Op::apply(sums[i], next[i]);
    }
  }
}

template <class E, class Op, bool scaled>
void combine(void *out, const void *const *sources, const Scalar *scales, int source_count, const void *bias,
             size_t count, int divisor) {
  using Stored = typename E::Stored;
  using Computed = typename E::Computed;
  auto *result = static_cast<Stored *>(out);
  if constexpr (!scaled && std::is_same_v<E, Plain<Stored>>) {
    if (divisor <= 1 && source_count > 1) return combine_plain<Stored, Op>(result, sources, source_count, bias, count);
  }
  Computed sums[block];
  for (size_t start = 0; start < count; start += block) {
    const size_t length = std::min(block, count - start);
    for (int s = 0; s < source_count; ++s) {
      const Stored *source = static_cast<const Stored *>(sources[s]) + start;
      Computed scale{};
      if constexpr (scaled) {
        Stored stored;
        std::memcpy(&stored, scales[s].bytes, sizeof stored);
        scale = E::load(stored);
      }
      const auto element = [&](size_t i) -> Computed {
        if constexpr (scaled) {
          return E::load(E::store(multiply<Computed>(E::load(source[i]), scale)));
        } else {
          return E::load(source[i]);
        }
      };
      if (s == 0) {
        for (size_t i = 0; i < length; ++i) sums[i] = element(i);
      } else {
        for (size_t i = 0; i < length; ++i) sums[i] = Op::apply(sums[i], element(i));
      }
    }
    if constexpr (std::is_integral_v<Computed>) {
      // In 64 bits: a number of ranks may not fit the type.
      using Wide = std::conditional_t<std::is_signed_v<Computed>, int64_t, uint64_t>;
      if (divisor > 1) {
        for (size_t i = 0; i < length; ++i) {
          sums[i] = static_cast<Computed>(static_cast<Wide>(sums[i]) / static_cast<Wide>(divisor));
        }
      }
    }
    if (bias != nullptr) {
      const Stored *added = static_cast<const Stored *>(bias) + start;
      for (size_t i = 0; i < length; ++i) sums[i] = Op::apply(sums[i], E::load(added[i]));
    }
    for (size_t i = 0; i < length; ++i) result[start + i] = E::store(sums[i]);
  }
}

using Function = void (*)(void *, const void *const *, const Scalar *, int, const void *, size_t, int);

template <class E>
Function function_of(int op, bool is_scaled) {
  if (is_scaled) return combine<E, Sum, true>;
  using Product = std::conditional_t<std::is_same_v<typename E::Computed, float> && sizeof(typename E::Stored) == 1,
                                     ProdOfFloat8, Prod>;
  switch (op) {
    case ncclProd:
      return combine<E, Product, false>;
    case ncclMax:
      return combine<E, Max, false>;
    case ncclMin:
      return combine<E, Min, false>;
    default:
      return combine<E, Sum, false>;
  }
}

Function function_of(const Reduction &how) {
  switch (how.type) {
    case ncclInt8:
      return function_of<Plain<int8_t>>(how.op, how.is_scaled);
    case ncclUint8:
      return function_of<Plain<uint8_t>>(how.op, how.is_scaled);
    case ncclInt32:
      return function_of<Plain<int32_t>>(how.op, how.is_scaled);
    case ncclUint32:
      return function_of<Plain<uint32_t>>(how.op, how.is_scaled);
    case ncclInt64:
      return function_of<Plain<int64_t>>(how.op, how.is_scaled);
    case ncclUint64:
      return function_of<Plain<uint64_t>>(how.op, how.is_scaled);
    case ncclFloat16:
      return function_of<Half>(how.op, how.is_scaled);
    case ncclFloat32:
      return function_of<Plain<float>>(how.op, how.is_scaled);
    case ncclFloat64:
      return function_of<Plain<double>>(how.op, how.is_scaled);
    case ncclBfloat16:
      return function_of<Brain>(how.op, how.is_scaled);
    case ncclFloat8e4m3:
      return function_of<Float8<E4m3>>(how.op, how.is_scaled);
    default:
      return function_of<Float8<E5m2>>(how.op, how.is_scaled);
  }
}

template <class T>
Scalar scalar_of(T value) {
  Scalar scalar{};
  std::memcpy(scalar.bytes, &value, sizeof value);
  return scalar;
}

constexpr struct {
  const char *name;
  size_t bytes;
} types[] = {{"int8", 1},    {"uint8", 1},   {"int32", 4},   {"uint32", 4},   {"int64", 8},         {"uint64", 8},
             {"float16", 2}, {"float32", 4}, {"float64", 8}, {"bfloat16", 2}, {"float8_e4m3fn", 1}, {"float8_e5m2", 1}};

}  // namespace

size_t bytes_of_type(int type) { return type >= 0 && type < ncclNumTypes ? types[type].bytes : 0; }
const char *name_of_type(int type) { return type >= 0 && type < ncclNumTypes ? types[type].name : "no type"; }

void reduce(const Reduction &how, void *out, const void *const *sources, const Scalar *scales, int source_count,
            const void *bias, size_t count) {
  function_of(how)(out, sources, scales, source_count, bias, count, how.divisor);
}

Scalar reciprocal(int type, int n) {
  const float value = 1.0f / static_cast<float>(n);
  switch (type) {
    case ncclFloat16:
      return scalar_of(float_to_f16(value));
    case ncclBfloat16:
      return scalar_of(float_to_bf16(value));
    case ncclFloat8e4m3:
      return scalar_of(float_to_small<E4m3>(value));
    case ncclFloat8e5m2:
      return scalar_of(float_to_small<E5m2>(value));
    case ncclFloat64:
      return scalar_of(1.0 / n);
    default:
      return scalar_of(value);
  }
}

}  // namespace rocpy_host
