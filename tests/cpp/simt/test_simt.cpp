// SPDX-License-Identifier: MIT
// The fiber runtime: barriers, groups and collectives order what they should, and debug mode reports what is wrong,
// with its place.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "check.hpp"
#include "launch.hpp"

using namespace rocpy::simt;

namespace {

rocpy_simt_config config_of(int32_t blocks, int32_t threads, int32_t warp = 64) {
  rocpy_simt_config config{};
  for (int axis = 0; axis < 3; ++axis) config.grid[axis] = config.block[axis] = 1;
  config.grid[0] = blocks;
  config.block[0] = threads;
  config.warp_size = warp;
  config.shared_limit_bytes = 65536;
  config.stack_bytes = 65536;
  return config;
}

void at(rocpy_simt_state *state, const char *site) { state->site = site; }

// Sum of the ranks over a group, by the protocol that compiled kernels use.
int64_t group_sum(rocpy_simt_state *state, int32_t width, int64_t value) {
  auto *slots = static_cast<int64_t *>(rocpy_simt_slots(state, width, sizeof(int64_t)));
  const int32_t rank = width ? state->rank % width : state->rank;
  slots[rank] = value;
  if (rocpy_simt_arrive(state, width)) {
    slots[0] = std::accumulate(slots, slots + rocpy_simt_group_size(state, width), int64_t{0});
    rocpy_simt_release(state, width);
  }
  return slots[0];
}

const char raising_information = 0;

struct Output {
  std::vector<int64_t> values;
  std::atomic<int> visits{0};
};

void plain(void *arguments, rocpy_simt_state *state) {
  auto &out = *static_cast<Output *>(arguments);
  out.values[static_cast<int64_t>(state->block_index[0]) * state->size + state->rank] =
      100 * state->thread_index[2] + 10 * state->thread_index[1] + state->thread_index[0];
  ++out.visits;
}

void test_plain_loop_and_indices() {
  rocpy_simt_config config = config_of(7, 2);
  config.block[1] = 3;
  config.block[2] = 4;
  Output out;
  out.values.assign(7 * 24, -1);
  CHECK(!launch({&plain, Form::fibers}, &out, config));
  CHECK(out.visits == 7 * 24);
  for (int64_t i = 0; i < 7 * 24; ++i) {
    const int64_t rank = i % 24;
    CHECK(out.values[i] == 100 * (rank / 6) + 10 * (rank / 2 % 3) + rank % 2);
  }
}

void tree(void *arguments, rocpy_simt_state *state) {
  auto &out = *static_cast<Output *>(arguments);
  static const char key = 0;
  auto *shared = static_cast<int64_t *>(rocpy_simt_shared(state, &key, 8 * state->size));
  shared[state->rank] = state->rank + state->block_index[0];
  for (int32_t step = state->size / 2; step > 0; step /= 2) {
    rocpy_simt_barrier(state, 0);
    if (state->rank < step) shared[state->rank] += shared[state->rank + step];
  }
  if (state->rank == 0) out.values[state->block_index[0]] = shared[0];
}

void test_barriers(int32_t shuffle) {
  for (const int32_t threads : {1, 2, 64, 256}) {
    rocpy_simt_config config = config_of(12, threads);
    config.shuffle = shuffle;
    config.seed = static_cast<uint64_t>(threads);
    config.threads = 4;
    Output out;
    out.values.assign(12, -1);
    CHECK(!launch({&tree, Form::fibers}, &out, config));
    for (int64_t block = 0; block < 12; ++block) {
      CHECK(out.values[block] == int64_t{threads} * (threads - 1) / 2 + threads * block);
    }
  }
}

void collectives(void *arguments, rocpy_simt_state *state) {
  auto &out = *static_cast<Output *>(arguments);
  int64_t total = 0;
  for (int round = 0; round < 5; ++round) {
    for (const int32_t width : {0, 1, 8, state->warp_size}) total += (round + 1) * group_sum(state, width, state->rank);
  }
  out.values[static_cast<int64_t>(state->block_index[0]) * state->size + state->rank] = total;
}

int64_t expected_sum(int64_t rank, int64_t width, int64_t size) {
  if (width == 0) return size * (size - 1) / 2;
  const int64_t begin = rank / width * width;
  int64_t total = 0;
  for (int64_t i = begin; i < std::min(begin + width, size); ++i) total += i;
  return total;
}

void test_collectives() {
  for (const int32_t warp : {32, 64}) {
    for (const int32_t threads : {1, 31, 100, 300}) {
      for (const int32_t shuffle : {0, 1}) {
        rocpy_simt_config config = config_of(9, threads, warp);
        config.shuffle = shuffle;
        config.seed = 11;
        config.debug = 1;
        Output out;
        out.values.assign(int64_t{9} * threads, -1);
        CHECK(!launch({&collectives, Form::fibers}, &out, config));
        for (int64_t i = 0; i < 9 * threads; ++i) {
          int64_t want = 0;
          for (const int64_t width : {0, 1, 8, static_cast<int>(warp)}) {
            want += expected_sum(i % threads, width, threads);
          }
          CHECK(out.values[i] == 15 * want);
        }
      }
    }
  }
}

void early_exit(void *arguments, rocpy_simt_state *state) {
  auto &out = *static_cast<Output *>(arguments);
  if (state->rank % 3 == 0) return;
  rocpy_simt_barrier(state, 0);
  ++out.visits;
  if (state->rank % 3 == 1) return;
  rocpy_simt_barrier(state, 0);
  ++out.visits;
}

void test_threads_that_left_do_not_count() {
  Output out;
  CHECK(!launch({&early_exit, Form::fibers}, &out, config_of(5, 90)));
  CHECK(out.visits == 5 * 90);
}

// As LLVM splits a coroutine: what goes on, then what is kept.
struct RankSum {
  void (*go_on)(RankSum *);
  rocpy_simt_state *state;
  Output *out;
  int64_t *slots;
  int32_t round;
};

constexpr int32_t round_count = 4;

void step(RankSum *frame) {
  rocpy_simt_state *state = frame->state;
  while (frame->round < round_count) {
    const int32_t width = frame->round % 2 ? 8 : 0;
    if (!frame->slots) {
      frame->slots = static_cast<int64_t *>(rocpy_simt_slots(state, width, sizeof(int64_t)));
      frame->slots[width ? state->rank % width : state->rank] = state->rank;
      if (!rocpy_simt_begin_arrive(state, width)) return;
      frame->slots[0] = std::accumulate(frame->slots, frame->slots + rocpy_simt_group_size(state, width), int64_t{0});
      rocpy_simt_release(state, width);
    }
    frame->out->values[static_cast<int64_t>(state->block_index[0]) * state->size + state->rank] += frame->slots[0];
    frame->slots = nullptr;
    ++frame->round;
  }
}

void resumable_sum(void *arguments, rocpy_simt_state *state) {
  auto *frame = static_cast<RankSum *>(rocpy_simt_frame(state, sizeof(RankSum)));
  *frame = {&step, state, static_cast<Output *>(arguments), nullptr, 0};
  state->frame = frame;
  step(frame);
}

void resumable_exit(void *, rocpy_simt_state *state) {
  auto *frame = static_cast<RankSum *>(rocpy_simt_frame(state, sizeof(RankSum)));
  *frame = {[](RankSum *) {}, state, nullptr, nullptr, 0};
  state->frame = frame;
  at(state, "k.py:2");
  if (state->rank == 3) return;
  rocpy_simt_begin_barrier(state, state->block_index[0] == 4 && state->rank == 5 ? 8 : 0);
}

// Launches a kernel with blocks of several sizes: each thread's value in the output is `expected(rank, threads)`.
template <class Expected>
void check_values(Kernel kernel, Expected expected) {
  for (const int32_t threads : {1, 8, 72, 256}) {
    rocpy_simt_config config = config_of(5, threads);
    config.threads = 2;
    Output out;
    out.values.assign(int64_t{5} * threads, 0);
    CHECK(!launch(kernel, &out, config));
    for (int64_t i = 0; i < 5 * threads; ++i) CHECK(out.values[i] == expected(i % threads, threads));
  }
}

void test_resumable() {
  check_values({&resumable_sum, Form::turns}, [](int64_t rank, int32_t threads) {
    return 2 * expected_sum(rank, 0, threads) + 2 * expected_sum(rank, 8, threads);
  });
  const std::unique_ptr<Error> error = launch({&resumable_exit, Form::turns}, nullptr, config_of(6, 40));
  CHECK(error && error->fault == Fault::divergence && error->block[0] == 4 && error->site == "k.py:2");
}

// Three collectives, each of elements twice as wide: each thread adds what its right neighbour has brought.
void loops(void *arguments, rocpy_simt_state *state) {
  const int32_t size = state->size;
  auto *sums = static_cast<int64_t *>(rocpy_simt_block_memory(state, size * static_cast<int64_t>(sizeof(int64_t))));
  std::fill_n(sums, size, 0);
  char *earlier = nullptr;
  for (int32_t collective = 0; collective < 3; ++collective) {
    const int64_t bytes = int64_t{8} << collective;
    auto *slots = static_cast<char *>(rocpy_simt_block_slots(state, collective, bytes));
    CHECK(reinterpret_cast<uintptr_t>(slots) % 64 == 0 && slots != earlier);
    CHECK(slots == rocpy_simt_block_slots(state, collective, bytes));
    for (int64_t rank = 0; rank < size; ++rank) std::memcpy(slots + rank * bytes, &rank, sizeof rank);
    for (int32_t rank = 0; rank < size; ++rank) {
      int64_t value = 0;
      std::memcpy(&value, slots + (rank + 1) % size * bytes, sizeof value);
      sums[rank] += value;
    }
    earlier = slots;
  }
  static const char key = 0;
  rocpy_simt_block_reserve(state, "k.py:1", &key, 128);
  CHECK(rocpy_simt_block_shared(state, &key, 128) == rocpy_simt_shared_in(state, size - 1, "k.py:2", &key, 128));
  auto &values = static_cast<Output *>(arguments)->values;
  std::copy_n(sums, size, values.begin() + static_cast<int64_t>(state->block_index[0]) * size);
}

void loops_that_fail(void *arguments, rocpy_simt_state *state) {
  static const char key = 0;
  if (arguments) rocpy_simt_shared_in(state, 5, "k.py:6", &key, 70000);
  if (state->block_index[0] == 1) rocpy_simt_raise_in(state, 7, "k.py:8", 42, &raising_information);
}

void test_loops() {
  check_values({&loops, Form::loops}, [](int64_t rank, int32_t threads) { return 3 * ((rank + 1) % threads); });
  rocpy_simt_config config = config_of(3, 4);
  config.block[1] = 2;
  std::unique_ptr<Error> error = launch({&loops_that_fail, Form::loops}, nullptr, config);
  CHECK(error && error->fault == Fault::exception && error->code == 42 && error->information == &raising_information);
  CHECK(error->block[0] == 1 && error->thread[0] == 3 && error->thread[1] == 1 && error->site == "k.py:8");
  error = launch({&loops_that_fail, Form::loops}, &config, config);
  CHECK(error && error->fault == Fault::shared_memory && error->site == "k.py:6");
  CHECK(error->thread[0] == 1 && error->thread[1] == 1);
}

void diverging(void *, rocpy_simt_state *state) {
  const bool first = state->rank < 10;
  at(state, first ? "k.py:3" : "k.py:5");
  rocpy_simt_barrier(state, first ? 0 : 32);
  at(state, "k.py:7");
  if (!first) rocpy_simt_barrier(state, 8);
}

void two_branches(void *, rocpy_simt_state *state) {
  at(state, state->rank % 2 ? "k.py:3" : "k.py:5");
  rocpy_simt_barrier(state, 0);
}

void left_a_collective(void *, rocpy_simt_state *state) {
  if (state->block_index[0] != 2 || state->rank == 4) return;
  at(state, "k.py:9");
  group_sum(state, 0, 1);
}

void test_divergence() {
  std::unique_ptr<Error> error = launch({&diverging, Form::fibers}, nullptr, config_of(3, 40, 32));
  CHECK(error && error->fault == Fault::divergence && error->block_rank == 0);
  CHECK(error->site == "k.py:3" || error->site == "k.py:5" || error->site == "k.py:7");
  CHECK(!launch({&two_branches, Form::fibers}, nullptr, config_of(1, 8)));
  rocpy_simt_config config = config_of(1, 8);
  config.debug = 1;
  error = launch({&two_branches, Form::fibers}, nullptr, config);
  CHECK(error && error->fault == Fault::divergence && error->has_other);
  CHECK((std::set<std::string>{error->site, error->other_site} == std::set<std::string>{"k.py:3", "k.py:5"}));
  for (const int32_t threads : {1, 3}) {
    config = config_of(8, 8);
    config.threads = threads;
    error = launch({&left_a_collective, Form::fibers}, nullptr, config);
    CHECK(error && error->fault == Fault::divergence && error->block[0] == 2 && error->site == "k.py:9");
  }
}

struct AccessPair {
  int32_t writer, reader;  // ranks
  int32_t barrier_width;   // -1: none
  int32_t first, second;   // kinds of access
};

void two_accesses(void *arguments, rocpy_simt_state *state) {
  const auto &plan = *static_cast<const AccessPair *>(arguments);
  static const char key = 0;
  auto *shared = static_cast<char *>(rocpy_simt_shared(state, &key, 64));
  at(state, "k.py:1");
  if (state->rank == plan.writer) {
    if (plan.first == ROCPY_SIMT_READ) rocpy_simt_access(state, shared, 4, ROCPY_SIMT_WRITE);
    if (plan.first == ROCPY_SIMT_READ) rocpy_simt_barrier(state, 0);
    rocpy_simt_access(state, shared, 4, plan.first);
  } else if (plan.first == ROCPY_SIMT_READ) {
    rocpy_simt_barrier(state, 0);
  }
  at(state, "k.py:2");
  if (plan.barrier_width >= 0) rocpy_simt_barrier(state, plan.barrier_width);
  at(state, "k.py:3");
  if (state->rank == plan.reader) rocpy_simt_access(state, shared + 3, 4, plan.second);
}

Fault fault_of(const AccessPair &plan, bool *raced) {
  rocpy_simt_config config = config_of(1, 96, 32);
  config.debug = 1;
  AccessPair copy = plan;
  std::unique_ptr<Error> error = launch({&two_accesses, Form::fibers}, &copy, config);
  *raced = error && error->fault == Fault::race;
  if (*raced) CHECK(error->site == "k.py:3" && error->other_site == "k.py:1" && error->has_other);
  return error ? error->fault : Fault::exception;
}

void test_races() {
  bool raced = false;
  const int32_t read = ROCPY_SIMT_READ, write = ROCPY_SIMT_WRITE, atomic = ROCPY_SIMT_ATOMIC;
  fault_of({0, 1, -1, write, write}, &raced);
  CHECK(raced);
  fault_of({0, 1, 0, write, write}, &raced);
  CHECK(!raced);
  fault_of({0, 1, 32, write, write}, &raced);  // a barrier of their warp is enough
  CHECK(!raced);
  fault_of({0, 40, 32, write, write}, &raced);  // not for threads of two warps
  CHECK(raced);
  fault_of({0, 1, 2, write, read}, &raced);  // so is one of any narrower group of both
  CHECK(!raced);
  fault_of({1, 2, 2, write, read}, &raced);
  CHECK(raced);
  fault_of({90, 95, 8, read, write}, &raced);
  CHECK(!raced);
  fault_of({87, 88, 8, read, write}, &raced);
  CHECK(raced);
  fault_of({0, 1, -1, read, write}, &raced);
  CHECK(raced);
  fault_of({0, 0, -1, write, write}, &raced);
  CHECK(!raced);
  fault_of({0, 1, -1, write, atomic}, &raced);
  CHECK(raced);
  // The byte after the four that were written is nobody's.
  CHECK(fault_of({0, 0, -1, write, read}, &raced) == Fault::uninitialised);
}

// Any order of reads and barriers: a write races with what is kept of the reads if it does with any of them.
void test_readers_stand_for_all() {
  const std::vector<int32_t> widths{2, 4, 32, 64, 0};
  const std::vector<int32_t> ranks{0, 1, 2, 3, 5, 31, 32, 63, 64, 66, 127};
  std::minstd_rand random(7);
  const auto draw = [&random](const std::vector<int32_t> &from) { return from[random() % from.size()]; };
  int races = 0;
  for (int round = 0; round < 300; ++round) {
    std::map<std::pair<int32_t, int32_t>, uint64_t> last;  // of a width and the group's number
    uint64_t barriers = 0;
    uint32_t block = 0;
    std::vector<Access> reads;
    Readers readers;
    const auto moment = [&](int32_t rank) {
      Moment now;
      now.access.barriers = barriers;
      now.access.block = block;
      now.access.thread_after = static_cast<uint16_t>(rank + 1);
      for (const int32_t width : widths) now.passed(group_level(width), last[{width, width ? rank / width : 0}]);
      return now;
    };
    for (int event = 0; event < 40; ++event) {
      const int32_t rank = draw(ranks);
      const Moment now = moment(rank);
      const auto unordered = [&](const Access &read) {
        if (read.block != block) return true;
        if (read.thread() == rank) return false;
        return std::none_of(widths.begin(), widths.end(), [&](int32_t width) {
          const bool both = width == 0 || rank / width == read.thread() / width;
          return both && last[{width, width ? rank / width : 0}] > read.barriers;
        });
      };
      const Access *raced = readers.raced(now);
      CHECK((raced != nullptr) == std::any_of(reads.begin(), reads.end(), unordered));
      CHECK(!raced || unordered(*raced));
      races += raced != nullptr;
      if (round % 4 == 0 && event == 30) {
        ++block;
        last.clear();
        barriers = 0;
      } else if (random() % 3) {
        const int32_t width = draw(widths);
        last[{width, width ? rank / width : 0}] = ++barriers;
      } else {
        readers.add(now);
        reads.push_back(now.access);
      }
    }
  }
  CHECK(races > 1000 && races < 11000);
}

void raising(void *, rocpy_simt_state *state) {
  at(state, "k.py:4");
  if (state->block_index[0] == 3 && state->rank == 5) rocpy_simt_raise(state, 42, &raising_information);
  rocpy_simt_barrier(state, 0);
}

void large(void *, rocpy_simt_state *state) {
  static const char key = 0;
  rocpy_simt_shared(state, &key, 70000);
}

void odd_width(void *, rocpy_simt_state *state) { rocpy_simt_barrier(state, 12); }

void test_errors() {
  rocpy_simt_config config = config_of(20, 8);
  config.threads = 3;
  std::unique_ptr<Error> error = launch({&raising, Form::fibers}, nullptr, config);
  CHECK(error && error->fault == Fault::exception && error->code == 42 && error->information == &raising_information);
  CHECK(error->block[0] == 3 && error->thread[0] == 5 && error->site == "k.py:4");
  error = launch({&large, Form::fibers}, nullptr, config_of(1, 1));
  CHECK(error && error->fault == Fault::shared_memory);
  error = launch({&odd_width, Form::fibers}, nullptr, config_of(1, 1));
  CHECK(error && error->fault == Fault::unsupported);
}

void test_launches_from_many_threads() {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([] {
      for (int round = 0; round < 3; ++round) test_barriers(round % 2);
    });
  }
  for (std::thread &thread : threads) thread.join();
}

}  // namespace

int main() {
  test_plain_loop_and_indices();
  test_barriers(0);
  test_barriers(1);
  test_collectives();
  test_threads_that_left_do_not_count();
  test_resumable();
  test_loops();
  test_divergence();
  test_races();
  test_readers_stand_for_all();
  test_errors();
  test_launches_from_many_threads();
  CHECK(measure_switch_ns(64, 100) > 0);
  return failures.load() != 0;
}
