// SPDX-License-Identifier: MIT
// Values that are made at first use.
#pragma once

#include <atomic>

namespace rocpy {

// A value made at first use and never destroyed, without a lock. The guard of a function's static variable is one: a
// child that was forked while another thread made the variable waits for that thread, which it does not have. Threads
// that come together may each make a value, of which one is kept, and so may parent and child. For static variables.
template <class T>
class Lazy {
 public:
  // `make` returns a new T.
  template <class Make>
  T &get(Make make) {
    T *value = value_.load(std::memory_order_acquire);
    if (value) return *value;
    T *fresh = make();
    if (value_.compare_exchange_strong(value, fresh, std::memory_order_acq_rel, std::memory_order_acquire)) {
      return *fresh;
    }
    delete fresh;
    return *value;
  }
  T &get() {
    return get([] { return new T; });
  }

 private:
  std::atomic<T *> value_{nullptr};
};

}  // namespace rocpy
