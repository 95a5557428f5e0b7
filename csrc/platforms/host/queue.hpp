// SPDX-License-Identifier: MIT
// Stream order, as the rest of the platform uses it: whatever a stream is to do is handed over here.
#pragma once

#include "types.h"

namespace rocpy_host {

// Work that owns what it needs. `run` is called once, in stream order, and must delete `this` or recycle it.
struct Work {
  virtual void run() = 0;
  virtual ~Work() = default;
};

// Null for the null stream's handle of the current device, hipStreamPerThread and created streams give theirs; null result: invalid.
struct Stream;
Stream *resolve(hipStream_t handle);

// True when the caller may do the work itself, now: the stream and all that it must wait for are idle and stress mode is off. The stream
// is then taken until leave_inline(), and work that must follow waits. Cheap enough for every call (tens of nanoseconds).
bool enter_inline(Stream *stream);
void leave_inline(Stream *stream);

// Queues the work on the stream; it runs on the stream's worker thread.
void enqueue(Stream *stream, Work *work);

}  // namespace rocpy_host
