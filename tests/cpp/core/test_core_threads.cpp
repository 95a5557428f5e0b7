// SPDX-License-Identifier: MIT
// The core under threads, for the thread sanitizer: products of one weight while it is packed anew and closed, one plan
// on several streams, contexts that are dropped and lent, and the plan cache; memory is freed beside collectives.
#include <chrono>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

#include "check.hpp"
#include "context.hpp"
#include "device_resets.hpp"
#include "device_resources.hpp"
#include "matmul.hpp"
#include "packed_weight.hpp"
#include "plan_cache.hpp"
#include "platform.hpp"
#include "table.hpp"

using namespace rocpy;

namespace {

// In the library's terms: D (n x m) = A (n x k, packed) B (k x m).
constexpr int64_t m = 24, n = 96, k = 160;
// What the elements of the weight may be.
constexpr int values = 4;

void check(const Status &status) {
  CHECK_EQUAL(status.code, 0);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.function);
}

struct Borrowed {
  StreamContext *context = nullptr;
  explicit Borrowed(hipStream_t stream) { check(borrow_context(0, stream, &context)); }
  ~Borrowed() { release_context(context); }
};

PackedWeight *packed(float value) {
  const std::vector<float> source(n * k, value);
  PackSpec spec;
  spec.type = HIP_R_32F;
  spec.rows = spec.ld = spec.m = n;
  spec.columns = spec.k = k;
  spec.data = source.data();
  PackedWeight *made = nullptr;
  Borrowed borrowed(nullptr);
  check(PackedWeight::create(borrowed.context, spec, &made));
  return made;
}

// What a Weight is: the packed memory that stands now, replaced in one step, owned by each product that reads it.
class Published {
 public:
  ~Published() { publish(nullptr); }
  PackedWeight *take() {
    std::lock_guard<SpinLock> lock(lock_);
    if (weight_) weight_->retain();
    return weight_;
  }
  void publish(PackedWeight *fresh) {
    {
      std::lock_guard<SpinLock> lock(lock_);
      std::swap(fresh, weight_);
    }
    if (fresh) check(fresh->release());
  }

 private:
  SpinLock lock_;
  PackedWeight *weight_ = nullptr;
};

std::shared_ptr<CachedCall> plan() {
  MatmulSpec spec;
  spec.compute = HIPBLAS_COMPUTE_32F;
  spec.scale_type = HIP_R_32F;
  spec.a = {HIP_R_32F, ROCPY_EXT_ORDER_PACKED, n, k, n, 0};
  spec.b = {HIP_R_32F, 0, k, m, k, 0};
  spec.c = spec.d = {HIP_R_32F, 0, n, m, n, 0};
  auto call = std::make_shared<CachedCall>();
  Borrowed borrowed(nullptr);
  check(MatmulPlan::create(spec, borrowed.context, size_t{32} << 20, 4, &call->plan));
  CHECK(call->plan && !call->plan->algorithms().empty());
  return call;
}

PlanKey key_of(int64_t word) {
  PlanKey key;
  key.add(word);
  return key;
}

using Clock = std::chrono::steady_clock;

void multiply(Published *weight, Clock::time_point until, bool own_stream) {
  const std::vector<float> b(k * m, 1.0f);
  std::vector<float> d(n * m);
  hipStream_t stream = nullptr;
  if (own_stream) CHECK_EQUAL(table.hipStreamCreateWithFlags(&stream, 1), 0);
  while (Clock::now() < until) {
    PackedWeight *taken = weight->take();
    if (!taken) continue;  // closed
    std::shared_ptr<CachedCall> call = plan_cache().find(key_of(1));
    if (!call) plan_cache().insert(key_of(1), call = plan());
    MatmulPointers pointers;
    pointers.a = taken->data();
    pointers.b = b.data();
    pointers.d = d.data();
    {
      Borrowed borrowed(stream);
      check(call->plan->launch(borrowed.context, pointers, {}, call->algorithm));
    }
    CHECK_EQUAL(table.hipStreamSynchronize(stream), 0);
    check(taken->release());
    const float first = d[0];
    CHECK(first >= k && first <= values * k);
    for (float one : d) CHECK(one == first);
  }
  if (!own_stream) return;
  forget_stream(stream);
  CHECK_EQUAL(table.hipStreamDestroy(stream), 0);
}

void refresh(Published *weight, Clock::time_point until) {
  for (int i = 0; Clock::now() < until; ++i) weight->publish(packed(static_cast<float>(1 + i % values)));
}

void close(Published *weight, Clock::time_point until) {
  while (Clock::now() < until) {
    weight->publish(nullptr);
    weight->publish(packed(1.0f));
  }
}

// Memory that was freed too early would show these values.
void make_others(Clock::time_point until) {
  while (Clock::now() < until) check(packed(-1.7e38f)->release());
}

void drop(Clock::time_point until) {
  hipStream_t captured = nullptr;
  CHECK_EQUAL(table.hipStreamCreateWithFlags(&captured, 1), 0);
  for (int i = 0; Clock::now() < until; ++i) {
    plan_cache().clear();
    drop_contexts();
    check(plan_cache().resize(i % 3 ? 8 : 0));
    StreamContext *lent = nullptr;
    check(make_context(0, nullptr, nullptr, &lent));
    check(set_workspace(lent, nullptr, 0));
    check(destroy_context(lent));
    StreamContext *of_graph = nullptr;
    check(lend_to_capture(0, captured, &of_graph));
    end_lending(of_graph);
    check(return_lent(of_graph));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  forget_stream(captured);
  CHECK_EQUAL(table.hipStreamDestroy(captured), 0);
}

// As if collectives waited for other ranks, half of the time.
void wait_for_ranks(Clock::time_point until) {
  while (Clock::now() < until) {
    begin_remote_wait();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    end_remote_wait();
    check(free_deferred());
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void all_at_once(double seconds) {
  const auto until = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  Published weight;
  weight.publish(packed(1.0f));
  std::vector<std::thread> threads;
  threads.emplace_back(multiply, &weight, until, false);
  threads.emplace_back(multiply, &weight, until, false);
  threads.emplace_back(multiply, &weight, until, true);
  threads.emplace_back(refresh, &weight, until);
  threads.emplace_back(close, &weight, until);
  threads.emplace_back(make_others, until);
  threads.emplace_back(drop, until);
  threads.emplace_back(wait_for_ranks, until);
  for (std::thread &thread : threads) thread.join();
}

// Where one collective begins before the last has ended, what is released does not pile up.
void release_while_collectives_overlap() {
  constexpr size_t most_deferred = 64;
  begin_remote_wait();
  for (size_t i = 0; i < 4 * most_deferred; ++i) {
    void *memory = nullptr;
    CHECK_EQUAL(table.hipMalloc(&memory, 256), 0);
    check(release_resource({ResourceKind::device_memory, 0, device_resets(0), memory}));
  }
  const auto until = Clock::now() + std::chrono::seconds(60);
  while (deferred_count() > most_deferred && Clock::now() < until) std::this_thread::yield();
  CHECK_EQUAL(deferred_count(), most_deferred);
  end_remote_wait();
  check(free_deferred());
  CHECK_EQUAL(deferred_count(), 0);
}

}  // namespace

// The folder of the platform's libraries, then for how many seconds.
int main(int count, char **arguments) {
  Tree tree;
  tree.directories = {arguments[1]};
  const Attempt attempt = load_platform(tree);
  if (attempt.outcome != Outcome::loaded) {
    std::fprintf(stderr, "no platform: %s\n", attempt.reason.c_str());
    return 1;
  }
  release_while_collectives_overlap();
  all_at_once(count > 2 ? std::atof(arguments[2]) : 3.0);
  CHECK_EQUAL(PackedWeight::live(), 0);
  check(free_deferred());
  CHECK_EQUAL(deferred_count(), 0);
  plan_cache().clear();
  CHECK_EQUAL(MatmulPlan::live(), 0);
  return failures ? 1 : 0;
}
