// SPDX-License-Identifier: MIT
// The pool. A child of fork starts with a new one: it has none of its parent's threads.
#include "pool.hpp"

#include <pthread.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>

#include "thread_budget.hpp"

namespace rocpy::simt {

namespace {

constexpr int most_threads = 256;

struct Task {
  const std::function<void()> *body;
  int running = 0;
};

class Pool {
 public:
  void run(int helpers, const std::function<void()> &body) {
    Task task{&body};
    std::unique_lock<std::mutex> lock(mutex_);
    grow(helpers);
    helpers = std::min(helpers, threads_);
    for (int i = 0; i < helpers; ++i) queue_.push_back(&task);
    lock.unlock();
    for (int i = 0; i < helpers; ++i) wake_.notify_one();
    body();
    lock.lock();
    queue_.erase(std::remove(queue_.begin(), queue_.end(), &task), queue_.end());  // who has not begun need not
    done_.wait(lock, [&] { return task.running == 0; });
  }

 private:
  void grow(int wanted) {
    while (threads_ < std::min(wanted, most_threads)) {
      try {
        std::thread([this] {
          rocpy_host::bind_to_process();
          work();
        }).detach();
      } catch (const std::exception &) {
        return;  // no thread, or no memory to tell it its work: the caller does that with those there are
      }
      ++threads_;
    }
  }

  void work() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      wake_.wait(lock, [this] { return !queue_.empty(); });
      Task *task = queue_.front();
      queue_.pop_front();
      ++task->running;
      lock.unlock();
      (*task->body)();
      lock.lock();
      --task->running;
      done_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable done_;
  std::deque<Task *> queue_;
  int threads_ = 0;
};

Pool *current_pool = nullptr;
std::once_flag pool_once;

// Its threads sleep in it until the process ends, so that it is never taken down.
Pool &pool() {
  std::call_once(pool_once, [] {
    current_pool = new Pool;
    pthread_atfork(nullptr, nullptr, [] { current_pool = new Pool; });
  });
  return *current_pool;
}

}  // namespace

int default_threads() { return rocpy_host::caller_threads(); }

void run_with_helpers(int helpers, const std::function<void()> &body) {
  if (helpers <= 0) {
    body();
  } else {
    pool().run(helpers, body);
  }
}

}  // namespace rocpy::simt
