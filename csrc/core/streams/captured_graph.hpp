// SPDX-License-Identifier: MIT
// When a graph that another library captured is gone: with it go the handle and the workspace that its products were
// lent. HIP tells it by user objects, which a graph keeps, what is instantiated or cloned from it, and its launches.
#pragma once

#include <cstdint>

#include "status.hpp"
#include "types.h"

namespace rocpy {

// Lets the graph that a stream is captured into be reported by take_gone_graph() under a number. `*watched` is false
// where the runtime has no user objects, or drops them with the graph although what was instantiated from it lives on.
Status watch_captured_graph(hipStream_t stream, uint64_t number, bool *watched);

// Takes one of the numbers whose graphs are gone; false: there is none.
bool take_gone_graph(uint64_t *number) noexcept;

}  // namespace rocpy
