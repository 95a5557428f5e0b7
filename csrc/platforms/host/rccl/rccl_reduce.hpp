// SPDX-License-Identifier: MIT
// The arithmetic of collectives: sources are combined in the order of the ranks, so the bits depend on nothing else.
#pragma once

#include "types.h"

#include <cstddef>
#include <cstdint>

namespace rocpy_host {

// Bytes of an element; 0: no such type.
size_t bytes_of_type(int type);
const char *name_of_type(int type);

// One element of any type, as the library holds it.
struct Scalar {
  unsigned char bytes[8];
};

// How sources are combined. Each source is first multiplied by its scale, in the element type (ncclAvg of floats,
// pre-multiplied sums). 8- and 16-bit floats are summed in float32 and rounded once, other types in themselves;
// integers wrap; FP8 saturates, and keeps infinities. A divisor divides integers at the end, towards zero.
struct Reduction {
  int type = ncclFloat32;
  int op = ncclSum;  // sum, prod, max or min
  bool is_scaled = false;
  int divisor = 1;
};

// out[i] = sources[0][i] op sources[1][i] op ... [op bias[i]]. `out` may be one of the sources. `scales` has one for
// each source where they are scaled; `bias` may be null and is not scaled.
void reduce(const Reduction &how, void *out, const void *const *sources, const Scalar *scales, int source_count,
            const void *bias, size_t count);

// 1 / n in the type of the elements.
Scalar reciprocal(int type, int n);

}  // namespace rocpy_host
