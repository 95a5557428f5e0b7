// SPDX-License-Identifier: MIT
// A gate that a host function waits at: it holds a stream back for as long as a test wants.
#pragma once

#include <condition_variable>
#include <mutex>

class Gate {
 public:
  void open() {
    std::lock_guard<std::mutex> lock(mutex_);
    is_open_ = true;
    changed_.notify_all();
  }

  // Returns once the host function waits, on a thread that has then begun.
  void wait_until_reached() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return is_reached_; });
  }

  // For hipLaunchHostFunc, with the gate as its argument.
  static void wait_at(void *gate) {
    auto *self = static_cast<Gate *>(gate);
    std::unique_lock<std::mutex> lock(self->mutex_);
    self->is_reached_ = true;
    self->changed_.notify_all();
    self->changed_.wait(lock, [self] { return self->is_open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_open_ = false, is_reached_ = false;
};
