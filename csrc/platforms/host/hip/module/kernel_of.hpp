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

// Makes a kernel the one that is to be launched.
hipError_t find_kernel(hipFunction_t function, amdgpu::Launch *launch);

// The kernel that a host symbol stands for on a device: hipErrorInvalidDeviceFunction if it stands for none.
hipError_t kernel_at_symbol(const void *host, int device, hipFunction_t *function);

// Whose kernel a launch takes: as in AMD's runtime its stream's device's.
int device_of_launch(hipStream_t handle);

// Blocks that a multiprocessor holds at a time.
hipError_t occupancy_of(const amdgpu::Kernel &kernel, int block_size, size_t dynamic_bytes, int *blocks);

// A launch in numbers of blocks and threads.
struct Shape {
  dim3 grid, block;
  size_t shared_bytes;
};

// What a call answers if the grid, the block or the shared memory cannot be: AMD's calls differ, and HIP's test
// hipLaunchErrorCodeMatrix lists them.
struct Refusals {
  hipError_t grid, block, shared;
};
constexpr Refusals module_refusals = {hipErrorInvalidValue, hipErrorInvalidValue, hipErrorInvalidValue};
constexpr Refusals thread_refusals = {hipErrorInvalidValue, hipErrorInvalidConfiguration, hipErrorInvalidValue};
constexpr Refusals symbol_refusals = {hipErrorInvalidConfiguration, hipErrorInvalidConfiguration, hipErrorInvalidValue};
constexpr Refusals cooperative_symbol_refusals = {hipErrorInvalidConfiguration, hipErrorInvalidConfiguration,
                                                  hipErrorCooperativeLaunchTooLarge};

// Whether a device can have blocks of that shape, and a grid of them.
hipError_t check_blocks(const Shape &shape, const Refusals &refusals);

// The stream of a launch, which is one of the current device's.
hipError_t find_stream(hipStream_t handle, Stream **stream);

// Launches on a stream.
hipError_t launch_blocks(hipFunction_t function, const Shape &shape, const Refusals &refusals, hipStream_t stream,
                         void **params, void **extra);

// A launch with its arguments as they are now; as work of a stream, which a capture takes; and as work that may be done
// more than once.
hipError_t make_launch(hipFunction_t function, const Shape &shape, void **params, void **extra,
                       std::shared_ptr<amdgpu::Launch> *launch, const Refusals &refusals = symbol_refusals);
hipError_t submit_launch(Stream *stream, const std::shared_ptr<amdgpu::Launch> &launch);
std::function<void()> work_of_launch(const std::shared_ptr<amdgpu::Launch> &launch);

// The parameters of a node that launches so, which own the arguments: hipKernelNodeParams at the address that is given.
std::shared_ptr<const void> parameters_of_launch(const amdgpu::Launch &launch, void *function);

}  // namespace rocpy_host
