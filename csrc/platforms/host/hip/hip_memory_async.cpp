// SPDX-License-Identifier: MIT
// HIP rows that give out and free memory in the order of a stream, also as nodes of a graph that it is captured into;
// and those that say where memory is to be.
#include "graph.hpp"
#include "hip_call.hpp"
#include "hip_memory.hpp"

namespace rocpy_host {

namespace {

// Memory of a graph's node is there from the capture on, at an address that every launch gives out anew, until the last
// graph that has the node is gone. An answer without a value: the stream is not captured.
std::optional<hipError_t> capture_allocation(void **pointer, size_t bytes, Stream *stream) {
  Node node;
  node.type = hipGraphNodeTypeMemAlloc;
  node.memory = std::shared_ptr<void *>(new void *(nullptr), [](void **memory) {
    end_of_graph(*memory);
    delete memory;
  });
  const auto memory = node.memory;
  const auto answer = capture_node(stream, std::move(node));
  if (!answer.has_value() || *answer != hipSuccess) {
    return answer;
  }
  const hipError_t error = allocate(memory.get(), bytes, {stream->device, MemoryKind::device, 0, true});
  if (error != hipSuccess) {
    capture_forbids_work(stream);  // the node has nothing to give out: no graph may come of it
    return error;
  }
  *pointer = *memory;
  return hipSuccess;
}

// A graph takes back what a graph gives out; other memory would be freed again by its next launch.
std::optional<hipError_t> capture_free(void *pointer, Stream *stream) {
  if (captures_in_progress.load(std::memory_order_relaxed) == 0) {
    return std::nullopt;
  }
  if (!is_of_graph(pointer)) {
    return capture_forbids_work(stream);
  }
  Node node;
  node.type = hipGraphNodeTypeMemFree;
  node.memory = std::make_shared<void *>(pointer);
  return capture_node(stream, std::move(node));
}

// Memory that prefetching and advice apply to.
bool is_migratable(const void *pointer, size_t bytes) {
  Allocation allocation;
  if (!is_range_valid(pointer, bytes)) {
    return false;
  }
  return find_allocation(pointer, &allocation) ? allocation.kind == MemoryKind::managed : is_host_memory_shared();
}

}  // namespace

}  // namespace rocpy_host

using namespace rocpy_host;

hipError_t rocpy_host_hipMallocAsync(void **ptr, size_t size, hipStream_t stream) {
  return hip_call([=] {
    if (ptr == nullptr) {
      return hipErrorInvalidValue;
    }
    Stream *resolved = resolve(stream);
    if (resolved == nullptr) {
      return hipErrorContextIsDestroyed;
    }
    if (captures_in_progress.load(std::memory_order_relaxed) != 0) {
      if (const auto answer = capture_allocation(ptr, size, resolved)) {
        return *answer;
      }
    }
    // There from the call on, which is earlier than the stream requires, and on the stream's device, whichever is
    // current: work of that device is what hipFree and a reset of it wait for.
    return allocate(ptr, size, {resolved->device});
  });
}

hipError_t rocpy_host_hipFreeAsync(void *ptr, hipStream_t handle) {
  return hip_call([=] {
    if (ptr == nullptr) {
      return hipErrorInvalidValue;
    }
    Stream *stream = resolve(handle);
    if (stream == nullptr) {
      return hipErrorContextIsDestroyed;
    }
    if (const auto answer = capture_free(ptr, stream)) {
      return *answer;
    }
    Allocation allocation;
    if (!claim(ptr, &allocation)) {
      return hipErrorInvalidValue;
    }
    if (allocation.kind != MemoryKind::device) {
      unclaim(allocation);
      return hipErrorInvalidValue;
    }
    in_order(stream, [allocation] { release(allocation); });
    return hipSuccess;
  });
}

hipError_t rocpy_host_hipMemPrefetchAsync(const void *ptr, size_t count, int device, hipStream_t handle) {
  return hip_call([=] {
    if (ptr == nullptr || count == 0) {
      return hipErrorInvalidValue;
    }
    if (device != hipCpuDeviceId && !is_device(device)) {
      return hipErrorInvalidDevice;
    }
    if (!is_migratable(ptr, count)) {
      return hipErrorInvalidValue;
    }
    Stream *stream = resolve(handle);
    if (stream == nullptr) {
      return hipErrorContextIsDestroyed;
    }
    return capture_forbids_work(stream).value_or(hipSuccess);
  });
}

hipError_t rocpy_host_hipMemAdvise(const void *ptr, size_t count, hipMemoryAdvise advice, int device) {
  return hip_call([=] {
    const bool is_known = (advice >= hipMemAdviseSetReadMostly && advice <= hipMemAdviseUnsetAccessedBy) ||
                          advice == hipMemAdviseSetCoarseGrain || advice == hipMemAdviseUnsetCoarseGrain;
    if (ptr == nullptr || count == 0 || !is_known) {
      return hipErrorInvalidValue;
    }
    if (device != hipCpuDeviceId && !is_device(device)) {
      return hipErrorInvalidDevice;
    }
    return is_migratable(ptr, count) ? hipSuccess : hipErrorInvalidValue;
  });
}
