// SPDX-License-Identifier: MIT
// What a function of a module is, for the rows that ask about it, and its launches as work that may be done again.
#pragma once

#include "launch.hpp"
#include "queue.hpp"
#include "types_programs.h"

#include <functional>
#include <memory>

namespace rocpy_host {

hipError_t kernel_of(hipFunction_t function, amdgpu::Kernel *kernel);

// The kernel that a host symbol stands for: hipErrorInvalidDeviceFunction if it stands for none.
hipError_t kernel_at_symbol(const void *host, hipFunction_t *function);

// Blocks that a multiprocessor holds at a time.
hipError_t occupancy_of(const amdgpu::Kernel &kernel, int block_size, size_t dynamic_bytes, int *blocks);

// A launch in numbers of blocks and threads.
struct Shape {
  dim3 grid, block;
  unsigned shared_bytes;
};

// A launch with its arguments as they are now; as work of a stream, which a capture takes; and as work that may be done
// more than once.
hipError_t make_launch(hipFunction_t function, const Shape &shape, void **params, void **extra,
                       std::shared_ptr<amdgpu::Launch> *launch);
hipError_t submit_launch(Stream *stream, const std::shared_ptr<amdgpu::Launch> &launch);
std::function<void()> work_of_launch(const std::shared_ptr<amdgpu::Launch> &launch);

// The parameters of a node that launches so, which own the arguments: hipKernelNodeParams at the address that is given.
std::shared_ptr<const void> parameters_of_launch(const amdgpu::Launch &launch, void *function);

}  // namespace rocpy_host
