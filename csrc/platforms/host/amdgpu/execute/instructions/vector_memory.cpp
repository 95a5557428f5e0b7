// SPDX-License-Identifier: MIT
// Vector loads and stores: FLAT, GLOBAL, SCRATCH and buffers.
#include "address.hpp"
#include "handlers.hpp"
#include "operands.hpp"

namespace rocpy_host::amdgpu {

namespace {

// To shared memory: each lane's words, or what is less than one extended to it, at M0 and the offset of the
// instruction, one lane after the other; what lies outside a buffer arrives as zero.
template <class T, unsigned words>
void load_to_shared(Wave &w, const Instruction &i) {
  const uint64_t base = (w.m0() & 0x3ffff) + static_cast<uint64_t>(static_cast<int64_t>(i.offset));
  constexpr unsigned apart = words == 1 ? 4 : 16;
  for_lanes(w.exec(), [&](int lane) {
    T loaded[words] = {};
    unsigned reached = 0;
    const uint8_t *from =
        words == 1 ? locate(w, i, lane, sizeof(T), false) : locate_words(w, i, lane, words, false, &reached);
    if (from != nullptr) {
      std::memcpy(loaded, from, words == 1 ? sizeof(T) : 4 * reached);
    }
    uint8_t *to = shared_address(w, base + static_cast<unsigned>(lane) * apart, 4 * words, true);
    for (unsigned k = 0; k < words; ++k) {
      const auto bits = static_cast<uint32_t>(static_cast<int32_t>(loaded[k]));
      std::memcpy(to + 4 * k, &bits, 4);
    }
  });
}

// Loads may overwrite their own address registers: all lanes are read before any is written.
template <unsigned words>
void load_words(Wave &w, const Instruction &i) {
  if (i.to_shared) {
    load_to_shared<uint32_t, words>(w, i);
    return;
  }
  uint32_t loaded[most_lanes][words] = {};
  for_lanes(w.exec(), [&](int lane) {
    unsigned reached = 0;
    if (const uint8_t *from = locate_words(w, i, lane, words, false, &reached)) {
      std::memcpy(loaded[lane], from, 4 * reached);
    }
  });
  uint32_t *to = w.vectors(i.results[0], words);
  for_lanes(w.exec(), [&](int lane) {
    for (unsigned k = 0; k < words; ++k) {
      to[k * static_cast<unsigned>(w.lanes) + static_cast<unsigned>(lane)] = loaded[lane][k];
    }
  });
}

template <class T, Part part>
void load_small(Wave &w, const Instruction &i) {
  if (i.to_shared) {
    load_to_shared<T, 1>(w, i);
    return;
  }
  T loaded[most_lanes] = {};
  for_lanes(w.exec(), [&](int lane) {
    if (const uint8_t *from = locate(w, i, lane, sizeof(T), false)) {
      std::memcpy(&loaded[lane], from, sizeof(T));
    }
  });
  uint32_t *to = w.vector(i.results[0]);
  for_lanes(w.exec(), [&](int lane) {
    to[lane] = placed<part>(w, to[lane], static_cast<uint32_t>(static_cast<int32_t>(loaded[lane])));
  });
}

template <unsigned words>
void store_words(Wave &w, const Instruction &i) {
  const uint32_t *from = w.vectors(i.sources[1], words);
  for_lanes(w.exec(), [&](int lane) {
    unsigned reached = 0;
    if (uint8_t *to = locate_words(w, i, lane, words, true, &reached)) {
      for (unsigned k = 0; k < reached; ++k) {
        std::memcpy(to + 4 * k, &from[k * static_cast<unsigned>(w.lanes) + static_cast<unsigned>(lane)], 4);
      }
    }
  });
}

template <class T, unsigned shift>
void store_small(Wave &w, const Instruction &i) {
  const uint32_t *from = w.vector(i.sources[1]);
  for_lanes(w.exec(), [&](int lane) {
    if (uint8_t *to = locate(w, i, lane, sizeof(T), true)) {
      const auto value = static_cast<T>(from[lane] >> shift);
      std::memcpy(to, &value, sizeof value);
    }
  });
}

struct Named {
  const char *name;
  Handler handler;
};

constexpr Named accesses[] = {
    {"load_dword", load_words<1>},
    {"load_b32", load_words<1>},
    {"load_dwordx2", load_words<2>},
    {"load_b64", load_words<2>},
    {"load_dwordx3", load_words<3>},
    {"load_b96", load_words<3>},
    {"load_dwordx4", load_words<4>},
    {"load_b128", load_words<4>},
    {"load_ubyte", load_small<uint8_t, Part::whole>},
    {"load_u8", load_small<uint8_t, Part::whole>},
    {"load_sbyte", load_small<int8_t, Part::whole>},
    {"load_i8", load_small<int8_t, Part::whole>},
    {"load_ushort", load_small<uint16_t, Part::whole>},
    {"load_u16", load_small<uint16_t, Part::whole>},
    {"load_sshort", load_small<int16_t, Part::whole>},
    {"load_i16", load_small<int16_t, Part::whole>},
    {"load_ubyte_d16", load_small<uint8_t, Part::low>},
    {"load_d16_u8", load_small<uint8_t, Part::low>},
    {"load_ubyte_d16_hi", load_small<uint8_t, Part::high>},
    {"load_d16_hi_u8", load_small<uint8_t, Part::high>},
    {"load_sbyte_d16", load_small<int8_t, Part::low>},
    {"load_d16_i8", load_small<int8_t, Part::low>},
    {"load_sbyte_d16_hi", load_small<int8_t, Part::high>},
    {"load_d16_hi_i8", load_small<int8_t, Part::high>},
    {"load_short_d16", load_small<uint16_t, Part::low>},
    {"load_d16_b16", load_small<uint16_t, Part::low>},
    {"load_short_d16_hi", load_small<uint16_t, Part::high>},
    {"load_d16_hi_b16", load_small<uint16_t, Part::high>},
    {"store_dword", store_words<1>},
    {"store_b32", store_words<1>},
    {"store_dwordx2", store_words<2>},
    {"store_b64", store_words<2>},
    {"store_dwordx3", store_words<3>},
    {"store_b96", store_words<3>},
    {"store_dwordx4", store_words<4>},
    {"store_b128", store_words<4>},
    {"store_byte", store_small<uint8_t, 0>},
    {"store_b8", store_small<uint8_t, 0>},
    {"store_byte_d16_hi", store_small<uint8_t, 16>},
    {"store_d16_hi_b8", store_small<uint8_t, 16>},
    {"store_short", store_small<uint16_t, 0>},
    {"store_b16", store_small<uint16_t, 0>},
    {"store_short_d16_hi", store_small<uint16_t, 16>},
    {"store_d16_hi_b16", store_small<uint16_t, 16>},
};

}  // namespace

void add_memory(Handlers &handlers) {
  for (const char *prefix : {"flat_", "global_", "scratch_", "buffer_"}) {
    for (const Named &access : accesses) {
      handlers.add(std::string(prefix) + access.name, access.handler);
    }
  }
  for (const std::string prefix : {"global_load_lds_", "scratch_load_lds_"}) {
    handlers.add(prefix + "dword", load_words<1>);
    handlers.add(prefix + "dwordx3", load_words<3>);
    handlers.add(prefix + "dwordx4", load_words<4>);
    handlers.add(prefix + "ubyte", load_small<uint8_t, Part::whole>);
    handlers.add(prefix + "sbyte", load_small<int8_t, Part::whole>);
    handlers.add(prefix + "ushort", load_small<uint16_t, Part::whole>);
    handlers.add(prefix + "sshort", load_small<int16_t, Part::whole>);
  }
  // One memory and no caches: nothing to write back or to forget.
  for (const char *name : {"global_inv", "global_wb", "global_wbinv", "buffer_wbl2", "buffer_inv", "buffer_wbinvl1",
                           "buffer_wbinvl1_vol", "buffer_invl2", "buffer_gl0_inv", "buffer_gl1_inv"}) {
    handlers.add(name, [](Wave &, const Instruction &) {});
  }
}

}  // namespace rocpy_host::amdgpu
