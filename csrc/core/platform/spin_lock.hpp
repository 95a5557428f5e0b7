// SPDX-License-Identifier: MIT
// A lock for sections of a few instructions on the per-call path, where an uncontended pthread mutex costs more than
// the work it guards.
#pragma once

#include <sched.h>

#include <atomic>

namespace rocpy {

class SpinLock {
 public:
  void lock() {
    while (taken_.exchange(true, std::memory_order_acquire)) {
      // The holder may have been preempted on this very core.
      while (taken_.load(std::memory_order_relaxed)) sched_yield();
    }
  }
  void unlock() { taken_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> taken_{false};
};

}  // namespace rocpy
