// SPDX-License-Identifier: MIT
// Operands of scalar instructions by their C++ type, and the short forms that the tables of semantics are written in.
#pragma once

#include "half.hpp"
#include "wave.hpp"

#include <type_traits>

namespace rocpy_host::amdgpu {

using u32 = uint32_t;
using i32 = int32_t;
using u64 = uint64_t;
using i64 = int64_t;

template <class T>
T source(const Wave &w, const Instruction &i, int k) {
  if constexpr (std::is_same_v<T, float>) {
    return bit_copy<float>(w.read32(i.sources[k], i.literal));
  } else if constexpr (std::is_same_v<T, Half>) {
    uint64_t constant = 0;
    return Half{static_cast<uint16_t>(
        inline_constant(i.sources[k], Type::f16, &constant) ? constant : w.read32(i.sources[k], i.literal))};
  } else if constexpr (sizeof(T) == 4) {
    return static_cast<T>(w.read32(i.sources[k], i.literal));
  } else {
    return static_cast<T>(w.read64(i.sources[k], i.literal, std::is_signed_v<T> ? Type::i64 : Type::b64));
  }
}

template <class T>
void give(Wave &w, const Instruction &i, T value) {
  if constexpr (std::is_same_v<T, float>) {
    w.write32(i.results[0], bit_copy<u32>(value));
  } else if constexpr (std::is_same_v<T, Half>) {
    w.write32(i.results[0], value.bits);
  } else if constexpr (sizeof(T) == 4) {
    w.write32(i.results[0], static_cast<u32>(value));
  } else {
    w.write64(i.results[0], static_cast<u64>(value));
  }
}

// Result = expression of a and b; SCC as the second expression says, which sees the result as d.
#define ROCPY_SCALAR2(name, T, A, B, expression, flag)   \
  handlers.add(name, [](Wave &w, const Instruction &i) { \
    const A a = source<A>(w, i, 0);                      \
    const B b = source<B>(w, i, 1);                      \
    (void)a;                                             \
    (void)b;                                             \
    const T d = static_cast<T>(expression);              \
    w.scc = (flag);                                      \
    give<T>(w, i, d);                                    \
  })
#define ROCPY_SCALAR1(name, T, A, expression, flag)      \
  handlers.add(name, [](Wave &w, const Instruction &i) { \
    const A a = source<A>(w, i, 0);                      \
    const T d = static_cast<T>(expression);              \
    w.scc = (flag);                                      \
    give<T>(w, i, d);                                    \
  })

}  // namespace rocpy_host::amdgpu
