// SPDX-License-Identifier: MIT
// The skinny family: a few rows against a large b, or a large a against a few columns. The large matrix is read once,
// in its own order; the small one is held in the compute type, integers in groups. No workspace but that of column
// sums.
#include <type_traits>

#include "blocking.hpp"
#include "blocks.hpp"
#include "drivers.hpp"
#include "scalar.hpp"

namespace rocpy_host::gemm {
namespace {

constexpr int64_t most_rows = 16;     // or columns, when a is the large one
constexpr int64_t held_depth = 4096;  // values of the small matrix held at a time
// Rows held for dots: not a multiple of a page apart, which would put all of them on the same few sets of a cache.
constexpr int64_t held_stride = held_depth + 16;
// Tasks for each thread, and the lines of the large matrix below which a task is not cut for them. Of its rows a task
// should read so many bytes at a time, for which there is one task less for each thread.
constexpr int64_t tasks_of_thread = 2, least_chunk = 256, least_row_bytes = 4096;
constexpr int64_t sums_apart = 32;  // between the sums of one line and the next, for the same reason
// Lines that all groups of small rows visit before the next ones: of narrow elements more stay in the second cache.
constexpr int64_t dot_block_lines = 16, narrow_dot_block_lines = 48;
// Rows of dots that a kernel takes at a time, where bytes need not be widened for each group: with more of them fewer
// lines fit the registers, and all rows are read again for each few lines.
constexpr int64_t most_dot_rows = 6;

// A task's scratch: the small matrix's values, and sums of at most 16 lines, each as long as a chunk.
constexpr bool scratch_suffices() {
  for (const Variant &variant : variants) {
    if (variant.family != Family::skinny) continue;
    const int64_t held = most_rows * held_stride + 64, sums = most_rows * (variant.columns + 2 * sums_apart);
    if (static_cast<size_t>(held + sums / 2) * sizeof(double) > scratch_bytes) return false;
    if (static_cast<size_t>(held + sums) * sizeof(float) > scratch_bytes) return false;
  }
  return true;
}
static_assert(scratch_suffices());

// Whether k is adjacent in whole blocks, or in nothing that must be widened in a way of its own.
bool dots_take(const Matrix &m) { return !staged(m) || m.scale.kind == ScaleKind::block32; }

template <class T>
const Kernels<T> &skinny_kernels(bool pairs) {
  if constexpr (std::is_same_v<T, float>) {
    if (pairs) return *kernel_set().pairs;
  }
  return kernels<T>();
}

template <class T>
struct Skinny {
  const Problem &p;
  SkinnyShape shape = skinny_shape(p);
  const Kernels<T> &kernel;
  bool rows = along_rows(shape), dots = along_k(shape);
  Finish<T> finish = make_finish<T>(p);
  typename Kernels<T>::Epilogue epilogue = kernel.epilogue(p);
  int64_t k = effective_k(p);
  int64_t few = rows ? p.m : p.n, many = rows ? p.n : p.m;
  // Rows of the small matrix that a kernel takes at a time, in groups of about equal size.
  int64_t group_rows = divide_up(few, divide_up(few, most_group_rows()));
  // Whether pairs may lose numbers that are too small.
  bool may_lose = kernel.group == 2 && large().type == Type::bf16;
  int64_t chunk, chunks;
  T *sums = nullptr;

  Skinny(const Problem &problem, int64_t chunk_size, int64_t chunk_count, bool pairs)
      : p(problem), kernel(skinny_kernels<T>(pairs)), chunk(chunk_size), chunks(chunk_count) {}

  int64_t most_group_rows() const {
    const int64_t most = smaller(max_skinny_rows, kernel.tile_rows);
    return dots && bits_of(large().type) > 8 ? smaller(most, most_dot_rows) : most;
  }
  int64_t block_lines() const {
    return std::is_same_v<T, float> && bits_of(large().type) <= 16 ? narrow_dot_block_lines : dot_block_lines;
  }

  const Matrix &large() const { return rows ? p.b : p.a; }
  const Matrix &small() const { return rows ? p.a : p.b; }

  // Holds the small matrix's k range [x0, x0 + count): for dots as rows of k, otherwise as [x][row] in groups of at
  // most 8 rows.
  void hold(int64_t g, int64_t x0, int64_t count, T *held) const {
    const Matrix &m = small();
    const int64_t few_stride = rows ? m.row_stride : m.column_stride, x_stride = rows ? m.column_stride : m.row_stride;
    if constexpr (std::is_same_v<T, float>) {
      if (staged(m)) return hold_staged(g, x0, count, held);
    }
    if constexpr (std::is_same_v<T, float>) {
      if (dots && kernel.group > 1) return hold_pairs(g, x0, count, held);
    }
    const Elements<T> &of_few = *kernel.elements[element_index(m.type)];
    const auto pack = of_few.pack_left ? of_few.pack_left : of_few.pack;
    const char *from = offset(m.data, m.type, g * m.batch_stride + x0 * x_stride);
    if (dots && kernel.group > 1) {
      for (int64_t i = 0; i < few; i++) {
        pack(offset(from, m.type, i * few_stride), x_stride, few_stride, count, 1, 1, held + i * held_stride, 1);
      }
      return;
    }
    if (dots) {
      const int width = static_cast<int>(count);
      pack(from, few_stride, x_stride, few, width, width, held, held_stride);
      return;
    }
    for (int64_t i = 0; i < few; i += group_rows) {
      const int group = static_cast<int>(smaller(group_rows, few - i));
      pack(offset(from, m.type, i * few_stride), x_stride, few_stride, count, group, group,
           held + i * values_of(count, kernel.group), group);
    }
  }

  // The same for dots of pairs, whose words have two numbers that go to the same lane of a sum, one after the other.
  // They are filled up with 0.
  void hold_pairs(int64_t g, int64_t x0, int64_t count, float *held) const {
    const Matrix &m = small();
    const Elements<float> &elements = *kernels<float>().elements[element_index(m.type)];
    const int64_t few_stride = rows ? m.row_stride : m.column_stride, x_stride = rows ? m.column_stride : m.row_stride;
    const int64_t lanes = kernel.tile_columns / 2, whole = round_up(count, 4 * lanes);
    const int width = static_cast<int>(count);
    alignas(64) float line[held_depth + 64];
    for (int64_t i = 0; i < few; i++, held += held_stride) {
      const char *from = offset(m.data, m.type, g * m.batch_stride + i * few_stride + x0 * x_stride);
      elements.pack(from, few_stride, x_stride, 1, width, width, line, width);
      for (int64_t x = count; x < whole; x++) line[x] = 0.0f;
      for (int64_t x = 0; x < whole; x += 2 * lanes) {
        for (int64_t l = 0; l < lanes; l++) {
          const uint32_t second = rocpy_host::bits_of(line[x + lanes + l]);
          held[x / 2 + l] = float_of(rocpy_host::bits_of(line[x + l]) | second >> 16);
        }
      }
    }
  }

  // The same of a small matrix that is narrow or has block scales, whose k is adjacent.
  void hold_staged(int64_t g, int64_t x0, int64_t count, T *held) const {
    const Matrix &m = small();
    if (!dots) {
      const Operand<T> operand(kernel, m, rows, p.k);
      for (int64_t i = 0; i < few; i += group_rows) {
        const int group = static_cast<int>(smaller(group_rows, few - i));
        operand.pack({g, p.k, x0, i, count, group}, group, held + i * count, group);
      }
      return;
    }
    const int64_t few_stride = rows ? m.row_stride : m.column_stride;
    for (int64_t i = 0; i < few; i++) {
      kernel.decode(m.type, offset(m.data, m.type, g * m.batch_stride + i * few_stride), line_scales(m, g, i), x0,
                    count, held + i * held_stride);
    }
  }

  // The scales of a line of an operand; null where it has none for its blocks.
  const uint8_t *line_scales(const Matrix &m, int64_t g, int64_t line) const {
    if (m.scale.kind != ScaleKind::block32) return nullptr;
    return static_cast<const uint8_t *>(m.scale.data) + g * m.scale.batch_stride + line * (p.k / block_depth);
  }

  // Dot products of the `group` rows that call.a holds with the large matrix's lines from the first-th on, from x0 on.
  void dot(int64_t g, int64_t first, int64_t x0, int64_t group, DotCall<T> call) const {
    const Matrix &m = large();
    const int64_t many_stride = rows ? m.column_stride : m.row_stride, x_stride = rows ? m.row_stride : m.column_stride;
    call.b = offset(m.data, m.type, g * m.batch_stride + first * many_stride + x0 * x_stride);
    call.b_stride = many_stride;
    if constexpr (std::is_same_v<T, float>) {
      if (staged(m)) {
        call.b_stride = many_stride * element_bits[static_cast<int>(m.type)] / 8;
        const uint8_t *scales = line_scales(m, g, first) + x0 / block_depth;
        return kernel.blocks[block_index(m.type)].dot[group]({call, scales, p.k / block_depth});
      }
    }
    kernel.elements[element_index(m.type)]->dot[group](call);
  }

  // The sums of the large matrix's lines from the first-th on, and whether pairs have lost nothing of them. Rows: acc
  // has the result's rows. Columns: dots write the result's rows too, wide writes its columns.
  bool add_up(int64_t g, int64_t first, int64_t count, T *held, T *acc, int64_t padded) const {
    const Matrix &m = large();
    const int64_t many_stride = rows ? m.column_stride : m.row_stride, x_stride = rows ? m.row_stride : m.column_stride;
    const Elements<T> &elements = *kernel.elements[element_index(m.type)];
    // Every so many of k the results of dots are added up.
    const int64_t most = held_depth * (dots && std::is_same_v<T, float> ? 1 : kernel.group);
    const int64_t burst = elements.burst[group_rows];
    const char *data = offset(m.data, m.type, g * m.batch_stride + first * many_stride);
    const int64_t values = (rows || !dots ? few : count) * padded;
    if (k == 0) {
      for (int64_t i = 0; i < values; i++) acc[i] = 0;
    }
    int least_left = no_magnitude, least_right = no_magnitude;
    for (int64_t x0 = 0; x0 < k; x0 += most) {
      const int64_t depth = smaller(most, k - x0), steps = values_of(depth, kernel.group);
      hold(g, x0, depth, held);
      if (may_lose) least_left = smaller(least_left, least_held(depth, steps, held));
      if (dots) {
        const int64_t out_few = rows ? padded : 1, out_many = rows ? 1 : padded, lines = block_lines();
        for (int64_t j = 0; j < count; j += lines) {
          for (int64_t i = 0; i < few; i += group_rows) {
            const int64_t group = smaller(group_rows, few - i);
            DotCall<T> call{};
            call.k = depth;
            call.a = held + i * held_stride;
            call.a_stride = held_stride;
            call.n = smaller(lines, count - j);
            call.out = acc + i * out_few + j * out_many;
            call.out_row = out_few;
            call.out_column = out_many;
            call.first = x0 == 0;
            call.least = &least_right;
            call.again = i > 0;
            dot(g, first + j, x0, group, call);
          }
        }
        continue;
      }
      const char *from = offset(data, m.type, x0 * x_stride);
      for (int64_t x = 0; x < depth; x += burst) {
        for (int64_t i = 0; i < few; i += group_rows) {
          const int64_t group = smaller(group_rows, few - i);
          const T *rows_of_few = held + i * steps + values_of(x, kernel.group) * group;
          elements.wide[group]({smaller(burst, depth - x), rows_of_few, group, offset(from, m.type, x * x_stride),
                                x_stride, count, acc + i * padded, padded, x0 + x == 0, &least_right});
        }
      }
    }
    return !may_lose || loses_nothing(least_left, least_right);
  }

  // The least magnitude of what is held, as words.
  int least_held(int64_t depth, int64_t steps, const T *held) const {
    if constexpr (std::is_same_v<T, float>) {
      if (!dots) return kernel.least_magnitude(held, 1, few * steps, 0);
      return kernel.least_magnitude(held, few, round_up(depth, 2 * kernel.tile_columns) / 2, held_stride);
    }
    return no_magnitude;
  }

  void run(int64_t index) const {
    const int64_t g = index / chunks, block = index % chunks, first = block * chunk,
                  count = smaller(chunk, many - first);
    const int64_t lanes = kernel.tile_columns / 2;
    Scratch scratch;
    T *held = scratch.at<T>(0);
    T *acc = held + most_rows * held_stride + 64;
    const bool one_row = !rows && !sums && rows_are_one(p);
    const int64_t line = rows || !dots ? count : few;
    const int64_t padded = dots && one_row ? few : round_up(line, lanes) + (dots ? 0 : sums_apart);
    if (!add_up(g, first, count, held, acc, padded)) {
      Skinny(p, chunk, chunks, false).add_up(g, first, count, held, acc, padded);
    }
    T *partial = nullptr;
    if (sums) {
      partial = sums + (rows ? g : g * chunks + block) * p.n + (rows ? first : 0);
      for (int64_t j = 0; j < (rows ? count : few); j++) partial[j] = 0;
    }
    if (rows) return epilogue(finish, acc, padded, {g, 0, first, few, count}, partial);
    if (one_row && (dots || few == 1)) return epilogue(finish, acc, padded, {g, first, 0, 1, count * few}, partial);
    if (dots) return epilogue(finish, acc, padded, {g, first, 0, count, few}, partial);
    alignas(64) T transposed[64 * 32];
    const int64_t transposed_width = one_row ? few : round_up(few, lanes);
    for (int64_t i = 0; i < count; i += 64) {
      const int64_t part = smaller(64, count - i);
      for (int64_t r = 0; r < part; r++) {
        for (int64_t c = 0; c < few; c++) transposed[r * transposed_width + c] = acc[c * padded + i + r];
        for (int64_t c = few; c < transposed_width; c++) transposed[r * transposed_width + c] = 0;
      }
      const Region region = one_row ? Region{g, first + i, 0, 1, part * few} : Region{g, first + i, 0, part, few};
      epilogue(finish, transposed, transposed_width, region, partial);
    }
  }

  static void task(void *context, int64_t index) { static_cast<const Skinny *>(context)->run(index); }
};

int64_t chunk_of(const Variant &variant, const Problem &p) {
  const bool rows = along_rows(skinny_shape(p));
  const int64_t many = rows ? p.n : p.m, most = variant.columns / (p.compute == Type::f64 ? 2 : 1);
  const int64_t chunks = larger(1, divide_up(many, most));
  return larger(64, round_up(divide_up(many, chunks), 64));
}

}  // namespace

SkinnyShape skinny_shape(const Problem &p) {
  if (p.b.packed) return SkinnyShape::none;
  const bool rows = p.m <= most_rows, columns = p.n <= most_rows;
  // With both small, the one that leaves fewer rows idle.
  if (rows && !(columns && p.n < p.m)) {
    if (p.b.column_stride == 1 && p.n > 1 && !staged(p.b)) return SkinnyShape::rows_wide;
    if (p.b.row_stride == 1 && dots_take(p.b)) return SkinnyShape::rows_dot;
  }
  if (columns) {
    // A single column of a is along both.
    const bool wide = p.a.row_stride == 1 && !staged(p.a);
    if (p.a.column_stride == 1 && dots_take(p.a) && !(wide && p.k == 1)) return SkinnyShape::columns_dot;
    if (wide) return SkinnyShape::columns_wide;
  }
  return SkinnyShape::none;
}

Problem with_rows(const Problem &p) {
  const int64_t width = p.compute == Type::f64 ? kernels<double>().tile_columns : kernels<float>().tile_columns;
  Problem rows = p;
  if (p.b.packed && p.n <= width && !packed_blocks(p.b) && p.compute != Type::i32) {
    rows.b.packed = false;
    rows.b.row_stride = width;
    rows.b.column_stride = 1;
    rows.b.batch_stride = 0;
  }
  return rows;
}

bool skinny_takes(const Problem &p) { return skinny_shape(p.b.packed ? with_rows(p) : p) != SkinnyShape::none; }

namespace {

size_t workspace_of(const Variant &variant, const Problem &p) {
  const bool rows = along_rows(skinny_shape(p));
  return sums_bytes(p, rows ? 1 : divide_up(p.m, chunk_of(variant, p)));
}

template <class T>
void run_unpacked(const Variant &variant, const Problem &p, void *workspace) {
  Skinny<T> skinny(p, chunk_of(variant, p), 0, multiplies_few_pairs(p));
  if (p.reduction == Reduction::result_columns) skinny.sums = static_cast<T *>(workspace);
  const double large = static_cast<double>(p.batch) * static_cast<double>(skinny.many) * static_cast<double>(skinny.k);
  const int threads =
      threads_for(large * static_cast<double>(skinny.few), large * static_cast<double>(size_of(skinny.large().type)));
  // No bit of a result depends on how lines are cut, but the order of a bias gradient's sums does.
  if (threads > 1 && (skinny.rows || !skinny.sums)) {
    const int64_t each = divide_up(skinny.many, divide_up(tasks_of_thread * threads, p.batch));
    const bool short_rows = !skinny.dots && each * bits_of(skinny.large().type) / 8 < least_row_bytes;
    const int64_t lines = round_up(short_rows ? divide_up(skinny.many, divide_up(threads, p.batch)) : each, 64);
    skinny.chunk = smaller(skinny.chunk, larger(lines, least_chunk));
  }
  skinny.chunks = divide_up(skinny.many, skinny.chunk);
  parallel_for(p.batch * skinny.chunks, threads, Skinny<T>::task, &skinny);
  if constexpr (!std::is_same_v<T, int32_t>) {
    if (skinny.sums) finish_sums<T>(p, skinny.sums, skinny.rows ? 1 : skinny.chunks);
  }
}

}  // namespace

size_t skinny_workspace(const Variant &variant, const Problem &p) {
  return p.b.packed ? workspace_of(variant, with_rows(p)) : workspace_of(variant, p);
}

template <class T>
void run_skinny(const Variant &variant, const Problem &p, void *workspace) {
  if (p.b.packed) return run_unpacked<T>(variant, with_rows(p), workspace);
  run_unpacked<T>(variant, p, workspace);
}

template void run_skinny<float>(const Variant &, const Problem &, void *);
template void run_skinny<double>(const Variant &, const Problem &, void *);
template void run_skinny<int32_t>(const Variant &, const Problem &, void *);

}  // namespace rocpy_host::gemm
