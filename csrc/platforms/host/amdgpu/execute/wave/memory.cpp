// SPDX-License-Identifier: MIT
// Every access of a kernel to memory is checked here before it happens.
#include "memory.hpp"

#include "wave.hpp"

#include <cinttypes>
#include <cstdio>

namespace rocpy_host::amdgpu {

void Memory::allow(const void *begin, size_t bytes, bool is_writable) {
  Range range;
  range.begin = reinterpret_cast<uintptr_t>(begin);
  range.end = range.begin + bytes;
  range.is_writable = is_writable;
  ranges_.push_back(range);
}

const Range *Memory::find(uintptr_t address, size_t bytes, bool writes) {
  const auto holds = [&](const Range &range) {
    return address >= range.begin && address < range.end && bytes <= range.end - address &&
           (range.is_writable || !writes);
  };
  if (last_ < ranges_.size() && holds(ranges_[last_])) {
    return &ranges_[last_];
  }
  for (size_t i = 0; i < ranges_.size(); ++i) {
    if (holds(ranges_[i])) {
      last_ = i;
      return &ranges_[i];
    }
  }
  return nullptr;
}

uint8_t *Memory::access(uint64_t address, size_t bytes, bool writes) {
  ++accesses;
  const auto at = static_cast<uintptr_t>(address);
  if (find(at, bytes, writes) != nullptr) {
    return reinterpret_cast<uint8_t *>(at);
  }
  Range match;
  if (lookup_ && lookup_(at, writes, &match) && at >= match.begin && at < match.end && bytes <= match.end - at) {
    last_ = ranges_.size();
    ranges_.push_back(match);
    return reinterpret_cast<uint8_t *>(at);
  }
  for (const Range &range : ranges_) {
    if (at >= range.begin && at < range.end) {
      if (writes && !range.is_writable) {
        fault(Fault::Kind::memory, "write of %zu bytes at 0x%" PRIx64 ", which is read-only", bytes, address);
      }
      fault(Fault::Kind::memory, "%s of %zu bytes at 0x%" PRIx64 " reaches %zu bytes past an allocation of %zu",
            writes ? "write" : "read", bytes, address, bytes - (range.end - at),
            static_cast<size_t>(range.end - range.begin));
    }
  }
  const Range *near = nullptr;
  for (const Range &range : ranges_) {
    if (at >= range.end && (near == nullptr || range.end > near->end)) {
      near = &range;
    }
  }
  if (near != nullptr && at - near->end < (1u << 20)) {
    fault(Fault::Kind::memory, "%s of %zu bytes at 0x%" PRIx64 ", %zu bytes past the end of an allocation of %zu",
          writes ? "write" : "read", bytes, address, static_cast<size_t>(at - near->end),
          static_cast<size_t>(near->end - near->begin));
  }
  fault(Fault::Kind::memory, "%s of %zu bytes at 0x%" PRIx64 ", which is in no allocation", writes ? "write" : "read",
        bytes, address);
}

bool ProcessMemory::find(uintptr_t address, bool writes, Range *out) {
  for (int attempt = 0; attempt < 2; ++attempt) {
    for (const Range &range : ranges_) {
      if (address >= range.begin && address < range.end) {
        if (writes && !range.is_writable) {
          return false;
        }
        *out = range;
        return true;
      }
    }
    read();
  }
  return false;
}

void ProcessMemory::read() {
  ranges_.clear();
  std::FILE *file = std::fopen("/proc/self/maps", "re");
  if (file == nullptr) {
    return;
  }
  char line[512];
  while (std::fgets(line, sizeof line, file) != nullptr) {
    uint64_t begin = 0, end = 0;
    char rights[5] = {};
    if (std::sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s", &begin, &end, rights) != 3 || rights[0] != 'r') {
      continue;
    }
    if (!ranges_.empty() && ranges_.back().end == begin && ranges_.back().is_writable == (rights[1] == 'w')) {
      ranges_.back().end = end;  // an access may span mappings
      continue;
    }
    Range range;
    range.begin = begin;
    range.end = end;
    range.is_writable = rights[1] == 'w';
    ranges_.push_back(range);
  }
  std::fclose(file);
}

}  // namespace rocpy_host::amdgpu
