// SPDX-License-Identifier: MIT
// Tests of the product engine: every algorithm on every case that it takes, on every kernel set that the CPU has,
// against a reference in double with derived bounds; rules on NaN, beta and guard bands; equal bits whatever the
// threads and the alignment.
#include <cstring>
#include <limits>

#include "blocking.hpp"
#include "gemm_check.hpp"
#include "gemm_sets.hpp"

namespace gemm_test {
namespace {

// Sizes on both sides of register tiles and of every variant's blocks.
void sizes() {
  const bool wide[] = {false, true};
  for (bool f64 : wide) {
    Case c;
    if (f64) c.a = c.b = c.d = c.bias = c.aux = Type::f64;
    const int64_t small[] = {1, 2, 3, 5, 8, 9, 13, 14, 15, 16, 17, 31, 32, 33, 47};
    for (int64_t m : small) {
      for (int64_t n : small) {
        c.m = m;
        c.n = n;
        c.k = (m * 7 + n * 3) % 40;
        c.b_layout = m % 2 ? Layout::row : Layout::column;
        c.a_layout = n % 3 ? Layout::row : Layout::column;
        run_case(c);
      }
    }
    for (const Variant &v : variants) {
      for (int step = -1; step <= 1; step++) {
        c.a_layout = step ? Layout::row : Layout::column;
        c.m = v.rows + step;
        c.n = 33;
        c.k = 19;
        run_case(c);
        c.m = 15;
        c.n = v.columns / (f64 ? 2 : 1) + step;
        c.k = 11;
        c.b_layout = step > 0 ? Layout::column : Layout::row;
        run_case(c);
        c.m = 5;
        c.n = 18;
        c.k = v.depth + step;
        run_case(c);
        c.m = 17;
        c.n = 3;
        run_case(c);
      }
    }
  }
}

void types_and_layouts() {
  const Type types[] = {Type::f32, Type::f16, Type::bf16};
  const Layout layouts[] = {Layout::row, Layout::column, Layout::strided};
  int turn = 0;
  for (Type a : types) {
    for (Type b : types) {
      for (Type d : types) {
        for (Layout al : layouts) {
          for (Layout bl : layouts) {
            Case c;
            c.a = a;
            c.b = b;
            c.d = d;
            c.bias = types[turn % 3];
            c.aux = turn % 2 ? d : types[(turn + 1) % 3];
            c.a_layout = al;
            c.b_layout = bl;
            c.has_bias = turn % 2;
            c.activation = turn % 4 == 1 ? Activation::gelu : Activation::none;
            c.aux_use = turn % 5 == 0 ? Aux::store : Aux::none;
            c.m = turn % 3 ? 29 : 7;
            c.n = turn % 4 ? 37 : 6;
            c.k = turn % 5 ? 41 : 300;
            c.batch = 1 + turn % 3;
            c.gap = turn % 2 * 3;
            c.shift = turn % 4;
            c.share_b = turn % 7 == 0;
            turn++;
            run_case(c);
            c.packed = true;
            run_case(c);
          }
        }
      }
    }
  }
}

void epilogues() {
  const Activation all[] = {Activation::none,    Activation::relu,  Activation::gelu,  Activation::silu,
                            Activation::sigmoid, Activation::clamp, Activation::drelu, Activation::dgelu};
  const Type sets[][3] = {{Type::f32, Type::f32, Type::f32},
                          {Type::bf16, Type::bf16, Type::f32},
                          {Type::f16, Type::f16, Type::f16},
                          {Type::f64, Type::f64, Type::f64}};
  int turn = 0;
  for (auto &set : sets) {
    for (Activation activation : all) {
      for (int scale = 0; scale < 4; scale++) {
        for (int bias = 0; bias < 3; bias++) {
          for (bool aux : {false, true}) {
            const bool gradient = activation == Activation::drelu || activation == Activation::dgelu;
            if (aux && gradient) continue;
            Case c;
            c.a = c.b = set[0];
            c.d = c.aux = set[1];
            c.bias = set[2];
            c.activation = activation;
            c.aux_use = gradient ? Aux::load : aux ? Aux::store : Aux::none;
            c.alpha = scale ? 0.75 : 1;
            c.beta = scale >= 2 ? -0.5 : 0;
            c.in_place = scale == 3;
            c.alpha_vector = turn % 5 == 4;
            c.has_bias = bias != 0;
            c.per_row = bias == 2;
            c.m = turn % 3 == 0 ? 6 : 35;
            c.n = turn % 4 == 0 ? 9 : 70;
            c.k = 24;
            c.batch = 1 + turn % 2;
            c.gap = turn % 3;
            turn++;
            run_case(c);
          }
        }
      }
    }
  }
}

void reductions() {
  const Reduction all[] = {Reduction::result_columns, Reduction::a_rows, Reduction::b_columns};
  for (Reduction reduction : all) {
    for (Type type : {Type::f32, Type::bf16, Type::f64}) {
      for (Layout layout : {Layout::row, Layout::column, Layout::strided}) {
        for (int64_t m : {0, 1, 40, 113, 700}) {
          Case c;
          c.a = c.b = c.d = c.aux = type;
          c.bias = type == Type::bf16 ? Type::f32 : type;
          c.a_layout = c.b_layout = layout;
          c.reduction = reduction;
          c.m = m;
          c.n = m == 700 ? 5 : 45;
          c.k = m == 40 ? 0 : m == 113 ? 130 : 21;
          c.batch = m == 113 ? 1 : 2;
          if (reduction == Reduction::result_columns) {
            c.activation = m == 1 ? Activation::drelu : Activation::dgelu;
            c.aux_use = Aux::load;
          }
          run_case(c);
          c.integers = true;
          if (c.activation == Activation::none) run_case(c);
        }
      }
    }
  }
}

// Every number of rows, and of columns, that kernels for thin products take in groups.
void few_rows() {
  int turn = 0;
  for (int64_t few = 1; few <= 17; few++) {
    for (Type type : {Type::f32, Type::bf16, Type::f64}) {
      for (Layout layout : {Layout::row, Layout::column}) {
        Case c;
        c.a = c.b = c.d = c.bias = c.aux = type;
        c.a_layout = turn % 3 ? Layout::row : Layout::column;
        c.b_layout = layout;
        c.m = turn % 2 ? few : 45;
        c.n = turn % 2 ? 101 : few;
        c.k = turn % 5 ? 29 : 70;
        turn++;
        run_case(c);
      }
    }
  }
}

void integers() {
  Random random;
  const Type types[] = {Type::f32, Type::f16, Type::bf16, Type::f64};
  for (int i = 0; i < 60; i++) {
    Case c;
    c.a = c.b = c.bias = c.aux = types[i % 4];
    c.d = types[i % 4];
    c.integers = true;
    c.m = random.integer(1, 70);
    c.n = random.integer(1, 70);
    c.k = random.integer(0, i % 4 == 2 ? 30 : 200);
    c.a_layout = static_cast<Layout>(i % 3);
    c.b_layout = static_cast<Layout>(i / 3 % 3);
    c.has_bias = i % 2;
    c.activation = i % 3 ? Activation::none : Activation::relu;
    c.packed = i % 5 == 0;
    if (i % 4 == 1 || i % 4 == 2) c.k = c.k < 40 ? c.k : 40;
    // Above 256 bf16 has no odd integers: the bound of exactness.
    run_case(c);
  }
  Case tall;
  tall.m = 32;
  tall.n = 32;
  tall.k = 20000;
  tall.integers = true;
  run_case(tall);
}

// A shifted base address, and a larger problem around the same rows and columns, change no bit.
void determinism() {
  for (Type type : {Type::f32, Type::bf16, Type::f64}) {
    for (const Variant &variant : variants) {
      const int32_t id = variant.algorithm.id;
      std::vector<double> seen;
      for (int64_t shift = 0; shift < 4; shift++) {
        Case c;
        c.a = c.b = c.d = type;
        c.bias = type;
        c.has_bias = true;
        c.activation = Activation::gelu;
        c.m = 16;
        c.n = 61;
        c.k = variant.family == Family::split ? variant.depth + 300 : 700;
        c.shift = shift;
        c.gap = shift % 2;
        Operands o(c);
        size_t needed = 0;
        if (!supports(id, o.problem, &needed)) break;
        Workspace workspace(needed);
        run(id, o.problem, workspace.start, needed);
        std::vector<double> got;
        for (int64_t i = 0; i < c.m; i++) {
          for (int64_t j = 0; j < c.n; j++) got.push_back(o.d.get(0, i, j));
        }
        if (seen.empty()) seen = got;
        if (seen != got) fail("bits depend on alignment", c, id);
        // One element computed alone, in another tile and another place of it.
        Problem one = o.problem;
        for (int64_t i : {0, 9, 15}) {
          for (int64_t j : {0, 31, 60}) {
            o.d.fill([] { return 0.0; });
            one.m = one.n = 1;
            one.a.data = static_cast<const char *>(o.a.data()) + static_cast<size_t>(o.a.at(0, i, 0)) * size_of(type);
            one.b.data = static_cast<const char *>(o.b.data()) + static_cast<size_t>(o.b.at(0, 0, j)) * size_of(type);
            one.bias = static_cast<char *>(o.bias.data()) + static_cast<size_t>(j) * size_of(type);
            // The skinny family reads a large matrix in one of two ways, by shape: another shape may be another order.
            if (variant.family == Family::skinny || !supports(id, one, &needed)) continue;
            Workspace small(needed);
            run(id, one, small.start, needed);
            if (o.d.get(0, 0, 0) != seen[static_cast<size_t>(i * c.n + j)]) fail("bits depend on the place", c, id);
          }
        }
      }
    }
  }
}

void special_values() {
  const double inf = std::numeric_limits<double>::infinity();
  for (Type type : {Type::f32, Type::f64}) {
    const double inputs[] = {NAN, inf, -inf, -0.0, 0.0, 1e30, -1e30, -10.5, -87.5, -800, 100};
    for (Activation activation : {Activation::none, Activation::relu, Activation::gelu, Activation::silu,
                                  Activation::sigmoid, Activation::clamp, Activation::dgelu, Activation::drelu}) {
      for (double input : inputs) {
        Case c;
        c.a = c.b = c.d = c.aux = c.bias = type;
        c.activation = activation;
        c.m = c.n = c.k = 1;
        const bool gradient = activation == Activation::dgelu || activation == Activation::drelu;
        c.aux_use = gradient ? Aux::load : Aux::none;
        Operands o(c);
        o.a.fill([&] { return gradient ? 1.0 : input; });
        o.b.fill([] { return 1.0; });
        o.aux.fill([&] { return input; });
        double want = 0;
        switch (activation) {
          case Activation::none:
            want = input;
            break;
          case Activation::relu:
            want = std::isnan(input) ? input : std::fmax(input, 0.0);
            break;
          case Activation::gelu:
            want = gelu(input);
            break;
          case Activation::silu:
            want = input == -inf ? 0 : input * sigmoid(input);
            break;
          case Activation::sigmoid:
            want = sigmoid(input);
            break;
          case Activation::clamp:
            want = std::isnan(input) ? input : std::fmax(c.low, std::fmin(c.high, input));
            if (type == Type::f32) want = static_cast<float>(want);
            break;
          case Activation::dgelu:
            want = std::isnan(input) ? input : gelu_gradient(input);
            break;
          case Activation::drelu:
            want = input > 0;
            break;
        }
        if (type == Type::f32) want = static_cast<float>(want);
        for (int32_t id : {101, 201}) {
          run(id, o.problem, nullptr, 0);
          double got = o.d.get(0, 0, 0);
          bool good = std::isnan(want)   ? std::isnan(got)
                      : std::isinf(want) ? got == want
                                         : std::fabs(got - want) <= 1e-7 * std::fabs(want) + 1e-30;
          if (!good) {
            char text[120];
            snprintf(text, sizeof text, "activation of %g is %g, not %g", input, got, want);
            fail(text, c, id);
          }
          checks++;
        }
      }
    }
  }
}

// The promise of the tanh-GELU: 3 ulp of the double value from -1 up, 2^-24 absolute below.
void gelu_accuracy() {
  const int64_t count = 20000;
  for (Type type : {Type::f32, Type::f64}) {
    Case c;
    c.a = c.b = c.d = c.bias = type;
    c.activation = Activation::gelu;
    c.m = 1;
    c.n = count;
    c.k = 1;
    Operands o(c);
    Random random;
    o.a.fill([] { return 1.0; });
    o.b.fill([&] {
      double u = random.uniform();
      return u * std::exp2(static_cast<double>(random.integer(-20, 4)));
    });
    run(101, o.problem, nullptr, 0);
    double worst = 0, worst_low = 0;
    for (int64_t j = 0; j < count; j++) {
      double x = o.b.get(0, 0, j),
             want = static_cast<double>(static_cast<long double>(x) /
                                        (1.0L + expl(-1.595769121605730711759L * (x + 0.044715L * x * x * x))));
      double error = std::fabs(o.d.get(0, 0, j) - want);
      if (x >= -1 && want != 0) {
        double ulp = std::exp2(std::floor(std::log2(std::fabs(want))) - (type == Type::f32 ? 23 : 52));
        if (error / ulp > worst) worst = error / ulp;
      } else if (error > worst_low) {
        worst_low = error;
      }
    }
    printf("gelu %s %s: %.2f ulp from -1 up, %.2f * 2^-24 below\n", isa_name(), type == Type::f32 ? "f32" : "f64",
           worst, worst_low * 0x1p24);
    if (worst > (type == Type::f32 ? 3 : 8) || worst_low > 0x1p-24) fail("gelu accuracy", c, 101);
  }
}

void absent_operands() {
  Case c;
  c.m = 20;
  c.n = 40;
  c.k = 30;
  c.beta = 2;
  c.integers = true;
  Operands o(c);
  o.problem.alpha = 0;
  o.problem.a.data = nullptr;
  o.problem.b.data = nullptr;
  with_each_algorithm(o, [&](int32_t id) {
    for (int64_t r = 0; r < c.m; r++) {
      for (int64_t j = 0; j < c.n; j++) {
        if (o.d.get(0, r, j) != 2 * o.old.get(0, r, j)) return fail("alpha 0 without operands", c, id);
      }
    }
  });
  Operands nan(c);
  nan.problem.alpha = 0;
  nan.a.fill([] { return NAN; });
  run(101, nan.problem, nullptr, 0);
  if (!std::isnan(nan.d.get(0, 3, 3))) fail("alpha 0 must keep NaN", c, 101);
}

// A b beyond the caches is not read in place again by every few rows: a blocked algorithm comes before the direct one
// of few rows. (With few rows in all, packing does not pay: there only the order of the direct ones is checked.)
void ranking() {
  const int64_t shapes[][3] = {{512, 4096, 4096}, {256, 256, 16384}, {512, 512, 4096}, {64, 4096, 4096}};
  for (const auto &shape : shapes) {
    Problem p;
    p.m = shape[0];
    p.n = shape[1];
    p.k = shape[2];
    p.a.row_stride = p.k;
    p.b.row_stride = p.d_row_stride = p.n;
    p.a.column_stride = p.b.column_stride = 1;
    Candidate found[variant_count];
    const int count = rank(p, SIZE_MAX, variant_count, found);
    int in_place = count, better = count;
    for (int i = count - 1; i >= 0; i--) {
      if (found[i].id == 103) in_place = i;
      if (p.m > 64 ? found[i].id / 100 == 3 : found[i].id == 101) better = i;
    }
    if (in_place < count && better < in_place) continue;
    printf("(%lld, %lld, %lld): direct.28x1024x512 is ranked too early\n", static_cast<long long>(p.m),
           static_cast<long long>(p.n), static_cast<long long>(p.k));
    failures++;
  }
}

// Bytes are multiplied in groups along k, of which a rest takes as long as a whole one: tiles of such a sum do not
// count as nothing, beside the skinny algorithms that read one column as it is.
void ranking_of_rests() {
  float predicted[2] = {};
  for (int64_t k : {1, 4}) {
    Problem p;
    p.m = 100000;
    p.n = 1;
    p.k = p.a.row_stride = k;
    p.compute = p.d_type = Type::i32;
    p.a.type = p.b.type = Type::i8;
    p.a.column_stride = p.b.row_stride = p.b.column_stride = p.d_row_stride = 1;
    Candidate found[variant_count];
    const int count = rank(p, SIZE_MAX, variant_count, found);
    for (int i = 0; i < count; i++) {
      if (found[i].id == 101) predicted[k == 4] = found[i].predicted_us;
    }
    if (k == 1 && found[0].id / 100 != 2) failures++, printf("one column of bytes: %d is ranked first\n", found[0].id);
  }
  if (predicted[0] > predicted[1] / 3) return;
  printf("tiles of single bytes are predicted to take %f us, of 4 bytes %f us\n", predicted[0], predicted[1]);
  failures++;
}

void conversions() {
  for (uint32_t half = 0; half < 65536; half++) {
    uint16_t bits = static_cast<uint16_t>(half);
    float value = f16_to_float(bits);
    if (std::isnan(value) ? !std::isnan(f16_to_float(float_to_f16(value))) : float_to_f16(value) != bits) failures++;
    float brain = bf16_to_float(bits);
    if (std::isnan(brain) ? !std::isnan(bf16_to_float(float_to_bf16(brain))) : float_to_bf16(brain) != bits) failures++;
    // Midway between neighbours goes to the even one.
    if (half < 0x7bff) {
      float above = f16_to_float(static_cast<uint16_t>(half + 1)), middle = (value + above) / 2;
      if (float_to_f16(middle) != (half & 1 ? half + 1 : half)) failures++;
      if (float_to_f16(std::nextafter(middle, above)) != half + 1) failures++;
    }
  }
  if (float_to_f16(65520.0f) != 0x7c00 || float_to_f16(65519.0f) != 0x7bff) failures++;
  // The vector conversions of the kernels agree with these.
  Case c;
  c.a = c.b = Type::f32;
  c.k = 1;
  c.m = 1;
  c.n = 4096;
  for (Type type : {Type::f16, Type::bf16}) {
    c.d = type;
    Operands o(c);
    Random random;
    o.a.fill([] { return 1.0; });
    o.b.fill([&] { return random.uniform() * std::exp2(static_cast<double>(random.integer(-30, 17))); });
    run(101, o.problem, nullptr, 0);
    for (int64_t j = 0; j < c.n; j++) {
      float value = static_cast<float>(o.b.get(0, 0, j));
      uint16_t want = type == Type::f16 ? float_to_f16(value) : float_to_bf16(value);
      uint16_t got = static_cast<const uint16_t *>(o.d.data())[j];
      if (got != want) return fail("conversion of the result", c, 101);
    }
  }
}

}  // namespace
}  // namespace gemm_test

int main() {
  using namespace gemm_test;
  return with_kernel_sets(
      [](const char *isa) {
        conversions();
        special_values();
        gelu_accuracy();
        absent_operands();
        sizes();
        types_and_layouts();
        epilogues();
        reductions();
        few_rows();
        integers();
        determinism();
        ranking_of_rests();
        if (strcmp(isa, "avx512") == 0) ranking();
      },
      checks, failures);
}
