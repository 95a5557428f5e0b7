// SPDX-License-Identifier: MIT
// Order between devices: a copy of memory that another device owns happens in the order of that device's null stream,
// as HIP has it, after the call's stream and before what that does later. Every check holds under ROCPY_HOST_STRESS
// too.
#include "check.hpp"
#include "gate.hpp"
#include "prototypes.h"

#include <chrono>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

namespace {

constexpr auto a_while = std::chrono::milliseconds(20);
constexpr size_t bytes = 64;
constexpr int owner = 1;
constexpr unsigned char old_value = 3, new_value = 7;

void set_flag(void *flag) { static_cast<std::atomic<bool> *>(flag)->store(true); }

void set_device(int device) { CHECK_EQUAL(hipSetDevice(device), hipSuccess); }

hipStream_t made_stream() {
  hipStream_t stream = nullptr;
  CHECK_EQUAL(hipStreamCreate(&stream), hipSuccess);
  return stream;
}

enum class Place { device, pinned, pageable };

// Memory of the owner; what is pageable is nobody's.
struct Memory {
  explicit Memory(Place where, int device = owner) : place(where) {
    set_device(device);
    if (place == Place::pageable) {
      pointer = pageable.data();
    } else {
      void *found = nullptr;
      CHECK_EQUAL(place == Place::device ? hipMalloc(&found, bytes) : hipHostMalloc(&found, bytes, 0), hipSuccess);
      pointer = static_cast<unsigned char *>(found);
    }
    std::memset(pointer, old_value, bytes);
  }
  ~Memory() {
    if (place != Place::pageable) {
      CHECK_EQUAL(place == Place::device ? hipFree(pointer) : hipHostFree(pointer), hipSuccess);
    }
  }
  Memory(const Memory &) = delete;
  Memory &operator=(const Memory &) = delete;
  Place place;
  unsigned char *pointer = nullptr;
  std::vector<unsigned char> pageable = std::vector<unsigned char>(bytes);
};

struct Copy {
  const char *name;
  bool is_async;
  hipError_t (*call)(void *dst, void *src, hipStream_t stream);
};

constexpr Copy copies[] = {
    {"hipMemcpy", false, [](void *d, void *s, hipStream_t) { return hipMemcpy(d, s, bytes, hipMemcpyDefault); }},
    {"hipMemcpyWithStream", false,
     [](void *d, void *s, hipStream_t t) { return hipMemcpyWithStream(d, s, bytes, hipMemcpyDefault, t); }},
    {"hipMemcpy2D", false,
     [](void *d, void *s, hipStream_t) { return hipMemcpy2D(d, 16, s, 16, 16, 4, hipMemcpyDefault); }},
    {"hipMemcpyDtoH", false, [](void *d, void *s, hipStream_t) { return hipMemcpyDtoH(d, s, bytes); }},
    {"hipMemcpyHtoD", false, [](void *d, void *s, hipStream_t) { return hipMemcpyHtoD(d, s, bytes); }},
    {"hipMemcpyDtoD", false, [](void *d, void *s, hipStream_t) { return hipMemcpyDtoD(d, s, bytes); }},
    {"hipMemcpyPeer", false, [](void *d, void *s, hipStream_t) { return hipMemcpyPeer(d, owner, s, owner, bytes); }},
    {"hipMemcpyAsync", true,
     [](void *d, void *s, hipStream_t t) { return hipMemcpyAsync(d, s, bytes, hipMemcpyDefault, t); }},
    {"hipMemcpy2DAsync", true,
     [](void *d, void *s, hipStream_t t) { return hipMemcpy2DAsync(d, 16, s, 16, 16, 4, hipMemcpyDefault, t); }},
    {"hipMemcpyDtoHAsync", true, [](void *d, void *s, hipStream_t t) { return hipMemcpyDtoHAsync(d, s, bytes, t); }},
    {"hipMemcpyHtoDAsync", true, [](void *d, void *s, hipStream_t t) { return hipMemcpyHtoDAsync(d, s, bytes, t); }},
    {"hipMemcpyDtoDAsync", true, [](void *d, void *s, hipStream_t t) { return hipMemcpyDtoDAsync(d, s, bytes, t); }},
    {"hipMemcpyPeerAsync", true,
     [](void *d, void *s, hipStream_t t) { return hipMemcpyPeerAsync(d, owner, s, owner, bytes, t); }},
};

// Work of the owner's null stream: waits at the gate, then writes what the copy is to find.
struct LateWrite {
  Gate gate;
  unsigned char *pointer;
  static void run(void *data) {
    auto *self = static_cast<LateWrite *>(data);
    Gate::wait_at(&self->gate);
    std::memset(self->pointer, new_value, bytes);
  }
};

// Runs the copy in a thread of its own whose device is `current`: it may wait.
class Call {
 public:
  Call(const Copy &copy, int current, void *dst, void *src, hipStream_t stream)
      : thread_([=, this_call = this, call = copy.call] {
          set_device(current);
          CHECK_EQUAL(call(dst, src, stream), hipSuccess);
          this_call->has_returned = true;
        }) {}
  void join() { thread_.join(); }
  std::atomic<bool> has_returned{false};

 private:
  std::thread thread_;
};

void check_copy_follows_the_owner(const Copy &copy, int current, Place from, Place to) {
  Memory source(from), target(to);
  set_device(owner);
  LateWrite write;
  write.pointer = source.pointer;
  CHECK_EQUAL(hipLaunchHostFunc(nullptr, LateWrite::run, &write), hipSuccess);
  set_device(current);
  const hipStream_t stream = made_stream();
  Call call(copy, current, target.pointer, source.pointer, stream);
  const bool is_staged = (from == Place::pageable) != (to == Place::pageable);
  std::this_thread::sleep_for(a_while);
  if (target.pointer[0] != old_value || (call.has_returned && (!copy.is_async || is_staged))) {
    std::fprintf(stderr, "%s from device %d did not wait for the owner's null stream\n", copy.name, current);
    CHECK(false);
  }
  write.gate.open();
  call.join();
  if (copy.is_async) {
    CHECK_EQUAL(hipStreamSynchronize(stream), hipSuccess);
  }
  CHECK_EQUAL(target.pointer[0], new_value);
  CHECK_EQUAL(target.pointer[bytes - 1], new_value);
  CHECK_EQUAL(hipStreamDestroy(stream), hipSuccess);
}

void check_every_copy() {
  constexpr Place places[][2] = {{Place::device, Place::pageable}, {Place::pageable, Place::device},
                                 {Place::device, Place::device},   {Place::device, Place::pinned},
                                 {Place::pinned, Place::device},   {Place::pinned, Place::pageable},
                                 {Place::pinned, Place::pinned}};
  for (const Copy &copy : copies) {
    for (const int current : {0, owner, 2}) {
      for (const auto &[from, to] : places) {
        check_copy_follows_the_owner(copy, current, from, to);
      }
    }
  }
}

// The copy comes after what the call's stream had to do, and before what it is given then.
void check_the_stream_of_the_call_stays_in_order() {
  Memory source(Place::device), target(Place::device);
  std::memset(source.pointer, new_value, bytes);
  for (const bool is_null : {false, true}) {
    std::memset(target.pointer, old_value, bytes);
    set_device(0);
    const hipStream_t stream = is_null ? nullptr : made_stream();
    Gate gate;
    std::atomic<bool> has_passed{false};
    CHECK_EQUAL(hipLaunchHostFunc(stream, Gate::wait_at, &gate), hipSuccess);
    CHECK_EQUAL(hipMemcpyAsync(target.pointer, source.pointer, bytes, hipMemcpyDefault, stream), hipSuccess);
    CHECK_EQUAL(hipLaunchHostFunc(stream, set_flag, &has_passed), hipSuccess);
    std::this_thread::sleep_for(a_while);
    CHECK_EQUAL(target.pointer[0], old_value);
    CHECK(!has_passed);
    CHECK_EQUAL(hipStreamQuery(stream), hipErrorNotReady);
    gate.open();
    CHECK_EQUAL(hipStreamSynchronize(stream), hipSuccess);
    CHECK_EQUAL(target.pointer[0], new_value);
    CHECK(has_passed);
    // And the later work waits for the copy, which waits for the owner.
    Gate second;
    has_passed = false;
    set_device(owner);
    CHECK_EQUAL(hipLaunchHostFunc(nullptr, Gate::wait_at, &second), hipSuccess);
    set_device(0);
    CHECK_EQUAL(hipMemcpyAsync(target.pointer, source.pointer, bytes, hipMemcpyDefault, stream), hipSuccess);
    CHECK_EQUAL(hipLaunchHostFunc(stream, set_flag, &has_passed), hipSuccess);
    std::this_thread::sleep_for(a_while);
    CHECK(!has_passed);
    second.open();
    CHECK_EQUAL(hipStreamSynchronize(stream), hipSuccess);
    CHECK(has_passed);
    if (!is_null) {
      CHECK_EQUAL(hipStreamDestroy(stream), hipSuccess);
    }
  }
}

// Copies between two devices and fills stay in the call's stream: neither waits for another device's null stream, and a
// program that needs that must say so, with an event or by waiting.
void check_what_no_owner_orders() {
  Memory here(Place::device, 0), there(Place::device);
  set_device(owner);
  Gate gate;
  CHECK_EQUAL(hipLaunchHostFunc(nullptr, Gate::wait_at, &gate), hipSuccess);
  set_device(0);
  CHECK_EQUAL(hipMemcpyPeer(here.pointer, 0, there.pointer, owner, bytes), hipSuccess);
  CHECK_EQUAL(hipMemcpy(there.pointer, here.pointer, bytes, hipMemcpyDefault), hipSuccess);
  CHECK_EQUAL(hipMemset(there.pointer, new_value, bytes), hipSuccess);
  CHECK_EQUAL(there.pointer[0], new_value);
  // An event of the owner's null stream orders them.
  hipEvent_t event = nullptr;
  set_device(owner);
  CHECK_EQUAL(hipEventCreate(&event), hipSuccess);
  CHECK_EQUAL(hipEventRecord(event, nullptr), hipSuccess);
  set_device(0);
  const hipStream_t stream = made_stream();
  CHECK_EQUAL(hipStreamWaitEvent(stream, event, 0), hipSuccess);
  CHECK_EQUAL(hipMemcpyPeerAsync(here.pointer, 0, there.pointer, owner, bytes, stream), hipSuccess);
  std::this_thread::sleep_for(a_while);
  CHECK_EQUAL(here.pointer[0], old_value);
  gate.open();
  CHECK_EQUAL(hipStreamSynchronize(stream), hipSuccess);
  CHECK_EQUAL(here.pointer[0], new_value);
  CHECK_EQUAL(hipEventDestroy(event), hipSuccess);
  CHECK_EQUAL(hipStreamDestroy(stream), hipSuccess);
}

// Each thread reads what the null streams of all devices wrote, with another device's being current.
void check_threads() {
  constexpr int count = 4, rounds = 40;
  std::vector<std::unique_ptr<Memory>> memory;
  for (int device = 0; device < count; ++device) {
    memory.push_back(std::make_unique<Memory>(Place::device, device));
  }
  std::vector<std::thread> threads;
  for (int device = 0; device < count; ++device) {
    threads.emplace_back([device, &memory] {
      unsigned char *mine = memory[static_cast<size_t>(device)]->pointer;
      for (int round = 1; round <= rounds; ++round) {
        set_device(device);
        CHECK_EQUAL(hipMemsetAsync(mine, round, bytes, nullptr), hipSuccess);
        set_device((device + 1) % count);
        unsigned char seen[bytes] = {};
        CHECK_EQUAL(hipMemcpy(seen, mine, bytes, hipMemcpyDeviceToHost), hipSuccess);
        CHECK_EQUAL(seen[0], round);
        CHECK_EQUAL(seen[bytes - 1], round);
      }
    });
  }
  for (std::thread &thread : threads) {
    thread.join();
  }
}

}  // namespace

int main() {
  check_every_copy();
  check_the_stream_of_the_call_stays_in_order();
  check_what_no_owner_orders();
  check_threads();
  return failures.load() == 0 ? 0 : 1;
}
