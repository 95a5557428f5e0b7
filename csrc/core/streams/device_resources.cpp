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
  // Of all devices: by an event a stream of one may wait for a collective of another.
  std::atomic<int> remote_waits{0};
  int being_freed = 0;  // threads that free something now
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
  if (has_remote_waits()) {
    defer(resource, false);
    return false;
  }
  ++releases->being_freed;
  return true;
}

void end_free() {
  {
    std::lock_guard<std::mutex> lock(releases->mutex);
    --releases->being_freed;
  }
  releases->freed.notify_all();
}

// Takes what is listed off the list, if no collective is pending.
std::vector<DeviceResource> take_ready() {
  std::lock_guard<std::mutex> lock(releases->mutex);
  std::vector<Listed> &all = releases->deferred;
  std::vector<DeviceResource> ready;
  if (has_remote_waits()) return ready;
  ready.reserve(all.size());
  std::transform(all.begin(), all.end(), std::back_inserter(ready), [](const Listed &one) { return one.resource; });
  all.clear();
  releases->deferred_count.store(0);
  return ready;
}

}  // namespace

Status release_resource(const DeviceResource &resource) noexcept {
  return guarded("hipFree", [&] {
    if (!begin_free(resource)) return Status{};
    const Status status = free_now(resource);
    end_free();
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

void begin_remote_wait() noexcept {
  std::unique_lock<std::mutex> lock(releases->mutex);
  releases->freed.wait(lock, [] { return releases->being_freed == 0; });
  releases->remote_waits.fetch_add(1);
}

void end_remote_wait() noexcept { releases->remote_waits.fetch_sub(1); }

bool has_remote_waits() noexcept { return releases->remote_waits.load() != 0; }

}  // namespace rocpy
