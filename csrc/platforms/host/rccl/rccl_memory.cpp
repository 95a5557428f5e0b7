// SPDX-License-Identifier: MIT
// ncclMemAlloc, registration, and how ranks show one another their memory: a descriptor goes through a socket, once.
#include "rccl_memory.hpp"

#include "exports.h"
#include "hip_memory.hpp"
#include "lazy.h"
#include "rccl_comm.hpp"

#include <algorithm>

namespace rocpy_host {

namespace {

struct SharedMemories {
  std::mutex mutex;
  std::map<const char *, Shown> by_base;
  uint64_t last_number = 0;
};
SharedMemories &shared_memories() {
  static rocpy::Lazy<SharedMemories> instance;
  return instance.get();
}

ncclResult_t allocate(void **out, size_t bytes) {
  *out = nullptr;
  if (bytes == 0) return ncclSuccess;
  std::string problem;
  const auto memory = SharedMemory::make(bytes, &problem);
  if (memory == nullptr) return refuse(ncclSystemError, problem);
  if (adopt_allocation(memory->data(), bytes) != hipSuccess) {
    return refuse(ncclUnhandledCudaError, "out of memory: " + std::to_string(bytes) + " bytes are not available");
  }
  SharedMemories &all = shared_memories();
  std::lock_guard<std::mutex> lock(all.mutex);
  all.by_base[memory->data()] = {memory, ++all.last_number};
  *out = memory->data();
  return ncclSuccess;
}

ncclResult_t free_memory(void *pointer) {
  if (pointer == nullptr) return ncclSuccess;
  Allocation allocation;
  const Shown shown = find_shared_memory(pointer, 1);
  if (shown.memory == nullptr || shown.memory->data() != pointer || !find_allocation(pointer, &allocation)) {
    return refuse(ncclInvalidArgument, "ptr is not memory of ncclMemAlloc");
  }
  // As hipFree: what the device still does with it comes first.
  if (wait_to_free(allocation.device) != hipSuccess) {
    return refuse(ncclUnhandledCudaError, "memory cannot be freed while a stream is captured, or at exit");
  }
  SharedMemories &all = shared_memories();
  std::lock_guard<std::mutex> lock(all.mutex);
  if (all.by_base.erase(shown.memory->data()) == 0) return refuse(ncclInvalidArgument, "ptr was freed already");
  disown_allocation(pointer);
  shown.memory->give_up_pages();
  return ncclSuccess;
}

}  // namespace

Shown find_shared_memory(const void *pointer, size_t bytes) {
  SharedMemories &all = shared_memories();
  const char *first = static_cast<const char *>(pointer);
  std::lock_guard<std::mutex> lock(all.mutex);
  const auto after = all.by_base.upper_bound(first);
  if (after == all.by_base.begin()) return {};
  const Shown &shown = std::prev(after)->second;
  const auto offset = static_cast<size_t>(first - shown.memory->data());
  return offset <= shown.memory->bytes() && bytes <= shown.memory->bytes() - offset ? shown : Shown{};
}

Location Memories::locate(const void *pointer, size_t bytes, std::vector<std::shared_ptr<void>> *retained) const {
  const char *first = static_cast<const char *>(pointer);
  for (const Registration &one : registrations) {
    if (one.shown.memory == nullptr || first < one.base || first + bytes > one.base + one.bytes) continue;
    retained->push_back(one.shown.memory);
    return {one.shown.number, static_cast<uint64_t>(first - one.shown.memory->data()), 0};
  }
  return {};
}

bool Communicator::exchange(const Operation &operation, const std::vector<Shown> &mine,
                            const std::vector<std::pair<int, uint64_t>> &awaited) {
  const Signature &signature = operation.signature;
  std::string problem;
  const auto give_up = [&] {
    return fail({"system", ncclSystemError, problem, signature.kind, signature.sequence, {}, {}});
  };
  if (memories.mailbox == nullptr) {
    uint64_t number = 0;
    if (random_bytes(&number, sizeof number)) memories.mailbox = Mailbox::open(number, &problem);
    if (memories.mailbox == nullptr) return give_up();
    self().mailbox.store(number);
    if (!rendezvous(operation)) return false;
  }
  for (const Shown &one : mine) {
    if (!memories.shown.insert(one.number).second) continue;
    for (int r = 0; r < count; ++r) {
      if (other(r).process.load() == process) continue;
      const Mailbox::Tag tag{static_cast<uint64_t>(rank), one.number};
      if (!Mailbox::post(other(r).mailbox.load(), one.memory->descriptor(), tag, &problem)) {
        // One that has gone is told as such.
        uint64_t last_look = 0;
        if (!look_after(operation, {r}, &last_look, [] { return false; })) return false;
        return give_up();
      }
    }
  }
  uint64_t last_look = 0;
  while (true) {
    std::vector<int> missing;
    for (const auto &[owner, number] : awaited) {
      if (memories.mapped.count({owner, number}) == 0) missing.push_back(owner);
    }
    if (missing.empty()) return true;
    constexpr uint64_t nap_ns = 20000000;
    Mailbox::Tag tag{};
    const int descriptor = memories.mailbox->take(nap_ns, &tag);
    if (descriptor >= 0) {
      auto memory = SharedMemory::take(descriptor, &problem);
      if (memory == nullptr) return give_up();
      memories.mapped[{static_cast<int>(tag.from), tag.memory}] = std::move(memory);
    } else if (!look_after(operation, missing, &last_look, [] { return false; })) {
      return false;
    }
  }
}

char *Communicator::seen(int owner, const void *pointer, const Location &location) {
  if (is_one_process || other(owner).process.load() == process) return static_cast<char *>(const_cast<void *>(pointer));
  const auto match = memories.mapped.find({owner, location.memory});
  return match == memories.mapped.end() ? nullptr : match->second->data() + location.offset;
}

}  // namespace rocpy_host

using namespace rocpy_host;

ncclResult_t rocpy_host_ncclMemAlloc(void **ptr, size_t size) {
  if (ptr == nullptr) return refuse(ncclInvalidArgument, "ptr is NULL");
  return rccl_call([=] { return allocate(ptr, size); });
}

ncclResult_t rocpy_host_ncclMemFree(void *ptr) {
  return rccl_call([=] { return free_memory(ptr); });
}

// Registered memory of ncclMemAlloc is read where it lies by ranks of other processes, once all ranks' operands are
// such.
ncclResult_t rocpy_host_ncclCommRegister(ncclComm_t comm, void *buffer, size_t size, void **handle) {
  return fail_group(rccl_call([=] {
    ncclResult_t code;
    const auto communicator = usable_communicator(comm, &code);
    if (communicator == nullptr) return code;
    if (buffer == nullptr || size == 0 || handle == nullptr) {
      return refuse(ncclInvalidArgument, "buff or handle is NULL, or size is 0");
    }
    Memories &memories = communicator->memories;
    const uint64_t number = ++memories.last_handle;
    memories.registrations.push_back(
        {number, static_cast<const char *>(buffer), size, find_shared_memory(buffer, size)});
    *handle = reinterpret_cast<void *>(number);
    return ncclSuccess;
  }));
}

ncclResult_t rocpy_host_ncclCommDeregister(ncclComm_t comm, void *handle) {
  return rccl_call([=] {
    const auto communicator = find_communicator(comm);
    if (communicator == nullptr) return refuse(ncclInvalidArgument, "comm is not a communicator of this process");
    auto &all = communicator->memories.registrations;
    const auto match = std::find_if(all.begin(), all.end(), [=](const Registration &one) {
      return one.handle == reinterpret_cast<uint64_t>(handle);
    });
    if (match == all.end()) return refuse(ncclInvalidArgument, "handle does not belong to this communicator");
    all.erase(match);
    return ncclSuccess;
  });
}
