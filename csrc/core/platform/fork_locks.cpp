// SPDX-License-Identifier: MIT
// The locks that objects share, all of which a thread that forks holds meanwhile.
#include "fork_locks.hpp"

#include <pthread.h>

#include <cstddef>
#include <cstdint>

namespace rocpy {
namespace {

constexpr size_t count = 16;

struct alignas(64) Shared {
  SpinLock lock;
};
Shared shared[count];

void prepare_fork() {
  for (Shared &each : shared) each.lock.lock();
}
void after_fork() {
  for (Shared &each : shared) each.lock.unlock();
}
const int at_fork = pthread_atfork(prepare_fork, after_fork, after_fork);

}  // namespace

SpinLock &lock_over_forks(const void *object) noexcept {
  return shared[reinterpret_cast<uintptr_t>(object) / 64 % count].lock;
}

}  // namespace rocpy
