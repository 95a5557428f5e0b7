// SPDX-License-Identifier: MIT
// HIP rows about contexts. As in AMD's runtime a device has one context, which is always there: making one, retaining
// and releasing it change nothing, and a thread's stack of them is no more than a memory of devices.
#include "hip_call.hpp"
#include "hip_memory.hpp"
#include "runtime.hpp"
#include "types_programs.h"

#include <vector>

namespace rocpy_host {

namespace {

thread_local std::vector<int> context_stack;

constexpr uint64_t context_kind = static_cast<uint64_t>('c') << 56;

hipCtx_t context_of(int device) { return reinterpret_cast<hipCtx_t>(context_kind | static_cast<uint64_t>(device + 1)); }

// Runs body(device) if the context is one: AMD's runtime would follow any other number.
template <class Body>
hipError_t with_context(hipCtx_t context, Body body) {
  return hip_call([&] {
    const uint64_t number = reinterpret_cast<uint64_t>(context) ^ context_kind;
    const bool is_context = number != 0 && number <= static_cast<uint64_t>(runtime().device_count);
    return is_context ? body(static_cast<int>(number) - 1) : hipErrorInvalidContext;
  });
}

// Runs body() if the device is one, and says which error it is if not.
template <class Body>
hipError_t with_device(int device, hipError_t otherwise, Body body) {
  return hip_call([&] { return is_device(device) ? body() : otherwise; });
}

bool is_active(int device) {
  const Device &of = runtime().devices[device];
  if (of.null_stream.submitted.load() != 0 || has_allocations_of(device)) {
    return true;
  }
  std::lock_guard<std::mutex> lock(runtime().mutex);
  return !of.streams.empty();
}

}  // namespace

}  // namespace rocpy_host

using namespace rocpy_host;

// It is pushed, and yet the thread's device stays what it was until it is pushed or set.
hipError_t rocpy_host_hipCtxCreate(hipCtx_t *context, unsigned int, int device) {
  return with_device(device, hipErrorInvalidValue, [=] {
    if (context == nullptr) {
      return hipErrorInvalidValue;
    }
    *context = context_of(device);
    context_stack.push_back(device);
    return hipSuccess;
  });
}

hipError_t rocpy_host_hipCtxDestroy(hipCtx_t context) {
  if (context == nullptr) {
    return remember(hipErrorInvalidValue);
  }
  return with_context(context, [](int device) {
    if (!context_stack.empty() && context_stack.back() == device) {
      context_stack.pop_back();
    }
    return hipSuccess;
  });
}

hipError_t rocpy_host_hipCtxPushCurrent(hipCtx_t context) {
  return with_context(context, [](int device) {
    set_current_device(device);
    context_stack.push_back(device);
    return hipSuccess;
  });
}

hipError_t rocpy_host_hipCtxPopCurrent(hipCtx_t *context) {
  return hip_call([=] {
    if (context_stack.empty()) {
      return hipErrorInvalidContext;
    }
    if (context != nullptr) {
      *context = context_of(context_stack.back());
    }
    context_stack.pop_back();
    return hipSuccess;
  });
}

// Null takes the uppermost from the stack.
hipError_t rocpy_host_hipCtxSetCurrent(hipCtx_t context) {
  const auto pop = [] {
    if (!context_stack.empty()) {
      context_stack.pop_back();
    }
  };
  if (context == nullptr) {
    pop();
    return remember(hipSuccess);
  }
  return with_context(context, [=](int device) {
    pop();
    set_current_device(device);
    context_stack.push_back(device);
    return hipSuccess;
  });
}

hipError_t rocpy_host_hipCtxGetCurrent(hipCtx_t *context) {
  return hip_call([=] {
    if (context == nullptr) {
      return hipErrorInvalidValue;
    }
    *context = context_of(current_device());
    return hipSuccess;
  });
}

hipError_t rocpy_host_hipCtxGetDevice(int *device) { return rocpy_host_hipGetDevice(device); }

hipError_t rocpy_host_hipCtxGetSharedMemConfig(int *config) {
  return hip_call([=] {
    constexpr int four_byte_banks = 1;
    if (config == nullptr) {
      return hipErrorInvalidValue;
    }
    *config = four_byte_banks;
    return hipSuccess;
  });
}

hipError_t rocpy_host_hipDevicePrimaryCtxGetState(int device, unsigned int *flags, int *active) {
  return with_device(device, hipErrorInvalidDevice, [=] {
    if (flags != nullptr) {
      *flags = 0;
    }
    if (active != nullptr) {
      *active = is_active(device) ? 1 : 0;
    }
    return hipSuccess;
  });
}

hipError_t rocpy_host_hipDevicePrimaryCtxRetain(hipCtx_t *context, int device) {
  return with_device(device, hipErrorInvalidDevice, [=] {
    if (context == nullptr) {
      return hipErrorInvalidValue;
    }
    *context = context_of(device);
    return hipSuccess;
  });
}

hipError_t rocpy_host_hipDevicePrimaryCtxRelease(int device) {
  return with_device(device, hipErrorInvalidDevice, [] { return hipSuccess; });
}

hipError_t rocpy_host_hipDevicePrimaryCtxReset(int device) {
  return with_device(device, hipErrorInvalidDevice, [] { return hipSuccess; });
}

hipError_t rocpy_host_hipDevicePrimaryCtxSetFlags(int device, unsigned int) {
  return with_device(device, hipErrorInvalidDevice, [] { return hipErrorContextAlreadyInUse; });
}
