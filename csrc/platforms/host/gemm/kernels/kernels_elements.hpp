// SPDX-License-Identifier: MIT
// The functions of one type of elements, in one table.
#pragma once

#include "kernels_pack.hpp"
#include "kernels_skinny.hpp"
#include "kernels_tile.hpp"

namespace rocpy_host::gemm {
namespace {

template <class T, class E>
constexpr Elements<T> make_elements() {
  Elements<T> elements{};
  elements.pack = pack<T, E>;
  elements.pack_same = pack_same<T, E>;
  elements.sum = sum<T, E>;
  // Sums come and go less often where E is widened without a way of its own.
  for (int rows = 1; rows <= max_skinny_rows; rows++) {
    const bool alone = sizeof(E) == 1 && (!loads_fours<E> || (vector_registers == 16 && rows > rows_side_by_side));
    elements.burst[rows] = alone ? 16 : lines_side_by_side;
  }
  fill_skinny<T, E, max_skinny_rows>(elements);
  fill_strips<T, E, max_strip_rows>(elements.strips);
  if constexpr (sizeof(E) == 1) fill_tiles<T, E, 2, true, max_thin_rows>(elements.thin);
  return elements;
}

}  // namespace
}  // namespace rocpy_host::gemm
