// SPDX-License-Identifier: MIT
// Shared memory (DS): loads, stores, and the exchanges between lanes that run through its crossbar.
#include "address.hpp"
#include "handlers.hpp"
#include "operands.hpp"

namespace rocpy_host::amdgpu {

namespace {

uint64_t address_of(Wave &w, const Instruction &i, int lane) {
  return w.vector(i.sources[0])[lane] + static_cast<uint64_t>(i.offset | i.offset1 << 8);
}

// `pieces` values of `words` each, at the offsets of the instruction in units of `unit` bytes when there are two.
template <unsigned words, unsigned chunks, unsigned unit>
void load(Wave &w, const Instruction &i) {
  uint32_t loaded[most_lanes][words * chunks];
  for_lanes(w.exec(), [&](int lane) {
    for (unsigned chunk = 0; chunk < chunks; ++chunk) {
      const uint64_t at =
          chunks == 1 ? address_of(w, i, lane)
                      : w.vector(i.sources[0])[lane] + static_cast<uint64_t>(chunk == 0 ? i.offset : i.offset1) * unit;
      std::memcpy(&loaded[lane][chunk * words], shared_address(w, at, 4 * words, false), 4 * words);
    }
  });
  uint32_t *to = w.vectors(i.results[0], words * chunks);
  for_lanes(w.exec(), [&](int lane) {
    for (unsigned k = 0; k < words * chunks; ++k) {
      to[k * static_cast<unsigned>(w.lanes) + static_cast<unsigned>(lane)] = loaded[lane][k];
    }
  });
}

// Transposed: the 16 lanes of a row read a matrix of 16 columns, each lane a part of one of its lines, and each gets
// the column of its number. Lines have 16 / `items` lanes, `items` the elements of a lane.
template <unsigned words, unsigned bits>
void load_transposed(Wave &w, const Instruction &i) {
  constexpr unsigned items = words * 32 / bits, lanes_of_line = 16 / items;
  if (w.exec() != w.all_lanes()) {
    fault(Fault::Kind::instruction, "a transposed read takes all lanes, and %d of %d are active",
          __builtin_popcountll(w.exec()), w.lanes);
  }
  uint64_t loaded[most_lanes][2] = {};
  for (int lane = 0; lane < w.lanes; ++lane) {
    std::memcpy(loaded[lane], shared_address(w, address_of(w, i, lane), 4 * words, false), 4 * words);
  }
  const auto item = [&](unsigned lane, unsigned index) {
    const unsigned at = index * bits;
    unsigned __int128 all = loaded[lane][1];
    all = all << 64 | loaded[lane][0];
    return static_cast<uint32_t>(all >> at) & ((1u << bits) - 1);
  };
  uint32_t *to = w.vectors(i.results[0], words);
  for (unsigned lane = 0; lane < static_cast<unsigned>(w.lanes); ++lane) {
    unsigned __int128 gathered = 0;
    for (unsigned k = 0; k < items; ++k) {
      const unsigned from = (lane & ~15u) + lanes_of_line * k + lane % 16 / items;
      gathered |= static_cast<unsigned __int128>(item(from, lane % 16 % items)) << (k * bits);
    }
    for (unsigned k = 0; k < words; ++k) {
      to[k * static_cast<unsigned>(w.lanes) + lane] = static_cast<uint32_t>(gathered >> (32 * k));
    }
  }
}

template <unsigned words, unsigned chunks, unsigned unit>
void store(Wave &w, const Instruction &i) {
  for_lanes(w.exec(), [&](int lane) {
    for (unsigned chunk = 0; chunk < chunks; ++chunk) {
      const uint32_t *from = w.vectors(i.sources[1 + chunk], words);
      const uint64_t at =
          chunks == 1 ? address_of(w, i, lane)
                      : w.vector(i.sources[0])[lane] + static_cast<uint64_t>(chunk == 0 ? i.offset : i.offset1) * unit;
      uint8_t *to = shared_address(w, at, 4 * words, true);
      for (unsigned k = 0; k < words; ++k) {
        std::memcpy(to + 4 * k, &from[k * static_cast<unsigned>(w.lanes) + static_cast<unsigned>(lane)], 4);
      }
    }
  });
}

template <class T, Part part>
void load_small(Wave &w, const Instruction &i) {
  T loaded[most_lanes];
  for_lanes(w.exec(), [&](int lane) {
    std::memcpy(&loaded[lane], shared_address(w, address_of(w, i, lane), sizeof(T), false), sizeof(T));
  });
  uint32_t *to = w.vector(i.results[0]);
  for_lanes(w.exec(), [&](int lane) {
    to[lane] = placed<part>(w, to[lane], static_cast<uint32_t>(static_cast<int32_t>(loaded[lane])));
  });
}

template <class T, unsigned shift>
void store_small(Wave &w, const Instruction &i) {
  const uint32_t *from = w.vector(i.sources[1]);
  for_lanes(w.exec(), [&](int lane) {
    const auto value = static_cast<T>(from[lane] >> shift);
    std::memcpy(shared_address(w, address_of(w, i, lane), sizeof(T), true), &value, sizeof value);
  });
}

template <unsigned words, unsigned unit>
void exchange_two(Wave &w, const Instruction &i) {
  uint32_t loaded[most_lanes][2 * words];
  for_lanes(w.exec(), [&](int lane) {
    for (unsigned chunk = 0; chunk < 2; ++chunk) {
      const uint32_t *from = w.vectors(i.sources[1 + chunk], words);
      const uint64_t at =
          w.vector(i.sources[0])[lane] + static_cast<uint64_t>(chunk == 0 ? i.offset : i.offset1) * unit;
      uint8_t *target = shared_address(w, at, 4 * words, true);
      std::memcpy(&loaded[lane][chunk * words], target, 4 * words);
      for (unsigned k = 0; k < words; ++k) {
        std::memcpy(target + 4 * k, &from[k * static_cast<unsigned>(w.lanes) + static_cast<unsigned>(lane)], 4);
      }
    }
  });
  uint32_t *to = w.vectors(i.results[0], 2 * words);
  for_lanes(w.exec(), [&](int lane) {
    for (unsigned k = 0; k < 2 * words; ++k) {
      to[k * static_cast<unsigned>(w.lanes) + static_cast<unsigned>(lane)] = loaded[lane][k];
    }
  });
}

// The lane of the same 32 that ds_swizzle takes from.
int swizzled_lane(unsigned pattern, int lane) {
  const int base = lane & ~31, at = lane & 31;
  if (pattern >= 0xe000) {
    fault(Fault::Kind::instruction, "the FFT mode of ds_swizzle is not emulated");
  }
  if (pattern >= 0xc000) {
    const int mask = static_cast<int>(pattern & 31), count = static_cast<int>(pattern >> 5 & 31);
    const int rotated = (pattern & 0x400) != 0 ? at - count : at + count;
    return base | (at & mask) | (rotated & ~mask & 31);
  }
  if ((pattern & 0x8000) != 0) {
    return (lane & ~3) | static_cast<int>(pattern >> (2 * (lane & 3)) & 3);
  }
  const int keep = static_cast<int>(pattern & 31), set = static_cast<int>(pattern >> 5 & 31),
            flip = static_cast<int>(pattern >> 10 & 31);
  return base | (((at & keep) | set) ^ flip);
}

void swizzle(Wave &w, const Instruction &i) {
  const uint32_t *from = w.vector(i.sources[0]);
  const uint64_t exec = w.exec();
  uint32_t moved[most_lanes];
  for_lanes(exec, [&](int lane) {
    const int source = swizzled_lane(static_cast<unsigned>(i.offset | i.offset1 << 8), lane);
    moved[lane] = (exec >> source & 1) != 0 ? from[source] : 0;
  });
  uint32_t *to = w.vector(i.results[0]);
  for_lanes(exec, [&](int lane) { to[lane] = moved[lane]; });
}

template <bool is_pull, bool fetches_inactive>
void permute(Wave &w, const Instruction &i) {
  const uint32_t *from = w.vector(i.sources[1]);
  const uint64_t exec = w.exec();
  // GFX11 permutes the halves of a wave of 64 each by itself (RDNA3 ISA, DS_BPERMUTE_B32).
  const int lanes = w.architecture == Architecture::gfx1100 ? 32 : w.lanes;
  const auto base_of = [lanes](int lane) { return lane & ~(lanes - 1); };
  uint32_t moved[most_lanes] = {};
  for_lanes(exec, [&](int lane) {
    const auto other = base_of(lane) | static_cast<int>(address_of(w, i, lane) / 4 & static_cast<unsigned>(lanes - 1));
    if (!is_pull) {
      moved[other] = from[lane];
    } else if (fetches_inactive || (exec >> other & 1) != 0) {
      moved[lane] = from[other];
    }
  });
  uint32_t *to = w.vector(i.results[0]);
  for_lanes(exec, [&](int lane) { to[lane] = moved[lane]; });
}

// Adds the number of active lanes to a counter, or takes it away, and gives each the former value.
template <int direction>
void count(Wave &w, const Instruction &i) {
  const uint64_t at = (w.m0() & 0xffff) + static_cast<uint64_t>(i.offset | i.offset1 << 8);
  uint8_t *target = shared_address(w, at, 4, true);
  uint32_t before = 0;
  std::memcpy(&before, target, 4);
  const uint32_t after = before + static_cast<uint32_t>(direction * __builtin_popcountll(w.exec()));
  std::memcpy(target, &after, 4);
  uint32_t *to = w.vector(i.results[0]);
  for_lanes(w.exec(), [&](int lane) { to[lane] = before; });
}

// The first lane has the number of groups that the barrier waits for, less one.
void grid_barrier(Wave &w, const Instruction &i) {
  Grid *grid = w.group->grid;
  if (grid == nullptr) {
    fault(Fault::Kind::barrier,
          "a barrier of the whole grid, whose blocks do not run at the same time: launch it cooperatively");
  }
  if (w.exec() == 0) {
    return;
  }
  const uint64_t members = uint64_t{w.vector(i.sources[0])[__builtin_ctzll(w.exec())]} + 1;
  w.waits_for = grid->phase + 1;
  w.state = State::at_grid_barrier;
  if (++grid->arrived >= members) {
    grid->arrived = 0;
    ++grid->phase;
  }
}

}  // namespace

void add_lds(Handlers &handlers) {
  for (const char *load_name : {"ds_read", "ds_load"}) {
    const std::string p = load_name;
    handlers.add(p + "_b32", load<1, 1, 0>);
    handlers.add(p + "_b64", load<2, 1, 0>);
    handlers.add(p + "_b96", load<3, 1, 0>);
    handlers.add(p + "_b128", load<4, 1, 0>);
    handlers.add(p + "_i8", load_small<int8_t, Part::whole>);
    handlers.add(p + "_u8", load_small<uint8_t, Part::whole>);
    handlers.add(p + "_i16", load_small<int16_t, Part::whole>);
    handlers.add(p + "_u16", load_small<uint16_t, Part::whole>);
    handlers.add(p + "_i8_d16", load_small<int8_t, Part::low>);
    handlers.add(p + "_i8_d16_hi", load_small<int8_t, Part::high>);
    handlers.add(p + "_u8_d16", load_small<uint8_t, Part::low>);
    handlers.add(p + "_u8_d16_hi", load_small<uint8_t, Part::high>);
    handlers.add(p + "_u16_d16", load_small<uint16_t, Part::low>);
    handlers.add(p + "_u16_d16_hi", load_small<uint16_t, Part::high>);
  }
  for (const char *store_name : {"ds_write", "ds_store"}) {
    const std::string p = store_name;
    handlers.add(p + "_b32", store<1, 1, 0>);
    handlers.add(p + "_b64", store<2, 1, 0>);
    handlers.add(p + "_b96", store<3, 1, 0>);
    handlers.add(p + "_b128", store<4, 1, 0>);
    handlers.add(p + "_b8", store_small<uint8_t, 0>);
    handlers.add(p + "_b16", store_small<uint16_t, 0>);
    handlers.add(p + "_b8_d16_hi", store_small<uint8_t, 16>);
    handlers.add(p + "_b16_d16_hi", store_small<uint16_t, 16>);
  }
  for (const char *name : {"ds_read2_b32", "ds_load_2addr_b32"}) {
    handlers.add(name, load<1, 2, 4>);
  }
  for (const char *name : {"ds_read2_b64", "ds_load_2addr_b64"}) {
    handlers.add(name, load<2, 2, 8>);
  }
  for (const char *name : {"ds_read2st64_b32", "ds_load_2addr_stride64_b32"}) {
    handlers.add(name, load<1, 2, 256>);
  }
  for (const char *name : {"ds_read2st64_b64", "ds_load_2addr_stride64_b64"}) {
    handlers.add(name, load<2, 2, 512>);
  }
  for (const char *name : {"ds_write2_b32", "ds_store_2addr_b32"}) {
    handlers.add(name, store<1, 2, 4>);
  }
  for (const char *name : {"ds_write2_b64", "ds_store_2addr_b64"}) {
    handlers.add(name, store<2, 2, 8>);
  }
  for (const char *name : {"ds_write2st64_b32", "ds_store_2addr_stride64_b32"}) {
    handlers.add(name, store<1, 2, 256>);
  }
  for (const char *name : {"ds_write2st64_b64", "ds_store_2addr_stride64_b64"}) {
    handlers.add(name, store<2, 2, 512>);
  }
  for (const char *name : {"ds_wrxchg2_rtn_b32", "ds_storexchg_2addr_rtn_b32"}) {
    handlers.add(name, exchange_two<1, 4>);
  }
  for (const char *name : {"ds_wrxchg2_rtn_b64", "ds_storexchg_2addr_rtn_b64"}) {
    handlers.add(name, exchange_two<2, 8>);
  }
  for (const char *name : {"ds_wrxchg2st64_rtn_b32", "ds_storexchg_2addr_stride64_rtn_b32"}) {
    handlers.add(name, exchange_two<1, 256>);
  }
  for (const char *name : {"ds_wrxchg2st64_rtn_b64", "ds_storexchg_2addr_stride64_rtn_b64"}) {
    handlers.add(name, exchange_two<2, 512>);
  }
  handlers.add("ds_read_b64_tr_b16", load_transposed<2, 16>);
  handlers.add("ds_read_b64_tr_b8", load_transposed<2, 8>);
  handlers.add("ds_read_b64_tr_b4", load_transposed<2, 4>);
  handlers.add("ds_read_b96_tr_b6", load_transposed<3, 6>);
  handlers.add("ds_swizzle_b32", swizzle);
  handlers.add("ds_permute_b32", permute<false, false>);
  handlers.add("ds_bpermute_b32", permute<true, false>);
  handlers.add("ds_bpermute_fi_b32", permute<true, true>);
  handlers.add("ds_append", count<1>);
  handlers.add("ds_consume", count<-1>);
  handlers.add("ds_gws_barrier", grid_barrier);
}

}  // namespace rocpy_host::amdgpu
