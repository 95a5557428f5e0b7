// SPDX-License-Identifier: MIT
// Where the lanes of a vector memory instruction read or write: global and shared memory, a thread's own, buffers.
#pragma once

#include "handlers.hpp"
#include "wave.hpp"

namespace rocpy_host::amdgpu {

// The address of a lane's access in the process, checked. Null: outside a buffer, where reads give zero and writes go
// nowhere.
uint8_t *locate(Wave &wave, const Instruction &instruction, int lane, unsigned bytes, bool writes);

uint8_t *shared_address(Wave &wave, uint64_t offset, unsigned bytes, bool writes);

}  // namespace rocpy_host::amdgpu
