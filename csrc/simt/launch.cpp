// SPDX-License-Identifier: MIT
// A grid: blocks are handed out in order to the threads that take part; the first block in that order that fails is the
// one reported.
#include "launch.hpp"

#include <algorithm>
#include <atomic>
#include <ctime>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "block.hpp"
#include "fp_environment.h"
#include "pool.hpp"

namespace rocpy::simt {

namespace {

constexpr std::size_t max_idle_runners = 32;
constexpr int64_t most_blocks_at_once = 16;

// Runners that no launch uses: their stacks are mapped and warm.
class RunnerStore {
 public:
  std::unique_ptr<BlockRunner> take(int64_t stack_bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (auto it = idle_.rbegin(); it != idle_.rend(); ++it) {
      if ((*it)->stack_bytes() != stack_bytes) continue;
      std::unique_ptr<BlockRunner> runner = std::move(*it);
      idle_.erase(std::next(it).base());
      return runner;
    }
    return std::make_unique<BlockRunner>(stack_bytes);
  }

  void give_back(std::unique_ptr<BlockRunner> runner) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (idle_.size() < max_idle_runners) idle_.push_back(std::move(runner));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<BlockRunner>> idle_;
};

// Never taken down: threads of the pool may hold runners at exit.
RunnerStore &runner_store = *new RunnerStore;

class Grid {
 public:
  Grid(Kernel kernel, void *arguments, const rocpy_simt_config &config, std::vector<Range> arrays = {})
      : kernel_(kernel), arguments_(arguments), config_(config), arrays_(std::move(arrays)) {
    blocks_ = static_cast<int64_t>(config.grid[0]) * config.grid[1] * config.grid[2];
  }

  std::unique_ptr<Error> run() {
    if (!arrays_.empty()) {  // in debug mode, where blocks run one after the other: what is found is always the same
      try {
        check_ = std::make_unique<GlobalCheck>(std::move(arrays_));
      } catch (const std::bad_alloc &) {
        auto error = std::make_unique<Error>();
        error->fault = Fault::out_of_memory;
        error->detail = "not enough memory to record accesses to the arrays in debug mode; use smaller arrays";
        return error;
      }
      config_.threads = 1;
    }
    const int threads = config_.threads > 0 ? config_.threads : default_threads();
    const int64_t helpers = std::min<int64_t>(threads, blocks_) - 1;
    // A few turns for each thread even out what blocks differ in.
    chunk_ = std::clamp<int64_t>(blocks_ / (8 * (helpers + 1)), 1, most_blocks_at_once);
    run_with_helpers(static_cast<int>(helpers), [this] { take_blocks(); });
    return error_ ? std::move(error_) : std::move(warning_);
  }

  uint64_t switches() const { return switches_.load(); }

 private:
  // Fibers share the environment of the thread that runs them: a switch keeps no control registers.
  void take_blocks() {
    const rocpy::DefaultFpEnvironment environment;
    if (next_.load(std::memory_order_relaxed) >= blocks_) return;
    try {
      std::unique_ptr<BlockRunner> runner = runner_store.take(config_.stack_bytes);
      runner->begin(kernel_, arguments_, config_, check_.get());
      while (!failed_.load(std::memory_order_relaxed)) {
        const int64_t first = next_.fetch_add(chunk_, std::memory_order_relaxed);
        if (first >= blocks_) break;
        // Blocks before a failed one are still run, so that the error does not depend on the threads.
        for (int64_t block = first; block < std::min(first + chunk_, blocks_); ++block) {
          if (std::unique_ptr<Error> error = runner->run(block)) {
            keep(std::move(error));
            break;
          }
        }
      }
      switches_ += runner->switches();
      if (std::unique_ptr<Error> warning = runner->take_warning()) keep_warning(std::move(warning));
      runner_store.give_back(std::move(runner));
    } catch (const std::bad_alloc &) {
      auto error = std::make_unique<Error>();
      error->fault = Fault::out_of_memory;
      error->detail = "no memory for the fibers' stacks; use smaller blocks or a smaller stack_bytes";
      keep(std::move(error));
    }
  }

  void keep(std::unique_ptr<Error> error) {
    const std::lock_guard<std::mutex> lock(mutex_);
    failed_ = true;
    if (!error_ || error->block_rank < error_->block_rank) error_ = std::move(error);
  }

  void keep_warning(std::unique_ptr<Error> warning) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!warning_ || warning->block_rank < warning_->block_rank) warning_ = std::move(warning);
  }

  Kernel kernel_;
  void *arguments_;
  rocpy_simt_config config_;
  std::vector<Range> arrays_;
  std::unique_ptr<GlobalCheck> check_;
  int64_t blocks_ = 0;
  int64_t chunk_ = 1;
  std::atomic<int64_t> next_{0};
  std::atomic<bool> failed_{false};
  std::atomic<uint64_t> switches_{0};
  std::mutex mutex_;
  std::unique_ptr<Error> error_;
  std::unique_ptr<Error> warning_;
};

}  // namespace

std::unique_ptr<Error> launch(Kernel kernel, void *arguments, const rocpy_simt_config &config,
                              std::vector<Range> arrays) {
  return Grid(kernel, arguments, config, std::move(arrays)).run();
}

double measure_switch_ns(int32_t threads, int32_t rounds) {
  rocpy_simt_config config{};
  for (int axis = 0; axis < 3; ++axis) config.grid[axis] = config.block[axis] = 1;
  config.block[0] = threads;
  config.warp_size = 64;
  config.threads = 1;
  config.stack_bytes = 65536;
  const auto kernel = [](void *arguments, rocpy_simt_state *state) {
    const int32_t count = *static_cast<const int32_t *>(arguments);
    for (int32_t i = 0; i < count; ++i) rocpy_simt_barrier(state, 0);
  };
  Grid grid({kernel, Form::fibers}, &rounds, config);
  timespec begin{}, end{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);  // what the thread spends, however busy the machine is
  grid.run();
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
  const double elapsed =
      1e9 * static_cast<double>(end.tv_sec - begin.tv_sec) + static_cast<double>(end.tv_nsec - begin.tv_nsec);
  return elapsed / static_cast<double>(std::max<uint64_t>(1, grid.switches()));
}

}  // namespace rocpy::simt

using rocpy::simt::BlockRunner;

extern "C" {

rocpy_simt_state *rocpy_simt_current(void) { return BlockRunner::running->state(); }

int32_t rocpy_simt_debugging(void) { return BlockRunner::running->state()->debug; }

void *rocpy_simt_slots(rocpy_simt_state *state, int32_t width, int64_t bytes) {
  return BlockRunner::running->slots(state, width, bytes);
}

void rocpy_simt_release(rocpy_simt_state *state, int32_t width) { BlockRunner::running->release(state, width); }

int32_t rocpy_simt_group_size(rocpy_simt_state *state, int32_t width) {
  return BlockRunner::running->group_size(state, width);
}

void *rocpy_simt_shared(rocpy_simt_state *state, const void *key, int64_t bytes) {
  return BlockRunner::running->shared(state, key, bytes);
}

void *rocpy_simt_dynamic_shared(rocpy_simt_state *) { return BlockRunner::running->dynamic_shared(); }

void rocpy_simt_access(rocpy_simt_state *state, const void *address, int64_t bytes, int32_t kind) {
  BlockRunner::running->access(state, address, bytes, kind);
}

void rocpy_simt_stored(rocpy_simt_state *state, const void *address, int64_t bits, int32_t bytes) {
  const auto word = static_cast<uint64_t>(bits);
  BlockRunner::running->stored(state, address, bytes == 4 ? word & 0xffffffffu : word, bytes);
}

void rocpy_simt_poisoned(rocpy_simt_state *) { BlockRunner::running->note_poison(); }

void rocpy_simt_divided_by_zero(rocpy_simt_state *state) { BlockRunner::running->divided_by_zero(state); }

void rocpy_simt_raise(rocpy_simt_state *state, int32_t code, const void *information) {
  BlockRunner::running->raise(state, code, information);
}

}  // extern "C"
