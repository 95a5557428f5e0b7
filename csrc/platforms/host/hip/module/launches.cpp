// SPDX-License-Identifier: MIT
// HIP rows that launch kernels, on the emulator of amdgpu/ and in stream order, and launches as work.
#include "device_properties.hpp"
#include "emulator.hpp"
#include "graph.hpp"
#include "hip_call.hpp"
#include "hip_event.hpp"
#include "hip_memory.hpp"
#include "kernel_of.hpp"
#include "runtime.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <limits>
#include <memory>

namespace rocpy_host {

namespace {

using amdgpu::Launch;

using Axes = std::array<unsigned, 3>;
Axes axes_of(const dim3 &extents) { return {extents.x, extents.y, extents.z}; }

bool is_explicit(const amdgpu::Argument &argument) { return argument.kind.compare(0, 7, "hidden_") != 0; }

// What stands before each entry of `extra`.
void *const extra_pointer = reinterpret_cast<void *>(1), *const extra_size = reinterpret_cast<void *>(2),
            *const extra_end = reinterpret_cast<void *>(3);

// The arguments as the bytes that the kernel reads. As in AMD's runtime `extra` has one form, what is left out of the
// bytes is zero, and what they have beyond the arguments is not read.
hipError_t take_bytes(Launch *launch, void *const *extra) {
  if (extra[0] != extra_pointer || extra[2] != extra_size || extra[4] != extra_end || extra[3] == nullptr) {
    return hipErrorInvalidValue;
  }
  const amdgpu::Kernel &kernel = *launch->kernel;
  const auto *from = static_cast<const uint8_t *>(extra[1]);
  const size_t bytes = *static_cast<const size_t *>(extra[3]);
  if (kernel.has_metadata) {
    const bool has_arguments = std::any_of(kernel.arguments.begin(), kernel.arguments.end(), is_explicit);
    if (has_arguments && (from == nullptr || bytes == 0)) {
      return hipErrorInvalidValue;
    }
    if (!has_arguments && bytes != 0) {
      return hipErrorLaunchOutOfResources;
    }
  } else if (from == nullptr && bytes != 0) {
    return hipErrorInvalidValue;
  }
  launch->arguments.assign(from, from + std::min<size_t>(bytes, kernel.argument_bytes));
  return hipSuccess;
}

// The arguments of a launch: by pointer, or as bytes.
hipError_t take_arguments(Launch *launch, void **params, void **extra) {
  if (extra != nullptr) {
    return params != nullptr ? hipErrorInvalidValue : take_bytes(launch, extra);
  }
  std::string why;
  const auto &arguments = launch->kernel->arguments;
  const auto count = static_cast<size_t>(std::count_if(arguments.begin(), arguments.end(), is_explicit));
  if (count != 0 && params == nullptr) {
    return hipErrorInvalidValue;
  }
  return amdgpu::pack_arguments(launch, params, nullptr, count, &why) ? hipSuccess : hipErrorInvalidValue;
}

// A kernel may touch what HIP gave out and, where the platform shares it, any memory of the process.
void open_memory(amdgpu::Memory *memory) {
  auto process = std::make_shared<amdgpu::ProcessMemory>();
  memory->set_lookup([process](uintptr_t address, bool writes, amdgpu::Range *out) {
    Allocation allocation;
    if (find_allocation(reinterpret_cast<const void *>(address), &allocation)) {
      *out = {allocation.base, allocation.base + allocation.bytes, true};
      return true;
    }
    return is_host_memory_shared() && process->find(address, writes, out);
  });
}

hipError_t run_launch(Launch &launch) {
  const amdgpu::Report report = amdgpu::run(launch);
  if (report.outcome != amdgpu::Outcome::done) {
    std::fprintf(stderr, "rocpy host platform: %s\n", report.message.c_str());
  }
  return amdgpu::status_of(report.outcome);
}

// A grid of blocks or of threads.
hipError_t check_shape(const Shape &shape, const Refusals &refusals) {
  const hipDeviceProp_t &device = common_properties();
  const auto most_threads = static_cast<unsigned>(device.maxThreadsPerBlock);
  uint64_t threads = 1;
  for (const unsigned extent : axes_of(shape.block)) {
    threads *= std::min(extent, most_threads + 1);
  }
  if (threads == 0 || threads > most_threads) {
    return refusals.block;
  }
  if (shape.shared_bytes > device.sharedMemPerBlock) {
    return refusals.shared;
  }
  const Axes grid = axes_of(shape.grid);
  return std::find(grid.begin(), grid.end(), 0u) != grid.end() ? refusals.grid : hipSuccess;
}

bool is_within(const Axes &grid, const int (&most)[3]) {
  return std::equal(grid.begin(), grid.end(), most,
                    [](unsigned extent, int limit) { return extent <= static_cast<unsigned>(limit); });
}

hipError_t prepare(Launch *launch, hipFunction_t function, const Shape &shape, void **params, void **extra) {
  if (const hipError_t status = find_kernel(function, launch)) {
    return status;
  }
  const Axes grid = axes_of(shape.grid), block = axes_of(shape.block);
  std::copy_n(grid.begin(), 3, launch->grid);
  std::copy_n(block.begin(), 3, launch->block);
  launch->dynamic_shared = static_cast<uint32_t>(shape.shared_bytes);
  std::string why;
  if (const hipError_t status = amdgpu::check_launch(*launch, &why)) {
    return status;
  }
  return take_arguments(launch, params, extra);
}

// The grid counts threads. Its last blocks may be smaller, unless the compiler relied on blocks of one size.
hipError_t prepare_threads(Launch *launch, hipFunction_t function, const Shape &shape, void **params, void **extra) {
  hipError_t status = check_shape(shape, thread_refusals);
  if (status == hipSuccess) {
    status = prepare(launch, function, shape, params, extra);
  }
  if (status != hipSuccess) {
    return status;
  }
  bool is_partial = false;
  for (int k = 0; k < 3; ++k) {
    const unsigned threads = launch->grid[k];
    unsigned &block = launch->block[k], &remainder = launch->remainder[k];
    block = std::min(block, threads);
    remainder = threads % block;
    launch->grid[k] = threads / block + (remainder != 0 ? 1 : 0);
    is_partial |= remainder != 0;
  }
  return is_partial && launch->kernel->has_uniform_blocks ? hipErrorInvalidValue : hipSuccess;
}

hipError_t launch_threads(hipFunction_t function, const Shape &shape, hipStream_t handle, void **params, void **extra,
                          hipEvent_t before, hipEvent_t after) {
  Stream *stream = nullptr;
  const auto launch = std::make_shared<Launch>();
  hipError_t status = find_stream(handle, &stream);
  if (status == hipSuccess) {
    status = prepare_threads(launch.get(), function, shape, params, extra);
  }
  if (status != hipSuccess) {
    return status;
  }
  for (const hipEvent_t event : {before, after}) {
    if (event != nullptr && !can_record(event, stream)) {
      return hipErrorInvalidHandle;
    }
  }
  if (before != nullptr) {
    status = record_event(before, stream);
  }
  if (status == hipSuccess) {
    status = submit_launch(stream, launch);
  }
  return status != hipSuccess || after == nullptr ? status : record_event(after, stream);
}

}  // namespace

hipError_t check_blocks(const Shape &shape, const Refusals &refusals) {
  if (const hipError_t status = check_shape(shape, refusals)) {
    return status;
  }
  const Axes grid = axes_of(shape.grid), block = axes_of(shape.block);
  const bool is_countable = std::equal(grid.begin(), grid.end(), block.begin(), [](unsigned blocks, unsigned threads) {
    return blocks <= std::numeric_limits<uint32_t>::max() / threads;
  });
  return is_countable ? hipSuccess : refusals.grid;
}

// A captured launch becomes a node, whatever device is current.
hipError_t find_stream(hipStream_t handle, Stream **stream) {
  *stream = resolve(handle);
  if (*stream == nullptr) {
    return hipErrorContextIsDestroyed;
  }
  if ((*stream)->device == current_device()) {
    return hipSuccess;
  }
  std::lock_guard<std::mutex> lock(runtime().mutex);
  return capture_status(*stream) == hipStreamCaptureStatusNone ? hipErrorInvalidHandle : hipSuccess;
}

hipError_t launch_blocks(hipFunction_t function, const Shape &shape, const Refusals &refusals, hipStream_t handle,
                         void **params, void **extra) {
  Stream *stream = nullptr;
  std::shared_ptr<Launch> launch;
  hipError_t status = find_stream(handle, &stream);
  if (status == hipSuccess && !is_within(axes_of(shape.grid), common_properties().maxGridSize)) {
    status = refusals.grid;
  }
  if (status == hipSuccess) {
    status = make_launch(function, shape, params, extra, &launch, refusals);
  }
  return status == hipSuccess ? submit_launch(stream, launch) : status;
}

hipError_t make_launch(hipFunction_t function, const Shape &shape, void **params, void **extra,
                       std::shared_ptr<Launch> *launch, const Refusals &refusals) {
  if (const hipError_t status = check_blocks(shape, refusals)) {
    return status;
  }
  *launch = std::make_shared<Launch>();
  return prepare(launch->get(), function, shape, params, extra);
}

std::function<void()> work_of_launch(const std::shared_ptr<Launch> &launch) {
  open_memory(&launch->memory);
  return [launch] {
    Launch fresh = *launch;  // a graph may run it again
    run_launch(fresh);
  };
}

hipError_t submit_launch(Stream *stream, const std::shared_ptr<Launch> &launch) {
  const auto work = work_of_launch(launch);
  const auto parameters = [&] { return parameters_of_launch(*launch, launch->function); };
  if (const auto answer = offer_to_capture(stream, hipGraphNodeTypeKernel, work, parameters)) {
    return *answer;
  }
  if (enter_inline(stream)) {
    const hipError_t status = run_launch(*launch);
    leave_inline(stream);
    return status;
  }
  enqueue_function(stream, work);
  return hipSuccess;
}

std::shared_ptr<const void> parameters_of_launch(const Launch &launch, void *function) {
  struct Parameters {
    hipKernelNodeParams node_params = {};
    std::vector<uint8_t> bytes;
    std::vector<void *> arguments;
    size_t size = 0;
    void *extra[5] = {};
  };
  const auto all = std::make_shared<Parameters>();
  all->bytes = launch.arguments;
  all->size = launch.arguments.size();
  all->bytes.resize(std::max<size_t>(all->size, launch.kernel->argument_bytes));
  for (const amdgpu::Argument &argument : launch.kernel->arguments) {
    if (is_explicit(argument)) {
      all->arguments.push_back(all->bytes.data() + argument.offset);
    }
  }
  hipKernelNodeParams &node_params = all->node_params;
  node_params.func = function;
  node_params.gridDim = {launch.grid[0], launch.grid[1], launch.grid[2]};
  node_params.blockDim = {launch.block[0], launch.block[1], launch.block[2]};
  node_params.sharedMemBytes = launch.dynamic_shared;
  if (launch.kernel->has_metadata) {
    node_params.kernelParams = all->arguments.data();
  } else {
    void *const extra[5] = {extra_pointer, all->bytes.data(), extra_size, &all->size, extra_end};
    std::copy_n(extra, 5, all->extra);
    node_params.extra = all->extra;
  }
  return {all, &all->node_params};
}

}  // namespace rocpy_host

using namespace rocpy_host;

hipError_t rocpy_host_hipModuleLaunchKernel(hipFunction_t f, unsigned int grid_x, unsigned int grid_y,
                                            unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                                            unsigned int block_z, unsigned int shared_bytes, hipStream_t stream,
                                            void **params, void **extra) {
  return hip_call([=] {
    const Shape shape = {{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes};
    return launch_blocks(f, shape, module_refusals, stream, params, extra);
  });
}

// Its flag permits any order, which the stream's own is one of.
hipError_t rocpy_host_hipExtModuleLaunchKernel(hipFunction_t f, unsigned int threads_x, unsigned int threads_y,
                                               unsigned int threads_z, unsigned int block_x, unsigned int block_y,
                                               unsigned int block_z, size_t shared_bytes, hipStream_t stream,
                                               void **params, void **extra, hipEvent_t before, hipEvent_t after,
                                               unsigned int) {
  return hip_call([=] {
    const Shape shape = {{threads_x, threads_y, threads_z}, {block_x, block_y, block_z}, shared_bytes};
    return launch_threads(f, shape, stream, params, extra, before, after);
  });
}
