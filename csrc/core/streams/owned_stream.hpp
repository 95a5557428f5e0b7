// SPDX-License-Identifier: MIT
// A stream that rocpy made. Its Stream and the calls that were given it share it, so that it is destroyed when the
// Stream is closed and no call uses its handle any more: what HIP does with a destroyed stream's handle is not defined.
#pragma once

#include <unistd.h>

#include <memory>
#include <utility>

#include "context.hpp"
#include "device_resets.hpp"
#include "guarded.hpp"
#include "status.hpp"
#include "table.hpp"

namespace rocpy {

class OwnedStream {
 public:
  OwnedStream(hipStream_t stream, int device)
      : stream_(stream), device_(device), resets_(device_resets(device)), process_(getpid()) {}
  ~OwnedStream() { destroy(); }
  OwnedStream(const OwnedStream &) = delete;
  OwnedStream &operator=(const OwnedStream &) = delete;

  Status destroy() {
    const hipStream_t stream = std::exchange(stream_, nullptr);
    if (!stream || process_ != getpid()) return Status{};  // a child has its parent's handles, and no such streams
    if (resets_ != device_resets(device_)) return Status{};
    forget_stream(stream);
    return Status{Library::hip, table.hipStreamDestroy(stream), "hipStreamDestroy"};
  }

 private:
  hipStream_t stream_;
  const int device_, resets_;
  const pid_t process_;
};

// Keeps a stream from being destroyed; empty for streams of others.
struct StreamUse {
  std::shared_ptr<OwnedStream> owned;
};

inline Status own_stream(hipStream_t stream, int device, StreamUse *use) {
  return guarded("hipStreamCreateWithPriority", [&] {
    use->owned = std::make_shared<OwnedStream>(stream, device);
    return Status{};
  });
}

// Destroys the stream unless a call uses it, which does so when it is done.
inline Status end_use(StreamUse *use) {
  Status status{};
  if (use->owned.use_count() == 1) status = use->owned->destroy();
  use->owned.reset();
  return status;
}

}  // namespace rocpy
