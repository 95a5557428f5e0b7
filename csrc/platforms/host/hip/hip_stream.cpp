// SPDX-License-Identifier: MIT
// HIP rows about streams. Order itself is in queue.cpp.
#include "graph.hpp"
#include "hip_call.hpp"

#include <algorithm>

namespace rocpy_host {

namespace {

constexpr int least_priority = 1, greatest_priority = -1;

hipError_t create(hipStream_t *stream, unsigned flags, int priority) {
  if (stream == nullptr || (flags != hipStreamDefault && flags != hipStreamNonBlocking)) {
    return hipErrorInvalidValue;
  }
  const Stream *created =
      create_stream(current_device(), flags, std::clamp(priority, greatest_priority, least_priority));
  if (created == nullptr) {
    return hipErrorOutOfMemory;
  }
  *stream = reinterpret_cast<hipStream_t>(created->handle.load(std::memory_order_relaxed));
  return hipSuccess;
}

// Runs body(stream) if the handle is a stream's.
template <class Body>
hipError_t with_stream(hipStream_t handle, Body body, hipError_t otherwise = hipErrorContextIsDestroyed) {
  return hip_call([&] {
    Stream *stream = resolve(handle);
    return stream != nullptr ? body(stream) : otherwise;
  });
}

}  // namespace

}  // namespace rocpy_host

using namespace rocpy_host;

hipError_t rocpy_host_hipStreamCreate(hipStream_t *stream) {
  return hip_call([=] { return create(stream, hipStreamDefault, 0); });
}

hipError_t rocpy_host_hipStreamCreateWithFlags(hipStream_t *stream, unsigned int flags) {
  return hip_call([=] { return create(stream, flags, 0); });
}

hipError_t rocpy_host_hipStreamCreateWithPriority(hipStream_t *stream, unsigned int flags, int priority) {
  return hip_call([=] { return create(stream, flags, priority); });
}

hipError_t rocpy_host_hipStreamDestroy(hipStream_t stream) {
  return hip_call([=] {
    if (stream == nullptr || stream == hipStreamLegacy || stream == hipStreamPerThread) {
      return hipErrorInvalidHandle;
    }
    return destroy_stream(stream) ? hipSuccess : hipErrorContextIsDestroyed;
  });
}

hipError_t rocpy_host_hipStreamSynchronize(hipStream_t handle) {
  return with_stream(handle, [](Stream *stream) {
    if (const auto answer = capture_forbids_wait(stream, false)) {
      return *answer;
    }
    const bool is_complete = stream->is_null ? wait_device(stream->device, true)
                                             : wait(stream, stream->submitted.load(std::memory_order_relaxed));
    return is_complete ? hipSuccess : hipErrorDeinitialized;
  });
}

hipError_t rocpy_host_hipStreamQuery(hipStream_t handle) {
  return with_stream(handle, [](Stream *stream) {
    if (const auto answer = capture_forbids_wait(stream, true)) {
      return *answer;
    }
    const bool is_idle = stream->is_null ? is_device_idle(stream->device, true) : stream->idle();
    return is_idle ? hipSuccess : hipErrorNotReady;
  });
}

hipError_t rocpy_host_hipStreamGetFlags(hipStream_t handle, unsigned int *flags) {
  return with_stream(handle, [=](Stream *stream) {
    if (flags == nullptr || handle == nullptr) {
      return hipErrorInvalidValue;
    }
    *flags = stream->flags;
    return hipSuccess;
  });
}

hipError_t rocpy_host_hipStreamGetPriority(hipStream_t handle, int *priority) {
  return with_stream(handle, [=](Stream *stream) {
    if (priority == nullptr) {
      return hipErrorInvalidValue;
    }
    *priority = stream->priority;
    return hipSuccess;
  });
}

hipError_t rocpy_host_hipStreamGetDevice(hipStream_t handle, int *device) {
  return with_stream(handle, [=](Stream *stream) {
    if (device == nullptr) {
      return hipErrorInvalidValue;
    }
    *device = stream->device;
    return hipSuccess;
  });
}

hipError_t rocpy_host_hipStreamGetId(hipStream_t handle, unsigned long long *id) {
  const auto body = [=](Stream *stream) {
    if (id == nullptr) {
      return hipErrorInvalidValue;
    }
    *id = stream->id;
    return hipSuccess;
  };
  return with_stream(handle, body, hipErrorInvalidHandle);
}

hipError_t rocpy_host_hipStreamAddCallback(hipStream_t handle, hipStreamCallback_t callback, void *user_data,
                                           unsigned int flags) {
  return with_stream(handle, [=](Stream *stream) {
    if (callback == nullptr || flags != 0) {
      return hipErrorInvalidValue;
    }
    if (const auto answer = capture_forbids_work(stream)) {
      return *answer;
    }
    enqueue_host_function(stream, [=] { callback(handle, hipSuccess, user_data); });
    return hipSuccess;
  });
}

hipError_t rocpy_host_hipLaunchHostFunc(hipStream_t handle, hipHostFn_t fn, void *user_data) {
  return with_stream(handle, [=](Stream *stream) {
    if (fn == nullptr) {
      return hipErrorInvalidValue;
    }
    const auto function = [=] { fn(user_data); };
    const auto parameters = [=] { return std::make_shared<hipHostNodeParams>(hipHostNodeParams{fn, user_data}); };
    if (const auto answer = offer_to_capture(stream, hipGraphNodeTypeHost, function, parameters)) {
      return *answer;
    }
    enqueue_host_function(stream, function);
    return hipSuccess;
  });
}

hipError_t rocpy_host_hipDeviceGetStreamPriorityRange(int *least, int *greatest) {
  return hip_call([=] {
    if (least != nullptr) {
      *least = least_priority;
    }
    if (greatest != nullptr) {
      *greatest = greatest_priority;
    }
    return hipSuccess;
  });
}
