// SPDX-License-Identifier: MIT
// Atomic operations on global, shared and buffer memory: real ones, since the host and other streams may take part.
#include "address.hpp"
#include "handlers.hpp"
#include "operands.hpp"

#include <algorithm>

namespace rocpy_host::amdgpu {

namespace {

template <class T>
T exchange(T, T value) {
  return value;
}
template <class T>
T add(T old, T value) {
  return old + value;
}
template <class T>
T subtract(T old, T value) {
  return old - value;
}
template <class T>
T subtract_from(T old, T value) {
  return value - old;
}
template <class T>
T subtract_clamped(T old, T value) {
  return old >= value ? old - value : 0;
}
template <class T>
T subtract_if(T old, T value) {
  return old >= value ? old - value : old;
}
template <class T>
T smaller(T old, T value) {
  return std::min(old, value);
}
template <class T>
T larger(T old, T value) {
  return std::max(old, value);
}
template <class T>
T smaller_float(T old, T value) {
  return std::isnan(old) || value < old || (value == old && std::signbit(value)) ? value : old;
}
template <class T>
T larger_float(T old, T value) {
  return std::isnan(old) || value > old || (value == old && !std::signbit(value)) ? value : old;
}
template <class T>
T bit_and(T old, T value) {
  return old & value;
}
template <class T>
T bit_or(T old, T value) {
  return old | value;
}
template <class T>
T bit_xor(T old, T value) {
  return old ^ value;
}
template <class T>
T increment(T old, T value) {
  return old >= value ? 0 : old + 1;
}
template <class T>
T decrement(T old, T value) {
  return old == 0 || old > value ? value : old - 1;
}

uint32_t add_halves(uint32_t old, uint32_t value) {
  uint32_t sums = 0;
  for (int k = 0; k < 32; k += 16) {
    const Half a{static_cast<uint16_t>(old >> k)}, b{static_cast<uint16_t>(value >> k)};
    sums |= static_cast<uint32_t>(to_half(static_cast<double>(to_float(a)) + to_float(b)).bits) << k;
  }
  return sums;
}

uint32_t add_brains(uint32_t old, uint32_t value) {
  uint32_t sums = 0;
  for (int k = 0; k < 32; k += 16) {
    const Brain a{static_cast<uint16_t>(old >> k)}, b{static_cast<uint16_t>(value >> k)};
    sums |= static_cast<uint32_t>(to_brain(static_cast<double>(to_float(a)) + to_float(b)).bits) << k;
  }
  return sums;
}

template <class T>
using BitsOf = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;

template <class T>
BitsOf<T> register_bits(const Wave &w, const uint32_t *from, int lane, unsigned first) {
  const auto at = [&](unsigned k) { return from[k * static_cast<unsigned>(w.lanes) + static_cast<unsigned>(lane)]; };
  if constexpr (sizeof(T) == 4) {
    return at(first);
  } else {
    return at(2 * first) | static_cast<uint64_t>(at(2 * first + 1)) << 32;
  }
}

template <class B>
void give(Wave &w, const Instruction &i, int lane, B bits) {
  uint32_t *to = w.vectors(i.results[0], sizeof(B) / 4);
  to[lane] = static_cast<uint32_t>(bits);
  if constexpr (sizeof(B) == 8) {
    to[lane + w.lanes] = static_cast<uint32_t>(bits >> 32);
  }
}

bool is_shared(const Instruction &i) { return i.opcode->encoding == Encoding::DS; }

template <class T>
BitsOf<T> *target_of(Wave &w, const Instruction &i, int lane) {
  uint8_t *at = is_shared(i)
                    ? shared_address(w, w.vector(i.sources[0])[lane] + static_cast<uint64_t>(i.offset | i.offset1 << 8),
                                     sizeof(T), true)
                    : locate(w, i, lane, sizeof(T), true);
  if (at != nullptr && reinterpret_cast<uintptr_t>(at) % sizeof(T) != 0) {
    fault(Fault::Kind::memory, "an atomic operation on %zu bytes at an address that is not a multiple of them",
          sizeof(T));
  }
  return reinterpret_cast<BitsOf<T> *>(at);
}

template <class B, class F>
B update(B *target, F function) {
  B old = __atomic_load_n(target, __ATOMIC_SEQ_CST);
  while (!__atomic_compare_exchange_n(target, &old, function(old), false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
  }
  return old;
}

// The instruction gives back what was there if it has a result and, outside shared memory, asks for it.
bool gives(const Instruction &i) { return i.opcode->result_count > 0 && (is_shared(i) || i.returns); }

template <class T, T (*operation)(T, T)>
void atomic(Wave &w, const Instruction &i) {
  using B = BitsOf<T>;
  const uint32_t *data = w.vectors(i.sources[1], sizeof(T) / 4);
  for_lanes(w.exec(), [&](int lane) {
    B old = 0;
    if (B *target = target_of<T>(w, i, lane)) {
      const T value = bit_copy<T>(register_bits<T>(w, data, lane, 0));
      old = update(target, [&](B now) { return bit_copy<B>(operation(bit_copy<T>(now), value)); });
    }
    if (gives(i)) {
      give(w, i, lane, old);
    }
  });
}

// Data: the new value, then what is compared with. Shared memory of GFX9 has them the other way round.
template <class T, bool compares_first>
void compare_exchange(Wave &w, const Instruction &i) {
  using B = BitsOf<T>;
  for_lanes(w.exec(), [&](int lane) {
    const uint32_t *data = w.vectors(i.sources[1], sizeof(T) / 4);
    const B first = register_bits<T>(w, data, lane, 0);
    const B second = is_shared(i) ? register_bits<T>(w, w.vectors(i.sources[2], sizeof(T) / 4), lane, 0)
                                  : register_bits<T>(w, w.vectors(i.sources[1], sizeof(T) / 2), lane, 1);
    const B value = compares_first ? second : first, expected = compares_first ? first : second;
    B old = 0;
    if (B *target = target_of<T>(w, i, lane)) {
      old = update(target, [&](B now) { return bit_copy<T>(now) == bit_copy<T>(expected) ? value : now; });
    }
    if (gives(i)) {
      give(w, i, lane, old);
    }
  });
}

template <class T>
void masked_or(Wave &w, const Instruction &i) {
  using B = BitsOf<T>;
  const uint32_t *mask = w.vectors(i.sources[1], sizeof(T) / 4), *data = w.vectors(i.sources[2], sizeof(T) / 4);
  for_lanes(w.exec(), [&](int lane) {
    const B bits = register_bits<T>(w, data, lane, 0), clear = register_bits<T>(w, mask, lane, 0);
    const B old = update(target_of<T>(w, i, lane), [&](B now) { return static_cast<B>((now & ~clear) | bits); });
    if (gives(i)) {
      give(w, i, lane, old);
    }
  });
}

template <class T>
void add_width(Handlers &handlers, bool is_wide) {
  using S = std::make_signed_t<T>;
  using F = std::conditional_t<sizeof(T) == 4, float, double>;
  struct Named {
    const char *old_name, *new_name;
    char type;
    Handler handler;
  };
  const Named all[] = {
      {"add", "add", 'u', atomic<T, add<T>>},
      {"sub", "sub", 'u', atomic<T, subtract<T>>},
      {"rsub", "rsub", 'u', atomic<T, subtract_from<T>>},
      {"csub", "csub", 'u', atomic<T, subtract_clamped<T>>},
      {"", "sub_clamp", 'u', atomic<T, subtract_clamped<T>>},
      {"", "cond_sub", 'u', atomic<T, subtract_if<T>>},
      {"smin", "min", 'i', atomic<S, smaller<S>>},
      {"umin", "min", 'u', atomic<T, smaller<T>>},
      {"smax", "max", 'i', atomic<S, larger<S>>},
      {"umax", "max", 'u', atomic<T, larger<T>>},
      {"and", "and", 'b', atomic<T, bit_and<T>>},
      {"or", "or", 'b', atomic<T, bit_or<T>>},
      {"xor", "xor", 'b', atomic<T, bit_xor<T>>},
      {"inc", "inc", 'u', atomic<T, increment<T>>},
      {"dec", "dec", 'u', atomic<T, decrement<T>>},
      {"swap", "swap", 'b', atomic<T, exchange<T>>},
      {"", "wrxchg", 'b', atomic<T, exchange<T>>},
      {"", "storexchg", 'b', atomic<T, exchange<T>>},
      {"", "add", 'f', atomic<F, add<F>>},
      {"fmin", "min", 'f', atomic<F, smaller_float<F>>},
      {"fmax", "max", 'f', atomic<F, larger_float<F>>},
      {"", "min_num", 'f', atomic<F, smaller_float<F>>},
      {"", "max_num", 'f', atomic<F, larger_float<F>>},
      {"cmpswap", "cmpswap", 'b', compare_exchange<T, false>},
      {"fcmpswap", "cmpswap", 'f', compare_exchange<F, false>},
  };
  const std::string bits = is_wide ? "64" : "32";
  for (const Named &one : all) {
    const std::string typed = std::string("_") + one.type + bits;
    for (const char *prefix : {"flat_atomic_", "global_atomic_", "buffer_atomic_"}) {
      if (one.old_name[0] != '\0') {
        handlers.add(std::string(prefix) + one.old_name + (is_wide ? "_x2" : ""), one.handler);
      }
      handlers.add(std::string(prefix) + one.new_name + typed, one.handler);
    }
    handlers.add(std::string("ds_") + one.new_name + typed, one.handler);
    handlers.add(std::string("ds_") + one.new_name + "_rtn" + typed, one.handler);
  }
  for (const char *middle : {"", "_rtn"}) {
    handlers.add(std::string("ds_cmpst") + middle + "_b" + bits, compare_exchange<T, true>);
    handlers.add(std::string("ds_cmpst") + middle + "_f" + bits, compare_exchange<F, true>);
    handlers.add(std::string("ds_cmpstore") + middle + "_b" + bits, compare_exchange<T, false>);
    handlers.add(std::string("ds_cmpstore") + middle + "_f" + bits, compare_exchange<F, false>);
    handlers.add(std::string("ds_mskor") + middle + "_b" + bits, masked_or<T>);
  }
}

}  // namespace

void add_atomics(Handlers &handlers) {
  add_width<uint32_t>(handlers, false);
  add_width<uint64_t>(handlers, true);
  for (const char *prefix : {"flat_atomic_", "global_atomic_", "buffer_atomic_", "ds_"}) {
    handlers.add(std::string(prefix) + "pk_add_f16", atomic<uint32_t, add_halves>);
    handlers.add(std::string(prefix) + "pk_add_bf16", atomic<uint32_t, add_brains>);
    handlers.add(std::string(prefix) + "pk_add_rtn_f16", atomic<uint32_t, add_halves>);
    handlers.add(std::string(prefix) + "pk_add_rtn_bf16", atomic<uint32_t, add_brains>);
  }
  handlers.add("global_atomic_csub", atomic<uint32_t, subtract_clamped<uint32_t>>);
}

}  // namespace rocpy_host::amdgpu
