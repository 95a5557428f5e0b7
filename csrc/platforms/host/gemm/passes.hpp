// SPDX-License-Identifier: MIT
// What the loops of the tiled families hand down: a pass along k, and a panel of it.
#pragma once

#include <cstdint>

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

}  // namespace rocpy_host::gemm
