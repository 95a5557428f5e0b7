// SPDX-License-Identifier: MIT
// The direct and blocked families: register tiles over blocks of rows and chunks of columns, k in passes. Direct reads
// b where it is or copies some panels at a time; blocked packs b into the workspace first, in chunks that stay cached.
#include "tiled.hpp"

namespace rocpy_host::gemm {
namespace {

size_t packed_operand_bytes(const Problem &p) {
  return static_cast<size_t>(round_up(p.n, tile_columns_of(p)) * values_of(p.k, group_of(p))) *
         (p.compute == Type::f64 ? 8 : 4);
}

// Panels of b from which on one more is a small price for panels that begin where cache lines do.
constexpr int64_t many_panels = 64;

// How many columns the first panel lacks, so that the others begin where cache lines of b do, if a row of a panel is as
// long as a line: one is fetched then, not two, and written to a result that lies like b. No bit depends on it.
int64_t lacking_columns(const Problem &p) {
  const int64_t size = static_cast<int64_t>(size_of(p.compute)), width = tile_columns_of(p);
  if (p.b.packed || p.b.type != p.compute || p.b.column_stride != 1 || p.n < many_panels * width) return 0;
  if (width * size != line_bytes || p.b.row_stride * size % line_bytes != 0) return 0;
  const int64_t after = static_cast<int64_t>(reinterpret_cast<uintptr_t>(p.b.data) % line_bytes);
  return after % 16 == 0 ? after / size : 0;
}

}  // namespace

size_t tiled_workspace(const Variant &variant, const Problem &p) {
  size_t bytes = sums_bytes(p, make_blocks(variant, p).blocks);
  if (variant.family == Family::blocked && !p.b.packed) bytes += packed_operand_bytes(p);
  return bytes;
}

// Panels of b that are packed at a time: they are read again from the outermost cache, not from memory.
constexpr int64_t most_packed_bytes = 4 << 20;

// Packs b chunk after chunk into `to`, each before the batch entries [g, g + entries) that share it are multiplied.
template <class T>
void run_packed(Tiled<T> &tiled, int64_t g, int64_t entries, void *to) {
  const Problem &p = tiled.p;
  const Blocks &blocks = tiled.blocks;
  const int64_t columns = blocks.chunk_panels * tiled.kernel.tile_columns;
  int64_t together = larger(1, most_packed_bytes / larger(1, columns * tiled.k * static_cast<int64_t>(sizeof(T))));
  // Threads that share too few tasks wait for one another.
  if (thread_count() > 1) together = larger(together, divide_up(tasks_of_threads, blocks.blocks * entries));
  for (tiled.first_chunk = 0; tiled.first_chunk < blocks.chunks; tiled.first_chunk += together) {
    tiled.chunks = smaller(together, blocks.chunks - tiled.first_chunk);
    const int64_t j = tiled.first_chunk * columns;
    Matrix b = p.b;
    b.data = offset(b.data, b.type, g * b.batch_stride + j * b.column_stride);
    if (b.scale.kind == ScaleKind::block32) {
      b.scale.data = static_cast<const char *>(b.scale.data) + g * b.scale.batch_stride + j * (p.k / block_depth);
    }
    pack_operand<T>(tiled.kernel, b, effective_k(p), smaller(p.n - j, tiled.chunks * columns), false, to);
    tiled.run_all(g, entries);
  }
}

template <class T>
void run_tiled(const Variant &variant, const Problem &p, void *workspace) {
  const int64_t k = effective_k(p);
  const double multiplications = static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.batch * k);
  const int64_t lacking = variant.family == Family::direct ? lacking_columns(p) : 0;
  Problem wide = p;
  wide.n += lacking;
  Tiled<T> tiled(p, make_blocks(variant, wide, threads_for(multiplications, 0)), k, k, p.k);
  tiled.lacking = lacking;
  char *free_space = static_cast<char *>(workspace);
  if (p.reduction == Reduction::result_columns) {
    tiled.sums = reinterpret_cast<T *>(free_space);
    free_space += sums_bytes(p, tiled.blocks.blocks);
  }
  if (p.b.packed) {
    tiled.take_panels(p.b.data, p.compute == Type::i32 && !tiled.element_of_packed() ? Type::i32 : p.b.type);
  }
  if (variant.family != Family::blocked || p.b.packed || k == 0) {
    tiled.run_all(0, p.batch);
  } else {
    tiled.take_panels(free_space, p.compute);
    // Batch entries that share b share its panels; others take turns with them.
    const int64_t turn = p.b.batch_stride == 0 ? p.batch : 1;
    for (int64_t g = 0; g < p.batch; g += turn) run_packed<T>(tiled, g, turn, free_space);
  }
  if constexpr (!std::is_same_v<T, int32_t>) {
    if (tiled.sums) finish_sums<T>(p, tiled.sums, tiled.blocks.blocks);
  }
}

// Block scales belong to the product, the others to what follows it.
Scale part_scale(const Scale &scale, int64_t g, int64_t depth) {
  if (scale.kind != ScaleKind::block32) return {};
  return {static_cast<const char *>(scale.data) + g * scale.batch_stride, depth / 32, ScaleKind::block32};
}

template <class T>
void run_parts(const Variant &variant, const Problem &p, int64_t g, int64_t depth, int64_t parts, T *out) {
  Problem part;
  part.m = p.m;
  part.n = p.n;
  part.k = depth;
  part.batch = parts;
  part.compute = p.compute;
  part.d_type = p.compute;
  part.a = p.a;
  part.a.data = offset(p.a.data, p.a.type, g * p.a.batch_stride);
  part.a.batch_stride = depth * p.a.column_stride;
  part.a.scale = part_scale(p.a.scale, g, depth);
  part.b = p.b;
  part.b.data = offset(p.b.data, p.b.type, g * p.b.batch_stride);
  part.b.batch_stride = depth * p.b.row_stride;
  part.b.scale = part_scale(p.b.scale, g, depth);
  part.d = out;
  part.d_row_stride = p.n;
  part.d_batch_stride = p.m * p.n;
  Variant direct = variant;
  direct.family = Family::direct;
  direct.depth = 256;
  Tiled<T> tiled(part, make_blocks(direct, part), depth, p.k - (parts - 1) * depth, p.k);
  tiled.run_all(0, parts);
}

#define ROCPY_INSTANTIATE(T)                                            \
  template void run_tiled<T>(const Variant &, const Problem &, void *); \
  template void run_parts<T>(const Variant &, const Problem &, int64_t, int64_t, int64_t, T *);
ROCPY_INSTANTIATE(float)
ROCPY_INSTANTIATE(double)
ROCPY_INSTANTIATE(int32_t)
#undef ROCPY_INSTANTIATE

}  // namespace rocpy_host::gemm
