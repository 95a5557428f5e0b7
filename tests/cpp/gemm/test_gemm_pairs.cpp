// SPDX-License-Identifier: MIT
// Products by pairs of bfloat16 beside those one by one: bit for bit alike with every algorithm, whatever the operands
// hold. The instruction takes subnormal numbers and leaves sums that are subnormal for zero; what would show is here.
#include "blocking.hpp"
#include "gemm_check.hpp"

namespace gemm_test {
namespace {

const Type types[] = {Type::bf16, Type::bf16, Type::bf16, Type::e4m3, Type::e5m2, Type::e4m3_fnuz, Type::e5m2_fnuz};

// What operands hold: numbers of one size; any bits; subnormal ones; numbers whose products lie where sums can become
// subnormal, so that terms cancel; ordinary ones and one that is not; zeros of both signs; ones that overflow.
enum class Content { ordinary, any, subnormal, cancelling, special, zeros, huge, last };

uint16_t number(Random &random, int exponent) {
  return static_cast<uint16_t>((random.next() & 0x807f) | static_cast<uint64_t>(exponent) << 7);
}

uint16_t draw(Random &random, Content content, int exponent) {
  switch (content) {
    case Content::any:
      return static_cast<uint16_t>(random.next());
    case Content::subnormal:
      return number(random, 0);
    case Content::cancelling:
      // Of few mantissas, so that products meet again with another sign.
      return static_cast<uint16_t>((number(random, 0) & 0x8063) | exponent << 7);
    case Content::zeros:
      return random.next() & 1 ? 0x8000 : 0;
    case Content::huge:
      return number(random, static_cast<int>(random.integer(189, 192)));
    default:
      return number(random, static_cast<int>(random.integer(120, 128)));
  }
}

// `exponent` is of the numbers that cancel.
void fill(Buffer &buffer, Random &random, Content content, int exponent) {
  if (buffer.type != Type::bf16) return;  // all bytes are ordinary numbers of bfloat16, but for NaN
  for (int64_t g = 0; g < buffer.batch; g++) {
    for (int64_t i = 0; i < buffer.rows; i++) {
      for (int64_t j = 0; j < buffer.columns; j++) {
        static_cast<uint16_t *>(buffer.data())[buffer.at(g, i, j)] = draw(random, content, exponent);
      }
    }
  }
  if (content != Content::special) return;
  const uint16_t odd[] = {0x0001, 0x8040, 0x7f80, 0xff80, 0x7fc1, 0x7f81, 0xffff, 0x0080, 0x7f7f, 0x8000};
  uint16_t &one = static_cast<uint16_t *>(
      buffer.data())[buffer.at(0, random.integer(0, buffer.rows - 1), random.integer(0, buffer.columns - 1))];
  one = odd[random.integer(0, 9)];
}

// The bits of the result and of its column sums. Which NaN a sum of several becomes is the compiler's choice.
std::vector<uint64_t> result(Operands &o, int32_t id) {
  if (!run_anew(o, id)) return {};
  std::vector<uint64_t> all;
  for (const Buffer *buffer : {&o.d, &o.bias}) {
    for (int64_t g = 0; g < buffer->batch; g++) {
      for (int64_t i = 0; i < buffer->rows; i++) {
        for (int64_t j = 0; j < buffer->columns; j++) {
          const double value = buffer->get(g, i, j);
          uint64_t bits = 0;
          if (value == value) memcpy(&bits, &value, sizeof bits);
          all.push_back(value == value ? bits : UINT64_MAX);
        }
      }
    }
  }
  if (!o.d.guards_hold() || !o.bias.guards_hold()) fail("wrote outside its outputs", o.c, id);
  return all;
}

void compare(const Case &c, Content content, Random &random) {
  Operands o(c);
  fill(o.a, random, content, 70);
  fill(o.b, random, content, static_cast<int>(random.integer(69, 74)));
  for (int i = 0; i < algorithm_count(); i++) {
    const int32_t id = algorithm(i).id;
    use_kernel_set("avx512_bf16");
    const std::vector<uint64_t> pairs = result(o, id);
    use_kernel_set("avx512");
    if (pairs != result(o, id)) {
      fail("pairs have other bits, content " + std::to_string(static_cast<int>(content)), c, id);
    }
    checks += c.m * c.n;
  }
}

void all() {
  Random random;
  for (int turn = 0; turn < 1400; turn++) {
    Case c;
    const bool few = turn % 4 == 0;
    c.m = few ? random.integer(1, 9) : random.integer(8, turn % 7 ? 70 : 260);
    c.n = random.integer(1, turn % 5 ? 70 : 400);
    c.k = random.integer(turn % 50 ? 1 : 0, turn % 3 ? 70 : turn % 10 ? 300 : 1500);
    c.batch = turn % 11 ? 1 : 2;
    c.a = types[random.integer(0, 6)];
    c.b = types[random.integer(0, 6)];
    c.d = turn % 4 ? Type::f32 : Type::bf16;
    c.a_layout = static_cast<Layout>(turn % 13 ? random.integer(0, 1) : 2);
    c.b_layout = static_cast<Layout>(turn % 13 ? random.integer(0, 1) : 2);
    c.packed = few ? turn % 8 : turn % 6 == 1;
    c.gap = random.integer(0, 3);
    c.shift = random.integer(0, 3);
    if (turn % 8 == 3) c.alpha = 0.75, c.beta = -0.5;
    if (turn % 8 == 5) c.has_bias = true, c.activation = Activation::gelu;
    if (turn % 8 == 7) c.reduction = Reduction::result_columns;
    compare(c, static_cast<Content>(turn % static_cast<int>(Content::last)), random);
  }
}

// Codes of bytes: any, NaN among them; numbers of all sizes, so that sums are rounded; a few that cancel.
void fill_bytes(Buffer &buffer, Random &random, int content) {
  for (int64_t g = 0; g < buffer.batch; g++) {
    for (int64_t i = 0; i < buffer.rows; i++) {
      for (int64_t j = 0; j < buffer.columns; j++) {
        const uint64_t bits = random.next(), number = bits & 0xf7;
        const uint64_t code = content == 0 ? bits : content == 1 ? number | (number == 0x80) : (bits & 0x83) | 0x30;
        static_cast<uint8_t *>(buffer.data())[buffer.at(g, i, j)] = static_cast<uint8_t>(code);
      }
    }
  }
}

// Few rows or columns beside a matrix that is read where it is; sums of dots are cut every 4096 of k.
Case few(Random &random, int turn, bool is_deep) {
  const int64_t depths[] = {1, 2, 15, 16, 17, 31, 32, 33, 48, 49, 63, 64, 65, 80, 96};
  const int64_t deep[] = {4095, 4096, 4097, 4112, 4129, 5000, 8192, 8193};
  Case c;
  c.m = random.integer(1, 17);
  c.n = random.integer(1, is_deep ? 30 : turn % 5 ? 140 : 700);
  c.k = is_deep ? deep[random.integer(0, 7)] : turn % 3 ? random.integer(1, 140) : depths[random.integer(0, 14)];
  if (turn % 2) std::swap(c.m, c.n);
  c.batch = turn % 11 ? 1 : 2;
  c.d = turn % 4 ? Type::f32 : Type::bf16;
  c.a_layout = static_cast<Layout>(random.integer(0, 1));
  c.b_layout = static_cast<Layout>(random.integer(0, 1));
  c.gap = random.integer(0, 3);
  c.shift = random.integer(0, 3);
  if (turn % 8 == 7) c.reduction = Reduction::result_columns;
  return c;
}

void few_bytes() {
  Random random;
  for (int turn = 0; turn < 1200; turn++) {
    const bool is_deep = turn % 6 < 2;
    Case c = few(random, turn, is_deep);
    c.a = types[random.integer(3, 6)];
    c.b = types[random.integer(3, 6)];
    Operands o(c);
    const int content = is_deep ? 1 : turn % 4;
    if (content < 3) fill_bytes(o.a, random, content), fill_bytes(o.b, random, content);
    for (int i = 0; i < algorithm_count(); i++) {
      const int32_t id = algorithm(i).id;
      use_kernel_set("avx512_bf16");
      const std::vector<uint64_t> pairs = result(o, id);
      use_kernel_set("avx512");
      if (pairs != result(o, id)) fail("few bytes have other bits, content " + std::to_string(content), c, id);
      checks += c.m * c.n;
    }
  }
}

void few_halves() {
  Random random;
  for (int turn = 0; turn < 1000; turn++) {
    Case c = few(random, turn, turn % 7 == 0);
    c.a = c.b = Type::bf16;
    compare(c, static_cast<Content>(turn / 2 % static_cast<int>(Content::last)), random);
  }
}

// A number that is too small, among zeros, shows wherever it is, in the last line and column too.
void one_small_number() {
  Random random;
  for (int turn = 0; turn < 300; turn++) {
    Case c = few(random, turn, turn % 5 == 0);
    c.a = c.b = Type::bf16;
    if (turn % 7 > 3) c.m = random.integer(8, 70);
    c.packed = turn % 3 == 1;
    Operands o(c);
    Buffer &changed = turn % 4 < 2 ? o.b : o.a, &other = turn % 4 < 2 ? o.a : o.b;
    fill(changed, random, Content::zeros, 0);
    fill(other, random, Content::ordinary, 0);
    const int64_t i = turn % 3 ? random.integer(0, changed.rows - 1) : changed.rows - 1;
    const int64_t j = turn % 3 ? random.integer(0, changed.columns - 1) : changed.columns - 1;
    static_cast<uint16_t *>(changed.data())[changed.at(0, i, j)] = number(random, 0);
    for (int k = 0; k < algorithm_count(); k++) {
      const int32_t id = algorithm(k).id;
      use_kernel_set("avx512_bf16");
      const std::vector<uint64_t> pairs = result(o, id);
      use_kernel_set("avx512");
      if (pairs != result(o, id)) fail("a small number is lost", c, id);
      checks += c.m * c.n;
    }
  }
}

// From how many rows on pairs are multiplied.
void takes_pairs() {
  Case c;
  use_kernel_set("avx512_bf16");
  for (Type type : {Type::bf16, Type::e4m3}) {
    c.a = c.b = type;
    for (int64_t m = 1; m < 20; m++) {
      c.m = m;
      const bool many = m >= (type == Type::bf16 ? 15 : 8);
      if (multiplies_pairs(Operands(c).problem) != many) fail("pairs from some rows on", c, 101);
    }
  }
  // And of how many where the other matrix is read where it is.
  for (Layout layout : {Layout::row, Layout::column}) {
    c.a = c.b = Type::bf16;
    c.b_layout = layout;
    c.n = c.k = 40;
    for (int64_t m = 1; m < 17; m++) {
      c.m = m;
      if (multiplies_few_pairs(Operands(c).problem) != (m > 3)) fail("few pairs from some rows on", c, 101);
    }
  }
  c.b = Type::f16;
  if (multiplies_few_pairs(Operands(c).problem)) fail("few pairs are not of f16", c, 101);
  if (multiplies_pairs(Operands(c).problem)) fail("pairs are not of f16", c, 101);
}

// With alpha 0 operands may be null, packed ones too, and there may be no k.
void nothing_to_multiply() {
  use_kernel_set("avx512_bf16");
  for (int turn = 0; turn < 16; turn++) {
    Case c;
    c.a = c.b = turn & 1 ? Type::bf16 : Type::e4m3;
    c.m = turn & 2 ? 33 : 3;
    c.n = 40;
    c.k = turn & 8 ? 0 : 64;
    c.packed = turn & 4;
    c.alpha = turn & 8 ? 1 : 0;
    c.beta = 2;
    Operands o(c);
    o.pack_b();
    if (c.k) o.problem.a.data = o.problem.b.data = nullptr;
    with_each_algorithm(o, [&](int32_t id) {
      checks++;
      for (int64_t j = 0; j < c.n; j++) {
        if (o.d.get(0, c.m - 1, j) != 2 * o.old.get(0, c.m - 1, j)) return fail("nothing is added", c, id);
      }
    });
  }
}

// Where pairs are slow they are not chosen.
void chosen_where_fast() {
#if defined(__x86_64__)
  use_kernel_set("");
  const bool chosen = kernel_set().pairs, slow = __builtin_cpu_is("intel");
  if (chosen == slow) failures++, printf("FAILED: pairs of %s are %schosen\n", isa_name(), chosen ? "" : "not ");
#endif
}

}  // namespace
}  // namespace gemm_test

int main() {
  using namespace gemm_test;
  if (!use_kernel_set("avx512_bf16")) {
    printf("this processor multiplies no pairs\n");
    return 77;
  }
  chosen_where_fast();
  takes_pairs();
  nothing_to_multiply();
  all();
  few_bytes();
  few_halves();
  one_small_number();
  printf("pairs: %lld values compared, %d failures\n", static_cast<long long>(checks), failures);
  return failures != 0;
}
