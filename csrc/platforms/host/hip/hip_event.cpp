// SPDX-License-Identifier: MIT
// HIP rows about events. A record is a point in a stream that takes the time when it is reached.
#include "hip_event.hpp"

#include "graph.hpp"
#include "hip_call.hpp"
#include "lazy.h"

#include <time.h>

#include <memory>

namespace rocpy_host {

namespace {

constexpr unsigned disable_system_fence = 0x20000000;  // hipEventDisableSystemFence

int64_t now_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * int64_t{1000000000} + now.tv_nsec;
}

struct Record {
  Point point{nullptr, 0};
  Mark mark;  // instead of the point, in a capture
  std::atomic<int64_t> time_ns{0};
  bool is_done() const { return rocpy_host::is_done(point.stream, point.ticket); }
};

struct Event {
  std::atomic<uint64_t> handle{0};
  uint32_t slot = 0, generation = 0;
  unsigned flags = 0;
  int device = 0;
  std::shared_ptr<Record> record;  // the last one; under the runtime's mutex
};

using EventTable = HandleTable<Event, 'E'>;

// Never destroyed, as the runtime.
EventTable &events() {
  static rocpy::Lazy<EventTable> table;
  return table.get();
}

hipError_t create(hipEvent_t *event, unsigned flags) {
  constexpr unsigned release_flags = hipEventReleaseToDevice | hipEventReleaseToSystem | disable_system_fence;
  constexpr unsigned known_flags = hipEventBlockingSync | hipEventDisableTiming | hipEventInterprocess | release_flags;
  const unsigned release = flags & release_flags;
  if (event == nullptr || (flags & ~known_flags) != 0 || (release & (release - 1)) != 0) {
    return hipErrorInvalidValue;
  }
  if ((flags & hipEventInterprocess) != 0) {
    return (flags & hipEventDisableTiming) != 0 ? hipErrorNotSupported : hipErrorInvalidValue;
  }
  std::lock_guard<std::mutex> lock(runtime().mutex);
  Event *created = events().take();
  if (created == nullptr) {
    return hipErrorOutOfMemory;
  }
  created->flags = flags;
  created->device = current_device();
  *event = reinterpret_cast<hipEvent_t>(events().publish(created));
  return hipSuccess;
}

// Runs body(event) if the handle is an event's.
template <class Body>
hipError_t with_event(hipEvent_t handle, Body body) {
  return hip_call([&] {
    if (handle == nullptr) {
      return hipErrorInvalidHandle;
    }
    Event *event = events().find(handle);
    return event != nullptr ? body(event) : hipErrorContextIsDestroyed;
  });
}

// None for an event that was recorded in a capture: once that is over, the event counts as never recorded.
std::shared_ptr<Record> last_record(Event *event, Mark *mark) {
  std::lock_guard<std::mutex> lock(runtime().mutex);
  if (event->record == nullptr || event->record->mark.capture == nullptr) {
    return event->record;
  }
  *mark = event->record->mark;
  return nullptr;
}

void set_record(Event *event, std::shared_ptr<Record> record) {
  std::lock_guard<std::mutex> lock(runtime().mutex);
  event->record.swap(record);
}

hipError_t record(Event *event, Stream *stream) {
  if (stream == nullptr) {
    return hipErrorContextIsDestroyed;
  }
  if (stream->device != event->device) {
    return hipErrorInvalidHandle;
  }
  auto recorded = std::make_shared<Record>();
  recorded->point.stream = stream;
  if (const auto answer = capture_record(stream, &recorded->mark)) {
    if (*answer == hipSuccess) {
      set_record(event, std::move(recorded));
    }
    return *answer;
  }
  if (const uint64_t ticket = begin_inline(stream)) {
    recorded->point.ticket = ticket;
    recorded->time_ns.store(now_ns(), std::memory_order_relaxed);
    leave_inline(stream);
  } else {
    recorded->point.ticket = enqueue_function_item(
        stream, [recorded] { recorded->time_ns.store(now_ns(), std::memory_order_relaxed); }, ItemKind::mark, nullptr);
  }
  set_record(event, std::move(recorded));
  return hipSuccess;
}

hipError_t elapsed(float *ms, Event *start, Event *stop) {
  Mark first_mark, second_mark;
  const auto first = last_record(start, &first_mark), second = last_record(stop, &second_mark);
  for (const Mark *mark : {&first_mark, &second_mark}) {
    if (const auto answer = capture_forbids_event(*mark)) {
      return *answer;
    }
  }
  if (first == nullptr || second == nullptr || ((start->flags | stop->flags) & hipEventDisableTiming) != 0 ||
      start->device != stop->device) {
    return hipErrorInvalidHandle;
  }
  if (!first->is_done() || !second->is_done()) {
    return hipErrorNotReady;
  }
  const int64_t from = first->time_ns.load(std::memory_order_relaxed);
  const int64_t to = second->time_ns.load(std::memory_order_relaxed);
  if (from == 0 || to == 0) {
    return hipErrorInvalidHandle;  // recorded before a fork, never reached in this process
  }
  *ms = static_cast<float>(static_cast<double>(to - from) * 1e-6);
  return hipSuccess;
}

}  // namespace

bool can_record(hipEvent_t handle, const Stream *stream) {
  const Event *event = events().find(handle);
  return event != nullptr && event->device == stream->device;
}

hipError_t record_event(hipEvent_t handle, Stream *stream) {
  Event *event = events().find(handle);
  return event != nullptr ? record(event, stream) : hipErrorContextIsDestroyed;
}

}  // namespace rocpy_host

using namespace rocpy_host;

hipError_t rocpy_host_hipEventCreate(hipEvent_t *event) {
  return hip_call([=] { return create(event, hipEventDefault); });
}

hipError_t rocpy_host_hipEventCreateWithFlags(hipEvent_t *event, unsigned int flags) {
  return hip_call([=] { return create(event, flags); });
}

hipError_t rocpy_host_hipEventRecord(hipEvent_t handle, hipStream_t stream) {
  return with_event(handle, [=](Event *event) { return record(event, resolve(stream)); });
}

hipError_t rocpy_host_hipEventRecordWithFlags(hipEvent_t handle, hipStream_t stream, unsigned int flags) {
  return with_event(handle, [=](Event *event) {
    // The only other flag, "external", would make a node that records when a graph runs; there is none here.
    return flags == 0 ? record(event, resolve(stream)) : hipErrorInvalidValue;
  });
}

hipError_t rocpy_host_hipEventSynchronize(hipEvent_t handle) {
  return with_event(handle, [](Event *event) {
    Mark mark;
    const auto record = last_record(event, &mark);
    auto answer = capture_forbids_event(mark);
    if (!answer.has_value()) {
      answer = capture_forbids_unsafe_call();
    }
    if (answer.has_value()) {
      return *answer;
    }
    return record == nullptr || wait(record->point.stream, record->point.ticket) ? hipSuccess : hipErrorDeinitialized;
  });
}

hipError_t rocpy_host_hipEventQuery(hipEvent_t handle) {
  return with_event(handle, [](Event *event) {
    Mark mark;
    const auto record = last_record(event, &mark);
    if (const auto answer = capture_forbids_event(mark)) {
      return *answer;
    }
    return record == nullptr || record->is_done() ? hipSuccess : hipErrorNotReady;
  });
}

hipError_t rocpy_host_hipEventElapsedTime(float *ms, hipEvent_t start, hipEvent_t stop) {
  return with_event(start, [=](Event *first) {
    if (ms == nullptr) {
      return hipErrorInvalidValue;
    }
    if (stop == nullptr) {
      return hipErrorInvalidHandle;
    }
    Event *second = events().find(stop);
    return second != nullptr ? elapsed(ms, first, second) : hipErrorContextIsDestroyed;
  });
}

hipError_t rocpy_host_hipEventDestroy(hipEvent_t handle) {
  std::shared_ptr<Record> dropped;  // released after the mutex
  return with_event(handle, [&dropped, handle](Event *) {
    std::lock_guard<std::mutex> lock(runtime().mutex);
    Event *event = events().find(handle);
    if (event == nullptr) {
      return hipErrorContextIsDestroyed;
    }
    events().retire(event);
    dropped.swap(event->record);
    events().give_back(event);
    return hipSuccess;
  });
}

hipError_t rocpy_host_hipStreamWaitEvent(hipStream_t stream_handle, hipEvent_t handle, unsigned int flags) {
  return with_event(handle, [=](Event *event) {
    Stream *stream = resolve(stream_handle);
    if (stream == nullptr) {
      return hipErrorContextIsDestroyed;
    }
    if (flags != 0) {
      return hipErrorInvalidValue;
    }
    Mark mark;
    const auto record = last_record(event, &mark);
    if (const auto answer = capture_wait(stream, mark)) {
      return *answer;
    }
    if (record != nullptr && record->point.stream != stream && !record->is_done()) {
      enqueue_function_item(stream, [] {}, ItemKind::mark, &record->point);
    }
    return hipSuccess;
  });
}
