// SPDX-License-Identifier: MIT
// The direct and blocked families: register tiles over blocks of rows and chunks of columns, k in passes. Direct reads
// b where it is or copies one panel at a time; blocked packs b into the
// workspace first, as many chunks at a time as stay in the outermost cache.
#include <type_traits>

#include "blocking.hpp"
#include "blocks.hpp"
#include "drivers.hpp"
#include "expression.hpp"

namespace rocpy_host::gemm {
namespace {

// How many rows ahead a lone tile fetches its panel.
constexpr int64_t kRowsAhead = 64;

// A panel of fewer rows is fetched by its first tile alone.
constexpr int64_t kSharedRows = 64;

// Columns of a that all tiles copy before the next, where the rows are adjacent.
constexpr int64_t kColumnsTogether = 16;

// Panels that are copied together where columns are adjacent, some rows of all of them before the next rows: memory is
// read along its rows.
constexpr int64_t kPanelsTogether = 8, kRowsTogether = 16;

// Four panels of two of the widest vectors.
constexpr int64_t kMostStripColumns = 4 * 2 * 16;

// What a task of a variant has in its thread's scratch at most: a's block and a pass's sums of all its panels, and as
// many panels as are copied together, one where b is packed.
template <class T>
constexpr size_t scratch_needed(const Variant &variant) {
  constexpr int64_t value = sizeof(T), width = 2 * 64 / value;
  const bool wide = value == 8;
  const int64_t panels = variant.family == Family::blocked ? 1 : kPanelsTogether;
  const int64_t a_values = round_up(variant.rows * variant.depth + 64, 64), sums = variant.rows * variant.columns;
  return static_cast<size_t>(value * (a_values + panels * variant.depth * width + sums / (wide ? 2 : 1)));
}

constexpr bool scratch_suffices() {
  for (const Variant &variant : kVariants) {
    if (variant.family != Family::direct && variant.family != Family::blocked) continue;
    if (scratch_needed<float>(variant) > kScratchBytes || scratch_needed<double>(variant) > kScratchBytes) return false;
  }
  return true;
}
static_assert(scratch_suffices());

// Matrices that the epilogue reads as well as the sums. A tile's part of them is a few bytes of many rows, far apart,
// which no hardware fetches ahead.
struct EpilogueMatrices {
  struct Matrix {
    const char *data;
    int64_t row_bytes, column_bytes, batch_bytes;
  };
  Matrix matrices[kMostInputs + 2];
  int count = 0, pairs = 1;

  explicit EpilogueMatrices(const Problem &p) {
    const auto add = [this](const void *data, Type type, int64_t row, int64_t column, int64_t batch) {
      const int64_t size = static_cast<int64_t>(size_of(type));
      if (row != 0 && column == 1)
        matrices[count++] = {static_cast<const char *>(data), row * size, size, batch * size};
    };
    if (p.beta != 0) add(p.c, p.d_type, p.c_row_stride, 1, p.c_batch_stride);
    if (p.aux == Aux::load) add(p.aux_data, p.aux_type, p.aux_row_stride, 1, p.aux_batch_stride);
    if (!p.program) return;
    const Program &program = *p.program->program;
    pairs = program.pairs ? 2 : 1;
    for (int i = 0; i < program.input_count; i++) {
      const ProgramOperand &one = program.inputs[i];
      const int64_t down = p.program_transposed ? one.column_stride : one.row_stride;
      const int64_t right = p.program_transposed ? one.row_stride : one.column_stride;
      add(p.program->inputs[i], one.type, down, right, one.batch_stride);
    }
  }

  const char *at(int m, int64_t g, int64_t i, int64_t j) const {
    const Matrix &one = matrices[m];
    return one.data + g * one.batch_bytes + i * one.row_bytes + j / pairs * one.column_bytes;
  }

  // What a tile will read of the matrices from the first-th on, into the outer caches: its rows may all fall on one
  // set of the innermost.
  void fetch(int first, int64_t g, int64_t i, int64_t j, int64_t rows, int64_t width) const {
    for (int m = first; m < count; m++) {
      const Matrix &matrix = matrices[m];
      const char *from = at(m, g, i, j);
      const int64_t bytes = (width / pairs) * matrix.column_bytes;
      for (int64_t r = 0; r < rows; r++, from += matrix.row_bytes) {
        for (int64_t b = 0; b < bytes; b += 64) __builtin_prefetch(from + b, 0, 2);
      }
    }
  }
};

template <class T>
struct Tiled {
  const Kernels<T> &kernel = kernels<T>();
  const Problem &p;
  Blocks blocks;
  Finish<T> finish = make_finish<T>(p);
  typename Kernels<T>::Epilogue epilogue = kernel.epilogue(p);
  const EpilogueMatrices epilogue_matrices{p};
  int64_t k, last_k;  // of each batch entry, and of the last one
  Operand<T> left, right;
  int64_t first_entry = 0;          // the batch entry that task 0 belongs to
  int64_t first_chunk = 0, chunks;  // those that tasks belong to
  const void *panels = nullptr;     // b packed, of panel_type, from the first chunk on
  Type panel_type = Type::f32;
  T *sums = nullptr;
  bool plain;  // the sums are the result: tiles are written to d
  bool a_in_place;
  bool thin;                                                // tiles of few rows read packed bytes themselves
  const bool in_tiles = !staged(p.b) && kernel.group == 1;  // tiles can read b where it is

  // `whole_k` of the product that this is a part of.
  Tiled(const Problem &problem, const Blocks &block_sizes, int64_t depth_of_entry, int64_t depth_of_last,
        int64_t whole_k)
      : p(problem),
        blocks(block_sizes),
        k(depth_of_entry),
        last_k(depth_of_last),
        left(problem.a, true, whole_k),
        right(problem.b, false, whole_k),
        chunks(block_sizes.chunks) {
    const Type type = kType<T>;
    plain = p.d_type == type && p.alpha == 1 && !p.alpha_vector && p.beta == 0 && !p.has_bias && !has_factors(p) &&
            p.activation == Activation::none && !p.program && p.aux == Aux::none &&
            p.reduction != Reduction::result_columns;
    thin = blocks.tiles == 1 && blocks.tile_rows <= kMaxThinRows && p.b.packed &&
           (packed_blocks(p.b) || element_index(p.b.type) >= kTileElementTypes);
    a_in_place = !thin && blocks.a_in_place;
  }

  void panel(int64_t g, const T *a, int64_t first_tile, int64_t tiles, int64_t j, int64_t x0, int64_t count, bool last,
             const void *b, int64_t b_stride, int element, T *acc, const char *next, int64_t next_step,
             bool fetch_next) const {
    const int64_t lanes = kernel.tile_columns / 2, width = smaller(kernel.tile_columns, p.n - j);
    const int vectors = element >= kTileElementTypes || width > lanes ? 2 : 1;
    alignas(64) T buffer[kMaxTileRows * 64];
    alignas(64) T correction[64];
    if (kernel.correct) kernel.correct(count, static_cast<const T *>(b), b_stride, correction);
    int64_t shares = 1;
    while (2 * shares <= tiles && count >= kSharedRows) shares *= 2;
    // Of a narrow product the rows of the next block follow: as one stretch where they are adjacent, or else the
    // beginning of each.
    const bool follow_rows = a_in_place && blocks.panels <= 2 && !fetch_next;
    const int64_t block_rows = blocks.block_tiles * blocks.tile_rows;
    const int64_t row_step = p.a.row_stride == count ? 128 : p.a.row_stride * static_cast<int64_t>(sizeof(T));
    for (int64_t t = 0; t < tiles; t++) {
      const int64_t i = (first_tile + t) * blocks.tile_rows, rows = smaller(blocks.tile_rows, p.m - i);
      T *tile = acc + t * blocks.tile_rows * kernel.tile_columns;
      const T *in = x0 ? tile : nullptr;
      int64_t stride = kernel.tile_columns, in_stride = stride;
      if (kernel.correct && !x0) {
        in = correction;
        in_stride = 0;
      } else if (kernel.correct) {
        for (int64_t r = 0; r < rows; r++) {
          for (int64_t c = 0; c < stride; c++) tile[r * stride + c] = sum_of(tile[r * stride + c], correction[c]);
        }
      }
      // What the last vector holds of the columns. Tiles of bytes have two even where one would do.
      const int whole = static_cast<int>(lanes), rest = static_cast<int>(width - (vectors - 1) * lanes);
      const int part = kernel.masks && rest > 0 ? rest : whole;
      const bool to_d = last && plain && part == rest;
      if (to_d) {
        tile = static_cast<T *>(p.d) + g * p.d_batch_stride + i * p.d_row_stride + j;
        stride = p.d_row_stride;
      } else if (last) {
        tile = buffer;
      }
      const T *rows_of_a =
          a_in_place ? a + (i - first_tile * blocks.tile_rows) * p.a.row_stride : a + t * blocks.tile_rows * count;
      // The tiles of a panel fetch the next one together: one alone would wait for it. Where the epilogue reads
      // matrices, the first one fetches it and the others what the epilogue reads, a row now and then: all at once it
      // would hold up the tile's own loads.
      const bool reads_matrices = last && epilogue_matrices.count;
      const bool fetch = fetch_next && (reads_matrices ? t == 0 : t < shares);
      const bool fetch_matrices = !fetch && reads_matrices && count >= rows && element < kElementTypes;
      const char *from = fetch ? next : static_cast<const char *>(b);
      int64_t step = fetch ? next_step : 0, pace = 0;
      if (fetch && !reads_matrices) {
        from += t * (count / shares) * next_step;
        pace = shares - 1;
      }
      if (!fetch && follow_rows && i + block_rows < p.m) {
        from = reinterpret_cast<const char *>(rows_of_a + block_rows * p.a.row_stride);
        step = row_step;
      }
      if (fetch_matrices) {
        from = epilogue_matrices.at(0, g, i, j);
        step = epilogue_matrices.matrices[0].row_bytes;
        while (2 * pace + 2 <= count / rows) pace = 2 * pace + 1;
      }
      if (last) epilogue_matrices.fetch(fetch_matrices ? 1 : 0, g, i, j, rows, width);
      const auto run_tile =
          element < kTileElementTypes ? kernel.tile[element][vectors - 1][!a_in_place][rows] : thin_tile(element, rows);
      run_tile({count, rows_of_a, p.a.row_stride, b, b_stride, in, in_stride, tile, stride, from, step, pace, part,
                to_d ? part : whole});
      if (last && !to_d) {
        epilogue(finish, tile, stride, g, i, j, rows, width,
                 sums ? sums_of(g, first_tile / blocks.block_tiles) + j : nullptr);
      }
    }
  }

  // Elements beyond those that have a table of their own are of panels packed with block scales.
  typename Kernels<T>::Tile thin_tile(int element, int64_t rows) const {
    if constexpr (std::is_same_v<T, float>) {
      if (element >= kElementTypes) return kernel.blocks[element - kElementTypes].thin[rows];
    }
    return kernel.elements[element]->thin[rows];
  }

  // A pass over one panel that was packed with its block scales.
  void block_panel(int64_t g, const T *a, int64_t first_tile, int64_t tiles, int64_t q, int64_t x0, int64_t count,
                   bool last, T *sliver, T *acc) const {
    if constexpr (std::is_same_v<T, float>) {
      const int64_t width = kernel.tile_columns, bytes = bytes_of_block(p.b.type, width);
      const int index = block_index(p.b.type);
      const char *b = static_cast<const char *>(panels) + q * (p.k / kBlockDepth) * bytes;
      if (!thin) {
        kernel.blocks[index].widen(b, x0, count, sliver);
        return panel(g, a, first_tile, tiles, q * width, x0, count, last, sliver, width, 0, acc, b, 0, false);
      }
      b += x0 / kBlockDepth * bytes;
      panel(g, a, first_tile, tiles, q * width, x0, count, last, b, width, kElementTypes + index, acc, b, 0, false);
    }
  }

  void take_panels(const void *data, Type type) {
    panels = data;
    panel_type = type;
    if (strip_panels() > 1) a_in_place = false;
  }

  // Panels that a product of few rows reads side by side; 1 where it does not.
  int64_t strip_panels() const {
    if (!panels || kernel.group > 1 || packed_blocks(p.b)) return 1;
    if (blocks.tiles != 1 || blocks.tile_rows > kMaxStripRows) return 1;
    return larger(1, kernel.elements[element_index(panel_type)]->strips.panels[blocks.tile_rows]);
  }

  // A pass of such a product over panels that are full, the first of which holds the columns from j on.
  void strip(int64_t g, const T *a, int64_t j, int64_t x0, int64_t count, bool last, const char *b,
             int64_t panel_stride, T *acc) const {
    const int64_t rows = blocks.tile_rows, width = kernel.tile_columns;
    const Strips<T> &strips = kernel.elements[element_index(panel_type)]->strips;
    alignas(64) T buffer[kMaxStripRows * kMostStripColumns];
    T *out = acc;
    int64_t stride = width, panel = rows * width;
    if (last) {
      panel = width;
      stride = plain ? p.d_row_stride : strips.panels[rows] * width;
      out = plain ? static_cast<T *>(p.d) + g * p.d_batch_stride + j : buffer;
    }
    strips.kernel[rows](count, a, b, panel_stride, x0 ? acc : nullptr, width, rows * width, out, stride, panel);
    if (last && !plain) {
      epilogue(finish, out, stride, g, 0, j, rows, strips.panels[rows] * width, sums ? sums_of(g, 0) + j : nullptr);
    }
  }

  // Copies rows [i0, end_row) of a, tile by tile. Where they are adjacent, tiles share the cache lines of a column, and
  // far apart as columns are few of them stay in the innermost cache: some columns for all tiles, then the next.
  void pack_left(int64_t g, int64_t elements, int64_t x0, int64_t count, int64_t i0, int64_t end_row,
                 T *a_block) const {
    const bool adjacent = p.a.row_stride == 1 && kernel.group == 1 && !staged(p.a);
    const int64_t columns = adjacent ? kColumnsTogether : count;
    for (int64_t x = 0; x < count; x += columns) {
      const int64_t some = smaller(columns, count - x);
      for (int64_t i = i0; i < end_row; i += blocks.tile_rows) {
        const int rows = static_cast<int>(smaller(blocks.tile_rows, end_row - i));
        left.pack(g, elements, x0 + x, i, some, rows, rows, a_block + (i - i0) * count + x * rows, rows);
      }
    }
  }

  // Copies rows [x0, x0 + count) of the panels from the q-th on to where they lie `panel_stride` apart.
  void pack_right(int64_t g, int64_t elements, int64_t x0, int64_t count, int64_t q, int64_t together, T *to,
                  int64_t panel_stride) const {
    const int64_t width = kernel.tile_columns, lanes = width / 2, rows = together > 1 ? kRowsTogether : count;
    for (int64_t x = 0; x < count; x += rows) {
      for (int64_t t = 0; t < together; t++) {
        const int64_t j = (q + t) * width, columns = smaller(width, p.n - j);
        const int padded = static_cast<int>(columns > lanes || kernel.correct ? width : lanes);
        right.pack(g, elements, x0 + x, j, smaller(rows, count - x), static_cast<int>(columns), padded,
                   to + t * panel_stride + x * width, width);
      }
    }
  }

  T *sums_of(int64_t g, int64_t block) const { return sums + (g * blocks.blocks + block) * p.n; }

  void run(int64_t index) const {
    const int64_t chunk = first_chunk + index % chunks, block = index / chunks % blocks.blocks;
    const int64_t g = first_entry + index / chunks / blocks.blocks;
    const int64_t elements = g == p.batch - 1 ? last_k : k, depth_of_entry = values_of(elements, kernel.group);
    const int64_t first_tile = block * blocks.block_tiles,
                  tiles = smaller(blocks.block_tiles, blocks.tiles - first_tile);
    const int64_t first_panel = chunk * blocks.chunk_panels,
                  end_panel = smaller(first_panel + blocks.chunk_panels, blocks.panels);
    const int64_t width = kernel.tile_columns, lanes = width / 2;
    const int64_t i0 = first_tile * blocks.tile_rows, end_row = smaller(p.m, i0 + tiles * blocks.tile_rows);
    if (sums) {
      T *row = sums_of(g, block);
      for (int64_t j = first_panel * width; j < smaller(p.n, end_panel * width); j++) row[j] = 0;
    }

    Scratch scratch;
    T *a_block = scratch.at<T>(0);
    const int64_t a_values = round_up(tiles * blocks.tile_rows * blocks.depth + 64, 64);
    T *sliver = a_block + a_values;
    const int64_t sliver_values = blocks.depth * width;
    T *acc = sliver + (panels ? 1 : kPanelsTogether) * sliver_values;

    const char *a_data = offset(p.a.data, p.a.type, g * p.a.batch_stride);
    const char *b_data = offset(p.b.data, p.b.type, g * p.b.batch_stride);
    const int64_t b_size = static_cast<int64_t>(size_of(p.b.type)),
                  panel_size = static_cast<int64_t>(size_of(panel_type));
    // A panel is copied where several row tiles use it: its rows lie then side by side and in one cache. Copies fetch
    // ahead themselves; fetching a panel by its tiles as well was slower.
    const int b_element = element_index(p.b.type), panel_element = element_index(panel_type);
    const bool copy = !panels && (p.b.column_stride != 1 || tiles > 2 || b_element >= kTileElementTypes || !in_tiles);
    const int64_t group = copy && p.b.column_stride == 1 && !staged(p.b) ? kPanelsTogether : 1;
    int64_t x0 = 0;
    do {
      const int64_t count = smaller(blocks.depth, depth_of_entry - x0);
      const bool last = x0 + count == depth_of_entry;
      const T *a = a_block;
      if (a_in_place) {
        a = reinterpret_cast<const T *>(a_data) + i0 * p.a.row_stride + x0;
      } else {
        pack_left(g, elements, x0, count, i0, end_row, a_block);
      }
      const int64_t together = strip_panels();
      for (int64_t q = first_panel; q < end_panel; q++) {
        const int64_t j = q * width;
        T *tiles_of_panel = acc + (q - first_panel) * tiles * blocks.tile_rows * width;
        if (packed_blocks(p.b)) {
          block_panel(g, a, first_tile, tiles, q, x0, count, last, sliver, tiles_of_panel);
          continue;
        }
        if (panels) {
          const int64_t packed_row = (q - first_chunk * blocks.chunk_panels) * depth_of_entry + x0;
          const char *b = static_cast<const char *>(panels) + packed_row * width * panel_size;
          const int64_t row_bytes = width * panel_size;
          if (together > 1 && q + together <= end_panel && j + together * width <= p.n) {
            strip(g, a, j, x0, count, last, b, depth_of_entry * width, tiles_of_panel);
            q += together - 1;
            continue;
          }
          const bool more = tiles > 1 && q + 1 < end_panel;
          const char *next = more ? b + depth_of_entry * row_bytes : b + kRowsAhead * row_bytes;
          if (panel_element >= kTileElementTypes && !thin) {
            kernel.elements[panel_element]->pack(b, width, 1, count, static_cast<int>(width), static_cast<int>(width),
                                                 sliver, width);
            panel(g, a, first_tile, tiles, j, x0, count, last, sliver, width, 0, tiles_of_panel, next, row_bytes,
                  more || tiles == 1);
            continue;
          }
          panel(g, a, first_tile, tiles, j, x0, count, last, b, width, panel_element, tiles_of_panel, next, row_bytes,
                more || tiles == 1);
          continue;
        }
        const char *b = b_data + (x0 * kernel.group * p.b.row_stride + j * p.b.column_stride) * b_size;
        const int64_t columns = smaller(width, p.n - j);
        const bool fetch = !copy && p.b.column_stride == 1 && q + 1 < end_panel;
        if (copy || (!kernel.masks && columns != width && columns != lanes)) {
          const int64_t turn = (q - first_panel) % group;
          if (turn == 0) pack_right(g, elements, x0, count, q, smaller(group, end_panel - q), sliver, sliver_values);
          panel(g, a, first_tile, tiles, j, x0, count, last, sliver + turn * sliver_values, width, 0, tiles_of_panel,
                b + width * b_size, p.b.row_stride * b_size, fetch);
        } else {
          panel(g, a, first_tile, tiles, j, x0, count, last, b, p.b.row_stride, b_element, tiles_of_panel,
                b + width * b_size, p.b.row_stride * b_size, fetch);
        }
      }
      x0 += count;
    } while (x0 < depth_of_entry);
  }

  static void task(void *context, int64_t index) { static_cast<const Tiled *>(context)->run(index); }

  void run_all(int64_t first, int64_t entries) {
    first_entry = first;
    const int64_t tasks = entries * blocks.blocks * chunks;
    if (tasks == 1) return run(0);
    const int64_t n = smaller(p.n, chunks * blocks.chunk_panels * kernel.tile_columns);
    const double multiplications = static_cast<double>(p.m) * static_cast<double>(n) * static_cast<double>(entries * k);
    const double bytes =
        static_cast<double>(entries * p.m * n) * 8.0 + static_cast<double>(k) * static_cast<double>(p.m + n) * 4.0;
    parallel_for(tasks, useful_threads(multiplications, bytes), task, this);
  }
};

size_t packed_operand_bytes(const Problem &p) {
  return static_cast<size_t>(round_up(p.n, tile_columns_of(p)) * values_of(p.k, group_of(p))) *
         (p.compute == Type::f64 ? 8 : 4);
}

}  // namespace

size_t tiled_workspace(const Variant &variant, const Problem &p) {
  size_t bytes = sums_bytes(p, make_blocks(variant, p).blocks);
  if (variant.family == Family::blocked && !p.b.packed) bytes += packed_operand_bytes(p);
  return bytes;
}

// Panels of b that are packed at a time: they are read again from the outermost cache, not from memory.
constexpr int64_t kPackedBytes = 4 << 20;

// Packs b chunk after chunk into `to`, each before the batch entries [g, g + entries) that share it are multiplied.
template <class T>
void run_packed(Tiled<T> &tiled, int64_t g, int64_t entries, void *to) {
  const Problem &p = tiled.p;
  const Blocks &blocks = tiled.blocks;
  const int64_t columns = blocks.chunk_panels * tiled.kernel.tile_columns;
  int64_t together = larger(1, kPackedBytes / larger(1, columns * tiled.k * static_cast<int64_t>(sizeof(T))));
  // Threads that share too few tasks wait for one another.
  if (thread_count() > 1) together = larger(together, divide_up(kTasksOfThreads, blocks.blocks * entries));
  for (tiled.first_chunk = 0; tiled.first_chunk < blocks.chunks; tiled.first_chunk += together) {
    tiled.chunks = smaller(together, blocks.chunks - tiled.first_chunk);
    const int64_t j = tiled.first_chunk * columns;
    Matrix b = p.b;
    b.data = offset(b.data, b.type, g * b.batch_stride + j * b.column_stride);
    if (b.scale.kind == ScaleKind::block32) {
      b.scale.data = static_cast<const char *>(b.scale.data) + g * b.scale.batch_stride + j * (p.k / kBlockDepth);
    }
    pack_operand<T>(b, effective_k(p), smaller(p.n - j, tiled.chunks * columns), false, to);
    tiled.run_all(g, entries);
  }
}

template <class T>
void run_tiled(const Variant &variant, const Problem &p, void *workspace) {
  const int64_t k = effective_k(p);
  const double multiplications = static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.batch * k);
  Tiled<T> tiled(p, make_blocks(variant, p, threads_for(multiplications, 0)), k, k, p.k);
  char *free_space = static_cast<char *>(workspace);
  if (p.reduction == Reduction::result_columns) {
    tiled.sums = reinterpret_cast<T *>(free_space);
    free_space += sums_bytes(p, tiled.blocks.blocks);
  }
  if (p.b.packed) {
    tiled.take_panels(p.b.data, p.compute == Type::i32 ? Type::i32 : p.b.type);
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
