// SPDX-License-Identifier: MIT
// Drives hipBLASLt's C ABI with the shared case list: every algorithm of every case, at once and queued, against double
// precision; or, with --threads, from many threads at once; with --time, the time of one small call. Made for the
// sanitizers: whatever a call was given is destroyed as soon as it returns.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>

#include "driver_product.hpp"

namespace {

using namespace driver;

constexpr size_t max_workspace_bytes = 64 << 20;

// Holds a stream up until opened.
class Gate {
 public:
  void block(hipStream_t stream) { check(hipLaunchHostFunc(stream, wait, this), "hipLaunchHostFunc"); }
  void open() {
    std::lock_guard<std::mutex> lock(mutex_);
    open_ = true;
    opened_.notify_all();
  }

 private:
  static void wait(void *self) {
    auto *gate = static_cast<Gate *>(self);
    std::unique_lock<std::mutex> lock(gate->mutex_);
    gate->opened_.wait(lock, [gate] { return gate->open_; });
  }
  std::mutex mutex_;
  std::condition_variable opened_;
  bool open_ = false;
};

struct Options {
  std::string cases;
  double max_flops = 3e6;
  int threads = 0;
  int rounds = 40;
};

int fault(const Case &c, int32_t id, const char *way, const std::string &what) {
  std::fprintf(stderr, "%s, algorithm %d, %s: %s\n", c.name.c_str(), id, way, what.c_str());
  return 1;
}

// Every algorithm at once on the idle null stream and again queued behind a gate; both must give the same bits.
int run_case(hipblasLtHandle_t handle, const Case &c, std::set<int32_t> *used, size_t *runs) {
  Product product(c);
  auto algorithms = product.algorithms(handle, max_workspace_bytes);
  if (algorithms.empty()) return fault(c, -1, "heuristic", "found nothing");
  int faults = 0;
  for (const auto &algorithm : algorithms) {
    int32_t id;
    std::memcpy(&id, &algorithm.algo, sizeof(id));
    used->insert(id);
    Memory workspace(algorithm.workspaceSize);
    product.reset_results();
    product.launch(handle, algorithm, workspace.get(), nullptr);
    check(hipStreamSynchronize(nullptr), "hipStreamSynchronize");
    std::string wrong = product.compare();
    if (!wrong.empty()) faults += fault(c, id, "at once", wrong);
    auto first = product.fetch_results();

    product.reset_results();
    Stream stream;
    Gate gate;
    gate.block(stream.get());
    product.launch(handle, algorithm, workspace.get(), stream.get());
    gate.open();
    check(hipStreamSynchronize(stream.get()), "hipStreamSynchronize");
    if (product.fetch_results() != first) {
      faults += fault(c, id, "queued", "the bits differ from those of the first run");
    }
    *runs += 2;
  }
  return faults;
}

int run_all(const std::vector<Case> &cases) {
  Handle handle;
  std::set<int32_t> used;
  size_t runs = 0;
  int faults = 0;
  for (const Case &c : cases) faults += run_case(handle.get(), c, &used, &runs);
  std::printf("%zu cases, %zu runs, %d faults\n", cases.size(), runs, faults);
  for (int32_t id : used) {
    hipblasLtMatmulAlgo_t algo = {};
    char name[64] = "";
    std::memcpy(&algo, &id, sizeof(id));
    check(rocpyExtAlgoName(handle.get(), &algo, name, sizeof(name)), "rocpyExtAlgoName");
    std::printf("algorithm %d: %s\n", id, name);
  }
  return faults;
}

// One thread's work: products on two streams tied by an event, the copy of the result on the second.
int run_thread(hipblasLtHandle_t handle, const std::vector<Case> &cases, unsigned seed, int rounds) {
  std::mt19937 random(seed);
  Stream first, second;
  int faults = 0;
  for (int round = 0; round < rounds; ++round) {
    const Case &c = cases[random() % cases.size()];
    Product product(c);
    auto algorithms = product.algorithms(handle, max_workspace_bytes);
    if (algorithms.empty()) return fault(c, -1, "heuristic", "found nothing");
    const auto &algorithm = algorithms[random() % algorithms.size()];
    Memory workspace(algorithm.workspaceSize);
    Gate gate;
    bool gated = random() % 2;
    if (gated) gate.block(first.get());
    product.launch(handle, algorithm, workspace.get(), first.get());
    hipEvent_t event;
    check(hipEventCreateWithFlags(&event, hipEventDisableTiming), "hipEventCreateWithFlags");
    check(hipEventRecord(event, first.get()), "hipEventRecord");
    check(hipStreamWaitEvent(second.get(), event, 0), "hipStreamWaitEvent");
    check(hipEventDestroy(event), "hipEventDestroy");
    // A second product, after the first by the event alone, writes the same result again.
    if (c.beta[0] == 0) product.launch(handle, algorithm, workspace.get(), second.get());
    if (gated) gate.open();
    check(hipStreamSynchronize(second.get()), "hipStreamSynchronize");
    check(hipStreamSynchronize(first.get()), "hipStreamSynchronize");
    std::string wrong = product.compare();
    if (!wrong.empty()) faults += fault(c, -1, "threaded", wrong);
  }
  return faults;
}

int run_threads(const std::vector<Case> &cases, const Options &options) {
  Handle shared;
  std::atomic<int> faults{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < options.threads; ++i) {
    threads.emplace_back([&, i] {
      try {
        // Every other thread has a handle of its own.
        std::unique_ptr<Handle> own(i % 2 ? new Handle : nullptr);
        faults += run_thread(own ? own->get() : shared.get(), cases, unsigned(i) + 1, options.rounds);
      } catch (const std::exception &error) {
        std::fprintf(stderr, "thread %d: %s\n", i, error.what());
        ++faults;
      }
    });
  }
  for (std::thread &thread : threads) thread.join();
  std::printf("%d threads, %d rounds each, %d faults\n", options.threads, options.rounds, faults.load());
  return faults;
}

// Nanoseconds of one hipblasLtMatmul of 4 x 4 x 4 in float32 on the idle null stream, everything made beforehand: the
// least of many rounds, which is what it takes when nothing else runs.
int run_time() {
  Handle handle;
  hipblasLtMatmulDesc_t desc;
  hipblasLtMatrixLayout_t layout;
  hipblasLtMatmulPreference_t preference;
  check(hipblasLtMatmulDescCreate(&desc, HIPBLAS_COMPUTE_32F, HIP_R_32F), "hipblasLtMatmulDescCreate");
  check(hipblasLtMatrixLayoutCreate(&layout, HIP_R_32F, 4, 4, 4), "hipblasLtMatrixLayoutCreate");
  check(hipblasLtMatmulPreferenceCreate(&preference), "hipblasLtMatmulPreferenceCreate");
  hipblasLtMatmulHeuristicResult_t found;
  int returned = 0;
  check(hipblasLtMatmulAlgoGetHeuristic(handle.get(), desc, layout, layout, layout, layout, preference, 1, &found,
                                        &returned),
        "hipblasLtMatmulAlgoGetHeuristic");
  if (returned != 1) throw std::runtime_error("the heuristic found nothing");
  Memory a(64), b(64), d(64);
  check(hipMemset(a.get(), 0, 64), "hipMemset");
  check(hipMemset(b.get(), 0, 64), "hipMemset");
  const float alpha = 1, beta = 0;
  double least_ns = 1e12;
  for (int round = 0; round < 50; ++round) {
    constexpr int calls = 5000;
    auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i) {
      check(hipblasLtMatmul(handle.get(), desc, &alpha, a.get(), layout, b.get(), layout, &beta, d.get(), layout,
                            d.get(), layout, &found.algo, nullptr, 0, nullptr),
            "hipblasLtMatmul");
    }
    std::chrono::duration<double, std::nano> taken = std::chrono::steady_clock::now() - begin;
    least_ns = std::min(least_ns, taken.count() / calls);
  }
  std::printf("hipblasLtMatmul 4 x 4 x 4 float32: %.1f ns\n", least_ns);
  hipblasLtMatmulPreferenceDestroy(preference);
  hipblasLtMatrixLayoutDestroy(layout);
  hipblasLtMatmulDescDestroy(desc);
  return 0;
}

int main_checked(int count, char **arguments) {
  Options options;
  for (int i = 1; i < count; ++i) {
    std::string word = arguments[i];
    if (word == "--threads" && i + 1 < count) {
      options.threads = std::atoi(arguments[++i]);
    } else if (word == "--rounds" && i + 1 < count) {
      options.rounds = std::atoi(arguments[++i]);
    } else if (word == "--max-flops" && i + 1 < count) {
      options.max_flops = std::atof(arguments[++i]);
    } else if (word == "--time") {
      return run_time();
    } else {
      options.cases = word;
    }
  }
  if (options.cases.empty()) {
    std::fprintf(stderr, "usage: driver CASES.json [--max-flops N] [--threads N [--rounds N]] | driver --time\n");
    return 2;
  }
  std::vector<Case> cases;
  for (Case &c : read_cases(options.cases)) {
    if (c.flops <= options.max_flops) cases.push_back(std::move(c));
  }
  if (cases.empty()) throw std::runtime_error("no case to run");
  return (options.threads ? run_threads(cases, options) : run_all(cases)) != 0;
}

}  // namespace

int main(int count, char **arguments) {
  try {
    return main_checked(count, arguments);
  } catch (const std::exception &error) {
    std::fprintf(stderr, "driver: %s\n", error.what());
    return 1;
  }
}
