// SPDX-License-Identifier: MIT
// OS threads that help a launch with its blocks, kept from launch to launch.
#pragma once

#include <functional>

namespace rocpy::simt {

// CPUs that a launch may use: ROCPY_NUM_THREADS, else OMP_NUM_THREADS, else those this process may run on.
int default_threads();

// Calls `body` in the calling thread and, as far as threads are free, in up to `helpers` others at once; returns when
// all calls have.
void run_with_helpers(int helpers, const std::function<void()> &body);

}  // namespace rocpy::simt
