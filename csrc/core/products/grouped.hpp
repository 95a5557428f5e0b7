// SPDX-License-Identifier: MIT
// Many products in one call: a list of planned ones, or groups of one packed operand that differ in one extent only.
// hipBLASLt's own grouped product is a C++ class whose layout changes between releases, so groups are launched one
// after the other, and neighbours of equal extents as one strided batch.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "matmul.hpp"
#include "plan_cache.hpp"

namespace rocpy {

// One product of a list: what was planned for it, and where its operands are.
struct ListedProduct {
  std::shared_ptr<CachedCall> call;
  MatmulPointers pointers;
};

// Launches them in order. Stops at the first failure.
Status launch_list(StreamContext *context, const std::vector<ListedProduct> &products, double alpha);

// The axis of the product that the groups share out among them.
enum class Ragged : int32_t { m, n, k };

// What a plan of groups is of.
inline PlanKind kind_of_groups(Ragged ragged) {
  switch (ragged) {
    case Ragged::m:
      return PlanKind::groups_of_m;
    case Ragged::n:
      return PlanKind::groups_of_n;
    case Ragged::k:
      break;
  }
  return PlanKind::groups_of_k;
}

// Where an operand of group g begins: data + starts[g] * per_index + g * per_group, in bytes.
struct GroupedOperand {
  char *data = nullptr;
  int64_t per_index = 0, per_group = 0;
  int64_t element_bytes = 1;
};

struct GroupedProduct {
  const MatmulSpec *spec = nullptr;  // of one group of any extent; no batch
  bool swapped = true;               // the library's A is the user's b
  Ragged ragged = Ragged::m;
  GroupedOperand operands[operand_count];  // in the library's order

  // What it takes to plan `count` neighbouring groups of one extent.
  MatmulSpec spec_of(int64_t extent, int64_t count) const;
  // How many groups from `first` on can go as one batch: equal extents, and steps that a batch stride can say.
  int64_t run_length(const int64_t *starts, int64_t groups, int64_t first) const;
};

// Neighbouring groups of one extent that go as one batch.
struct GroupRun {
  int64_t first = 0, count = 0, extent = 0;
};

// Moves *run to the next groups from run->first on that have a product, and returns whether there are any. `starts` has
// groups + 1 entries. Groups with no elements in the result are left out.
bool next_run(const GroupedProduct &product, const int64_t *starts, int64_t groups, GroupRun *run);

// Launches groups from run->first on by the plans that are kept under `key` with extent and count behind it. Stops at a
// run without a plan and leaves it in *run; after the last run->first is `groups`. `ready`, if there is one, is the
// plan of the run to begin with.
Status launch_groups(StreamContext *context, const GroupedProduct &product, PlanKey *key, const int64_t *starts,
                     int64_t groups, const std::shared_ptr<CachedCall> &ready, double alpha, GroupRun *run);

}  // namespace rocpy
