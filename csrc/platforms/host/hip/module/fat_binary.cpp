// SPDX-License-Identifier: MIT
// What code that hipcc compiled registers and calls: fat binaries, kernels and variables by the address of their host
// symbol, and the configuration of a launch. A fat binary is loaded on a device when something of it is first used
// there: each device has variables of its own.
#include "hip_call.hpp"
#include "kernel_of.hpp"
#include "lazy.h"
#include "runtime.hpp"

#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace rocpy_host {

namespace {

struct FatBinary {
  const void *image = nullptr;
  hipModule_t modules[max_devices] = {};
};

struct Symbol {
  FatBinary *binary = nullptr;
  std::string name;
  std::map<int, hipFunction_t> functions;  // of a kernel, by the devices for which it was looked up
};

struct Registry {
  std::mutex mutex;
  std::map<const void *, Symbol> kernels, variables;  // by the host's address
};

// Never destroyed: libraries unregister while the process ends.
Registry &registry() {
  static rocpy::Lazy<Registry> all;
  return all.get();
}

struct Configuration {
  dim3 grid, block;
  size_t shared_bytes;
  hipStream_t stream;
};

thread_local std::vector<Configuration> configurations;

// With the registry's mutex held.
hipError_t load(FatBinary *binary, int device) {
  hipModule_t &module = binary->modules[device];
  if (module != nullptr) {
    return hipSuccess;
  }
  const int before = current_device();
  set_current_device(device);
  const hipError_t status = rocpy_host_hipModuleLoadData(&module, binary->image);
  set_current_device(before);
  return status;
}

hipError_t find_variable(const void *host, void **address, size_t *bytes) {
  std::lock_guard<std::mutex> lock(registry().mutex);
  const auto match = registry().variables.find(host);
  if (match == registry().variables.end()) {
    return hipErrorInvalidSymbol;
  }
  const Symbol &symbol = match->second;
  const int device = current_device();
  if (const hipError_t status = load(symbol.binary, device)) {
    return status;
  }
  const hipError_t status =
      rocpy_host_hipModuleGetGlobal(address, bytes, symbol.binary->modules[device], symbol.name.c_str());
  return status == hipSuccess ? status : hipErrorInvalidSymbol;
}

// The part of a variable that a copy of that kind reads or writes; `outside` is the other side's kind.
hipError_t find_part(const void *host, size_t bytes, size_t offset, hipMemcpyKind kind, hipMemcpyKind outside,
                     char **address) {
  if (kind != outside && kind != hipMemcpyDeviceToDevice && kind != hipMemcpyDeviceToDeviceNoCU) {
    return hipErrorInvalidMemcpyDirection;
  }
  void *start = nullptr;
  size_t size = 0;
  if (const hipError_t status = find_variable(host, &start, &size)) {
    return status;
  }
  *address = static_cast<char *>(start) + offset;
  return offset <= size && bytes <= size - offset ? hipSuccess : hipErrorInvalidValue;
}

void forget(std::map<const void *, Symbol> *symbols, const FatBinary *binary) {
  for (auto symbol = symbols->begin(); symbol != symbols->end();) {
    symbol = symbol->second.binary == binary ? symbols->erase(symbol) : std::next(symbol);
  }
}

}  // namespace

int device_of_launch(hipStream_t handle) {
  const Stream *stream = resolve(handle);
  return stream != nullptr ? stream->device : current_device();
}

hipError_t kernel_at_symbol(const void *host, int device, hipFunction_t *function) {
  std::lock_guard<std::mutex> lock(registry().mutex);
  const auto match = registry().kernels.find(host);
  if (match == registry().kernels.end()) {
    return hipErrorInvalidDeviceFunction;
  }
  Symbol &symbol = match->second;
  hipFunction_t &known = symbol.functions[device];
  if (known == nullptr) {
    if (const hipError_t status = load(symbol.binary, device)) {
      return status;
    }
    const hipModule_t module = symbol.binary->modules[device];
    if (rocpy_host_hipModuleGetFunction(&known, module, symbol.name.c_str()) != hipSuccess) {
      return hipErrorInvalidDeviceFunction;
    }
  }
  *function = known;
  return hipSuccess;
}

}  // namespace rocpy_host

using namespace rocpy_host;

void **rocpy_host___hipRegisterFatBinary(const void *wrapper) {
  struct Wrapper {
    unsigned magic, version;
    const void *image;
    void *unused;
  };
  auto *binary = new FatBinary;
  binary->image = static_cast<const Wrapper *>(wrapper)->image;
  return reinterpret_cast<void **>(binary);
}

void rocpy_host___hipUnregisterFatBinary(void **handle) {
  auto *binary = reinterpret_cast<FatBinary *>(handle);
  std::lock_guard<std::mutex> lock(registry().mutex);
  forget(&registry().kernels, binary);
  forget(&registry().variables, binary);
  for (const hipModule_t module : binary->modules) {
    if (module != nullptr) {
      rocpy_host_hipModuleUnload(module);
    }
  }
  delete binary;
}

void rocpy_host___hipRegisterFunction(void **handle, const void *host, char *, const char *name, unsigned int, void *,
                                      void *, void *, void *, int *) {
  std::lock_guard<std::mutex> lock(registry().mutex);
  registry().kernels[host] = {reinterpret_cast<FatBinary *>(handle), name, {}};
}

void rocpy_host___hipRegisterVar(void **handle, void *host, char *, char *name, int, size_t, int, int) {
  std::lock_guard<std::mutex> lock(registry().mutex);
  registry().variables[host] = {reinterpret_cast<FatBinary *>(handle), name, {}};
}

hipError_t rocpy_host___hipPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes, hipStream_t stream) {
  return hip_call([=] {
    configurations.push_back({grid, block, shared_bytes, stream});
    return hipSuccess;
  });
}

hipError_t rocpy_host___hipPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared_bytes, hipStream_t *stream) {
  return hip_call([=] {
    if (configurations.empty()) {
      return hipErrorInvalidConfiguration;
    }
    const Configuration last = configurations.back();
    configurations.pop_back();
    *grid = last.grid;
    *block = last.block;
    *shared_bytes = last.shared_bytes;
    *stream = last.stream;
    return hipSuccess;
  });
}

hipError_t rocpy_host_hipLaunchKernel(const void *host, dim3 grid, dim3 block, void **args, size_t shared_bytes,
                                      hipStream_t stream) {
  return hip_call([=] {
    hipFunction_t function = nullptr;
    const hipError_t status = kernel_at_symbol(host, device_of_launch(stream), &function);
    return status != hipSuccess
               ? status
               : launch_blocks(function, {grid, block, shared_bytes}, symbol_refusals, stream, args, nullptr);
  });
}

hipError_t rocpy_host_hipGetFuncBySymbol(hipFunction_t *function, const void *host) {
  return hip_call(
      [=] { return function == nullptr ? hipErrorInvalidValue : kernel_at_symbol(host, current_device(), function); });
}

hipError_t rocpy_host_hipGetSymbolAddress(void **address, const void *symbol) {
  return hip_call([=] {
    size_t bytes = 0;
    return address == nullptr ? hipErrorInvalidValue : find_variable(symbol, address, &bytes);
  });
}

hipError_t rocpy_host_hipGetSymbolSize(size_t *bytes, const void *symbol) {
  return hip_call([=] {
    void *address = nullptr;
    return bytes == nullptr ? hipErrorInvalidValue : find_variable(symbol, &address, bytes);
  });
}

hipError_t rocpy_host_hipMemcpyToSymbol(const void *symbol, const void *src, size_t bytes, size_t offset,
                                        hipMemcpyKind kind) {
  return hip_call([=] {
    char *part = nullptr;
    const hipError_t status = find_part(symbol, bytes, offset, kind, hipMemcpyHostToDevice, &part);
    return status != hipSuccess ? status : rocpy_host_hipMemcpy(part, src, bytes, kind);
  });
}

hipError_t rocpy_host_hipMemcpyToSymbolAsync(const void *symbol, const void *src, size_t bytes, size_t offset,
                                             hipMemcpyKind kind, hipStream_t stream) {
  return hip_call([=] {
    char *part = nullptr;
    const hipError_t status = find_part(symbol, bytes, offset, kind, hipMemcpyHostToDevice, &part);
    return status != hipSuccess ? status : rocpy_host_hipMemcpyAsync(part, src, bytes, kind, stream);
  });
}

hipError_t rocpy_host_hipMemcpyFromSymbol(void *dst, const void *symbol, size_t bytes, size_t offset,
                                          hipMemcpyKind kind) {
  return hip_call([=] {
    char *part = nullptr;
    const hipError_t status = find_part(symbol, bytes, offset, kind, hipMemcpyDeviceToHost, &part);
    return status != hipSuccess ? status : rocpy_host_hipMemcpy(dst, part, bytes, kind);
  });
}

hipError_t rocpy_host_hipMemcpyFromSymbolAsync(void *dst, const void *symbol, size_t bytes, size_t offset,
                                               hipMemcpyKind kind, hipStream_t stream) {
  return hip_call([=] {
    char *part = nullptr;
    const hipError_t status = find_part(symbol, bytes, offset, kind, hipMemcpyDeviceToHost, &part);
    return status != hipSuccess ? status : rocpy_host_hipMemcpyAsync(dst, part, bytes, kind, stream);
  });
}
