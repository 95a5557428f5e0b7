// SPDX-License-Identifier: MIT
// Complex products of the engine against a reference in double: sizes around tiles and blocks, any strides, conjugates,
// complex alpha and beta, bias, batches, packed operands; equal bits of the two algorithms of tiles; NaN and infinity.
#include <cmath>
#include <complex>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "check.hpp"
#include "complex.hpp"
#include "isa.hpp"
#include "threads.hpp"

namespace {

using namespace rocpy_host::gemm;

struct Case {
  int64_t m = 5, n = 7, k = 9, batch = 1;
  bool a_by_rows = true, b_by_rows = true, a_conjugated = false, b_conjugated = false, shared_b = false, packed = false;
  int bias = 0;  // 1: along columns, 2: along rows
  std::complex<double> alpha{1, 0}, beta{0, 0};
};

template <class T>
std::vector<std::complex<T>> random_values(int64_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<double> normal;
  std::vector<std::complex<T>> values(size_t(count) + 1);
  for (auto &value : values) value = {T(normal(generator)), T(normal(generator))};
  return values;
}

// The operands of a case, and what is in the result's memory before.
template <class T>
struct Data {
  using Values = std::vector<std::complex<T>>;
  static constexpr Type type = sizeof(T) == 4 ? Type::c32 : Type::c64;
  Case c;
  int64_t ld_a, ld_b, ld_d, size_a, size_b, size_d;
  Values a, b, before, bias;
  std::vector<char> packed;

  explicit Data(const Case &wanted)
      : c(wanted),
        ld_a((c.a_by_rows ? c.k : c.m) + 3),
        ld_b((c.b_by_rows ? c.n : c.k) + 2),
        ld_d(c.n + 5),
        size_a(ld_a * (c.a_by_rows ? c.m : c.k)),
        size_b(ld_b * (c.b_by_rows ? c.k : c.n)),
        size_d(ld_d * c.m),
        a(random_values<T>(size_a * c.batch, 1)),
        b(random_values<T>(size_b * c.batch, 2)),
        before(random_values<T>(size_d * c.batch, 3)),
        bias(random_values<T>(c.m + c.n, 4)) {}

  bool shares_b() const { return c.shared_b || c.packed; }

  Problem problem() {
    Problem p;
    p.m = c.m;
    p.n = c.n;
    p.k = c.k;
    p.batch = c.batch;
    p.compute = p.d_type = p.bias_type = p.aux_type = p.a.type = p.b.type = type;
    p.a.data = a.data();
    p.a.row_stride = c.a_by_rows ? ld_a : 1;
    p.a.column_stride = c.a_by_rows ? 1 : ld_a;
    p.a.batch_stride = size_a;
    p.a.conjugated = c.a_conjugated;
    p.b.data = b.data();
    p.b.row_stride = c.b_by_rows ? ld_b : 1;
    p.b.column_stride = c.b_by_rows ? 1 : ld_b;
    p.b.batch_stride = shares_b() ? 0 : size_b;
    p.b.conjugated = c.b_conjugated;
    if (c.packed) {
      packed.resize(packed_bytes(type, type, c.k, c.n) + 64);
      char *aligned = packed.data() + (64 - reinterpret_cast<uintptr_t>(packed.data()) % 64) % 64;
      pack(p.b, type, c.k, c.n, aligned);
      p.b.data = aligned;
      p.b.packed = true;
    }
    p.c_row_stride = p.d_row_stride = ld_d;
    p.c_batch_stride = p.d_batch_stride = size_d;
    p.alpha = c.alpha.real();
    p.alpha_imaginary = c.alpha.imag();
    p.beta = c.beta.real();
    p.beta_imaginary = c.beta.imag();
    p.has_bias = c.bias != 0;
    p.bias_per_row = c.bias == 2;
    p.bias = bias.data();
    return p;
  }

  // Whether an element of the result is what it should be, as near as rounding allows.
  bool is_right(std::complex<double> got, int64_t g, int64_t i, int64_t j) const {
    std::complex<double> sum = 0;
    double magnitude = 0;
    for (int64_t x = 0; x < c.k; x++) {
      const int64_t of_a = c.a_by_rows ? i * ld_a + x : i + x * ld_a, of_b = c.b_by_rows ? x * ld_b + j : x + j * ld_b;
      std::complex<double> u = a[size_t(g * size_a + of_a)];
      std::complex<double> v = b[size_t((shares_b() ? 0 : g * size_b) + of_b)];
      if (c.a_conjugated) u = std::conj(u);
      if (c.b_conjugated) v = std::conj(v);
      sum += u * v;
      magnitude += 2 * std::abs(u) * std::abs(v);
    }
    const std::complex<double> old = before[size_t(g * size_d + i * ld_d + j)];
    std::complex<double> wanted = c.alpha * sum + c.beta * old;
    magnitude = std::abs(c.alpha) * magnitude + std::abs(c.beta) * std::abs(old);
    if (c.bias) {
      const std::complex<double> added = bias[size_t(c.bias == 2 ? i : j)];
      wanted += added;
      magnitude += std::abs(added);
    }
    // 2k fused steps (twice the roundings without them), then at most eight more operations, each rounded.
    const double bound = (4.0 * double(c.k) + 8) * std::numeric_limits<T>::epsilon() / 2 * magnitude;
    return std::abs(got - wanted) <= bound;
  }

  // Elements that are wrong, and those between the rows that were written.
  int count_wrong(const Values &d) const {
    int wrong = 0;
    for (int64_t g = 0; g < c.batch; g++) {
      for (int64_t i = 0; i < c.m; i++) {
        for (int64_t j = 0; j < ld_d; j++) {
          const size_t at = size_t(g * size_d + i * ld_d + j);
          const bool untouched = std::memcmp(&d[at], &before[at], sizeof d[at]) == 0;
          wrong += j < c.n ? !is_right(d[at], g, i, j) : !untouched;
        }
      }
    }
    return wrong;
  }
};

// Each algorithm that takes a case, with one thread and with all, is right and has the same bits. Returns the results
// of those whose tiles have the same bits too.
template <class T>
std::vector<std::vector<std::complex<T>>> run_case(const Case &c) {
  Data<T> data(c);
  Problem p = data.problem();
  Candidate candidates[8];
  const int count = rank(p, size_t{1} << 32, 8, candidates);
  CHECK(count >= 2);
  std::vector<std::vector<std::complex<T>>> results;
  for (int which = 0; which < count; which++) {
    const Candidate &candidate = candidates[which];
    std::vector<char> workspace(candidate.workspace_bytes + 256);
    char *aligned = workspace.data() + (256 - reinterpret_cast<uintptr_t>(workspace.data()) % 256) % 256;
    auto d = data.before;  // the product is written over C
    p.c = p.d = d.data();
    if (candidate.workspace_bytes) CHECK(!run(candidate.id, p, aligned, candidate.workspace_bytes - 1));
    rocpy_host::set_thread_limit(1);
    CHECK(run(candidate.id, p, aligned, candidate.workspace_bytes));
    rocpy_host::set_thread_limit(0);
    const int wrong = data.count_wrong(d);
    if (wrong) {
      std::fprintf(stderr, "%s: m %lld n %lld k %lld batch %lld: %d elements are wrong\n", algorithm_name(candidate.id),
                   (long long)c.m, (long long)c.n, (long long)c.k, (long long)c.batch, wrong);
    }
    CHECK(wrong == 0);
    auto again = data.before;
    p.c = p.d = again.data();
    CHECK(run(candidate.id, p, aligned, candidate.workspace_bytes));
    CHECK(std::memcmp(d.data(), again.data(), d.size() * sizeof d[0]) == 0);
    if (batch_invariant(candidate.id, p)) results.push_back(d);
  }
  CHECK_EQUAL(int(results.size()), 2);
  CHECK(std::memcmp(results[0].data(), results[1].data(), results[0].size() * sizeof results[0][0]) == 0);
  return results;
}

// Few rows or columns, of which groups are made, against lines of all kinds: shorter and longer than vectors and than
// what is held of k, more than a task takes, and of one column alone.
template <class T>
void few() {
  const struct {
    int64_t few, many, k;
  } shapes[] = {{1, 1, 1},   {1, 1, 37},  {1, 3, 64},   {2, 9, 33},    {3, 70, 5},
                {4, 5, 40},  {5, 33, 17}, {7, 2, 129},  {13, 6, 8},    {16, 40, 21},
                {1, 600, 1}, {3, 530, 9}, {2, 3, 4097}, {1, 1200, 70}, {15, 17, 300}};
  int turn = 0;
  for (const auto &shape : shapes) {
    for (int bits = 0; bits < 8; bits++, turn++) {
      Case c;
      c.m = bits & 1 ? shape.few : shape.many;
      c.n = bits & 1 ? shape.many : shape.few;
      c.k = shape.k;
      c.a_by_rows = bits & 2;
      c.b_by_rows = bits & 4;
      c.a_conjugated = turn % 3 == 0;
      c.b_conjugated = turn % 4 < 2;
      c.batch = shape.k < 100 && turn % 5 == 0 ? 3 : 1;
      c.shared_b = turn % 2;
      if (turn % 7 == 0) c.alpha = {0.5, -2};
      if (turn % 3 == 1) c.beta = {0.25, 1};
      c.bias = turn % 3;
      run_case<T>(c);
    }
  }
}

template <class T>
void sizes() {
  for (int64_t m : {1, 2, 5, 6, 7, 13, 47, 48, 49, 97}) {
    for (int64_t n : {1, 3, 8, 16, 31, 32, 33, 65}) {
      Case c;
      c.m = m;
      c.n = n;
      c.k = (m * 5 + n * 3) % 40;
      c.a_by_rows = m % 2;
      c.b_by_rows = n % 2;
      run_case<T>(c);
    }
  }
  for (int64_t k : {255, 256, 257, 513}) {
    Case c;
    c.m = 50;
    c.n = 40;
    c.k = k;
    c.beta = {0.5, -1};
    run_case<T>(c);
  }
  Case wide;
  wide.n = 1100;
  wide.m = 100;
  run_case<T>(wide);
}

template <class T>
void options() {
  for (int bits = 0; bits < 64; bits++) {
    Case c;
    c.m = 11;
    c.n = 35;
    c.k = 20;
    c.a_conjugated = bits & 1;
    c.b_conjugated = bits & 2;
    c.a_by_rows = bits & 4;
    c.b_by_rows = bits & 8;
    c.packed = bits & 16;
    c.bias = bits % 3;
    c.batch = bits & 32 ? 3 : 1;
    c.shared_b = bits % 5 == 0;
    c.alpha = {0.5, bits % 2 ? -1.25 : 0.0};
    c.beta = {bits % 4 ? 0.75 : 0.0, bits % 7 ? 0.0 : 2.0};
    run_case<T>(c);
  }
}

template <class T>
void rules() {
  const Type type = sizeof(T) == 4 ? Type::c32 : Type::c64;
  const T nan = std::numeric_limits<T>::quiet_NaN(), infinity = std::numeric_limits<T>::infinity();
  std::complex<T> a[4] = {{1, 2}, {3, 4}, {5, 6}, {7, 8}}, d[4], c[4];
  for (int i = 0; i < 4; i++) d[i] = c[i] = {nan, nan};
  Problem p;
  p.m = p.n = p.k = 2;
  p.compute = p.d_type = p.bias_type = p.aux_type = p.a.type = p.b.type = type;
  p.a.data = p.b.data = a;
  p.a.row_stride = p.b.row_stride = p.c_row_stride = p.d_row_stride = 2;
  p.a.column_stride = p.b.column_stride = 1;
  p.c = c;
  p.d = d;
  CHECK(run(601, p, nullptr, 0));  // beta is 0: C is not read
  CHECK(d[0] == (std::complex<T>{1, 2} * std::complex<T>{1, 2} + std::complex<T>{3, 4} * std::complex<T>{5, 6}));
  // Without operands and with alpha 0 there is no product.
  p.a.data = p.b.data = nullptr;
  p.alpha = 0;
  CHECK(run(601, p, nullptr, 0));
  for (const auto &value : d) CHECK(value == std::complex<T>(0, 0));
  // A real alpha keeps the parts apart.
  a[0] = {infinity, 1};
  std::complex<T> one[4] = {{1, 0}, {0, 0}, {0, 0}, {1, 0}};
  p.k = 1;
  p.m = p.n = 1;
  p.c = one;
  p.a.data = p.b.data = nullptr;
  c[0] = {infinity, 1};
  p.c = c;
  p.beta = 2;
  CHECK(run(601, p, nullptr, 0));
  CHECK(d[0].real() == infinity && d[0].imag() == 2);
  // What complex products do not take.
  p.activation = Activation::relu;
  CHECK(!run(601, p, nullptr, 0));
  p.activation = Activation::none;
  CHECK(!run(101, p, nullptr, 0));
  p.b.type = type == Type::c32 ? Type::c64 : Type::c32;
  CHECK(!run(601, p, nullptr, 0));
  Candidate candidate;
  CHECK_EQUAL(rank(p, 0, 1, &candidate), 0);
}

// A row's bits are the same whatever other rows there are.
template <class T>
void row_bits() {
  Case c;
  c.n = 37;
  c.k = 300;
  c.m = 1;
  const auto alone = run_case<T>(c);
  for (int64_t m : {2, 7, 50}) {
    c.m = m;
    const auto many = run_case<T>(c);
    CHECK(std::memcmp(alone[0].data(), many[0].data(), size_t(c.n) * sizeof alone[0][0]) == 0);
  }
}

}  // namespace

int main() {
  int sets = 0;
  for (const char *name : {"avx512", "avx2", "neon", "baseline"}) {
    if (!use_kernel_set(name)) continue;
    sets++;
    sizes<float>();
    sizes<double>();
    few<float>();
    few<double>();
    options<float>();
    options<double>();
    rules<float>();
    rules<double>();
    row_bits<float>();
    row_bits<double>();
  }
  CHECK(sets > 0);
  for (int i = 0; i < algorithm_count(); i++) {
    for (int j = 0; j < i; j++) CHECK(algorithm(i).id != algorithm(j).id);
    CHECK(std::strcmp(algorithm_name(algorithm(i).id), algorithm(i).name) == 0);
  }
  return failures ? 1 : 0;
}
