// SPDX-License-Identifier: MIT
// Stream capture: which streams are captured into which graph, and what must not be done meanwhile.
#include "graph.hpp"
#include "lazy.h"

#include <algorithm>

namespace rocpy_host {

std::atomic<int> captures_in_progress{0};

namespace {

thread_local hipStreamCaptureMode thread_mode = hipStreamCaptureModeGlobal;
uint64_t next_capture_id = 1;

// Threads by number, since the system's own names for them are used again.
uint64_t thread_number() {
  static std::atomic<uint64_t> next{1};
  thread_local const uint64_t number = next.fetch_add(1);
  return number;
}

// Never destroyed, as the runtime.
std::vector<std::shared_ptr<Capture>> &captures() {
  static rocpy::Lazy<std::vector<std::shared_ptr<Capture>>> list;
  return list.get();
}

void unite(std::vector<size_t> *nodes, const std::vector<size_t> &more) {
  nodes->insert(nodes->end(), more.begin(), more.end());
  std::sort(nodes->begin(), nodes->end());
  nodes->erase(std::unique(nodes->begin(), nodes->end()), nodes->end());
}

// The capture ends for all its streams; its graph is left to the caller.
void end(Capture *capture) {
  capture->is_over = true;
  for (Stream *stream : capture->streams) {
    stream->captured_after.clear();
    stream->capture.reset();  // not the last reference: the list below has one
  }
  auto &list = captures();
  list.erase(std::find_if(list.begin(), list.end(), [=](const auto &one) { return one.get() == capture; }));
  captures_in_progress.fetch_sub(1);
}

std::vector<Stream *>::const_iterator find_stream(const Capture &capture, const Stream *stream) {
  return std::find(capture.streams.begin(), capture.streams.end(), stream);
}

bool has_blocking_stream(const Capture &capture, int device) {
  return std::any_of(capture.streams.begin(), capture.streams.end(),
                     [=](const Stream *stream) { return stream->is_blocking && stream->device == device; });
}

// The null stream waits for every blocking stream of its device, which a captured one cannot be waited for.
std::optional<hipError_t> forbid_null_stream(const Stream *stream) {
  bool is_forbidden = false;
  for (const auto &capture : captures()) {
    if (stream->is_null && has_blocking_stream(*capture, stream->device)) {
      invalidate(capture.get());
      is_forbidden = true;
    }
  }
  return is_forbidden ? std::optional(hipErrorStreamCaptureImplicit) : std::nullopt;
}

std::optional<hipError_t> forbid_unsafe_call() {
  if (thread_mode == hipStreamCaptureModeRelaxed) {
    return std::nullopt;
  }
  bool is_forbidden = false;
  for (const auto &capture : captures()) {
    const bool is_ours = capture->thread == thread_number();
    const bool is_everybodys = thread_mode == hipStreamCaptureModeGlobal && capture->mode == hipStreamCaptureModeGlobal;
    if (capture->mode != hipStreamCaptureModeRelaxed && (is_ours || is_everybodys)) {
      invalidate(capture.get());
      is_forbidden = true;
    }
  }
  return is_forbidden ? std::optional(hipErrorStreamCaptureUnsupported) : std::nullopt;
}

std::optional<hipError_t> forbid_on_captured(const Stream *stream) {
  if (stream->capture == nullptr) {
    return forbid_null_stream(stream);
  }
  invalidate(stream->capture.get());
  return hipErrorStreamCaptureUnsupported;
}

// Whether the origin's next operation would follow every node of the graph.
bool is_joined(const Capture &capture) {
  const std::vector<Node> &nodes = capture.graph->nodes;
  std::vector<bool> is_reached(nodes.size());
  std::vector<size_t> open = capture.streams.front()->captured_after;
  open.insert(open.end(), capture.released.begin(), capture.released.end());
  while (!open.empty()) {
    const size_t index = open.back();
    open.pop_back();
    if (!is_reached[index]) {
      is_reached[index] = true;
      open.insert(open.end(), nodes[index].after.begin(), nodes[index].after.end());
    }
  }
  return std::all_of(is_reached.begin(), is_reached.end(), [](bool reached) { return reached; });
}

}  // namespace

void invalidate(Capture *capture) { capture->is_valid = false; }

void leave_capture(Stream *stream) {
  const std::shared_ptr<Capture> capture = stream->capture;
  if (capture == nullptr) {
    return;
  }
  if (capture->streams.front() == stream) {
    end(capture.get());
    destroy_graph(capture->graph);
    return;
  }
  capture->streams.erase(find_stream(*capture, stream));
  stream->captured_after.clear();
  stream->capture.reset();
}

void forget_captures() {
  while (!captures().empty()) {
    leave_capture(captures().back()->streams.front());
  }
}

std::optional<hipError_t> capture_work(Stream *stream, hipGraphNodeType type, std::function<void()> work,
                                       std::shared_ptr<const void> parameters) {
  Node node;
  node.type = type;
  node.work = std::move(work);
  node.parameters = std::move(parameters);
  return capture_node(stream, std::move(node));
}

std::optional<hipError_t> capture_node(Stream *stream, Node node) {
  if (captures_in_progress.load(std::memory_order_relaxed) == 0) {
    return std::nullopt;
  }
  std::lock_guard<std::mutex> lock(runtime().mutex);
  Capture *capture = stream->capture.get();
  if (capture == nullptr) {
    return forbid_null_stream(stream);
  }
  if (!capture->is_valid) {
    return hipErrorStreamCaptureInvalidated;
  }
  node.device = stream->device;
  node.after = stream->captured_after;
  stream->captured_after.reserve(1);
  stream->captured_after.assign(1, add_node(capture->graph, std::move(node)));
  return hipSuccess;
}

std::optional<hipError_t> capture_forbids_wait(Stream *stream, bool is_query) {
  if (captures_in_progress.load(std::memory_order_relaxed) == 0) {
    return std::nullopt;
  }
  std::lock_guard<std::mutex> lock(runtime().mutex);
  const auto answer = forbid_on_captured(stream);
  return answer.has_value() || is_query ? answer : forbid_unsafe_call();
}

std::optional<hipError_t> capture_forbids_device_wait(int device) {
  if (captures_in_progress.load(std::memory_order_relaxed) == 0) {
    return std::nullopt;
  }
  std::lock_guard<std::mutex> lock(runtime().mutex);
  auto answer = forbid_unsafe_call();
  for (const auto &capture : captures()) {
    if (std::any_of(capture->streams.begin(), capture->streams.end(),
                    [=](const Stream *stream) { return stream->device == device; })) {
      invalidate(capture.get());
      answer = hipErrorStreamCaptureUnsupported;
    }
  }
  return answer;
}

std::optional<hipError_t> capture_forbids_unsafe_call() {
  if (captures_in_progress.load(std::memory_order_relaxed) == 0) {
    return std::nullopt;
  }
  std::lock_guard<std::mutex> lock(runtime().mutex);
  return forbid_unsafe_call();
}

std::optional<hipError_t> capture_forbids_work(Stream *stream) {
  if (captures_in_progress.load(std::memory_order_relaxed) == 0) {
    return std::nullopt;
  }
  std::lock_guard<std::mutex> lock(runtime().mutex);
  return forbid_on_captured(stream);
}

std::optional<hipError_t> capture_forbids_event(const Mark &mark) {
  if (mark.capture == nullptr) {
    return std::nullopt;
  }
  std::lock_guard<std::mutex> lock(runtime().mutex);
  if (mark.capture->is_over) {
    return std::nullopt;
  }
  invalidate(mark.capture.get());
  return hipErrorCapturedEvent;
}

std::optional<hipError_t> capture_record(Stream *stream, Mark *mark) {
  if (captures_in_progress.load(std::memory_order_relaxed) == 0) {
    return std::nullopt;
  }
  std::lock_guard<std::mutex> lock(runtime().mutex);
  if (stream->capture == nullptr) {
    return forbid_null_stream(stream);
  }
  if (!stream->capture->is_valid) {
    return hipErrorStreamCaptureInvalidated;
  }
  mark->capture = stream->capture;
  mark->stream = stream;
  mark->after = stream->captured_after;
  return hipSuccess;
}

std::optional<hipError_t> capture_wait(Stream *stream, const Mark &mark) {
  if (captures_in_progress.load(std::memory_order_relaxed) == 0) {
    return std::nullopt;
  }
  std::lock_guard<std::mutex> lock(runtime().mutex);
  Capture *other = mark.capture != nullptr && !mark.capture->is_over ? mark.capture.get() : nullptr;
  Capture *own = stream->capture.get();
  if (own != nullptr && !own->is_valid) {
    return hipErrorStreamCaptureInvalidated;
  }
  if (other != nullptr && find_stream(*other, mark.stream) == other->streams.end()) {
    return hipSuccess;  // as in AMD's runtime, hipStreamDestroy took its events with it: waiting for them joins nothing
  }
  if (other == nullptr) {
    if (own == nullptr) {
      return forbid_null_stream(stream);
    }
    invalidate(own);
    return hipErrorStreamCaptureIsolation;
  }
  if (!other->is_valid) {
    return hipErrorStreamCaptureInvalidated;
  }
  if (stream->is_null || (own != nullptr && own != other)) {
    invalidate(other);
    if (own != nullptr) {
      invalidate(own);
    }
    return stream->is_null ? hipErrorStreamCaptureImplicit : hipErrorStreamCaptureMerge;
  }
  if (own == nullptr) {
    other->streams.push_back(stream);
    stream->capture = mark.capture;
  }
  unite(&stream->captured_after, mark.after);
  return hipSuccess;
}

hipStreamCaptureStatus capture_status(const Stream *stream) {
  if (stream->capture == nullptr) {
    return hipStreamCaptureStatusNone;
  }
  return stream->capture->is_valid ? hipStreamCaptureStatusActive : hipStreamCaptureStatusInvalidated;
}

bool has_blocking_capture(int device) {
  return std::any_of(captures().begin(), captures().end(),
                     [=](const auto &capture) { return has_blocking_stream(*capture, device); });
}

hipError_t begin_capture(Stream *stream, hipStreamCaptureMode mode) {
  if (stream->is_null) {
    return hipErrorStreamCaptureUnsupported;
  }
  if (static_cast<unsigned>(mode) > hipStreamCaptureModeRelaxed) {
    return hipErrorInvalidValue;
  }
  auto capture = std::make_shared<Capture>();
  std::lock_guard<std::mutex> lock(runtime().mutex);
  if (stream->capture != nullptr) {
    return hipErrorIllegalState;
  }
  capture->mode = mode;
  capture->thread = thread_number();
  capture->streams.push_back(stream);
  captures().reserve(captures().size() + 1);
  capture->graph = create_graph();
  if (capture->graph == nullptr) {
    return hipErrorOutOfMemory;
  }
  capture->graph->is_capturing = true;
  capture->id = next_capture_id++;
  stream->capture = capture;
  captures().push_back(std::move(capture));
  captures_in_progress.fetch_add(1);
  return hipSuccess;
}

hipError_t end_capture(Stream *stream, hipGraph_t *graph) {
  std::lock_guard<std::mutex> lock(runtime().mutex);
  const std::shared_ptr<Capture> capture = stream->capture;
  if (capture == nullptr) {
    return hipErrorIllegalState;
  }
  if (capture->streams.front() != stream) {
    return hipErrorStreamCaptureUnmatched;
  }
  if (capture->mode != hipStreamCaptureModeRelaxed && capture->thread != thread_number()) {
    return hipErrorStreamCaptureWrongThread;
  }
  const hipError_t error = !capture->is_valid     ? hipErrorStreamCaptureInvalidated
                           : !is_joined(*capture) ? hipErrorStreamCaptureUnjoined
                                                  : hipSuccess;
  end(capture.get());
  *graph = reinterpret_cast<hipGraph_t>(capture->graph->handle.load());
  capture->graph->is_capturing = false;
  if (error != hipSuccess) {
    *graph = nullptr;
    destroy_graph(capture->graph);
  }
  capture->graph = nullptr;
  return error;
}

hipStreamCaptureMode exchange_capture_mode(hipStreamCaptureMode mode) {
  const hipStreamCaptureMode before = thread_mode;
  thread_mode = mode;
  return before;
}

}  // namespace rocpy_host
