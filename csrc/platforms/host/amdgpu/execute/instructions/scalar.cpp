// SPDX-License-Identifier: MIT
// The scalar unit: integers, bits, masks and, on GFX11 and later, floats.
#include "handlers.hpp"
#include "scalar_operands.hpp"

#include <algorithm>
#include <limits>

namespace rocpy_host::amdgpu {

namespace {

bool add_overflows(i32 a, i32 b) {
  return [&] {
    i32 sum;
    return __builtin_add_overflow(a, b, &sum);
  }();
}
bool sub_overflows(i32 a, i32 b) {
  return [&] {
    i32 rest;
    return __builtin_sub_overflow(a, b, &rest);
  }();
}

template <class U>
U bit_field(U value, u32 control, bool is_signed) {
  constexpr u32 width_of_type = sizeof(U) * 8;
  const u32 from = control & (width_of_type - 1), width = std::min<u32>(control >> 16 & 127, width_of_type);
  if (width == 0) {
    return 0;
  }
  const U shifted = value >> from;
  const u32 there = std::min(width, width_of_type - from);
  U field = there == width_of_type ? shifted : shifted & ((U(1) << there) - 1);
  if (is_signed && width < width_of_type && (field >> (there - 1) & 1) != 0) {
    field |= ~U(0) << there;
  } else if (is_signed && there < width_of_type && (field >> (there - 1) & 1) != 0) {
    field |= ~U(0) << there;
  }
  return field;
}

template <class U>
U reversed(U value) {
  U result = 0;
  for (unsigned k = 0; k < sizeof(U) * 8; ++k) {
    result |= (value >> k & 1) << (sizeof(U) * 8 - 1 - k);
  }
  return result;
}

// Each group of four bits becomes one (quad mask) or four (whole quads) that say whether any was set.
template <class U>
U quads(U value, bool whole) {
  U mask = 0;
  for (unsigned k = 0; k < sizeof(U) * 2; ++k) {
    if ((value >> (4 * k) & 15) != 0) {
      mask |= whole ? U(15) << (4 * k) : U(1) << k;
    }
  }
  return mask;
}

template <class U>
i32 first_set(U value) {
  return value == 0 ? -1 : __builtin_ctzll(value);
}
template <class U>
i32 leading_zeros(U value) {
  return value == 0 ? -1 : __builtin_clzll(value) - (sizeof(U) == 4 ? 32 : 0);
}
template <class U>
i32 sign_bits(U value) {
  const U flipped = (value >> (sizeof(U) * 8 - 1)) != 0 ? static_cast<U>(~value) : value;
  return leading_zeros(flipped);
}

void add_arithmetic(Handlers &handlers) {
  for (const char *name : {"s_add_u32", "s_add_co_u32"}) {
    ROCPY_SCALAR2(name, u32, u32, u32, a + b, d < a);
  }
  for (const char *name : {"s_sub_u32", "s_sub_co_u32"}) {
    ROCPY_SCALAR2(name, u32, u32, u32, a - b, b > a);
  }
  for (const char *name : {"s_addc_u32", "s_add_co_ci_u32"}) {
    ROCPY_SCALAR2(name, u32, u32, u32, a + b + (w.scc ? 1 : 0), (static_cast<u64>(a) + b + (w.scc ? 1 : 0)) >> 32 != 0);
  }
  for (const char *name : {"s_subb_u32", "s_sub_co_ci_u32"}) {
    ROCPY_SCALAR2(name, u32, u32, u32, a - b - (w.scc ? 1 : 0), static_cast<u64>(b) + (w.scc ? 1 : 0) > a);
  }
  for (const char *name : {"s_add_i32", "s_add_co_i32"}) {
    ROCPY_SCALAR2(name, u32, i32, i32, static_cast<u32>(a) + static_cast<u32>(b), ((void)d, add_overflows(a, b)));
  }
  for (const char *name : {"s_sub_i32", "s_sub_co_i32"}) {
    ROCPY_SCALAR2(name, u32, i32, i32, static_cast<u32>(a) - static_cast<u32>(b), ((void)d, sub_overflows(a, b)));
  }
  ROCPY_SCALAR2("s_add_nc_u64", u64, u64, u64, a + b, w.scc);
  ROCPY_SCALAR2("s_sub_nc_u64", u64, u64, u64, a - b, w.scc);
  ROCPY_SCALAR2("s_mul_u64", u64, u64, u64, a * b, w.scc);
  ROCPY_SCALAR2("s_mul_i32", u32, u32, u32, a * b, w.scc);
  ROCPY_SCALAR2("s_mul_hi_u32", u32, u32, u32, static_cast<u64>(a) * b >> 32, w.scc);
  ROCPY_SCALAR2("s_mul_hi_i32", i32, i32, i32, static_cast<i64>(a) * b >> 32, w.scc);
  ROCPY_SCALAR2("s_min_i32", i32, i32, i32, std::min(a, b), a < b);
  ROCPY_SCALAR2("s_min_u32", u32, u32, u32, std::min(a, b), a < b);
  ROCPY_SCALAR2("s_max_i32", i32, i32, i32, std::max(a, b), a > b);
  ROCPY_SCALAR2("s_max_u32", u32, u32, u32, std::max(a, b), a > b);
  ROCPY_SCALAR2("s_absdiff_i32", u32, i32, i32,
                a > b ? static_cast<u32>(a) - static_cast<u32>(b) : static_cast<u32>(b) - static_cast<u32>(a), d != 0);
  ROCPY_SCALAR2("s_lshl1_add_u32", u32, u32, u32, (a << 1) + b, ((static_cast<u64>(a) << 1) + b) >> 32 != 0);
  ROCPY_SCALAR2("s_lshl2_add_u32", u32, u32, u32, (a << 2) + b, ((static_cast<u64>(a) << 2) + b) >> 32 != 0);
  ROCPY_SCALAR2("s_lshl3_add_u32", u32, u32, u32, (a << 3) + b, ((static_cast<u64>(a) << 3) + b) >> 32 != 0);
  ROCPY_SCALAR2("s_lshl4_add_u32", u32, u32, u32, (a << 4) + b, ((static_cast<u64>(a) << 4) + b) >> 32 != 0);
  ROCPY_SCALAR1("s_abs_i32", u32, i32, a < 0 ? 0u - static_cast<u32>(a) : static_cast<u32>(a), d != 0);
  ROCPY_SCALAR1("s_sext_i32_i8", i32, u32, static_cast<int8_t>(a), w.scc);
  ROCPY_SCALAR1("s_sext_i32_i16", i32, u32, static_cast<int16_t>(a), w.scc);
}

#define ROCPY_LOGIC(U, suffix)                                                                   \
  ROCPY_SCALAR2("s_and_" suffix, U, U, U, a &b, d != 0);                                         \
  ROCPY_SCALAR2("s_or_" suffix, U, U, U, a | b, d != 0);                                         \
  ROCPY_SCALAR2("s_xor_" suffix, U, U, U, a ^ b, d != 0);                                        \
  ROCPY_SCALAR2("s_nand_" suffix, U, U, U, ~(a & b), d != 0);                                    \
  ROCPY_SCALAR2("s_nor_" suffix, U, U, U, ~(a | b), d != 0);                                     \
  ROCPY_SCALAR2("s_xnor_" suffix, U, U, U, ~(a ^ b), d != 0);                                    \
  ROCPY_SCALAR2("s_andn2_" suffix, U, U, U, a & ~b, d != 0);                                     \
  ROCPY_SCALAR2("s_and_not1_" suffix, U, U, U, a & ~b, d != 0);                                  \
  ROCPY_SCALAR2("s_orn2_" suffix, U, U, U, a | ~b, d != 0);                                      \
  ROCPY_SCALAR2("s_or_not1_" suffix, U, U, U, a | ~b, d != 0);                                   \
  ROCPY_SCALAR1("s_not_" suffix, U, U, ~a, d != 0);                                              \
  ROCPY_SCALAR1("s_mov_" suffix, U, U, a, w.scc);                                                \
  ROCPY_SCALAR1("s_brev_" suffix, U, U, reversed(a), w.scc);                                     \
  ROCPY_SCALAR1("s_wqm_" suffix, U, U, quads(a, true), d != 0);                                  \
  ROCPY_SCALAR1("s_quadmask_" suffix, U, U, quads(a, false), d != 0);                            \
  ROCPY_SCALAR2("s_cselect_" suffix, U, U, U, w.scc ? a : b, w.scc);                             \
  ROCPY_SCALAR2("s_lshl_" suffix, U, U, u32, a << (b & (sizeof(U) * 8 - 1)), d != 0);            \
  ROCPY_SCALAR2("s_lshr_" suffix, U, U, u32, a >> (b & (sizeof(U) * 8 - 1)), d != 0);            \
  ROCPY_SCALAR1("s_bcnt1_i32_" suffix, i32, U, __builtin_popcountll(a), d != 0);                 \
  ROCPY_SCALAR1("s_bcnt0_i32_" suffix, i32, U, sizeof(U) * 8 - __builtin_popcountll(a), d != 0); \
  ROCPY_SCALAR1("s_ff1_i32_" suffix, i32, U, first_set<U>(a), w.scc);                            \
  ROCPY_SCALAR1("s_ctz_i32_" suffix, i32, U, first_set<U>(a), w.scc);                            \
  ROCPY_SCALAR1("s_ff0_i32_" suffix, i32, U, first_set<U>(static_cast<U>(~a)), w.scc);           \
  ROCPY_SCALAR1("s_flbit_i32_" suffix, i32, U, leading_zeros<U>(a), w.scc);                      \
  handlers.add("s_bitcmp0_" suffix, [](Wave &w, const Instruction &i) {                          \
    w.scc = (source<U>(w, i, 0) >> (source<u32>(w, i, 1) & (sizeof(U) * 8 - 1)) & 1) == 0;       \
  });                                                                                            \
  handlers.add("s_bitcmp1_" suffix, [](Wave &w, const Instruction &i) {                          \
    w.scc = (source<U>(w, i, 0) >> (source<u32>(w, i, 1) & (sizeof(U) * 8 - 1)) & 1) != 0;       \
  });

void add_logic(Handlers &handlers) {
  ROCPY_LOGIC(u32, "b32")
  ROCPY_LOGIC(u64, "b64")
  ROCPY_SCALAR1("s_clz_i32_u32", i32, u32, leading_zeros<u32>(a), w.scc);
  ROCPY_SCALAR1("s_clz_i32_u64", i32, u64, leading_zeros<u64>(a), w.scc);
  for (const char *name : {"s_flbit_i32", "s_cls_i32"}) {
    ROCPY_SCALAR1(name, i32, u32, sign_bits<u32>(a), w.scc);
  }
  for (const char *name : {"s_flbit_i32_i64", "s_cls_i32_i64"}) {
    ROCPY_SCALAR1(name, i32, u64, sign_bits<u64>(a), w.scc);
  }
  ROCPY_SCALAR2("s_ashr_i32", i32, i32, u32, a >> (b & 31), d != 0);
  ROCPY_SCALAR2("s_ashr_i64", i64, i64, u32, a >> (b & 63), d != 0);
  ROCPY_SCALAR2("s_bfe_u32", u32, u32, u32, bit_field<u32>(a, b, false), d != 0);
  ROCPY_SCALAR2("s_bfe_i32", u32, u32, u32, bit_field<u32>(a, b, true), d != 0);
  ROCPY_SCALAR2("s_bfe_u64", u64, u64, u32, bit_field<u64>(a, b, false), d != 0);
  ROCPY_SCALAR2("s_bfe_i64", u64, u64, u32, bit_field<u64>(a, b, true), d != 0);
  ROCPY_SCALAR2("s_bfm_b32", u32, u32, u32, ((1u << (a & 31)) - 1) << (b & 31), w.scc);
  ROCPY_SCALAR2("s_bfm_b64", u64, u32, u32, ((1ull << (a & 63)) - 1) << (b & 63), w.scc);
  ROCPY_SCALAR2("s_pack_ll_b32_b16", u32, u32, u32, (a & 0xffff) | b << 16, w.scc);
  ROCPY_SCALAR2("s_pack_lh_b32_b16", u32, u32, u32, (a & 0xffff) | (b & 0xffff0000), w.scc);
  ROCPY_SCALAR2("s_pack_hh_b32_b16", u32, u32, u32, a >> 16 | (b & 0xffff0000), w.scc);
  ROCPY_SCALAR2("s_pack_hl_b32_b16", u32, u32, u32, a >> 16 | b << 16, w.scc);
  handlers.add("s_cmov_b32", [](Wave &w, const Instruction &i) {
    if (w.scc) {
      w.write32(i.results[0], source<u32>(w, i, 0));
    }
  });
  handlers.add("s_cmov_b64", [](Wave &w, const Instruction &i) {
    if (w.scc) {
      w.write64(i.results[0], source<u64>(w, i, 0));
    }
  });
  handlers.add("s_bitset0_b32", [](Wave &w, const Instruction &i) {
    w.write32(i.results[0], w.read32(i.results[0], 0) & ~(1u << (source<u32>(w, i, 0) & 31)));
  });
  handlers.add("s_bitset1_b32", [](Wave &w, const Instruction &i) {
    w.write32(i.results[0], w.read32(i.results[0], 0) | 1u << (source<u32>(w, i, 0) & 31));
  });
  handlers.add("s_bitset0_b64", [](Wave &w, const Instruction &i) {
    w.write64(i.results[0], w.read64(i.results[0], 0) & ~(1ull << (source<u32>(w, i, 0) & 63)));
  });
  handlers.add("s_bitset1_b64", [](Wave &w, const Instruction &i) {
    w.write64(i.results[0], w.read64(i.results[0], 0) | 1ull << (source<u32>(w, i, 0) & 63));
  });
  handlers.add("s_bitreplicate_b64_b32", [](Wave &w, const Instruction &i) {
    u64 doubled = 0;
    for (int k = 0; k < 32; ++k) {
      doubled |= static_cast<u64>(source<u32>(w, i, 0) >> k & 1) * 3 << (2 * k);
    }
    w.write64(i.results[0], doubled);
  });
}

// EXEC = source op EXEC; the former EXEC goes to the result, with _wrexec the new one. NOT of the source or of EXEC.
template <class U, u64 (*operation)(u64 source, u64 exec), bool gives_new>
void set_exec(Wave &w, const Instruction &i) {
  const U before = static_cast<U>(sizeof(U) == 8 ? w.pair(code_exec) : w.scalar[code_exec]);
  const U after = static_cast<U>(operation(source<U>(w, i, 0), before));
  give<U>(w, i, gives_new ? after : before);
  if (sizeof(U) == 8) {
    w.set_pair(code_exec, after);
  } else {
    w.scalar[code_exec] = static_cast<u32>(after);
  }
  w.scc = after != 0;
}

u64 op_and(u64 s, u64 e) { return s & e; }
u64 op_or(u64 s, u64 e) { return s | e; }
u64 op_xor(u64 s, u64 e) { return s ^ e; }
u64 op_nand(u64 s, u64 e) { return ~(s & e); }
u64 op_nor(u64 s, u64 e) { return ~(s | e); }
u64 op_xnor(u64 s, u64 e) { return ~(s ^ e); }
u64 op_and_not_exec(u64 s, u64 e) { return s & ~e; }
u64 op_and_not_source(u64 s, u64 e) { return ~s & e; }
u64 op_or_not_exec(u64 s, u64 e) { return s | ~e; }
u64 op_or_not_source(u64 s, u64 e) { return ~s | e; }

template <class U>
void add_exec(Handlers &handlers, const std::string &suffix) {
  handlers.add("s_and_saveexec_" + suffix, set_exec<U, op_and, false>);
  handlers.add("s_or_saveexec_" + suffix, set_exec<U, op_or, false>);
  handlers.add("s_xor_saveexec_" + suffix, set_exec<U, op_xor, false>);
  handlers.add("s_nand_saveexec_" + suffix, set_exec<U, op_nand, false>);
  handlers.add("s_nor_saveexec_" + suffix, set_exec<U, op_nor, false>);
  handlers.add("s_xnor_saveexec_" + suffix, set_exec<U, op_xnor, false>);
  for (const char *name : {"s_andn2_saveexec_", "s_and_not1_saveexec_"}) {
    handlers.add(name + suffix, set_exec<U, op_and_not_exec, false>);
  }
  for (const char *name : {"s_orn2_saveexec_", "s_or_not1_saveexec_"}) {
    handlers.add(name + suffix, set_exec<U, op_or_not_exec, false>);
  }
  for (const char *name : {"s_andn1_saveexec_", "s_and_not0_saveexec_"}) {
    handlers.add(name + suffix, set_exec<U, op_and_not_source, false>);
  }
  for (const char *name : {"s_orn1_saveexec_", "s_or_not0_saveexec_"}) {
    handlers.add(name + suffix, set_exec<U, op_or_not_source, false>);
  }
  for (const char *name : {"s_andn2_wrexec_", "s_and_not1_wrexec_"}) {
    handlers.add(name + suffix, set_exec<U, op_and_not_exec, true>);
  }
  for (const char *name : {"s_andn1_wrexec_", "s_and_not0_wrexec_"}) {
    handlers.add(name + suffix, set_exec<U, op_and_not_source, true>);
  }
}

}  // namespace

void add_scalar(Handlers &handlers) {
  add_arithmetic(handlers);
  add_logic(handlers);
  add_exec<u32>(handlers, "b32");
  add_exec<u64>(handlers, "b64");
  add_scalar_compare(handlers);
  add_scalar_float(handlers);
}

}  // namespace rocpy_host::amdgpu
