// SPDX-License-Identifier: MIT
// When work may run in its caller, and what that costs: the queue from inside, without a facade.
#include "check.hpp"
#include "exports.h"
#include "runtime.hpp"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <mutex>

using namespace rocpy_host;

namespace {

Stream *made(unsigned flags) {
  hipStream_t handle = nullptr;
  CHECK_EQUAL(rocpy_host_hipStreamCreateWithFlags(&handle, flags), hipSuccess);
  return resolve(handle);
}

bool may_run_inline(Stream *stream) {
  const bool allowed = enter_inline(stream);
  if (allowed) {
    leave_inline(stream);
  }
  return allowed;
}

void check_rules() {
  Stream *null = resolve(nullptr);
  CHECK(resolve(hipStreamLegacy) == null);
  Stream *blocking = made(hipStreamDefault), *other = made(hipStreamDefault), *free = made(hipStreamNonBlocking);
  CHECK(may_run_inline(null) && may_run_inline(blocking) && may_run_inline(free));

  CHECK(enter_inline(blocking));
  CHECK(!may_run_inline(blocking));
  CHECK(!may_run_inline(null));
  CHECK(may_run_inline(other));
  CHECK(may_run_inline(free));
  leave_inline(blocking);

  CHECK(enter_inline(null));
  CHECK(!may_run_inline(blocking));
  CHECK(!may_run_inline(resolve(hipStreamPerThread)));
  CHECK(may_run_inline(free));
  leave_inline(null);

  CHECK(enter_inline(free));
  CHECK(may_run_inline(null) && may_run_inline(blocking));
  CHECK(!may_run_inline(free));
  leave_inline(free);
  CHECK(may_run_inline(null) && may_run_inline(free));

  // Work that is queued while the stream is taken runs after it.
  CHECK(enter_inline(blocking));
  std::atomic<bool> has_run{false};
  const uint64_t ticket = enqueue_function(blocking, [&has_run] { has_run = true; });
  CHECK(!is_done(blocking, ticket));
  CHECK(!has_run);
  leave_inline(blocking);
  CHECK(wait(blocking, ticket));
  CHECK(has_run);
}

double best_ns_of_inline_call(Stream *stream) {
  double best = 1e9;
  for (int round = 0; round < 20; ++round) {
    constexpr int calls = 20000;
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i) {
      may_run_inline(stream);
    }
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - start;
    best = std::min(best, took.count() / calls);
  }
  return best;
}

}  // namespace

int main() {
  check_rules();
  const double null_ns = best_ns_of_inline_call(resolve(nullptr));
  const double created_ns = best_ns_of_inline_call(made(hipStreamDefault));
  std::printf("enter_inline + leave_inline: %.1f ns on the null stream, %.1f ns on a created one\n", null_ns,
              created_ns);
  return failures.load() == 0 ? 0 : 1;
}
