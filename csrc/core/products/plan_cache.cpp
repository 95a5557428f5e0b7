// SPDX-License-Identifier: MIT
// An open-addressing index over a vector of entries: lookups touch two cache lines, and eviction, which is rare,
// rebuilds the index.
#include "plan_cache.hpp"

#include <pthread.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <mutex>

#include "environment.h"
#include "guarded.hpp"

namespace rocpy {

uint64_t PlanKey::hash() const {
  uint64_t state = 0x9e3779b97f4a7c15u ^ static_cast<uint64_t>(size);
  for (int i = 0; i < size; ++i) {
    state = (state ^ static_cast<uint64_t>(words[i])) * 0xff51afd7ed558ccdu;
    state ^= state >> 32;
  }
  return state;
}

PlanCache::PlanCache() {
  char *end = nullptr;
  const char *text = rocpy_environment(ROCPY_PLAN_CACHE);
  const long long value = std::strtoll(text, &end, 10);
  capacity_ = end != text && *end == '\0' && value >= 0 ? std::min<long long>(value, 1 << 20) : 1024;
  rebuild(64);
}

size_t PlanCache::slot_of(uint64_t hash, const int64_t *words, int size) const {
  const size_t mask = slots_.size() - 1;
  size_t slot = hash & mask;
  for (; slots_[slot] >= 0; slot = (slot + 1) & mask) {
    const Entry &entry = entries_[static_cast<size_t>(slots_[slot])];
    if (entry.hash == hash && entry.words.size() == static_cast<size_t>(size) &&
        std::memcmp(entry.words.data(), words, static_cast<size_t>(size) * sizeof *words) == 0) {
      break;
    }
  }
  return slot;
}

void PlanCache::rebuild(size_t slots) {
  last_ = -1;
  slots_.assign(slots, -1);
  for (size_t i = 0; i < entries_.size(); ++i) {
    const Entry &entry = entries_[i];
    slots_[slot_of(entry.hash, entry.words.data(), static_cast<int>(entry.words.size()))] = static_cast<int32_t>(i);
  }
}

bool PlanCache::is_last(const PlanKey &key) const {
  if (last_ < 0) return false;
  const std::vector<int64_t> &words = entries_[static_cast<size_t>(last_)].words;
  return words.size() == static_cast<size_t>(key.size) &&
         std::memcmp(words.data(), key.words, words.size() * sizeof words[0]) == 0;
}

std::shared_ptr<CachedCall> PlanCache::find(const PlanKey &key) {
  std::lock_guard<SpinLock> lock(lock_);
  // A loop over one product asks for the same key again and again: comparing is cheaper than hashing.
  const int32_t index = is_last(key) ? last_ : slots_[slot_of(key.hash(), key.words, key.size)];
  if (index < 0) {
    ++misses_;
    return nullptr;
  }
  last_ = index;
  Entry &entry = entries_[static_cast<size_t>(index)];
  entry.last_used = ++clock_;
  ++hits_;
  return entry.call;
}

void PlanCache::evict(int64_t keep, std::vector<Entry> *dropped) {
  if (static_cast<int64_t>(entries_.size()) <= keep) return;
  dropped->reserve(entries_.size() - static_cast<size_t>(keep));
  std::sort(entries_.begin(), entries_.end(), [](const Entry &x, const Entry &y) { return x.last_used > y.last_used; });
  const auto first = entries_.begin() + static_cast<std::ptrdiff_t>(keep);
  std::move(first, entries_.end(), std::back_inserter(*dropped));
  entries_.erase(first, entries_.end());
  rebuild(slots_.size());
}

void PlanCache::insert(const PlanKey &key, std::shared_ptr<CachedCall> call) noexcept {
  // A plan that there is no memory to keep is made again. What is replaced or evicted goes after the lock.
  guarded("hipblasLtMatmulDescCreate", [&] {
    std::vector<Entry> dropped;
    std::vector<int64_t> words(key.words, key.words + key.size);
    const uint64_t hash = key.hash();
    std::lock_guard<SpinLock> lock(lock_);
    if (capacity_ == 0) return Status{};
    const size_t slot = slot_of(hash, key.words, key.size);
    if (slots_[slot] >= 0) {  // another thread planned the same problem meanwhile
      entries_[static_cast<size_t>(slots_[slot])].call.swap(call);
      return Status{};
    }
    if (static_cast<int64_t>(entries_.size()) >= capacity_) {
      // Several at once, so that a full cache does not sort at each miss.
      evict(capacity_ - std::max<int64_t>(1, capacity_ / 8), &dropped);
    }
    if ((entries_.size() + 1) * 2 > slots_.size()) rebuild(slots_.size() * 2);
    entries_.push_back({hash, ++clock_, std::move(words), std::move(call)});
    const Entry &entry = entries_.back();
    slots_[slot_of(hash, entry.words.data(), key.size)] = static_cast<int32_t>(entries_.size() - 1);
    return Status{};
  });
}

void PlanCache::clear() {
  std::vector<Entry> dropped;
  {
    std::lock_guard<SpinLock> lock(lock_);
    dropped.swap(entries_);
    rebuild(64);
    hits_ = misses_ = 0;
  }
}

Status PlanCache::resize(int64_t capacity) {
  return guarded("resize", [&] {
    std::vector<Entry> dropped;  // goes after the lock: dropping a plan calls into the platform
    std::lock_guard<SpinLock> lock(lock_);
    evict(std::max<int64_t>(0, capacity), &dropped);
    capacity_ = std::max<int64_t>(0, capacity);
    return Status{};
  });
}

PlanCacheInfo PlanCache::info() const {
  std::lock_guard<SpinLock> lock(lock_);
  return {hits_, misses_, static_cast<int64_t>(entries_.size()), capacity_};
}

namespace {
// Never destroyed: plans belong to libraries that may be gone at exit. A child of fork() starts with an empty one,
// because a lock of the parent's may be held by a thread that the child does not have.
PlanCache *cache = new PlanCache;
void abandon_in_child() { new (cache) PlanCache; }
const int at_fork = pthread_atfork(nullptr, nullptr, abandon_in_child);
}  // namespace

PlanCache &plan_cache() { return *cache; }

}  // namespace rocpy
