// SPDX-License-Identifier: MIT
// Block sizes, and the cost model behind rank(): cycles of a nominal core with two fused units, two loads a cycle and
// some bytes of memory a cycle. It counts what differs between algorithms (copies, passes, waits for memory) and looks
// at nothing but shapes, strides, types and the kind of processor.
#include "blocking.hpp"

#include <cmath>

#include "blocks.hpp"
#include "passes.hpp"

namespace rocpy_host::gemm {
namespace {

constexpr double memory_bytes = 7.0;            // a cycle, from memory, waited for
constexpr double fetched_bytes = 26.0;          // a cycle, fetched ahead of the arithmetic that needs it
constexpr double working_set_bytes = 36 << 20;  // operands and result of this size are not all in the outermost cache
constexpr double written_bytes = 10.0;          // a cycle, of panels
constexpr double cache_bytes = 1 << 19;         // an operand up to this size is taken to be in a cache
constexpr double outermost_bytes = 7 << 20;     // up to here an operand is read again from the outermost cache
constexpr double outer_reads = 0.004;           // cycles a byte of a panel that is read again from the second cache
constexpr double conflict_cycles = 0.12;        // cycles a byte of a result that is pushed out while it is written
constexpr double filling_copy = 0.07;           // cycles a byte of b whose copy fills the innermost cache
constexpr int64_t few_tiles = 8;
// That of packed products and few_lines_cycles were measured on a Xeon only.
constexpr double entry_cycles = 250, packed_entry_cycles = 370;  // around a product of the tiled families
constexpr double skinny_entry_cycles = 170;                      // around a product of the skinny family
constexpr double converted_row_cycles = 20;                      // of a tile's row whose sums are not yet the result
constexpr double panel_cycles = 80;                              // around the tiles of a panel that is not packed
constexpr double usual_chain = 4;                                // from one sum to the next
constexpr double few_lines_cycles = 50;                          // around the sums of lines that are read side by side
constexpr double cached_bytes = 32 << 20;  // of an operand up to this size columns come from a cache
constexpr double fitting_depth = 192;      // a panel of so many rows fits the innermost cache beside its copy
constexpr int usual_columns = 1024, usual_depth = 512;  // of a block; of double half the columns

// What kinds of processors differ in.
struct Costs {
  double fetched_copies;           // a cycle, fetched by tiles that copy
  double copied_again;             // a cycle, copied by tiles of a further block of rows from the outermost cache
  double memory_row, cached_row;   // cycles until the next row of a panel arrives, from memory and from a cache
  double low_tile_reads;           // as outer_reads, beside tiles of few rows
  double filling_copy_of_many;     // as filling_copy, beside more than few_tiles
  double filling_copy_of_further;  // as filling_copy, for each block of rows after the first
  double deep_panel;               // cycles a byte of a panel that is deeper than fitting_depth
  double deep_panel_reads;         // the same for each tile that reads such a panel's copy
  double around_low_tile;          // cycles around the passes of a tile of few rows
  double small_bytes;              // b of a small product up to this size is read again at no cost
  double cached_rows_bytes;        // of an operand up to this size rows come from a cache
  double hides_halves;             // share of the arithmetic beside which 16-bit elements arrive from memory in place
  int64_t in_place_columns;        // beside no more columns of b, high tiles read rows of a faster than they are copied
  double wide_blocks;              // a factor of the time that blocks of more than the usual size are reckoned to take
  double few_rows;                 // the same of small products of few rows
};

// Fitted on EPYCs of the fourth generation, but for the last two, which were not measured on EPYCs.
constexpr Costs usual_costs = {fetched_bytes, 40,           34, 0, 0.003, 0.07, 0.07, 0, 0, 20,
                               32 << 10,      cached_bytes, 1,  0, 1.1,   1.1};
// Where the second cache is small: fitted on EPYCs of the third generation, which have 512 KiB of it.
constexpr Costs small_cache_costs = {fetched_bytes,   12, 34, 0,   0.006, 0.07, 0.07, 0, 0.003, 20, 120 << 10,
                                     outermost_bytes, 0,  0,  1.1, 1.1};
// Where far rows wait; fitted on one Xeon of 48 KiB of first cache, 2 MiB of second and slow outer ones, with AVX2 and
// AVX-512.
constexpr Costs far_costs = {7, 40, 75, 38, 0.006, 0, 0, 0.2, 0, 0, 48 << 10, cached_bytes, 1, 512, 0.98, 1};
constexpr double short_sum = 32, cycles_per_microsecond = 4000;
constexpr int64_t few_rows = 32;

// What stays in a cache while tiles read it again: a block of rows beside a panel of b in the innermost one, where a
// tile has many rows; a whole operand in the next one, where it has few.
constexpr int64_t near_bytes = 16 << 10, outer_bytes = 256 << 10;

const Costs &costs() {
  if (far_rows_wait()) return far_costs;
  return second_cache_is_small() ? small_cache_costs : usual_costs;
}

double memory_cycles(double bytes, double rate) { return bytes <= cache_bytes ? bytes / 32 : bytes / rate; }

// One step of k in a register tile: the fused units, the loads, and the chain of each sum set the pace, unless several
// tiles are made side by side.
double step_cycles(double rows, double vectors, double chain = usual_chain) {
  const double fused = rows * vectors / 2, loads = (rows + vectors) / 2 + 1;
  const double most = fused > loads ? fused : loads;
  return most > chain ? most : chain;
}

// Sums of several packed panels at once hide each other's chains; those of wide vectors were measured to take as long
// as one after the other.
double chain_cycles(const Problem &p, const Blocks &b) {
  const bool strips = p.b.packed && low_tiles(p) && b.tiles == 1 && b.tile_rows <= max_strip_rows;
  return strips ? 0 : usual_chain;
}

double size(Type type) { return static_cast<double>(bits_of(type)) / 8; }

// Vector steps of copying a vector's worth of an operand into a panel: with columns adjacent, with k adjacent
// (transposed in registers), or with neither (one by one).
double copy_cycles(const Matrix &m, bool across, bool along, bool pairs) {
  if (staged(m)) return 12;
  if (!across && !along) return 60;
  if (m.type == Type::i8) return 5;
  if (pairs) return size(m.type) < 2 ? (across ? 14 : 16) : across ? 10 : 6;
  // Bytes are widened. Where vectors are wide, copying them with k adjacent was measured to cost four times as much.
  const double widen = size(m.type) >= 2 ? 0 : across || kernels<float>().tile_columns < 32 ? 3 : 12;
  return widen + (across ? 1.5 : 4);
}

// How much deeper a panel is than what fits, at most 1.
double over_depth(const Blocks &b) {
  return std::fmax(0, std::fmin(1, static_cast<double>(b.depth) / fitting_depth - 1));
}

// A panel and its copy, or two tiles' rows of a, push each other out of the innermost cache.
double deep_cycles(const Blocks &b, double b_bytes) { return costs().deep_panel * b_bytes * over_depth(b); }

// The first tile of each panel copies it beside its arithmetic, of so many `cycles`, and fetches ahead.
double copying_cycles(const Problem &p, const Blocks &b, double k, double b_bytes, double cycles) {
  const double m = static_cast<double>(p.m), n = static_cast<double>(p.n), panels = static_cast<double>(b.panels);
  const double all = b_bytes + m * k * size(p.a.type) + m * n * size(p.d_type);
  const Costs &cost = costs();
  const double further = static_cast<double>(b.blocks - 1);
  double sum = memory_cycles(b_bytes, cost.fetched_copies) +
               further * memory_cycles(b_bytes, all > working_set_bytes ? memory_bytes : cost.copied_again);
  if (b_bytes > cache_bytes) {
    const double row_wait =
        k * panels * (b_bytes > cost.cached_rows_bytes ? cost.memory_row : cost.cached_row) - cycles;
    sum += (row_wait > 0 ? row_wait : 0) + deep_cycles(b, b_bytes);
    sum += cost.deep_panel_reads * static_cast<double>(b.tiles) * b_bytes * over_depth(b);
  }
  // A copy that fills the innermost cache is read again from the next one.
  const bool fills = b.depth * tile_columns_of(p) * static_cast<int64_t>(size_of(p.compute)) > 3 * near_bytes / 2;
  if (low_tiles(p) && fills) {
    sum += b_bytes *
           ((b.tiles <= few_tiles ? filling_copy : cost.filling_copy_of_many) + further * cost.filling_copy_of_further);
  }
  return sum;
}

// Whether b is of 16-bit elements that come from memory where tiles read it in place.
bool far_halves(const Problem &p, double b_bytes) {
  return size(p.b.type) == 2 && b_bytes >= costs().cached_rows_bytes;
}

// Bytes of b that arrive in a cycle where tiles read it in place. Thin ones have no time to fetch ahead, unless their
// vectors take two cycles each, or b comes from a cache that is near.
double in_place_rate(const Problem &p, const Blocks &b, double b_bytes) {
  const bool far = b_bytes >= costs().cached_rows_bytes;
  // Of 16 bits two panels share each line.
  if (far_halves(p, b_bytes)) return (b.tiles == 1 ? 0.65 : 0.5) * memory_bytes;
  if (vectors_take_two_cycles() && b.blocks == 1) return far || size(p.b.type) == 2 ? 7.6 : 8.5;
  if (!far_rows_wait() && b.tiles == 1 && !far) return p.compute == Type::f64 ? 8.4 : 7.6;
  return 0.5 * memory_bytes;
}

// What it takes to make values of so many vectors of a packed operand.
double widening_cycles(const Problem &p, const Blocks &b, double vectors) {
  const double blocks = static_cast<double>(b.blocks), tiles = static_cast<double>(b.tiles);
  if (p.compute != Type::f32 || size(p.b.type) > 2) return 0;
  // Rows of pairs are joined for every block of rows.
  if (multiplies_pairs(p)) return vectors * blocks * 8;
  // Halves are widened by every tile, or by the first one of a block for the others, bytes for every block.
  if (size(p.b.type) == 2) return vectors * (b.block_tiles < least_copying_tiles() ? tiles : blocks);
  return vectors * blocks * (p.m > max_thin_rows ? 5 : 3);
}

// Cycles of copying a value of a, beside those of a tile's column where rows are adjacent. Bytes are joined to groups,
// one by one where the set has no instruction for four of them; narrow floats are widened, without masks one by one.
double left_value_cycles(const Problem &p, double group, bool rows_adjacent) {
  const bool masks = kernels<float>().masks;
  const double bytes = size(p.a.type);
  if (p.compute == Type::i32) return group == 4 ? 0.9 : rows_adjacent ? 13 : 2.4;
  if (multiplies_pairs(p)) return bytes < 2 ? 2.4 : 1.5;
  if (bytes >= 4) return rows_adjacent ? 0 : 0.35;
  if (rows_adjacent) return masks ? 0.2 : bytes < 2 ? 7 : 4;
  return masks && p.a.type == Type::f16 ? 0.95 : 0.6;
}

// Copying a: a few elements at a time for every tile where rows are adjacent, else a vector's worth of each row.
double left_copy_cycles(const Problem &p, const Blocks &b, double k, double group) {
  if (b.a_in_place) return 0;
  const bool rows_adjacent = p.a.row_stride == 1 && (p.a.column_stride != 1 || p.k == 1);
  const double lanes = static_cast<double>(tile_columns_of(p)) / 2, m = static_cast<double>(p.m);
  const double each = m * left_value_cycles(p, group, rows_adjacent), chunks = static_cast<double>(b.chunks);
  if (rows_adjacent) return chunks * k * (8 * static_cast<double>(b.tiles) + each);
  // Without masks the rest of a row of bytes that are joined goes by memory.
  const bool rest = p.compute == Type::i32 && !kernels<float>().masks && std::fmod(k, lanes) != 0;
  return chunks * ((size(p.a.type) < 4 ? std::ceil(k / lanes) * lanes : k) * each + (rest ? 25 * m : 0));
}

// Packed panels of elements of `type` that few rows read side by side. A task of as many, or a multiple of it, leaves
// none to be read by itself, which takes longer.
template <class T>
int64_t panels_side_by_side_of(const Problem &p, const Blocks &b, Type type) {
  const int element = type == Type::i8 ? integer_bytes_index : element_index(type);
  const Elements<T> *elements = tile_kernels<T>(p).elements[element];
  return elements ? larger(1, panels_of_strips(elements->strips, b, p.m)) : 1;
}

int64_t panels_side_by_side(const Problem &p, const Blocks &b, Type type) {
  if (p.compute == Type::f64) return panels_side_by_side_of<double>(p, b, type);
  if (p.compute == Type::i32) return panels_side_by_side_of<int32_t>(p, b, type);
  return panels_side_by_side_of<float>(p, b, type);
}

// Whether so few rows read several of the panels at once that the blocked family packs.
bool packs_strips(const Variant &variant, const Problem &p, const Blocks &b) {
  return variant.family == Family::blocked && !multiplies_pairs(p) && panels_side_by_side(p, b, p.compute) > 1;
}

// Between sums and results, where they differ. Integers are corrected, and without masks a part of a vector is stored
// by itself.
double finishing_cycles(const Problem &p, double panels) {
  const bool masks = kernels<float>().masks, integers = p.compute == Type::i32, plain = is_plain_but_bias(p, p.compute);
  const int64_t lanes = tile_columns_of(p) / 2;
  const bool part = !masks && p.n % lanes != 0 && (plain || size(p.d_type) < 4);
  const double finished = (plain && !integers ? 0 : panels) + (part ? 1 : 0);
  const double corrected = (p.n > lanes ? 2 : 1) * (p.d_type == Type::i32 ? 14 : 19);
  return static_cast<double>(p.m) * finished * (integers && masks ? corrected : converted_row_cycles);
}

// Around blocks and panels, and after the sums.
double around_cycles(const Variant &variant, const Problem &p, const Blocks &b, double passes) {
  const double blocks = static_cast<double>(b.blocks), panels = static_cast<double>(b.panels);
  const double around = p.b.packed || packs_strips(variant, p, b) ? 0 : panel_cycles * panels * blocks * passes;
  return around + finishing_cycles(p, panels) + 60 * blocks * static_cast<double>(b.chunks);
}

double tiled_cycles(const Variant &variant, const Problem &p, const Blocks &b, double k, double batch) {
  const double width = p.compute == Type::f64 ? kernels<double>().tile_columns : kernels<float>().tile_columns;
  // From here on k is of values: groups of integers, of which a rest is one too.
  const double group = group_of(p);
  k = std::ceil(k / group);
  const double m = static_cast<double>(p.m), n = static_cast<double>(p.n), panels = static_cast<double>(b.panels);
  const double blocks = static_cast<double>(b.blocks), tiles = static_cast<double>(b.tiles),
               rows = static_cast<double>(b.tile_rows);
  const double passes = k > 0 ? static_cast<double>(divide_up(static_cast<int64_t>(k), b.depth)) : 1;
  const bool narrow =
      p.n % static_cast<int64_t>(width) != 0 && 2 * (p.n % static_cast<int64_t>(width)) <= static_cast<int64_t>(width);
  const double full = narrow ? panels - 1 : panels;
  const double chain = chain_cycles(p, b);
  double cycles = tiles * k * (full * step_cycles(rows, 2, chain) + (narrow ? step_cycles(rows, 1, chain) : 0));
  // A pass over a panel that does not stay in the innermost cache waits for the next one now and then.
  const double panel_bytes = static_cast<double>(b.panel_depth) * width * size(p.compute);
  if (panel_bytes > (low_tiles(p) ? 2 * near_bytes : near_bytes)) {
    cycles += tiles * k * panels * width * size(p.compute) * outer_reads;
  }
  // Of short sums little else is done than to write them: rows of the result that fall on the same sets push each other
  // out before their next columns are written, if a block has many.
  const bool conflict = p.d_row_stride * static_cast<int64_t>(size_of(p.d_type)) % set_bytes == 0;
  if (conflict && k <= short_sum && b.block_tiles * b.tile_rows > few_rows) {
    cycles += m * n * size(p.d_type) * conflict_cycles;
  }
  // Leaving and entering a tile; with several passes also reading and writing its sums. Of low tiles it was measured to
  // be less, on EPYCs of the fourth generation.
  const bool low = low_tiles(p) && !far_rows_wait();
  const double entry = low ? 14 + 2 * rows : 30 + 3 * rows, between = low ? 2 * rows : 4 * rows;
  cycles += tiles * panels * (passes * entry + (passes - 1) * between + (low ? costs().around_low_tile : 0));
  cycles += left_copy_cycles(p, b, k, group) + around_cycles(variant, p, b, passes);
  // Arithmetic hides the reading of a, unless there is too little of it.
  const double a_wait = memory_cycles(m * k * group * size(p.a.type), 0.5 * memory_bytes) - cycles;
  if (a_wait > 0) cycles += a_wait;
  const double b_bytes = k * group * n * size(p.b.type), vectors = k * panels * 2;
  const bool across = p.b.column_stride == 1, along = p.b.row_stride == 1, pairs = multiplies_pairs(p);
  // Whether tiles read b in place; narrower types are always copied.
  const bool readable = group == 1 && !staged(p.b) && element_index(p.b.type) < tile_element_type_count;
  const double copy = vectors * copy_cycles(p.b, across, along, pairs);
  // Every block of rows finds the correction of its panels.
  if (p.compute == Type::i32) cycles += vectors * blocks;
  double extra;
  if (p.b.packed) {
    cycles += widening_cycles(p, b, vectors);
    // Reading is hidden behind the arithmetic, unless there is too little of it.
    const double wait = memory_cycles(b_bytes, memory_bytes) - 0.7 * cycles;
    extra = wait > 0 ? wait : 0.02 * memory_cycles(b_bytes, memory_bytes);
  } else if (variant.family == Family::blocked) {
    extra = copy + vectors + memory_cycles(b_bytes, memory_bytes) + memory_cycles(k * n * 4, written_bytes) + 1200;
  } else if (across && b.block_tiles <= 2 && readable) {
    // In place: every block of rows reads b again, from an outer cache if it is large.
    const double again = b_bytes > 2 * cache_bytes ? 0.12 : b_bytes > cache_bytes ? 0.04 : 0.004;
    // Beyond the outermost cache every reading waits, the longer the more of b has been pushed out in between.
    const double far = b_bytes > outermost_bytes ? 0.1 * std::log2(b_bytes / outermost_bytes) : 0;
    const double hidden = far_halves(p, b_bytes) ? costs().hides_halves : 1;
    const double wait = memory_cycles(b_bytes, in_place_rate(p, b, b_bytes)) - hidden * cycles;
    // Each tile widens halves.
    if (size(p.b.type) == 2 && p.compute == Type::f32) cycles += vectors * tiles * (low_tiles(p) ? 0.6 : 0.33);
    // Of the second cache most of it is hidden where the arithmetic takes twice as long.
    const double shown = vectors_take_two_cycles() && b_bytes <= 2 * cache_bytes ? 0.2 : 1;
    extra =
        memory_cycles(b_bytes, fetched_bytes) + (blocks - 1) * b_bytes * (again + far) * shown + (wait > 0 ? wait : 0);
    if (tiles > 1 && b_bytes > cache_bytes) extra += deep_cycles(b, b_bytes);
  } else if (across && readable && k > unfetched_sum && b.block_tiles >= least_copying_tiles()) {
    extra = copying_cycles(p, b, k, b_bytes, cycles);
  } else {
    extra =
        blocks * copy + memory_cycles(b_bytes, memory_bytes) + (blocks - 1) * memory_cycles(b_bytes, 2 * memory_bytes);
    // Columns that are copied one beside the other arrive from memory at half its rate.
    if (along && b_bytes >= cached_bytes && !pairs) extra += memory_cycles(b_bytes, memory_bytes);
  }
  // One pass copies a once and keeps no sums between, if the second cache holds the block.
  const bool further = b.depth > usual_depth ||
                       b.chunk_panels * tile_columns_of(p) * static_cast<int64_t>(size(p.compute)) > usual_columns * 4;
  const double wide = variant.columns > usual_columns && further ? costs().wide_blocks : 1;
  return (p.b.packed ? packed_entry_cycles : entry_cycles) + batch * (cycles + extra) * wide;
}

// Around the products of dots: the lanes of each are added one after the other, and without masks a narrow line's rest
// goes by memory.
double around_dots(const Problem &p, double few, double many, double lanes) {
  const bool masks = kernels<float>().masks, integers = p.compute == Type::i32;
  const double adding = lanes > 8 ? 24 : integers ? 15 : 7;
  const int64_t whole = static_cast<int64_t>(lanes) * (integers ? group_of(p) : 1);
  const bool rest = !masks && size(p.b.type) < 4 && p.k % whole != 0;
  return many * (few * (rest ? adding + 7 : adding) + (rest ? 30 : 5));
}

double skinny_cycles(const Variant &variant, const Problem &p) {
  const SkinnyShape shape = skinny_shape(p);
  const bool rows = along_rows(shape), dots = along_k(shape), wide = !dots;
  const double m = static_cast<double>(p.m), n = static_cast<double>(p.n), k = static_cast<double>(p.k);
  const double few = rows ? m : n, many = rows ? n : m, group = p.compute == Type::i32 ? group_of(p) : 1;
  const double batch = static_cast<double>(p.batch);
  const double lanes = (p.compute == Type::f64 ? kernels<double>().tile_columns : kernels<float>().tile_columns) / 2;
  const double vectors =
      wide ? std::ceil(k / group) * ((many + lanes - 1) / lanes) : many * std::ceil(k / group / lanes);
  // Narrow elements are widened for each group of rows, or joined to groups of their own, before they are multiplied.
  const double groups = wide ? std::ceil(few / static_cast<double>(smaller(max_skinny_rows, tile_rows_of(p)))) : 1;
  const bool integers = p.compute == Type::i32, masks = kernels<float>().masks;
  const double widen = integers ? (wide ? 5 : 1) : size(rows ? p.b.type : p.a.type) < 2 ? 3 * groups : 0;
  const double bytes = k * many * size(rows ? p.b.type : p.a.type);
  // Measured with vectors of 32 bytes on EPYCs of the third generation, with wider ones on those of the fourth.
  const bool measured = !dots && lanes * size(p.compute) == 32 && (rows ? p.b.type : p.a.type) == p.compute;
  const double product = integers && wide && masks ? 2 : !measured ? 0.65 : p.compute == Type::f64 ? 0.47 : 0.57;
  double cycles = vectors * (few * product + 0.6 + widen);
  const bool pairs = multiplies_few_pairs(p);
  if (pairs && p.b.type == Type::bf16) {
    cycles = vectors * (few * (dots ? 0.5 : 0.45) + 0.6);
  } else if (pairs) {
    cycles = vectors * (dots ? few * 0.75 + 0.6 : few * 0.72 + 1.4 * groups);
  }
  // Wide vectors leave more of the time to reading the large matrix again for the second group of dots.
  if (!pairs && dots && few > max_skinny_rows && lanes * size(p.compute) > 32) cycles *= 1.5;
  const double memory = memory_cycles(bytes, memory_bytes);
  cycles = (cycles > memory ? cycles : memory) + 0.2 * (cycles > memory ? memory : cycles);
  // Long chunks follow the rows of the large matrix further; short ones leave more tasks.
  const double chunks = many / variant.columns;
  // Sums come and go for every few lines of the large matrix, however short these are.
  if (wide && many > 1) cycles += few_lines_cycles * k / (group * lines_side_by_side);
  // Elements that are not adjacent are joined or, if narrow, widened one by one; bfloat16 at little cost.
  const Matrix &small = rows ? p.a : p.b;
  const bool slow =
      (rows ? small.column_stride : small.row_stride) != 1 && (size(small.type) == 1 || small.type == Type::f16);
  cycles += few * k * (chunks < 1 ? 1 : chunks) * (dots ? (slow ? 4 : 0.8) : 0.5);
  if (dots) return 90 + batch * (skinny_entry_cycles + cycles + around_dots(p, few, many, lanes));
  // Columns of results are turned into rows.
  const double stored = rows ? 0.11 * size(p.compute) : few > 1 ? (integers ? 3 : 2) : 0.1;
  cycles += m * n * (stored + (!integers ? 0 : masks ? 0.6 : 1.2));
  return 90 + batch * (skinny_entry_cycles + cycles * (chunks > 1 ? 1.05 : 1));
}

double small_cycles(const Problem &p) {
  const int64_t lanes = tile_columns_of(p) / 2, most = tile_rows_of(p),
                value = static_cast<int64_t>(size_of(p.compute));
  const int64_t tiles = divide_up(p.m, most), rows = divide_up(p.m, tiles);
  const int64_t width = rows <= most_wide_rows && !p.b.packed ? 4 : 2, full = p.n / (width * lanes),
                rest = p.n % (width * lanes);
  const double k = static_cast<double>(p.k), tile = static_cast<double>(rows), around = 14 + 2 * tile;
  double each = static_cast<double>(full) * (k * step_cycles(tile, static_cast<double>(width)) + around);
  if (rest) each += k * step_cycles(tile, static_cast<double>(divide_up(rest, lanes))) + around;
  // Lines that fall on the same cache sets are read again and again.
  const bool conflict = rows > 8 && p.a.row_stride * value % set_bytes == 0;
  double cycles = static_cast<double>(tiles) * each * (conflict ? 2 : 1);
  if (small_copies(p, tiles)) cycles += 0.1 * k * static_cast<double>(p.n) * size(p.b.type);
  const double b_bytes = k * static_cast<double>(p.n) * size(p.b.type);
  if (b_bytes > costs().small_bytes && !p.b.packed) {
    cycles += static_cast<double>(tiles) * b_bytes * (low_tiles(p) ? costs().low_tile_reads : outer_reads);
  }
  // The shortest sums are written a packed panel at a time, whose rows are far apart; measured with wide vectors.
  const bool conflicts = p.d_row_stride * value % (set_bytes / 2) == 0;
  if (p.b.packed && !low_tiles(p) && p.k < 12 && full > 1 && !conflicts) cycles *= 1.5;
  const double wait = memory_cycles(static_cast<double>(p.m) * k * size(p.a.type), 0.5 * memory_bytes) - cycles;
  return 30 + static_cast<double>(p.batch) * (cycles + (wait > 0 ? wait : 0));
}

// Whether a panel is read from its beginning to its end before the next one: it was packed so, and there are few rows
// of a to hold meanwhile. Bytes are widened by tiles of few rows alone, and of integers some sets read a panel twice.
bool reads_whole_panels(const Problem &p, const Blocks &blocks) {
  if (!p.b.packed || p.compute == Type::i32 || blocks.tiles > own_fetching_tiles) return false;
  if (!staged(p.b) && size_of(p.b.type) > 1) return true;
  return blocks.tiles == 1 && blocks.tile_rows <= max_thin_rows;
}

}  // namespace

// Sizes of rows and depth depend on the shape, the variant and the instruction set alone. Blocks are of equal size, so
// that no thin rest is left over.
Blocks make_blocks(const Variant &variant, const Problem &p, int threads) {
  const bool wide = p.compute == Type::f64;
  Blocks blocks{};
  const int64_t width = tile_columns_of(p);
  blocks.panels = divide_up(p.n, width);
  const bool readable = p.a.type == p.compute && p.a.column_stride == 1;
  const bool narrow = blocks.panels <= 2;
  int64_t most_rows = tile_rows_of(p);
  // Where the rows of a tile fall on the same cache sets, half of them are read in place. The order of a bias
  // gradient's sums does not depend on strides.
  const bool conflict = most_rows > 8 && p.a.row_stride * static_cast<int64_t>(size_of(p.a.type)) % set_bytes == 0;
  const bool halved = narrow && readable && conflict && p.reduction != Reduction::result_columns;
  if (halved) most_rows /= 2;
  const int64_t tiles = divide_up(p.m, most_rows);
  blocks.tile_rows = divide_up(p.m, tiles);
  blocks.tiles = divide_up(p.m, blocks.tile_rows);
  blocks.blocks = divide_up(blocks.tiles, larger(1, variant.rows / most_rows));
  blocks.block_tiles = divide_up(blocks.tiles, blocks.blocks);
  blocks.blocks = divide_up(blocks.tiles, blocks.block_tiles);

  // Sums of so many panels fit the scratch.
  const int64_t most_panels = larger(1, variant.columns / (wide ? 2 : 1) / width);
  const int64_t least_chunks = divide_up(blocks.panels, most_panels);
  int64_t chunks = least_chunks;
  // A large product is cut into enough tasks for several threads, a small one is not.
  const bool cut = threads != 1 && !is_small(p);
  const int64_t enough = threads > 1 ? smaller(tasks_of_threads, tasks_of_each_thread * threads) : tasks_of_threads;
  const int64_t wanted = cut ? enough : 1, alike = larger(1, blocks.blocks * p.batch);
  const int64_t most_chunks = larger(1, blocks.panels / (wide ? 16 : 8));
  if (alike * chunks < wanted) chunks = larger(chunks, smaller(most_chunks, divide_up(wanted, alike)));
  if (cut && threads > 1) {
    const int64_t most = larger(most_chunks, round_up(least_chunks, threads));
    chunks = shared_evenly({least_chunks, chunks, most}, blocks.panels, alike, threads);
  }
  // Nor does a thread stay without a task that would have paid.
  if (alike * chunks < threads) chunks = larger(chunks, smaller(blocks.panels, divide_up(threads, alike)));
  blocks.chunk_panels = smaller(most_panels, divide_up(blocks.panels, chunks));
  if (p.b.packed && !packed_blocks(p.b)) {
    const int64_t together = panels_side_by_side(p, blocks, p.b.type);
    if (blocks.chunk_panels > together) blocks.chunk_panels = blocks.chunk_panels / together * together;
  }
  blocks.chunks = divide_up(blocks.panels, blocks.chunk_panels);

  const int64_t values = values_of(p.k, group_of(p)), passes = larger(1, divide_up(values, variant.depth));
  // Passes over blocks that are packed with their scales begin with one.
  const int64_t step = packed_blocks(p.b) ? block_depth : 8;
  blocks.depth = larger(step, round_up(divide_up(values, passes), step));
  blocks.panel_depth = blocks.copied_depth = blocks.depth;
  if (reads_whole_panels(p, blocks)) {
    const int64_t most = larger(variant.depth, held_bytes / (p.m * static_cast<int64_t>(size_of(p.compute))));
    blocks.depth = larger(step, round_up(divide_up(values, larger(1, divide_up(values, most))), step));
    if (blocks.tiles == 1 && !multiplies_pairs(p)) {
      blocks.panel_depth = blocks.depth;
      blocks.copied_depth = 0;
    }
  }

  // Reading a in place pays where it is used once or twice, or stays in a cache as near as the copy would, or where few
  // panels of b would make use of the copy.
  const bool low = low_tiles(p);
  const int64_t rows = low ? p.m : blocks.block_tiles * blocks.tile_rows, depth = low ? p.k : blocks.depth;
  const int64_t near = low ? outer_bytes : near_bytes;
  const bool few_columns = !low && p.n <= costs().in_place_columns;
  const bool stays = !conflict && (few_columns || rows * depth * static_cast<int64_t>(size_of(p.a.type)) <= near);
  blocks.a_in_place = readable && (stays || (narrow && (halved || !conflict)));
  return blocks;
}

float predict(const Variant &variant, const Problem &p) {
  double cycles = 0;
  const double batch = static_cast<double>(p.batch);
  switch (variant.family) {
    case Family::direct:
    case Family::blocked:
      cycles = tiled_cycles(variant, p, make_blocks(variant, p), static_cast<double>(p.k), batch);
      break;
    case Family::skinny:
      cycles = skinny_cycles(variant, with_rows(p));
      break;
    case Family::small:
      cycles = small_cycles(p) * (variant.depth == sums_of_few_rows ? costs().few_rows : 1);
      break;
    case Family::split: {
      Variant direct = variant;
      direct.family = Family::direct;
      direct.depth = 256;
      const double parts = static_cast<double>(divide_up(p.k, variant.depth)), results = static_cast<double>(p.m * p.n);
      cycles = tiled_cycles(direct, p, make_blocks(direct, p), static_cast<double>(p.k), batch) +
               batch * results * (parts * 0.5 + 2);
      // Its parts can run side by side where the result alone gives threads little to share.
      if (results <= 4096 && parts >= 8) cycles *= 0.7;
      break;
    }
  }
  return static_cast<float>(cycles / cycles_per_microsecond);
}

}  // namespace rocpy_host::gemm
