// SPDX-License-Identifier: MIT
// A product by register tiles: its tasks of blocks of rows and chunks of columns, their passes along k, and the panels
// of a pass. What the tiled families share.
#pragma once

#include <type_traits>

#include "blocking.hpp"
#include "blocks.hpp"
#include "drivers.hpp"
#include "epilogue_matrices.hpp"
#include "passes.hpp"

namespace rocpy_host::gemm {

template <class T>
struct Tiled {
  const Problem &p;
  const Kernels<T> &kernel = tile_kernels<T>(p);
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
  const bool plain;            // the sums are the result, once the bias is added: tiles are written to d
  const T *const column_bias;  // of such sums, or null
  bool a_in_place;
  bool thin;                                                // tiles of few rows read packed bytes themselves
  const bool in_tiles = !staged(p.b) && kernel.group == 1;  // tiles can read b where it is
  const int64_t copying_tiles = least_copying_tiles();
  int64_t lacking = 0;  // columns that the first panel has less than others

  // `whole_k` of the product that this is a part of.
  Tiled(const Problem &problem, const Blocks &block_sizes, int64_t depth_of_entry, int64_t depth_of_last,
        int64_t whole_k)
      : p(problem),
        blocks(block_sizes),
        k(depth_of_entry),
        last_k(depth_of_last),
        left(kernel, problem.a, true, whole_k),
        right(kernel, problem.b, false, whole_k),
        chunks(block_sizes.chunks),
        plain(is_plain_but_bias(p, arithmetic_type<T>) && !(p.has_bias && std::is_same_v<T, int32_t>)),
        column_bias(plain && p.has_bias ? static_cast<const T *>(p.bias) : nullptr) {
    thin = !kernel.least_magnitude && blocks.tiles == 1 && blocks.tile_rows <= max_thin_rows && p.b.packed &&
           (packed_blocks(p.b) || element_of_packed() >= tile_element_type_count);
    a_in_place = !thin && blocks.a_in_place;
  }

  // The element of panels that callers keep, and of those at hand.
  int element_of_packed() const {
    if (p.compute != Type::i32) return element_index(p.b.type);
    return kernel.elements[integer_bytes_index] ? integer_bytes_index : 0;
  }
  int panel_element() const { return panel_type == Type::i8 ? integer_bytes_index : element_index(panel_type); }

  // The first column of a panel, and how many it has.
  int64_t column_of(int64_t q) const { return larger(0, q * kernel.tile_columns - lacking); }
  int64_t columns_of(int64_t q) const { return smaller(column_of(q + 1), p.n) - column_of(q); }

  // The rows of a of a pass's t-th tile, which has so many.
  const T *left_rows(const Pass<T> &pass, int64_t t, int64_t rows) const {
    if (a_in_place) return pass.a + t * blocks.tile_rows * p.a.row_stride + pass.from;
    return pass.a + t * blocks.tile_rows * pass.held + pass.from * rows;
  }

  // A pass over one panel; acc holds the sums of its tiles between passes.
  void panel(const Pass<T> &pass, const PanelRows<T> &b, T *acc) const {
    const int64_t lanes = kernel.tile_columns / 2, width = b.columns, count = pass.count;
    const int vectors = b.element >= tile_element_type_count || width > lanes ? 2 : 1;
    alignas(64) T buffer[max_tile_rows * 64];
    alignas(64) T correction[64];
    if (kernel.correct) kernel.correct(count, static_cast<const T *>(b.data), b.stride, correction);
    // What the last vector holds of the columns. Tiles of bytes have two even where one would do.
    const int whole = static_cast<int>(lanes), rest = static_cast<int>(width - (vectors - 1) * lanes);
    const int part = kernel.masks && rest > 0 ? rest : whole;
    const bool to_d = pass.last && plain && part == rest && (!column_bias || b.element < tile_element_type_count);
    const T *bias = to_d && column_bias ? column_bias + pass.g * p.bias_batch_stride + b.j : nullptr;
    const bool fetches = b.fetch_next && (pass.tiles == 1 || count > unfetched_sum);
    const bool reads_matrices = pass.last && epilogue_matrices.count;
    const bool alike = !reads_matrices && !kernel.correct && b.element < tile_element_type_count &&
                       (blocks.panels > 2 || b.fetch_next);
    // The tile that copies fetches its own rows; the others share what follows.
    const int64_t copying = b.copy ? 1 : 0;
    int64_t shares = 1;
    while (!b.fetch_own && 2 * shares <= pass.tiles - copying && count >= shared_rows) shares *= 2;
    PanelRows<T> from = b;
    if (kernel.least_magnitude && may_lose(pass, least_right(pass, b))) from.element = one_by_one_index;
    for (int64_t t = 0; t < pass.tiles; t++) {
      if (alike && !from.copy) {
        const auto *kernels_of_rows = kernel.tile[from.element][vectors - 1][!a_in_place];
        const Alike tiles{t, fetches ? shares : 0, pass.last && !to_d ? buffer : nullptr, bias};
        return tiles_alike(pass, from, tiles, kernels_of_rows, acc, part);
      }
      const int64_t i = (pass.first_tile + t) * blocks.tile_rows, rows = smaller(blocks.tile_rows, p.m - i);
      const Region region{pass.g, i, b.j, rows, width};
      T *tile = acc + t * blocks.tile_rows * kernel.tile_columns;
      const T *in = pass.x0 ? tile : nullptr;
      int64_t stride = kernel.tile_columns, in_stride = stride;
      if (kernel.correct && !pass.x0) {
        in = correction;
        in_stride = 0;
      } else if (kernel.correct) {
        for (int64_t r = 0; r < rows; r++) {
          for (int64_t c = 0; c < stride; c++) tile[r * stride + c] = sum_of(tile[r * stride + c], correction[c]);
        }
      }
      if (to_d) {
        tile = static_cast<T *>(p.d) + pass.g * p.d_batch_stride + i * p.d_row_stride + b.j;
        stride = p.d_row_stride;
      } else if (pass.last) {
        tile = buffer;
      }
      const T *rows_of_a = left_rows(pass, t, rows);
      const Fetch fetch = from.copy ? fetch_copied(b) : fetch_of(pass, b, t - copying, shares, region, rows_of_a);
      if (pass.last) epilogue_matrices.fetch(fetch.matrix ? 1 : 0, region);
      const auto run_tile = from.copy ? kernel.copying[from.element][!a_in_place][rows]
                            : from.element < tile_element_type_count
                                ? kernel.tile[from.element][vectors - 1][!a_in_place][rows]
                                : thin_tile(from.element, rows);
      run_tile({count, rows_of_a, p.a.row_stride, from.data, from.stride, in, in_stride, tile, stride, fetch.from,
                fetch.step, fetch.pace, part, to_d ? part : whole, from.copy, bias});
      if (from.copy) {
        from.data = from.copy;
        from.stride = kernel.tile_columns;
        from.element = 0;
        from.copy = nullptr;
      }
      if (pass.last && !to_d) {
        epilogue(finish, tile, stride, region,
                 sums ? sums_of(pass.g, pass.first_tile / blocks.block_tiles) + b.j : nullptr);
      }
    }
  }

  // Whether pairs could meet a subnormal number, be it a sum that a former pass has left.
  bool may_lose(const Pass<T> &pass, int least_right) const {
    return *pass.small = *pass.small || !loses_nothing(pass.least_left, least_right);
  }
  int least_left(const Pass<T> &pass) const {
    if (size_of(p.a.type) == 1) return least_byte;
    const int64_t rows = smaller(pass.tiles * blocks.tile_rows, p.m - pass.first_tile * blocks.tile_rows);
    return kernel.least_magnitude(pass.a, 1, rows * pass.count, 0);
  }
  int least_right(const Pass<T> &pass, const PanelRows<T> &b) const {
    if (size_of(p.b.type) == 1 || joins_packed()) return least_packed(p);
    const int64_t lanes = kernel.tile_columns / 2, columns = b.columns > lanes ? 2 * lanes : lanes;
    return kernel.least_magnitude(static_cast<const T *>(b.data), pass.count, columns, b.stride);
  }

  // Tiles from `first` on, of which the first `shares` fetch a share of the next panel each. Where there is an
  // epilogue, their sums go to `buffer`.
  struct Alike {
    int64_t first, shares;
    T *buffer;
    const T *bias;
  };

  // The tiles of a panel that differ in nothing but where they are: what each needs besides its product counts.
  void tiles_alike(const Pass<T> &pass, const PanelRows<T> &b, const Alike &tiles,
                   const typename Kernels<T>::Tile *kernels_of_rows, T *acc, int part) const {
    const int64_t rows = blocks.tile_rows, width = kernel.tile_columns;
    const bool finishes = tiles.buffer, to_d = pass.last && !finishes;
    const char *none = static_cast<const char *>(b.data);
    Region region{pass.g, (pass.first_tile + tiles.first) * rows, b.j, rows, b.columns};
    T *column_sums = sums && finishes ? sums_of(pass.g, pass.first_tile / blocks.block_tiles) + b.j : nullptr;
    acc += tiles.first * rows * width;
    TileCall<T> call{pass.count,
                     nullptr,
                     p.a.row_stride,
                     none,
                     b.stride,
                     pass.x0 ? acc : nullptr,
                     width,
                     acc,
                     width,
                     none,
                     0,
                     0,
                     part,
                     static_cast<int>(width / 2)};
    if (to_d) {
      call.out = static_cast<T *>(p.d) + pass.g * p.d_batch_stride + region.i * p.d_row_stride + b.j;
      call.out_stride = p.d_row_stride;
      call.stored = part;
      call.bias = tiles.bias;
    } else if (finishes) {
      call.out = tiles.buffer;
    }
    const int64_t share_bytes = tiles.shares ? pass.count / tiles.shares * b.next_step : 0;
    const int64_t in_step = rows * width, out_step = finishes ? 0 : rows * call.out_stride;
    const int64_t a_step = rows * (a_in_place ? p.a.row_stride : pass.held);
    call.a = left_rows(pass, tiles.first, rows);
    for (int64_t t = tiles.first; t < pass.tiles; t++) {
      if (t + 1 == pass.tiles) {
        region.rows = smaller(rows, p.m - region.i);
        call.a = left_rows(pass, t, region.rows);
      }
      const int64_t share = t - tiles.first;
      const bool fetch = share < tiles.shares;
      call.prefetch = fetch ? b.next + share * share_bytes : none;
      call.prefetch_stride = fetch ? b.next_step : 0;
      call.prefetch_pace = fetch ? tiles.shares - 1 : 0;
      kernels_of_rows[region.rows](call);
      if (finishes) epilogue(finish, tiles.buffer, width, region, column_sums);
      call.a += a_step;
      if (call.in) call.in += in_step;
      call.out += out_step;
      region.i += rows;
    }
  }

  // What the tile that copies a panel fetches: its rows ahead.
  Fetch fetch_copied(const PanelRows<T> &b) const {
    const int64_t size = static_cast<int64_t>(size_of(p.b.type)), step = b.stride * size;
    const int64_t ahead = copied_rows_ahead * step + fetched_byte(kernel.tile_columns * size);
    return {static_cast<const char *>(b.data) + ahead, step, 0, false};
  }

  // The tiles of a panel fetch the next one together, in as many `shares`: one alone would wait for it. Where the
  // epilogue reads matrices, the first one fetches it and the others what the epilogue reads, a row now and then: all
  // at once it would hold up the tile's own loads.
  Fetch fetch_of(const Pass<T> &pass, const PanelRows<T> &b, int64_t t, int64_t shares, const Region &region,
                 const T *rows_of_a) const {
    const bool reads_matrices = pass.last && epilogue_matrices.count;
    if (b.fetch_next && (reads_matrices ? t == 0 : t < shares)) {
      if (reads_matrices) return {b.next, b.next_step, 0, false};
      return {b.next + t * (pass.count / shares) * b.next_step, b.next_step, shares - 1, false};
    }
    if (reads_matrices && pass.count >= region.rows && b.element < element_type_count) {
      int64_t pace = 0;
      while (2 * pace + 2 <= pass.count / region.rows) pace = 2 * pace + 1;
      return {epilogue_matrices.at(0, region), epilogue_matrices.matrices[0].row_bytes, pace, true};
    }
    // Of a narrow product the rows of the next block follow: as one stretch where they are adjacent, or else the
    // beginning of each.
    const int64_t block_rows = blocks.block_tiles * blocks.tile_rows;
    if (a_in_place && blocks.panels <= 2 && !b.fetch_next && region.i + block_rows < p.m) {
      const int64_t step = p.a.row_stride == pass.count ? 128 : p.a.row_stride * static_cast<int64_t>(sizeof(T));
      return {reinterpret_cast<const char *>(rows_of_a + block_rows * p.a.row_stride), step, 0, false};
    }
    return {static_cast<const char *>(b.data), 0, 0, false};
  }

  // Elements beyond those that have a table of their own are of panels packed with block scales.
  typename Kernels<T>::Tile thin_tile(int element, int64_t rows) const {
    if constexpr (std::is_same_v<T, float>) {
      if (element >= element_type_count) return kernel.blocks[element - element_type_count].thin[rows];
    }
    return kernel.elements[element]->thin[rows];
  }

  // A pass over one panel that was packed with its block scales.
  void block_panel(const Pass<T> &pass, int64_t q, T *sliver, T *acc) const {
    if constexpr (std::is_same_v<T, float>) {
      const int64_t width = kernel.tile_columns, bytes = bytes_of_block(p.b.type, width);
      const int index = block_index(p.b.type);
      const char *b = static_cast<const char *>(panels) + q * (p.k / block_depth) * bytes;
      if (!thin) {
        kernel.blocks[index].widen(b, pass.x0, pass.count, sliver);
        return panel(pass, {q * width, columns_of(q), sliver, width, 0, b, 0, false}, acc);
      }
      b += pass.x0 / block_depth * bytes;
      panel(pass, {q * width, columns_of(q), b, width, element_type_count + index, b, 0, false}, acc);
    }
  }

  void take_panels(const void *data, Type type) {
    panels = data;
    panel_type = type;
    if (strip_panels()) a_in_place = false;
  }

  // Panels that a product of few rows reads side by side; 0 where tiles read one after the other.
  int64_t strip_panels() const {
    if (!panels || packed_blocks(p.b) || (kernel.least_magnitude && (!joins_packed() || p.k % kernel.group))) return 0;
    return panels_of_strips(kernel.elements[panel_element()]->strips, blocks, p.m);
  }

  // A pass of such a product over panels that are full, the first of which holds the columns from j on.
  void strip(const Pass<T> &pass, int64_t j, const char *b, int64_t panel_stride, T *acc) const {
    const int64_t width = kernel.tile_columns, columns = strip_panels() * width,
                  acc_panel = pass.tiles * blocks.tile_rows * width;
    alignas(64) T buffer[max_strip_rows * most_strip_columns];
    T *out = acc;
    int64_t stride = width, panel = acc_panel;
    const bool to_d = plain && !column_bias;
    if (pass.last) {
      panel = width;
      stride = to_d ? p.d_row_stride : columns;
      out = to_d ? static_cast<T *>(p.d) + pass.g * p.d_batch_stride + j : buffer;
    }
    const bool from_memory = p.k * p.n * static_cast<int64_t>(size_of(p.b.type)) > cached_operand_bytes;
    run_strips<T>(kernel.elements[panel_element()]->strips, blocks, p.m, pass,
                  {pass.count, pass.a, b, panel_stride, pass.x0 ? acc : nullptr, width, acc_panel, out, stride, panel,
                   from_memory, kernel.least_magnitude && may_lose(pass, least_packed(p))});
    if (pass.last && !to_d) {
      epilogue(finish, out, stride, {pass.g, 0, j, p.m, columns}, sums ? sums_of(pass.g, 0) + j : nullptr);
    }
  }

  // Copies a's rows of a pass, tile by tile. Where they are adjacent, tiles share the cache lines of a column, and far
  // apart as columns are few of them stay in the innermost cache: some columns for all tiles, then the next.
  void pack_left(const Pass<T> &pass, T *a_block) const {
    const int64_t i0 = pass.first_tile * blocks.tile_rows, end_row = smaller(p.m, i0 + pass.tiles * blocks.tile_rows);
    const bool adjacent = p.a.row_stride == 1 && p.compute != Type::i32 && !staged(p.a);
    const int64_t columns = adjacent ? columns_together : pass.count;
    for (int64_t x = 0; x < pass.count; x += columns) {
      const int64_t some = smaller(columns, pass.count - x);
      for (int64_t i = i0; i < end_row; i += blocks.tile_rows) {
        const int rows = static_cast<int>(smaller(blocks.tile_rows, end_row - i));
        left.pack({pass.g, pass.elements, pass.x0 + x, i, some, rows}, rows, a_block + (i - i0) * pass.count + x * rows,
                  rows);
      }
    }
  }

  // Copies a pass's rows of `together` panels from the q-th on to where they lie `panel_stride` apart.
  void pack_right(const Pass<T> &pass, int64_t q, int64_t together, T *to, int64_t panel_stride) const {
    const int64_t width = kernel.tile_columns, lanes = width / 2,
                  rows = together > 1 ? rows_together / kernel.group : pass.count;
    for (int64_t x = 0; x < pass.count; x += rows) {
      for (int64_t t = 0; t < together; t++) {
        const int64_t j = column_of(q + t), columns = columns_of(q + t);
        const int padded = static_cast<int>(columns > lanes || kernel.correct ? width : lanes);
        right.pack({pass.g, pass.elements, pass.x0 + x, j, smaller(rows, pass.count - x), static_cast<int>(columns)},
                   padded, to + t * panel_stride + x * width, width);
      }
    }
  }

  T *sums_of(int64_t g, int64_t block) const { return sums + (g * blocks.blocks + block) * p.n; }

  // Whether the first tile of a panel can copy it for the others.
  bool tiles_copy(const Pass<T> &pass, int element) const {
    return pass.tiles >= copying_tiles && pass.count > unfetched_sum && element < tile_element_type_count &&
           kernel.copying[element][0][blocks.tile_rows];
  }

  int64_t packed_value_bytes() const {
    return panel_type == Type::i8 ? kernel.group : static_cast<int64_t>(size_of(panel_type));
  }

  // Whether pairs are made of rows that the caller packed.
  bool joins_packed() const { return kernel.least_magnitude && p.b.packed; }

  // How many rows a packed panel has.
  int64_t rows_of_packed(const Pass<T> &pass) const {
    return joins_packed() ? pass.elements : values_of(pass.elements, kernel.group);
  }

  // Where a pass's rows of the q-th panel are.
  const char *packed_rows(const Pass<T> &pass, int64_t q) const {
    const int64_t x0 = joins_packed() ? pass.x0 * kernel.group : pass.x0;
    const int64_t row = (q - first_chunk * blocks.chunk_panels) * rows_of_packed(pass) + x0;
    return static_cast<const char *>(panels) + row * kernel.tile_columns * packed_value_bytes();
  }

  // A pass over panels of b that were packed, from the q-th on; returns how many.
  int64_t packed_panels(const Pass<T> &pass, const Panels<T> &task, int64_t q, T *acc) const {
    const int64_t width = kernel.tile_columns;
    const int64_t together = strip_panels();
    if (together && q + together <= task.end && (q + together) * width <= p.n) {
      strip(pass, q * width, packed_rows(pass, q), rows_of_packed(pass) * width, acc);
      return together;
    }
    // Once where there is no k: the epilogue still has its part.
    Pass<T> part = pass;
    do {
      part.count = smaller(blocks.panel_depth, pass.held - part.from);
      part.x0 = pass.x0 + part.from;
      part.last = pass.last && part.from + part.count == pass.held;
      packed_panel(part, task, q, acc);
      part.from += part.count;
    } while (part.from < pass.held);
    return 1;
  }

  void packed_panel(const Pass<T> &pass, const Panels<T> &task, int64_t q, T *acc) const {
    const int64_t width = kernel.tile_columns, j = q * width, depth = values_of(pass.elements, kernel.group);
    const int64_t value_bytes = packed_value_bytes() * (joins_packed() ? kernel.group : 1),
                  row_bytes = width * value_bytes;
    const char *b = packed_rows(pass, q);
    const bool own = pass.tiles == 1 || (pass.tiles <= own_fetching_tiles && kernel.group == 1 && value_bytes > 1);
    const char *next = b + (own ? packed_bytes_ahead : depth * row_bytes);
    PanelRows<T> rows{j, columns_of(q), b, width, panel_element(), next, row_bytes, own || q + 1 < task.end, own};
    if (joins_packed() || (rows.element >= tile_element_type_count && !thin)) {
      const int columns = static_cast<int>(width);
      const int64_t elements = smaller(pass.count * kernel.group, pass.elements - pass.x0 * kernel.group);
      kernel.elements[rows.element]->pack(b, width, 1, elements, columns, columns, task.copies, width);
      rows.data = task.copies;
      rows.element = 0;
    } else if (rows.element != 0 && j + width <= p.n && tiles_copy(pass, rows.element)) {
      rows.copy = task.copies;  // widened once
    }
    panel(pass, rows, acc);
  }

  // A pass over a panel of b as it is. It is copied where several row tiles use it: its rows lie then side by side and
  // in one cache. The first tile copies it where it can, and the others fetch the next one; copies that go first fetch
  // ahead themselves, and fetching a panel by its tiles as well was slower.
  void unpacked_panel(const Pass<T> &pass, const Panels<T> &task, int64_t q, T *acc) const {
    const int64_t width = kernel.tile_columns, lanes = width / 2, j = column_of(q), columns = columns_of(q);
    const int64_t size = static_cast<int64_t>(size_of(p.b.type)), row_bytes = p.b.row_stride * size;
    const int element = element_index(p.b.type);
    const bool adjacent = p.b.column_stride == 1;
    const bool copy = !adjacent || pass.tiles > 2 || element >= tile_element_type_count || !in_tiles;
    const char *b = offset(p.b.data, p.b.type, pass.g * p.b.batch_stride) +
                    (pass.x0 * kernel.group * p.b.row_stride + j * p.b.column_stride) * size;
    const char *next = b + columns * size + fetched_byte(width * size);
    PanelRows<T> rows{j, columns, b, p.b.row_stride, element, next, row_bytes, !copy && adjacent && q + 1 < task.end};
    const bool first_copies = copy && adjacent && in_tiles && tiles_copy(pass, element);
    if (first_copies && columns == width) {
      rows.copy = task.copies;
      rows.fetch_next = q + 1 < task.end;
    } else if (copy || (!kernel.masks && columns != width && columns != lanes)) {
      const int64_t group = copy && adjacent && !staged(p.b) && !first_copies ? panels_together : 1;
      const int64_t turn = (q - task.first) % group;
      if (turn == 0) pack_right(pass, q, smaller(group, task.end - q), task.copies, task.copy_values);
      rows.data = task.copies + turn * task.copy_values;
      rows.stride = width;
      rows.element = 0;
    }
    panel(pass, rows, acc);
  }

  void run(int64_t index) const {
    const int64_t chunk = first_chunk + index % chunks, block = index / chunks % blocks.blocks;
    bool small = false;
    Pass<T> pass{};
    pass.small = &small;
    pass.g = first_entry + index / chunks / blocks.blocks;
    pass.elements = pass.g == p.batch - 1 ? last_k : k;
    pass.first_tile = block * blocks.block_tiles;
    pass.tiles = smaller(blocks.block_tiles, blocks.tiles - pass.first_tile);
    const int64_t depth = values_of(pass.elements, kernel.group), width = kernel.tile_columns;
    const int64_t tile_values = pass.tiles * blocks.tile_rows * width;

    Scratch scratch;
    T *a_block = scratch.at<T>(0);
    Panels<T> task{};
    task.first = chunk * blocks.chunk_panels;
    task.end = smaller(task.first + blocks.chunk_panels, blocks.panels);
    task.copies = a_block + round_up(pass.tiles * blocks.tile_rows * blocks.depth + 64, 64);
    task.copy_values = blocks.copied_depth * width;
    task.acc = task.copies + (panels ? 1 : panels_together) * task.copy_values;
    if (sums) {
      T *row = sums_of(pass.g, block);
      for (int64_t j = column_of(task.first); j < smaller(p.n, column_of(task.end)); j++) row[j] = 0;
    }
    const T *rows_of_a = nullptr;
    if (a_in_place) {
      const int64_t at = pass.g * p.a.batch_stride + pass.first_tile * blocks.tile_rows * p.a.row_stride;
      rows_of_a = static_cast<const T *>(p.a.data) + at;
    }
    do {
      pass.count = pass.held = smaller(blocks.depth, depth - pass.x0);
      pass.last = pass.x0 + pass.count == depth;
      pass.a = a_in_place ? rows_of_a + pass.x0 : a_block;
      if (!a_in_place) pack_left(pass, a_block);
      if (kernel.least_magnitude) pass.least_left = least_left(pass);
      for (int64_t q = task.first; q < task.end;) {
        T *acc = task.acc + (q - task.first) * tile_values;
        if (packed_blocks(p.b)) {
          block_panel(pass, q++, task.copies, acc);
        } else if (panels) {
          q += packed_panels(pass, task, q, acc);
        } else {
          unpacked_panel(pass, task, q++, acc);
        }
      }
      pass.x0 += pass.count;
    } while (pass.x0 < depth);
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

}  // namespace rocpy_host::gemm
