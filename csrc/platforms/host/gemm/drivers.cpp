// SPDX-License-Identifier: MIT
// What the drivers share: scratch, the number of threads, and the sums of bias gradients.
#include "drivers.hpp"

#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <mutex>

namespace rocpy_host::gemm {
namespace {

struct ThreadScratch {
  char *data = nullptr;
  ~ThreadScratch() { free(data); }
};
thread_local ThreadScratch thread_scratch;

std::mutex shared_lock;
alignas(64) char shared_scratch[scratch_bytes];

}  // namespace

Scratch::Scratch() {
  if (!thread_scratch.data) thread_scratch.data = static_cast<char *>(aligned_alloc(4096, scratch_bytes));
  data_ = thread_scratch.data;
  if (!data_) {
    shared_lock.lock();
    shared_ = true;
    data_ = shared_scratch;
  }
}

Scratch::~Scratch() {
  if (shared_) shared_lock.unlock();
}

bool multiplies_pairs(const Problem &p) {
  const auto taken = [](const Matrix &m) { return !staged(m) && element_index(m.type) >= element_index(Type::bf16); };
  if (p.compute != Type::f32 || !taken(p.a) || !taken(p.b) || !kernel_set().pairs) return false;
  // Of few rows strips read packed panels, two rows of them at a time.
  if (p.b.packed && p.k % 2 == 0 && p.m <= max_strip_rows &&
      kernel_set().pairs->elements[element_index(p.b.type)]->strips.panels[p.m]) {
    return true;
  }
  // Bytes are widened in any case.
  return p.m > (p.b.type == Type::bf16 ? tile_rows_of(p) : max_thin_rows - 1);
}

bool multiplies_few_pairs(const Problem &p) {
  if (p.compute != Type::f32 || p.b.packed || staged(p.a) || staged(p.b) || !kernel_set().pairs) return false;
  const int halves = element_index(Type::bf16), a = element_index(p.a.type), b = element_index(p.b.type);
  if (a != halves || b != halves) return a > halves && b > halves;
  // Fewer rows of halves wait for memory.
  return smaller(p.m, p.n) > 3;
}

int64_t panels_bytes(Type type, int64_t k, int64_t n) {
  return round_up(n, kernels<float>().tile_columns) * k * static_cast<int64_t>(size_of(type));
}

int least_packed(const Problem &p) {
  if (p.b.type != Type::bf16) return least_byte;
  if (effective_k(p) == 0) return no_magnitude;
  int least;
  std::memcpy(&least, static_cast<const char *>(p.b.data) + panels_bytes(p.b.type, p.k, p.n), sizeof least);
  return least;
}

bool loses_nothing(int least_left, int least_right) {
  constexpr int mantissa = 7, bias = 127, least_normal = 1 << mantissa;
  if (least_left < least_normal || least_right < least_normal) return false;
  const int exponents = (least_left >> mantissa) + (least_right >> mantissa) - 2 * bias;
  return exponents - 2 * mantissa > -bias;
}

int useful_threads(double multiplications, double bytes) {
  // About ten microseconds of one thread: less does not pay for waking another.
  const double shares = multiplications * 1e-6 + bytes * 4e-6;
  return shares < 2 ? 1 : shares > 1024 ? 1024 : static_cast<int>(shares);
}

int threads_for(double multiplications, double bytes) {
  const int useful = useful_threads(multiplications, bytes);
  return useful == 1 ? 1 : static_cast<int>(smaller(useful, thread_count()));
}

int64_t shared_evenly(const TaskCounts &counts, int64_t units, int64_t alike, int64_t threads) {
  const int64_t wanted = counts.wanted, fewest = larger(counts.least, divide_up(wanted, 2));
  int64_t best = wanted, least = alike * units;
  for (int64_t i = 0; i <= wanted; i++) {
    for (const int64_t tasks : {wanted + i, larger(wanted - i, fewest)}) {
      const int64_t each = divide_up(units, tasks), all = alike * divide_up(units, each);
      const int64_t longest = divide_up(all, threads) * each;
      if (longest < least && (i == 0 || tasks <= counts.most)) best = tasks, least = longest;
    }
  }
  return best;
}

namespace {

template <class T>
struct SumTasks {
  const Problem &p;
  const T *partial;
  int64_t blocks, count, groups;
  static constexpr int64_t group_columns = 256;

  // Partial sums of the result's columns, in the order of batch entries (if these share a gradient) and blocks.
  void join(int64_t index) const {
    const bool shared = p.bias_batch_stride == 0;
    const int64_t g = index / groups, j0 = index % groups * group_columns, some = smaller(group_columns, p.n - j0);
    T total[group_columns];
    for (int64_t j = 0; j < some; j++) total[j] = 0;
    for (int64_t b = 0; b < blocks * (shared ? p.batch : 1); b++) {
      const T *from = partial + (g * blocks + b) * p.n + j0;
      for (int64_t j = 0; j < some; j++) total[j] += from[j];
    }
    kernels<T>().write(p.bias, p.bias_type, g * p.bias_batch_stride + j0, total, some);
  }

  // Of elements that a scale multiplies, the sums are multiplied by it.
  void rescale(const Scale &scale, int64_t g, int64_t first, int64_t some, T *sums) const {
    if (scale.kind == ScaleKind::none) return;
    const float *values = static_cast<const float *>(scale.data) + g * scale.batch_stride;
    for (int64_t j = 0; j < some; j++) {
      sums[j] *= static_cast<T>(scale.kind == ScaleKind::vector ? values[first + j] : values[0]);
    }
  }

  void operand(int64_t index) const {
    const bool rows = p.reduction == Reduction::a_rows, shared = p.bias_batch_stride == 0;
    const Matrix &m = rows ? p.a : p.b;
    const int64_t x_stride = rows ? m.column_stride : m.row_stride, c_stride = rows ? m.row_stride : m.column_stride;
    const int64_t g = index / groups, c = index % groups * group_columns, some = smaller(group_columns, count - c);
    T total[group_columns], part[group_columns];
    const auto sum = kernels<T>().elements[element_index(m.type)]->sum;
    for (int64_t b = 0; b < (shared ? p.batch : 1); b++) {
      sum(offset(m.data, m.type, (g + b) * m.batch_stride + c * c_stride), x_stride, c_stride, p.k, some,
          b ? part : total);
      rescale(m.scale, g + b, c, some, b ? part : total);
      for (int64_t j = 0; b && j < some; j++) total[j] += part[j];
    }
    kernels<T>().write(p.bias, p.bias_type, g * p.bias_batch_stride + c, total, some);
  }

  static void join_task(void *context, int64_t index) { static_cast<const SumTasks *>(context)->join(index); }
  static void operand_task(void *context, int64_t index) { static_cast<const SumTasks *>(context)->operand(index); }
};

int64_t gradients(const Problem &p) { return p.bias_batch_stride == 0 ? smaller(1, p.batch) : p.batch; }

}  // namespace

template <class T>
void finish_sums(const Problem &p, const T *sums, int64_t blocks) {
  SumTasks<T> tasks{p, sums, blocks, p.n, divide_up(p.n, SumTasks<T>::group_columns)};
  const double values = static_cast<double>(blocks * p.batch * p.n);
  parallel_for(gradients(p) * tasks.groups, useful_threads(0, values * sizeof(T)), SumTasks<T>::join_task, &tasks);
}

template <class T>
void operand_sums(const Problem &p) {
  const int64_t count = p.reduction == Reduction::a_rows ? p.m : p.n;
  SumTasks<T> tasks{p, nullptr, 0, count, divide_up(count, SumTasks<T>::group_columns)};
  const double bytes = static_cast<double>(p.batch) * static_cast<double>(count) * static_cast<double>(p.k) * sizeof(T);
  parallel_for(gradients(p) * tasks.groups, useful_threads(0, bytes), SumTasks<T>::operand_task, &tasks);
}

template void finish_sums<float>(const Problem &, const float *, int64_t);
template void finish_sums<double>(const Problem &, const double *, int64_t);
template void operand_sums<float>(const Problem &);
template void operand_sums<double>(const Problem &);

}  // namespace rocpy_host::gemm
