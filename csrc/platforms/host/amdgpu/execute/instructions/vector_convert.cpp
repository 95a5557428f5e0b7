// SPDX-License-Identifier: MIT
// Conversions between integers and floats of all widths, and moves.
#include "fp8.hpp"
#include "handlers.hpp"
#include "operands.hpp"

#include <algorithm>

namespace rocpy_host::amdgpu {

namespace {

// To an integer: toward zero, out of range to the nearest, NaN to zero.
template <class To>
To to_integer(double value) {
  if (std::isnan(value)) {
    return 0;
  }
  const double whole = std::trunc(value);
  if (whole <= static_cast<double>(std::numeric_limits<To>::min())) {
    return std::numeric_limits<To>::min();
  }
  if (whole >= static_cast<double>(std::numeric_limits<To>::max())) {
    return std::numeric_limits<To>::max();
  }
  return static_cast<To>(whole);
}

uint32_t packed(uint16_t low, uint16_t high) { return low | static_cast<uint32_t>(high) << 16; }

uint16_t normalised_signed(double value) {
  return static_cast<uint16_t>(to_integer<int16_t>(std::nearbyint(std::clamp(value, -1.0, 1.0) * 32767)));
}
uint16_t normalised_unsigned(double value) {
  return to_integer<uint16_t>(std::nearbyint(std::clamp(value, 0.0, 1.0) * 65535));
}

uint32_t with_byte(float value, uint32_t index, uint32_t into) {
  const unsigned shift = 8 * (index & 3);
  return (into & ~(0xffu << shift)) | static_cast<uint32_t>(to_integer<uint8_t>(std::nearbyint(value))) << shift;
}

template <unsigned byte>
void from_byte(Wave &w, const Instruction &i) {
  each1<float, uint32_t>(w, i, [](uint32_t a) { return static_cast<float>(a >> (8 * byte) & 0xff); });
}

void add_moves(Handlers &handlers) {
  ROCPY_LANES1("v_mov_b32", Bits32, Bits32, a);
  ROCPY_LANES1("v_mov_b16", Bits16, Bits16, a);
  ROCPY_LANES1("v_mov_b64", uint64_t, uint64_t, a);
  for (const char *name : {"v_accvgpr_mov_b32", "v_accvgpr_read_b32", "v_accvgpr_write_b32"}) {
    ROCPY_LANES1(name, uint32_t, uint32_t, a);
  }
}

void add_integers(Handlers &handlers) {
  ROCPY_LANES1("v_cvt_f32_i32", float, int32_t, static_cast<float>(a));
  ROCPY_LANES1("v_cvt_f32_u32", float, uint32_t, static_cast<float>(a));
  ROCPY_LANES1("v_cvt_f64_i32", double, int32_t, a);
  ROCPY_LANES1("v_cvt_f64_u32", double, uint32_t, a);
  ROCPY_LANES1("v_cvt_i32_f32", int32_t, float, to_integer<int32_t>(a));
  ROCPY_LANES1("v_cvt_u32_f32", uint32_t, float, to_integer<uint32_t>(a));
  ROCPY_LANES1("v_cvt_i32_f64", int32_t, double, to_integer<int32_t>(a));
  ROCPY_LANES1("v_cvt_u32_f64", uint32_t, double, to_integer<uint32_t>(a));
  for (const char *name : {"v_cvt_rpi_i32_f32", "v_cvt_nearest_i32_f32"}) {
    ROCPY_LANES1(name, int32_t, float, to_integer<int32_t>(std::floor(static_cast<double>(a) + 0.5)));
  }
  for (const char *name : {"v_cvt_flr_i32_f32", "v_cvt_floor_i32_f32"}) {
    ROCPY_LANES1(name, int32_t, float, to_integer<int32_t>(std::floor(static_cast<double>(a))));
  }
  handlers.add("v_cvt_f32_ubyte0", from_byte<0>);
  handlers.add("v_cvt_f32_ubyte1", from_byte<1>);
  handlers.add("v_cvt_f32_ubyte2", from_byte<2>);
  handlers.add("v_cvt_f32_ubyte3", from_byte<3>);
  ROCPY_LANES1("v_cvt_off_f32_i4", float, uint32_t, static_cast<float>(static_cast<int32_t>(a << 28) >> 28) / 16);
  ROCPY_LANES1("v_cvt_i32_i16", int32_t, int16_t, a);
  ROCPY_LANES1("v_cvt_u32_u16", uint32_t, uint16_t, a);
  ROCPY_LANES1("v_cvt_f16_u16", Half, uint16_t, to_half(a, w.round64()));
  ROCPY_LANES1("v_cvt_f16_i16", Half, int16_t, to_half(a, w.round64()));
  ROCPY_LANES1("v_cvt_u16_f16", uint16_t, Half, to_integer<uint16_t>(to_float(a)));
  ROCPY_LANES1("v_cvt_i16_f16", int16_t, Half, to_integer<int16_t>(to_float(a)));
}

void add_floats(Handlers &handlers) {
  ROCPY_LANES1("v_cvt_f32_f64", float, double, static_cast<float>(a));
  ROCPY_LANES1("v_cvt_f64_f32", double, float, a);
  ROCPY_LANES1("v_cvt_f16_f32", Half, float, to_half(a, w.round64()));
  ROCPY_LANES1("v_cvt_f32_f16", float, Half, to_float(a));
  ROCPY_LANES1("v_cvt_f32_bf16", float, Bits16, to_float(Brain{a.bits}));
  for (const char *name : {"v_cvt_pkrtz_f16_f32", "v_cvt_pk_rtz_f16_f32"}) {
    ROCPY_LANES2(name, uint32_t, float, float, packed(to_half(a, to_zero).bits, to_half(b, to_zero).bits));
  }
  ROCPY_LANES2("v_cvt_pk_f16_f32", uint32_t, float, float,
               packed(to_half(a, w.round64()).bits, to_half(b, w.round64()).bits));
  ROCPY_LANES2("v_cvt_pk_bf16_f32", uint32_t, float, float,
               packed(to_brain(a, w.round64()).bits, to_brain(b, w.round64()).bits));
}

void add_packed_integers(Handlers &handlers) {
  for (const char *name : {"v_cvt_pknorm_i16_f32", "v_cvt_pk_norm_i16_f32"}) {
    ROCPY_LANES2(name, uint32_t, float, float, packed(normalised_signed(a), normalised_signed(b)));
  }
  for (const char *name : {"v_cvt_pknorm_u16_f32", "v_cvt_pk_norm_u16_f32"}) {
    ROCPY_LANES2(name, uint32_t, float, float, packed(normalised_unsigned(a), normalised_unsigned(b)));
  }
  for (const char *name : {"v_cvt_pknorm_i16_f16", "v_cvt_pk_norm_i16_f16"}) {
    ROCPY_LANES2(name, uint32_t, Half, Half, packed(normalised_signed(to_float(a)), normalised_signed(to_float(b))));
  }
  for (const char *name : {"v_cvt_pknorm_u16_f16", "v_cvt_pk_norm_u16_f16"}) {
    ROCPY_LANES2(name, uint32_t, Half, Half,
                 packed(normalised_unsigned(to_float(a)), normalised_unsigned(to_float(b))));
  }
  ROCPY_LANES2("v_cvt_pk_u16_u32", uint32_t, uint32_t, uint32_t,
               packed(static_cast<uint16_t>(std::min(a, 0xffffu)), static_cast<uint16_t>(std::min(b, 0xffffu))));
  ROCPY_LANES2(
      "v_cvt_pk_i16_i32", uint32_t, int32_t, int32_t,
      packed(static_cast<uint16_t>(std::clamp(a, -32768, 32767)), static_cast<uint16_t>(std::clamp(b, -32768, 32767))));
  ROCPY_LANES2("v_cvt_pk_i16_f32", uint32_t, float, float,
               packed(static_cast<uint16_t>(to_integer<int16_t>(a)), static_cast<uint16_t>(to_integer<int16_t>(b))));
  ROCPY_LANES2("v_cvt_pk_u16_f32", uint32_t, float, float, packed(to_integer<uint16_t>(a), to_integer<uint16_t>(b)));
  ROCPY_LANES3("v_cvt_pk_u8_f32", uint32_t, float, uint32_t, uint32_t, with_byte(a, b, c));
  ROCPY_LANES2("v_pack_b32_f16", uint32_t, Bits16, Bits16, packed(a.bits, b.bits));
  ROCPY_LANES1("v_sat_pk_u8_i16", Bits16, uint32_t,
               Bits16{static_cast<uint16_t>(std::clamp<int>(static_cast<int16_t>(a), 0, 255) |
                                            std::clamp<int>(static_cast<int16_t>(a >> 16), 0, 255) << 8)});
}

// ---- 8-bit floats ----

template <bool is_e5m2>
void from_fp8(Wave &w, const Instruction &i) {
  // The byte: by SDWA on GFX9, by the two select bits of the long form, the lowest otherwise.
  const Source a(w, i, 0, Type::b32);
  Result result(w, i, Type::f32);
  const unsigned byte = i.lanes == Lanes::sdwa ? 0 : (i.select & 1) * 2 + (i.select >> 1 & 1);
  for_lanes(w.exec() & a.valid, [&](int lane) {
    write<float>(w, i, result, lane,
                 from_fp8(static_cast<uint8_t>(a.low(lane) >> (8 * byte)), fp8_of(w.architecture, is_e5m2)));
  });
}

template <bool is_e5m2>
void pair_from_fp8(Wave &w, const Instruction &i) {
  const Source a(w, i, 0, Type::b16);
  Result result(w, i, Type::b64);
  for_lanes(w.exec() & a.valid, [&](int lane) {
    const Fp8 format = fp8_of(w.architecture, is_e5m2);
    const uint16_t bits = a.half(lane);
    const float low = from_fp8(static_cast<uint8_t>(bits), format);
    const float high = from_fp8(static_cast<uint8_t>(bits >> 8), format);
    result.set64(lane, bit_copy<uint32_t>(low) | static_cast<uint64_t>(bit_copy<uint32_t>(high)) << 32);
  });
}

template <bool is_e5m2>
void pair_to_fp8(Wave &w, const Instruction &i) {
  const Source a(w, i, 0, Type::f32), b(w, i, 1, Type::f32);
  uint32_t *to = w.vector(i.results[0]);
  const unsigned shift = (i.select & 8) != 0 ? 16 : 0;
  for_lanes(w.exec(), [&](int lane) {
    const Fp8 format = fp8_of(w.architecture, is_e5m2);
    const uint32_t pair = to_fp8(read<float>(w, a, lane), format, (w.mode >> 23 & 1) != 0) |
                          to_fp8(read<float>(w, b, lane), format, (w.mode >> 23 & 1) != 0) << 8;
    to[lane] = (to[lane] & ~(0xffffu << shift)) | pair << shift;
  });
}

}  // namespace

void add_convert(Handlers &handlers) {
  add_moves(handlers);
  add_integers(handlers);
  add_floats(handlers);
  add_packed_integers(handlers);
  handlers.add("v_cvt_f32_fp8", from_fp8<false>);
  handlers.add("v_cvt_f32_bf8", from_fp8<true>);
  handlers.add("v_cvt_pk_f32_fp8", pair_from_fp8<false>);
  handlers.add("v_cvt_pk_f32_bf8", pair_from_fp8<true>);
  handlers.add("v_cvt_pk_fp8_f32", pair_to_fp8<false>);
  handlers.add("v_cvt_pk_bf8_f32", pair_to_fp8<true>);
}

}  // namespace rocpy_host::amdgpu
