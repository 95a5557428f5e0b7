// SPDX-License-Identifier: MIT
// What a function of a module is, for the rows that ask about it.
#pragma once

#include "code_object.hpp"
#include "types.h"

namespace rocpy_host {

hipError_t kernel_of(hipFunction_t function, amdgpu::Kernel *kernel);

}  // namespace rocpy_host
