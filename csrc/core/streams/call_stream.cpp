// SPDX-License-Identifier: MIT
// Waits of a call for what orders the reads of its operands.
#include "call_stream.hpp"

#include "capture_relaxed.hpp"
#include "table.hpp"

namespace rocpy {

void *&call_stream_of_thread() {
  thread_local void *stream = nullptr;
  return stream;
}

Status wait_for_earlier_work(hipStream_t stream) {
  hipStreamCaptureStatus state = hipStreamCaptureStatusNone;
  if (table.hipStreamIsCapturing(stream, &state) != hipSuccess) {
    clear_last_error(Library::hip);  // the launch will report what is wrong with the stream
    return {};
  }
  if (state != hipStreamCaptureStatusNone) return {};
  CaptureRelaxed relaxed;
  return {Library::hip, table.hipStreamSynchronize(stream), "hipStreamSynchronize"};
}

Status wait_for_event(hipEvent_t event) {
  CaptureRelaxed relaxed;
  return {Library::hip, table.hipEventSynchronize(event), "hipEventSynchronize"};
}

}  // namespace rocpy
