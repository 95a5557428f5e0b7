// SPDX-License-Identifier: MIT
// Where the lanes of a vector memory instruction read or write: global and shared memory, a thread's own, buffers.
#pragma once

#include "wave.hpp"

namespace rocpy_host::amdgpu {

// The address of a lane's access in the process, checked. Null: outside a buffer, where reads give zero and writes go
// nowhere.
uint8_t *locate(Wave &wave, const Instruction &instruction, int lane, unsigned bytes, bool writes);

// The same for an access of several words. A buffer checks the range of each word by itself: `*reached` of them, the
// first ones, are inside.
uint8_t *locate_words(Wave &wave, const Instruction &instruction, int lane, unsigned words, bool writes,
                      unsigned *reached);

// Where in its register a load of 8 or 16 bits puts them.
enum class Part { whole, low, high };

// The register after such a load. With error correction memory is read into whole registers: the other half becomes
// zero ("unused bits are set to zero", CDNA 3 ISA, 16-bit memory operations).
template <Part part>
uint32_t placed(const Wave &wave, uint32_t before, uint32_t loaded) {
  const uint32_t preserved = wave.has_error_correction ? 0 : before;
  return part == Part::whole ? loaded
         : part == Part::low ? (preserved & 0xffff0000) | (loaded & 0xffff)
                             : (preserved & 0xffff) | loaded << 16;
}

uint8_t *shared_address(Wave &wave, uint64_t offset, unsigned bytes, bool writes);

}  // namespace rocpy_host::amdgpu
