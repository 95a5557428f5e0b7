// SPDX-License-Identifier: MIT
// Type-stable storage for the objects behind hipBLASLt's pointers, which tells live objects from destroyed ones and
// from garbage.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

namespace rocpy_host::lt {

// Of the last object that was created or changed, whatever its type: no two states of objects have the same revision.
inline std::atomic<uint64_t> last_revision{0};

// Slots are recycled but never given back to the system, so looking at a destroyed object is safe and finds it dead.
// Everything is lock-free: a child forked while another thread creates an object is not left with a held lock.
template <class T>
class Pool {
 public:
  constexpr Pool() = default;
  Pool(const Pool &) = delete;
  Pool &operator=(const Pool &) = delete;

  // A default-constructed object; null when memory is out.
  T *allocate() noexcept {
    uint32_t index = pop();
    if (index == none) {
      index = fresh_.fetch_add(1, std::memory_order_relaxed);
      if (!ensure_chunk(chunk_of(index))) return nullptr;
    }
    Slot *slot = slot_at(index);
    slot->index = index;
    T *object = ::new (static_cast<void *>(slot->storage)) T();
    slot->revision = last_revision.fetch_add(1, std::memory_order_relaxed) + 1;
    slot->live.store(true, std::memory_order_release);
    return object;
  }

  // False when `object` is not a live object of this pool; of several callers with the same object one gets true.
  bool release(const void *object) noexcept {
    Slot *slot = slot_of(object);
    if (!slot || !slot->live.exchange(false, std::memory_order_acq_rel)) return false;
    reinterpret_cast<T *>(slot->storage)->~T();
    // Whoever still reads it gets nonsense, not yesterday's values.
    std::memset(slot->storage, 0xdd, sizeof(slot->storage));
    push(slot);
    return true;
  }

  // The object when it is live, else null. Any pointer value may be given.
  const T *find(const void *object) const noexcept {
    const Slot *slot = slot_of(object);
    return slot && slot->live.load(std::memory_order_acquire) ? reinterpret_cast<const T *>(slot->storage) : nullptr;
  }

  // The same for a caller that changes it: it gets a new revision.
  T *find_to_change(const void *object) const noexcept {
    Slot *slot = slot_of(object);
    if (!slot || !slot->live.load(std::memory_order_acquire)) return nullptr;
    slot->revision = last_revision.fetch_add(1, std::memory_order_relaxed) + 1;
    return reinterpret_cast<T *>(slot->storage);
  }

  // What tells this state of a live object from every other. 0 is no revision.
  static uint64_t revision_of(const T *object) noexcept { return reinterpret_cast<const Slot *>(object)->revision; }

 private:
  struct Slot {
    alignas(T) alignas(16) unsigned char storage[sizeof(T)];
    std::atomic<bool> live;
    std::atomic<uint32_t> next;  // free list: index + 1 of the next free slot
    uint32_t index;
    uint64_t revision;
  };

  static constexpr uint32_t none = UINT32_MAX;
  static constexpr uint32_t first_chunk = 256;  // chunk c holds first_chunk << c slots
  static constexpr int chunk_count = 23;        // 2^31 slots in all

  static int chunk_of(uint32_t index) {
    uint32_t chunk = index / first_chunk + 1;
    return 31 - __builtin_clz(chunk);
  }
  static uint32_t chunk_start(int chunk) { return first_chunk * ((1u << chunk) - 1); }
  static uint32_t chunk_slots(int chunk) { return first_chunk << chunk; }

  Slot *slot_at(uint32_t index) const {
    int chunk = chunk_of(index);
    return chunks_[chunk].load(std::memory_order_acquire) + (index - chunk_start(chunk));
  }

  Slot *slot_of(const void *object) const noexcept {
    auto address = reinterpret_cast<uintptr_t>(object);
    for (int chunk = 0; chunk < chunk_count; ++chunk) {
      Slot *base = chunks_[chunk].load(std::memory_order_acquire);
      if (!base) return nullptr;
      uintptr_t offset = address - reinterpret_cast<uintptr_t>(base);
      if (offset < uintptr_t{chunk_slots(chunk)} * sizeof(Slot)) {
        return offset % sizeof(Slot) == 0 ? base + offset / sizeof(Slot) : nullptr;
      }
    }
    return nullptr;
  }

  // Chunks come into being in order, so that slot_of may stop at the first one missing.
  bool ensure_chunk(int wanted) noexcept {
    if (wanted >= chunk_count) return false;
    for (int chunk = 0; chunk <= wanted; ++chunk) {
      if (chunks_[chunk].load(std::memory_order_acquire)) continue;
      auto *memory = static_cast<Slot *>(std::calloc(chunk_slots(chunk), sizeof(Slot)));
      if (!memory) return false;
      Slot *expected = nullptr;
      if (!chunks_[chunk].compare_exchange_strong(expected, memory, std::memory_order_acq_rel)) std::free(memory);
    }
    return true;
  }

  // The upper half of `head_` counts pops and pushes, so that a slot popped and pushed meanwhile is not mistaken for an
  // unchanged list.
  uint32_t pop() noexcept {
    uint64_t head = head_.load(std::memory_order_acquire);
    while (uint32_t(head)) {
      uint32_t index = uint32_t(head) - 1;
      uint64_t next = slot_at(index)->next.load(std::memory_order_relaxed);
      if (head_.compare_exchange_weak(head, ((head >> 32) + 1) << 32 | next, std::memory_order_acq_rel)) return index;
    }
    return none;
  }

  void push(Slot *slot) noexcept {
    uint64_t head = head_.load(std::memory_order_relaxed);
    do {
      slot->next.store(uint32_t(head), std::memory_order_relaxed);
    } while (
        !head_.compare_exchange_weak(head, ((head >> 32) + 1) << 32 | (slot->index + 1), std::memory_order_acq_rel));
  }

  std::atomic<Slot *> chunks_[chunk_count] = {};
  std::atomic<uint64_t> head_{0};
  std::atomic<uint32_t> fresh_{0};
};

}  // namespace rocpy_host::lt
