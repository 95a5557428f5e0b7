// SPDX-License-Identifier: MIT
// Integer and bitwise vector instructions.
#include "handlers.hpp"
#include "operands.hpp"

#include <algorithm>

namespace rocpy_host::amdgpu {

namespace {

using u16 = uint16_t;
using i16 = int16_t;
using u32 = uint32_t;
using i32 = int32_t;
using u64 = uint64_t;
using i64 = int64_t;
using i128 = __int128;

i32 signed24(u32 value) { return static_cast<i32>(value << 8) >> 8; }
u32 unsigned24(u32 value) { return value & 0xffffff; }

template <class T>
T median(T a, T b, T c) {
  return std::max(std::min(a, b), std::min(std::max(a, b), c));
}

u32 bit_field(u32 value, u32 from, u32 width) {
  from &= 31;
  width &= 31;
  return width == 0 ? 0 : value >> from & ((1ull << width) - 1);
}

i32 signed_bit_field(u32 value, u32 from, u32 width) {
  from &= 31;
  width &= 31;
  if (width == 0) {
    return 0;
  }
  const u32 field = bit_field(value, from, width);
  return from + width >= 32 ? static_cast<i32>(value) >> from : static_cast<i32>(field << (32 - width)) >> (32 - width);
}

u32 permuted_bytes(u32 high, u32 low, u32 selector) {
  const u64 data = static_cast<u64>(high) << 32 | low;
  u32 bits = 0;
  for (int k = 0; k < 4; ++k) {
    const u32 s = selector >> (8 * k) & 0xff;
    u32 byte = 0;
    if (s < 8) {
      byte = static_cast<u32>(data >> (8 * s) & 0xff);
    } else if (s < 12) {
      byte = (data >> (16 * (s - 8) + 15) & 1) != 0 ? 0xff : 0;
    } else if (s >= 13) {
      byte = 0xff;
    }
    bits |= byte << (8 * k);
  }
  return bits;
}

u32 sum_of_differences(u32 a, u32 b, bool masked) {
  u32 sum = 0;
  for (int k = 0; k < 4; ++k) {
    const int x = a >> (8 * k) & 0xff, y = b >> (8 * k) & 0xff;
    sum += masked && y == 0 ? 0 : static_cast<u32>(std::abs(x - y));
  }
  return sum;
}

u32 interpolated_bytes(u32 a, u32 b, u32 c) {
  u32 bits = 0;
  for (int k = 0; k < 32; k += 8) {
    bits |= ((a >> k & 0xff) + (b >> k & 0xff) + (c >> k & 1)) >> 1 << k;
  }
  return bits;
}

u32 leading_sign_bits(u32 value) {
  const u32 flipped = static_cast<i32>(value) < 0 ? ~value : value;
  return flipped == 0 ? ~0u : static_cast<u32>(__builtin_clz(flipped));
}

u32 reversed_bits(u32 value) {
  u32 bits = 0;
  for (int k = 0; k < 32; ++k) {
    bits |= (value >> k & 1) << (31 - k);
  }
  return bits;
}

// a op b op carry in, with the carry out in a mask. `direction` -1 subtracts b from a, 1 adds.
template <int direction, bool is_reversed, bool takes_carry>
void with_carry(Wave &w, const Instruction &i) {
  const Source first(w, i, 0, Type::u32), second(w, i, 1, Type::u32);
  Result result(w, i, Type::u32);
  const u64 carries = takes_carry ? w.lane_mask(i.sources[2]) : 0;
  u64 out = 0;
  const Source &a = is_reversed ? second : first, &b = is_reversed ? first : second;
  for_lanes(w.exec() & first.valid, [&](int lane) {
    const u64 carry = carries >> lane & 1;
    const u64 sum = direction > 0 ? static_cast<u64>(a.low(lane)) + b.low(lane) + carry
                                  : static_cast<u64>(a.low(lane)) - b.low(lane) - carry;
    const bool overflows = sum >> 32 != 0;
    const u32 limit = direction > 0 ? ~0u : 0u;
    out |= static_cast<u64>(overflows) << lane;
    result.set32(lane, i.clamp && overflows ? limit : static_cast<u32>(sum));
  });
  w.set_lane_mask(i.results[1], out);
}

template <class Wide, class Narrow>
void multiply_add_wide(Wave &w, const Instruction &i) {
  const Source a(w, i, 0, Type::u32), b(w, i, 1, Type::u32), c(w, i, 2, Type::u64);
  Result result(w, i, Type::u64);
  u64 out = 0;
  for_lanes(w.exec(), [&](int lane) {
    const i128 exact = static_cast<i128>(static_cast<Narrow>(a.low(lane))) * static_cast<Narrow>(b.low(lane)) +
                       static_cast<Wide>(c.wide(lane));
    const bool overflows = exact > std::numeric_limits<Wide>::max() || exact < std::numeric_limits<Wide>::min();
    out |= static_cast<u64>(overflows) << lane;
    result.set64(lane, static_cast<u64>(exact));
  });
  w.set_lane_mask(i.results[1], out);
}

void add_bitwise(Handlers &handlers) {
  ROCPY_LANES2("v_and_b32", u32, u32, u32, a & b);
  ROCPY_LANES2("v_or_b32", u32, u32, u32, a | b);
  ROCPY_LANES2("v_xor_b32", u32, u32, u32, a ^ b);
  ROCPY_LANES2("v_xnor_b32", u32, u32, u32, ~(a ^ b));
  ROCPY_LANES1("v_not_b32", u32, u32, ~a);
  ROCPY_LANES2("v_and_b16", u16, u16, u16, static_cast<u16>(a & b));
  ROCPY_LANES2("v_or_b16", u16, u16, u16, static_cast<u16>(a | b));
  ROCPY_LANES2("v_xor_b16", u16, u16, u16, static_cast<u16>(a ^ b));
  ROCPY_LANES1("v_not_b16", u16, u16, static_cast<u16>(~a));
  ROCPY_LANES1("v_bfrev_b32", u32, u32, reversed_bits(a));
  ROCPY_LANES1("v_ffbh_u32", u32, u32, a == 0 ? ~0u : static_cast<u32>(__builtin_clz(a)));
  ROCPY_LANES1("v_clz_i32_u32", u32, u32, a == 0 ? ~0u : static_cast<u32>(__builtin_clz(a)));
  ROCPY_LANES1("v_ffbl_b32", u32, u32, a == 0 ? ~0u : static_cast<u32>(__builtin_ctz(a)));
  ROCPY_LANES1("v_ctz_i32_b32", u32, u32, a == 0 ? ~0u : static_cast<u32>(__builtin_ctz(a)));
  ROCPY_LANES1("v_ffbh_i32", u32, u32, leading_sign_bits(a));
  ROCPY_LANES1("v_cls_i32", u32, u32, leading_sign_bits(a));
  ROCPY_LANES2("v_lshlrev_b32", u32, u32, u32, b << (a & 31));
  ROCPY_LANES2("v_lshrrev_b32", u32, u32, u32, b >> (a & 31));
  ROCPY_LANES2("v_ashrrev_i32", i32, u32, i32, b >> (a & 31));
  ROCPY_LANES2("v_lshlrev_b64", u64, u32, u64, b << (a & 63));
  ROCPY_LANES2("v_lshrrev_b64", u64, u32, u64, b >> (a & 63));
  ROCPY_LANES2("v_ashrrev_i64", i64, u32, i64, b >> (a & 63));
  ROCPY_LANES2("v_lshlrev_b16", u16, u16, u16, static_cast<u16>(b << (a & 15)));
  ROCPY_LANES2("v_lshrrev_b16", u16, u16, u16, static_cast<u16>(b >> (a & 15)));
  ROCPY_LANES2("v_ashrrev_i16", i16, u16, i16, static_cast<i16>(b >> (a & 15)));
  ROCPY_LANES3("v_bfe_u32", u32, u32, u32, u32, bit_field(a, b, c));
  ROCPY_LANES3("v_bfe_i32", i32, u32, u32, u32, signed_bit_field(a, b, c));
  ROCPY_LANES3("v_bfi_b32", u32, u32, u32, u32, (a & b) | (~a & c));
  ROCPY_LANES2("v_bfm_b32", u32, u32, u32, ((1u << (a & 31)) - 1) << (b & 31));
  ROCPY_LANES3("v_perm_b32", u32, u32, u32, u32, permuted_bytes(a, b, c));
  ROCPY_LANES3("v_alignbit_b32", u32, u32, u32, u32, static_cast<u32>((static_cast<u64>(a) << 32 | b) >> (c & 31)));
  ROCPY_LANES3("v_alignbyte_b32", u32, u32, u32, u32,
               static_cast<u32>((static_cast<u64>(a) << 32 | b) >> (8 * (c & 3))));
  ROCPY_LANES3("v_and_or_b32", u32, u32, u32, u32, (a & b) | c);
  ROCPY_LANES3("v_or3_b32", u32, u32, u32, u32, a | b | c);
  ROCPY_LANES3("v_xor3_b32", u32, u32, u32, u32, a ^ b ^ c);
  ROCPY_LANES3("v_lshl_or_b32", u32, u32, u32, u32, a << (b & 31) | c);
  ROCPY_LANES2("v_bcnt_u32_b32", u32, u32, u32, static_cast<u32>(__builtin_popcount(a)) + b);
}

void add_arithmetic(Handlers &handlers) {
  for (const char *name : {"v_add_u32", "v_add_nc_u32"}) {
    ROCPY_LANES2(name, u32, u32, u32, saturated<u32>(i, [&] { return static_cast<i128>(a) + b; }));
  }
  for (const char *name : {"v_sub_u32", "v_sub_nc_u32"}) {
    ROCPY_LANES2(name, u32, u32, u32, saturated<u32>(i, [&] { return static_cast<i128>(a) - b; }));
  }
  for (const char *name : {"v_subrev_u32", "v_subrev_nc_u32"}) {
    ROCPY_LANES2(name, u32, u32, u32, saturated<u32>(i, [&] { return static_cast<i128>(b) - a; }));
  }
  for (const char *name : {"v_add_i32", "v_add_nc_i32"}) {
    ROCPY_LANES2(name, i32, i32, i32, saturated<i32>(i, [&] { return static_cast<i128>(a) + b; }));
  }
  for (const char *name : {"v_sub_i32", "v_sub_nc_i32"}) {
    ROCPY_LANES2(name, i32, i32, i32, saturated<i32>(i, [&] { return static_cast<i128>(a) - b; }));
  }
  for (const char *name : {"v_add_u16", "v_add_nc_u16"}) {
    ROCPY_LANES2(name, u16, u16, u16, saturated<u16>(i, [&] { return static_cast<i128>(a) + b; }));
  }
  for (const char *name : {"v_sub_u16", "v_sub_nc_u16"}) {
    ROCPY_LANES2(name, u16, u16, u16, saturated<u16>(i, [&] { return static_cast<i128>(a) - b; }));
  }
  ROCPY_LANES2("v_subrev_u16", u16, u16, u16, saturated<u16>(i, [&] { return static_cast<i128>(b) - a; }));
  for (const char *name : {"v_add_i16", "v_add_nc_i16"}) {
    ROCPY_LANES2(name, i16, i16, i16, saturated<i16>(i, [&] { return static_cast<i128>(a) + b; }));
  }
  for (const char *name : {"v_sub_i16", "v_sub_nc_i16"}) {
    ROCPY_LANES2(name, i16, i16, i16, saturated<i16>(i, [&] { return static_cast<i128>(a) - b; }));
  }
  handlers.add("v_add_co_u32", with_carry<1, false, false>);
  handlers.add("v_sub_co_u32", with_carry<-1, false, false>);
  handlers.add("v_subrev_co_u32", with_carry<-1, true, false>);
  for (const char *name : {"v_addc_co_u32", "v_add_co_ci_u32"}) {
    handlers.add(name, with_carry<1, false, true>);
  }
  for (const char *name : {"v_subb_co_u32", "v_sub_co_ci_u32"}) {
    handlers.add(name, with_carry<-1, false, true>);
  }
  for (const char *name : {"v_subbrev_co_u32", "v_subrev_co_ci_u32"}) {
    handlers.add(name, with_carry<-1, true, true>);
  }
  ROCPY_LANES3("v_add3_u32", u32, u32, u32, u32, a + b + c);
  ROCPY_LANES3("v_add_lshl_u32", u32, u32, u32, u32, (a + b) << (c & 31));
  ROCPY_LANES3("v_lshl_add_u32", u32, u32, u32, u32, (a << (b & 31)) + c);
  ROCPY_LANES3("v_lshl_add_u64", u64, u64, u32, u64, (a << (b & 7)) + c);
  ROCPY_LANES3("v_xad_u32", u32, u32, u32, u32, (a ^ b) + c);
}

void add_products(Handlers &handlers) {
  ROCPY_LANES2("v_mul_lo_u32", u32, u32, u32, a * b);
  ROCPY_LANES2("v_mul_hi_u32", u32, u32, u32, static_cast<u32>(static_cast<u64>(a) * b >> 32));
  ROCPY_LANES2("v_mul_hi_i32", i32, i32, i32, static_cast<i32>(static_cast<i64>(a) * b >> 32));
  ROCPY_LANES2("v_mul_lo_u16", u16, u16, u16, static_cast<u16>(static_cast<u32>(a) * b));
  ROCPY_LANES2("v_mul_i32_i24", i32, u32, u32, static_cast<i32>(static_cast<i64>(signed24(a)) * signed24(b)));
  ROCPY_LANES2("v_mul_hi_i32_i24", i32, u32, u32, static_cast<i32>(static_cast<i64>(signed24(a)) * signed24(b) >> 32));
  ROCPY_LANES2("v_mul_u32_u24", u32, u32, u32, unsigned24(a) * unsigned24(b));
  ROCPY_LANES2("v_mul_hi_u32_u24", u32, u32, u32,
               static_cast<u32>(static_cast<u64>(unsigned24(a)) * unsigned24(b) >> 32));
  ROCPY_LANES3("v_mad_i32_i24", i32, u32, u32, i32,
               saturated<i32>(i, [&] { return static_cast<i128>(signed24(a)) * signed24(b) + c; }));
  ROCPY_LANES3("v_mad_u32_u24", u32, u32, u32, u32,
               saturated<u32>(i, [&] { return static_cast<i128>(unsigned24(a)) * unsigned24(b) + c; }));
  for (const char *name : {"v_mad_u16", "v_mad_legacy_u16"}) {
    ROCPY_LANES3(name, u16, u16, u16, u16, saturated<u16>(i, [&] { return static_cast<i128>(a) * b + c; }));
  }
  for (const char *name : {"v_mad_i16", "v_mad_legacy_i16"}) {
    ROCPY_LANES3(name, i16, i16, i16, i16, saturated<i16>(i, [&] { return static_cast<i128>(a) * b + c; }));
  }
  ROCPY_LANES3("v_mad_u32_u16", u32, u16, u16, u32, saturated<u32>(i, [&] { return static_cast<i128>(a) * b + c; }));
  ROCPY_LANES3("v_mad_i32_i16", i32, i16, i16, i32, saturated<i32>(i, [&] { return static_cast<i128>(a) * b + c; }));
  for (const char *name : {"v_mad_u64_u32", "v_mad_co_u64_u32"}) {
    handlers.add(name, multiply_add_wide<u64, u32>);
  }
  for (const char *name : {"v_mad_i64_i32", "v_mad_co_i64_i32"}) {
    handlers.add(name, multiply_add_wide<i64, i32>);
  }
  ROCPY_LANES3("v_sad_u8", u32, u32, u32, u32, sum_of_differences(a, b, false) + c);
  ROCPY_LANES3("v_msad_u8", u32, u32, u32, u32, sum_of_differences(a, b, true) + c);
  ROCPY_LANES3("v_sad_hi_u8", u32, u32, u32, u32, (sum_of_differences(a, b, false) << 16) + c);
  ROCPY_LANES3("v_sad_u16", u32, u32, u32, u32,
               ((a & 0xffff) > (b & 0xffff) ? (a & 0xffff) - (b & 0xffff) : (b & 0xffff) - (a & 0xffff)) +
                   (a >> 16 > b >> 16 ? (a >> 16) - (b >> 16) : (b >> 16) - (a >> 16)) + c);
  ROCPY_LANES3("v_sad_u32", u32, u32, u32, u32, (a > b ? a - b : b - a) + c);
  ROCPY_LANES3("v_lerp_u8", u32, u32, u32, u32, interpolated_bytes(a, b, c));
}

void add_order(Handlers &handlers) {
#define ROCPY_ORDER(T, suffix)                                               \
  ROCPY_LANES2("v_min_" suffix, T, T, T, std::min(a, b));                    \
  ROCPY_LANES2("v_max_" suffix, T, T, T, std::max(a, b));                    \
  ROCPY_LANES3("v_min3_" suffix, T, T, T, T, std::min(std::min(a, b), c));   \
  ROCPY_LANES3("v_max3_" suffix, T, T, T, T, std::max(std::max(a, b), c));   \
  ROCPY_LANES3("v_med3_" suffix, T, T, T, T, median(a, b, c));               \
  ROCPY_LANES3("v_minmax_" suffix, T, T, T, T, std::max(std::min(a, b), c)); \
  ROCPY_LANES3("v_maxmin_" suffix, T, T, T, T, std::min(std::max(a, b), c));
  ROCPY_ORDER(u32, "u32")
  ROCPY_ORDER(i32, "i32")
  ROCPY_ORDER(u16, "u16")
  ROCPY_ORDER(i16, "i16")
#undef ROCPY_ORDER
}

// Any function of three bits, by its truth table, which the modifiers carry.
template <class T>
T bit_operation(const Instruction &i, T a, T b, T c) {
  T bits = 0;
  for (unsigned k = 0; k < 8; ++k) {
    if ((i.truth_table >> k & 1) != 0) {
      bits = static_cast<T>(bits | ((k & 4 ? a : ~a) & (k & 2 ? b : ~b) & (k & 1 ? c : ~c)));
    }
  }
  return bits;
}

}  // namespace

void add_integer(Handlers &handlers) {
  add_bitwise(handlers);
  add_arithmetic(handlers);
  add_products(handlers);
  add_order(handlers);
  ROCPY_LANES3("v_bitop3_b32", u32, u32, u32, u32, bit_operation(i, a, b, c));
  ROCPY_LANES3("v_bitop3_b16", uint16_t, uint16_t, uint16_t, uint16_t, bit_operation(i, a, b, c));
}

}  // namespace rocpy_host::amdgpu
