// SPDX-License-Identifier: MIT
// What the loops of the tiled families hand down: a pass along k, a panel of it, and panels that few rows read side by
// side.
#pragma once

#include <cstdint>

#include "drivers.hpp"

namespace rocpy_host::gemm {

// One pass of a task: `count` values of k from the x0-th on, of the rows of some tiles, which `a` holds as these read
// them.
template <class T>
struct Pass {
  int64_t g, elements;        // the batch entry, and its elements along k
  int64_t first_tile, tiles;  // of rows
  int64_t x0, count;
  int64_t from, held;  // where these values begin among those that `a` holds, and how many it does
  bool last;           // then the sums are complete
  const T *a;
  int least_left;  // of pairs, the least magnitude that `a` holds
  bool *small;     // whether sums of the task, those of former passes too, may be subnormal
};

// The rows of b that a pass multiplies, of one panel: its first column and how many it has, and where the tiles find
// them. What follows is fetched meanwhile, a row at a time.
template <class T>
struct PanelRows {
  int64_t j, columns;
  const void *data;
  int64_t stride;
  int element;
  const char *next;
  int64_t next_step;
  bool fetch_next;
  bool fetch_own = false;  // what the first tile fetches are these rows, ahead of itself
  T *copy = nullptr;       // where the first tile copies the rows to for the others
};

// How far ahead a tile fetches its own packed panel, in bytes: memory takes long, and the second cache holds much.
constexpr int64_t packed_bytes_ahead = 16 << 10;

// So few tiles multiply a packed panel faster than they could fetch the next one from memory: the first one waits for
// memory whatever is fetched, and gets most of it ahead of itself in its own.
constexpr int64_t own_fetching_tiles = 3;

// Operands of b beyond this size come from memory.
constexpr int64_t cached_operand_bytes = 8 << 20;

// Bytes of each packed panel with which few rows take turns.
constexpr int64_t turn_bytes = 8 << 10;

// A panel of fewer rows is fetched by its first tile alone.
constexpr int64_t shared_rows = 64;

// How many rows ahead the tile that copies a panel fetches it.
constexpr int64_t copied_rows_ahead = 32;

// Sums so short that a panel is not worth fetching, or copying by its first tile.
constexpr int64_t unfetched_sum = 32;

constexpr int64_t line_bytes = 64;

// Where a row of a panel begins within a cache line, the panel to the left has fetched that line. It is the line of the
// row's last byte that is fetched, or of the last one of its first `line_bytes`: arrays of numpy begin 16 bytes after a
// line.
constexpr int64_t fetched_byte(int64_t row_bytes) { return (row_bytes < line_bytes ? row_bytes : line_bytes) - 1; }

// What a tile fetches while it multiplies, as TileCall says. `matrix`: the first of those that the epilogue reads.
struct Fetch {
  const char *from;
  int64_t step, pace;
  bool matrix;
};

// Panels [first, end) of a task, and the thread's memory: for the panels that are copied, and for the sums between
// passes.
template <class T>
struct Panels {
  int64_t first, end;
  T *copies;
  int64_t copy_values;
  T *acc;
};

// Packed panels that so few rows read side by side; 0 where their tiles read one after the other.
template <class T>
int64_t panels_of_strips(const Strips<T> &strips, const Blocks &blocks, int64_t rows) {
  if (strips.takes_turns(rows, blocks.tile_rows)) return strips.panels[strips.turn_rows];
  return blocks.tiles == 1 && blocks.tile_rows <= max_strip_rows ? strips.panels[blocks.tile_rows] : 0;
}

// A pass of so few rows over such panels. Where the rows take turns, each uses some steps, which stay in the innermost
// cache for the others, and fetches an equal share of what follows.
template <class T>
void run_strips(const Strips<T> &strips, const Blocks &blocks, int64_t rows, const Pass<T> &pass,
                const StripCall<T> &whole) {
  if (!strips.takes_turns(rows, blocks.tile_rows)) return strips.kernel[rows](whole);
  // Sums of former passes are as wide as a panel.
  const int64_t row_bytes = whole.in_stride * static_cast<int64_t>(sizeof(T)), steps = turn_bytes / row_bytes;
  StripCall<T> call = whole;
  call.fetch_step = divide_up(row_bytes, divide_up(rows, strips.turn_rows));
  for (int64_t x = 0; x == 0 || x < pass.count; x += steps) {
    call.k = smaller(steps, pass.count - x);
    call.b = static_cast<const char *>(whole.b) + x * row_bytes;
    call.fetch_ahead = turn_bytes;
    for (int64_t i = 0; i < rows; i += strips.turn_rows) {
      const int64_t first = i / blocks.tile_rows * blocks.tile_rows;
      call.a_step = smaller(blocks.tile_rows, rows - first);
      call.a = pass.a + first * pass.held + x * call.a_step + i - first;
      call.out = whole.out + i * whole.out_stride;
      call.in = x ? call.out : whole.in ? whole.in + i * whole.in_stride : nullptr;
      strips.turn[smaller(strips.turn_rows, rows - i)](call);
      call.fetch_ahead += steps * call.fetch_step;
    }
    call.in_stride = whole.out_stride;
    call.in_panel = whole.out_panel;
  }
}

}  // namespace rocpy_host::gemm
