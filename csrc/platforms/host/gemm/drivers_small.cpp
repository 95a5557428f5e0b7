// SPDX-License-Identifier: MIT
// The small family: operands in the compute type, of which b fits the inner caches, are multiplied where they are, b in
// packed panels too; b is copied only where its rows push each other out of a cache.
#include <cstring>
#include <optional>

#include "blocking.hpp"
#include "drivers.hpp"

namespace rocpy_host::gemm {
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

// Of b so much is read again for every row of tiles. Tiles of few rows read it often, unless sums are so short that
// they do little else than write the result.
constexpr int64_t most_short_sum = 32, most_of_short_sums = 256 << 10, most_of_tall_tiles = 160 << 10,
                  most_of_low_tiles = 36 << 10;
// And by the algorithm of longer sums: less where vectors of its rows cross lines of the outer cache that they are read
// from. High tiles, which read b seldom, were measured to gain by it where their vectors take two cycles.
constexpr int64_t most_of_longer_sums = 208 << 10, most_of_rows_across_lines = 72 << 10, least_row_of_outer = 256;

int64_t operand_bytes(const Problem &p) { return p.n * p.k * static_cast<int64_t>(size_of(p.compute)); }

bool short_takes(const Problem &p) {
  const int64_t most = low_tiles(p) ? most_of_low_tiles : most_of_tall_tiles;
  return p.k <= short_sums && operand_bytes(p) <= (p.k <= most_short_sum ? most_of_short_sums : most);
}

bool longer_takes(const Problem &p) {
  const bool across = !p.b.packed && p.b.row_stride * static_cast<int64_t>(size_of(p.compute)) % 32 != 0;
  const int64_t most = across ? most_of_rows_across_lines : most_of_longer_sums;
  return (low_tiles(p) || vectors_take_two_cycles()) && !short_takes(p) && operand_bytes(p) <= most;
}

// Few rows are few tiles, each of which reads all of b from the caches that hold it: from the second one as long as a
// row is some lines, of which the hardware fetches the next ones.
bool few_rows_take(const Variant &variant, const Problem &p) {
  const bool few_lines = p.n * static_cast<int64_t>(size_of(p.compute)) < least_row_of_outer;
  const int64_t most = few_lines ? most_of_low_tiles : most_of_longer_sums / divide_up(p.m, tile_rows_of(p));
  return p.m <= variant.rows && p.n > 1 && operand_bytes(p) <= most && !short_takes(p) &&
         !(p.k <= longer_sums && longer_takes(p));
}

// Between copied rows of n columns.
constexpr int64_t copied_step(int64_t n) { return round_up(n, 16) + 16; }

constexpr bool copy_fits_scratch() {
  for (const Variant &variant : variants) {
    const int64_t between = variant.depth * copied_step(1) * static_cast<int64_t>(sizeof(double));
    // Few rows are too few tiles to copy for.
    if (variant.family != Family::small || variant.depth == sums_of_few_rows) continue;
    if (most_of_short_sums + between > static_cast<int64_t>(scratch_bytes)) return false;
  }
  return true;
}
static_assert(copy_fits_scratch());

// So many multiplications are over sooner than the call that asks for them.
constexpr double most_brief_multiplications = 16 * 16 * 16;

// Tasks are blocks of rows: a row of tiles after the other, so that a is read once and b stays near.
template <class T>
struct Small {
  // Sums that wait for what follows them, and columns of them, in whole tiles.
  static constexpr int64_t held_sums = (16 << 10) / sizeof(T), held_columns = held_sums / 16;
  static_assert(held_columns * max_tile_rows <= held_sums && held_columns % (4 * 64 / sizeof(T)) == 0);

  const Kernels<T> &kernel;
  const Problem &p;
  bool plain = is_plain_but_bias(p, arithmetic_type<T>);
  typename Kernels<T>::Epilogue epilogue = plain ? nullptr : kernel.epilogue(p);
  Finish<T> finish = make_finish<T>(p);
  int64_t k = effective_k(p);
  // Where one tile is all there is, divisions would be a good part of the call.
  int64_t tiles = p.m <= kernel.tile_rows ? 1 : divide_up(p.m, kernel.tile_rows);
  int64_t tile_rows = tiles == 1 ? p.m : divide_up(p.m, tiles);
  int64_t block_rows = p.m, blocks = 1;
  bool copies_b = k != 0 && small_copies(p, tiles);
  const T *shared_b = nullptr;                            // b's copy for all tasks
  int64_t panel = p.b.packed ? tile_columns_of(p) : p.n;  // columns of b whose rows are adjacent or a stride apart

  // b's rows, as far apart as no others on the same cache sets are.
  const T *copied_b(int64_t g, int64_t step, T *to) const {
    const T *from = static_cast<const T *>(p.b.data) + g * p.b.batch_stride;
    for (int64_t x = 0; x < k; x++) {
      std::memcpy(to + x * step, from + x * p.b.row_stride, static_cast<size_t>(p.n) * sizeof(T));
    }
    return to;
  }

  void run(int64_t g, int64_t begin, int64_t end) const {
    const T *b = static_cast<const T *>(p.b.data) + (k && !p.b.packed ? g * p.b.batch_stride : 0);
    if (shared_b) return run_rows(g, begin, end, shared_b, copied_step(p.n));
    if (!copies_b) return run_rows(g, begin, end, b, p.b.packed ? panel : p.b.row_stride);
    Scratch scratch;
    const int64_t step = copied_step(p.n);
    run_rows(g, begin, end, copied_b(g, step, scratch.at<T>(0)), step);
  }

  void run_rows(int64_t g, int64_t begin, int64_t end, const T *b, int64_t b_step) const {
    SmallCall<T> call{};
    call.k = k;
    alignas(64) T sums[held_sums];
    // Operands of nothing may be null.
    call.a = call.b = sums;
    if (k != 0) {
      call.a_row = p.a.row_stride;
      call.a_step = p.a.column_stride;
      call.b_step = b_step;
    }
    if (!plain) return run_sums(call, g, begin, end, b, sums);
    call.out_stride = p.d_row_stride;
    T *d = static_cast<T *>(p.d) + g * p.d_batch_stride;
    for (int64_t i = begin; i < end; i += tile_rows) {
      run_tiles(call, {g, i, 0, smaller(tile_rows, end - i), p.n}, b, d + i * p.d_row_stride, false);
    }
  }

  // Sums of many tiles together, so that what follows them reads and writes long stretches of memory.
  void run_sums(SmallCall<T> &call, int64_t g, int64_t begin, int64_t end, const T *b, T *sums) const {
    const int64_t lanes = kernel.tile_columns / 2, columns = smaller(p.n, held_columns);
    const bool one_row = p.n <= held_columns && rows_are_one(p);
    call.out_stride = one_row ? p.n : columns <= lanes ? lanes : round_up(columns, lanes);
    const int64_t most = tiles == 1 ? tile_rows : held_sums / call.out_stride / tile_rows * tile_rows;
    for (int64_t i = begin; i < end; i += most) {
      const int64_t rows = smaller(most, end - i);
      for (int64_t j = 0; j < p.n; j += columns) {
        const Region region{g, i, j, rows, smaller(columns, p.n - j)};
        for (int64_t r = 0; r < rows; r += tile_rows) {
          const Region row{g, i + r, j, smaller(tile_rows, rows - r), region.columns};
          run_tiles(call, row, b, sums + r * call.out_stride, !one_row);
        }
        if (one_row) {
          epilogue(finish, sums, rows * p.n, {g, i, 0, 1, rows * p.n}, nullptr);
        } else {
          epilogue(finish, sums, call.out_stride, region, nullptr);
        }
      }
    }
  }

  // A row of tiles. Of `whole` vectors the lanes beyond the last column are written too.
  void run_tiles(SmallCall<T> &call, const Region &region, const T *b, T *out, bool whole) const {
    const auto [g, i, first_column, rows, all] = region;
    const int64_t lanes = kernel.tile_columns / 2, end = first_column + all;
    if (k != 0) call.a = static_cast<const T *>(p.a.data) + g * p.a.batch_stride + i * p.a.row_stride;
    for (int64_t j = first_column, columns, first = p.b.packed ? j : 0; j < end; j += columns) {
      if (j - first == panel) first = j;
      const int64_t rest = smaller(first + panel, end) - j;
      const SmallWidth shape = small_width(tile_rows, rest, lanes);
      const int64_t width = smaller(shape.vectors * lanes, rest);
      call.tiles = rest != width ? rest / width : 1;
      columns = call.tiles * width;
      if (k != 0) call.b = b + first * k + (j - first);
      call.loaded = static_cast<int>(width - (shape.vectors - 1) * lanes);
      call.stored = whole ? static_cast<int>(lanes) : call.loaded;
      call.out = out + (j - first_column);
      if (plain && p.has_bias) call.bias = static_cast<const T *>(p.bias) + g * p.bias_batch_stride + j;
      kernel.small[shape.index][rows](call);
    }
  }

  static void task(void *context, int64_t index) {
    const auto &self = *static_cast<const Small *>(context);
    const int64_t begin = index % self.blocks * self.block_rows;
    self.run(index / self.blocks, begin, smaller(self.p.m, begin + self.block_rows));
  }
};

}  // namespace

bool small_copies(const Problem &p, int64_t tiles) {
  // As many lines as fall on the same cache sets and stay there.
  constexpr int64_t associativity = 8;
  return !p.b.packed && tiles > 4 && p.k > associativity &&
         p.b.row_stride * static_cast<int64_t>(size_of(p.compute)) % set_bytes == 0;
}

bool small_takes(const Variant &variant, const Problem &p) {
  if (p.compute == Type::i32 || p.a.type != p.compute || p.b.type != p.compute) return false;
  if (staged(p.a) || staged(p.b) || p.reduction == Reduction::result_columns) return false;
  if (p.n > 1 && p.b.column_stride != 1 && !p.b.packed) return false;
  if (p.k > variant.depth) return false;
  if (variant.depth == sums_of_few_rows) return few_rows_take(variant, p);
  return variant.depth == short_sums ? short_takes(p) : longer_takes(p);
}

template <class T>
void run_small(const Problem &p) {
  const double elements = static_cast<double>(p.batch) * static_cast<double>(p.m) * static_cast<double>(p.n + p.k);
  const double multiplications = static_cast<double>(p.batch * p.m) * static_cast<double>(p.n * p.k);
  const bool brief = multiplications <= most_brief_multiplications;
  Small<T> small{kernels_of<T>(brief ? brief_kernel_set() : kernel_set()), p};
  const int threads = brief ? 1 : threads_for(multiplications, elements * sizeof(T));
  const bool one_b = p.batch == 1 || (p.batch > 1 && p.b.batch_stride == 0);
  std::optional<Scratch> scratch;
  if (small.copies_b && one_b) {
    scratch.emplace();
    small.shared_b = small.copied_b(0, copied_step(p.n), scratch->at<T>(0));
  }
  if (threads == 1) {
    for (int64_t g = 0; g < p.batch; g++) small.run(g, 0, p.m);
    return;
  }
  // Where each task copies b there are no more than threads.
  const int64_t enough = small.copies_b && !one_b ? threads : tasks_of_threads;
  const int64_t wanted = smaller(divide_up(enough, p.batch), small.tiles);
  const int64_t blocks = shared_evenly({1, wanted, small.tiles}, small.tiles, p.batch, threads);
  small.block_rows = divide_up(small.tiles, blocks) * small.tile_rows;
  small.blocks = divide_up(p.m, small.block_rows);
  parallel_for(p.batch * small.blocks, threads, Small<T>::task, &small);
}

template void run_small<float>(const Problem &);
template void run_small<double>(const Problem &);

}  // namespace rocpy_host::gemm
