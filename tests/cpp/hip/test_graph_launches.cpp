// SPDX-License-Identifier: MIT
// Launches of graphs: two of one executable graph never run at the same time, whichever way they were made; and host
// functions run in a worker, however deep in graphs they are.
#include "check.hpp"
#include "prototypes.h"

#include <algorithm>
#include <numeric>
#include <thread>
#include <vector>

namespace {

hipStream_t made_stream() {
  hipStream_t stream = nullptr;
  CHECK_EQUAL(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking), hipSuccess);
  return stream;
}

// An executable graph of what `work(stream)` submits.
template <class Work>
hipGraphExec_t captured(Work work) {
  const hipStream_t stream = made_stream();
  hipGraph_t graph = nullptr;
  hipGraphExec_t exec = nullptr;
  CHECK_EQUAL(hipStreamBeginCapture(stream, hipStreamCaptureModeRelaxed), hipSuccess);
  work(stream);
  CHECK_EQUAL(hipStreamEndCapture(stream, &graph), hipSuccess);
  CHECK_EQUAL(hipGraphInstantiate(&exec, graph, nullptr, nullptr, 0), hipSuccess);
  CHECK_EQUAL(hipGraphDestroy(graph), hipSuccess);
  CHECK_EQUAL(hipStreamDestroy(stream), hipSuccess);
  return exec;
}

hipGraphExec_t captured_launch(hipGraphExec_t exec) {
  return captured([exec](hipStream_t stream) { CHECK_EQUAL(hipGraphLaunch(exec, stream), hipSuccess); });
}

// Two threads launch a graph each, at the same moment, again and again.
void launch_together(hipGraphExec_t first, hipGraphExec_t second, int times) {
  std::atomic<int> arrived{0};
  const auto launch = [&arrived, times](hipGraphExec_t exec) {
    const hipStream_t stream = made_stream();
    for (int i = 0; i < times; ++i) {
      for (const int wanted : {4 * i + 2, 4 * i + 4}) {
        arrived.fetch_add(1);
        while (arrived.load() < wanted) std::this_thread::yield();
        if (wanted == 4 * i + 2) {
          CHECK_EQUAL(hipGraphLaunch(exec, stream), hipSuccess);
          CHECK_EQUAL(hipStreamSynchronize(stream), hipSuccess);
        }
      }
    }
    CHECK_EQUAL(hipStreamDestroy(stream), hipSuccess);
  };
  std::thread other(launch, second);
  launch(first);
  other.join();
}

// A graph that moves all elements by one. A run beside another loses its step.
struct Shift {
  std::vector<int> values = std::vector<int>(8192), copy = values;

  hipGraphExec_t graph() {
    return captured([this](hipStream_t stream) {
      const size_t bytes = values.size() * sizeof(int);
      CHECK_EQUAL(hipMemcpyAsync(copy.data(), values.data(), bytes, hipMemcpyDefault, stream), hipSuccess);
      CHECK_EQUAL(hipMemcpyAsync(values.data() + 1, copy.data(), bytes - sizeof(int), hipMemcpyDefault, stream),
                  hipSuccess);
    });
  }

  void begin() { std::iota(values.begin(), values.end(), 0); }
  bool has_moved_by(int steps) const {
    for (int i = 0; i < static_cast<int>(values.size()); ++i) {
      if (values[i] != std::max(0, i - steps)) return false;
    }
    return true;
  }
};

// A host function that notes whether it runs beside itself.
struct Alone {
  std::atomic<bool> is_running{false}, was_alone{true};
  static void run(void *data) {
    auto *self = static_cast<Alone *>(data);
    if (self->is_running.exchange(true)) self->was_alone = false;
    for (int i = 0; i < 20; ++i) std::this_thread::yield();
    self->is_running = false;
  }
};

void check_never_beside_itself() {
  constexpr int times = 1000, times_of_host_function = 100;
  Shift shift;
  Alone alone;
  const hipGraphExec_t exec = shift.graph();
  const hipGraphExec_t host =
      captured([&](hipStream_t stream) { CHECK_EQUAL(hipLaunchHostFunc(stream, Alone::run, &alone), hipSuccess); });
  for (const hipGraphExec_t inner : {exec, host}) {
    const hipGraphExec_t outer = captured_launch(inner), outermost = captured_launch(outer);
    for (const hipGraphExec_t first : {inner, outer}) {
      for (const hipGraphExec_t second : {inner, outermost}) {
        shift.begin();
        const int count = inner == exec ? times : times_of_host_function;
        launch_together(first, second, count);
        CHECK(inner == host || shift.has_moved_by(2 * count));
        CHECK(alone.was_alone);
      }
    }
    for (const hipGraphExec_t one : {outer, outermost}) CHECK_EQUAL(hipGraphExecDestroy(one), hipSuccess);
  }
  for (const hipGraphExec_t one : {exec, host}) CHECK_EQUAL(hipGraphExecDestroy(one), hipSuccess);
}

void note_thread(void *thread) { *static_cast<std::thread::id *>(thread) = std::this_thread::get_id(); }

void check_host_functions_run_in_a_worker() {
  std::thread::id thread;
  const hipStream_t stream = made_stream();
  const hipGraphExec_t direct =
      captured([&](hipStream_t own) { CHECK_EQUAL(hipLaunchHostFunc(own, note_thread, &thread), hipSuccess); });
  const hipGraphExec_t outer = captured_launch(direct), outermost = captured_launch(outer);
  for (const hipGraphExec_t exec : {direct, outer, outermost}) {
    thread = {};
    CHECK_EQUAL(hipGraphLaunch(exec, stream), hipSuccess);
    CHECK_EQUAL(hipStreamSynchronize(stream), hipSuccess);
    CHECK(thread != std::thread::id() && thread != std::this_thread::get_id());
    CHECK_EQUAL(hipGraphExecDestroy(exec), hipSuccess);
  }
  CHECK_EQUAL(hipStreamDestroy(stream), hipSuccess);
}

}  // namespace

int main() {
  check_host_functions_run_in_a_worker();
  check_never_beside_itself();
  return failures.load() == 0 ? 0 : 1;
}
