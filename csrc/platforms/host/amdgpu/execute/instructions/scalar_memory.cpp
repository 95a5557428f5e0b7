// SPDX-License-Identifier: MIT
// Scalar loads, from memory by address and from buffers.
#include "handlers.hpp"
#include "wave.hpp"

namespace rocpy_host::amdgpu {

namespace {

int64_t offset_of(const Wave &w, const Instruction &i) {
  return i.offset + (i.scalar_offset != code_none ? static_cast<int64_t>(w.read32(i.scalar_offset, 0)) : 0);
}

void load_words(Wave &w, const Instruction &i, uint64_t base, uint64_t limit) {
  const unsigned words = static_cast<unsigned>(bits_of(i.opcode->results[0])) / 32;
  const int64_t offset = offset_of(w, i) & ~static_cast<int64_t>(3);
  uint32_t loaded[16] = {};
  for (unsigned k = 0; k < words; ++k) {
    if (static_cast<uint64_t>(offset) + 4 * (k + 1) <= limit) {
      std::memcpy(&loaded[k], w.memory->access(base + static_cast<uint64_t>(offset) + 4 * k, 4, false), 4);
    }
  }
  for (unsigned k = 0; k < words; ++k) {
    w.write32(i.results[0] + k, loaded[k]);
  }
}

void load(Wave &w, const Instruction &i) { load_words(w, i, w.read64(i.scalar_base, 0), ~0ull); }

void load_buffer(Wave &w, const Instruction &i) {
  const unsigned base = i.scalar_base;
  const uint32_t high = w.read32(base + 1, 0), stride = high >> 16 & 0x3fff, records = w.read32(base + 2, 0);
  const uint64_t address = w.read32(base, 0) | static_cast<uint64_t>(high & 0xffff) << 32;
  load_words(w, i, address, stride == 0 ? records : static_cast<uint64_t>(stride) * records);
}

template <class T>
void load_small(Wave &w, const Instruction &i) {
  T value;
  const uint64_t address = w.read64(i.scalar_base, 0) + static_cast<uint64_t>(offset_of(w, i));
  std::memcpy(&value, w.memory->access(address, sizeof value, false), sizeof value);
  w.write32(i.results[0], static_cast<uint32_t>(static_cast<int32_t>(value)));
}

}  // namespace

void add_scalar_memory(Handlers &handlers) {
  for (const char *suffix :
       {"dword", "dwordx2", "dwordx4", "dwordx8", "dwordx16", "b32", "b64", "b96", "b128", "b256", "b512"}) {
    handlers.add(std::string("s_load_") + suffix, load);
    handlers.add(std::string("s_buffer_load_") + suffix, load_buffer);
  }
  handlers.add("s_load_u8", load_small<uint8_t>);
  handlers.add("s_load_i8", load_small<int8_t>);
  handlers.add("s_load_u16", load_small<uint16_t>);
  handlers.add("s_load_i16", load_small<int16_t>);
  for (const char *name : {"s_dcache_inv", "s_dcache_wb", "s_gl1_inv", "s_dcache_inv_vol", "s_dcache_wb_vol"}) {
    handlers.add(name, [](Wave &, const Instruction &) {});
  }
  // Time as the number of accesses so far: it only grows, and a run gives the same twice.
  for (const char *name : {"s_memtime", "s_memrealtime"}) {
    handlers.add(name, [](Wave &w, const Instruction &i) { w.write64(i.results[0], w.memory->accesses); });
  }
}

}  // namespace rocpy_host::amdgpu
