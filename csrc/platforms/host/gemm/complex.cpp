// SPDX-License-Identifier: MIT
// The drivers of complex products: direct (each task packs the panels of b it needs), blocked (b packed into the
// workspace first, or by the caller) and skinny (few rows or columns, the large matrix read where it is). The first two
// add each element's products in ascending k, in one chain, so they agree to the bit whatever the blocks and the
// threads.
#include "complex.hpp"

#include <cmath>
#include <cstring>

#include "drivers.hpp"

namespace rocpy_host::gemm {
namespace {

template <class T>
const ComplexKernels<T> &complex_kernels();
template <>
const ComplexKernels<float> &complex_kernels<float>() {
  return *kernel_set().c32;
}
template <>
const ComplexKernels<double> &complex_kernels<double>() {
  return *kernel_set().c64;
}

// Rows, columns and k of a task's block. Sums, the packed block of a and a panel of b fit a thread's scratch.
constexpr int64_t panel_rows = 48, panel_depth = 256;
template <class T>
constexpr int64_t chunk_columns = 4096 / sizeof(T);
template <class T>
constexpr size_t needed_bytes =
    (panel_rows * chunk_columns<T> * 2 + panel_rows * panel_depth * 3 + panel_depth * 2 * (128 / sizeof(T))) *
    sizeof(T);
static_assert(needed_bytes<float> <= scratch_bytes && needed_bytes<double> <= scratch_bytes);

template <class T>
T sign_of(const Matrix &matrix) {
  return static_cast<T>(matrix.conjugated ? -1 : 1);
}

// A product may be absent: with alpha 0 the operands may be null, and then count as empty.
int64_t depth_of(const Problem &p) {
  return p.alpha == 0 && p.alpha_imaginary == 0 && (!p.a.data || !p.b.data) ? 0 : p.k;
}

bool valid(const Problem &p) {
  if (p.m < 0 || p.n < 0 || p.k < 0 || p.batch < 0 || p.d_row_stride < 0 || p.d_batch_stride < 0 ||
      p.c_row_stride < 0 || p.c_batch_stride < 0) {
    return false;
  }
  const Type type = p.compute;
  if (p.a.type != type || p.b.type != type || p.d_type != type || (p.has_bias && p.bias_type != type)) return false;
  if (p.a.packed || p.alpha_vector || p.program || p.activation != Activation::none || p.aux != Aux::none ||
      p.reduction != Reduction::none) {
    return false;
  }
  return p.a.scale.kind == ScaleKind::none && p.b.scale.kind == ScaleKind::none && !p.c_scale && !p.d_scale &&
         !p.aux_scale && !p.amax;
}

template <class T>
struct PackTasks {
  const ComplexKernels<T> &kernel = complex_kernels<T>();
  const Matrix &b;
  int64_t k, n;
  T *to;

  void run(int64_t q) const {
    const int64_t j = q * kernel.width;
    kernel.pack_columns(static_cast<const T *>(b.data) + 2 * j * b.column_stride, b.row_stride, b.column_stride,
                        sign_of<T>(b), k, static_cast<int>(smaller(kernel.width, n - j)), to + 2 * j * k);
  }
  static void task(void *context, int64_t index) { static_cast<const PackTasks *>(context)->run(index); }
};

template <class T>
void pack_all(const Matrix &b, int64_t k, int64_t n, void *to) {
  PackTasks<T> tasks{complex_kernels<T>(), b, k, n, static_cast<T *>(to)};
  const double bytes = static_cast<double>(k) * static_cast<double>(n) * 4 * sizeof(T);
  parallel_for(divide_up(n, tasks.kernel.width), useful_threads(0, bytes), PackTasks<T>::task, &tasks);
}

template <class T>
struct ComplexTasks {
  const ComplexKernels<T> &kernel = complex_kernels<T>();
  const Problem &p;
  int64_t k, blocks, block_rows, chunks, chunk_panels, panels_of_b;
  int64_t first_entry = 0;
  const T *panels = nullptr;  // all of b, packed

  explicit ComplexTasks(const Problem &problem) : p(problem), k(depth_of(problem)) {
    blocks = divide_up(p.m, panel_rows);
    // Blocks of equal size, in whole register tiles.
    block_rows = round_up(divide_up(p.m, blocks), kernel.rows);
    blocks = divide_up(p.m, block_rows);
    panels_of_b = divide_up(p.n, kernel.width);
    chunks = divide_up(panels_of_b, chunk_columns<T> / kernel.width);
    chunk_panels = divide_up(panels_of_b, chunks);
    chunks = divide_up(panels_of_b, chunk_panels);
  }

  void run(int64_t index) const {
    const int64_t chunk = index % chunks, block = index / chunks % blocks, g = first_entry + index / chunks / blocks;
    const int64_t i0 = block * block_rows, rows = smaller(block_rows, p.m - i0), width = kernel.width;
    const int64_t first = chunk * chunk_panels, end = smaller(first + chunk_panels, panels_of_b);
    Scratch scratch;
    T *acc = scratch.at<T>(0);
    T *a_block = acc + panel_rows * chunk_columns<T> * 2;
    T *sliver = a_block + panel_rows * panel_depth * 3;
    const T *a = static_cast<const T *>(p.a.data), *b = static_cast<const T *>(p.b.data);
    if (k) a += 2 * (g * p.a.batch_stride + i0 * p.a.row_stride);
    if (k && !panels) b += 2 * g * p.b.batch_stride;
    int64_t x0 = 0;
    do {
      const int64_t count = smaller(panel_depth, k - x0);
      for (int64_t i = 0; i < rows && count; i += kernel.rows) {
        const int some = static_cast<int>(smaller(kernel.rows, rows - i));
        kernel.pack_rows(a + 2 * (i * p.a.row_stride + x0 * p.a.column_stride), p.a.column_stride, p.a.row_stride,
                         sign_of<T>(p.a), count, some, a_block + 3 * i * count);
      }
      for (int64_t q = first; q < end; q++) {
        const int64_t j = q * width, columns = smaller(width, p.n - j);
        const T *panel = panels + 2 * (j * k + x0 * width);
        if (!panels) {
          if (count) {
            kernel.pack_columns(b + 2 * (x0 * p.b.row_stride + j * p.b.column_stride), p.b.row_stride,
                                p.b.column_stride, sign_of<T>(p.b), count, static_cast<int>(columns), sliver);
          }
          panel = sliver;
        }
        T *sums = acc + (q - first) * block_rows * 2 * width;
        for (int64_t i = 0; i < rows; i += kernel.rows) {
          const int64_t some = smaller(kernel.rows, rows - i);
          kernel.tile[some](count, a_block + 3 * i * count, panel, sums + i * 2 * width, x0 == 0);
          if (x0 + count == k) kernel.finish(p, sums + i * 2 * width, width, g, i0 + i, j, some, columns);
        }
      }
      x0 += count;
    } while (x0 < k);
  }
  static void task(void *context, int64_t index) { static_cast<const ComplexTasks *>(context)->run(index); }

  void run_all(int64_t entry, int64_t entries) {
    first_entry = entry;
    const int64_t tasks = entries * blocks * chunks;
    const double work = 4.0 * static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(entries * k);
    const double bytes = static_cast<double>(entries * p.m * p.n) * 4 * sizeof(T);
    parallel_for(tasks, useful_threads(work, bytes), task, this);
  }
};

// Few rows or columns against a large matrix of `many` lines, whose vectors are used as they lie in memory, both parts
// side by side. Tasks are blocks of lines, or batch entries; no bit depends on how these are cut.
template <class T>
struct ComplexSkinny {
  static constexpr int64_t most_few = 16, held_depth = 4096, chunk_lines = 512;
  static constexpr int64_t held_parts = 2 * most_few * held_depth, sums_parts = 4 * most_few * (chunk_lines + 16);
  static_assert((held_parts + sums_parts + 2 * most_few * chunk_lines) * sizeof(T) <= scratch_bytes);

  const ComplexKernels<T> &kernel = complex_kernels<T>();
  const Problem &p;
  SkinnyShape shape = skinny_shape(p);
  bool rows = along_rows(shape), dots = along_k(shape);
  int64_t k = depth_of(p), few = rows ? p.m : p.n, many = rows ? p.n : p.m;
  int64_t group_rows = divide_up(few, divide_up(few, max_few_complex));
  const Matrix &small = rows ? p.a : p.b, &large = rows ? p.b : p.a;
  int64_t few_stride = rows ? small.row_stride : small.column_stride;
  int64_t small_step = rows ? small.column_stride : small.row_stride;
  int64_t many_stride = rows ? large.column_stride : large.row_stride;
  int64_t large_step = rows ? large.row_stride : large.column_stride;
  // Lines of k that are added to the sums at a time, each of which is read once for every group of rows.
  int64_t burst = few > 1 ? 16 : 8;
  int64_t chunk = dots || few <= max_few_complex ? chunk_lines : chunk_lines / 4, chunks = 1, blocks_of_task = 1;

  explicit ComplexSkinny(const Problem &problem) : p(problem) {}

  // The small matrix's k range from x0 on: for dots its rows, else the parts of all rows for each of k.
  void hold(const T *from, int64_t count, T *held) const {
    const T sign = sign_of<T>(small);
    for (int64_t i = 0; i < few; i++) {
      const T *line = from + 2 * i * few_stride;
      T *to = held + 2 * i * (dots ? held_depth : 1);
      const int64_t step = dots ? 2 : 2 * few;
      for (int64_t x = 0; x < count; x++, line += 2 * small_step, to += step) {
        to[0] = line[0];
        to[1] = dots ? line[1] : sign * line[1];
      }
    }
  }

  // `count` lines of b from x0 of k on; `to` has the parts of a line's results 2 * few apart, or of a row's 2 * count.
  void add_dots(const T *a, const T *b, int64_t x0, int64_t depth, int64_t count, T *held, T *to) const {
    const bool in_place = small_step == 1;
    a += 2 * x0 * small_step;
    if (!in_place) hold(a, depth, held);
    for (int64_t i = 0; i < few; i += group_rows) {
      const int64_t stride = in_place ? few_stride : held_depth;
      ComplexDotCall<T> call{};
      call.k = depth;
      call.a = (in_place ? a : held) + 2 * i * stride;
      call.a_stride = stride;
      call.b = b + 2 * x0;
      call.b_stride = many_stride;
      call.n = count;
      call.a_sign = sign_of<T>(small);
      call.b_sign = sign_of<T>(large);
      call.out = to + (rows ? 2 * i * count : i);
      call.out_row = rows ? 2 * count : 1;
      call.out_column = rows ? 1 : 2 * few;
      call.imaginary = rows ? count : few;
      call.first = x0 == 0;
      kernel.dot[smaller(group_rows, few - i)](call);
    }
  }

  void add_lines(const T *a, const T *b, int64_t x0, int64_t depth, int64_t count, T *held, T *acc) const {
    const int64_t padded = padded_parts(count);
    hold(a + 2 * x0 * small_step, depth, held);
    for (int64_t x = 0; x < depth; x += burst) {
      for (int64_t i = 0; i < few; i += group_rows) {
        kernel.wide[smaller(group_rows, few - i)]({smaller(burst, depth - x), held + 2 * (x * few + i), 2 * few,
                                                   b + 2 * (x0 + x) * large_step, large_step, count,
                                                   acc + 2 * i * padded, padded, x0 + x == 0});
      }
    }
  }

  // A line of sums, in whole vectors, and not a multiple of a page apart.
  static int64_t padded_parts(int64_t count) { return round_up(2 * count, 16) + 16; }

  // The sums with the parts of the small matrix become those of the product.
  void join(const T *acc, int64_t count, T *to) const {
    const T sign = sign_of<T>(large);
    const int64_t padded = padded_parts(count), step = rows ? 1 : 2 * few, imaginary = rows ? count : few;
    for (int64_t i = 0; i < few; i++, acc += 2 * padded) {
      T *out = to + (rows ? 2 * i * count : i);
      for (int64_t j = 0; j < count; j++) {
        out[j * step] = acc[2 * j] - sign * acc[padded + 2 * j + 1];
        out[j * step + imaginary] = sign * acc[2 * j + 1] + acc[padded + 2 * j];
      }
    }
  }

  void run_block(int64_t index, T *held) const {
    const int64_t g = index / chunks, first = index % chunks * chunk, count = smaller(chunk, many - first);
    T *acc = held + held_parts, *to = acc + sums_parts;
    const T *a = static_cast<const T *>(small.data), *b = static_cast<const T *>(large.data);
    if (k) {
      a += 2 * g * small.batch_stride;
      b += 2 * (g * large.batch_stride + first * many_stride);
    } else {
      std::memset(to, 0, static_cast<size_t>(2 * few * count) * sizeof(T));
    }
    for (int64_t x0 = 0; x0 < k; x0 += held_depth) {
      const int64_t depth = smaller(held_depth, k - x0);
      if (dots) {
        add_dots(a, b, x0, depth, count, held, to);
      } else {
        add_lines(a, b, x0, depth, count, held, acc);
      }
    }
    if (k && !dots) join(acc, count, to);
    if (rows) return kernel.finish(p, to, count, g, 0, first, few, count);
    kernel.finish(p, to, few, g, first, 0, count, few);
  }

  static void task(void *context, int64_t index) {
    const auto &self = *static_cast<const ComplexSkinny *>(context);
    const int64_t end = smaller(self.p.batch * self.chunks, (index + 1) * self.blocks_of_task);
    Scratch scratch;
    for (int64_t i = index * self.blocks_of_task; i < end; i++) self.run_block(i, scratch.at<T>(0));
  }

  void run() {
    const double values = static_cast<double>(p.batch * many) * static_cast<double>(k);
    const int threads = threads_for(4 * values * static_cast<double>(few), 2 * values * sizeof(T));
    constexpr int64_t least_chunk = 64, tasks_of_thread = 4;
    const int64_t tasks = threads == 1 ? 1 : tasks_of_thread * threads;
    chunk = smaller(chunk, larger(least_chunk, round_up(divide_up(many, divide_up(tasks, p.batch)), least_chunk)));
    chunks = divide_up(many, chunk);
    blocks_of_task = divide_up(p.batch * chunks, larger(tasks, 1));
    parallel_for(divide_up(p.batch * chunks, blocks_of_task), threads, task, this);
  }
};

bool empty(const Problem &p) { return p.m == 0 || p.n == 0 || p.batch == 0; }

enum class ComplexFamily : uint8_t { direct, blocked, skinny };

ComplexFamily family_of(int32_t id) {
  for (int i = 0; i < complex_count; i++) {
    if (complex_algorithms[i].id == id) return static_cast<ComplexFamily>(i);
  }
  return ComplexFamily::direct;
}

template <class T>
void run_complex(ComplexFamily family, const Problem &p, void *workspace) {
  if (family == ComplexFamily::skinny) return ComplexSkinny<T>(p).run();
  ComplexTasks<T> tasks(p);
  if (p.b.packed && tasks.k) tasks.panels = static_cast<const T *>(p.b.data);
  if (family == ComplexFamily::direct || p.b.packed || tasks.k == 0) return tasks.run_all(0, p.batch);
  tasks.panels = static_cast<const T *>(workspace);
  // Batch entries that share b share its panels; others take turns with them.
  const int64_t turn = p.b.batch_stride == 0 ? p.batch : 1;
  for (int64_t g = 0; g < p.batch; g += turn) {
    Matrix b = p.b;
    b.data = static_cast<const T *>(b.data) + 2 * g * b.batch_stride;
    pack_all<T>(b, tasks.k, p.n, workspace);
    tasks.run_all(g, turn);
  }
}

// Cycles until a matrix of a skinny product has arrived from the caches that hold it, or from memory.
double arrival_cycles(double bytes) {
  constexpr double near = 1 << 19, outermost = 24 << 20;
  return bytes <= near ? 0 : bytes / (bytes <= outermost ? 14 : 5.5);
}

// Fused multiply-adds a cycle: fitted on EPYCs of the fourth generation, with vectors of 32 and 64 bytes.
double fused_rate() { return vectors_take_two_cycles() ? 1 : 2; }

double skinny_cycles(const Problem &p, double lanes) {
  const SkinnyShape shape = skinny_shape(p);
  const bool rows = along_rows(shape);
  const double few = static_cast<double>(rows ? p.m : p.n), many = static_cast<double>(rows ? p.n : p.m);
  const double k = static_cast<double>(p.k), step = 0.2 + 2 * few / fused_rate();
  if (along_k(shape)) return 60 + many * (std::ceil(2 * k / lanes) * step + 40 * few);
  return 60 + k * (std::ceil(2 * many / lanes) * 1.2 * (step + 0.5) + 4 * few) + 3 * few * many;
}

double tiled_cycles(bool blocked, const Problem &p, double lanes) {
  const int64_t width = static_cast<int64_t>(2 * lanes);
  const double m = static_cast<double>(p.m), n = static_cast<double>(p.n), k = static_cast<double>(p.k);
  const double whole = static_cast<double>(round_up(p.n, width)), panels = whole / static_cast<double>(width);
  const bool side_by_side = p.b.column_stride == 1 && p.n >= width;
  const double pack = p.b.packed ? 0 : k * whole * (side_by_side ? 0.75 : 2);
  const double times = blocked ? 1.2 : static_cast<double>(divide_up(p.m, panel_rows));
  const double sums = m * whole * k * 4 / lanes / fused_rate() + m * k * 4 + m * (n * 1.2 + panels * 10);
  return 200 + sums + pack * times + (blocked ? 1500 : 0);
}

// Cycles of a nominal core, in its microseconds.
float predict(ComplexFamily family, const Problem &p) {
  if (empty(p)) return 0;
  const int64_t width = p.compute == Type::c32 ? complex_kernels<float>().width : complex_kernels<double>().width;
  const double lanes = static_cast<double>(width) / 2;
  const double large = static_cast<double>(p.m * p.k + p.k * p.n) * static_cast<double>(size_of(p.compute));
  const double arrival = arrival_cycles(large);
  double cycles = 0;
  if (family == ComplexFamily::skinny) {
    cycles = skinny_cycles(p, lanes);
    if (cycles < arrival) cycles = arrival;
  } else {
    cycles = arrival + tiled_cycles(family == ComplexFamily::blocked, p, lanes);
  }
  return static_cast<float>((200 + static_cast<double>(p.batch) * cycles) / 4000);
}

}  // namespace

const Algorithm *find_complex(int32_t id) {
  for (const Algorithm &algorithm : complex_algorithms) {
    if (algorithm.id == id) return &algorithm;
  }
  return nullptr;
}

bool complex_supports(int32_t id, const Problem &p, size_t *workspace_bytes) {
  if (!find_complex(id) || !valid(p)) return false;
  const ComplexFamily family = family_of(id);
  if (family == ComplexFamily::skinny && !empty(p) && skinny_shape(p) == SkinnyShape::none) return false;
  if (workspace_bytes) {
    const bool packs = family == ComplexFamily::blocked && !p.b.packed && !empty(p);
    *workspace_bytes = packs ? complex_packed_bytes(p.compute, p.k, p.n) : 0;
  }
  return true;
}

bool complex_batch_invariant(int32_t id, const Problem &p) {
  return complex_supports(id, p, nullptr) && family_of(id) != ComplexFamily::skinny;
}

int complex_rank(const Problem &p, size_t max_workspace_bytes, int capacity, Candidate *candidates) {
  Candidate ranked[complex_count];
  int count = 0;
  for (int i = 0; i < complex_count; i++) {
    size_t bytes = 0;
    const int32_t id = complex_algorithms[i].id;
    if (!complex_supports(id, p, &bytes) || bytes > max_workspace_bytes) continue;
    const Candidate candidate = {id, bytes, predict(family_of(id), p)};
    int at = count++;
    for (; at > 0 && candidate.predicted_us < ranked[at - 1].predicted_us; at--) ranked[at] = ranked[at - 1];
    ranked[at] = candidate;
  }
  if (count > capacity) count = capacity < 0 ? 0 : capacity;
  for (int i = 0; i < count; i++) candidates[i] = ranked[i];
  return count;
}

bool complex_run(int32_t id, const Problem &p, void *workspace, size_t workspace_bytes) {
  size_t needed = 0;
  if (!complex_supports(id, p, &needed) || needed > workspace_bytes || (needed && !workspace)) return false;
  if (empty(p)) return true;
  if (p.compute == Type::c32) {
    run_complex<float>(family_of(id), p, workspace);
  } else {
    run_complex<double>(family_of(id), p, workspace);
  }
  return true;
}

size_t complex_packed_bytes(Type compute, int64_t k, int64_t n) {
  const int64_t width = compute == Type::c32 ? complex_kernels<float>().width : complex_kernels<double>().width;
  return static_cast<size_t>(round_up(n, width) * k) * size_of(compute);
}

void complex_pack(const Matrix &b, Type compute, int64_t k, int64_t n, void *packed) {
  if (compute == Type::c32) {
    pack_all<float>(b, k, n, packed);
  } else {
    pack_all<double>(b, k, n, packed);
  }
}

}  // namespace rocpy_host::gemm
