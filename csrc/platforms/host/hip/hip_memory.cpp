// SPDX-License-Identifier: MIT
// HIP rows that give out and free memory, and what is known about it.
#include "hip_memory.hpp"
#include "graph.hpp"
#include "hip_call.hpp"
#include "lazy.h"
#include "os.hpp"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <map>

namespace rocpy_host {

namespace {

constexpr size_t alignment = 256;

using AllocationMap = std::map<uintptr_t, Allocation>;

// Never destroyed, as the runtime. Its mutex may be taken inside the runtime's, never the other way round: a graph that
// goes gives its memory back.
struct MemoryTable {
  std::mutex mutex;
  std::atomic<uint64_t> revision{1};  // of all that is known; counts up under the mutex
  AllocationMap allocations;
  uint64_t last_serial = 0;
  size_t bytes_allocated = 0;  // registrations aside
  size_t bytes_total = memory_total();
};

MemoryTable &memory() {
  static rocpy::Lazy<MemoryTable> table;
  return table.get();
}

// Holds the mutex while something about memory changes.
class Change {
 public:
  Change() : lock_(memory().mutex) {}
  ~Change() { memory().revision.fetch_add(1, std::memory_order_release); }

 private:
  std::lock_guard<std::mutex> lock_;
};

void lock_memory() { memory().mutex.lock(); }

void unlock_memory(bool is_child) {
  if (is_child) {
    new (&memory().mutex) std::mutex;
  } else {
    memory().mutex.unlock();
  }
}

__attribute__((constructor)) void guard_memory_at_forks() {
  runtime().lock_for_fork = lock_memory;
  runtime().unlock_after_fork = unlock_memory;
}

uintptr_t address_of(const void *pointer) { return reinterpret_cast<uintptr_t>(pointer); }

AllocationMap::iterator holder_of(uintptr_t address) {
  auto &allocations = memory().allocations;
  auto after = allocations.upper_bound(address);
  if (after == allocations.begin()) {
    return allocations.end();
  }
  const auto it = std::prev(after);
  return address - it->second.base < it->second.bytes ? it : allocations.end();
}

// The same allocation, and not a later one at its address.
AllocationMap::iterator entry_of(const Allocation &allocation) {
  const auto it = memory().allocations.find(allocation.base);
  const bool is_same = it != memory().allocations.end() && it->second.serial == allocation.serial;
  return is_same ? it : memory().allocations.end();
}

// The budget is kept here and not left to the system, which would promise any amount and kill the process when it is
// used. With the mutex held.
bool fits_budget(size_t bytes) {
  const MemoryTable &table = memory();
  return bytes <= table.bytes_total && table.bytes_allocated <= table.bytes_total - bytes;
}

// For the calls that AMD's runtime may wait for the device in.
hipError_t allocate_at_once(void **pointer, size_t bytes, MemoryKind kind, unsigned flags) {
  if (const auto answer = capture_forbids_unsafe_call()) {
    return *answer;
  }
  return allocate(pointer, bytes, {current_device(), kind, flags});
}

hipError_t free_now(void *pointer) {
  if (pointer == nullptr) {
    return hipSuccess;
  }
  if (const auto answer = capture_forbids_unsafe_call()) {
    return *answer;
  }
  Allocation allocation;
  if (!claim(pointer, &allocation)) {
    return hipErrorInvalidValue;
  }
  if (!wait_device(allocation.device, false)) {
    return hipErrorDeinitialized;  // abandoned work may still use the memory, which is left alone
  }
  release(allocation);
  return hipSuccess;
}

}  // namespace

hipError_t allocate(void **pointer, size_t bytes, const AllocationSpec &spec) {
  if (bytes == 0) {
    *pointer = nullptr;
    return hipSuccess;
  }
  MemoryTable &table = memory();
  const Change change;
  if (!fits_budget(bytes)) {
    return hipErrorOutOfMemory;
  }
  void *block = allocate_aligned(bytes, alignment);
  if (block == nullptr) {
    return hipErrorOutOfMemory;
  }
  Allocation allocation;
  allocation.base = address_of(block);
  allocation.bytes = bytes;
  allocation.kind = spec.kind;
  allocation.device = spec.device;
  allocation.flags = spec.flags;
  allocation.is_of_graph = spec.is_of_graph;
  allocation.serial = ++table.last_serial;
  try {
    table.allocations.emplace(allocation.base, allocation);
  } catch (...) {
    std::free(block);
    throw;
  }
  table.bytes_allocated += bytes;
  *pointer = block;
  return hipSuccess;
}

// Takes an allocation out of the table and frees it, unless a graph keeps it.
void release(const Allocation &allocation) {
  {
    MemoryTable &table = memory();
    const Change change;
    const auto it = entry_of(allocation);
    if (it == table.allocations.end()) {
      return;
    }
    if (it->second.is_of_graph) {
      it->second.is_being_freed = false;
      return;
    }
    table.bytes_allocated -= it->second.bytes;
    table.allocations.erase(it);
  }
  std::free(reinterpret_cast<void *>(allocation.base));
}

bool claim(const void *pointer, Allocation *out) {
  const Change change;
  const auto it = memory().allocations.find(address_of(pointer));
  if (it == memory().allocations.end() || it->second.kind == MemoryKind::registered || it->second.is_adopted ||
      (it->second.is_of_graph ? !it->second.is_handed_out : it->second.is_being_freed)) {
    return false;
  }
  it->second.is_being_freed = true;
  it->second.is_handed_out = false;
  *out = it->second;
  return true;
}

void unclaim(const Allocation &allocation) {
  const Change change;
  const auto it = entry_of(allocation);
  if (it != memory().allocations.end()) {
    it->second.is_being_freed = false;
    it->second.is_handed_out = it->second.is_of_graph;
  }
}

bool give_out(const std::vector<void *> &handed_out, const std::vector<void *> &taken_back, bool frees_first) {
  const Change change;
  const auto find = [](const void *pointer) {
    const auto it = memory().allocations.find(address_of(pointer));
    return it != memory().allocations.end() && it->second.is_of_graph ? &it->second : nullptr;
  };
  const auto is_in_use = [&find](const void *pointer) {
    const Allocation *allocation = find(pointer);
    return allocation != nullptr && allocation->is_handed_out;
  };
  if (!frees_first && std::any_of(handed_out.begin(), handed_out.end(), is_in_use)) {
    return false;
  }
  for (const auto *list : {&handed_out, &taken_back}) {
    for (const void *pointer : *list) {
      if (Allocation *allocation = find(pointer)) {
        allocation->is_handed_out = list == &handed_out;
      }
    }
  }
  return true;
}

// What a launch gave out and nobody has freed yet is from now on like any other allocation; what is being freed goes
// when its stream gets there.
void end_of_graph(const void *pointer) {
  Allocation allocation;
  {
    const Change change;
    const auto it = memory().allocations.find(address_of(pointer));
    if (it == memory().allocations.end()) {
      return;
    }
    it->second.is_of_graph = false;
    if (it->second.is_handed_out) {
      it->second.is_being_freed = false;
      return;
    }
    if (it->second.is_being_freed) {
      return;
    }
    allocation = it->second;
  }
  release(allocation);
}

bool is_of_graph(const void *pointer) {
  std::lock_guard<std::mutex> lock(memory().mutex);
  const auto it = memory().allocations.find(address_of(pointer));
  return it != memory().allocations.end() && it->second.is_of_graph;
}

bool find_allocation(const void *pointer, Allocation *out) {
  // What this thread has found last: programs ask for the same memory at each call.
  static thread_local struct {
    uint64_t revision = 0;
    Allocation allocation;
  } last;
  if (last.revision == memory().revision.load(std::memory_order_acquire) &&
      address_of(pointer) - last.allocation.base < last.allocation.bytes) {
    *out = last.allocation;
    return true;
  }
  std::lock_guard<std::mutex> lock(memory().mutex);
  const auto it = holder_of(address_of(pointer));
  if (it == memory().allocations.end()) {
    return false;
  }
  *out = last.allocation = it->second;
  last.revision = memory().revision.load(std::memory_order_relaxed);
  return true;
}

bool is_host_memory_shared() { return runtime().is_host_memory_shared; }

bool is_range_valid(const void *pointer, size_t bytes) {
  if (pointer == nullptr || address_of(pointer) + bytes < address_of(pointer)) {
    return false;
  }
  Allocation allocation;
  return !find_allocation(pointer, &allocation) || bytes <= allocation.bytes - (address_of(pointer) - allocation.base);
}

hipError_t adopt_allocation(void *base, size_t bytes) {
  const Change change;
  if (!fits_budget(bytes)) {
    return hipErrorOutOfMemory;
  }
  Allocation allocation;
  allocation.base = address_of(base);
  allocation.bytes = bytes;
  allocation.device = current_device();
  allocation.is_adopted = true;
  memory().allocations[allocation.base] = allocation;
  memory().bytes_allocated += bytes;
  return hipSuccess;
}

void disown_allocation(const void *base) {
  const Change change;
  const auto it = memory().allocations.find(address_of(base));
  if (it == memory().allocations.end() || !it->second.is_adopted) {
    return;
  }
  memory().bytes_allocated -= it->second.bytes;
  memory().allocations.erase(it);
}

bool has_allocations_of(int device) {
  std::lock_guard<std::mutex> lock(memory().mutex);
  return std::any_of(memory().allocations.begin(), memory().allocations.end(),
                     [=](const auto &entry) { return entry.second.device == device; });
}

void free_allocations_of(int device) {
  while (true) {
    Allocation allocation;
    {
      std::lock_guard<std::mutex> lock(memory().mutex);
      const auto &all = memory().allocations;
      const auto it = std::find_if(all.begin(), all.end(), [=](const auto &entry) {
        const Allocation &one = entry.second;
        return one.device == device && one.kind != MemoryKind::registered && !one.is_adopted && !one.is_of_graph;
      });
      if (it == all.end()) {
        return;
      }
      allocation = it->second;
    }
    release(allocation);
  }
}

}  // namespace rocpy_host

using namespace rocpy_host;

hipError_t rocpy_host_hipMalloc(void **ptr, size_t size) {
  return hip_call(
      [=] { return ptr != nullptr ? allocate_at_once(ptr, size, MemoryKind::device, 0) : hipErrorInvalidValue; });
}

hipError_t rocpy_host_hipFree(void *ptr) {
  return hip_call([=] { return free_now(ptr); });
}

// Rows begin at addresses as aligned as the memory. What is empty has no pitch.
hipError_t rocpy_host_hipMalloc3D(hipPitchedPtr *memory, hipExtent extent) {
  return hip_call([=] {
    hipPitchedPtr result = {nullptr, 0, extent.width, extent.height};
    if (memory == nullptr) {
      return hipErrorInvalidValue;
    }
    if (extent.width != 0 && extent.height != 0 && extent.depth != 0) {
      if (extent.width > std::numeric_limits<size_t>::max() - alignment) {
        return hipErrorInvalidValue;
      }
      result.pitch = (extent.width + alignment - 1) / alignment * alignment;
      size_t bytes = 0;
      if (__builtin_mul_overflow(result.pitch, extent.height, &bytes) ||
          __builtin_mul_overflow(bytes, extent.depth, &bytes)) {
        return hipErrorOutOfMemory;
      }
      if (const hipError_t status = allocate_at_once(&result.ptr, bytes, MemoryKind::device, 0)) {
        return status;
      }
    }
    *memory = result;
    return hipSuccess;
  });
}

hipError_t rocpy_host_hipMallocPitch(void **ptr, size_t *pitch, size_t width, size_t height) {
  hipPitchedPtr memory = {};
  const bool is_asked = ptr != nullptr && pitch != nullptr;
  const hipError_t status = is_asked ? rocpy_host_hipMalloc3D(&memory, {width, height, 1}) : hipErrorInvalidValue;
  return status == hipSuccess ? (*ptr = memory.ptr, *pitch = memory.pitch, status) : remember(status);
}

hipError_t rocpy_host_hipHostMalloc(void **ptr, size_t size, unsigned int flags) {
  return hip_call([=] {
    constexpr unsigned uncached = 0x10000000, coherence = hipHostMallocCoherent | hipHostMallocNonCoherent;
    constexpr unsigned known_flags = hipHostMallocPortable | hipHostMallocMapped | hipHostMallocWriteCombined |
                                     hipHostMallocNumaUser | coherence | uncached;
    const bool is_contradiction = (flags & coherence) == coherence || ((flags & uncached) && (flags & coherence));
    if (ptr == nullptr || (flags & ~known_flags) != 0 || is_contradiction) {
      return hipErrorInvalidValue;
    }
    return allocate_at_once(ptr, size, MemoryKind::host, flags);
  });
}

// Frees any memory, as in AMD's runtime.
hipError_t rocpy_host_hipHostFree(void *ptr) { return rocpy_host_hipFree(ptr); }

hipError_t rocpy_host_hipMallocManaged(void **ptr, size_t size, unsigned int flags) {
  return hip_call([=] {
    if (ptr == nullptr || size == 0 || (flags != hipMemAttachGlobal && flags != hipMemAttachHost)) {
      return hipErrorInvalidValue;
    }
    return allocate_at_once(ptr, size, MemoryKind::managed, flags);
  });
}

hipError_t rocpy_host_hipHostRegister(void *host_ptr, size_t bytes, unsigned int flags) {
  return hip_call([=] {
    constexpr unsigned coarse_grained = 0x8, uncached = 0x80000000;
    constexpr unsigned known_flags =
        hipHostRegisterPortable | hipHostRegisterMapped | hipHostRegisterIoMemory | coarse_grained | uncached;
    const uintptr_t base = address_of(host_ptr);
    if (host_ptr == nullptr || bytes == 0 || base + bytes < base || (flags & ~known_flags) != 0) {
      return hipErrorInvalidValue;
    }
    if (const auto answer = capture_forbids_unsafe_call()) {
      return *answer;
    }
    const Change change;
    auto &allocations = memory().allocations;
    const auto next = allocations.lower_bound(base);
    if (holder_of(base) != allocations.end() || (next != allocations.end() && next->second.base - base < bytes)) {
      return hipErrorHostMemoryAlreadyRegistered;
    }
    Allocation allocation;
    allocation.base = base;
    allocation.bytes = bytes;
    allocation.kind = MemoryKind::registered;
    allocation.device = current_device();
    allocation.flags = flags;
    allocation.serial = ++memory().last_serial;
    allocations.emplace(base, allocation);
    return hipSuccess;
  });
}

hipError_t rocpy_host_hipHostUnregister(void *host_ptr) {
  return hip_call([=] {
    if (host_ptr == nullptr) {
      return hipErrorInvalidValue;
    }
    if (const auto answer = capture_forbids_unsafe_call()) {
      return *answer;
    }
    Allocation allocation;
    if (!find_allocation(host_ptr, &allocation) || allocation.kind != MemoryKind::registered ||
        allocation.base != address_of(host_ptr)) {
      return hipErrorHostMemoryNotRegistered;
    }
    if (!wait_device(allocation.device, false)) {
      return hipErrorDeinitialized;
    }
    const Change change;
    const auto it = entry_of(allocation);
    if (it == memory().allocations.end()) {
      return hipErrorHostMemoryNotRegistered;
    }
    memory().allocations.erase(it);
    return hipSuccess;
  });
}

hipError_t rocpy_host_hipMemGetInfo(size_t *free, size_t *total) {
  return hip_call([=] {
    const size_t available = memory_available();
    std::lock_guard<std::mutex> lock(memory().mutex);
    const MemoryTable &table = memory();
    if (free != nullptr) {
      *free = std::min(available, table.bytes_total - table.bytes_allocated);
    }
    if (total != nullptr) {
      *total = table.bytes_total;
    }
    return hipSuccess;
  });
}
