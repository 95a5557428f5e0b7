// SPDX-License-Identifier: MIT
// Stream order, as the rest of the platform uses it: whatever a stream is to do is handed over here.
#pragma once

#include "fp_environment.h"
#include "types.h"

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <utility>

namespace rocpy_host {

// Work that owns what it needs. `run` is called once, in stream order, and must delete `this` or recycle it; it must
// not throw.
struct Work {
  virtual void run() = 0;
  virtual ~Work() = default;
};

// Null for the null stream's handle of the current device, hipStreamPerThread and created streams give theirs; null
// result: invalid.
struct Stream;
Stream *resolve(hipStream_t handle);

// True when the caller may do the work itself, now: the stream and all that it must wait for are idle and stress mode
// is off. The stream is then taken until leave_inline(), and work that must follow waits. Cheap enough for every call
// (tens of nanoseconds).
bool enter_inline(Stream *stream);
void leave_inline(Stream *stream);

// Queues the work on the stream; it runs on a worker thread. The result is the work's ticket: tickets of a stream count
// up from 1 and are done in that order. Throws std::bad_alloc, the work then still being the caller's.
uint64_t enqueue(Stream *stream, Work *work);

// Waits until the stream has done everything up to the ticket. False: the process is exiting and the work was
// abandoned.
bool wait(Stream *stream, uint64_t ticket);
bool is_done(const Stream *stream, uint64_t ticket);

int device_of(const Stream *stream);

// Waits for a device's work, as hipFree does before it frees: not where a capture forbids it, nor at exit.
hipError_t wait_to_free(int device);

// Stream capture. While any stream is captured, work is offered to the capture of its stream before it is done: an
// answer says that it became a node of the graph (hipSuccess) or is refused, and the caller is through; without one it
// is done as ever. Whether the work can be done at all is to be checked before.
extern std::atomic<int> captures_in_progress;
// `parameters()` gives what the row that reads the node's parameters answers, or null.
std::optional<hipError_t> capture_work(Stream *stream, hipGraphNodeType type, std::function<void()> work,
                                       std::shared_ptr<const void> parameters = nullptr);

template <class Function, class Parameters>
std::optional<hipError_t> offer_to_capture(Stream *stream, hipGraphNodeType type, const Function &function,
                                           const Parameters &parameters) noexcept {
  if (captures_in_progress.load(std::memory_order_relaxed) == 0) {
    return std::nullopt;
  }
  try {
    return capture_work(stream, type, function, parameters());
  } catch (const std::bad_alloc &) {
    return hipErrorOutOfMemory;
  }
}

template <class Function>
std::optional<hipError_t> offer_to_capture(Stream *stream, hipGraphNodeType type, const Function &function) noexcept {
  return offer_to_capture(stream, type, function, [] { return nullptr; });
}

template <class Function>
struct Task final : Work {
  explicit Task(Function body) : function(std::move(body)) {}
  void run() override {
    function();
    delete this;
  }
  Function function;
};

// Queues a function object; what it captures by value lives until it has run.
template <class Function>
uint64_t enqueue_function(Stream *stream, Function function) {
  auto *task = new Task<Function>(std::move(function));
  try {
    return enqueue(stream, task);
  } catch (...) {
    delete task;
    throw;
  }
}

// What computes on the caller's thread does so in the environment that the queue's workers have.
template <class Function>
void run_in_default_environment(Function &function) {
  const rocpy::DefaultFpEnvironment environment;
  function();
}

// Runs a function object in stream order: at once where that is allowed, else from the queue.
template <class Function>
void in_order(Stream *stream, Function function) {
  if (enter_inline(stream)) {
    run_in_default_environment(function);
    leave_inline(stream);
  } else {
    enqueue_function(stream, std::move(function));
  }
}

// The same, and returns when it has run. False: the process is exiting and the work was abandoned.
template <class Function>
bool in_order_and_wait(Stream *stream, Function function) {
  if (enter_inline(stream)) {
    run_in_default_environment(function);
    leave_inline(stream);
    return true;
  }
  return wait(stream, enqueue_function(stream, std::move(function)));
}

}  // namespace rocpy_host
