// SPDX-License-Identifier: MIT
// The thread budget. OpenMP runtimes are asked where they are loaded; none is linked.
#include "thread_budget.hpp"

#include <dlfcn.h>
#include <link.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "control_group.hpp"
#include "environment.h"

namespace rocpy_host {

namespace {

constexpr int most_threads = 256;
constexpr int most_runtimes = 8;

// What an OpenMP runtime says of the calling thread.
struct OpenMp {
  int (*in_parallel)();
  int (*max_threads)();
};

// The runtimes of the process, of which a wheel may bring its own. They stay: each is held open.
OpenMp runtimes[most_runtimes];
std::atomic<int> runtime_count{0};
std::atomic<unsigned long long> libraries_seen{0};
std::mutex finding;

struct Loaded {
  unsigned long long libraries = 0;  // that the process has ever loaded
  std::vector<std::string> *names = nullptr;
};

int look_at(dl_phdr_info *info, size_t, void *context) {
  auto *loaded = static_cast<Loaded *>(context);
  loaded->libraries = info->dlpi_adds;
  if (loaded->names == nullptr) return 1;
  const char *slash = std::strrchr(info->dlpi_name, '/');
  const char *file = slash == nullptr ? info->dlpi_name : slash + 1;
  for (const char *known : {"libgomp", "libomp", "libiomp"}) {
    if (std::strncmp(file, known, std::strlen(known)) == 0) loaded->names->push_back(info->dlpi_name);
  }
  return 0;
}

void add_runtime(void *library) {
  const OpenMp runtime{reinterpret_cast<int (*)()>(dlsym(library, "omp_in_parallel")),
                       reinterpret_cast<int (*)()>(dlsym(library, "omp_get_max_threads"))};
  if (runtime.in_parallel == nullptr || runtime.max_threads == nullptr) return;
  const int count = runtime_count.load(std::memory_order_relaxed);
  for (int i = 0; i < count; ++i) {
    if (runtimes[i].in_parallel == runtime.in_parallel) return;
  }
  if (count == most_runtimes) return;
  runtimes[count] = runtime;
  runtime_count.store(count + 1, std::memory_order_release);
}

// Looks for runtimes that were loaded since the last look.
void find_runtimes() {
  Loaded loaded;
  dl_iterate_phdr(look_at, &loaded);
  if (loaded.libraries == libraries_seen.load(std::memory_order_acquire)) return;
  const std::unique_lock<std::mutex> lock(finding, std::try_to_lock);
  if (!lock.owns_lock()) return;  // another thread looks
  std::vector<std::string> names;
  loaded.names = &names;
  dl_iterate_phdr(look_at, &loaded);
  add_runtime(RTLD_DEFAULT);  // one that is linked into the program
  for (const std::string &name : names) {
    void *library = dlopen(name.c_str(), RTLD_LAZY | RTLD_NOLOAD);
    if (library != nullptr) add_runtime(library);
  }
  libraries_seen.store(loaded.libraries, std::memory_order_release);
}

// OMP_NUM_THREADS may be a list, one entry per nesting level; the first is ours. 0: it says nothing.
int parse_count(const char *text) {
  char *end = nullptr;
  const long value = std::strtol(text, &end, 10);
  if (end == text || value < 1) return 0;
  end += std::strspn(end, " \t\n");
  return *end == '\0' || *end == ',' ? static_cast<int>(std::min<long>(value, most_threads)) : 0;
}

// What the environment says, read at first use and without a lock, which a child of another thread's could find taken.
int explicit_threads() {
  static std::atomic<int> known{-1};
  int count = known.load(std::memory_order_relaxed);
  if (count < 0) known.store(count = parse_count(rocpy_environment(ROCPY_NUM_THREADS)), std::memory_order_relaxed);
  return count;
}

// Of a thread: 0 is the calling one, the process's number the first one. 0 CPUs: the kernel has more than fit the mask.
int affinity_cpus(pid_t thread) {
  cpu_set_t set;
  return sched_getaffinity(thread, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
}

}  // namespace

int usable_cpus() {
  int cpus = affinity_cpus(getpid());
  if (cpus == 0) cpus = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const int quota = quota_cpus();
  return quota != 0 ? std::min(cpus, quota) : cpus;
}

int process_threads() {
  static std::atomic<int> known{0};
  int first = known.load(std::memory_order_relaxed);
  if (first != 0) return first;
  int count = explicit_threads();
  if (count == 0) count = parse_count(rocpy_environment_omp_num_threads());
  if (count == 0) count = std::min(usable_cpus(), most_threads);
  // The first to get here decides for all.
  return known.compare_exchange_strong(first, count) ? count : first;
}

int caller_threads() {
  int threads = process_threads();
  if (threads == 1) return 1;
  find_runtimes();
  const bool is_explicit = explicit_threads() != 0;
  const int count = runtime_count.load(std::memory_order_acquire);
  for (int i = 0; i < count; ++i) {
    if (runtimes[i].in_parallel() != 0) return 1;
    if (!is_explicit) threads = std::min(threads, std::max(1, runtimes[i].max_threads()));
  }
  const int bound = is_explicit ? 0 : affinity_cpus(0);
  return bound != 0 ? std::min(threads, bound) : threads;
}

void bind_to_process() {
  cpu_set_t set;
  if (sched_getaffinity(getpid(), sizeof set, &set) == 0) sched_setaffinity(0, sizeof set, &set);
}

}  // namespace rocpy_host
