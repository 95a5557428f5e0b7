// SPDX-License-Identifier: MIT
// HIP rows about code objects: those for AMD GPUs are loaded and their kernels run on the emulator of amdgpu/, in
// stream order.
#include "bundle.hpp"
#include "device_properties.hpp"
#include "emulator.hpp"
#include "hip_call.hpp"
#include "hip_event.hpp"
#include "hip_memory.hpp"
#include "kernel_of.hpp"
#include "lazy.h"
#include "runtime.hpp"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <limits>
#include <memory>

namespace rocpy_host {

namespace {

using amdgpu::CodeObject;
using amdgpu::Kernel;
using amdgpu::Launch;

// A module, or a kernel of one: a kernel's entry keeps the code that its module has loaded.
struct Entry {
  std::atomic<uint64_t> handle{0};
  uint32_t slot = 0, generation = 0;
  std::shared_ptr<const CodeObject> code;
  const Kernel *kernel = nullptr;
  std::vector<Entry *> functions;  // of a module
};

using Modules = HandleTable<Entry, 'm'>;
using Functions = HandleTable<Entry, 'f'>;

Modules &modules() {
  static rocpy::Lazy<Modules> table;
  return table.get();
}

Functions &functions() {
  static rocpy::Lazy<Functions> table;
  return table.get();
}

bool starts_with(const unsigned char *image, const char *magic) {
  // Stops at the first byte that differs, and so does not read past a short image.
  for (; *magic != '\0'; ++magic, ++image) {
    if (*image != static_cast<unsigned char>(*magic)) {
      return false;
    }
  }
  return true;
}

// HIP is given no size: how much may be read at most, so that a file that is cut off is found out and not followed.
size_t readable_bytes(const void *image) {
  amdgpu::ProcessMemory memory;
  amdgpu::Range range;
  const auto address = reinterpret_cast<uintptr_t>(image);
  return memory.find(address, false, &range) ? range.end - address : 0;
}

// `size` bytes of a file, or 0: what may be read is to be found out.
hipError_t load(hipModule_t *module, const void *image, size_t size) {
  if (module == nullptr || image == nullptr) {
    return hipErrorInvalidValue;
  }
  *module = nullptr;
  const auto *bytes = static_cast<const unsigned char *>(image);
  const Card *card = presented_card();
  const std::string architecture = card != nullptr ? card->architecture : "";
  const size_t readable = size != 0 ? size : readable_bytes(image);
  if (is_bundle(image)) {
    const Unbundled bundle = unbundle(image, readable, architecture);
    if (bundle.code == nullptr) {
      std::fprintf(stderr, "rocpy host platform: a bundle of code objects is refused: %s\n", bundle.reason.c_str());
      return hipErrorNoBinaryForGpu;
    }
    return load(module, bundle.code, bundle.bytes);
  }
  if (!starts_with(bytes, "\177ELF")) {
    return hipErrorInvalidImage;
  }
  amdgpu::LoadError error = amdgpu::LoadError::none;
  std::string reason;
  auto code = amdgpu::load_code_object(image, readable, &error, &reason);
  if (code == nullptr) {
    return amdgpu::status_of(error);
  }
  if (card != nullptr && code->architecture_name != architecture) {
    return hipErrorNoBinaryForGpu;
  }
  std::lock_guard<std::mutex> lock(runtime().mutex);
  Entry *entry = modules().take();
  if (entry == nullptr) {
    return hipErrorOutOfMemory;
  }
  entry->code = std::move(code);
  *module = reinterpret_cast<hipModule_t>(modules().publish(entry));
  return hipSuccess;
}

hipError_t load_file(hipModule_t *module, const char *path) {
  if (module == nullptr || path == nullptr) {
    return hipErrorInvalidValue;
  }
  *module = nullptr;
  std::ifstream file(path, std::ios::binary);
  std::vector<char> bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file.is_open() || file.bad()) {
    return hipErrorFileNotFound;
  }
  bytes.push_back('\0');  // so that a look at its first letters ends
  return bytes.size() == 1 ? hipErrorInvalidImage : load(module, bytes.data(), bytes.size() - 1);
}

void retire(Functions &table, Entry *entry) {
  table.retire(entry);
  entry->code.reset();
  entry->kernel = nullptr;
  table.give_back(entry);
}

hipError_t unload(hipModule_t module) {
  if (module == nullptr) {
    return hipErrorInvalidHandle;
  }
  std::lock_guard<std::mutex> lock(runtime().mutex);
  Entry *entry = modules().find(module);
  if (entry == nullptr) {
    return hipErrorNotFound;
  }
  for (Entry *function : entry->functions) {
    retire(functions(), function);
  }
  entry->functions.clear();
  modules().retire(entry);
  entry->code.reset();
  modules().give_back(entry);
  return hipSuccess;
}

hipError_t get_function(hipFunction_t *function, hipModule_t module, const char *name) {
  if (function == nullptr || name == nullptr) {
    return hipErrorInvalidValue;
  }
  *function = nullptr;
  if (module == nullptr) {
    return hipErrorInvalidHandle;
  }
  std::lock_guard<std::mutex> lock(runtime().mutex);
  Entry *entry = modules().find(module);
  if (entry == nullptr) {
    return hipErrorNotFound;
  }
  const auto match = entry->code->kernels.find(name);
  if (match == entry->code->kernels.end()) {
    return hipErrorNotFound;
  }
  entry->functions.reserve(entry->functions.size() + 1);
  Entry *created = functions().take();
  if (created == nullptr) {
    return hipErrorOutOfMemory;
  }
  created->code = entry->code;
  created->kernel = &match->second;
  entry->functions.push_back(created);
  *function = reinterpret_cast<hipFunction_t>(functions().publish(created));
  return hipSuccess;
}

hipError_t get_variable(void **address, size_t *bytes, hipModule_t module, const char *name) {
  if (name == nullptr || (address == nullptr && bytes == nullptr)) {
    return hipErrorInvalidValue;
  }
  std::lock_guard<std::mutex> lock(runtime().mutex);
  const Entry *entry = module != nullptr ? modules().find(module) : nullptr;
  if (entry == nullptr) {
    return hipErrorInvalidHandle;
  }
  const auto match = entry->code->objects.find(name);
  if (match == entry->code->objects.end()) {
    return hipErrorNotFound;
  }
  if (address != nullptr) {
    *address = entry->code->image + match->second.first;
  }
  if (bytes != nullptr) {
    *bytes = match->second.second;
  }
  return hipSuccess;
}

bool is_explicit(const amdgpu::Argument &argument) { return argument.kind.compare(0, 7, "hidden_") != 0; }

// What stands before each entry of `extra`.
void *const extra_pointer = reinterpret_cast<void *>(1), *const extra_size = reinterpret_cast<void *>(2),
            *const extra_end = reinterpret_cast<void *>(3);

// The arguments of a launch, by pointer or, as `extra` has it, as the bytes that the kernel reads.
hipError_t take_arguments(Launch *launch, void **params, void **extra) {
  std::string why;
  if (extra != nullptr && params == nullptr) {
    const void *buffer = nullptr;
    size_t bytes = 0;
    for (; extra[0] != extra_end; extra += 2) {
      if (extra[0] == extra_pointer) {
        buffer = extra[1];
      } else if (extra[0] == extra_size && extra[1] != nullptr) {
        bytes = *static_cast<const size_t *>(extra[1]);
      } else {
        return hipErrorInvalidValue;
      }
    }
    if ((buffer == nullptr && bytes != 0) || bytes > launch->kernel->argument_bytes) {
      return hipErrorInvalidValue;
    }
    const auto *from = static_cast<const uint8_t *>(buffer);
    launch->arguments.assign(from, from + bytes);
    return hipSuccess;
  }
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

// Blocks, threads of a block, and those of the last one along each axis if it is not full.
struct Extents {
  unsigned grid[3], block[3], remainder[3];
  unsigned shared_bytes;
};

hipError_t prepare(Launch *launch, hipFunction_t function, const Extents &extents, void **params, void **extra) {
  {
    std::lock_guard<std::mutex> lock(runtime().mutex);
    const Entry *entry = function != nullptr ? functions().find(function) : nullptr;
    if (entry == nullptr) {
      return hipErrorInvalidHandle;
    }
    launch->code = entry->code;
    launch->kernel = entry->kernel;
    launch->function = function;
  }
  std::copy_n(extents.grid, 3, launch->grid);
  std::copy_n(extents.block, 3, launch->block);
  std::copy_n(extents.remainder, 3, launch->remainder);
  launch->dynamic_shared = extents.shared_bytes;
  std::string why;
  if (const hipError_t status = amdgpu::check_launch(*launch, &why)) {
    return status;
  }
  return take_arguments(launch, params, extra);
}

hipError_t start(hipFunction_t function, const Extents &extents, hipStream_t handle, void **params, void **extra) {
  const auto launch = std::make_shared<Launch>();
  if (const hipError_t status = prepare(launch.get(), function, extents, params, extra)) {
    return status;
  }
  Stream *stream = resolve(handle);
  return stream != nullptr ? submit_launch(stream, launch) : hipErrorContextIsDestroyed;
}

// The grid is given in threads. Its last blocks may be smaller, unless the compiler relied on blocks of one size.
hipError_t extents_of_threads(const unsigned (&threads)[3], const unsigned (&block)[3], size_t shared_bytes,
                              Extents *extents) {
  if (uint64_t{block[0]} * block[1] > 1024 || uint64_t{block[0]} * block[1] * block[2] > 1024) {
    return hipErrorInvalidConfiguration;
  }
  if (shared_bytes > std::numeric_limits<unsigned>::max()) {
    return hipErrorInvalidValue;
  }
  extents->shared_bytes = static_cast<unsigned>(shared_bytes);
  for (int k = 0; k < 3; ++k) {
    if (threads[k] == 0 || block[k] == 0) {
      return hipErrorInvalidValue;
    }
    extents->block[k] = std::min(block[k], threads[k]);
    extents->remainder[k] = threads[k] % extents->block[k];
    extents->grid[k] = threads[k] / extents->block[k] + (extents->remainder[k] != 0 ? 1 : 0);
  }
  return hipSuccess;
}

hipError_t start_between(hipFunction_t function, const Extents &extents, hipStream_t handle, void **params,
                         void **extra, hipEvent_t before, hipEvent_t after) {
  if (params != nullptr && extra != nullptr) {
    return hipErrorInvalidValue;
  }
  Stream *stream = resolve(handle);
  if (stream == nullptr) {
    return hipErrorContextIsDestroyed;
  }
  const auto launch = std::make_shared<Launch>();
  if (const hipError_t status = prepare(launch.get(), function, extents, params, extra)) {
    return status;
  }
  const bool is_partial = extents.remainder[0] != 0 || extents.remainder[1] != 0 || extents.remainder[2] != 0;
  if (is_partial && launch->kernel->has_uniform_blocks) {
    return hipErrorInvalidValue;
  }
  for (const hipEvent_t event : {before, after}) {
    if (event != nullptr && !can_record(event, stream)) {
      return hipErrorInvalidHandle;
    }
  }
  if (before != nullptr) {
    if (const hipError_t status = record_event(before, stream)) {
      return status;
    }
  }
  const hipError_t status = submit_launch(stream, launch);
  return status != hipSuccess || after == nullptr ? status : record_event(after, stream);
}

}  // namespace

hipError_t kernel_of(hipFunction_t function, Kernel *kernel) {
  std::lock_guard<std::mutex> lock(runtime().mutex);
  const Entry *entry = function != nullptr ? functions().find(function) : nullptr;
  if (entry == nullptr) {
    return hipErrorInvalidHandle;
  }
  *kernel = *entry->kernel;
  return hipSuccess;
}

hipError_t make_launch(hipFunction_t function, const Shape &shape, void **params, void **extra,
                       std::shared_ptr<Launch> *launch) {
  const dim3 &grid = shape.grid, &block = shape.block;
  const Extents extents = {{grid.x, grid.y, grid.z}, {block.x, block.y, block.z}, {0, 0, 0}, shape.shared_bytes};
  *launch = std::make_shared<Launch>();
  return prepare(launch->get(), function, extents, params, extra);
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

hipError_t rocpy_host_hipModuleLoad(hipModule_t *module, const char *file) {
  return hip_call([=] { return load_file(module, file); });
}

hipError_t rocpy_host_hipModuleLoadData(hipModule_t *module, const void *image) {
  return hip_call([=] { return load(module, image, 0); });
}

hipError_t rocpy_host_hipModuleLoadDataEx(hipModule_t *module, const void *image, unsigned int, hipJitOption *,
                                          void **) {
  return hip_call([=] { return load(module, image, 0); });
}

hipError_t rocpy_host_hipModuleUnload(hipModule_t module) {
  return hip_call([=] { return unload(module); });
}

hipError_t rocpy_host_hipModuleGetFunction(hipFunction_t *function, hipModule_t module, const char *name) {
  return hip_call([=] { return get_function(function, module, name); });
}

hipError_t rocpy_host_hipModuleGetGlobal(void **address, size_t *bytes, hipModule_t module, const char *name) {
  return hip_call([=] { return get_variable(address, bytes, module, name); });
}

hipError_t rocpy_host_hipModuleLaunchKernel(hipFunction_t f, unsigned int grid_x, unsigned int grid_y,
                                            unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                                            unsigned int block_z, unsigned int shared_bytes, hipStream_t stream,
                                            void **params, void **extra) {
  return hip_call([=] {
    const Extents extents = {{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, {0, 0, 0}, shared_bytes};
    return start(f, extents, stream, params, extra);
  });
}

// Its flag permits any order, which the stream's own is one of.
hipError_t rocpy_host_hipExtModuleLaunchKernel(hipFunction_t f, unsigned int threads_x, unsigned int threads_y,
                                               unsigned int threads_z, unsigned int block_x, unsigned int block_y,
                                               unsigned int block_z, size_t shared_bytes, hipStream_t stream,
                                               void **params, void **extra, hipEvent_t before, hipEvent_t after,
                                               unsigned int) {
  return hip_call([=] {
    Extents extents{};
    const hipError_t status =
        extents_of_threads({threads_x, threads_y, threads_z}, {block_x, block_y, block_z}, shared_bytes, &extents);
    return status != hipSuccess ? status : start_between(f, extents, stream, params, extra, before, after);
  });
}
