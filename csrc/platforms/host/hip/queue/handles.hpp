// SPDX-License-Identifier: MIT
// Tables of handles: a stale or made-up handle is recognised, never followed.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace rocpy_host {

// A handle is a number: kind (8 bits), generation (32), slot (24). It is no address, so nothing can be read through it;
// a slot that is used again has a new generation, so an old handle stays invalid. Entries are never freed: find() may
// look at them without a lock.
template <class Entry, char kind>
class HandleTable {
 public:
  // No lock needed. Null: no such handle.
  Entry *find(const void *pointer) const {
    const auto handle = reinterpret_cast<uint64_t>(pointer);
    if (handle >> 56 != static_cast<uint64_t>(kind)) {
      return nullptr;
    }
    const uint64_t slot = handle & 0xffffff;
    if (slot >= chunk_count * chunk_size) {
      return nullptr;
    }
    Entry *chunk = chunks_[slot / chunk_size].load(std::memory_order_acquire);
    if (chunk == nullptr) {
      return nullptr;
    }
    Entry *entry = chunk + slot % chunk_size;
    return entry->handle.load(std::memory_order_acquire) == handle ? entry : nullptr;
  }

  // The rest is called with the runtime's mutex held. An entry is taken, filled in, published; retired, and given back
  // when unused.
  Entry *take() {
    if (free_.empty()) {
      const size_t chunk_index = chunks_in_use_;
      if (chunk_index == chunk_count) {
        return nullptr;
      }
      free_.reserve((chunk_index + 1) * chunk_size);
      auto *chunk = new Entry[chunk_size];
      for (size_t i = chunk_size; i-- > 0;) {
        chunk[i].slot = static_cast<uint32_t>(chunk_index * chunk_size + i);
        free_.push_back(chunk + i);
      }
      chunks_[chunk_index].store(chunk, std::memory_order_release);
      ++chunks_in_use_;
    }
    Entry *entry = free_.back();
    free_.pop_back();
    return entry;
  }

  uint64_t publish(Entry *entry) {
    const uint64_t handle =
        static_cast<uint64_t>(kind) << 56 | static_cast<uint64_t>(++entry->generation) << 24 | entry->slot;
    entry->handle.store(handle, std::memory_order_release);
    return handle;
  }

  void retire(Entry *entry) { entry->handle.store(0, std::memory_order_release); }

  void give_back(Entry *entry) { free_.push_back(entry); }

 private:
  static constexpr size_t chunk_size = 256, chunk_count = 4096;
  std::atomic<Entry *> chunks_[chunk_count] = {};
  size_t chunks_in_use_ = 0;
  std::vector<Entry *> free_;
};

}  // namespace rocpy_host
