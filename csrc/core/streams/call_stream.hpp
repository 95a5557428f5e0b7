// SPDX-License-Identifier: MIT
// The stream that orders a call of this thread. Whatever reads an operand's elements before the launch, to copy them or
// to look at them, first waits for the earlier work of that stream, which may be what writes them.
#pragma once

#include <utility>

#include "status.hpp"

namespace rocpy {

// What the call was passed as its stream: an object of Python's that the caller keeps; null outside of a call.
void *&call_stream_of_thread();

// A local variable of this type names the stream of a call until the function returns.
class CallStream {
 public:
  CallStream() = default;
  ~CallStream() {
    if (slot_) *slot_ = before_;
  }
  CallStream(const CallStream &) = delete;
  CallStream &operator=(const CallStream &) = delete;

  // Once for each variable.
  void enter(void *stream) {
    slot_ = &call_stream_of_thread();
    before_ = std::exchange(*slot_, stream);
  }

  // The same for what may be a part of another call, whose stream it keeps.
  void enter_outside(void *stream) {
    if (!call_stream_of_thread()) enter(stream);
  }

 private:
  void **slot_ = nullptr;  // the thread's, once entered: looking it up takes a while
  void *before_ = nullptr;
};

// Waits for what a stream was given so far. A stream that is captured is not waited for, nor is the null stream while
// one is captured that it would wait for: that would end the capture.
Status wait_for_earlier_work(hipStream_t stream);

// Waits for an event, also while streams are captured of which it is no part.
Status wait_for_event(hipEvent_t event);

}  // namespace rocpy
