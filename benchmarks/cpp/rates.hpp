// SPDX-License-Identifier: MIT
// What programs that measure the CPU share: CPU time, and the best sum of the rates of threads that run together.
#pragma once

#include <algorithm>
#include <atomic>
#include <ctime>
#include <thread>
#include <vector>

// CPU time of the calling thread: what others do on the machine is not in it.
inline double thread_seconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Best sum of the threads' rates while all of them run; `rate` gets the thread's number.
template <class Rate>
double best_rate(int threads, int runs, Rate rate) {
  double best = 0;
  for (int run = 0; run < runs; ++run) {
    std::atomic<int> waiting{0};
    std::atomic<bool> started{false};
    std::vector<double> rates(static_cast<std::size_t>(threads));
    std::vector<std::thread> helpers;
    for (int i = 1; i < threads; ++i) {
      helpers.emplace_back([&, i] {
        ++waiting;
        while (!started) std::this_thread::yield();
        rates[static_cast<std::size_t>(i)] = rate(i);
      });
    }
    while (waiting < threads - 1) std::this_thread::yield();
    started = true;
    rates[0] = rate(0);
    for (std::thread &helper : helpers) helper.join();
    double total = 0;
    for (const double each : rates) total += each;
    best = std::max(best, total);
  }
  return best;
}
