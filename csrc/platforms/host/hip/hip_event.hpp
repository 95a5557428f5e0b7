// SPDX-License-Identifier: MIT
// Events, as a kernel's launch records them.
#pragma once

#include "queue.hpp"

namespace rocpy_host {

// Whether the event is one of the stream's device; and hipEventRecord on that stream.
bool can_record(hipEvent_t event, const Stream *stream);
hipError_t record_event(hipEvent_t event, Stream *stream);

}  // namespace rocpy_host
