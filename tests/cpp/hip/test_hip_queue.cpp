// SPDX-License-Identifier: MIT
// Stream order through the C ABI: null, blocking, non-blocking and per-thread streams, events, destruction and threads.
// Every check holds under ROCPY_HOST_STRESS too; run it under the sanitizers.
#include "check.hpp"
#include "gate.hpp"
#include "prototypes.h"

#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

namespace {

constexpr auto a_while = std::chrono::milliseconds(30);

hipStream_t made(unsigned flags = hipStreamDefault) {
  hipStream_t stream = nullptr;
  CHECK_EQUAL(hipStreamCreateWithFlags(&stream, flags), hipSuccess);
  return stream;
}

hipEvent_t made_event(unsigned flags = hipEventDefault) {
  hipEvent_t event = nullptr;
  CHECK_EQUAL(hipEventCreateWithFlags(&event, flags), hipSuccess);
  return event;
}

void set_flag(void *flag) { static_cast<std::atomic<bool> *>(flag)->store(true); }

void run_in_order() {
  struct Step {
    std::vector<int> *done;
    int index;
  };
  const hipStream_t stream = made();
  std::vector<int> done;
  std::vector<Step> steps;
  for (int i = 0; i < 200; ++i) {
    steps.push_back({&done, i});
  }
  for (Step &step : steps) {
    const auto append = [](void *data) {
      auto *self = static_cast<Step *>(data);
      self->done->push_back(self->index);
    };
    CHECK_EQUAL(hipLaunchHostFunc(stream, append, &step), hipSuccess);
  }
  CHECK_EQUAL(hipStreamSynchronize(stream), hipSuccess);
  CHECK_EQUAL(done.size(), steps.size());
  for (size_t i = 0; i < done.size(); ++i) {
    CHECK_EQUAL(done[i], static_cast<int>(i));
  }
  CHECK_EQUAL(hipStreamDestroy(stream), hipSuccess);
}

// Whether work on `second` waits for work on `first` that cannot finish. What must not run is watched for a while; what
// may run is waited for, however slow the machine.
bool waits_for(hipStream_t second, hipStream_t first, std::chrono::milliseconds patience) {
  Gate gate;
  std::atomic<bool> has_run{false};
  CHECK_EQUAL(hipLaunchHostFunc(first, Gate::wait_at, &gate), hipSuccess);
  CHECK_EQUAL(hipLaunchHostFunc(second, set_flag, &has_run), hipSuccess);
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (!has_run && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const bool has_waited = !has_run;
  gate.open();
  CHECK_EQUAL(hipStreamSynchronize(first), hipSuccess);
  CHECK_EQUAL(hipStreamSynchronize(second), hipSuccess);
  CHECK(has_run);
  return has_waited;
}

bool follows(hipStream_t first, hipStream_t second) { return waits_for(second, first, 2 * a_while); }

bool passes(hipStream_t first, hipStream_t second) { return !waits_for(second, first, std::chrono::seconds(20)); }

void check_null_stream_rules() {
  const hipStream_t blocking = made(), other = made(), free = made(hipStreamNonBlocking);
  CHECK(follows(nullptr, blocking));
  CHECK(follows(blocking, nullptr));
  CHECK(follows(hipStreamLegacy, nullptr));
  CHECK(follows(hipStreamLegacy, blocking));
  CHECK(follows(hipStreamPerThread, nullptr));
  CHECK(follows(nullptr, hipStreamPerThread));
  CHECK(passes(hipStreamPerThread, blocking));
  CHECK(passes(blocking, other));
  CHECK(passes(nullptr, free));
  CHECK(passes(free, nullptr));
  CHECK(passes(free, blocking));
  CHECK_EQUAL(hipSetDevice(1), hipSuccess);
  const hipStream_t elsewhere = made();
  CHECK(passes(elsewhere, blocking));
  CHECK(passes(blocking, nullptr));  // the other device's null stream
  CHECK_EQUAL(hipSetDevice(0), hipSuccess);
  for (const hipStream_t stream : {blocking, other, free, elsewhere}) {
    CHECK_EQUAL(hipStreamDestroy(stream), hipSuccess);
  }
}

void check_per_thread_streams() {
  Gate gate;
  CHECK_EQUAL(hipLaunchHostFunc(hipStreamPerThread, Gate::wait_at, &gate), hipSuccess);
  unsigned long long mine = 0, theirs = 0;
  CHECK_EQUAL(hipStreamGetId(hipStreamPerThread, &mine), hipSuccess);
  std::thread other([&theirs] {
    std::atomic<bool> has_run{false};
    CHECK_EQUAL(hipStreamGetId(hipStreamPerThread, &theirs), hipSuccess);
    CHECK_EQUAL(hipLaunchHostFunc(hipStreamPerThread, set_flag, &has_run), hipSuccess);
    CHECK_EQUAL(hipStreamSynchronize(hipStreamPerThread), hipSuccess);
    CHECK(has_run);
  });
  other.join();
  CHECK(mine != theirs);
  gate.open();
  CHECK_EQUAL(hipDeviceSynchronize(), hipSuccess);
}

void check_missing_synchronisation_shows() {
  const hipStream_t stream = made();
  Gate gate;
  int source = 42, target = 7;
  CHECK_EQUAL(hipLaunchHostFunc(stream, Gate::wait_at, &gate), hipSuccess);
  CHECK_EQUAL(hipMemcpyAsync(&target, &source, sizeof target, hipMemcpyDefault, stream), hipSuccess);
  CHECK_EQUAL(target, 7);
  CHECK_EQUAL(hipStreamQuery(stream), hipErrorNotReady);
  CHECK_EQUAL(hipStreamQuery(nullptr), hipErrorNotReady);
  CHECK_EQUAL(hipPeekAtLastError(), hipSuccess);
  gate.open();
  CHECK_EQUAL(hipStreamSynchronize(stream), hipSuccess);
  CHECK_EQUAL(target, 42);
  CHECK_EQUAL(hipStreamQuery(stream), hipSuccess);
  CHECK_EQUAL(hipStreamDestroy(stream), hipSuccess);
}

void check_events() {
  const hipStream_t stream = made();
  const hipEvent_t start = made_event(), stop = made_event(), untimed = made_event(hipEventDisableTiming);
  float ms = -1;
  CHECK_EQUAL(hipEventQuery(start), hipSuccess);
  CHECK_EQUAL(hipEventSynchronize(start), hipSuccess);
  CHECK_EQUAL(hipStreamWaitEvent(stream, start, 0), hipSuccess);
  CHECK_EQUAL(hipEventElapsedTime(&ms, start, stop), hipErrorInvalidHandle);

  Gate gate;
  CHECK_EQUAL(hipEventRecord(start, stream), hipSuccess);
  CHECK_EQUAL(hipLaunchHostFunc(stream, Gate::wait_at, &gate), hipSuccess);
  CHECK_EQUAL(hipEventRecord(stop, stream), hipSuccess);
  CHECK_EQUAL(hipEventRecord(untimed, stream), hipSuccess);
  CHECK_EQUAL(hipEventQuery(stop), hipErrorNotReady);
  CHECK_EQUAL(hipEventElapsedTime(&ms, start, stop), hipErrorNotReady);
  std::this_thread::sleep_for(a_while);
  gate.open();
  CHECK_EQUAL(hipEventSynchronize(stop), hipSuccess);
  CHECK_EQUAL(hipEventElapsedTime(&ms, start, stop), hipSuccess);
  CHECK(ms > 20 && ms < 60000);
  CHECK_EQUAL(hipEventElapsedTime(&ms, stop, start), hipSuccess);
  CHECK(ms < -20);
  CHECK_EQUAL(hipEventElapsedTime(&ms, start, start), hipSuccess);
  CHECK(ms == 0);
  CHECK_EQUAL(hipEventElapsedTime(nullptr, start, stop), hipErrorInvalidValue);
  CHECK_EQUAL(hipEventSynchronize(untimed), hipSuccess);
  CHECK_EQUAL(hipEventElapsedTime(&ms, start, untimed), hipErrorInvalidHandle);

  // A record that is not reached yet outlives its event and its stream.
  Gate second;
  CHECK_EQUAL(hipLaunchHostFunc(stream, Gate::wait_at, &second), hipSuccess);
  CHECK_EQUAL(hipEventRecord(stop, stream), hipSuccess);
  const hipStream_t waiting = made();
  std::atomic<bool> has_run{false};
  CHECK_EQUAL(hipStreamWaitEvent(waiting, stop, 0), hipSuccess);
  CHECK_EQUAL(hipLaunchHostFunc(waiting, set_flag, &has_run), hipSuccess);
  CHECK_EQUAL(hipEventDestroy(stop), hipSuccess);
  CHECK_EQUAL(hipStreamDestroy(stream), hipSuccess);
  CHECK_EQUAL(hipStreamDestroy(waiting), hipSuccess);
  std::this_thread::sleep_for(a_while);
  CHECK(!has_run);
  second.open();
  CHECK_EQUAL(hipDeviceSynchronize(), hipSuccess);
  CHECK(has_run);

  CHECK_EQUAL(hipEventQuery(stop), hipErrorContextIsDestroyed);
  CHECK_EQUAL(hipEventDestroy(stop), hipErrorContextIsDestroyed);
  CHECK_EQUAL(hipEventDestroy(nullptr), hipErrorInvalidHandle);
  CHECK_EQUAL(hipEventRecord(start, stream), hipErrorContextIsDestroyed);
  CHECK_EQUAL(hipEventRecord(reinterpret_cast<hipEvent_t>(&ms), nullptr), hipErrorContextIsDestroyed);
  CHECK_EQUAL(hipSetDevice(1), hipSuccess);
  CHECK_EQUAL(hipEventRecord(start, nullptr), hipErrorInvalidHandle);
  CHECK_EQUAL(hipSetDevice(0), hipSuccess);
  CHECK_EQUAL(hipEventDestroy(start), hipSuccess);
  CHECK_EQUAL(hipEventDestroy(untimed), hipSuccess);
}

void check_wait_event_chain() {
  constexpr int length = 6;
  hipStream_t streams[length];
  hipEvent_t events[length];
  int values[length + 1] = {1};
  Gate gate;
  for (int i = 0; i < length; ++i) {
    CHECK_EQUAL(hipSetDevice(i % 3), hipSuccess);
    streams[i] = made(i % 2 ? hipStreamNonBlocking : hipStreamDefault);
    events[i] = made_event(hipEventDisableTiming);
    if (i == 0) {
      CHECK_EQUAL(hipLaunchHostFunc(streams[i], Gate::wait_at, &gate), hipSuccess);
    } else {
      CHECK_EQUAL(hipStreamWaitEvent(streams[i], events[i - 1], 0), hipSuccess);
    }
    CHECK_EQUAL(hipMemcpyAsync(&values[i + 1], &values[i], sizeof(int), hipMemcpyDefault, streams[i]), hipSuccess);
    CHECK_EQUAL(hipEventRecord(events[i], streams[i]), hipSuccess);
  }
  CHECK_EQUAL(values[length], 0);
  gate.open();
  CHECK_EQUAL(hipEventSynchronize(events[length - 1]), hipSuccess);
  CHECK_EQUAL(values[length], 1);
  for (int i = 0; i < length; ++i) {
    CHECK_EQUAL(hipEventDestroy(events[i]), hipSuccess);
    CHECK_EQUAL(hipStreamDestroy(streams[i]), hipSuccess);
  }
  CHECK_EQUAL(hipSetDevice(0), hipSuccess);
}

void check_destroyed_stream_finishes() {
  const hipStream_t stream = made();
  Gate gate;
  int source = 3, target = 0;
  CHECK_EQUAL(hipLaunchHostFunc(stream, Gate::wait_at, &gate), hipSuccess);
  CHECK_EQUAL(hipMemcpyAsync(&target, &source, sizeof target, hipMemcpyDefault, stream), hipSuccess);
  CHECK_EQUAL(hipStreamDestroy(stream), hipSuccess);
  CHECK_EQUAL(hipStreamSynchronize(stream), hipErrorContextIsDestroyed);
  CHECK_EQUAL(hipStreamDestroy(stream), hipErrorContextIsDestroyed);
  CHECK_EQUAL(hipGetLastError(), hipErrorContextIsDestroyed);
  CHECK_EQUAL(target, 0);
  gate.open();
  CHECK_EQUAL(hipDeviceSynchronize(), hipSuccess);
  CHECK_EQUAL(target, 3);
}

void check_free_waits() {
  const hipStream_t stream = made();
  void *memory = nullptr, *other = nullptr;
  CHECK_EQUAL(hipMalloc(&memory, 4096), hipSuccess);
  CHECK_EQUAL(hipMallocAsync(&other, 4096, stream), hipSuccess);
  Gate gate;
  CHECK_EQUAL(hipLaunchHostFunc(stream, Gate::wait_at, &gate), hipSuccess);
  CHECK_EQUAL(hipMemsetAsync(memory, 1, 4096, stream), hipSuccess);
  CHECK_EQUAL(hipMemsetAsync(other, 1, 4096, stream), hipSuccess);
  CHECK_EQUAL(hipFreeAsync(other, stream), hipSuccess);
  CHECK_EQUAL(hipFreeAsync(other, stream), hipErrorInvalidValue);
  CHECK_EQUAL(hipFree(other), hipErrorInvalidValue);
  std::thread opener([&gate] {
    std::this_thread::sleep_for(a_while);
    gate.open();
  });
  CHECK_EQUAL(hipFree(memory), hipSuccess);
  CHECK_EQUAL(hipStreamQuery(stream), hipSuccess);
  opener.join();
  CHECK_EQUAL(hipFree(memory), hipErrorInvalidValue);
  CHECK_EQUAL(hipStreamDestroy(stream), hipSuccess);
}

void check_threads() {
  constexpr int count = 6, rounds = 60, size = 512;
  const hipEvent_t shared = made_event();
  std::vector<std::thread> threads;
  for (int t = 0; t < count; ++t) {
    threads.emplace_back([t, shared] {
      CHECK_EQUAL(hipSetDevice(t % 2), hipSuccess);
      const hipStream_t stream = made(t % 3 == 0 ? hipStreamNonBlocking : hipStreamDefault);
      void *device = nullptr;
      CHECK_EQUAL(hipMalloc(&device, size), hipSuccess);
      std::vector<unsigned char> seen(size);
      for (int round = 0; round < rounds; ++round) {
        const int value = (t * 31 + round) & 0xff;
        CHECK_EQUAL(hipMemsetAsync(device, value, size, stream), hipSuccess);
        if (t % 2 == 0) {
          CHECK_EQUAL(hipEventRecord(shared, stream), hipSuccess);
        } else {
          CHECK_EQUAL(hipStreamWaitEvent(stream, shared, 0), hipSuccess);
        }
        CHECK_EQUAL(hipMemcpyAsync(seen.data(), device, size, hipMemcpyDeviceToHost, stream), hipSuccess);
        if (t % 3 != 0 && round % 7 == 0) {
          CHECK_EQUAL(hipMemset(device, 0, size / 2), hipSuccess);
        }
        CHECK_EQUAL(hipStreamSynchronize(stream), hipSuccess);
        CHECK_EQUAL(seen.back(), value);
      }
      CHECK_EQUAL(hipFree(device), hipSuccess);
      CHECK_EQUAL(hipStreamDestroy(stream), hipSuccess);
    });
  }
  for (std::thread &thread : threads) {
    thread.join();
  }
  CHECK_EQUAL(hipEventDestroy(shared), hipSuccess);
}

void check_destruction_race() {
  for (int round = 0; round < 20; ++round) {
    const hipStream_t stream = made();
    std::atomic<int> destroyed{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([stream, &destroyed] { destroyed += hipStreamDestroy(stream) == hipSuccess; });
    }
    for (std::thread &thread : threads) {
      thread.join();
    }
    CHECK_EQUAL(destroyed.load(), 1);
  }
}

int thread_count_of_process() {
  int count = 0;
  if (std::FILE *file = std::fopen("/proc/self/status", "r")) {
    char line[256];
    while (std::fgets(line, sizeof line, file) != nullptr) {
      std::sscanf(line, "Threads: %d", &count);
    }
    std::fclose(file);
  }
  return count;
}

void check_nothing_piles_up() {
  std::atomic<bool> flag{false};
  const hipStream_t first = made();
  for (int i = 0; i < 3000; ++i) {
    const hipStream_t stream = made();
    if (i % 10 == 0) {
      CHECK_EQUAL(hipLaunchHostFunc(stream, set_flag, &flag), hipSuccess);
    }
    CHECK_EQUAL(hipStreamDestroy(stream), hipSuccess);
    CHECK_EQUAL(hipStreamQuery(stream), hipErrorContextIsDestroyed);
  }
  CHECK_EQUAL(hipDeviceSynchronize(), hipSuccess);
  CHECK_EQUAL(hipStreamDestroy(first), hipSuccess);
  // Idle workers leave after a second.
  for (int tries = 0; tries < 100 && thread_count_of_process() > 3; ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  CHECK(thread_count_of_process() <= 3);
}

}  // namespace

int main() {
  run_in_order();
  check_null_stream_rules();
  check_per_thread_streams();
  check_missing_synchronisation_shows();
  check_events();
  check_wait_event_chain();
  check_destroyed_stream_finishes();
  check_free_waits();
  check_threads();
  check_destruction_race();
  check_nothing_piles_up();
  return failures.load() == 0 ? 0 : 1;
}
