// SPDX-License-Identifier: MIT
// Block sizes of every algorithm, and what an algorithm is expected to cost. Sizes depend on the kernel set in use,
// costs on the kind of processor too; neither on its caches or the number of threads.
#pragma once

#include "drivers.hpp"

namespace rocpy_host::gemm {

// Sums of this length or less are of the first small algorithm, up to the second of the next one; the last is for few
// rows.
constexpr int short_sums = 96, longer_sums = 192, sums_of_few_rows = 4096;

// Ids are recorded in tuning databases: an id is never given to another meaning.
constexpr Variant variants[] = {
    {{103, "direct.28x1024x512"}, Family::direct, 28, 1024, 512},
    {{101, "direct.112x1024x256"}, Family::direct, 112, 1024, 256},
    {{102, "direct.224x512x256"}, Family::direct, 224, 512, 256},
    {{104, "direct.224x1024x512"}, Family::direct, 224, 1024, 512},
    {{105, "direct.280x1024x256"}, Family::direct, 280, 1024, 256},
    {{106, "direct.280x1024x192"}, Family::direct, 280, 1024, 192},
    {{201, "skinny.1024"}, Family::skinny, 16, 1024, 4096},
    {{202, "skinny.4096"}, Family::skinny, 16, 4096, 4096},
    {{301, "blocked.112x1024x256"}, Family::blocked, 112, 1024, 256},
    {{302, "blocked.112x1024x384"}, Family::blocked, 112, 1024, 384},
    {{303, "blocked.112x1024x512"}, Family::blocked, 112, 1024, 512},
    {{304, "blocked.224x512x256"}, Family::blocked, 224, 512, 256},
    {{305, "blocked.112x3072x768"}, Family::blocked, 112, 3072, 768},
    {{401, "split.1024"}, Family::split, 28, 1024, 1024},
    {{402, "split.4096"}, Family::split, 28, 1024, 4096},
    {{403, "split.16384"}, Family::split, 28, 1024, 16384},
    {{501, "small.96"}, Family::small, 14, 1024, short_sums},
    {{502, "small.192"}, Family::small, 14, 1024, longer_sums},
    {{503, "small.8x4096"}, Family::small, 8, 1024, sums_of_few_rows},
};
constexpr int variant_count = sizeof variants / sizeof variants[0];

// Columns of a that all tiles copy before the next, where the rows are adjacent.
constexpr int64_t columns_together = 16;

// Rows of panels that are copied together before the next rows.
constexpr int64_t rows_together = 16;

// Panels that are copied together where columns are adjacent: memory is read along its rows.
constexpr int64_t panels_together = 8;

// Rows that are multiples of this far apart fall on the same sets of the innermost cache.
constexpr int64_t set_bytes = 4096;

// What is held of a few rows of a while packed panels are read from their beginning to their end.
constexpr int64_t held_bytes = 256 << 10;

// What a task of a variant has in its thread's scratch at most: a's block and a pass's sums of all its panels, and as
// many panels as are copied together, one where b is packed. Tiles of equal height may hold twice the rows there are.
template <class T>
constexpr size_t tiled_scratch(const Variant &variant) {
  constexpr int64_t value = sizeof(T), width = 2 * 64 / value;
  const bool wide = value == 8;
  const int64_t panels = variant.family == Family::blocked ? 1 : panels_together;
  const int64_t a_values = round_up(larger(variant.rows * variant.depth, 2 * held_bytes / value) + 64, 64);
  const int64_t sums = variant.rows * variant.columns;
  return static_cast<size_t>(value * (a_values + panels * variant.depth * width + sums / (wide ? 2 : 1)));
}

constexpr bool tiled_scratch_suffices() {
  for (const Variant &variant : variants) {
    if (variant.family != Family::direct && variant.family != Family::blocked) continue;
    if (tiled_scratch<float>(variant) > scratch_bytes || tiled_scratch<double>(variant) > scratch_bytes) return false;
  }
  return true;
}
static_assert(tiled_scratch_suffices());

// Microseconds on one thread of a nominal CPU: good for comparing algorithms of one problem, for nothing else.
float predict(const Variant &variant, const Problem &p);

}  // namespace rocpy_host::gemm
