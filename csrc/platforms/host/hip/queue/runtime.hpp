// SPDX-License-Identifier: MIT
// The runtime's state, for the HIP sources only: devices, streams and their queues, all behind one mutex.
#pragma once

#include "handles.hpp"
#include "queue.hpp"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace rocpy_host {

constexpr int max_devices = 64;

struct Capture;

// A point in a stream: reached when the stream has done everything up to the ticket.
struct Point {
  Stream *stream;
  uint64_t ticket;
};

// Work of which no two run at the same time, whatever their streams: each waits for the one submitted before it. Behind
// the mutex.
struct Sequence {
  Point last{nullptr, 0};
};

using Sequences = std::vector<std::shared_ptr<Sequence>>;

// What must live until a stream has done everything up to the ticket.
struct Lasting {
  uint64_t ticket;
  std::shared_ptr<const void> object;
};

enum class ItemKind {
  work,
  external,  // the user's code or other ranks decide when it ends: process exit does not wait for it
  mark,      // an event's record or wait: nothing to delay
};

struct Item {
  Work *work = nullptr;
  Item *next = nullptr;
  uint64_t ticket = 0;
  ItemKind kind = ItemKind::work;
  std::vector<Point> waits;
};

// Streams are never freed, only used again, and their tickets go on counting: a Point stays meaningful for ever.
struct Stream {
  std::atomic<uint64_t> handle{0};  // 0: not in use, or the null stream
  uint32_t slot = 0, generation = 0;

  // Fixed while the handle is valid.
  int device = 0;
  unsigned flags = 0;
  int priority = 0;
  uint64_t id = 0;
  bool is_null = false;
  bool is_blocking = true;  // takes part in the null stream's order (the null stream does as well)

  std::chrono::microseconds delay{0};  // of each item, in stress mode

  // Written under the mutex, read without it.
  std::atomic<uint64_t> submitted{0}, completed{0};

  // Under the mutex.
  Item *head = nullptr, *tail = nullptr;
  bool is_scheduled = false;  // in the ready list or being run by a worker
  bool is_waiting = false;    // its first item waits for another stream, which lists it as a waiter
  bool is_destroyed = false;  // its slot is free again once all its work is done
  std::vector<Stream *> waiters;
  std::vector<Lasting> retained;       // in the order of the tickets until which it lives
  std::shared_ptr<Capture> capture;    // while its work goes into a graph
  std::vector<size_t> captured_after;  // the nodes of that graph that its next work follows

  bool idle() const { return completed.load(std::memory_order_acquire) == submitted.load(std::memory_order_relaxed); }
};

struct Device {
  Stream null_stream;
  std::atomic<int64_t> pending{0};  // unfinished work of the null stream and of the blocking ones
  std::vector<Stream *> streams;    // created and per-thread streams whose slots are in use
  uint64_t peers = 0;               // a bit per device that this one has enabled access to
  std::atomic<unsigned> flags{0};
};

struct Runtime {
  std::mutex mutex;
  Device devices[max_devices];
  int device_count;
  bool is_stressed;
  bool is_host_memory_shared;
  uint64_t random_state;
  HandleTable<Stream, 'S'> streams;
  uint64_t next_stream_id = 1;

  // The scheduler.
  std::vector<Stream *> ready;
  size_t idle_workers = 0, workers = 0;
  int host_waiters = 0;
  int running = 0;  // items being run, host functions aside
  bool is_exiting = false;
  Item *abandoned = nullptr;  // of the parent, in a forked child
  std::condition_variable work_available, progress;
  std::condition_variable host_waits;  // told when a thread of the user's begins to wait; only stress mode listens

  // A lock of the code above that is taken inside the mutex around a fork, so that a child finds what it guards whole.
  void (*lock_for_fork)() = nullptr;
  void (*unlock_after_fork)(bool is_child) = nullptr;

  Runtime();
};

// Made by the first call and never destroyed: worker threads may outlive static destruction.
Runtime &runtime();

// With the mutex held. What stress mode takes for chance.
uint64_t next_random(Runtime &rt);
std::chrono::microseconds random_delay(Runtime &rt);  // of a new stream
std::chrono::microseconds chance_delay();             // the same, for who does not hold the mutex

bool is_device(int device);
int current_device();
bool set_current_device(int device);  // false: no such device

Stream *create_stream(int device, unsigned flags, int priority);  // null: too many streams
bool destroy_stream(const void *handle);  // at once; queued work still runs. False: no such stream

// Like enter_inline(), but gives the ticket that was taken; 0: not allowed. The work becomes the last of the sequences.
uint64_t begin_inline(Stream *stream, const Sequences &sequences = {});

// enqueue() in full: work of any kind, and work that waits for a point of another stream or is part of sequences.
uint64_t enqueue_item(Stream *stream, Work *work, ItemKind kind, const Point *wait_for,
                      const Sequences &sequences = {});

template <class Function>
uint64_t enqueue_function_item(Stream *stream, Function function, ItemKind kind, const Point *wait_for,
                               const Sequences &sequences = {}) {
  auto *task = new Task<Function>(std::move(function));
  try {
    return enqueue_item(stream, task, kind, wait_for, sequences);
  } catch (...) {
    delete task;
    throw;
  }
}

template <class Function>
uint64_t enqueue_host_function(Stream *stream, Function function) {
  return enqueue_function_item(stream, std::move(function), ItemKind::external, nullptr);
}

// Has the object live until all streams have done what they have to do by now. With the mutex held, as when it goes.
void retain_for_work(const std::shared_ptr<const void> &object);
void drop_retained(Stream *stream, uint64_t done);

// All unfinished work of a device, or that which its null stream is ordered with. False as in wait().
bool wait_device(int device, bool blocking_only);
bool is_device_idle(int device, bool blocking_only);

}  // namespace rocpy_host
