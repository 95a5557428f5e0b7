// SPDX-License-Identifier: MIT
// Notices resets of a device by an allocation that nobody but a reset frees.
#include "device_resets.hpp"

#include <pthread.h>

#include <atomic>
#include <mutex>
#include <new>

#include "capture_relaxed.hpp"
#include "context.hpp"
#include "status.hpp"
#include "table.hpp"

namespace rocpy {
namespace {

// An allocation of others that gets the address is of another size.
constexpr size_t witness_bytes = 12347;
constexpr int most_devices = 64;

struct Witness {
  std::mutex mutex;  // for placing it
  std::atomic<void *> memory{nullptr};
  std::atomic<int> resets{0};
};

// Never destroyed: at exit others may still ask.
Witness *const witnesses = new Witness[most_devices];

// A child of fork() has no device memory of its parent's.
void forget_in_child() {
  for (int i = 0; i < most_devices; ++i) {
    new (&witnesses[i].mutex) std::mutex;
    witnesses[i].memory.store(nullptr);
  }
}
const int at_fork = pthread_atfork(nullptr, nullptr, forget_in_child);

bool is_gone(void *memory) {
  void *base = nullptr;
  size_t bytes = 0;
  const hipError_t error = table.hipMemGetAddressRange(&base, &bytes, memory);
  if (error == hipSuccess) return base != memory || bytes != witness_bytes;
  clear_last_error(Library::hip);
  // What else may fail says nothing about the memory: a driver that is shut down at exit, for one.
  return error == hipErrorInvalidDevicePointer || error == hipErrorNotFound || error == hipErrorInvalidValue;
}

void allocate(Witness *witness, int device) {
  DeviceScope scope(device);
  if (!scope.status().ok()) return;
  CaptureRelaxed relaxed;
  void *memory = nullptr;
  if (table.hipMalloc(&memory, witness_bytes) != hipSuccess) {
    clear_last_error(Library::hip);  // without memory a later call tries again
    return;
  }
  if (is_gone(memory)) {  // a library that rounds sizes up: it cannot be told from others' memory
    table.hipFree(memory);
    return;
  }
  witness->memory.store(memory, std::memory_order_release);
}

}  // namespace

int device_resets(int device) noexcept {
  if (device < 0 || device >= most_devices) return 0;
  Witness &witness = witnesses[device];
  void *memory = witness.memory.load(std::memory_order_acquire);
  if (memory && !is_gone(memory)) return witness.resets.load(std::memory_order_acquire);
  std::lock_guard<std::mutex> lock(witness.mutex);
  if (witness.memory.load(std::memory_order_acquire) == memory) {
    if (memory) {
      witness.resets.fetch_add(1, std::memory_order_acq_rel);
      witness.memory.store(nullptr, std::memory_order_release);
    }
    allocate(&witness, device);
  }
  return witness.resets.load(std::memory_order_acquire);
}

}  // namespace rocpy
