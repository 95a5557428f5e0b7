// SPDX-License-Identifier: MIT
// The small family: operands in the compute type that fit the innermost cache are multiplied where they are, by the
// calling thread, without copies, scratch or tasks.
#include "drivers.hpp"

namespace rocpy_host::gemm {

bool small_takes(const Variant &variant, const Problem &p) {
  if (p.compute == Type::i32 || p.a.type != p.compute || p.b.type != p.compute || p.b.packed) return false;
  if (staged(p.a) || staged(p.b) || p.reduction == Reduction::result_columns) return false;
  if (p.m > variant.rows || p.n > variant.columns || p.k > variant.depth) return false;
  if (p.n > 1 && p.b.column_stride != 1) return false;
  const double multiplications = static_cast<double>(p.batch) * static_cast<double>(p.m * p.n * p.k);
  return useful_threads(multiplications, 0) == 1;
}

namespace {

// A tile's vectors, and which kernels have as many. Few rows take more: there are not enough sums to hide the latency
// of a fused operation.
struct SmallWidth {
  int index;
  int64_t vectors;
};

SmallWidth small_width(int64_t rows, int64_t columns, int64_t lanes) {
  if (rows <= most_wide_rows && columns > 3 * lanes) return {2, 4};
  return columns > lanes ? SmallWidth{1, 2} : SmallWidth{0, 1};
}

}  // namespace

template <class T>
void run_small(const Problem &p) {
  const Kernels<T> &kernel = kernels<T>();
  const bool plain = is_plain(p, arithmetic_type<T>);
  const auto epilogue = plain ? nullptr : kernel.epilogue(p);
  const Finish<T> finish = make_finish<T>(p);
  const int64_t lanes = kernel.tile_columns / 2, tiles = divide_up(p.m, kernel.tile_rows);
  const int64_t tile_rows = divide_up(p.m, tiles);
  alignas(64) T sums[max_tile_rows * 64];
  SmallCall<T> call{};
  call.k = effective_k(p);
  // Operands of nothing may be null.
  const bool reads = call.k != 0;
  call.a = call.b = sums;
  if (reads) {
    call.a_row = p.a.row_stride;
    call.a_step = p.a.column_stride;
    call.b_step = p.b.row_stride;
  }
  for (int64_t g = 0; g < p.batch; g++) {
    T *d = static_cast<T *>(p.d) + g * p.d_batch_stride;
    for (int64_t j = 0, columns; j < p.n; j += columns) {
      const SmallWidth shape = small_width(tile_rows, p.n - j, lanes);
      columns = smaller(shape.vectors * lanes, p.n - j);
      if (reads) call.b = static_cast<const T *>(p.b.data) + g * p.b.batch_stride + j;
      call.loaded = static_cast<int>(columns - (shape.vectors - 1) * lanes);
      call.stored = plain ? call.loaded : static_cast<int>(lanes);
      call.out_stride = plain ? p.d_row_stride : shape.vectors * lanes;
      for (int64_t i = 0; i < p.m; i += tile_rows) {
        const int64_t rows = smaller(tile_rows, p.m - i);
        if (reads) call.a = static_cast<const T *>(p.a.data) + g * p.a.batch_stride + i * p.a.row_stride;
        call.out = plain ? d + i * p.d_row_stride + j : sums;
        kernel.small[shape.index][rows](call);
        if (!plain) epilogue(finish, sums, call.out_stride, {g, i, j, rows, columns}, nullptr);
      }
    }
  }
}

template void run_small<float>(const Problem &);
template void run_small<double>(const Problem &);

}  // namespace rocpy_host::gemm
