// SPDX-License-Identifier: MIT
// The floating-point environment: whatever the caller's is, work runs in the default one, on the pool, on a stream's
// worker and on the caller's thread, and the caller's is as before afterwards.
#include "fp_environment.h"

#include <cfenv>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "check.hpp"
#include "exports.h"
#include "runtime.hpp"
#include "threads.hpp"

namespace {

#if defined(__x86_64__)
// The x87 unit's control word above MXCSR.
constexpr uint64_t with_x87(uint64_t control, uint64_t word) { return control << 32 | word; }
constexpr uint64_t default_word = with_x87(0x037f, 0x1f80), flag_bits = 0x3f;
uint64_t read_word() {
  uint32_t value;
  uint16_t control;
  __asm__ __volatile__("stmxcsr %0" : "=m"(value));
  __asm__ __volatile__("fnstcw %0" : "=m"(control));
  return with_x87(control, value);
}
void write_word(uint64_t word) {
  const auto value = static_cast<uint32_t>(word);
  const auto control = static_cast<uint16_t>(word >> 32);
  __asm__ __volatile__("fldcw %0" ::"m"(control));
  __asm__ __volatile__("ldmxcsr %0" ::"m"(value));
}
// Flush to zero, subnormals are zero, both, the roundings, a flag that is set, and exceptions that are not masked; of
// the x87 unit another rounding and width, and all exceptions not masked.
const std::vector<uint64_t> other_words = {
    with_x87(0x037f, 0x9f80), with_x87(0x037f, 0x1fc0), with_x87(0x0c7f, 0x9fc0),
    with_x87(0x037f, 0x3f80), with_x87(0x037f, 0x5f80), with_x87(0x007f, 0x7f80),
    with_x87(0x037f, 0x1fa1), with_x87(0x0340, 0x1900), with_x87(0x0c40, 0xf8ff & ~0x200)};
#elif defined(__aarch64__)
constexpr uint64_t default_word = 0, flag_bits = 0;
uint64_t read_word() {
  uint64_t value;
  __asm__ __volatile__("mrs %0, fpcr" : "=r"(value));
  return value;
}
void write_word(uint64_t value) { __asm__ __volatile__("msr fpcr, %0" ::"r"(value)); }
const std::vector<uint64_t> other_words = {1u << 24, 1u << 22, 2u << 22, 3u << 22, 1u << 25};
#else
constexpr uint64_t default_word = FE_TONEAREST, flag_bits = 0;
uint64_t read_word() { return static_cast<uint64_t>(std::fegetround()); }
void write_word(uint64_t word) { std::fesetround(static_cast<int>(word)); }
const std::vector<uint64_t> other_words = {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
#endif

constexpr int64_t task_count = 4096;

// What a piece of work finds, after arithmetic that would trap, round or flush elsewhere.
uint64_t found_word() {
  volatile double zero = 0.0, one = 1.0, tiny = 1e-310, three = 3.0;
  volatile double sink = one / zero + tiny * 0.5 + one / three;
  (void)sink;
  std::feraiseexcept(FE_OVERFLOW | FE_UNDERFLOW | FE_INEXACT);
  return read_word() & ~flag_bits;
}

void record(void *context, int64_t i) { (*static_cast<std::vector<uint64_t> *>(context))[size_t(i)] = found_word(); }

bool all_default(const std::vector<uint64_t> &words) {
  for (const uint64_t word : words) {
    if (word != default_word) return false;
  }
  return true;
}

void user_function(void *word) { write_word(*static_cast<uint64_t *>(word)); }

void check_word(uint64_t word, hipStream_t handle) {
  rocpy_host::Stream *stream = rocpy_host::resolve(handle);
  std::vector<uint64_t> pool(task_count, ~uint64_t{0});
  uint64_t inline_word = 0, queued = 0, after_user = 0;
  write_word(word);
  rocpy_host::parallel_for(task_count, 16, record, &pool);
  const uint64_t after_pool = read_word();
  const bool waited = rocpy_host::in_order_and_wait(stream, [&inline_word] { inline_word = found_word(); });
  const uint64_t after_inline = read_word();
  rocpy_host::wait(stream, rocpy_host::enqueue_function(stream, [&queued] { queued = found_word(); }));
  // A host function may leave its worker in any environment.
  const hipError_t launched = rocpy_host_hipLaunchHostFunc(handle, user_function, &word);
  rocpy_host::wait(stream, rocpy_host::enqueue_function(stream, [&after_user] { after_user = found_word(); }));
  const uint64_t after_all = read_word();
  {
    const rocpy::DefaultFpEnvironment outer;
    const rocpy::DefaultFpEnvironment inner;
    (void)found_word();
  }
  const uint64_t after_nested = read_word();
  write_word(default_word);
  CHECK(all_default(pool));
  CHECK(waited && inline_word == default_word);
  CHECK(queued == default_word);
  CHECK(launched == hipSuccess && after_user == default_word);
  CHECK(after_pool == word && after_inline == word && after_all == word && after_nested == word);
}

}  // namespace

int main() {
  setenv("ROCPY_NUM_THREADS", "4", 1);
  hipStream_t stream = nullptr;
  // The first use of the pool, which makes its threads, is in an environment that is not the default one.
  for (int round = 0; round < 3; ++round) {
    for (const uint64_t word : other_words) {
      if (!stream) CHECK(rocpy_host_hipStreamCreate(&stream) == hipSuccess);
      check_word(word, stream);
    }
  }
  CHECK(rocpy_host_hipStreamDestroy(stream) == hipSuccess);
  return failures.load() != 0;
}
