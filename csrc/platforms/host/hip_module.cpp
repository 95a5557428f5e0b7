// SPDX-License-Identifier: MIT
// HIP rows about code objects: those for AMD GPUs are loaded and their kernels run on the emulator of amdgpu/, in
// stream order.
#include "emulator.hpp"
#include "hip_call.hpp"
#include "hip_memory.hpp"
#include "runtime.hpp"

#include <cstdio>
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
  static auto *table = new Modules;
  return *table;
}

Functions &functions() {
  static auto *table = new Functions;
  return *table;
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
  amdgpu::Range found;
  const auto address = reinterpret_cast<uintptr_t>(image);
  return memory.find(address, false, &found) ? found.end - address : 0;
}

hipError_t load(hipModule_t *module, const void *image) {
  if (module == nullptr || image == nullptr) {
    return hipErrorInvalidValue;
  }
  *module = nullptr;
  const auto *bytes = static_cast<const unsigned char *>(image);
  if (starts_with(bytes, "__CLANG_OFFLOAD_BUNDLE__") || starts_with(bytes, "CCOB")) {
    return hipErrorNoBinaryForGpu;
  }
  if (!starts_with(bytes, "\177ELF")) {
    return hipErrorInvalidImage;
  }
  amdgpu::LoadError error = amdgpu::LoadError::none;
  std::string reason;
  auto code = amdgpu::load_code_object(image, readable_bytes(image), &error, &reason);
  if (code == nullptr) {
    return amdgpu::status_of(error);
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
  const auto found = entry->code->kernels.find(name);
  if (found == entry->code->kernels.end()) {
    return hipErrorNotFound;
  }
  entry->functions.reserve(entry->functions.size() + 1);
  Entry *made = functions().take();
  if (made == nullptr) {
    return hipErrorOutOfMemory;
  }
  made->code = entry->code;
  made->kernel = &found->second;
  entry->functions.push_back(made);
  *function = reinterpret_cast<hipFunction_t>(functions().publish(made));
  return hipSuccess;
}

// The arguments of a launch, by pointer or, as `extra` has it, as the bytes that the kernel reads.
hipError_t take_arguments(Launch *launch, void **params, void **extra) {
  std::string why;
  if (extra != nullptr && params == nullptr) {
    constexpr uintptr_t buffer_pointer = 1, buffer_size = 2, end = 3;
    const void *buffer = nullptr;
    size_t bytes = 0;
    for (; reinterpret_cast<uintptr_t>(extra[0]) != end; extra += 2) {
      const auto key = reinterpret_cast<uintptr_t>(extra[0]);
      if (key == buffer_pointer) {
        buffer = extra[1];
      } else if (key == buffer_size && extra[1] != nullptr) {
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
  size_t count = 0;
  for (const amdgpu::Argument &argument : launch->kernel->arguments) {
    count += argument.kind.compare(0, 7, "hidden_") != 0 ? 1 : 0;
  }
  if (count != 0 && params == nullptr) {
    return hipErrorInvalidValue;
  }
  return amdgpu::place_arguments(launch, params, nullptr, count, &why) ? hipSuccess : hipErrorInvalidValue;
}

// A kernel may touch what HIP gave out and, where the platform shares it, any memory of the process.
void open_memory(amdgpu::Memory *memory) {
  auto process = std::make_shared<amdgpu::ProcessMemory>();
  memory->set_lookup([process](uintptr_t address, bool writes, amdgpu::Range *found) {
    Allocation allocation;
    if (find_allocation(reinterpret_cast<const void *>(address), &allocation)) {
      *found = {allocation.base, allocation.base + allocation.bytes, true};
      return true;
    }
    return is_host_memory_shared() && process->find(address, writes, found);
  });
}

hipError_t run_launch(Launch &launch) {
  const amdgpu::Report report = amdgpu::run(launch);
  if (report.outcome != amdgpu::Outcome::done) {
    std::fprintf(stderr, "rocpy host platform: %s\n", report.message.c_str());
  }
  return amdgpu::status_of(report.outcome);
}

hipError_t start(hipFunction_t function, const unsigned (&grid)[3], const unsigned (&block)[3], unsigned shared_bytes,
                 hipStream_t handle, void **params, void **extra) {
  auto launch = std::make_shared<Launch>();
  {
    std::lock_guard<std::mutex> lock(runtime().mutex);
    const Entry *entry = function != nullptr ? functions().find(function) : nullptr;
    if (entry == nullptr) {
      return hipErrorInvalidHandle;
    }
    launch->code = entry->code;
    launch->kernel = entry->kernel;
  }
  for (int k = 0; k < 3; ++k) {
    launch->grid[k] = grid[k];
    launch->block[k] = block[k];
  }
  launch->dynamic_shared = shared_bytes;
  std::string why;
  if (const hipError_t status = amdgpu::check_launch(*launch, &why)) {
    return status;
  }
  if (const hipError_t status = take_arguments(launch.get(), params, extra)) {
    return status;
  }
  Stream *stream = resolve(handle);
  if (stream == nullptr) {
    return hipErrorContextIsDestroyed;
  }
  open_memory(&launch->memory);
  const auto work = [launch] {
    Launch fresh = *launch;  // a graph may run it again
    run_launch(fresh);
  };
  if (const auto answer = offer_to_capture(stream, hipGraphNodeTypeKernel, work)) {
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

}  // namespace

}  // namespace rocpy_host

using namespace rocpy_host;

hipError_t rocpy_host_hipModuleLoadData(hipModule_t *module, const void *image) {
  return hip_call([=] { return load(module, image); });
}

hipError_t rocpy_host_hipModuleLoadDataEx(hipModule_t *module, const void *image, unsigned int, hipJitOption *,
                                          void **) {
  return hip_call([=] { return load(module, image); });
}

hipError_t rocpy_host_hipModuleUnload(hipModule_t module) {
  return hip_call([=] { return unload(module); });
}

hipError_t rocpy_host_hipModuleGetFunction(hipFunction_t *function, hipModule_t module, const char *name) {
  return hip_call([=] { return get_function(function, module, name); });
}

hipError_t rocpy_host_hipModuleLaunchKernel(hipFunction_t f, unsigned int grid_x, unsigned int grid_y,
                                            unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                                            unsigned int block_z, unsigned int shared_bytes, hipStream_t stream,
                                            void **params, void **extra) {
  return hip_call([=] {
    return start(f, {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes, stream, params, extra);
  });
}
