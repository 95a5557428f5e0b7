// SPDX-License-Identifier: MIT
// The memory that a launch may touch: ranges of addresses, and whether each may be written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace rocpy_host::amdgpu {

struct Range {
  uintptr_t begin = 0, end = 0;
  bool is_writable = false;
};

class Memory {
 public:
  void allow(const void *begin, size_t bytes, bool is_writable);
  // Asked for an address in no range: gives the range that holds it, or false.
  using Lookup = std::function<bool(uintptr_t address, bool writes, Range *out)>;
  void set_lookup(Lookup lookup) { lookup_ = std::move(lookup); }

  // The address itself if [address, address + bytes) may be used so; throws Fault otherwise.
  uint8_t *access(uint64_t address, size_t bytes, bool writes);

  uint64_t accesses = 0;

 private:
  const Range *find(uintptr_t address, size_t bytes, bool writes);
  std::vector<Range> ranges_;
  size_t last_ = 0;
  Lookup lookup_;
};

// The process's own map of memory, read once and again when an address is not found.
class ProcessMemory {
 public:
  bool find(uintptr_t address, bool writes, Range *out);

 private:
  void read();
  std::vector<Range> ranges_;
};

}  // namespace rocpy_host::amdgpu
