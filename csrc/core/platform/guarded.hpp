// SPDX-License-Identifier: MIT
// Runs what allocates, so that no exception leaves the core: those who call it have no C++ handlers above them.
#pragma once

#include <exception>
#include <new>

#include "status.hpp"

namespace rocpy {

inline Status out_of_memory(const char *function) noexcept { return {Library::hip, hipErrorOutOfMemory, function}; }

// The status that `body` gives, or that of what it throws.
template <class Body>
Status guarded(const char *function, Body body) noexcept {
  try {
    return body();
  } catch (const std::bad_alloc &) {
    return out_of_memory(function);
  } catch (const std::exception &) {
    return {Library::hip, hipErrorUnknown, function};  // a mutex that the system refuses
  }
}

}  // namespace rocpy
