// SPDX-License-Identifier: MIT
// HIP rows about the capture of streams.
#include "graph.hpp"
#include "hip_call.hpp"

namespace rocpy_host {

namespace {

// Runs body(stream) if the handle is a stream's.
template <class Body>
hipError_t with_stream(hipStream_t handle, Body body) {
  return hip_call([&] {
    Stream *stream = resolve(handle);
    return stream != nullptr ? body(stream) : hipErrorContextIsDestroyed;
  });
}

// What may be asked of a stream at any time. The null stream has no answer while one is captured that it would wait
// for.
hipError_t ask_status(const Stream *stream, hipStreamCaptureStatus *status, unsigned long long *id) {
  if (stream->is_null && has_blocking_capture(stream->device)) {
    return hipErrorStreamCaptureImplicit;
  }
  *status = capture_status(stream);
  if (id != nullptr && *status == hipStreamCaptureStatusActive) {
    *id = stream->capture->id;
  }
  return hipSuccess;
}

hipError_t name_all(Graph *graph, const std::vector<size_t> &nodes, std::vector<hipGraphNode_t> *names) {
  names->clear();
  for (const size_t index : nodes) {
    names->push_back(name_node(graph, index));
    if (names->back() == nullptr) {
      return hipErrorOutOfMemory;
    }
  }
  return hipSuccess;
}

// What the stream's next work follows, replaced or added to.
hipError_t update(Stream *stream, const hipGraphNode_t *dependencies, size_t count, bool replaces) {
  Capture *capture = stream->capture.get();
  if (capture == nullptr) {
    return hipErrorIllegalState;
  }
  if (!capture->is_valid) {
    return hipErrorStreamCaptureInvalidated;
  }
  std::vector<size_t> after;
  if (!replaces) {
    after = stream->captured_after;
  }
  for (size_t i = 0; i < count; ++i) {
    const NodeName *name = graph_nodes().find(dependencies[i]);
    if (name == nullptr || name->graph != capture->graph) {
      return hipErrorInvalidValue;
    }
    after.push_back(name->index);
  }
  if (replaces) {
    capture->released.insert(capture->released.end(), stream->captured_after.begin(), stream->captured_after.end());
  }
  stream->captured_after.swap(after);
  return hipSuccess;
}

}  // namespace

}  // namespace rocpy_host

using namespace rocpy_host;

hipError_t rocpy_host_hipStreamBeginCapture(hipStream_t stream, hipStreamCaptureMode mode) {
  return with_stream(stream, [=](Stream *resolved) { return begin_capture(resolved, mode); });
}

hipError_t rocpy_host_hipStreamEndCapture(hipStream_t stream, hipGraph_t *graph) {
  return with_stream(
      stream, [=](Stream *resolved) { return graph != nullptr ? end_capture(resolved, graph) : hipErrorInvalidValue; });
}

hipError_t rocpy_host_hipStreamIsCapturing(hipStream_t stream, hipStreamCaptureStatus *status) {
  return with_stream(stream, [=](const Stream *resolved) {
    std::lock_guard<std::mutex> lock(runtime().mutex);
    return status != nullptr ? ask_status(resolved, status, nullptr) : hipErrorInvalidValue;
  });
}

hipError_t rocpy_host_hipStreamGetCaptureInfo(hipStream_t stream, hipStreamCaptureStatus *status,
                                              unsigned long long *id) {
  return with_stream(stream, [=](const Stream *resolved) {
    std::lock_guard<std::mutex> lock(runtime().mutex);
    return status != nullptr ? ask_status(resolved, status, id) : hipErrorInvalidValue;
  });
}

hipError_t rocpy_host_hipStreamGetCaptureInfo_v2(hipStream_t stream, hipStreamCaptureStatus *status,
                                                 unsigned long long *id, hipGraph_t *graph,
                                                 const hipGraphNode_t **dependencies, size_t *dependency_count) {
  return with_stream(stream, [=](const Stream *resolved) {
    if (status == nullptr) {
      return hipErrorInvalidValue;
    }
    std::lock_guard<std::mutex> lock(runtime().mutex);
    const hipError_t error = ask_status(resolved, status, id);
    if (error != hipSuccess || *status != hipStreamCaptureStatusActive) {
      return error;
    }
    Capture *capture = resolved->capture.get();
    if (const hipError_t failed = name_all(capture->graph, resolved->captured_after, &capture->dependencies)) {
      return failed;
    }
    if (graph != nullptr) {
      *graph = reinterpret_cast<hipGraph_t>(capture->graph->handle.load());
    }
    if (dependencies != nullptr) {
      *dependencies = capture->dependencies.data();
    }
    if (dependency_count != nullptr) {
      *dependency_count = capture->dependencies.size();
    }
    return hipSuccess;
  });
}

hipError_t rocpy_host_hipStreamUpdateCaptureDependencies(hipStream_t stream, hipGraphNode_t *dependencies,
                                                         size_t dependency_count, unsigned int flags) {
  return with_stream(stream, [=](Stream *resolved) {
    if ((dependencies == nullptr && dependency_count != 0) || flags > hipStreamSetCaptureDependencies) {
      return hipErrorInvalidValue;
    }
    std::lock_guard<std::mutex> lock(runtime().mutex);
    return update(resolved, dependencies, dependency_count, flags == hipStreamSetCaptureDependencies);
  });
}

hipError_t rocpy_host_hipThreadExchangeStreamCaptureMode(hipStreamCaptureMode *mode) {
  return hip_call([=] {
    if (mode == nullptr || static_cast<unsigned>(*mode) > hipStreamCaptureModeRelaxed) {
      return hipErrorInvalidValue;
    }
    *mode = exchange_capture_mode(*mode);
    return hipSuccess;
  });
}
