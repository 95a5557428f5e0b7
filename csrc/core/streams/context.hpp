// SPDX-License-Identifier: MIT
// What a stream lends to a product: a hipBLASLt handle and a workspace. One context for each (device, stream), because
// a handle is not safe across concurrent streams and a workspace is ordered by its stream alone.
#pragma once

#include <atomic>
#include <cstddef>
#include <mutex>
#include <vector>

#include "capture_relaxed.hpp"
#include "status.hpp"
#include "types.h"

namespace rocpy {

struct StreamContext {
  int device = 0;
  int resets = 0;  // of the device, before it was made: what it has is gone after another
  hipStream_t stream = nullptr;
  hipblasLtHandle_t handle = nullptr;
  void *workspace = nullptr;
  size_t workspace_bytes = 0;
  std::vector<void *> replaced;   // smaller workspaces that a captured graph may still write to
  std::atomic<int> users{0};      // calls that hold it now; an idle one may be dropped when there are too many
  std::mutex launch;              // one launch at a time on a handle
  StreamContext *base = nullptr;  // a context of the pool whose handle this one uses, with its lock
  bool owns_handle = true, owns_workspace = true;
  bool is_spare = false;  // its stream or graph is gone and was idle: the next new one of the device takes it
  // Whether it is held: a hint, for callers that would rather not wait for it with the GIL.
  std::atomic<bool> launching{false};

  std::mutex &launch_lock() { return base ? base->launch : launch; }
};

// Borrows the context of a stream, making it on first use with `device` current; release_context() gives it back.
// Checks free device memory first, since hipblasLtCreate ends the process when its own allocation fails.
Status borrow_context(int device, hipStream_t stream, StreamContext **out);
void release_context(StreamContext *context);

// A context of its own for a stream that is captured: until end_lending(), the stream's products take it instead of
// the pool's. What they launch goes on using it: it returns to the pool when neither the graph nor a launch of it is
// there any more, and is lent again, because freeing it would wait for all work of the device.
Status lend_to_capture(int device, hipStream_t stream, StreamContext **out);
void end_lending(StreamContext *context);
Status return_lent(StreamContext *context);

// A context that its maker owns, of a handle that lives elsewhere (null: that of the pool's context) and of a workspace
// that the maker sets, or its own where that is too small. A thread's products take it instead of the pool's while it
// is preferred; destroy_context() ends it.
Status make_context(int device, hipStream_t stream, hipblasLtHandle_t handle, StreamContext **out);
Status set_workspace(StreamContext *context, void *workspace, size_t bytes);
Status destroy_context(StreamContext *context);         // waits for the device, as release_resource() does
StreamContext *prefer_context(StreamContext *context);  // the calling thread's; gives the one before

// Grows the workspace to at least `bytes`. Call with `launch` held. Contents do not survive; the old block stays until
// the context goes.
Status reserve_workspace(StreamContext *context, size_t bytes);

// The version of the library behind a context, as hipblasLtGetVersion gives it.
Status library_version(const StreamContext *context, int *version);

// Whether work on the stream goes into a graph.
bool is_captured(hipStream_t stream);

// Takes back what a stream that is about to be destroyed was lent, so that no stream that gets the same handle is lent
// it while work of this one may still use it. Where the stream is idle, the next one of its device is lent it;
// otherwise it is left to the pool's limit.
void forget_stream(hipStream_t stream);

// Drops every idle context, but for those of devices with a pending collective, and gives how many: for
// rocpy.plan_cache.clear() and for tests.
size_t drop_contexts();
size_t context_count();

// Sets the calling thread's HIP device for a scope when it differs.
class DeviceScope {
 public:
  explicit DeviceScope(int device);
  ~DeviceScope();
  DeviceScope(const DeviceScope &) = delete;
  DeviceScope &operator=(const DeviceScope &) = delete;
  Status status() const { return status_; }

 private:
  int previous_ = -1;
  Status status_;
};

}  // namespace rocpy
