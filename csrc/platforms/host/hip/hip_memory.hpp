// SPDX-License-Identifier: MIT
// What is known about memory: every allocation and registration, by address. For the HIP sources only.
#pragma once

#include "types_programs.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace rocpy_host {

enum class MemoryKind { device, host, managed, registered };

struct Allocation {
  uintptr_t base = 0;
  size_t bytes = 0;
  MemoryKind kind = MemoryKind::device;
  int device = 0;
  unsigned flags = 0;
  uint64_t serial = 0;          // tells it from a later one at the same address
  bool is_being_freed = false;  // hipFreeAsync has been called
  bool is_adopted = false;      // another part of the platform gave it out, and frees it
  // Of memory that a node of a graph gives out: it stays while a graph has the node, and is the user's to free while a
  // launch has given it out.
  bool is_of_graph = false, is_handed_out = false;
};

// What memory is allocated as.
struct AllocationSpec {
  int device = 0;
  MemoryKind kind = MemoryKind::device;
  unsigned flags = 0;
  bool is_of_graph = false;
};

// Gives out memory within the budget of the machine.
hipError_t allocate(void **pointer, size_t bytes, const AllocationSpec &spec);

// Claims an allocation for freeing, so that of two frees one fails; `pointer` must be what the allocation function
// gave. Then it is released, or the claim is taken back: not what a reset has freed meanwhile.
bool claim(const void *pointer, Allocation *out);
void unclaim(const Allocation &allocation);
void release(const Allocation &allocation);

// What a launch does with the memory of its graph: it gives some out and takes some back. False, and nothing is done:
// an earlier launch gave some of it out that nobody has freed since, and this one does not free that first.
bool give_out(const std::vector<void *> &handed_out, const std::vector<void *> &taken_back, bool frees_first);
// What becomes of it with the last node.
void end_of_graph(const void *pointer);
bool is_of_graph(const void *pointer);

// The allocation or registration that holds the address. False: memory of the process that HIP knows nothing about.
bool find_allocation(const void *pointer, Allocation *out);

// Whether memory that HIP knows nothing about may be used by a device (ROCPY_HOST_STAGING=0).
bool is_host_memory_shared();

// Whether [pointer, pointer + bytes) may be copied or filled: not null, and within its allocation if it is in one.
bool is_range_valid(const void *pointer, size_t bytes);

// Whether bytes can be copied so, and the function that fills as a graph's node is to; false: it cannot.
hipError_t check_copy(const void *dst, const void *src, size_t bytes, hipMemcpyKind kind);
hipError_t make_copy(const hipMemcpy3DParms &params, std::function<void()> *copy);
bool make_fill(const hipMemsetParams &params, std::function<void()> *fill);

// Device memory that another part of the platform gives out: HIP knows it from here on, and until it is disowned. The
// runtime's mutex may be held.
hipError_t adopt_allocation(void *base, size_t bytes);
void disown_allocation(const void *base);

bool has_allocations_of(int device);

// Frees what hipMalloc and its like gave out on the device, as hipDeviceReset does.
void free_allocations_of(int device);

}  // namespace rocpy_host
