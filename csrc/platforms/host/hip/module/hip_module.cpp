// SPDX-License-Identifier: MIT
// HIP rows about code objects: those for AMD GPUs are loaded, and their kernels and variables looked up.
#include "bundle.hpp"
#include "device_properties.hpp"
#include "emulator.hpp"
#include "hip_call.hpp"
#include "hip_memory.hpp"
#include "kernel_of.hpp"
#include "lazy.h"
#include "runtime.hpp"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>

namespace rocpy_host {

namespace {

using amdgpu::CodeObject;
using amdgpu::Kernel;

// Code and its variables, which are memory of the current device's for as long as somebody has the code.
class Loaded {
 public:
  explicit Loaded(std::shared_ptr<const CodeObject> code) : code_(std::move(code)) {}
  ~Loaded() {
    for (const void *variable : variables_) {
      disown_allocation(variable);
    }
  }
  Loaded(const Loaded &) = delete;
  Loaded &operator=(const Loaded &) = delete;

  const CodeObject *code() const { return code_.get(); }

  // Names of variables that overlap, as a file may have them, are one piece of memory.
  hipError_t adopt_variables() {
    std::vector<std::pair<uint64_t, uint64_t>> parts;
    for (const auto &[name, part] : code_->objects) {
      parts.push_back({part.first, part.first + part.second});
    }
    std::sort(parts.begin(), parts.end());
    variables_.reserve(parts.size());
    for (size_t i = 0; i < parts.size();) {
      auto [begin, end] = parts[i];
      for (++i; i < parts.size() && parts[i].first < end; ++i) {
        end = std::max(end, parts[i].second);
      }
      if (begin == end) {
        continue;
      }
      uint8_t *variable = code_->image + begin;
      if (const hipError_t status = adopt_allocation(variable, end - begin)) {
        return status;
      }
      variables_.push_back(variable);
    }
    return hipSuccess;
  }

 private:
  std::shared_ptr<const CodeObject> code_;
  std::vector<const void *> variables_;
};

// A module, or a kernel of one: a kernel's entry keeps the code that its module has loaded.
struct Entry {
  std::atomic<uint64_t> handle{0};
  uint32_t slot = 0, generation = 0;
  std::shared_ptr<const CodeObject> code;
  const Kernel *kernel = nullptr;
  std::map<const Kernel *, Entry *> functions;  // of a module: one for each kernel that was asked for
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
  const auto loaded = std::make_shared<Loaded>(std::move(code));
  if (const hipError_t status = loaded->adopt_variables()) {
    return status;
  }
  std::lock_guard<std::mutex> lock(runtime().mutex);
  Entry *entry = modules().take();
  if (entry == nullptr) {
    return hipErrorOutOfMemory;
  }
  entry->code = {loaded, loaded->code()};
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

// Kernels that are queued have the code themselves; copies to and from its variables, and fills, do not.
hipError_t unload(hipModule_t module) {
  if (module == nullptr) {
    return hipErrorInvalidHandle;
  }
  std::lock_guard<std::mutex> lock(runtime().mutex);
  Entry *entry = modules().find(module);
  if (entry == nullptr) {
    return hipErrorNotFound;
  }
  for (const auto &[kernel, function] : entry->functions) {
    retire(functions(), function);
  }
  entry->functions.clear();
  modules().retire(entry);
  retain_for_work(entry->code);
  entry->code.reset();
  modules().give_back(entry);
  return hipSuccess;
}

hipError_t get_function(hipFunction_t *function, hipModule_t module, const char *name) {
  if (function == nullptr || name == nullptr || *name == '\0') {
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
  const Kernel *kernel = &match->second;
  const auto [one, is_first] = entry->functions.emplace(kernel, nullptr);
  if (is_first) {
    Entry *created = functions().take();
    if (created == nullptr) {
      entry->functions.erase(one);
      return hipErrorOutOfMemory;
    }
    created->code = entry->code;
    created->kernel = kernel;
    functions().publish(created);
    one->second = created;
  }
  *function = reinterpret_cast<hipFunction_t>(one->second->handle.load(std::memory_order_relaxed));
  return hipSuccess;
}

hipError_t get_variable(void **address, size_t *bytes, hipModule_t module, const char *name) {
  if (name == nullptr || *name == '\0' || (address == nullptr && bytes == nullptr)) {
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

}  // namespace

hipError_t kernel_of(hipFunction_t function, Kernel *kernel) {
  amdgpu::Launch launch;
  const hipError_t status = find_kernel(function, &launch);
  if (status == hipSuccess) {
    *kernel = *launch.kernel;
  }
  return status;
}

hipError_t find_kernel(hipFunction_t function, amdgpu::Launch *launch) {
  std::lock_guard<std::mutex> lock(runtime().mutex);
  const Entry *entry = function != nullptr ? functions().find(function) : nullptr;
  if (entry == nullptr) {
    return hipErrorInvalidHandle;
  }
  launch->code = entry->code;
  launch->kernel = entry->kernel;
  launch->function = function;
  return hipSuccess;
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
