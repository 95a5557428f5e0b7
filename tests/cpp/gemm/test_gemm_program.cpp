// SPDX-License-Identifier: MIT
// Tests of tile programs in the product engine: programs of activations against the epilogues that are built in,
// operands of every kind and type, pairs, and what is refused.
#include <cmath>
#include <cstring>
#include <functional>
#include <tuple>

#include "blocking.hpp"
#include "gemm_check.hpp"
#include "program_builder.hpp"

namespace gemm_test {
namespace {

// The program that stands for a built-in activation.
int program_of(Builder *b, const Case &c) {
  const int value = b->value();
  switch (c.activation) {
    case Activation::relu:
      return b->step(ROCPY_EXT_OP_RELU, value);
    case Activation::gelu:
      return b->step(ROCPY_EXT_OP_GELU, value);
    case Activation::silu:
      return b->step(ROCPY_EXT_OP_SILU, value);
    case Activation::sigmoid:
      return b->step(ROCPY_EXT_OP_SIGMOID, value);
    case Activation::clamp: {
      const int low = b->constant(c.low), high = b->constant(c.high);
      return b->step(ROCPY_EXT_OP_MAX, b->step(ROCPY_EXT_OP_MIN, value, high), low);
    }
    case Activation::drelu: {
      const int aux = b->step(ROCPY_EXT_OP_AUX), zero = b->constant(0);
      return b->step(ROCPY_EXT_OP_WHERE, b->step(ROCPY_EXT_OP_GT, aux, zero), value, zero);
    }
    case Activation::dgelu:
      return b->step(ROCPY_EXT_OP_MUL, value, b->step(ROCPY_EXT_OP_GELU_GRADIENT, b->step(ROCPY_EXT_OP_AUX)));
    default:
      return value;
  }
}

std::vector<unsigned char> bytes_of(const Operands &o) {
  std::vector<unsigned char> all = o.d.bytes;
  for (const Buffer *buffer : {&o.aux, &o.bias}) all.insert(all.end(), buffer->bytes.begin(), buffer->bytes.end());
  const auto *largest = reinterpret_cast<const unsigned char *>(&o.amax);
  all.insert(all.end(), largest, largest + sizeof o.amax);
  return all;
}

// With every algorithm the program gives the bits of the built-in epilogue.
void same_as_built_in(const Case &c) {
  static int turn = 0;
  if (turn++ % case_interval) return;
  Operands o(c);
  o.pack_b();
  Builder b;
  if (b.finish(program_of(&b, c))) return fail("a program for an activation is taken", c, 101);
  Candidate ranked[64], with[64];
  const int count = rank(o.problem, SIZE_MAX, 64, ranked);
  Problem programmed = o.problem;
  programmed.program = &b.bound;
  if (count < 1 || rank(programmed, SIZE_MAX, 64, with) != count) {
    return fail("other algorithms with a program", c, 101);
  }
  for (int r = 0; r < count; r++) {
    Workspace workspace(ranked[r].workspace_bytes);
    o.restore();
    if (!run(ranked[r].id, o.problem, workspace.start, workspace.size)) fail("did not run", c, ranked[r].id);
    const std::vector<unsigned char> want = bytes_of(o);
    o.restore();
    if (!run(ranked[r].id, programmed, workspace.start, workspace.size)) fail("did not run a program", c, ranked[r].id);
    if (!workspace.guards_hold()) fail("wrote beyond the workspace", c, ranked[r].id);
    checks++;
    if (bytes_of(o) != want) fail("a program's bits differ from the built-in epilogue's", c, ranked[r].id);
  }
}

void activations() {
  const Activation all[] = {Activation::none,    Activation::relu,  Activation::gelu,  Activation::silu,
                            Activation::sigmoid, Activation::clamp, Activation::drelu, Activation::dgelu};
  const int64_t shapes[][3] = {{1, 1, 1}, {5, 70, 33}, {37, 3, 129}, {64, 130, 40}, {3, 2100, 17}, {33, 65, 4200}};
  int turn = 0;
  for (const auto &shape : shapes) {
    for (Activation activation : all) {
      Case c;
      c.m = shape[0];
      c.n = shape[1];
      c.k = shape[2];
      c.activation = activation;
      c.batch = turn % 3 ? 1 : 2;
      c.gap = turn % 4;
      c.beta = turn % 5 == 1 ? 0.5 : 0;
      c.alpha = turn % 7 == 2 ? -1.5 : 1;
      const bool gradient = activation == Activation::drelu || activation == Activation::dgelu;
      c.aux_use = gradient ? Aux::load : turn % 2 ? Aux::store : Aux::none;
      if (gradient && turn % 3 == 0) c.reduction = Reduction::result_columns;
      c.has_bias = !gradient && turn % 3 != 1;
      c.packed = turn % 4 == 3;
      const Type types[] = {Type::f32, Type::f64, Type::bf16, Type::f16, Type::i8};
      c.a = c.b = types[turn % 5];
      c.d = c.a == Type::i8 ? Type::f32 : c.a;
      if (c.a == Type::i8) c.reduction = Reduction::none;
      c.bias = c.aux = c.d;
      turn++;
      same_as_built_in(c);
      // Eight bits with scales.
      c.a = c.b = Type::e4m3;
      c.d = turn % 2 ? Type::e4m3 : Type::bf16;
      c.bias = c.aux = Type::f32;
      c.a_scale = c.b_scale = turn % 2 ? ScaleKind::vector : ScaleKind::scalar;
      c.amax = true;
      c.result_scales = c.d == Type::e4m3;
      if (c.reduction == Reduction::none && turn % 2) same_as_built_in(c);
    }
  }
}

// value * row + column - full * scalar with operands of a type, read in every way that strides allow; a second output
// holds the value, a third whether it is positive. All is whole and small, so that every bit is known.
void operands(Type type, int number, int64_t m, int64_t n, bool turned, int64_t batch) {
  Case c;
  c.m = m;
  c.n = n;
  c.k = 3;
  c.batch = batch;
  c.integers = true;
  c.gap = 2;
  Operands o(c);
  Buffer row, column, full, scalar, gathered, copy, truth;
  Random random;
  const auto small = [&] { return static_cast<double>(random.integer(0, 3)); };
  for (auto [buffer, rows, columns] :
       {std::tuple{&row, int64_t{1}, n}, std::tuple{&column, m, int64_t{1}}, std::tuple{&full, m, n},
        std::tuple{&scalar, int64_t{1}, int64_t{1}}, std::tuple{&gathered, n, m}}) {
    buffer->make(type, batch, rows, columns, 3, 1);
    buffer->fill(small);
  }
  copy.make(Type::f32, batch, m, n, 1, 0);
  truth.make(Type::i8, batch, n, 2 * m, 1, 0);
  const auto strides = [&](int64_t down, int64_t right) {
    return turned ? std::pair(right, down) : std::pair(down, right);
  };
  Builder b;
  const auto input = [&](const Buffer &buffer, int64_t down, int64_t right) {
    const auto [first, second] = strides(down, right);
    return b.input(number, buffer.data(), first, second, buffer.batch_stride);
  };
  const int value = b.value();
  const int r = input(row, 0, 1), l = input(column, column.row_stride, 0), f = input(full, full.row_stride, 1);
  const int s = input(scalar, 0, 0), t = input(gathered, 1, gathered.row_stride);
  int x = b.step(ROCPY_EXT_OP_ADD, b.step(ROCPY_EXT_OP_MUL, value, r), l);
  x = b.step(ROCPY_EXT_OP_SUB, x, b.step(ROCPY_EXT_OP_MUL, f, s));
  x = b.step(ROCPY_EXT_OP_ADD, x, b.step(ROCPY_EXT_OP_MUL, t, s));
  const auto [down, right] = strides(copy.row_stride, 1);
  b.output(value, HIP_R_32F, copy.data(), down, right, copy.batch_stride);
  const auto [below, beside] = strides(2, truth.row_stride);
  b.output(b.step(ROCPY_EXT_OP_GT, value, b.constant(0)), HIP_R_8U, truth.data(), below, beside, truth.batch_stride);
  require(!b.finish(x), "a program with operands is taken");
  o.problem.program = &b.bound;
  o.problem.program_transposed = turned;
  Candidate ranked[64];
  const int count = rank(o.problem, SIZE_MAX, 64, ranked);
  require(count > 0, "there is an algorithm");
  copy.remember();
  truth.remember();
  for (int at = 0; at < count; at++) {
    o.restore();
    copy.bytes = copy.before;
    truth.bytes = truth.before;
    Workspace workspace(ranked[at].workspace_bytes);
    require(run(ranked[at].id, o.problem, workspace.start, workspace.size), "a program with operands runs");
    if (!copy.guards_hold() || !o.d.guards_hold()) fail("wrote beside an output", c, ranked[at].id);
    for (int64_t g = 0; g < batch; g++) {
      for (int64_t i = 0; i < m; i++) {
        for (int64_t j = 0; j < n; j++) {
          double v = 0;
          for (int64_t k = 0; k < c.k; k++) v += o.get_a(g, i, k) * o.get_b(g, k, j);
          const double scale = scalar.get(g, 0, 0);
          const double want =
              v * row.get(g, 0, j) + column.get(g, i, 0) - full.get(g, i, j) * scale + gathered.get(g, j, i) * scale;
          checks++;
          if (o.d.get(g, i, j) != want) return fail("an operand of a program", c, ranked[at].id);
          if (copy.get(g, i, j) != v) return fail("an output of a program", c, ranked[at].id);
          const unsigned char *lies = truth.bytes.data() + truth.shift + truth.at(g, j, 2 * i);
          if (lies[0] != (v > 0) || lies[1] != 0xA5) return fail("a truth value of a program", c, ranked[at].id);
        }
      }
    }
  }
}

// A step may round float64 to float32, and the steps after it take that.
void narrowed() {
  Case c;
  c.m = 5;
  c.n = 37;
  c.k = 9;
  c.a = c.b = c.d = Type::f64;
  Operands o(c);
  Buffer whole;
  whole.make(Type::f64, 1, c.m, c.n, 0, 0);
  Builder b;
  const int value = b.value(), narrow = b.step(ROCPY_EXT_OP_ROUND, value, 0, 0, HIP_R_32F);
  b.output(value, HIP_R_64F, whole.data(), whole.row_stride, 1, whole.batch_stride);
  require(!b.finish(b.step(ROCPY_EXT_OP_SUB, narrow, value)), "a program that rounds is taken");
  o.problem.program = &b.bound;
  Candidate ranked[64];
  const int count = rank(o.problem, SIZE_MAX, 64, ranked);
  for (int at = 0; at < count; at++) {
    o.restore();
    Workspace workspace(ranked[at].workspace_bytes);
    require(run(ranked[at].id, o.problem, workspace.start, workspace.size), "a program that rounds runs");
    for (int64_t i = 0; i < c.m; i++) {
      for (int64_t j = 0; j < c.n; j++) {
        const double wide = whole.get(0, i, j);
        volatile float near = static_cast<float>(wide);
        checks++;
        if (o.d.get(0, i, j) != near - wide) return fail("a step that rounds", c, ranked[at].id);
      }
    }
  }
}

// Two neighbouring columns make one: first * silu(second), as a gated layer has it.
void pairs(int64_t m, int64_t n, Type type, bool packed, bool aux) {
  Case c;
  c.m = m;
  c.n = 2 * n;
  c.k = 19;
  c.a = c.b = c.d = c.bias = c.aux = type;
  c.has_bias = true;
  c.packed = packed;
  c.batch = packed ? 1 : 2;
  c.aux_use = aux ? Aux::store : Aux::none;
  c.gap = 1;
  Operands o(c);
  o.pack_b();
  const Expected sums = reference(o);
  Buffer half;
  half.make(type, c.batch, m, n, 3, 0);
  half.remember();
  o.problem.d = half.data();
  o.problem.d_row_stride = half.row_stride;
  o.problem.d_batch_stride = half.batch_stride;
  Builder b;
  b.flags = ROCPY_EXT_PROGRAM_PAIRS;
  const int first = b.value(), second = b.step(ROCPY_EXT_OP_PARTNER);
  require(!b.finish(b.step(ROCPY_EXT_OP_MUL, b.step(ROCPY_EXT_OP_SILU, first), second)), "a program of pairs is taken");
  o.problem.program = &b.bound;
  Candidate ranked[64];
  const int count = rank(o.problem, SIZE_MAX, 64, ranked);
  require(count > 0, "there is an algorithm for pairs");
  for (int at = 0; at < count; at++) {
    half.bytes = half.before;
    o.restore();
    Workspace workspace(ranked[at].workspace_bytes);
    require(run(ranked[at].id, o.problem, workspace.start, workspace.size), "a program of pairs runs");
    if (!half.guards_hold() || !o.aux.guards_hold()) fail("pairs wrote beside the result", c, ranked[at].id);
    for (int64_t g = 0; g < c.batch; g++) {
      for (int64_t i = 0; i < m; i++) {
        for (int64_t j = 0; j < n; j++) {
          const size_t place = static_cast<size_t>((g * m + i) * c.n + 2 * j);
          const double x = sums.d[place], y = sums.d[place + 1], want = x * sigmoid(x) * y;
          const double bound =
              1.2 * (sums.d_bound[place] * (std::fabs(y) + 1) + sums.d_bound[place + 1] * (std::fabs(x) + 1)) +
              2 * rounding(type, want) + 1e-6 * (type == Type::f64 ? 1e-9 : 1);
          checks++;
          if (std::fabs(half.get(g, i, j) - want) > bound) return fail("a pair", c, ranked[at].id);
          if (aux && std::fabs(o.aux.get(g, i, 2 * j + 1) - y) > sums.aux_bound[place + 1]) {
            return fail("aux of a pair", c, ranked[at].id);
          }
        }
      }
    }
  }
}

// As many values in use at once as there can be, and a result that is the same everywhere.
void long_programs() {
  std::vector<double> x;
  for (int i = 0; i < 300; i++) x.push_back(i % 7);
  for (int wide : {0, 1}) {
    Builder b;
    std::vector<int> made = {b.value()};
    const int one = b.constant(1);
    for (int i = 0; i < 126; i++) made.push_back(b.step(ROCPY_EXT_OP_ADD, wide ? made[0] : made.back(), one));
    int sum = made.back();
    for (int i = 125; i > 0 && wide; i--) sum = b.step(ROCPY_EXT_OP_ADD, sum, made[static_cast<size_t>(i)]);
    require(!b.finish(sum), "a long program is taken");
    require(wide ? b.program.slot_count > 120 : b.program.slot_count == 1, "slots are what is in use");
    Problem p;
    std::vector<float> in(300), out(300);
    for (size_t i = 0; i < 300; i++) in[i] = static_cast<float>(x[i]);
    const float unit = 1;
    p.m = 1;
    p.k = 1;
    p.n = 300;
    p.a = {&unit, 1, 1, 0, Type::f32, false, false, {}};
    p.b = {in.data(), 300, 1, 0, Type::f32, false, false, {}};
    p.d = out.data();
    p.d_row_stride = 300;
    p.program = &b.bound;
    Candidate best;
    require(rank(p, 0, 1, &best) == 1 && run(best.id, p, nullptr, 0), "a long program runs");
    for (size_t i = 0; i < 300; i++) {
      require(out[i] == (wide ? 126 * (in[i] + 1) : in[i] + 126), "a long program's result");
    }
    Builder constant;
    constant.value();
    require(!constant.finish(constant.step(ROCPY_EXT_OP_NEG, constant.constant(4))), "a constant program is taken");
    require(constant.program.step_count == 2 && constant.program.uniform_steps == 2, "what is not needed is left out");
    p.program = &constant.bound;
    require(run(best.id, p, nullptr, 0) && out[0] == -4 && out[299] == -4, "a result that is the same everywhere");
  }
}

void refused() {
  const auto taken = [](const std::function<void(Builder &, rocpyExtProgram_t &)> &change, bool *known) {
    Builder b;
    const int v = b.value();
    b.step(ROCPY_EXT_OP_ADD, v, v);
    b.inputs.push_back({HIP_R_32F, 0, 1, 1, 0});
    rocpyExtProgram_t source = b.source(1);
    change(b, source);
    Program program;
    return prepare(source, Builder::read_type, &program, known) == nullptr;
  };
  bool known = false;
  using Source = rocpyExtProgram_t &;
  require(taken([](Builder &, Source) {}, &known) && known, "the program that is changed below is taken");
  const std::function<void(Builder &, Source)> wrong[] = {
      [](Builder &, Source s) { s.instruction_count = 0; },
      [](Builder &, Source s) { s.instruction_count = ROCPY_EXT_PROGRAM_MOST_INSTRUCTIONS + 1; },
      [](Builder &, Source s) { s.register_count = ROCPY_EXT_PROGRAM_MOST_REGISTERS + 1; },
      [](Builder &, Source s) { s.register_count = 1; },
      [](Builder &, Source s) { s.input_count = ROCPY_EXT_PROGRAM_MOST_INPUTS + 1; },
      [](Builder &, Source s) { s.output_count = ROCPY_EXT_PROGRAM_MOST_OUTPUTS + 1; },
      [](Builder &, Source s) { s.output_count = 1; },
      [](Builder &, Source s) { s.instructions = nullptr; },
      [](Builder &, Source s) { s.inputs = nullptr; },
      [](Builder &, Source s) { s.result = 2; },
      [](Builder &, Source s) { s.flags = 2; },
      [](Builder &b, Source) { b.code[0].opcode = ROCPY_EXT_OP_NONE; },
      [](Builder &b, Source) { b.code[0].reserved = 1; },
      [](Builder &b, Source) { b.inputs[0].reserved = 1; },
      [](Builder &b, Source) { b.code[0].destination = 2; },
      [](Builder &b, Source) { b.code[1].sources[1] = 2; },
      [](Builder &b, Source) { b.code[1].sources[0] = 1; },
      [](Builder &b, Source) { b.code[0].opcode = ROCPY_EXT_OP_PARTNER; },
      [](Builder &b, Source) {
        b.code[0].opcode = ROCPY_EXT_OP_INPUT;
        b.code[0].index = 1;
      },
      [](Builder &b, Source) {
        b.code[1].opcode = ROCPY_EXT_OP_OUTPUT;
        b.code[1].index = 1;
      },
      [](Builder &b, Source s) {
        b.code[0].opcode = ROCPY_EXT_OP_AUX;
        s.flags = ROCPY_EXT_PROGRAM_PAIRS;
      },
  };
  for (const auto &change : wrong) require(!taken(change, &known) && known, "a malformed program is refused");
  const std::function<void(Builder &, Source)> foreign[] = {
      [](Builder &b, Source) { b.code[0].opcode = 999; },
      [](Builder &b, Source) { b.inputs[0].type = HIP_C_32F; },
      [](Builder &b, Source) { b.inputs[0].type = 12345; },
      [](Builder &b, Source) {
        b.code[1].opcode = ROCPY_EXT_OP_ROUND;
        b.code[1].index = HIP_C_32F;
      },
  };
  for (const auto &change : foreign) require(!taken(change, &known) && !known, "what is not known is refused as such");
}

void all() {
  activations();
  const std::pair<Type, int> types[] = {{Type::f32, HIP_R_32F},   {Type::f64, HIP_R_64F},      {Type::f16, HIP_R_16F},
                                        {Type::bf16, HIP_R_16BF}, {Type::e4m3, HIP_R_8F_E4M3}, {Type::i8, HIP_R_8I},
                                        {Type::i8, HIP_R_8U},     {Type::i32, HIP_R_32I}};
  for (const auto &[type, number] : types) {
    operands(type, number, 13, 70, true, 2);
    operands(type, number, 2, 37, false, 1);
    operands(type, number, 70, 3, true, 1);
  }
  for (Type type : {Type::f32, Type::bf16, Type::f64}) {
    pairs(5, 33, type, false, true);
    pairs(40, 70, type, true, false);
    pairs(3, 1100, type, false, false);
    pairs(70, 1, type, false, true);
  }
  long_programs();
  narrowed();
}

}  // namespace
}  // namespace gemm_test

int main() {
  using namespace gemm_test;
  refused();
  for (const char *isa :
       {"avx512_bf16", "avx512_vbmi", "avx512_vnni", "avx512", "avx2_vnni", "avx2", "neon", "baseline"}) {
    if (rocpy_host::gemm::use_kernel_set(isa)) all();
  }
  printf("%lld checks, %d failures\n", static_cast<long long>(checks), failures);
  return failures != 0;
}
