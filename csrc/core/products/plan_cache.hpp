// SPDX-License-Identifier: MIT
// The plans that the function form keeps: least recently used out first, found by a key of plain words, safe under
// threads.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "matmul.hpp"
#include "plan_key.hpp"
#include "spin_lock.hpp"

namespace rocpy {

enum class CallKind : int32_t {
  launch,   // the plan is launched; without one there is nothing to compute
  copy,     // arrays are copied, and the call is made of the copies
  compose,  // another native product is computed, and its result worked on by the arrays' framework
};

// The arrays that a call copies, by the user's names.
struct CopiedArrays {
  bool a = false, b = false, c = false, bias = false, aux = false, out = false;
  bool c_in_columns = false;  // how the copy of c lies
};

// The native product that a composed one begins with: a Recipe of rocpy.blaslt.selection.recipes.
struct NativeRecipe {
  std::string epilogue, dtype, operands;
  bool scaled = true, blocks = false;
};

// What a call of one key does. Shared by the cache and by calls that run now.
struct CachedCall {
  CallKind kind = CallKind::launch;
  CopiedArrays copies;         // of one that copies
  NativeRecipe recipe;         // of one that is composed
  MatmulPlan *plan = nullptr;  // null: nothing to launch (an empty result)
  size_t algorithm = 0;        // the one that is launched, by its index in the plan
  std::string source;          // where that choice came from
  bool swapped = true;         // the library's A is the user's b
  bool transposed = false;     // results are computed in columns, as (N, M), and the caller transposes them
  bool synchronous = false;    // small enough that the GIL stays held for the launch
  int32_t result_type = 0, result_ndim = 0;
  int64_t result_shape[32];
  bool integer_factors = false;  // alpha and beta are int32
  // The output beside the result, if any: the auxiliary matrix or a bias gradient. No output: ndim -1.
  bool extra_is_aux = false;
  int32_t extra_type = 0;
  int32_t extra_ndim = -1;
  int64_t extra_shape[32];
  ~CachedCall() {
    if (plan) plan->release();
  }
};

struct PlanCacheInfo {
  int64_t hits, misses, size, capacity;
};

class PlanCache {
 public:
  PlanCache();
  std::shared_ptr<CachedCall> find(const PlanKey &key);
  void insert(const PlanKey &key, std::shared_ptr<CachedCall> call) noexcept;
  void clear();  // counters too
  Status resize(int64_t capacity);
  PlanCacheInfo info() const;

 private:
  struct Entry {
    uint64_t hash;
    uint64_t last_used;
    std::vector<int64_t> words;
    std::shared_ptr<CachedCall> call;
  };
  void evict(int64_t keep, std::vector<Entry> *dropped);
  void rebuild(size_t slots);
  bool is_last(const PlanKey &key) const;
  size_t slot_of(uint64_t hash, const int64_t *words, int size) const;

  mutable SpinLock lock_;
  std::vector<Entry> entries_;
  std::vector<int32_t> slots_;  // open addressing: index into entries_, or -1
  int32_t last_ = -1;           // the entry found last
  uint64_t clock_ = 0;
  int64_t hits_ = 0, misses_ = 0, capacity_ = 0;
};

// The process's one cache; its size comes from ROCPY_PLAN_CACHE as it was when the library was loaded.
PlanCache &plan_cache();

}  // namespace rocpy
