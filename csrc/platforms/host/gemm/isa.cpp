// SPDX-License-Identifier: MIT
// Chooses the kernel set by what the CPU and the operating system support.
#include "isa.hpp"

#include <atomic>
#include <cstring>

#include "environment.h"

namespace rocpy_host::gemm {
namespace {

struct Entry {
  const KernelSet *set;
  bool (*available)();
};

#if defined(__x86_64__)
bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
}
bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#endif
bool always() { return true; }

// Best first.
const Entry kEntries[] = {
#if defined(__x86_64__)
    {&avx512::set, has_avx512},
    {&avx2::set, has_avx2},
#elif defined(__aarch64__)
    {&neon::set, always},
#endif
    {&baseline::set, always},
};

const KernelSet *find(const char *name) {
#if defined(__x86_64__)
  __builtin_cpu_init();
#endif
  for (const Entry &entry : kEntries) {
    if ((!*name || strcmp(name, entry.set->name) == 0) && entry.available()) return entry.set;
  }
  return nullptr;
}

std::atomic<const KernelSet *> chosen{nullptr};

const KernelSet *choose() {
  const KernelSet *set = find(rocpy_environment(ROCPY_HOST_ISA));
  if (!set) set = find("");
  chosen.store(set, std::memory_order_release);
  return set;
}

}  // namespace

const KernelSet &kernel_set() {
  const KernelSet *set = chosen.load(std::memory_order_acquire);
  return set ? *set : *choose();
}

bool use_kernel_set(const char *name) {
  const KernelSet *set = find(name);
  if (!set) return false;
  chosen.store(set, std::memory_order_release);
  return true;
}

const char *isa_name() { return kernel_set().name; }

}  // namespace rocpy_host::gemm
