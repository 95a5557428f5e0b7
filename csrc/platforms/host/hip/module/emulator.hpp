// SPDX-License-Identifier: MIT
// The emulator as the rest of the platform uses it: arguments placed, a launch run, its outcome as HIP's status.
#pragma once

#include "launch.hpp"
#include "types.h"

namespace rocpy_host::amdgpu {

// Puts `count` arguments where the kernel expects them: at the offsets of its metadata or, without, one after the other
// at multiples of their sizes. `bytes` null: as many as the metadata says. False, with the reason: they do not fit.
bool pack_arguments(Launch *launch, const void *const *arguments, const size_t *bytes, size_t count, std::string *why);

// Whether the kernel can be launched so: extents, shared memory.
hipError_t check_launch(const Launch &launch, std::string *why);

hipError_t status_of(Outcome outcome);
hipError_t status_of(LoadError error);

}  // namespace rocpy_host::amdgpu
