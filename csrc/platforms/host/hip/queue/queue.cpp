// SPDX-License-Identifier: MIT
// The stream queues: what waits for what, the worker threads, and what becomes of them at exit and in a forked child.
#include "graph.hpp"
#include "lazy.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <new>
#include <thread>

namespace rocpy_host {

namespace {

constexpr auto worker_patience = std::chrono::seconds(1);
constexpr auto exit_patience = std::chrono::seconds(5);
constexpr auto stress_delay = std::chrono::milliseconds(1);

// What stress mode does between any two steps: nothing, a yield, or a nap that lets every other stream go by.
void inject_delay(uint64_t random) {
  switch (random & 3) {
    case 0:
      break;
    case 1:
      std::this_thread::yield();
      break;
    default:
      std::this_thread::sleep_for(std::chrono::microseconds((random >> 2) % 300));
  }
}

bool has_reached(const Point &point) { return point.stream == nullptr || is_done(point.stream, point.ticket); }

// Where the stream will have done all that it has to do by now.
Point end_of(Stream *stream) { return {stream, stream->submitted.load(std::memory_order_relaxed)}; }

// With the mutex held, from here on.

// Whether the stream's first item may run now. If not, the stream is listed with one that it waits for.
bool is_runnable(Stream *stream) {
  Item *item = stream->head;
  if (item == nullptr || item->ticket != stream->completed.load(std::memory_order_relaxed) + 1) {
    return false;
  }
  while (!item->waits.empty()) {
    const Point point = item->waits.back();
    if (!has_reached(point)) {
      point.stream->waiters.push_back(stream);
      stream->is_waiting = true;
      return false;
    }
    item->waits.pop_back();
  }
  return true;
}

void *worker_main(void *);

// Each ready stream has a worker of its own: what it runs may block until another stream gets on.
void summon_worker(Runtime &rt) {
  if (rt.idle_workers >= rt.ready.size()) {
    rt.work_available.notify_one();
    return;
  }
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_t thread;
  if (pthread_create(&thread, &attributes, worker_main, nullptr) == 0) {
    ++rt.workers;
  } else {
    rt.progress.notify_all();  // those who wait then do the work, see wait_until()
  }
  pthread_attr_destroy(&attributes);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void make_ready(Runtime &rt, Stream *stream) {
  stream->is_scheduled = true;
  rt.ready.push_back(stream);
  summon_worker(rt);
}

void schedule(Runtime &rt, Stream *stream) {
  if (!stream->is_scheduled && !stream->is_waiting && is_runnable(stream)) {
    make_ready(rt, stream);
  }
}

void recycle_if_unused(Runtime &rt, Stream *stream) {
  if (!stream->is_destroyed || stream->is_scheduled || stream->head != nullptr || !stream->idle()) {
    return;
  }
  stream->is_destroyed = false;
  auto &streams = rt.devices[stream->device].streams;
  streams.erase(std::find(streams.begin(), streams.end(), stream));
  rt.streams.give_back(stream);
}

// The stream's oldest unfinished ticket is done.
void complete(Runtime &rt, Stream *stream) {
  const uint64_t ticket = stream->completed.load(std::memory_order_relaxed) + 1;
  drop_retained(stream, ticket);  // before anybody is told that the work is done
  stream->completed.store(ticket, std::memory_order_release);
  if (stream->is_blocking) {
    rt.devices[stream->device].pending.fetch_sub(1, std::memory_order_release);
  }
  if (!stream->waiters.empty()) {
    std::vector<Stream *> waiters;
    waiters.swap(stream->waiters);
    for (Stream *waiter : waiters) {
      waiter->is_waiting = false;
      schedule(rt, waiter);
    }
  }
  if (rt.host_waiters > 0) {
    rt.progress.notify_all();
  }
}

Stream *take_ready(Runtime &rt) {
  const size_t index = rt.is_stressed ? next_random(rt) % rt.ready.size() : 0;
  Stream *stream = rt.ready[index];
  rt.ready.erase(rt.ready.begin() + static_cast<std::ptrdiff_t>(index));
  return stream;
}

// With the mutex held. Stress mode holds an item back until the host waits for something, or for a moment: otherwise
// what is submitted first starts first, since a worker wakes while the host still prepares its next call. Then the
// stream's own delay decides which of two that are ready comes first, so that half of all seeds choose either order.
void delay_item(Runtime &rt, std::unique_lock<std::mutex> &lock, const Stream *stream) {
  rt.host_waits.wait_for(lock, stress_delay, [&rt] { return rt.is_exiting || rt.host_waiters > 0; });
  const uint64_t random = next_random(rt);
  lock.unlock();
  std::this_thread::sleep_for(stream->delay);
  inject_delay(random);
  lock.lock();
}

// Runs items of one ready stream for as long as they may run.
void run_ready(Runtime &rt, std::unique_lock<std::mutex> &lock) {
  Stream *stream = take_ready(rt);
  for (bool again = true; again;) {
    if (rt.is_stressed && rt.workers > 0 && stream->head->kind != ItemKind::mark) {
      delay_item(rt, lock, stream);
      if (rt.is_exiting) {
        return;
      }
    }
    Item *item = stream->head;
    const bool is_awaited = item->kind != ItemKind::external;
    rt.running += is_awaited;
    const uint64_t random = rt.is_stressed ? next_random(rt) : 0;
    lock.unlock();
    set_current_device(stream->device);
    const auto work = [item] { item->work->run(); };
    run_in_default_environment(work);  // a user's function too: what that sets must not outlive it
    if (rt.is_stressed) {
      inject_delay(random);
    }
    lock.lock();
    rt.running -= is_awaited;
    stream->head = item->next;
    if (stream->head == nullptr) {
      stream->tail = nullptr;
    }
    delete item;
    complete(rt, stream);
    again = !rt.is_exiting && is_runnable(stream) && !rt.is_stressed;
    if (!again) {
      stream->is_scheduled = false;
      if (!rt.is_exiting) {
        schedule(rt, stream);
      }
      recycle_if_unused(rt, stream);
    }
  }
  if (rt.is_exiting) {
    rt.progress.notify_all();
  }
}

void *worker_main(void *) {
  pthread_setname_np(pthread_self(), "rocpy-stream");
  Runtime &rt = runtime();
  std::unique_lock<std::mutex> lock(rt.mutex);
  while (!rt.is_exiting) {
    if (!rt.ready.empty()) {
      run_ready(rt, lock);
      continue;
    }
    ++rt.idle_workers;
    const bool is_needed =
        rt.work_available.wait_for(lock, worker_patience, [&rt] { return rt.is_exiting || !rt.ready.empty(); });
    --rt.idle_workers;
    if (!is_needed) {
      break;
    }
  }
  --rt.workers;
  return nullptr;
}

template <class Condition>
bool wait_until(Runtime &rt, std::unique_lock<std::mutex> &lock, Condition condition) {
  while (!condition()) {
    if (rt.is_exiting) {
      return false;
    }
    if (rt.workers == 0 && !rt.ready.empty()) {
      const int device = current_device();
      run_ready(rt, lock);
      set_current_device(device);
      continue;
    }
    ++rt.host_waiters;
    rt.host_waits.notify_all();
    rt.progress.wait(lock);
    --rt.host_waiters;
  }
  return true;
}

// Queued work is abandoned when the process exits: what it would touch may be gone already. What runs is let finish, so
// that it does not run on while static objects are destroyed; the user's own functions are not waited for.
void at_exit() {
  Runtime &rt = runtime();
  std::unique_lock<std::mutex> lock(rt.mutex);
  rt.is_exiting = true;
  rt.ready.clear();
  rt.work_available.notify_all();
  rt.host_waits.notify_all();
  rt.progress.notify_all();
  rt.progress.wait_for(lock, exit_patience, [&rt] { return rt.running == 0; });
}

// A forked child has no worker threads and none of the parent's work: its streams are idle. Handles and memory stay
// good.
void before_fork() {
  Runtime &rt = runtime();
  rt.mutex.lock();
  if (rt.lock_for_fork != nullptr) {
    rt.lock_for_fork();
  }
}

void unlock_after_fork(Runtime &rt, bool is_child) {
  if (rt.unlock_after_fork != nullptr) {
    rt.unlock_after_fork(is_child);
  }
}

void after_fork_in_parent() {
  Runtime &rt = runtime();
  unlock_after_fork(rt, false);
  rt.mutex.unlock();
}

// What was queued is neither run nor destroyed, since its owners may be threads that the child does not have; it stays
// reachable, so that a leak checker does not count it.
void reset_queue(Runtime &rt, Stream &stream) {
  if (stream.tail != nullptr) {
    stream.tail->next = rt.abandoned;
    rt.abandoned = stream.head;
  }
  stream.head = stream.tail = nullptr;
  stream.is_scheduled = stream.is_waiting = false;
  stream.waiters.clear();
  stream.completed.store(stream.submitted.load());
}

void after_fork_in_child() {
  Runtime &rt = runtime();
  unlock_after_fork(rt, true);
  new (&rt.mutex) std::mutex;
  new (&rt.work_available) std::condition_variable;
  new (&rt.progress) std::condition_variable;
  new (&rt.host_waits) std::condition_variable;
  std::lock_guard<std::mutex> lock(rt.mutex);
  rt.ready.clear();
  rt.idle_workers = rt.workers = 0;
  rt.host_waiters = rt.running = 0;
  forget_captures();
  for (Device &device : rt.devices) {
    reset_queue(rt, device.null_stream);
    device.pending.store(0);
    for (Stream *stream : std::vector<Stream *>(device.streams)) {
      reset_queue(rt, *stream);
      recycle_if_unused(rt, stream);
    }
  }
}

}  // namespace

Runtime &runtime() {
  static rocpy::Lazy<Runtime> instance;
  return instance.get();
}

namespace {

// Registered by a constructor and not with the first call, so that the order does not depend on who calls first.
__attribute__((constructor)) void register_handlers() {
  runtime();
  pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
  std::atexit(at_exit);
}

}  // namespace

int device_of(const Stream *stream) { return stream->device; }

Stream *create_stream(int device, unsigned flags, int priority) {
  Runtime &rt = runtime();
  std::lock_guard<std::mutex> lock(rt.mutex);
  auto &streams = rt.devices[device].streams;
  streams.reserve(streams.size() + 1);
  Stream *stream = rt.streams.take();
  if (stream == nullptr) {
    return nullptr;
  }
  stream->device = device;
  stream->flags = flags;
  stream->priority = priority;
  stream->id = rt.next_stream_id++;
  stream->is_blocking = (flags & hipStreamNonBlocking) == 0;
  stream->delay = random_delay(rt);
  streams.push_back(stream);
  rt.streams.publish(stream);
  return stream;
}

bool destroy_stream(const void *handle) {
  Runtime &rt = runtime();
  std::lock_guard<std::mutex> lock(rt.mutex);
  Stream *stream = rt.streams.find(handle);
  if (stream == nullptr) {
    return false;
  }
  rt.streams.retire(stream);
  leave_capture(stream);
  stream->is_destroyed = true;
  recycle_if_unused(rt, stream);
  return true;
}

bool is_done(const Stream *stream, uint64_t ticket) {
  return stream->completed.load(std::memory_order_acquire) >= ticket;
}

namespace {

// Takes the stream's next ticket, as the last of the sequences.
uint64_t take_ticket(Stream *stream, const Sequences &sequences) {
  if (stream->is_blocking) {
    runtime().devices[stream->device].pending.fetch_add(1, std::memory_order_relaxed);
  }
  const uint64_t ticket = stream->submitted.load(std::memory_order_relaxed) + 1;
  stream->submitted.store(ticket, std::memory_order_relaxed);
  for (const auto &sequence : sequences) sequence->last = {stream, ticket};
  return ticket;
}

// Work that was not offered to the capture of its stream would be missing in the graph: there is to be none then.
void spoil_capture(const Stream *stream) {
  if (stream->capture != nullptr) {
    invalidate(stream->capture.get());
  }
}

}  // namespace

uint64_t begin_inline(Stream *stream, const Sequences &sequences) {
  Runtime &rt = runtime();
  if (rt.is_stressed) {
    return 0;
  }
  std::lock_guard<std::mutex> lock(rt.mutex);
  spoil_capture(stream);
  Device &device = rt.devices[stream->device];
  const bool is_free = stream->is_null       ? device.pending.load(std::memory_order_relaxed) == 0
                       : stream->is_blocking ? stream->idle() && device.null_stream.idle()
                                             : stream->idle();
  const bool is_next =
      std::all_of(sequences.begin(), sequences.end(), [](const auto &sequence) { return has_reached(sequence->last); });
  return is_free && is_next ? take_ticket(stream, sequences) : 0;
}

bool enter_inline(Stream *stream) { return begin_inline(stream) != 0; }

void leave_inline(Stream *stream) {
  Runtime &rt = runtime();
  std::lock_guard<std::mutex> lock(rt.mutex);
  complete(rt, stream);
  if (stream->head != nullptr) {
    schedule(rt, stream);
  } else if (stream->is_destroyed) {
    recycle_if_unused(rt, stream);
  }
}

uint64_t enqueue_item(Stream *stream, Work *work, ItemKind kind, const Point *wait_for, const Sequences &sequences) {
  Runtime &rt = runtime();
  auto *item = new Item;
  item->work = work;
  item->kind = kind;
  std::unique_lock<std::mutex> lock(rt.mutex);
  spoil_capture(stream);
  Device &device = rt.devices[stream->device];
  try {
    item->waits.reserve((stream->is_null ? device.streams.size() : 1) + 1 + sequences.size());
    rt.ready.reserve(rt.ready.size() + 1);
  } catch (...) {
    lock.unlock();
    delete item;
    throw;
  }
  const auto follow = [item](const Point &point) {
    if (!has_reached(point)) {
      item->waits.push_back(point);
    }
  };
  if (wait_for != nullptr) {
    follow(*wait_for);
  }
  for (const auto &sequence : sequences) follow(sequence->last);
  if (stream->is_null) {
    for (Stream *other : device.streams) {
      if (other->is_blocking) {
        follow(end_of(other));
      }
    }
  } else if (stream->is_blocking) {
    follow(end_of(&device.null_stream));
  }
  const uint64_t ticket = item->ticket = take_ticket(stream, sequences);
  (stream->tail != nullptr ? stream->tail->next : stream->head) = item;
  stream->tail = item;
  if (!rt.is_exiting) {
    schedule(rt, stream);
  }
  return ticket;
}

uint64_t enqueue(Stream *stream, Work *work) { return enqueue_item(stream, work, ItemKind::work, nullptr); }

bool wait(Stream *stream, uint64_t ticket) {
  if (is_done(stream, ticket)) {
    return true;
  }
  Runtime &rt = runtime();
  std::unique_lock<std::mutex> lock(rt.mutex);
  return wait_until(rt, lock, [=] { return is_done(stream, ticket); });
}

bool is_device_idle(int index, bool blocking_only) {
  Runtime &rt = runtime();
  Device &device = rt.devices[index];
  if (device.pending.load(std::memory_order_acquire) != 0) {
    return false;
  }
  if (blocking_only) {
    return true;
  }
  std::lock_guard<std::mutex> lock(rt.mutex);
  return std::all_of(device.streams.begin(), device.streams.end(), [](Stream *stream) { return stream->idle(); });
}

bool wait_device(int index, bool blocking_only) {
  if (is_device_idle(index, blocking_only)) {
    return true;
  }
  Runtime &rt = runtime();
  Device &device = rt.devices[index];
  std::unique_lock<std::mutex> lock(rt.mutex);
  std::vector<Point> points;
  points.reserve(device.streams.size() + 1);
  points.push_back(end_of(&device.null_stream));
  for (Stream *stream : device.streams) {
    if (stream->is_blocking || !blocking_only) {
      points.push_back(end_of(stream));
    }
  }
  return wait_until(rt, lock, [&points] {
    while (!points.empty() && has_reached(points.back())) {
      points.pop_back();
    }
    return points.empty();
  });
}

}  // namespace rocpy_host
