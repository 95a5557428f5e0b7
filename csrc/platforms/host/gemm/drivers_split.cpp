// SPDX-License-Identifier: MIT
// The split family, for small results of long sums: k is cut into parts of a fixed length, each part's product goes to
// the workspace, and the parts are added in order. The parts give threads something to share, and shorten the rounding
// chains.
#include <type_traits>

#include "drivers.hpp"

namespace rocpy_host::gemm {
namespace {

constexpr int64_t most_values = int64_t{1} << 16;  // of the result
constexpr int64_t tile_values = 4096;              // added at a time, or one row

static_assert((most_values + tile_values) * sizeof(double) <= scratch_bytes);

template <class T>
struct Join {
  const Kernels<T> &kernel = kernels<T>();
  const Problem &p;
  Finish<T> finish = make_finish<T>(p);
  typename Kernels<T>::Epilogue epilogue = kernel.epilogue(p);
  const T *parts;
  int64_t count, g;
  T *sums;

  void run(int64_t block) const {
    const int64_t padded = round_up(p.n, kernel.tile_columns), rows = block_rows(p);
    const int64_t i0 = block * rows, end = smaller(p.m, i0 + rows);
    Scratch scratch;
    T *tile = scratch.at<T>(0);
    for (int64_t i = i0; i < end; i++) {
      T *to = tile + (i - i0) * padded;
      for (int64_t j = 0; j < p.n; j++) to[j] = parts[i * p.n + j];
      for (int64_t s = 1; s < count; s++) {
        const T *from = parts + (s * p.m + i) * p.n;
        for (int64_t j = 0; j < p.n; j++) to[j] = sum_of(to[j], from[j]);
      }
      for (int64_t j = p.n; j < padded; j++) to[j] = 0;
    }
    T *partial = nullptr;
    if (sums) {
      partial = sums + (g * blocks(p) + block) * p.n;
      for (int64_t j = 0; j < p.n; j++) partial[j] = 0;
    }
    epilogue(finish, tile, padded, {g, i0, 0, end - i0, p.n}, partial);
  }

  static int64_t block_rows(const Problem &p) { return larger(1, tile_values / larger(1, p.n)); }
  static int64_t blocks(const Problem &p) { return divide_up(p.m, block_rows(p)); }
  static void task(void *context, int64_t index) { static_cast<const Join *>(context)->run(index); }
};

int64_t parts_of(const Variant &variant, const Problem &p) { return divide_up(p.k, variant.depth); }

}  // namespace

bool split_takes(const Variant &variant, const Problem &p) {
  return !p.b.packed && p.m <= most_values && p.n <= most_values && p.m * p.n <= most_values &&
         parts_of(variant, p) > 1;
}

size_t split_workspace(const Variant &variant, const Problem &p) {
  const size_t value = p.compute == Type::f64 ? 8 : 4;
  return sums_bytes(p, Join<float>::blocks(p)) + static_cast<size_t>(p.m * p.n * parts_of(variant, p)) * value;
}

template <class T>
void run_split(const Variant &variant, const Problem &p, void *workspace) {
  T *sums = p.reduction == Reduction::result_columns ? static_cast<T *>(workspace) : nullptr;
  T *parts = reinterpret_cast<T *>(static_cast<char *>(workspace) + sums_bytes(p, Join<T>::blocks(p)));
  const int64_t count = effective_k(p) ? parts_of(variant, p) : 1;
  for (int64_t g = 0; g < p.batch; g++) {
    if (effective_k(p)) {
      run_parts<T>(variant, p, g, variant.depth, count, parts);
    } else {
      for (int64_t i = 0; i < p.m * p.n; i++) parts[i] = 0;
    }
    Join<T> join{kernels<T>(), p, make_finish<T>(p), kernels<T>().epilogue(p), parts, count, g, sums};
    const double values = static_cast<double>(p.m * p.n * count);
    parallel_for(Join<T>::blocks(p), useful_threads(values, values * sizeof(T)), Join<T>::task, &join);
  }
  if constexpr (!std::is_same_v<T, int32_t>) {
    if (sums) finish_sums<T>(p, sums, Join<T>::blocks(p));
  }
}

template void run_split<float>(const Variant &, const Problem &, void *);
template void run_split<double>(const Variant &, const Problem &, void *);
template void run_split<int32_t>(const Variant &, const Problem &, void *);

}  // namespace rocpy_host::gemm
