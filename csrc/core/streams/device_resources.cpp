// SPDX-License-Identifier: MIT
// Counts the collectives that may wait for other ranks, and lists what is to be freed after them.
#include "device_resources.hpp"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <iterator>
#include <mutex>
#include <new>
#include <vector>

#include "capture_relaxed.hpp"
#include "context.hpp"
#include "device_resets.hpp"
#include "guarded.hpp"
#include "table.hpp"

namespace rocpy {
namespace {

// Devices that share a number wait for each other's collectives, which is safe.
constexpr int most_devices = 64;

// Where collectives overlap, there is never a moment without one. What is listed beyond this number is freed by threads
// in the background: each free waits for what is pending then, so that several at a time come along with a caller who
// has several collectives pending.
constexpr size_t most_deferred = 64;
constexpr int most_threads = 16;

struct Listed {
  DeviceResource resource;
  bool is_for_calls;  // a thread in the background must not free it: a stream may be captured
};

struct Releases {
  std::mutex mutex;
  std::condition_variable freed;
  std::atomic<int> remote_waits[most_devices] = {};
  int being_freed[most_devices] = {};  // threads that free something now
  std::vector<Listed> deferred;
  std::atomic<size_t> deferred_count{0};
  int threads = 0;  // that free what is listed beyond the limit
  bool leaks = false;
};

// Never destroyed: at exit others may still ask.
Releases *const releases = new Releases;

// A child of fork() has neither its parent's collectives nor its memory on devices.
void forget_in_child() { new (releases) Releases; }
const int at_fork = pthread_atfork(nullptr, nullptr, forget_in_child);

int index_of(int device) { return static_cast<int>(static_cast<unsigned>(device) % most_devices); }

Status free_now(const DeviceResource &resource) {
  if (resource.resets != device_resets(resource.device)) return Status{};
  DeviceScope scope(resource.device);
  CaptureRelaxed relaxed;
  switch (resource.kind) {
    case ResourceKind::pinned_memory:
      return {Library::hip, table.hipHostFree(resource.address), "hipHostFree"};
    case ResourceKind::rccl_memory:
      return {Library::rccl, table.ncclMemFree(resource.address), "ncclMemFree"};
    case ResourceKind::hipblaslt_handle:
      return {Library::hipblaslt, table.hipblasLtDestroy(resource.address), "hipblasLtDestroy"};
    case ResourceKind::device_memory:
      break;
  }
  return {Library::hip, table.hipFree(resource.address), "hipFree"};
}

// Takes the oldest of what is listed beyond the limit off the list. False: there is none, and the thread is to end.
bool take_surplus(DeviceResource *resource) {
  std::lock_guard<std::mutex> lock(releases->mutex);
  std::vector<Listed> &all = releases->deferred;
  const auto oldest = std::find_if(all.begin(), all.end(), [](const Listed &one) { return !one.is_for_calls; });
  if (all.size() <= most_deferred || oldest == all.end() || releases->leaks) {
    --releases->threads;
    return false;
  }
  *resource = oldest->resource;
  all.erase(oldest);
  releases->deferred_count.store(all.size());
  return true;
}

void *free_surplus(void *) {
  DeviceResource resource;
  while (take_surplus(&resource)) {
    guarded("hipFree", [&resource] { return free_now(resource); });
  }
  return nullptr;
}

// Call with the mutex held. Without a thread the list grows until there is a moment without a collective.
void start_thread() {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_t thread;
  if (pthread_create(&thread, nullptr, free_surplus, nullptr) == 0) {
    pthread_detach(thread);
    ++releases->threads;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

// Call with the mutex held.
void defer(const DeviceResource &resource, bool is_for_calls) {
  releases->deferred.push_back({resource, is_for_calls});
  releases->deferred_count.store(releases->deferred.size());
  const bool is_surplus = !is_for_calls && releases->deferred.size() > most_deferred;
  if (is_surplus && releases->threads < most_threads) start_thread();
}

// Whether it is to be freed now, which end_free() follows.
bool begin_free(const DeviceResource &resource) {
  std::lock_guard<std::mutex> lock(releases->mutex);
  if (releases->leaks) return false;
  if (has_remote_waits(resource.device)) {
    defer(resource, false);
    return false;
  }
  ++releases->being_freed[index_of(resource.device)];
  return true;
}

void end_free(int device) {
  {
    std::lock_guard<std::mutex> lock(releases->mutex);
    --releases->being_freed[index_of(device)];
  }
  releases->freed.notify_all();
}

// Takes what is listed of devices without a pending collective off the list.
std::vector<DeviceResource> take_ready() {
  std::lock_guard<std::mutex> lock(releases->mutex);
  std::vector<Listed> &all = releases->deferred;
  const auto first = std::stable_partition(all.begin(), all.end(),
                                           [](const Listed &one) { return has_remote_waits(one.resource.device); });
  std::vector<DeviceResource> ready;
  ready.reserve(static_cast<size_t>(all.end() - first));
  std::transform(first, all.end(), std::back_inserter(ready), [](const Listed &one) { return one.resource; });
  all.erase(first, all.end());
  releases->deferred_count.store(all.size());
  return ready;
}

}  // namespace

Status release_resource(const DeviceResource &resource) noexcept {
  return guarded("hipFree", [&] {
    if (!begin_free(resource)) return Status{};
    const Status status = free_now(resource);
    end_free(resource.device);
    return status;
  });
}

Status defer_resource(const DeviceResource &resource) noexcept {
  return guarded("hipFree", [&] {
    std::lock_guard<std::mutex> lock(releases->mutex);
    if (!releases->leaks) defer(resource, true);
    return Status{};
  });
}

Status free_deferred() noexcept {
  return guarded("hipFree", [] {
    Status first{};
    for (const DeviceResource &resource : take_ready()) {
      const Status status = release_resource(resource);
      if (first.ok()) first = status;
    }
    return first;
  });
}

size_t deferred_count() noexcept { return releases->deferred_count.load(); }

void leak_resources() noexcept {
  std::lock_guard<std::mutex> lock(releases->mutex);
  releases->leaks = true;
}

void begin_remote_wait(int device) noexcept {
  std::unique_lock<std::mutex> lock(releases->mutex);
  releases->freed.wait(lock, [device] { return releases->being_freed[index_of(device)] == 0; });
  releases->remote_waits[index_of(device)].fetch_add(1);
}

void end_remote_wait(int device) noexcept { releases->remote_waits[index_of(device)].fetch_sub(1); }

bool has_remote_waits(int device) noexcept { return releases->remote_waits[index_of(device)].load() != 0; }

}  // namespace rocpy
