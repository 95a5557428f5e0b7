// SPDX-License-Identifier: MIT
// User objects in graphs that other libraries capture, and the list of those that are gone.
#include "captured_graph.hpp"

#include <atomic>
#include <mutex>
#include <new>

#include "capture_relaxed.hpp"
#include "guarded.hpp"
#include "table.hpp"

namespace rocpy {
namespace {

struct Watched {
  uint64_t number;
  Watched *next;
};

std::atomic<Watched *> gone{nullptr};

// HIP calls it on any thread, where HIP must not be called: what belonged to the graph is freed by the next who asks.
void report(void *data) {
  auto *watched = static_cast<Watched *>(data);
  watched->next = gone.load(std::memory_order_relaxed);
  while (!gone.compare_exchange_weak(watched->next, watched, std::memory_order_release)) {
  }
}

// Gives an object to a graph, which has the only reference to it.
hipError_t give(hipGraph_t graph, void *data, hipHostFn_t destroy, bool *is_taken) {
  hipUserObject_t object = nullptr;
  hipError_t error = table.hipUserObjectCreate(&object, data, destroy, 1, hipUserObjectNoDestructorSync);
  if (error != hipSuccess) return error;
  error = table.hipGraphRetainUserObject(graph, object, 1, hipGraphUserObjectMove);
  *is_taken = true;  // from here on the destructor has the data
  if (error != hipSuccess) table.hipUserObjectRelease(object, 1);
  return error;
}

std::atomic<int> trials_ended{0};
void end_trial(void *) { trials_ended.fetch_add(1); }

// Whether what is instantiated from a graph keeps its objects when the graph goes. HIP's documentation does not say,
// and callers usually destroy the graph at once.
bool instances_keep_objects() {
  static std::mutex mutex;
  static decltype(table.hipGraphRetainUserObject) proven = nullptr;
  std::lock_guard<std::mutex> lock(mutex);
  if (proven == table.hipGraphRetainUserObject) return true;
  hipGraph_t graph = nullptr;
  hipGraphExec_t instance = nullptr;
  hipGraphNode_t node = nullptr;
  bool is_taken = false;
  if (table.hipGraphCreate(&graph, 0) != hipSuccess) return false;
  bool is_retained = table.hipGraphAddEmptyNode(&node, graph, nullptr, 0) == hipSuccess &&
                     give(graph, nullptr, end_trial, &is_taken) == hipSuccess &&
                     table.hipGraphInstantiate(&instance, graph, nullptr, nullptr, 0) == hipSuccess;
  const int ended = trials_ended.load();
  is_retained = table.hipGraphDestroy(graph) == hipSuccess && is_retained && trials_ended.load() == ended;
  if (instance) is_retained = table.hipGraphExecDestroy(instance) == hipSuccess && is_retained;
  if (is_retained) proven = table.hipGraphRetainUserObject;
  return is_retained;
}

}  // namespace

Status watch_captured_graph(hipStream_t stream, uint64_t number, bool *watched) {
  *watched = false;
  CaptureRelaxed relaxed;
  hipStreamCaptureStatus state = hipStreamCaptureStatusNone;
  hipGraph_t graph = nullptr;
  if (!has("hipGraphRetainUserObject") || !instances_keep_objects() ||
      table.hipStreamGetCaptureInfo_v2(stream, &state, nullptr, &graph, nullptr, nullptr) != hipSuccess ||
      state != hipStreamCaptureStatusActive || !graph) {
    table.hipGetLastError();  // nobody else is to hear of it
    return Status{};
  }
  auto *data = new (std::nothrow) Watched{number, nullptr};
  if (!data) return out_of_memory("hipUserObjectCreate");
  bool is_taken = false;
  *watched = give(graph, data, report, &is_taken) == hipSuccess;
  if (!is_taken) delete data;
  if (!*watched) table.hipGetLastError();
  return Status{};
}

bool take_gone_graph(uint64_t *number) noexcept {
  Watched *first = gone.load(std::memory_order_relaxed);
  if (!first) return false;
  first = gone.exchange(nullptr, std::memory_order_acquire);
  if (!first) return false;
  *number = first->number;
  Watched *rest = first->next;
  delete first;
  while (rest) {  // back, one by one: others may have been added
    Watched *next = rest->next;
    report(rest);
    rest = next;
  }
  return true;
}

}  // namespace rocpy
