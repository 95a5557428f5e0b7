// SPDX-License-Identifier: MIT
// The thread pool: every task runs once, calls from several threads and from within tasks finish, a forked child has a
// pool of its own. Products are cut for the threads that they keep busy.
#include "threads.hpp"

#include "blocking.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <thread>
#include <vector>

namespace {

using rocpy_host::parallel_for;

constexpr int64_t task_count = 200;

struct Counts {
  std::atomic<int> of[task_count] = {};
  static void task(void *context, int64_t i) { static_cast<Counts *>(context)->of[i].fetch_add(1); }
  bool each_is(int times) const {
    for (const auto &count : of) {
      if (count.load() != times) return false;
    }
    return true;
  }
};

bool each_task_once(int rounds) {
  Counts counts;
  for (int round = 0; round < rounds; round++) {
    parallel_for(task_count, 1024, Counts::task, &counts);
    if (!counts.each_is(round + 1)) return false;
  }
  return true;
}

bool sleeping_workers_wake() {
  for (int round = 0; round < 20; round++) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    if (!each_task_once(1)) return false;
  }
  return true;
}

bool callers_at_once() {
  std::atomic<int> good{0};
  std::vector<std::thread> callers;
  for (int i = 0; i < 4; i++) callers.emplace_back([&] { good += each_task_once(200); });
  for (std::thread &caller : callers) caller.join();
  return good == 4;
}

// A task's own call runs on its thread alone.
bool nested() {
  struct Context {
    std::atomic<int> strays{0};
  } context;
  parallel_for(
      16, 1024,
      [](void *outer, int64_t) {
        struct Inner {
          std::thread::id id;
          Context *context;
        } inner{std::this_thread::get_id(), static_cast<Context *>(outer)};
        parallel_for(
            16, 1024,
            [](void *data, int64_t) {
              Inner *in = static_cast<Inner *>(data);
              if (std::this_thread::get_id() != in->id) in->context->strays++;
            },
            &inner);
      },
      &context);
  return context.strays == 0;
}

bool limits() {
  const int all = rocpy_host::thread_count(), before = rocpy_host::set_thread_limit(1);
  bool good = before == 0 && rocpy_host::thread_count() == 1 && each_task_once(3);
  good = good && rocpy_host::set_thread_limit(0) == 1;
  return good && rocpy_host::thread_count() == all;
}

bool forked_child() {
  each_task_once(1);
  pid_t child = fork();
  if (child == 0) {
    alarm(60);
    _exit(each_task_once(50) && callers_at_once() ? 0 : 1);
  }
  int status = -1;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0 && each_task_once(5);
}

// A task for each thread, or of few panels chunks no longer than an equal share.
bool products_are_shared() {
  using namespace rocpy_host::gemm;
  for (int64_t n : {128, 192, 256, 1000}) {
    Problem p;
    p.m = p.n = p.k = n;
    p.batch = 1;
    p.a.row_stride = p.b.row_stride = p.d_row_stride = n;
    p.a.column_stride = p.b.column_stride = 1;
    for (const Variant &variant : variants) {
      if (variant.family != Family::direct && variant.family != Family::blocked) continue;
      for (int threads : {1, 2, 3, 4}) {
        const Blocks blocks = make_blocks(variant, p, threads);
        const int64_t filled = (blocks.chunks - 1) * blocks.chunk_panels;
        const bool shared = blocks.blocks * blocks.chunks >= threads ||
                            blocks.chunk_panels <= divide_up(blocks.panels * blocks.blocks, threads);
        if (shared && filled < blocks.panels && filled + blocks.chunk_panels >= blocks.panels) continue;
        printf("%s: %lld^3 for %d threads cut into %lld x %lld tasks\n", variant.algorithm.name,
               static_cast<long long>(n), threads, static_cast<long long>(blocks.blocks),
               static_cast<long long>(blocks.chunks));
        return false;
      }
    }
  }
  return true;
}

// The thread that does most of a product of few panels has hardly more than half.
bool two_threads_share_evenly() {
  using namespace rocpy_host::gemm;
  for (Type type : {Type::f32, Type::f64}) {
    for (int64_t m : {16, 64, 512}) {
      Problem p;
      p.m = m;
      p.n = 768;
      p.k = 3072;
      p.batch = 1;
      p.a.type = p.b.type = p.d_type = p.compute = type;
      p.a.row_stride = p.k;
      p.b.row_stride = p.d_row_stride = p.n;
      p.a.column_stride = p.b.column_stride = 1;
      for (const Variant &variant : variants) {
        if (variant.family != Family::direct && variant.family != Family::blocked) continue;
        const Blocks blocks = make_blocks(variant, p, 2);
        const int64_t longest = divide_up(blocks.blocks * blocks.chunks, 2) * blocks.chunk_panels;
        if (20 * longest <= 11 * blocks.blocks * blocks.panels) continue;
        printf("%s: %lldx768x3072, of %lld x %lld panels one thread has %lld\n", variant.algorithm.name,
               static_cast<long long>(m), static_cast<long long>(blocks.blocks), static_cast<long long>(blocks.panels),
               static_cast<long long>(longest));
        return false;
      }
    }
  }
  return true;
}

// However many threads share a product, the sums of a task's panels fit its scratch.
bool tasks_fit_scratch() {
  using namespace rocpy_host::gemm;
  for (Type type : {Type::f32, Type::f64}) {
    for (const Variant &variant : variants) {
      if (variant.family != Family::direct && variant.family != Family::blocked) continue;
      for (int64_t m : {1, 30, 224, 384, 896, 3000}) {
        for (int64_t n = 1; n < 4200; n += 13) {
          for (int threads = 0; threads < 9; threads++) {
            Problem p;
            p.m = m;
            p.n = n;
            p.k = 1024;
            p.batch = 1;
            p.a.type = p.b.type = p.d_type = p.compute = type;
            p.a.row_stride = p.k;
            p.b.row_stride = p.d_row_stride = n;
            p.a.column_stride = p.b.column_stride = 1;
            const Blocks blocks = make_blocks(variant, p, threads);
            const int64_t value = static_cast<int64_t>(size_of(type)), width = tile_columns_of(p);
            const int64_t rows = blocks.block_tiles * blocks.tile_rows;
            const int64_t copied = round_up(rows * blocks.depth + 64, 64) + panels_together * blocks.depth * width;
            const int64_t values = copied + rows * blocks.chunk_panels * width;
            if (values * value <= static_cast<int64_t>(scratch_bytes)) continue;
            printf("%s: %lldx%lldx1024 for %d threads needs %lld bytes\n", variant.algorithm.name,
                   static_cast<long long>(m), static_cast<long long>(n), threads,
                   static_cast<long long>(values * value));
            return false;
          }
        }
      }
    }
  }
  return true;
}

}  // namespace

int main() {
  int failures = 0;
  const auto check = [&](bool good, const char *what) {
    if (good) return;
    failures++;
    printf("FAILED %s\n", what);
  };
  check(each_task_once(300), "each task runs once");
  check(sleeping_workers_wake(), "sleeping workers wake");
  check(callers_at_once(), "callers at once");
  check(nested(), "nested calls stay on their thread");
  check(limits(), "limits");
  check(forked_child(), "a forked child");
  check(products_are_shared(), "products are cut for their threads");
  check(two_threads_share_evenly(), "two threads share evenly");
  check(tasks_fit_scratch(), "tasks fit their scratch");
  return failures != 0;
}
