// SPDX-License-Identifier: MIT
// The pool of stream contexts: found by (device, stream), made on first use. Those of streams and graphs that are gone
// are lent again; the least recently used idle ones are dropped when there are too many.
#include "context.hpp"

#include <pthread.h>

#include <algorithm>
#include <memory>
#include <new>

#include "device_resets.hpp"
#include "device_resources.hpp"
#include "guarded.hpp"
#include "spin_lock.hpp"
#include "table.hpp"

namespace rocpy {
namespace {

// Contexts above which idle ones are dropped: the larger number while more than half of the device's memory is free. A
// program whose streams take turns with more of them than that makes a handle for each product.
constexpr size_t max_contexts = 256, max_contexts_in_short_memory = 64;
// A handle takes 25 MiB of device memory in ROCm 10.0 and 8 MiB more in 10.1 (facts of its source); the margin is for
// its kernels.
constexpr size_t handle_bytes = size_t{64} << 20;

struct Pool {
  std::mutex mutex;                       // for making and dropping, which call the platform
  SpinLock lock;                          // for the list alone; taken inside the mutex where both are
  std::vector<StreamContext *> contexts;  // the most recently used first
  size_t limit = max_contexts;            // by the memory that was free when the last one was made; under the mutex
};

// Never destroyed: at exit the platform's libraries may already be gone, and the process gives everything back anyway.
Pool *pool = new Pool;

// A child of fork() has the parent's bookkeeping but none of its threads; a lock may be held by one that is gone. What
// there was is left as it is, in the same place: a child may have no memory to spare.
void abandon_in_child() { new (pool) Pool; }
const int at_fork = pthread_atfork(nullptr, nullptr, abandon_in_child);

thread_local StreamContext *preferred = nullptr;

// No stream has the address of a context as its handle: from here on no call finds it.
void detach(StreamContext *context) { context->stream = reinterpret_cast<hipStream_t>(context); }

// Call with the pool's mutex held.
Status create(int device, hipStream_t stream, StreamContext **out) {
  DeviceScope scope(device);
  if (!scope.status().ok()) return scope.status();
  CaptureRelaxed relaxed;
  size_t free_bytes = 0, total = 0;
  hipError_t error = table.hipMemGetInfo(&free_bytes, &total);
  if (error != hipSuccess) return Status{Library::hip, error, "hipMemGetInfo"};
  if (free_bytes < handle_bytes) return Status{Library::hipblaslt, HIPBLAS_STATUS_ALLOC_FAILED, "hipblasLtCreate"};
  pool->limit = free_bytes > total / 2 ? max_contexts : max_contexts_in_short_memory;
  auto context = std::make_unique<StreamContext>();  // first: what follows cannot be given back by throwing
  hipblasStatus_t status = table.hipblasLtCreate(&context->handle);
  if (status != HIPBLAS_STATUS_SUCCESS) return Status{Library::hipblaslt, status, "hipblasLtCreate"};
  context->device = device;
  context->resets = device_resets(device);
  context->stream = stream;
  *out = context.release();
  return Status{};
}

// Call with the pool's lock held.
StreamContext *borrow_at(size_t index) {
  const auto first = pool->contexts.begin();
  std::rotate(first, first + static_cast<long>(index), first + static_cast<long>(index) + 1);
  (*first)->users.fetch_add(1, std::memory_order_acquire);
  return *first;
}

StreamContext *borrow_existing(int device, hipStream_t stream, int resets) {
  std::lock_guard<SpinLock> lock(pool->lock);
  for (size_t i = 0; i < pool->contexts.size(); ++i) {
    const StreamContext *context = pool->contexts[i];
    if (context->stream == stream && context->device == device && context->resets == resets) return borrow_at(i);
  }
  return nullptr;
}

// Gives a stream the context of one that is gone.
StreamContext *borrow_spare(int device, hipStream_t stream, int resets) {
  std::lock_guard<SpinLock> lock(pool->lock);
  for (size_t i = 0; i < pool->contexts.size(); ++i) {
    StreamContext *context = pool->contexts[i];
    if (!context->is_spare || context->device != device || context->resets != resets || context->users.load()) continue;
    context->is_spare = false;
    context->stream = stream;
    return borrow_at(i);
  }
  return nullptr;
}

// Takes the idle contexts that put the pool over its limit out of it; while a collective is pending they stay, because
// a new handle for each product until its end would be more of them. Call with its lock held, and `surplus` empty.
void take_surplus(size_t limit, std::vector<StreamContext *> *taken) {
  std::vector<StreamContext *> &surplus = *taken;
  surplus.reserve(pool->contexts.size());
  for (size_t i = pool->contexts.size(); i-- > 0 && pool->contexts.size() > limit;) {
    StreamContext *context = pool->contexts[i];
    if (context->users.load(std::memory_order_acquire) == 0 && !has_remote_waits()) {
      surplus.push_back(context);
      pool->contexts.erase(pool->contexts.begin() + static_cast<long>(i));
    }
  }
}

Status make_pooled(int device, hipStream_t stream, int resets, StreamContext **out) {
  std::unique_lock<std::mutex> making(pool->mutex);
  if ((*out = borrow_existing(device, stream, resets))) return Status{};  // another thread made it meanwhile
  if ((*out = borrow_spare(device, stream, resets))) return Status{};
  StreamContext *created = nullptr;
  Status status = create(device, stream, &created);
  if (!status.ok()) return status;
  created->users.store(1, std::memory_order_release);
  std::vector<StreamContext *> surplus;
  try {
    std::lock_guard<SpinLock> lock(pool->lock);
    pool->contexts.reserve(pool->contexts.size() + 1);
    take_surplus(pool->limit - 1, &surplus);
    pool->contexts.insert(pool->contexts.begin(), created);
  } catch (...) {
    destroy_context(created);
    throw;
  }
  making.unlock();
  for (StreamContext *context : surplus) destroy_context(context);
  *out = created;
  return Status{};
}

}  // namespace

DeviceScope::DeviceScope(int device) {
  int current = -1;
  hipError_t error = table.hipGetDevice(&current);
  if (error == hipSuccess && current != device) {
    error = table.hipSetDevice(device);
    if (error == hipSuccess) previous_ = current;
    status_ = Status{Library::hip, error, "hipSetDevice"};
  } else {
    status_ = Status{Library::hip, error, "hipGetDevice"};
  }
}

DeviceScope::~DeviceScope() {
  if (previous_ >= 0) table.hipSetDevice(previous_);
}

Status borrow_context(int device, hipStream_t stream, StreamContext **out) {
  const int resets = device_resets(device);
  if (preferred && preferred->stream == stream && preferred->device == device) {
    if (preferred->resets != resets) return Status{Library::hip, hipErrorContextIsDestroyed, "hipDeviceReset"};
    preferred->users.fetch_add(1, std::memory_order_acquire);
    *out = preferred;
    return Status{};
  }
  if ((*out = borrow_existing(device, stream, resets))) return Status{};
  return guarded("hipblasLtCreate", [&] { return make_pooled(device, stream, resets, out); });
}

Status lend_to_capture(int device, hipStream_t stream, StreamContext **out) {
  return guarded("hipblasLtCreate", [&] {
    std::lock_guard<std::mutex> making(pool->mutex);
    // Never surplus, as it has a user, and found before the stream's usual one, as it is the first.
    if ((*out = borrow_spare(device, stream, device_resets(device)))) return Status{};
    StreamContext *created = nullptr;
    Status status = create(device, stream, &created);
    if (!status.ok()) return status;
    created->users.store(1, std::memory_order_release);
    try {
      std::lock_guard<SpinLock> lock(pool->lock);
      pool->contexts.insert(pool->contexts.begin(), created);
    } catch (...) {
      destroy_context(created);
      throw;
    }
    *out = created;
    return Status{};
  });
}

void end_lending(StreamContext *context) {
  std::lock_guard<SpinLock> lock(pool->lock);
  for (size_t i = 0; i < pool->contexts.size(); ++i) {
    if (pool->contexts[i] == context) {
      pool->contexts.erase(pool->contexts.begin() + static_cast<long>(i));
      return;
    }
  }
}

Status return_lent(StreamContext *context) {
  bool is_pooled = false;
  guarded("hipblasLtDestroy", [&] {
    std::lock_guard<std::mutex> making(pool->mutex);
    std::lock_guard<SpinLock> lock(pool->lock);
    if (pool->contexts.size() >= pool->limit) return Status{};
    pool->contexts.push_back(context);
    detach(context);
    context->is_spare = is_pooled = true;
    release_context(context);
    return Status{};
  });
  return is_pooled ? Status{} : destroy_context(context);
}

Status destroy_context(StreamContext *context) {
  if (context->base) release_context(context->base);
  Status status{};
  const auto release = [&](ResourceKind kind, void *address) {
    const Status released = release_resource({kind, context->device, context->resets, address});
    if (status.ok()) status = released;
  };
  if (context->workspace && context->owns_workspace) release(ResourceKind::device_memory, context->workspace);
  for (void *workspace : context->replaced) release(ResourceKind::device_memory, workspace);
  if (context->handle && context->owns_handle) release(ResourceKind::hipblaslt_handle, context->handle);
  delete context;
  return status;
}

Status make_context(int device, hipStream_t stream, hipblasLtHandle_t handle, StreamContext **out) {
  StreamContext *base = nullptr;
  if (!handle) {
    Status status = borrow_context(device, stream, &base);
    if (!status.ok()) return status;
  }
  auto *context = new (std::nothrow) StreamContext;
  if (!context) {
    if (base) release_context(base);
    return out_of_memory("hipblasLtCreate");
  }
  context->device = device;
  context->resets = device_resets(device);
  context->stream = stream;
  context->handle = base ? base->handle : handle;
  context->base = base;
  context->owns_handle = false;
  *out = context;
  return Status{};
}

Status set_workspace(StreamContext *context, void *workspace, size_t bytes) {
  return guarded("hipMalloc", [&] {
    std::lock_guard<std::mutex> lock(context->launch_lock());
    if (context->workspace && context->owns_workspace) context->replaced.push_back(context->workspace);
    context->owns_workspace = false;
    context->workspace = workspace;
    context->workspace_bytes = bytes;
    return Status{};
  });
}

StreamContext *prefer_context(StreamContext *context) {
  StreamContext *before = preferred;
  preferred = context;
  return before;
}

void release_context(StreamContext *context) { context->users.fetch_sub(1, std::memory_order_release); }

Status reserve_workspace(StreamContext *context, size_t bytes) {
  if (bytes <= context->workspace_bytes) return Status{};
  // Rounded up so that a run of growing problems does not reallocate at each step.
  size_t wanted = size_t{1} << 20;
  while (wanted < bytes) wanted += wanted / 2;
  wanted = (wanted + 255) / 256 * 256;
  void *fresh = nullptr;
  CaptureRelaxed relaxed;
  const bool replaces = context->workspace && context->owns_workspace;
  if (replaces) {
    const Status reserved = guarded("hipMalloc", [&] {
      context->replaced.reserve(context->replaced.size() + 1);
      return Status{};
    });
    if (!reserved.ok()) return reserved;
  }
  hipError_t error = table.hipMalloc(&fresh, wanted);
  if (error == hipErrorOutOfMemory) {
    wanted = (bytes + 255) / 256 * 256;
    error = table.hipMalloc(&fresh, wanted);
  }
  if (error != hipSuccess) return Status{Library::hip, error, "hipMalloc"};
  if (replaces) context->replaced.push_back(context->workspace);
  context->owns_workspace = true;
  context->workspace = fresh;
  context->workspace_bytes = wanted;
  return Status{};
}

bool is_captured(hipStream_t stream) {
  hipStreamCaptureStatus capture = hipStreamCaptureStatusNone;
  return stream && table.hipStreamIsCapturing(stream, &capture) == hipSuccess && capture != hipStreamCaptureStatusNone;
}

void forget_stream(hipStream_t stream) {
  bool is_idle = false;
  if (!is_captured(stream)) {  // asking would invalidate the capture, and a graph may use what the stream was lent
    CaptureRelaxed relaxed;
    is_idle = table.hipStreamQuery(stream) == hipSuccess;
  }
  std::lock_guard<SpinLock> lock(pool->lock);
  for (StreamContext *context : pool->contexts) {
    if (context->stream != stream) continue;
    detach(context);
    context->is_spare = is_idle && context->users.load(std::memory_order_acquire) == 0;
  }
}

size_t drop_contexts() {
  std::vector<StreamContext *> idle;
  guarded("hipblasLtDestroy", [&] {
    std::lock_guard<SpinLock> lock(pool->lock);
    take_surplus(0, &idle);
    return Status{};
  });
  for (StreamContext *context : idle) destroy_context(context);
  return idle.size();
}

size_t context_count() {
  std::lock_guard<SpinLock> lock(pool->lock);
  return pool->contexts.size();
}

Status library_version(const StreamContext *context, int *version) {
  return Status{Library::hipblaslt, table.hipblasLtGetVersion(context->handle, version), "hipblasLtGetVersion"};
}

}  // namespace rocpy
