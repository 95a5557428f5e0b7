// SPDX-License-Identifier: MIT
// The thread pool: workers that wait for a numbered job, share its tasks by an atomic counter, and sleep when none
// comes.
#include "threads.hpp"

#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>

#include "fp_environment.h"
#include "thread_budget.hpp"

namespace rocpy_host {
namespace {

// Longer than a task, for which a thread may have to wait at the end of a job: woken, it would come late to the next
// one.
constexpr auto spin_time = std::chrono::microseconds(200);

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ __volatile__("yield");
#endif
}

struct Job {
  void (*task)(void *, int64_t);
  void *context;
  int64_t count;
};

// What the threads share. A forked child abandons its copy, whose threads do not exist there, and makes another.
struct Pool {
  std::mutex callers;  // held by the one call that uses the pool

  // A job is published by writing its fields, then `ticket`: the job's number and how many workers may join it. A
  // worker joins by taking one seat, so none can read the fields while the next job writes them.
  Job job{};
  std::atomic<int64_t> next{0};
  std::atomic<uint64_t> number{0};
  std::atomic<int> seats{0};
  std::atomic<int> running{0};

  std::mutex sleep;
  std::condition_variable wake;
  int sleepers = 0;  // under `sleep`
  int workers = 0;   // under `callers`
};

std::atomic<Pool *> shared_pool{nullptr};
thread_local bool inside = false;
thread_local int limit_of_thread = 0;

void work(Pool &pool) {
  const Job job = pool.job;
  for (;;) {
    int64_t i = pool.next.fetch_add(1, std::memory_order_relaxed);
    if (i >= job.count) return;
    job.task(job.context, i);
  }
}

bool take_seat(Pool &pool) {
  int seats = pool.seats.load(std::memory_order_acquire);
  while (seats > 0) {
    if (pool.seats.compare_exchange_weak(seats, seats - 1, std::memory_order_acq_rel)) return true;
  }
  return false;
}

void worker(Pool *pool) {
  inside = true;
  bind_to_process();
  uint64_t seen = 0;
  for (;;) {
    uint64_t number = pool->number.load(std::memory_order_acquire);
    if (number == seen) {
      auto until = std::chrono::steady_clock::now() + spin_time;
      while ((number = pool->number.load(std::memory_order_acquire)) == seen) {
        for (int i = 0; i < 32; i++) relax();
        if (std::chrono::steady_clock::now() < until) continue;
        std::unique_lock<std::mutex> lock(pool->sleep);
        pool->sleepers++;
        pool->wake.wait(lock, [&] { return pool->number.load(std::memory_order_acquire) != seen; });
        pool->sleepers--;
      }
    }
    seen = number;
    if (take_seat(*pool)) {
      const rocpy::DefaultFpEnvironment environment;  // the thread was made in that of whoever used the pool first
      work(*pool);
      pool->running.fetch_sub(1, std::memory_order_acq_rel);
    }
  }
}

// Between fork and exec only the forking thread lives on. The old pool is leaked on purpose: its locks may be held by
// threads that are gone, and waiting for them would hang.
void forked_child() {
  shared_pool.store(nullptr, std::memory_order_relaxed);
  inside = false;
}

Pool *get_pool() {
  Pool *pool = shared_pool.load(std::memory_order_acquire);
  if (pool) return pool;
  static std::once_flag once;
  std::call_once(once, [] { pthread_atfork(nullptr, nullptr, forked_child); });
  Pool *fresh = new (std::nothrow) Pool;
  if (!fresh) return nullptr;
  if (shared_pool.compare_exchange_strong(pool, fresh, std::memory_order_acq_rel)) return fresh;
  delete fresh;
  return pool;
}

void start_workers(Pool &pool, int wanted) {
  while (pool.workers < wanted) {
    // Detached and never told to stop: they hold nothing that process exit must wait for.
    try {
      std::thread(worker, &pool).detach();
    } catch (const std::exception &) {  // no thread, or no memory to tell it its work
      return;
    }
    pool.workers++;
  }
}

void run_alone(int64_t count, void (*task)(void *, int64_t), void *context) {
  for (int64_t i = 0; i < count; i++) task(context, i);
}

}  // namespace

int thread_count() {
  if (limit_of_thread == 1) return 1;
  const int count = caller_threads();
  return limit_of_thread && limit_of_thread < count ? limit_of_thread : count;
}

int set_thread_limit(int limit) {
  int previous = limit_of_thread;
  limit_of_thread = limit < 0 ? 0 : limit;
  return previous;
}

void parallel_for(int64_t count, int limit, void (*task)(void *context, int64_t i), void *context) {
  const rocpy::DefaultFpEnvironment environment;
  if (count <= 1 || limit <= 1 || inside) return run_alone(count, task, context);
  int threads = thread_count();
  if (threads > limit) threads = limit;
  if (threads > count) threads = static_cast<int>(count);
  Pool *pool = threads > 1 ? get_pool() : nullptr;
  if (!pool || !pool->callers.try_lock()) return run_alone(count, task, context);
  start_workers(*pool, threads - 1);
  int helpers = threads - 1 < pool->workers ? threads - 1 : pool->workers;

  pool->job = {task, context, count};
  pool->next.store(0, std::memory_order_relaxed);
  pool->running.store(helpers, std::memory_order_relaxed);
  pool->seats.store(helpers, std::memory_order_release);
  bool sleepers;
  {
    std::lock_guard<std::mutex> lock(pool->sleep);
    pool->number.fetch_add(1, std::memory_order_acq_rel);
    sleepers = pool->sleepers > 0;
  }
  if (sleepers) pool->wake.notify_all();

  inside = true;
  work(*pool);
  inside = false;
  // Seats that nobody took are taken back, so that only workers which did join are waited for.
  int unused = pool->seats.exchange(0, std::memory_order_acq_rel);
  pool->running.fetch_sub(unused, std::memory_order_acq_rel);
  // With more threads than CPUs the worker waited for may need this one.
  for (int spins = 0; pool->running.load(std::memory_order_acquire) > 0; spins++) {
    if (spins < 4096) {
      relax();
    } else {
      sched_yield();
    }
  }
  pool->callers.unlock();
}

}  // namespace rocpy_host
