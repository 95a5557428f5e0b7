// SPDX-License-Identifier: MIT
// Random programs over several streams and devices, compared with a model of what stream order demands: an operation
// may start only after everything that it must follow has ended. What the model does not demand, stress mode may
// reorder.
#include "check.hpp"
#include "prototypes.h"

#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace {

constexpr int devices = 2, streams_per_device = 5;  // of each device: null, two blocking, two non-blocking
constexpr int stream_count = devices * streams_per_device, event_count = 4, operations = 300;

std::atomic<long> clock_ticks{0};

// A step of the program. A record has no work and only hands on what comes before it.
struct Step {
  std::vector<int> after;
  bool has_work = false;
  std::atomic<long> started{0}, ended{0};
  static void run(void *data) {
    auto *step = static_cast<Step *>(data);
    step->started = ++clock_ticks;
    step->ended = ++clock_ticks;
  }
};

struct Model {
  std::vector<std::unique_ptr<Step>> steps;
  int last_of_stream[stream_count];
  int last_record[devices * event_count];
  std::vector<int> waits_of_stream[stream_count];  // what the stream's next step follows besides

  Model() {
    for (int &last : last_of_stream) {
      last = -1;
    }
    for (int &last : last_record) {
      last = -1;
    }
  }

  // Adds a step to a stream, with the null stream's order.
  Step *add(int stream) {
    steps.push_back(std::make_unique<Step>());
    Step *step = steps.back().get();
    const int first = stream / streams_per_device * streams_per_device, kind = stream - first;
    follow(step, last_of_stream[stream]);
    step->after.insert(step->after.end(), waits_of_stream[stream].begin(), waits_of_stream[stream].end());
    waits_of_stream[stream].clear();
    if (kind == 0) {
      follow(step, last_of_stream[first + 1]);
      follow(step, last_of_stream[first + 2]);
    } else if (kind <= 2) {
      follow(step, last_of_stream[first]);
    }
    last_of_stream[stream] = static_cast<int>(steps.size()) - 1;
    return step;
  }

  static void follow(Step *step, int index) {
    if (index >= 0) {
      step->after.push_back(index);
    }
  }

  // The latest end among all work that the step must follow.
  long latest_end(const Step &step, std::vector<char> &seen) const {
    long latest = 0;
    for (const int index : step.after) {
      if (seen[index]) {
        continue;
      }
      seen[index] = 1;
      const Step &before = *steps[index];
      const long end = before.has_work ? before.ended.load() : latest_end(before, seen);
      latest = end > latest ? end : latest;
    }
    return latest;
  }
};

void run_program(unsigned seed) {
  std::mt19937 random(seed);
  const auto pick = [&random](int count) { return static_cast<int>(random() % static_cast<unsigned>(count)); };
  hipStream_t streams[stream_count];
  hipEvent_t events[devices * event_count];
  for (int device = 0; device < devices; ++device) {
    CHECK_EQUAL(hipSetDevice(device), hipSuccess);
    for (int kind = 0; kind < streams_per_device; ++kind) {
      hipStream_t &stream = streams[device * streams_per_device + kind];
      stream = nullptr;
      if (kind > 0) {
        CHECK_EQUAL(hipStreamCreateWithFlags(&stream, kind > 2 ? hipStreamNonBlocking : hipStreamDefault), hipSuccess);
      }
    }
    for (int i = 0; i < event_count; ++i) {
      CHECK_EQUAL(hipEventCreate(&events[device * event_count + i]), hipSuccess);
    }
  }

  Model model;
  for (int i = 0; i < operations; ++i) {
    const int stream = pick(stream_count), device = stream / streams_per_device;
    CHECK_EQUAL(hipSetDevice(device), hipSuccess);
    switch (pick(5)) {
      case 0: {
        const int event = device * event_count + pick(event_count);
        model.add(stream);
        model.last_record[event] = model.last_of_stream[stream];
        CHECK_EQUAL(hipEventRecord(events[event], streams[stream]), hipSuccess);
        break;
      }
      case 1: {
        const int event = pick(devices * event_count);
        if (model.last_record[event] >= 0) {
          model.waits_of_stream[stream].push_back(model.last_record[event]);
        }
        CHECK_EQUAL(hipStreamWaitEvent(streams[stream], events[event], 0), hipSuccess);
        break;
      }
      default: {
        Step *step = model.add(stream);
        step->has_work = true;
        CHECK_EQUAL(hipLaunchHostFunc(streams[stream], Step::run, step), hipSuccess);
      }
    }
  }
  for (int device = 0; device < devices; ++device) {
    CHECK_EQUAL(hipSetDevice(device), hipSuccess);
    CHECK_EQUAL(hipDeviceSynchronize(), hipSuccess);
  }
  for (const auto &step : model.steps) {
    std::vector<char> seen(model.steps.size());
    if (step->has_work) {
      CHECK(step->ended > 0);
      CHECK(model.latest_end(*step, seen) < step->started);
    }
  }
  for (hipStream_t stream : streams) {
    if (stream != nullptr) {
      CHECK_EQUAL(hipStreamDestroy(stream), hipSuccess);
    }
  }
  for (hipEvent_t event : events) {
    CHECK_EQUAL(hipEventDestroy(event), hipSuccess);
  }
}

}  // namespace

int main() {
  for (unsigned seed = 1; seed <= 12; ++seed) {
    run_program(seed);
    if (failures.load() != 0) {
      std::fprintf(stderr, "with the program of seed %u\n", seed);
      return 1;
    }
  }
  return 0;
}
