// SPDX-License-Identifier: MIT
// What every HIP row does around its work: no exception leaves it, and a failure becomes the thread's last error.
#pragma once

#include "exports.h"

#include <new>

namespace rocpy_host {

// Gives the status back. As in HIP 7, success does not clear the last error and hipErrorNotReady is not one.
hipError_t remember(hipError_t status) noexcept;

// Calls the destructors of user objects whose last reference is gone; with no lock held, since they are anybody's code.
void destroy_unreferenced_objects() noexcept;

template <class Body>
hipError_t hip_call(Body body) noexcept {
  hipError_t status = hipErrorUnknown;
  try {
    status = body();
  } catch (const std::bad_alloc &) {
    status = hipErrorOutOfMemory;
  } catch (...) {
  }
  destroy_unreferenced_objects();
  return remember(status);
}

}  // namespace rocpy_host
