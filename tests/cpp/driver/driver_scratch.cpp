// SPDX-License-Identifier: MIT
// Shows that no fused epilogue takes scratch of M x N elements: allocation is hooked while each epilogue runs with
// every algorithm.
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>

#include "driver_product.hpp"

namespace {

std::atomic<bool> counting{false};
std::atomic<size_t> allocated{0};

void count(size_t bytes) {
  if (counting.load(std::memory_order_relaxed)) allocated.fetch_add(bytes, std::memory_order_relaxed);
}

}  // namespace

// Every way to memory that a library has, in place of glibc's; operator new comes through malloc.
extern "C" {
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t items, size_t bytes);
void *__libc_realloc(void *old, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);

void *malloc(size_t bytes) {
  count(bytes);
  return __libc_malloc(bytes);
}
void *calloc(size_t items, size_t bytes) {
  count(items * bytes);
  return __libc_calloc(items, bytes);
}
void *realloc(void *old, size_t bytes) {
  count(bytes);
  return __libc_realloc(old, bytes);
}
void *memalign(size_t alignment, size_t bytes) {
  count(bytes);
  return __libc_memalign(alignment, bytes);
}
void *aligned_alloc(size_t alignment, size_t bytes) { return memalign(alignment, bytes); }
int posix_memalign(void **out, size_t alignment, size_t bytes) {
  *out = memalign(alignment, bytes);
  return *out ? 0 : ENOMEM;
}
void *mmap(void *address, size_t bytes, int protection, int flags, int file, off_t offset) {
  count(bytes);
  return reinterpret_cast<void *>(syscall(SYS_mmap, address, bytes, protection, flags, file, offset));
}
}

namespace {

using namespace driver;

// What each algorithm asks for as workspace and allocates itself, for one epilogue.
struct Use {
  size_t workspace_bytes, allocated_bytes;
};

std::map<int32_t, Use> measure(hipblasLtHandle_t handle, const Case &c) {
  Product product(c);
  std::map<int32_t, Use> uses;
  for (const auto &algorithm : product.algorithms(handle, size_t(1) << 30)) {
    int32_t id;
    std::memcpy(&id, &algorithm.algo, sizeof(id));
    Memory workspace(algorithm.workspaceSize);
    product.reset_results();
    check(hipStreamSynchronize(nullptr), "hipStreamSynchronize");
    allocated = 0;
    counting = true;
    product.launch(handle, algorithm, workspace.get(), nullptr);
    check(hipStreamSynchronize(nullptr), "hipStreamSynchronize");
    counting = false;
    uses[id] = {algorithm.workspaceSize, allocated};
    std::string wrong = product.compare();
    if (!wrong.empty()) throw std::runtime_error(c.name + ": " + wrong);
  }
  return uses;
}

// A hook that sees nothing would make the whole test pass.
bool hook_works() {
  allocated = 0;
  counting = true;
  char *through_new = new char[1 << 20];
  std::memset(through_new, 1, 1 << 20);
  asm volatile("" : : "r"(through_new) : "memory");
  void *through_mmap = mmap(nullptr, 1 << 20, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  void *device = nullptr;
  check(hipMalloc(&device, 1 << 20), "hipMalloc");
  counting = false;
  delete[] through_new;
  munmap(through_mmap, 1 << 20);
  check(hipFree(device), "hipFree");
  return allocated >= 3u << 20;
}

int run(const std::string &path) {
  if (!hook_works()) {
    std::fprintf(stderr, "the allocation hook does not see the platform's allocations\n");
    return 1;
  }
  Handle handle;
  int faults = 0;
  std::vector<Case> cases = read_cases(path);
  std::map<hipDataType, std::map<int32_t, Use>> plain;
  for (const Case &c : cases) {
    if (c.epilogue == HIPBLASLT_EPILOGUE_DEFAULT) plain[c.d.type] = measure(handle.get(), c);
  }
  size_t most = 0, measured = 0;
  for (const Case &c : cases) {
    const size_t limit = size_t(c.m * c.n) * size_of(c.d.type);
    for (const auto &[id, use] : measure(handle.get(), c)) {
      // An algorithm that splits k keeps partial sums in its workspace with or without an epilogue; the epilogue may
      // add to neither workspace nor heap as much as one matrix.
      const auto &base = plain.at(c.d.type);
      size_t without = base.count(id) ? base.at(id).workspace_bytes : 0;
      size_t extra = use.allocated_bytes + (use.workspace_bytes > without ? use.workspace_bytes - without : 0);
      most = std::max(most, extra);
      ++measured;
      if (extra >= limit) {
        std::fprintf(stderr, "%s, algorithm %d: %zu bytes of scratch; M x N elements are %zu\n", c.name.c_str(), id,
                     extra, limit);
        ++faults;
      }
    }
  }
  std::printf("%zu products of %zu cases: at most %zu bytes of scratch for an epilogue\n", measured, cases.size(),
              most);
  return faults != 0;
}

}  // namespace

int main(int count, char **arguments) {
  if (count != 2) {
    std::fprintf(stderr, "usage: driver_scratch CASES.json\n");
    return 2;
  }
  try {
    return run(arguments[1]);
  } catch (const std::exception &error) {
    std::fprintf(stderr, "driver_scratch: %s\n", error.what());
    return 1;
  }
}
