// SPDX-License-Identifier: MIT
// The pool that the product engine splits its work over: one for the process, with no more threads than its budget. It
// sleeps when idle and starts afresh in a forked child.
#pragma once

#include <cstdint>

namespace rocpy_host {

// Threads that a call of the calling thread may use, this one included: see thread_budget.hpp.
int thread_count();

// Caps the threads of calls made by the calling thread (0: no cap). Returns the cap it replaces.
int set_thread_limit(int limit);

// Runs task(context, i) for every i in [0, count), on the caller and at most `limit` threads in all, in the default
// floating-point environment. Tasks are independent; which thread runs which is not fixed, so a task's result must not
// depend on it. Falls back to the caller alone while another call uses the pool.
void parallel_for(int64_t count, int limit, void (*task)(void *context, int64_t i), void *context);

}  // namespace rocpy_host
