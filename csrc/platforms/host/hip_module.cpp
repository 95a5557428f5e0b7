// SPDX-License-Identifier: MIT
// HIP rows about code objects. None can be loaded on this platform, so no handle of a module or function is ever valid.
#include "hip_call.hpp"

#include <cstring>

namespace rocpy_host {

namespace {

bool starts_with(const unsigned char *image, const char *magic) {
  // Stops at the first byte that differs, and so does not read past a short image.
  for (; *magic != '\0'; ++magic, ++image) {
    if (*image != static_cast<unsigned char>(*magic)) {
      return false;
    }
  }
  return true;
}

bool is_code_object(const void *image) {
  const auto *bytes = static_cast<const unsigned char *>(image);
  if (starts_with(bytes, "\177ELF")) {
    constexpr unsigned machine_offset = 18, amdgpu = 224;  // e_machine and EM_AMDGPU of the ELF header
    return (bytes[machine_offset] | bytes[machine_offset + 1] << 8) == amdgpu;
  }
  return starts_with(bytes, "__CLANG_OFFLOAD_BUNDLE__") || starts_with(bytes, "CCOB");
}

hipError_t load(hipModule_t *module, const void *image) {
  if (module == nullptr || image == nullptr) {
    return hipErrorInvalidValue;
  }
  *module = nullptr;
  return is_code_object(image) ? hipErrorNoBinaryForGpu : hipErrorInvalidImage;
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
  return hip_call([=] { return module == nullptr ? hipErrorInvalidHandle : hipErrorNotFound; });
}

hipError_t rocpy_host_hipModuleGetFunction(hipFunction_t *function, hipModule_t module, const char *name) {
  return hip_call([=] {
    if (function == nullptr || name == nullptr) {
      return hipErrorInvalidValue;
    }
    *function = nullptr;
    return module == nullptr ? hipErrorInvalidHandle : hipErrorNotFound;
  });
}

hipError_t rocpy_host_hipModuleLaunchKernel(hipFunction_t, unsigned int, unsigned int, unsigned int, unsigned int,
                                            unsigned int, unsigned int, unsigned int, hipStream_t, void **, void **) {
  return hip_call([] { return hipErrorInvalidHandle; });
}
