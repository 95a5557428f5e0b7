// SPDX-License-Identifier: MIT
// Tests of the product engine's narrow types: 8-bit floating point and 8-bit integers through every algorithm and
// kernel set, scales, the largest magnitude, and rows whose bits do not depend on how many there are.
#include <cstring>
#include <limits>

#include "blocking.hpp"
#include "gemm_check.hpp"

namespace gemm_test {
namespace {

const Type float8_types[] = {Type::e4m3, Type::e5m2, Type::e4m3_fnuz, Type::e5m2_fnuz};

template <class F>
void format(double largest, double smallest, int nans) {
  int seen = 0;
  double last = -1;
  for (uint32_t code = 0; code < 2 * F::sign; code++) {
    const uint8_t byte = static_cast<uint8_t>(code);
    const float value = small_to_float<F>(byte);
    if (std::isnan(value)) {
      seen++;
      if (!std::isnan(small_to_float<F>(float_to_small<F>(value)))) failures++;
      continue;
    }
    if (std::isinf(value)) {
      if (small_to_float<F>(float_to_small<F>(value)) != (value > 0 ? largest : -largest)) failures++;
      continue;
    }
    if (float_to_small<F>(value) != byte) failures++;
    if (code >= F::sign) continue;
    if (value <= last) failures++;
    // Midway between neighbours goes to the even code, anything nearer to one of them to that one.
    if (code > 0) {
      const float middle = static_cast<float>((last + value) / 2);
      if (float_to_small<F>(middle) != (code & 1 ? code - 1 : code)) failures++;
      if (float_to_small<F>(std::nextafter(middle, 1e9f)) != code) failures++;
      if (float_to_small<F>(std::nextafter(middle, 0.0f)) != code - 1) failures++;
    }
    if (code == 1 && value != smallest) failures++;
    last = value;
  }
  if (last != largest || seen != nans) failures++;
  const float infinity = std::numeric_limits<float>::infinity();
  for (float huge : {static_cast<float>(largest * 1.0001), 1e30f, infinity}) {
    if (small_to_float<F>(float_to_small<F>(huge)) != largest) failures++;
    if (small_to_float<F>(float_to_small<F>(-huge)) != -largest) failures++;
  }
  const bool no_minus_zero = F::specials == Specials::minus_zero;
  if (float_to_small<F>(-0.0f) != (no_minus_zero ? 0 : F::sign)) failures++;
  if (float_to_small<F>(-1e-30f) != (no_minus_zero ? 0 : F::sign)) failures++;
}

void formats() {
  format<E4m3>(448, 0x1p-9, 2);
  format<E5m2>(57344, 0x1p-16, 6);
  format<E4m3Fnuz>(240, 0x1p-10, 1);
  format<E5m2Fnuz>(57344, 0x1p-17, 1);
  format<E2m3>(7.5, 0.125, 0);
  format<E3m2>(28, 0.0625, 0);
  format<E2m1>(6, 0.5, 0);
  if (e8m0_to_float(127) != 1 || e8m0_to_float(0) != 0x1p-127f || e8m0_to_float(254) != 0x1p127f) failures++;
  if (!std::isnan(e8m0_to_float(255))) failures++;
}

// The vector conversions of the kernels agree with the scalar ones, in both directions, to the bit.
void conversions() {
  for (Type type : float8_types) {
    Case c;
    c.m = c.k = 1;
    c.n = 4099;
    c.d = type;
    Operands o(c);
    Random random;
    o.a.fill([] { return 1.0; });
    int64_t turn = 0;
    o.b.fill([&] {
      if (turn++ % 100 == 0) return turn % 200 == 1 ? static_cast<double>(NAN) : -static_cast<double>(INFINITY);
      return random.uniform() * std::exp2(static_cast<double>(random.integer(-20, 18)));
    });
    Case back = c;
    back.b = type;
    back.d = Type::f32;
    back.n = 256;
    Operands codes(back);
    codes.a.fill([] { return 1.0; });
    for (int i = 0; i < 256; i++) static_cast<uint8_t *>(codes.b.data())[i] = static_cast<uint8_t>(i);
    for (int32_t id : {101, 201, 301}) {
      size_t needed = 0;
      if (!supports(id, o.problem, &needed)) return fail("narrow result", c, id);
      Workspace workspace(needed);
      run(id, o.problem, workspace.start, needed);
      for (int64_t j = 0; j < c.n; j++) {
        unsigned char want;
        write(&want, type, 0, o.b.get(0, 0, j));
        if (static_cast<const unsigned char *>(o.d.data())[j] != want) return fail("conversion of the result", c, id);
      }
      supports(id, codes.problem, &needed);
      Workspace more(needed);
      run(id, codes.problem, more.start, needed);
      for (int64_t j = 0; j < 256; j++) {
        const double got = codes.d.get(0, 0, j), want = codes.b.get(0, 0, j);
        // A product by 1 keeps all but the sign of 0, which a sum that begins with 0 does not have.
        if (!(got == want || (std::isnan(got) && std::isnan(want)))) return fail("conversion of an operand", back, id);
      }
    }
  }
}

void byte_types() {
  const Type results[] = {Type::f32, Type::f16, Type::bf16, Type::e4m3, Type::e5m2, Type::e4m3_fnuz, Type::e5m2_fnuz};
  const Type others[] = {Type::e4m3, Type::e5m2, Type::e4m3_fnuz, Type::e5m2_fnuz, Type::f16, Type::bf16, Type::f32};
  const Type biases[] = {Type::f32, Type::f16, Type::bf16};
  const ScaleKind kinds[] = {ScaleKind::none, ScaleKind::scalar, ScaleKind::vector};
  const Activation activations[] = {Activation::none, Activation::relu, Activation::gelu};
  int turn = 0;
  for (Type a : float8_types) {
    for (Type b : others) {
      for (Type d : results) {
        Case c;
        c.a = turn % 2 ? a : b;
        c.b = turn % 2 ? b : a;
        c.d = d;
        c.bias = biases[turn % 3];
        c.aux = turn % 2 ? d : results[turn % 7];
        c.a_layout = static_cast<Layout>(turn % 3);
        c.b_layout = static_cast<Layout>(turn / 3 % 3);
        c.has_bias = turn % 2;
        c.per_row = turn % 4 == 1;
        c.activation = activations[turn % 5 % 3];
        c.aux_use = turn % 5 == 0 ? Aux::store : Aux::none;
        c.a_scale = kinds[turn % 3];
        c.b_scale = kinds[turn / 2 % 3];
        c.result_scales = turn % 4 == 2;
        c.amax = turn % 3 == 0;
        c.alpha = turn % 2 ? 1 : 0.75;
        c.beta = turn % 6 == 4 ? -0.5 : 0;
        c.m = turn % 3 ? 29 : 7;
        c.n = turn % 4 ? 37 : 6;
        c.k = turn % 5 ? 41 : 300;
        c.batch = 1 + turn % 3;
        c.gap = turn % 2 * 3;
        c.shift = turn % 4;
        turn++;
        run_case(c);
        c.packed = true;
        run_case(c);
      }
    }
  }
}

// Sizes on both sides of register tiles and of every variant's blocks.
void sizes(Type type, Type result) {
  Case c;
  c.a = c.b = type;
  c.d = result;
  c.integers = true;
  const int64_t small[] = {1, 2, 3, 8, 13, 14, 15, 16, 17, 31, 32, 33};
  for (int64_t m : small) {
    for (int64_t n : small) {
      c.m = m;
      c.n = n;
      c.k = (m * 7 + n * 3) % 40;
      c.b_layout = m % 2 ? Layout::row : Layout::column;
      c.a_layout = n % 3 ? Layout::row : Layout::column;
      c.packed = (m + n) % 4 == 0;
      run_case(c);
    }
  }
  // Few rows read several panels side by side, in several passes, and what is left over one by one.
  c.packed = true;
  c.n = 301;
  for (int64_t m = 1; m <= 8; m++) {
    for (int64_t k : {29, 1103}) {
      c.m = m;
      c.k = k;
      c.b_layout = m % 2 ? Layout::column : Layout::row;
      run_case(c);
    }
  }
  c.packed = false;
  for (const Variant &v : variants) {
    for (int step = -1; step <= 1; step++) {
      c.a_layout = step ? Layout::row : Layout::column;
      c.m = v.rows + step;
      c.n = 33;
      c.k = 19;
      run_case(c);
      c.m = 15;
      c.n = v.columns + step;
      c.k = 11;
      c.b_layout = step > 0 ? Layout::column : Layout::row;
      run_case(c);
      c.m = 5;
      c.n = 18;
      for (int64_t group : {1, 2, 4}) {
        if (type != Type::i8 && group > 1) continue;
        c.k = v.depth * group + step;
        run_case(c);
      }
    }
  }
}

// Few rows of integers read lines of b in another way where they share cache sets, with all that can be left over.
void lines_pages_apart() {
  const int64_t columns[] = {1, 63, 64, 130, 384, 449, 815}, depths[] = {1, 3, 64, 67, 129, 5000};
  for (int turn = 0; turn < 84; turn++) {
    Case c;
    c.a = c.b = Type::i8;
    c.d = Type::i32;
    c.bias = Type::i32;
    c.m = 1 + turn % 10;
    c.n = columns[turn % 7];
    c.k = depths[turn % 6];
    c.gap = turn % 3 == 2 ? 4096 - c.n % 64 : 4096 - c.n;
    c.a_layout = turn % 4 == 3 ? Layout::column : Layout::row;
    run_case(c);
  }
}

// Integer results are exact; of those in floating point the sums are.
void integers() {
  const ScaleKind kinds[] = {ScaleKind::none, ScaleKind::scalar, ScaleKind::vector};
  const Activation exact[] = {Activation::none, Activation::relu, Activation::clamp};
  const Activation real[] = {Activation::none, Activation::gelu, Activation::silu, Activation::dgelu};
  for (int turn = 0; turn < 240; turn++) {
    Case c;
    c.a = c.b = Type::i8;
    const Type results[] = {Type::i32, Type::i8, Type::f32, Type::f16, Type::bf16, Type::i8, Type::e4m3};
    c.d = results[turn % 7];
    const bool whole = turn % 7 < 2;
    c.bias = whole ? Type::i32 : Type::f32;
    c.aux = turn % 2 ? Type::f32 : Type::bf16;
    c.has_bias = turn % 3 == 1;
    c.per_row = turn % 6 == 1;
    c.activation = whole ? exact[turn % 5 % 3] : real[turn % 4];
    c.low = -1000;
    c.high = 50;
    c.aux_use = c.activation == Activation::dgelu ? Aux::load : !whole && turn % 4 == 1 ? Aux::store : Aux::none;
    c.alpha = whole ? (turn % 2 ? 1 : -3) : 0x1p-14;
    c.beta = turn % 4 == 3 ? (whole ? 2 : 0.5) : 0;
    c.alpha_vector = turn % 9 == 8;
    if (!whole) {
      c.a_scale = turn % 7 == 5 ? ScaleKind::scalar : kinds[turn % 3];
      c.b_scale = kinds[turn / 3 % 3];
      c.result_scales = turn % 5 == 2;
      c.amax = turn % 2;
      if (c.alpha_vector) c.d = Type::f32;
    }
    c.a_layout = static_cast<Layout>(turn % 3);
    c.b_layout = static_cast<Layout>(turn / 3 % 3);
    c.m = 1 + turn * 7 % 40;
    c.n = 1 + turn * 11 % 70;
    c.k = turn % 8 == 0 ? 5000 + turn : turn * 5 % 137;
    c.batch = 1 + turn % 2;
    c.gap = turn % 3;
    c.packed = turn % 4 == 2;
    run_case(c);
  }
  // All of the largest magnitude, whose sum needs every bit; beyond 2^17 of k the sums are modulo 2^32.
  for (int64_t k : {131071, 131072, 131075}) {
    Case c;
    c.a = c.b = Type::i8;
    c.d = Type::i32;
    c.m = 3;
    c.n = 5;
    c.k = k;
    Operands o(c);
    for (double left : {-128.0, 127.0}) {
      o.a.fill([&] { return left; });
      o.b.fill([] { return -128.0; });
      const int32_t want = static_cast<int32_t>(static_cast<uint32_t>(static_cast<int64_t>(left) * -128 * k));
      for (int i = 0; i < algorithm_count(); i++) {
        const int32_t id = algorithm(i).id;
        size_t needed = 0;
        if (!supports(id, o.problem, &needed)) continue;
        Workspace workspace(needed);
        run(id, o.problem, workspace.start, needed);
        for (int64_t r = 0; r < c.m; r++) {
          for (int64_t j = 0; j < c.n; j++) {
            if (o.d.get(0, r, j) != want) return fail("extreme integers", c, id);
          }
        }
        checks++;
      }
    }
  }
}

// The first row, with every algorithm that promises it, has the same bits whatever m is.
void batch_invariance() {
  const Type sets[][2] = {{Type::f32, Type::f32},   {Type::f16, Type::f16},       {Type::bf16, Type::f32},
                          {Type::e4m3, Type::bf16}, {Type::e5m2_fnuz, Type::f32}, {Type::f64, Type::f64},
                          {Type::i8, Type::f32}};
  // More than two blocks of the most rows.
  const int64_t most_rows = case_interval == 1 ? 1024 : 577;
  for (auto &set : sets) {
    for (bool packed : {false, true}) {
      for (Layout layout : {Layout::row, Layout::column}) {
        Case c;
        c.a = c.b = set[0];
        c.d = c.aux = set[1];
        c.bias = set[1] == Type::f64 ? Type::f64 : Type::f32;
        c.has_bias = true;
        c.activation = Activation::gelu;
        c.m = most_rows;
        c.n = 75;
        c.k = 1200;
        c.b_layout = layout;
        c.packed = packed;
        if (set[0] == Type::i8) c.alpha = 0x1p-18;
        Operands o(c);
        o.pack_b();
        std::vector<unsigned char> seen;
        int promised = 0;
        for (int64_t m : {int64_t{1}, int64_t{2}, int64_t{17}, int64_t{33}, int64_t{128}, most_rows}) {
          Problem p = o.problem;
          p.m = m;
          for (int i = 0; i < algorithm_count(); i++) {
            const int32_t id = algorithm(i).id;
            size_t needed = 0;
            if (!batch_invariant(id, p)) continue;
            if (!supports(id, p, &needed)) {
              fail("a batch-invariant algorithm takes every m", c, id);
              continue;
            }
            promised++;
            Workspace workspace(needed);
            run(id, p, workspace.start, needed);
            const unsigned char *row = static_cast<const unsigned char *>(o.d.data());
            std::vector<unsigned char> got(row, row + static_cast<size_t>(c.n) * size_of(c.d));
            if (seen.empty()) seen = got;
            if (seen != got) fail("the first row depends on m", c, id);
            checks++;
          }
        }
        if (promised == 0) fail("no batch-invariant algorithm", c, 101);
      }
    }
  }
  if (batch_invariant(201, Problem()) || batch_invariant(401, Problem())) failures++;
}

// The family that reads operands where they are adds in the order of the tiles: the same bits as theirs.
void small_is_direct() {
  const int64_t extents[] = {1, 2, 5, 8, 16, 17, 31, 33, 64, 65, 96, 100, 128, 192, 400, 1000};
  const int64_t many[] = {1, 2, 3, 5, 8, 14, 40, 96, 500, 3000};
  Random random;
  for (Type type : {Type::f32, Type::f64}) {
    for (int turn = 0; turn < 400; turn++) {
      if (turn / 12 % case_interval) continue;
      Case c;
      c.a = c.b = c.d = c.bias = type;
      c.a_layout = static_cast<Layout>(turn % 3);
      c.m = many[random.integer(0, 9)];
      c.n = extents[random.integer(0, 13)];
      c.k = turn % 20 == 0 ? 0 : extents[random.integer(0, 15)];
      c.gap = turn % 3;
      c.has_bias = turn % 2 == 0;
      c.packed = turn % 5 == 1;
      if (turn % 4 == 0) c.activation = Activation::gelu;
      // What follows the sums of many tiles together, rows of which may count as one.
      c.aux = type;
      if (turn % 9 == 1) c.aux_use = Aux::store;
      if (turn % 7 < 3) c.alpha = 0.75;
      if (turn % 8 > 4) c.beta = 0.5;
      c.in_place = turn % 7 == 2;
      c.amax = type == Type::f32 && turn % 11 == 0;
      Operands o(c);
      const auto result = [&](int32_t id) {
        if (!run_anew(o, id)) fail("is not taken", c, id);
        std::vector<unsigned char> all = o.d.bytes;
        all.insert(all.end(), o.aux.bytes.begin(), o.aux.bytes.end());
        const auto *largest = reinterpret_cast<const unsigned char *>(&o.amax);
        all.insert(all.end(), largest, largest + sizeof o.amax);
        return all;
      };
      const std::vector<unsigned char> direct = result(101);
      int taken = 0;
      for (const int32_t id : {501, 502, 503}) {
        if (!supports(id, o.problem, nullptr)) continue;
        taken++;
        if (result(id) != direct) fail("small and direct have the same bits", c, id);
        if (!o.d.guards_hold() || !o.aux.guards_hold()) fail("wrote outside its outputs", c, id);
      }
      const bool fits = c.n * c.k * static_cast<int64_t>(size_of(type)) <= (36 << 10);
      if (fits && (c.k <= 96 || (c.m <= 8 && c.n > 1)) && taken == 0) fail("what fits the cache is taken", c, 501);
      checks++;
    }
  }
}

void special_values() {
  for (Type type : float8_types) {
    Case c;
    c.a = c.b = type;
    c.d = type;
    c.m = 3;
    c.n = 40;
    c.k = 20;
    c.amax = true;
    Operands o(c);
    o.a.set(0, 1, 7, NAN);
    o.a.set(0, 2, 0, 1e9);
    for (int64_t j = 0; j < c.n; j++) o.b.set(0, 0, j, 1e9);
    for (int i = 0; i < algorithm_count(); i++) {
      const int32_t id = algorithm(i).id;
      size_t needed = 0;
      if (!supports(id, o.problem, &needed)) continue;
      Workspace workspace(needed);
      run(id, o.problem, workspace.start, needed);
      for (int64_t j = 0; j < c.n; j++) {
        if (!std::isnan(o.d.get(0, 1, j))) return fail("NaN must stay", c, id);
        if (o.d.get(0, 2, j) != held(type, 1e30)) return fail("too large a result must be the largest number", c, id);
      }
      if (!std::isnan(o.amax)) fail("amax must tell of NaN", c, id);
      checks++;
    }
  }
}

// What no algorithm takes.
void refused() {
  const auto taken = [](const Problem &p) {
    for (int i = 0; i < algorithm_count(); i++) {
      if (supports(algorithm(i).id, p, nullptr)) return true;
    }
    return false;
  };
  Problem p;
  p.m = p.n = p.k = 32;
  p.a.row_stride = p.b.row_stride = p.d_row_stride = 32;
  p.a.column_stride = p.b.column_stride = 1;
  if (!taken(p)) failures++;
  Problem q = p;
  q.compute = Type::i32;
  if (taken(q)) failures++;
  q.a.type = q.b.type = Type::i8;
  if (!taken(q)) failures++;
  q.d_type = Type::i32;
  if (!taken(q)) failures++;
  q.activation = Activation::gelu;
  if (taken(q)) failures++;
  q.activation = Activation::none;
  float one = 1;
  q.d_scale = &one;
  if (taken(q)) failures++;
  q = p;
  q.a.type = Type::i8;
  if (taken(q)) failures++;
  q = p;
  q.b.type = Type::e2m1;
  if (taken(q)) failures++;
  q.b.row_stride = 1;
  q.b.column_stride = 33;
  if (taken(q)) failures++;
  q.b.column_stride = 32;
  if (!taken(q)) failures++;
  q.b.scale.kind = ScaleKind::block32;
  if (!taken(q)) failures++;
  q.k = 33;
  if (taken(q)) failures++;
  q = p;
  q.compute = q.a.type = q.b.type = q.d_type = Type::f64;
  if (!taken(q)) failures++;
  q.amax = &one;
  if (taken(q)) failures++;
}

}  // namespace
}  // namespace gemm_test

int main() {
  using namespace gemm_test;
  formats();
  refused();
  for (const char *isa :
       {"avx512_bf16", "avx512_vbmi", "avx512_vnni", "avx512", "avx2_vnni", "avx2", "neon", "baseline"}) {
    if (!use_kernel_set(isa)) continue;
    const bool floats = !strstr(isa, "vnni");  // the other kernels of those sets are another set's
    if (floats) {
      conversions();
      special_values();
      byte_types();
      sizes(Type::e4m3, Type::f32);
      batch_invariance();
      small_is_direct();
    }
    sizes(Type::i8, Type::i32);
    lines_pages_apart();
    integers();
    printf("%s: %lld values compared, %d failures\n", isa, static_cast<long long>(checks), failures);
  }
  return failures != 0;
}
