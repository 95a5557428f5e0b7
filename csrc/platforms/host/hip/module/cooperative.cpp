// SPDX-License-Identifier: MIT
// HIP rows that launch kernels whose blocks run at the same time: on one device, or as one grid on each of several.
#include "device_properties.hpp"
#include "graph.hpp"
#include "hip_call.hpp"
#include "kernel_of.hpp"

#include <vector>

namespace rocpy_host {

namespace {

using amdgpu::Launch;

uint64_t volume(const dim3 &extents) { return uint64_t{extents.x} * extents.y * extents.z; }

// Whether all blocks of the launch fit on the device at the same time. Larger blocks than the kernel was compiled for
// are refused where it is launched.
hipError_t check_capacity(hipFunction_t function, const Shape &shape) {
  amdgpu::Kernel kernel;
  int blocks = 0;
  const uint64_t threads = volume(shape.block);
  hipError_t status = kernel_of(function, &kernel);
  if (status == hipSuccess && threads <= kernel.most_threads) {
    status = occupancy_of(kernel, static_cast<int>(threads), shape.shared_bytes, &blocks);
    const uint64_t capacity =
        static_cast<uint64_t>(blocks) * static_cast<uint64_t>(common_properties().multiProcessorCount);
    return status == hipSuccess && volume(shape.grid) > capacity ? hipErrorCooperativeLaunchTooLarge : status;
  }
  return status;
}

hipError_t make_cooperative(hipFunction_t function, const Shape &shape, const Refusals &refusals, void **params,
                            std::shared_ptr<Launch> *launch) {
  hipError_t status = check_blocks(shape, refusals);
  if (status == hipSuccess) {
    status = check_capacity(function, shape);
  }
  if (status == hipSuccess) {
    status = make_launch(function, shape, params, nullptr, launch);
  }
  if (status == hipSuccess) {
    (*launch)->is_cooperative = true;
  }
  return status;
}

hipError_t launch_on_one(hipFunction_t function, const Shape &shape, const Refusals &refusals, hipStream_t handle,
                         void **params) {
  Stream *stream = nullptr;
  std::shared_ptr<Launch> launch;
  hipError_t status = find_stream(handle, &stream);
  if (status == hipSuccess) {
    status = make_cooperative(function, shape, refusals, params, &launch);
  }
  return status == hipSuccess ? submit_launch(stream, launch) : status;
}

// A launch on one of several devices.
struct Part {
  hipFunction_t function;
  Shape shape;
  hipStream_t stream;
  void **params;
};

bool is_same(const Shape &one, const Shape &other) {
  const auto is_equal = [](const dim3 &a, const dim3 &b) { return a.x == b.x && a.y == b.y && a.z == b.z; };
  return is_equal(one.grid, other.grid) && is_equal(one.block, other.block) && one.shared_bytes == other.shared_bytes;
}

// The stream of each part: of a device of its own, created, and not captured. As in AMD's runtime the parts have one
// shape, and the k-th is for device k.
hipError_t find_streams(const std::vector<Part> &parts, std::vector<Stream *> *streams) {
  uint64_t devices = 0;
  for (const Part &part : parts) {
    if (part.stream == nullptr || part.stream == hipStreamLegacy) {
      return hipErrorInvalidHandle;
    }
    Stream *stream = resolve(part.stream);
    if (stream == nullptr) {
      return hipErrorInvalidValue;
    }
    const uint64_t bit = uint64_t{1} << stream->device;
    if ((devices & bit) != 0) {
      return hipErrorInvalidDevice;
    }
    devices |= bit;
    if (const auto answer = capture_forbids_work(stream)) {
      return *answer;
    }
    streams->push_back(stream);
  }
  for (size_t k = 0; k < parts.size(); ++k) {
    if (!is_same(parts[k].shape, parts[0].shape)) {
      return hipErrorInvalidValue;
    }
    if ((*streams)[k]->device != static_cast<int>(k)) {
      return hipErrorInvalidHandle;
    }
  }
  return hipSuccess;
}

// What the streams do next follows what each of them had to do by now.
void join(const std::vector<Stream *> &streams) {
  std::vector<Point> reached;
  reached.reserve(streams.size());
  for (Stream *stream : streams) {
    reached.push_back({stream, enqueue_function_item(stream, [] {}, ItemKind::mark, nullptr)});
  }
  for (Stream *stream : streams) {
    for (const Point &point : reached) {
      if (point.stream != stream) {
        enqueue_function_item(stream, [] {}, ItemKind::mark, &point);
      }
    }
  }
}

// Flags: 1, the launches do not wait for each other's streams before; 2, nor do the streams afterwards.
hipError_t launch_on_several(const std::vector<Part> &parts, unsigned flags, bool is_cooperative) {
  constexpr unsigned no_join_before = 1, no_join_after = 2;
  if ((flags & ~(no_join_before | no_join_after)) != 0 || parts.empty()) {
    return hipErrorInvalidValue;
  }
  std::vector<Stream *> streams;
  if (const hipError_t status = find_streams(parts, &streams)) {
    return status;
  }
  const auto barrier = is_cooperative ? std::make_shared<amdgpu::GridBarrier>() : nullptr;
  std::vector<std::shared_ptr<Launch>> launches(parts.size());
  uint64_t threads = 0;
  for (size_t k = 0; k < parts.size(); ++k) {
    const Part &part = parts[k];
    const hipError_t status =
        is_cooperative ? make_cooperative(part.function, part.shape, symbol_refusals, part.params, &launches[k])
                       : make_launch(part.function, part.shape, part.params, nullptr, &launches[k]);
    if (status != hipSuccess) {
      return status;
    }
    amdgpu::GridInformation &grid = launches[k]->grid_information;
    grid.grid = static_cast<uint32_t>(k);
    grid.grids = static_cast<uint32_t>(parts.size());
    grid.threads_before = threads;
    threads += volume(part.shape.grid) * volume(part.shape.block);
    launches[k]->grid_barrier = barrier;
  }
  if ((flags & no_join_before) == 0) {
    join(streams);
  }
  for (size_t k = 0; k < parts.size(); ++k) {
    launches[k]->grid_information.threads = threads;
    enqueue_function(streams[k],
                     work_of_launch(launches[k]));  // never in the caller, where the first would wait for ever
  }
  if ((flags & no_join_after) == 0) {
    join(streams);
  }
  return hipSuccess;
}

hipError_t launch_on_several(const hipLaunchParams *launches, int count, unsigned flags, bool is_cooperative) {
  return hip_call([=] {
    if (launches == nullptr || count < 0) {
      return hipErrorInvalidValue;
    }
    if (count > runtime().device_count) {
      return hipErrorInvalidDevice;
    }
    std::vector<Part> parts;
    for (int k = 0; k < count; ++k) {
      const hipLaunchParams &one = launches[k];
      hipFunction_t function = nullptr;
      if (one.func != launches[0].func) {
        return hipErrorInvalidValue;
      }
      if (const hipError_t status = kernel_at_symbol(one.func, k, &function)) {
        return status;
      }
      parts.push_back({function, {one.gridDim, one.blockDim, one.sharedMem}, one.stream, one.args});
    }
    return launch_on_several(parts, flags, is_cooperative);
  });
}

}  // namespace

}  // namespace rocpy_host

using namespace rocpy_host;

hipError_t rocpy_host_hipLaunchCooperativeKernel(const void *host, dim3 grid, dim3 block, void **args,
                                                 unsigned int shared_bytes, hipStream_t stream) {
  return hip_call([=] {
    hipFunction_t function = nullptr;
    const hipError_t status = kernel_at_symbol(host, device_of_launch(stream), &function);
    return status != hipSuccess
               ? status
               : launch_on_one(function, {grid, block, shared_bytes}, cooperative_symbol_refusals, stream, args);
  });
}

hipError_t rocpy_host_hipModuleLaunchCooperativeKernel(hipFunction_t function, unsigned int grid_x, unsigned int grid_y,
                                                       unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                                                       unsigned int block_z, unsigned int shared_bytes,
                                                       hipStream_t stream, void **params) {
  return hip_call([=] {
    const Shape shape = {{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes};
    return launch_on_one(function, shape, module_refusals, stream, params);
  });
}

hipError_t rocpy_host_hipLaunchCooperativeKernelMultiDevice(hipLaunchParams *launches, int count, unsigned int flags) {
  return launch_on_several(launches, count, flags, true);
}

hipError_t rocpy_host_hipExtLaunchMultiKernelMultiDevice(hipLaunchParams *launches, int count, unsigned int flags) {
  return launch_on_several(launches, count, flags, false);
}

hipError_t rocpy_host_hipModuleLaunchCooperativeKernelMultiDevice(hipFunctionLaunchParams *launches, unsigned int count,
                                                                  unsigned int flags) {
  return hip_call([=] {
    if (launches == nullptr) {
      return hipErrorInvalidValue;
    }
    if (count > static_cast<unsigned>(runtime().device_count)) {
      return hipErrorInvalidDevice;
    }
    std::vector<Part> parts;
    for (unsigned k = 0; k < count; ++k) {
      const hipFunctionLaunchParams &one = launches[k];
      parts.push_back({one.function,
                       {{one.gridDimX, one.gridDimY, one.gridDimZ},
                        {one.blockDimX, one.blockDimY, one.blockDimZ},
                        one.sharedMemBytes},
                       one.hStream,
                       one.kernelParams});
    }
    return launch_on_several(parts, flags, true);
  });
}
