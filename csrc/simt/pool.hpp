// SPDX-License-Identifier: MIT
// OS threads that help a launch with its blocks, kept from launch to launch.
#pragma once

#include <functional>

namespace rocpy::simt {

// Threads that a launch of the calling thread may use: the same budget as that of the host platform's products.
int default_threads();

// Calls `body` in the calling thread and, as far as threads are free, in up to `helpers` others at once; returns when
// all calls have.
void run_with_helpers(int helpers, const std::function<void()> &body);

}  // namespace rocpy::simt
