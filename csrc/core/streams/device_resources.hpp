// SPDX-License-Identifier: MIT
// Frees what the platform frees only after all work of its device: memory, and library handles, which own some. While a
// collective may wait for other ranks, on this device or on another that this one's streams wait for, that wait has no
// deadline, and the call that would end it may be the same thread's next one: what is released meanwhile is listed, and
// freed once no collective of the process is pending. Where that never comes because collectives overlap, the list does
// not grow for ever: threads in the background wait.
#pragma once

#include <cstddef>
#include <cstdint>

#include "status.hpp"

namespace rocpy {

enum class ResourceKind : int32_t { device_memory, pinned_memory, rccl_memory, hipblaslt_handle };

struct DeviceResource {
  ResourceKind kind = ResourceKind::device_memory;
  int device = 0;
  int resets = 0;  // of the device, before it was made: another one frees it
  void *address = nullptr;
};

// Frees a resource, now or with the first free_deferred() after the collectives.
Status release_resource(const DeviceResource &resource) noexcept;
// Leaves it to free_deferred() in any case.
Status defer_resource(const DeviceResource &resource) noexcept;
// Frees what is listed, unless a collective is pending; the status is the first that is not a success.
Status free_deferred() noexcept;
size_t deferred_count() noexcept;

// From here on nothing is freed: where the interpreter ends, a device may wait for a thread that no longer runs.
void leak_resources() noexcept;

// A collective that may wait for other ranks: begins before it is queued, once nobody frees anything, because who does
// so has seen no collective to wait for.
void begin_remote_wait() noexcept;
void end_remote_wait() noexcept;
bool has_remote_waits() noexcept;

}  // namespace rocpy
