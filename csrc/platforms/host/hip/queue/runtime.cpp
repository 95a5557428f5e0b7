// SPDX-License-Identifier: MIT
// The runtime's settings, the device of each thread, and which stream a handle means to a thread.
#include "environment.h"
#include "graph.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace rocpy_host {

namespace {

constexpr int default_device_count = 8;

thread_local int device_of_thread = 0;

// What is no number gives the default; the rest is brought into 1..64.
int device_count_from_environment() {
  char *end;
  const char *text = rocpy_environment(ROCPY_HOST_DEVICES);
  const long count = std::strtol(text, &end, 10);
  if (end == text || *end != '\0') {
    return default_device_count;
  }
  return static_cast<int>(std::clamp(count, 1L, static_cast<long>(max_devices)));
}

// The per-thread streams of a thread end with it.
struct PerThreadStreams {
  uint64_t handles[max_devices] = {};
  ~PerThreadStreams() {
    for (const uint64_t handle : handles) {
      if (handle != 0) {
        destroy_stream(reinterpret_cast<const void *>(handle));
      }
    }
  }
};

Stream *per_thread_stream() {
  thread_local PerThreadStreams streams;
  const int device = current_device();
  uint64_t &handle = streams.handles[device];
  Stream *stream = handle != 0 ? runtime().streams.find(reinterpret_cast<const void *>(handle)) : nullptr;
  if (stream == nullptr) {
    stream = create_stream(device, hipStreamDefault, 0);
    handle = stream != nullptr ? stream->handle.load(std::memory_order_relaxed) : 0;
  }
  return stream;
}

}  // namespace

Runtime::Runtime()
    : device_count(device_count_from_environment()),
      is_stressed(false),
      is_host_memory_shared(std::strcmp(rocpy_environment(ROCPY_HOST_STAGING), "1") != 0),
      random_state(0) {
  const char *seed = rocpy_environment(ROCPY_HOST_STRESS);
  is_stressed = *seed != '\0';
  for (; *seed != '\0'; ++seed) {
    random_state = random_state * 131 + static_cast<unsigned char>(*seed);
  }
  for (int i = 0; i < max_devices; ++i) {
    devices[i].null_stream.device = i;
    devices[i].null_stream.is_null = true;
    devices[i].null_stream.id = next_stream_id++;
    devices[i].null_stream.delay = random_delay(*this);
  }
}

uint64_t next_random(Runtime &rt) {
  uint64_t z = rt.random_state += 0x9e3779b97f4a7c15;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
  z = (z ^ z >> 27) * 0x94d049bb133111eb;
  return z ^ z >> 31;
}

// Apart by factors, so that the slower of two streams comes last whether its work is one item or three.
std::chrono::microseconds random_delay(Runtime &rt) {
  constexpr int delays[] = {0, 50, 200, 800};
  return std::chrono::microseconds(rt.is_stressed ? delays[next_random(rt) % 4] : 0);
}

std::chrono::microseconds chance_delay() {
  Runtime &rt = runtime();
  std::lock_guard<std::mutex> lock(rt.mutex);
  return random_delay(rt);
}

void retain_for_work(const std::shared_ptr<const void> &object) {
  Runtime &rt = runtime();
  const auto retain = [&object](Stream &stream) {
    if (!stream.idle()) {
      stream.retained.push_back({stream.submitted.load(std::memory_order_relaxed), object});
    }
  };
  for (Device &device : rt.devices) {
    retain(device.null_stream);
    for (Stream *stream : device.streams) {
      retain(*stream);
    }
  }
}

void drop_retained(Stream *stream, uint64_t done) {
  auto &all = stream->retained;
  const auto lasting = std::find_if(all.begin(), all.end(), [done](const Lasting &one) { return one.ticket > done; });
  all.erase(all.begin(), lasting);
}

bool is_device(int device) { return device >= 0 && device < runtime().device_count; }

int current_device() { return device_of_thread; }

bool set_current_device(int device) {
  if (!is_device(device)) {
    return false;
  }
  device_of_thread = device;
  return true;
}

Stream *resolve(hipStream_t handle) {
  if (handle == nullptr || handle == hipStreamLegacy) {
    return &runtime().devices[current_device()].null_stream;
  }
  if (handle == hipStreamPerThread) {
    return per_thread_stream();
  }
  return runtime().streams.find(handle);
}

hipError_t wait_to_free(int device) {
  if (const auto answer = capture_forbids_unsafe_call()) {
    return *answer;
  }
  return wait_device(device, false) ? hipSuccess : hipErrorDeinitialized;
}

}  // namespace rocpy_host
