// SPDX-License-Identifier: MIT
// The drivers of complex products: direct (each task packs the panels of b it needs) and blocked (b packed into the
// workspace first, or by the caller). Both add each element's products in ascending k, in one chain, so they agree to
// the bit whatever the blocks and the threads.
#include "complex.hpp"

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
          if (x0 + count == k) kernel.finish(p, sums + i * 2 * width, g, i0 + i, j, some, columns);
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

template <class T>
void run_complex(bool blocked, const Problem &p, void *workspace) {
  ComplexTasks<T> tasks(p);
  if (p.b.packed && tasks.k) tasks.panels = static_cast<const T *>(p.b.data);
  if (!blocked || p.b.packed || tasks.k == 0) return tasks.run_all(0, p.batch);
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

bool empty(const Problem &p) { return p.m == 0 || p.n == 0 || p.batch == 0; }

// Cycles of a nominal core, in its microseconds: arithmetic, and the packing of b once or for every block of rows.
float predict(bool blocked, const Problem &p) {
  if (empty(p)) return 0;
  const double lanes = (p.compute == Type::c32 ? complex_kernels<float>().width : complex_kernels<double>().width) / 2;
  const double m = static_cast<double>(p.m), n = static_cast<double>(p.n), k = static_cast<double>(p.k);
  const double pack = p.b.packed ? 0 : k * n * (p.b.column_stride == 1 ? 0.4 : 1.2);
  const double times = blocked ? 1.2 : static_cast<double>(divide_up(p.m, panel_rows));
  const double cycles = m * n * k * 2 / lanes + m * k * 1.5 + pack * times + (blocked ? 1500 : 0);
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
  const bool blocked = id == complex_algorithms[1].id;
  if (workspace_bytes) {
    *workspace_bytes = blocked && !p.b.packed && !empty(p) ? complex_packed_bytes(p.compute, p.k, p.n) : 0;
  }
  return true;
}

int complex_rank(const Problem &p, size_t max_workspace_bytes, int capacity, Candidate *candidates) {
  Candidate ranked[complex_count];
  int count = 0;
  for (int i = 0; i < complex_count; i++) {
    size_t bytes = 0;
    if (!complex_supports(complex_algorithms[i].id, p, &bytes) || bytes > max_workspace_bytes) continue;
    ranked[count++] = {complex_algorithms[i].id, bytes, predict(i == 1, p)};
  }
  if (count == 2 && ranked[1].predicted_us < ranked[0].predicted_us) {
    const Candidate direct = ranked[0];
    ranked[0] = ranked[1];
    ranked[1] = direct;
  }
  if (count > capacity) count = capacity < 0 ? 0 : capacity;
  for (int i = 0; i < count; i++) candidates[i] = ranked[i];
  return count;
}

bool complex_run(int32_t id, const Problem &p, void *workspace, size_t workspace_bytes) {
  size_t needed = 0;
  if (!complex_supports(id, p, &needed) || needed > workspace_bytes || (needed && !workspace)) return false;
  if (empty(p)) return true;
  const bool blocked = id == complex_algorithms[1].id;
  if (p.compute == Type::c32) {
    run_complex<float>(blocked, p, workspace);
  } else {
    run_complex<double>(blocked, p, workspace);
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
