// SPDX-License-Identifier: MIT
// Addresses of vector memory instructions.
#include "address.hpp"

#include <cinttypes>

namespace rocpy_host::amdgpu {

namespace {

uint8_t *own_address(Wave &w, int lane, int64_t offset, unsigned bytes, bool writes) {
  const int64_t size = w.group->private_bytes;
  if (offset < 0 || offset + bytes > size) {
    fault(Fault::Kind::memory, "%s of %u bytes at byte %" PRId64 " of the %" PRId64 " that a thread has of its own",
          writes ? "write" : "read", bytes, offset, size);
  }
  return w.own_memory.data() + static_cast<size_t>(lane) * static_cast<size_t>(size) + offset;
}

uint64_t vector_address(Wave &w, const Instruction &i, int lane) {
  const uint32_t *low = w.vectors(i.sources[0], 2);
  return low[lane] | static_cast<uint64_t>(low[lane + w.lanes]) << 32;
}

uint8_t *flat_address(Wave &w, const Instruction &i, int lane, unsigned bytes, bool writes) {
  const uint64_t address = i.scalar_base != code_none
                               ? w.read64(i.scalar_base, 0) + w.vector(i.sources[0])[lane] +
                                     static_cast<uint64_t>(static_cast<int64_t>(i.offset))
                               : vector_address(w, i, lane) + static_cast<uint64_t>(static_cast<int64_t>(i.offset));
  const auto high = static_cast<uint32_t>(address >> 32);
  if (high == shared_aperture) {
    return shared_address(w, static_cast<uint32_t>(address), bytes, writes);
  }
  if (high == private_aperture) {
    return own_address(w, lane, static_cast<uint32_t>(address), bytes, writes);
  }
  return w.memory->access(address, bytes, writes);
}

uint8_t *scratch_address(Wave &w, const Instruction &i, int lane, unsigned bytes, bool writes) {
  int64_t offset = i.offset;
  if (i.is_scratch_vector) {
    offset += w.vector(i.sources[0])[lane];
  }
  if (i.scalar_base != code_none) {
    offset += static_cast<int32_t>(w.read32(i.scalar_base, 0));
  }
  return own_address(w, lane, offset, bytes, writes);
}

// A buffer resource, and where in it a lane's access begins.
struct BufferAccess {
  uint64_t base, records;
  uint32_t stride, index, offset, scalar_offset;  // offset: of the lane and of the instruction, 32 bits together
  bool is_indexed;
  unsigned bounds;  // OOB_SELECT of RDNA
};

// Whether the bytes up to `end`, counted from the access's offset, are inside. CDNA has no field that says how: an
// index is compared with the number of records, and without one bytes are, the scalar offset among them. RDNA's
// modes: 0 index and offset, 1 index, 2 none unless the buffer is empty, 3 bytes.
bool is_inside(const Wave &w, const BufferAccess &access, uint64_t end) {
  const bool index_inside = access.index < access.records;
  const bool bytes_inside = access.offset + end + access.scalar_offset <= access.records;
  if (w.gfx9()) {
    return access.is_indexed && access.stride != 0 ? index_inside : bytes_inside;
  }
  switch (access.bounds) {
    case 0:
      return index_inside && access.offset + end <= access.stride;
    case 1:
      return index_inside;
    case 2:
      return access.records != 0;
    default:
      return bytes_inside;
  }
}

// `units` of `unit` bytes each, whose ranges are checked one by one; null if the first is outside.
uint8_t *buffer_address(Wave &w, const Instruction &i, int lane, unsigned unit, unsigned units, bool writes,
                        unsigned *reached) {
  const unsigned base = i.scalar_base;
  const uint32_t words[4] = {w.read32(base, 0), w.read32(base + 1, 0), w.read32(base + 2, 0), w.read32(base + 3, 0)};
  const uint32_t *vector =
      i.offset_enable || i.index_enable ? w.vectors(i.sources[0], i.offset_enable && i.index_enable ? 2 : 1) : nullptr;
  BufferAccess access{};
  access.index = i.index_enable ? vector[lane] : 0;
  access.offset =
      (i.offset_enable ? vector[lane + (i.index_enable ? w.lanes : 0)] : 0) + static_cast<uint32_t>(i.offset);
  access.scalar_offset = w.read32(i.scalar_offset, 0);
  const bool adds_lane = (words[3] >> 23 & 1) != 0;
  if (adds_lane && w.architecture == Architecture::gfx90a) {
    // A thread's own memory, interleaved by lane: the scalar part counts the bytes of all lanes together.
    *reached = units;
    return own_address(w, lane,
                       static_cast<int64_t>(access.offset) + access.scalar_offset / static_cast<unsigned>(w.lanes),
                       unit * units, writes);
  }
  const bool is_swizzled = w.gfx9() ? words[1] >> 31 != 0 : words[1] >> 30 != 0;
  if (is_swizzled || adds_lane) {
    fault(Fault::Kind::instruction, "a swizzled buffer is not emulated");
  }
  access.base = words[0] | static_cast<uint64_t>(words[1] & 0xffff) << 32;
  access.stride = words[1] >> 16 & 0x3fff;
  access.records = words[2];
  access.is_indexed = i.index_enable;
  access.bounds = words[3] >> 28 & 3;
  for (*reached = 0; *reached < units && is_inside(w, access, (*reached + 1ull) * unit); ++*reached) {
  }
  if (*reached == 0) {
    return nullptr;
  }
  const uint64_t address =
      access.base + access.scalar_offset + access.offset + static_cast<uint64_t>(access.index) * access.stride;
  return w.memory->access(address, *reached * unit, writes);
}

}  // namespace

uint8_t *shared_address(Wave &w, uint64_t offset, unsigned bytes, bool writes) {
  const size_t size = w.group->shared.size();
  if (offset + bytes > size) {
    fault(Fault::Kind::memory, "%s of %u bytes at byte %" PRIu64 " of the group's shared memory, which has %zu",
          writes ? "write" : "read", bytes, offset, size);
  }
  return w.group->shared.data() + offset;
}

uint8_t *locate(Wave &w, const Instruction &i, int lane, unsigned bytes, bool writes) {
  switch (i.opcode->encoding) {
    case Encoding::GLOBAL:
    case Encoding::FLAT:
      return flat_address(w, i, lane, bytes, writes);
    case Encoding::SCRATCH:
      return scratch_address(w, i, lane, bytes, writes);
    default: {
      unsigned reached = 0;
      return buffer_address(w, i, lane, bytes, 1, writes, &reached);
    }
  }
}

uint8_t *locate_words(Wave &w, const Instruction &i, int lane, unsigned words, bool writes, unsigned *reached) {
  if (i.opcode->encoding == Encoding::MUBUF) {
    return buffer_address(w, i, lane, 4, words, writes, reached);
  }
  *reached = words;
  return locate(w, i, lane, 4 * words, writes);
}

}  // namespace rocpy_host::amdgpu
