// SPDX-License-Identifier: MIT
// What a function of a module is, for the rows that ask about it, and its launches as work that may be done again.
#pragma once

#include "code_object.hpp"
#include "types_programs.h"

#include <functional>

namespace rocpy_host {

hipError_t kernel_of(hipFunction_t function, amdgpu::Kernel *kernel);

// The kernel that a host symbol stands for: hipErrorInvalidDeviceFunction if it stands for none.
hipError_t kernel_at_symbol(const void *host, hipFunction_t *function);

// The launch of a kernel, with its arguments as they are now.
hipError_t work_of_kernel(hipFunction_t function, const dim3 &grid, const dim3 &block, unsigned shared_bytes,
                          void **params, void **extra, std::function<void()> *work);

}  // namespace rocpy_host
