// SPDX-License-Identifier: MIT
// Tests of the functions of tile programs: errors against long double, limits, NaN and signs of zero.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "gemm_check.hpp"
#include "isa.hpp"
#include "program_builder.hpp"

namespace gemm_test {
namespace {

using Real = long double;
constexpr double infinity = std::numeric_limits<double>::infinity();

// A row of numbers times 1, with a program of one instruction.
std::vector<double> apply(int opcode, Type type, const std::vector<double> &x) {
  Builder b;
  const int value = b.value();
  require(!b.finish(b.step(opcode, value, value, value)), "a program of one instruction is taken");
  Buffer in, out, one;
  const int64_t n = static_cast<int64_t>(x.size());
  in.make(type, 1, 1, n, 0, 0);
  out.make(type, 1, 1, n, 0, 0);
  one.make(type, 1, 1, 1, 0, 0);
  one.set(0, 0, 0, 1);
  for (int64_t i = 0; i < n; i++) in.set(0, 0, i, x[static_cast<size_t>(i)]);
  out.remember();
  Problem p;
  p.m = p.k = 1;
  p.n = n;
  p.compute = type;
  p.a = {one.data(), 1, 1, 0, type, false, false, {}};
  p.b = {in.data(), n, 1, 0, type, false, false, {}};
  p.d = out.data();
  p.d_type = type;
  p.d_row_stride = n;
  p.program = &b.bound;
  Candidate best;
  require(rank(p, 0, 1, &best) == 1 && run(best.id, p, nullptr, 0), "a program runs");
  require(out.guards_hold(), "a program writes its result only");
  std::vector<double> y(x.size());
  for (int64_t i = 0; i < n; i++) y[static_cast<size_t>(i)] = out.get(0, 0, i);
  return y;
}

double spacing(Type type, double x) {
  const int digits = type == Type::f32 ? 24 : 53, least = type == Type::f32 ? -149 : -1074;
  if (x == 0) return std::ldexp(1.0, least);
  return std::ldexp(1.0, std::max(std::ilogb(x) + 1 - digits, least));
}

Real gelu_erf_of(Real x) { return std::isinf(x) ? (x > 0 ? x : 0) : x / 2 * std::erfc(-x / std::sqrt(Real{2})); }
Real normal_density(Real x) { return std::exp(-x * x / 2) / std::sqrt(2 * std::acos(Real{-1})); }
Real sigmoid_of(Real x) { return 1 / (1 + std::exp(-x)); }

struct Function {
  int opcode;
  const char *name;
  double low, high;
  double ulps;   // of the result
  double floor;  // absolute, in ulps of 1
  std::function<Real(Real)> exact;
};

std::vector<Function> functions() {
  return {
      {ROCPY_EXT_OP_EXP, "exp", -800, 800, 2, 0, [](Real x) { return std::exp(x); }},
      {ROCPY_EXT_OP_EXPM1, "expm1", -60, 60, 3, 0, [](Real x) { return std::expm1(x); }},
      {ROCPY_EXT_OP_LOG, "log", 0, 3, 2, 0, [](Real x) { return std::log(x); }},
      {ROCPY_EXT_OP_LOG, "log", 0, 1e30, 2, 0, [](Real x) { return std::log(x); }},
      {ROCPY_EXT_OP_SQRT, "sqrt", 0, 1e9, 0.51, 0, [](Real x) { return std::sqrt(x); }},
      {ROCPY_EXT_OP_RSQRT, "rsqrt", 0, 1e9, 2, 0, [](Real x) { return 1 / std::sqrt(x); }},
      {ROCPY_EXT_OP_TANH, "tanh", -25, 25, 4, 0, [](Real x) { return std::tanh(x); }},
      {ROCPY_EXT_OP_TANH, "tanh", -0.5, 0.5, 4, 0, [](Real x) { return std::tanh(x); }},
      {ROCPY_EXT_OP_ERF, "erf", -6, 6, 4, 0, [](Real x) { return std::erf(x); }},
      {ROCPY_EXT_OP_ERF, "erf", -0.01, 0.01, 4, 0, [](Real x) { return std::erf(x); }},
      {ROCPY_EXT_OP_ERFC, "erfc", -6, 27, 5, 0, [](Real x) { return std::erfc(x); }},
      {ROCPY_EXT_OP_GELU_ERF, "gelu_erf", -13, 40, 6, 0, gelu_erf_of},
      {ROCPY_EXT_OP_GELU_ERF, "gelu_erf", -0.02, 0.02, 6, 0, gelu_erf_of},
      {ROCPY_EXT_OP_GELU_ERF_GRADIENT, "gelu_erf'", -50, 50, 4, 1,
       [](Real x) { return std::erfc(-x / std::sqrt(Real{2})) / 2 + x * normal_density(x); }},
      {ROCPY_EXT_OP_SILU, "silu", -800, 90, 4, 0, [](Real x) { return x * sigmoid_of(x); }},
      {ROCPY_EXT_OP_SILU_GRADIENT, "silu'", -800, 800, 4, 1,
       [](Real x) { return x < -700 ? 0 : sigmoid_of(x) * (1 + x * sigmoid_of(-x)); }},
      {ROCPY_EXT_OP_SIGMOID, "sigmoid", -800, 90, 4, 0, sigmoid_of},
      {ROCPY_EXT_OP_FLOOR, "floor", -9e6, 9e6, 0, 0, [](Real x) { return std::floor(x); }},
      {ROCPY_EXT_OP_CEIL, "ceil", -9, 9, 0, 0, [](Real x) { return std::ceil(x); }},
      {ROCPY_EXT_OP_TRUNC, "trunc", -9, 9, 0, 0, [](Real x) { return std::trunc(x); }},
      {ROCPY_EXT_OP_RINT, "rint", -9, 9, 0, 0, [](Real x) { return std::rint(x); }},
  };
}

void accuracy(Type type) {
  const double one = spacing(type, 1);
  for (const Function &f : functions()) {
    Random random;
    std::vector<double> x;
    for (int i = 0; i < 20000; i++) {
      double drawn = f.low + (f.high - f.low) * 0.5 * (random.uniform() + 1);
      // As many near the end at 0, if there is one, as elsewhere.
      if (i % 2 && f.low == 0) {
        drawn *= std::exp2(-static_cast<double>(random.integer(0, type == Type::f32 ? 140 : 900)));
      }
      x.push_back(type == Type::f32 ? static_cast<double>(static_cast<float>(drawn)) : drawn);
    }
    const std::vector<double> y = apply(f.opcode, type, x);
    const double most = type == Type::f32 ? std::numeric_limits<float>::max() : std::numeric_limits<double>::max();
    double worst = 0, at = 0;
    for (size_t i = 0; i < x.size(); i++) {
      const Real exact = f.exact(static_cast<Real>(x[i]));
      const double want = static_cast<double>(exact);
      if (std::fabs(want) > most || !std::isfinite(y[i])) {
        require(y[i] == (want > 0 ? infinity : -infinity) && std::fabs(want) > most * 0.99999, f.name);
        continue;
      }
      const double error = static_cast<double>(std::fabs(static_cast<Real>(y[i]) - exact));
      const double units = error / spacing(type, want);
      if (error > f.floor * one && units > worst) {
        worst = units;
        at = x[i];
      }
    }
    checks++;
    if (worst > f.ulps && failures++ < 25) {
      printf("FAILED %s errs by %.2f ulp at %.17g in type %d [%s]\n", f.name, worst, at, static_cast<int>(type),
             isa_name());
    }
  }
}

// Limits at infinity, NaN, signs of zero.
void special(Type type) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  struct {
    int opcode;
    double x, y;
  } const rows[] = {
      {ROCPY_EXT_OP_EXP, infinity, infinity},
      {ROCPY_EXT_OP_EXP, -infinity, 0.0},
      {ROCPY_EXT_OP_EXPM1, -infinity, -1.0},
      {ROCPY_EXT_OP_EXPM1, -0.0, -0.0},
      {ROCPY_EXT_OP_LOG, 0.0, -infinity},
      {ROCPY_EXT_OP_LOG, -1.0, nan},
      {ROCPY_EXT_OP_LOG, infinity, infinity},
      {ROCPY_EXT_OP_LOG, 1.0, 0.0},
      {ROCPY_EXT_OP_SQRT, -1.0, nan},
      {ROCPY_EXT_OP_RSQRT, 0.0, infinity},
      {ROCPY_EXT_OP_TANH, infinity, 1.0},
      {ROCPY_EXT_OP_TANH, -infinity, -1.0},
      {ROCPY_EXT_OP_TANH, -0.0, -0.0},
      {ROCPY_EXT_OP_ERF, infinity, 1.0},
      {ROCPY_EXT_OP_ERF, -infinity, -1.0},
      {ROCPY_EXT_OP_ERF, -0.0, -0.0},
      {ROCPY_EXT_OP_ERFC, infinity, 0.0},
      {ROCPY_EXT_OP_ERFC, -infinity, 2.0},
      {ROCPY_EXT_OP_GELU_ERF, infinity, infinity},
      {ROCPY_EXT_OP_GELU_ERF, -infinity, -0.0},
      {ROCPY_EXT_OP_GELU_ERF, -1e4, -0.0},
      {ROCPY_EXT_OP_GELU_ERF_GRADIENT, infinity, 1.0},
      {ROCPY_EXT_OP_GELU_ERF_GRADIENT, -infinity, -0.0},
      {ROCPY_EXT_OP_SILU_GRADIENT, infinity, 1.0},
      {ROCPY_EXT_OP_SILU_GRADIENT, -infinity, -0.0},
      {ROCPY_EXT_OP_CEIL, -0.5, -0.0},
      {ROCPY_EXT_OP_FLOOR, -0.0, -0.0},
      {ROCPY_EXT_OP_RINT, 2.5, 2.0},
      {ROCPY_EXT_OP_TRUNC, -infinity, -infinity},
      {ROCPY_EXT_OP_FLOOR, 1e30, 1e30},
      {ROCPY_EXT_OP_NOT, nan, 0.0},
      {ROCPY_EXT_OP_NOT, -0.0, 1.0},
      {ROCPY_EXT_OP_EQ, nan, 0.0},
      {ROCPY_EXT_OP_NE, nan, 1.0},
      {ROCPY_EXT_OP_AND, nan, 1.0},
      {ROCPY_EXT_OP_GE, 3.0, 1.0},
      {ROCPY_EXT_OP_RELU, -3.0, 0.0},
      {ROCPY_EXT_OP_WHERE, nan, nan},
  };
  for (const auto &row : rows) {
    // Sums begin with +0: -0 arrives where it is asked for only as a product of its own.
    const double y = apply(row.opcode, type, {row.x, row.x})[1];
    checks++;
    const double rounded = type == Type::f32 ? static_cast<double>(static_cast<float>(row.y)) : row.y;
    const bool same =
        std::isnan(row.y) ? std::isnan(y) : y == rounded && (row.x == 0 || std::signbit(y) == std::signbit(row.y));
    if (!same && failures++ < 25) {
      printf("FAILED opcode %d of %g is %g, not %g [%s]\n", row.opcode, row.x, y, row.y, isa_name());
    }
  }
  for (const Function &f : functions()) require(std::isnan(apply(f.opcode, type, {nan})[0]), f.name);
  for (int opcode : {ROCPY_EXT_OP_MIN, ROCPY_EXT_OP_MAX, ROCPY_EXT_OP_ABS, ROCPY_EXT_OP_RELU, ROCPY_EXT_OP_GELU}) {
    require(std::isnan(apply(opcode, type, {nan})[0]), "NaN stays NaN");
  }
}

}  // namespace
}  // namespace gemm_test

int main() {
  using namespace gemm_test;
  for (const char *isa : {"avx512", "avx2", "neon", "baseline"}) {
    if (!rocpy_host::gemm::use_kernel_set(isa)) continue;
    for (Type type : {Type::f32, Type::f64}) {
      accuracy(type);
      special(type);
    }
  }
  printf("%lld checks, %d failures\n", static_cast<long long>(checks), failures);
  return failures != 0;
}
