// SPDX-License-Identifier: MIT
// What every HIP row does around its work: no exception leaves it, and a failure becomes the thread's last error.
#pragma once

#include "exports.h"

#include <new>

namespace rocpy_host {

// Gives the status back. As in HIP 7, success does not clear the last error and hipErrorNotReady is not one.
hipError_t remember(hipError_t status) noexcept;

template <class Body>
hipError_t hip_call(Body body) noexcept {
  try {
    return remember(body());
  } catch (const std::bad_alloc &) {
    return remember(hipErrorOutOfMemory);
  } catch (...) {
    return remember(hipErrorUnknown);
  }
}

}  // namespace rocpy_host
