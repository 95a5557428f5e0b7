// SPDX-License-Identifier: MIT
// Runs one case with every algorithm that takes it and compares with a reference in double, within bounds that follow
// from the sums.
#pragma once

#include "gemm_case.hpp"
#include "threads.hpp"

namespace gemm_test {
namespace {

int failures = 0;
int64_t checks = 0;

void fail(const std::string &what, const Case &c, int32_t id) {
  if (failures++ < 25) printf("FAILED %s [%s %s] %s\n", what.c_str(), isa_name(), algorithm_name(id), c.text().c_str());
}

struct Expected {
  std::vector<double> d, d_bound, aux, aux_bound, bias, bias_bound;
  double amax = 0, amax_bound = 0;
};

double activate(const Case &c, double x, double e) {
  switch (c.activation) {
    case Activation::relu:
      return x > 0 ? x : 0;
    case Activation::gelu:
      return gelu(x);
    case Activation::silu:
      return x * sigmoid(x);
    case Activation::sigmoid:
      return sigmoid(x);
    case Activation::clamp:
      return std::fmax(c.low, std::fmin(c.high, x));
    case Activation::drelu:
      return e > 0 ? x : 0;
    case Activation::dgelu:
      return x * gelu_gradient(e);
    default:
      return x;
  }
}

Expected reference(const Operands &o) {
  const Case &c = o.c;
  const double eps = o.compute == Type::f64 ? 0x1p-53 : 0x1p-24;
  Expected r;
  size_t values = static_cast<size_t>(c.batch * c.m * c.n);
  for (auto *v : {&r.d, &r.d_bound, &r.aux, &r.aux_bound}) v->resize(values);
  r.bias.assign(static_cast<size_t>(c.batch * o.bias.columns), 0);
  r.bias_bound = r.bias;
  for (int64_t g = 0; g < c.batch; g++) {
    for (int64_t i = 0; i < c.m; i++) {
      for (int64_t j = 0; j < c.n; j++) {
        double sum = 0, size = 0;
        for (int64_t x = 0; x < c.k; x++) {
          double term = o.get_a(g, i, x) * o.get_b(g, x, j);
          sum += term;
          size += std::fabs(term);
        }
        const double factor = o.scale_a(g, i) * o.scale_b(g, j);
        sum *= factor;
        size *= std::fabs(factor);
        double alpha = c.alpha_vector ? o.alpha.get(0, 0, j) : c.alpha, x = alpha * sum;
        double bound = static_cast<double>(c.k + 12) * eps * std::fabs(alpha) * size, parts = std::fabs(x);
        if (c.beta != 0) {
          double term = c.beta * (c.result_scales ? o.c_scale : 1) * o.old.get(g, i, j);
          x += term;
          parts += std::fabs(term);
        }
        if (c.has_bias) {
          double term = o.bias.get(g, 0, c.per_row ? i : j);
          x += term;
          parts += std::fabs(term);
        }
        bound += 4 * eps * parts;
        const double aux_scale = c.result_scales ? o.aux_scale : 1, d_scale = c.result_scales ? o.d_scale : 1;
        double e = c.aux_use == Aux::load ? o.aux.get(g, i, j) / aux_scale : 0, z = activate(c, x, e);
        size_t at = static_cast<size_t>((g * c.m + i) * c.n + j);
        r.aux[at] = held(c.aux, x * aux_scale);
        r.aux_bound[at] = (bound + eps * std::fabs(x)) * aux_scale + rounding(c.aux, r.aux[at]);
        // No activation is steeper than 1.13; those made of exp err by some units in the last place of what they add.
        bound = 1.13 * bound + (c.activation == Activation::none ? 0 : 12 * eps * (std::fabs(z) + 0.2 * std::fabs(x)));
        if (c.activation == Activation::sigmoid) bound += 8 * eps;
        r.amax = std::fmax(r.amax, std::fabs(z));
        r.amax_bound = std::fmax(r.amax_bound, bound);
        r.d[at] = held(c.d, z * d_scale);
        r.d_bound[at] = (bound + eps * std::fabs(z)) * d_scale + rounding(c.d, r.d[at]);
        if (o.compute == Type::i32 && o.exact_epilogue()) r.d_bound[at] = 0;
        if (c.reduction == Reduction::result_columns) {
          size_t to = static_cast<size_t>(g * c.n + j);
          r.bias[to] += z;
          r.bias_bound[to] += bound + static_cast<double>(c.m) * eps * std::fabs(z);
        }
      }
    }
    if (c.reduction == Reduction::a_rows || c.reduction == Reduction::b_columns) {
      bool rows = c.reduction == Reduction::a_rows;
      for (int64_t i = 0; i < (rows ? c.m : c.n); i++) {
        double size = 0;
        size_t to = static_cast<size_t>(g * o.bias.columns + i);
        for (int64_t x = 0; x < c.k; x++) {
          double v = rows ? o.get_a(g, i, x) : o.get_b(g, x, i);
          r.bias[to] += v;
          size += std::fabs(v);
        }
        r.bias_bound[to] = static_cast<double>(c.k + 8) * eps * size;
      }
    }
  }
  for (size_t i = 0; i < r.bias.size(); i++) r.bias_bound[i] += rounding(c.bias, r.bias[i]);
  return r;
}

bool close(double got, double want, double bound, bool exact) {
  if (std::isnan(want)) return std::isnan(got);
  return exact ? got == want : std::fabs(got - want) <= bound;
}

// An output-sized workspace of exactly the size asked for, with bytes beyond it that must stay.
struct Workspace {
  std::vector<unsigned char> bytes;
  size_t size;
  unsigned char *start;
  explicit Workspace(size_t wanted) : bytes(wanted + 512, 0xCD), size(wanted) {
    start = bytes.data() + (256 - reinterpret_cast<uintptr_t>(bytes.data()) % 256) % 256;
  }
  bool guards_hold() const {
    for (const unsigned char *p = start + size; p < bytes.data() + bytes.size(); p++) {
      if (*p != 0xCD) return false;
    }
    return true;
  }
};

void check_outputs(const Operands &o, const Expected &want, int32_t id) {
  const Case &c = o.c;
  for (int64_t g = 0; g < c.batch; g++) {
    for (int64_t i = 0; i < c.m; i++) {
      for (int64_t j = 0; j < c.n; j++) {
        size_t at = static_cast<size_t>((g * c.m + i) * c.n + j);
        double got = o.d.get(g, i, j);
        checks++;
        if (!close(got, want.d[at], want.d_bound[at], c.integers)) {
          char text[160];
          snprintf(text, sizeof text, "d[%lld,%lld,%lld] = %.9g, not %.9g +- %.3g", static_cast<long long>(g),
                   static_cast<long long>(i), static_cast<long long>(j), got, want.d[at], want.d_bound[at]);
          return fail(text, c, id);
        }
        if (c.aux_use == Aux::store && !close(o.aux.get(g, i, j), want.aux[at], want.aux_bound[at], c.integers)) {
          return fail("aux", c, id);
        }
      }
    }
  }
  if (c.amax && !close(o.amax, want.amax, want.amax_bound, c.integers && !c.result_scales)) fail("amax", c, id);
  if (c.reduction != Reduction::none) {
    for (int64_t g = 0; g < c.batch; g++) {
      for (int64_t i = 0; i < o.bias.columns; i++) {
        size_t at = static_cast<size_t>(g * o.bias.columns + i);
        if (!close(o.bias.get(g, 0, i), want.bias[at], want.bias_bound[at], c.integers)) {
          return fail("bias gradient", c, id);
        }
      }
    }
  }
}

// Runs one algorithm from the beginning, b packed where the case says so. False: it does not take the problem.
[[maybe_unused]] bool run_anew(Operands &o, int32_t id) {
  o.restore();
  o.pack_b();
  size_t needed = 0;
  if (!supports(id, o.problem, &needed)) return false;
  Workspace workspace(needed);
  if (!run(id, o.problem, workspace.start, needed)) fail("did not run", o.c, id);
  return true;
}

// Runs each algorithm that takes a problem, and calls `check` with its id.
template <class F>
[[maybe_unused]] void with_each_algorithm(Operands &o, F check) {
  for (int i = 0; i < algorithm_count(); i++) {
    const int32_t id = algorithm(i).id;
    size_t needed = 0;
    if (!supports(id, o.problem, &needed)) continue;
    o.restore();
    Workspace workspace(needed);
    if (!run(id, o.problem, workspace.start, needed)) fail("did not run", o.c, id);
    check(id);
  }
}

// The reference is slow under a sanitizer, and what one finds does not hide in a single case: every fourth is run.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int case_interval = 4;
#else
constexpr int case_interval = 1;
#endif

[[maybe_unused]] void run_case(const Case &c) {
  static int turn = 0;
  if (turn++ % case_interval) return;
  Operands o(c);
  o.pack_b();
  const Expected want = reference(o);
  Candidate ranked[64];
  const int count = rank(o.problem, SIZE_MAX, 64, ranked);
  if (count < 1) return fail("no algorithm", c, 101);
  Candidate without[64];
  if (c.reduction != Reduction::result_columns && rank(o.problem, 0, 64, without) < 1) {
    fail("no algorithm without workspace", c, 101);
  }
  for (int r = 0; r < count; r++) {
    const int32_t id = ranked[r].id;
    size_t needed = 0;
    if (!supports(id, o.problem, &needed) || needed != ranked[r].workspace_bytes) {
      fail("supports and rank disagree", c, id);
    }
    std::vector<unsigned char> first;
    for (int threads : {1, 0}) {
      o.restore();
      Workspace workspace(needed);
      set_thread_limit(threads);
      if (needed && run(id, o.problem, workspace.start, needed - 1)) fail("ran with too little workspace", c, id);
      if (!run(id, o.problem, workspace.start, needed)) fail("did not run", c, id);
      if (!workspace.guards_hold()) fail("wrote beyond the workspace", c, id);
      if (!o.d.guards_hold() || !o.aux.guards_hold() || !o.bias.guards_hold()) fail("wrote outside its outputs", c, id);
      std::vector<unsigned char> all = o.d.bytes;
      const unsigned char *largest = reinterpret_cast<const unsigned char *>(&o.amax);
      all.insert(all.end(), largest, largest + sizeof o.amax);
      all.insert(all.end(), o.aux.bytes.begin(), o.aux.bytes.end());
      all.insert(all.end(), o.bias.bytes.begin(), o.bias.bytes.end());
      if (threads == 1) {
        first = all;
        check_outputs(o, want, id);
      } else if (first != all) {
        fail("bits depend on the number of threads", c, id);
      }
    }
    set_thread_limit(0);
  }
}

}  // namespace
}  // namespace gemm_test
