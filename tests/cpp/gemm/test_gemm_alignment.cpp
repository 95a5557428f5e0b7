// SPDX-License-Identifier: MIT
// Tests of where matrices begin within a cache line and rows within the sets of a cache, with every kernel set.
#include <cstring>
#include <utility>

#include "gemm_check.hpp"
#include "gemm_sets.hpp"
#include "threads.hpp"

namespace gemm_test {
namespace {

// Panels begin where cache lines of b do: where these are changes no bit of the result or of a sum of its columns.
template <class T>
void alignment() {
  const Type type = sizeof(T) == 8 ? Type::f64 : Type::f32;
  const int64_t shapes[][3] = {{40, 1024, 72}, {61, 1100, 300}, {7, 1031, 40}, {300, 520, 130}};
  Random random;
  for (const auto &[m, n, k] : shapes) {
    // Rows are whole cache lines long, so that all begin at the same place of one.
    const int64_t stride = (n + 31) / 16 * 16;
    std::vector<T> a(static_cast<size_t>(m * k)), values(static_cast<size_t>(k * n));
    for (T &x : a) x = static_cast<T>(random.uniform());
    for (T &x : values) x = static_cast<T>(random.uniform());
    for (const Reduction reduction : {Reduction::none, Reduction::result_columns}) {
      for (const int32_t id : {101, 102, 103, 104, 105, 106, 302}) {
        std::vector<T> first_d, first_bias;
        for (const int64_t bytes : {0, 8, 16, 32, 48}) {
          const int64_t shift = bytes / static_cast<int64_t>(sizeof(T));
          std::vector<T> b(static_cast<size_t>(k * stride) + 128 / sizeof(T)),
              d(b.size() + static_cast<size_t>(m * stride)), bias(static_cast<size_t>(n));
          const auto line = [&](std::vector<T> &v) {
            T *start = v.data();
            while (reinterpret_cast<uintptr_t>(start) % 64 != 0) start++;
            return start + shift;
          };
          T *of_b = line(b), *of_d = line(d);
          for (int64_t x = 0; x < k; x++) {
            memcpy(of_b + x * stride, &values[static_cast<size_t>(x * n)], static_cast<size_t>(n) * sizeof(T));
          }
          for (T &x : d) x = 77;
          Problem p;
          p.m = m;
          p.n = n;
          p.k = k;
          p.compute = p.d_type = p.bias_type = p.a.type = p.b.type = type;
          p.a.data = a.data();
          p.a.row_stride = k;
          p.b.data = of_b;
          p.b.row_stride = stride;
          p.a.column_stride = p.b.column_stride = 1;
          p.d = of_d;
          p.d_row_stride = stride;
          p.bias = bias.data();
          p.reduction = reduction;
          size_t needed = 0;
          if (!supports(id, p, &needed)) {
            failures++;
            continue;
          }
          Workspace workspace(needed);
          run(id, p, workspace.start, needed);
          std::vector<T> result;
          for (int64_t i = 0; i < m; i++) {
            result.insert(result.end(), of_d + i * stride, of_d + i * stride + n);
            // Nothing is written between the rows.
            for (int64_t j = n; j < stride; j++) failures += of_d[i * stride + j] != 77;
          }
          if (first_d.empty()) {
            first_d = result;
            first_bias = bias;
          }
          if (memcmp(first_d.data(), result.data(), result.size() * sizeof(T)) != 0 || first_bias != bias) {
            printf("alignment: %lld bytes, algorithm %d\n", static_cast<long long>(bytes), id);
            failures++;
          }
          checks++;
        }
      }
    }
  }
}

// Rows of b that fall on the same cache sets are copied, once or by each task: no bit of the result depends on it.
template <class T>
void far_rows(int64_t k) {
  constexpr int64_t m = 400, n = 176, set_values = 4096 / sizeof(T);
  Random random;
  for (const auto &[batch, matrices] : {std::pair<int64_t, int64_t>{1, 1}, {3, 1}, {3, 3}}) {
    std::vector<T> a(static_cast<size_t>(batch * m * k)), b(static_cast<size_t>(matrices * k * set_values));
    for (T &x : a) x = static_cast<T>(random.uniform());
    for (T &x : b) x = static_cast<T>(random.uniform());
    std::vector<T> dense;
    for (int64_t row = 0; row < matrices * k; row++) {
      dense.insert(dense.end(), b.begin() + row * set_values, b.begin() + row * set_values + n);
    }
    for (const int32_t id : {501, 502}) {
      std::vector<T> first;
      for (const bool far : {false, true}) {
        for (const int threads : {1, 0}) {
          std::vector<T> d(static_cast<size_t>(batch * m * n));
          Problem p;
          p.m = m;
          p.n = n;
          p.k = k;
          p.batch = batch;
          p.compute = p.d_type = p.a.type = p.b.type = sizeof(T) == 8 ? Type::f64 : Type::f32;
          p.a.data = a.data();
          p.a.row_stride = k;
          p.a.batch_stride = m * k;
          p.b.data = far ? b.data() : dense.data();
          p.b.row_stride = far ? set_values : n;
          p.b.batch_stride = matrices == 1 ? 0 : k * p.b.row_stride;
          p.a.column_stride = p.b.column_stride = 1;
          p.d = d.data();
          p.d_row_stride = n;
          p.d_batch_stride = m * n;
          size_t needed = 0;
          if (!supports(id, p, &needed)) continue;
          set_thread_limit(threads);
          Workspace workspace(needed);
          run(id, p, workspace.start, needed);
          set_thread_limit(0);
          if (first.empty()) first = d;
          checks++;
          if (memcmp(first.data(), d.data(), d.size() * sizeof(T)) == 0) continue;
          failures++;
          printf("far rows: algorithm %d, batch %lld of %lld, %d threads\n", id, static_cast<long long>(batch),
                 static_cast<long long>(matrices), threads);
        }
      }
    }
  }
}

}  // namespace
}  // namespace gemm_test

int main() {
  using namespace gemm_test;
  return with_kernel_sets(
      [](const char *) {
        alignment<float>();
        alignment<double>();
        for (const int64_t k : {90, 112}) {
          far_rows<float>(k);
          far_rows<double>(k);
        }
      },
      checks, failures);
}
