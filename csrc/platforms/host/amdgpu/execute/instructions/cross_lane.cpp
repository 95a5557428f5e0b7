// SPDX-License-Identifier: MIT
// Vector instructions that move values between lanes, or between vector and scalar registers.
#include "handlers.hpp"
#include "operands.hpp"

namespace rocpy_host::amdgpu {

namespace {

void read_first_lane(Wave &w, const Instruction &i) {
  const Source a(w, i, 0, Type::b32);
  const uint64_t exec = w.exec();
  w.write32(i.results[0], a.low(exec != 0 ? __builtin_ctzll(exec) : 0));
}

void read_lane(Wave &w, const Instruction &i) {
  const Source a(w, i, 0, Type::b32);
  w.write32(i.results[0],
            a.low(static_cast<int>(w.read32(i.sources[1], i.literal) & static_cast<unsigned>(w.lanes - 1))));
}

void write_lane(Wave &w, const Instruction &i) {
  const uint32_t value = w.read32(i.sources[0], i.literal), lane = w.read32(i.sources[1], i.literal);
  w.vector(i.results[0])[lane & static_cast<unsigned>(w.lanes - 1)] = value;
}

// Set bits of the mask below this lane, of its low or high word, added to the second source.
template <bool is_high>
void count_below(Wave &w, const Instruction &i) {
  const Source mask(w, i, 0, Type::b32), base(w, i, 1, Type::u32);
  Result result(w, i, Type::u32);
  for_lanes(w.exec(), [&](int lane) {
    const int bits = is_high ? std::max(lane - 32, 0) : std::min(lane, 32);
    const uint32_t below = bits >= 32 ? ~0u : (1u << bits) - 1;
    result.set32(lane, base.low(lane) + static_cast<uint32_t>(__builtin_popcount(mask.low(lane) & below)));
  });
}

// Each lane takes the value of a lane of its row of 16, or of the adjacent row.
template <bool is_crossed, bool is_variable>
void permute_row(Wave &w, const Instruction &i) {
  const Source a(w, i, 0, Type::b32);
  const uint64_t selector =
      is_variable ? 0
                  : w.read32(i.sources[1], i.literal) | static_cast<uint64_t>(w.read32(i.sources[2], i.literal)) << 32;
  uint32_t *to = w.vector(i.results[0]);
  const uint32_t *chosen = is_variable ? w.vector(i.sources[1]) : nullptr;
  const bool fetch_inactive = (i.select & 1) != 0, bound_control = (i.select & 2) != 0;
  const uint64_t exec = w.exec();
  uint32_t moved[most_lanes];
  uint64_t written = 0;
  for_lanes(exec, [&](int lane) {
    const unsigned pick = is_variable ? chosen[lane] & 15 : static_cast<unsigned>(selector >> (4 * (lane & 15)) & 15);
    const int from = ((lane & ~15) ^ (is_crossed ? 16 : 0)) | static_cast<int>(pick);
    const bool is_there = fetch_inactive || (exec >> from & 1) != 0;
    moved[lane] = is_there ? a.low(from) : 0;
    written |= static_cast<uint64_t>(is_there || bound_control) << lane;
  });
  for_lanes(written, [&](int lane) { to[lane] = moved[lane]; });
}

// In a wave of 32 lanes there is no other half, and nothing happens.
void swap_halves_of_wave(Wave &w, const Instruction &i) {
  if (w.lanes == 32) {
    return;
  }
  const Source a(w, i, 0, Type::b32);
  uint32_t *to = w.vector(i.results[0]);
  uint32_t moved[most_lanes];
  for (int lane = 0; lane < w.lanes; ++lane) {
    moved[lane] = a.low(lane ^ 32);
  }
  for_lanes(w.exec(), [&](int lane) { to[lane] = moved[lane]; });
}

void swap_registers(Wave &w, const Instruction &i) {
  uint32_t *a = w.vector(i.results[0]), *b = w.vector(i.sources[0]);
  for_lanes(w.exec(), [&](int lane) { std::swap(a[lane], b[lane]); });
}

// The upper of each two rows (of `rows` lanes) of one register is exchanged with the lower of the other's.
template <int rows>
void swap_rows(Wave &w, const Instruction &i) {
  uint32_t *a = w.vector(i.results[0]), *b = w.vector(i.sources[0]);
  for (int base = 0; base < w.lanes; base += 2 * rows) {
    for (int lane = base; lane < base + rows; ++lane) {
      std::swap(a[lane + rows], b[lane]);
    }
  }
}

}  // namespace

void add_cross_lane(Handlers &handlers) {
  handlers.add("v_nop", [](Wave &, const Instruction &) {});
  handlers.add("v_readfirstlane_b32", read_first_lane);
  handlers.add("v_readlane_b32", read_lane);
  handlers.add("v_writelane_b32", write_lane);
  handlers.add("v_mbcnt_lo_u32_b32", count_below<false>);
  handlers.add("v_mbcnt_hi_u32_b32", count_below<true>);
  handlers.add("v_permlane16_b32", permute_row<false, false>);
  handlers.add("v_permlanex16_b32", permute_row<true, false>);
  handlers.add("v_permlane16_var_b32", permute_row<false, true>);
  handlers.add("v_permlanex16_var_b32", permute_row<true, true>);
  handlers.add("v_permlane64_b32", swap_halves_of_wave);
  handlers.add("v_permlane16_swap_b32", swap_rows<16>);
  handlers.add("v_permlane32_swap_b32", swap_rows<32>);
  handlers.add("v_swap_b32", swap_registers);
}

}  // namespace rocpy_host::amdgpu
