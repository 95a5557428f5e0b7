// SPDX-License-Identifier: MIT
// Matrix products of a wave: MFMA of CDNA and WMMA of RDNA, their elements where AMD's documents have them.
#include "fp8.hpp"
#include "handlers.hpp"
#include "operands.hpp"

#include <algorithm>
#include <array>

namespace rocpy_host::amdgpu {

namespace {

// Elements of matrices. All are exact in double; so are products of two, except of f64.
enum class Element : uint8_t { f16, bf16, f32, xf32, f64, fp8, bf8, i4, u4, i8, u8, i32 };

constexpr int bits_of(Element element) {
  switch (element) {
    case Element::i4:
    case Element::u4:
      return 4;
    case Element::fp8:
    case Element::bf8:
    case Element::i8:
    case Element::u8:
      return 8;
    case Element::f16:
    case Element::bf16:
      return 16;
    case Element::f64:
      return 64;
    default:
      return 32;
  }
}

constexpr bool is_small_float(Element element) { return element == Element::f16 || element == Element::bf16; }
constexpr bool is_whole(Element element) { return element >= Element::i4; }

struct Product {
  Element a, b, result;
  int rows, columns, depth, blocks;
};

constexpr size_t most_inputs = 1024, most_results = 2048;
using Inputs = std::array<double, most_inputs>;
using Results = std::array<double, most_results>;

struct Slot {
  int lane, item;
};

// The registers of a matrix as items of each lane, which begin `apart` bits from each other.
class Items {
 public:
  Items(Wave &w, unsigned code, int count, int bits, int apart, int first = 0)
      : registers_(w.vectors(code, static_cast<unsigned>((count * apart + 31) / 32))),
        lanes_(w.lanes),
        bits_(bits),
        apart_(apart),
        first_(first) {}

  uint64_t get(Slot slot) const {
    const int at = slot.item * apart_ + first_;
    const uint32_t *low = registers_ + at / 32 * lanes_ + slot.lane;
    if (bits_ == 64) {
      return low[0] | static_cast<uint64_t>(low[lanes_]) << 32;
    }
    return static_cast<uint64_t>(low[0]) >> (at % 32) & mask();
  }

  void set(Slot slot, uint64_t bits) {
    const int at = slot.item * apart_ + first_;
    uint32_t *low = registers_ + at / 32 * lanes_ + slot.lane;
    if (bits_ == 64) {
      low[0] = static_cast<uint32_t>(bits);
      low[lanes_] = static_cast<uint32_t>(bits >> 32);
    } else {
      const uint64_t cleared = low[0] & ~(mask() << (at % 32));
      low[0] = static_cast<uint32_t>(cleared | bits << (at % 32));
    }
  }

 private:
  uint64_t mask() const { return (1ull << bits_) - 1; }

  uint32_t *registers_;
  int lanes_, bits_, apart_, first_;
};

int32_t with_sign(uint64_t bits, int width) {
  return static_cast<int32_t>(static_cast<uint32_t>(bits) << (32 - width)) >> (32 - width);
}

double value_of(uint64_t bits, Element element, Architecture architecture) {
  switch (element) {
    case Element::f16:
      return to_float(Half{static_cast<uint16_t>(bits)});
    case Element::bf16:
      return to_float(Brain{static_cast<uint16_t>(bits)});
    case Element::f32:
      return bit_copy<float>(static_cast<uint32_t>(bits));
    case Element::xf32: {
      // The unit drops the last 13 bits of a float32.
      const float value = bit_copy<float>(static_cast<uint32_t>(bits));
      return std::isnan(value) ? value : bit_copy<float>(static_cast<uint32_t>(bits) & 0xffffe000);
    }
    case Element::f64:
      return bit_copy<double>(bits);
    case Element::fp8:
    case Element::bf8:
      return from_fp8(static_cast<uint8_t>(bits), fp8_of(architecture, element == Element::bf8));
    case Element::u4:
    case Element::u8:
      return static_cast<double>(bits);
    default:
      return with_sign(bits, bits_of(element));
  }
}

uint64_t bits_from(double value, Element element, bool saturates) {
  switch (element) {
    case Element::f16:
      return to_half(value).bits;
    case Element::bf16:
      return to_brain(value).bits;
    case Element::f32:
      return bit_copy<uint32_t>(static_cast<float>(value));
    case Element::f64:
      return bit_copy<uint64_t>(value);
    default:
      if (saturates) {
        value = std::clamp<double>(value, std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max());
      }
      return static_cast<uint32_t>(static_cast<int64_t>(value));
  }
}

// results += a b, by blocks. The sum is kept in double, and rounded once when it is stored.
void multiply(const Product &p, const Inputs &a, const Inputs &b, Results *results) {
  double *sums = results->data();
  const double *left = a.data(), *right = b.data();
  for (int block = 0; block < p.blocks; ++block, right += p.depth * p.columns) {
    for (int row = 0; row < p.rows; ++row, sums += p.columns, left += p.depth) {
      for (int k = 0; k < p.depth; ++k) {
        const double *const line = right + k * p.columns;
        for (int column = 0; column < p.columns; ++column) {
          sums[column] = p.result == Element::f64 ? std::fma(left[k], line[column], sums[column])
                                                  : sums[column] + left[k] * line[column];
        }
      }
    }
  }
}

template <class F>
void for_results(const Product &p, F body) {
  size_t at = 0;
  for (int block = 0; block < p.blocks; ++block) {
    for (int row = 0; row < p.rows; ++row) {
      for (int column = 0; column < p.columns; ++column) {
        body(block, row, column, at++);
      }
    }
  }
}

// The third source: a constant for all elements, or registers that lie as the results do.
template <class SlotOf>
void read_sums(Wave &w, const Instruction &i, const Product &p, const Items *items, SlotOf slot_of, Results *results) {
  uint64_t constant = 0;
  if (items == nullptr) {
    const Type type = p.result == Element::f64 ? Type::f64 : p.result == Element::i32 ? Type::b32 : Type::f32;
    if (!inline_constant(i.sources[2], type, &constant) || (is_small_float(p.result) && constant != 0)) {
      fault(Fault::Kind::instruction, "source operand %u of a matrix product is not emulated", i.sources[2]);
    }
  }
  for_results(p, [&](int block, int row, int column, size_t at) {
    const uint64_t bits = items != nullptr ? items->get(slot_of(block, row, column)) : constant;
    (*results)[at] = value_of(bits, p.result, w.architecture);
  });
}

constexpr bool is_register(uint16_t code) { return code >= code_vgpr && code != code_none; }

// ---- MFMA: waves of 64 lanes, blocks of matrices ----

Slot mfma_input(const Product &p, int extent, int block, int index, int k) {
  const int each = p.depth * extent * p.blocks / 64;
  return {index + extent * (block + p.blocks * (k / each)), k % each};
}

Slot mfma_result(const Product &p, int block, int row, int column) {
  const int height = p.result == Element::f64 ? 1 : 4;
  const int blocks_each = std::max(1, 64 * height / (p.rows * p.columns));
  const int rows_each = 64 / blocks_each / p.columns, groups = p.rows / (height * rows_each);
  return {column + p.columns * (row / height % rows_each + rows_each * (block % blocks_each)),
          row % height + height * (row / (height * rows_each) + groups * (block / blocks_each))};
}

// Lanes of B may take another's elements.
int permuted_lane(unsigned pattern, int lane) {
  switch (pattern) {
    case 0:
      return lane;
    case 1:
    case 2:
      return lane % 32 + 32 * static_cast<int>(pattern - 1);
    case 3:
      return (lane + 16) % 64;
    default:
      return lane % 16 + 16 * static_cast<int>(pattern - 4);
  }
}

// Of the blocks of A one may stand for all. AMD's documents differ on what it means for some of them.
int chosen_block(const Product &p, unsigned broadcast, unsigned chosen, int block) {
  if (broadcast == 0) {
    return block;
  }
  if (1 << broadcast != p.blocks || static_cast<int>(chosen) >= p.blocks) {
    fault(Fault::Kind::instruction, "cbsz:%u abid:%u for %d blocks is not emulated", broadcast, chosen, p.blocks);
  }
  return static_cast<int>(chosen);
}

void mfma_product(Wave &w, const Instruction &i, const Product &p) {
  const bool is_double = p.result == Element::f64;
  const unsigned signs = is_double ? i.matrix_bits[2] : 0, pattern = is_double ? 0 : i.matrix_bits[2];
  const unsigned broadcast = is_double ? 0 : i.matrix_bits[0];
  if (signs != 0 && w.architecture == Architecture::gfx90a) {
    fault(Fault::Kind::instruction, "blgp:%u of float64 is not emulated", signs);
  }
  // MI200 treats denormals of 16-bit floats, and of their results, as zero; the others keep them.
  const bool flushes = w.architecture == Architecture::gfx90a && is_small_float(p.a);
  const int each = p.depth * p.rows * p.blocks / 64;
  const Items a_items(w, i.sources[0], each, bits_of(p.a), bits_of(p.a));
  const Items b_items(w, i.sources[1], each, bits_of(p.b), bits_of(p.b));
  const auto read = [&](const Items &items, Slot slot, Element element, bool negates) {
    uint64_t bits = items.get(slot);
    const uint64_t exponent = element == Element::f16 ? 0x7c00 : 0x7f80;
    bits = flushes && (bits & exponent) == 0 ? bits & 0x8000 : bits;
    const double value = value_of(bits, element, w.architecture);
    return negates ? -value : value;
  };
  Inputs a, b;
  size_t at_a = 0, at_b = 0;
  for (int block = 0; block < p.blocks; ++block) {
    const int from = chosen_block(p, broadcast, i.matrix_bits[1], block);
    for (int row = 0; row < p.rows; ++row) {
      for (int k = 0; k < p.depth; ++k) {
        a[at_a++] = read(a_items, mfma_input(p, p.rows, from, row, k), p.a, (signs & 1) != 0);
      }
    }
    for (int k = 0; k < p.depth; ++k) {
      for (int column = 0; column < p.columns; ++column) {
        Slot slot = mfma_input(p, p.columns, block, column, k);
        slot.lane = permuted_lane(pattern, slot.lane);
        b[at_b++] = read(b_items, slot, p.b, (signs & 2) != 0);
      }
    }
  }
  const int results_each = p.rows * p.columns * p.blocks / 64, width = bits_of(p.result);
  Items to(w, i.results[0], results_each, width, width);
  const auto slot_of = [&](int block, int row, int column) { return mfma_result(p, block, row, column); };
  Results results;
  if (is_register(i.sources[2])) {
    const Items from(w, i.sources[2], results_each, width, width);
    read_sums(w, i, p, &from, slot_of, &results);
  } else {
    read_sums(w, i, p, nullptr, slot_of, &results);
  }
  if ((signs & 4) != 0) {
    std::for_each(results.begin(), results.begin() + p.rows * p.columns * p.blocks, [](double &sum) { sum = -sum; });
  }
  multiply(p, a, b, &results);
  for_results(p, [&](int block, int row, int column, size_t at) {
    uint64_t bits = bits_from(results[at], p.result, false);
    bits = flushes && (bits & 0x7f800000) == 0 ? bits & 0x80000000 : bits;
    to.set(slot_of(block, row, column), bits);
  });
}

template <Element a, Element b, Element result, int rows, int columns, int depth, int blocks>
void mfma(Wave &w, const Instruction &i) {
  static_assert(depth * rows * blocks % 64 == 0, "each lane holds as many elements as the others");
  static_assert(depth * rows * blocks <= static_cast<int>(most_inputs), "the factors have room");
  static_assert(rows * columns * blocks <= static_cast<int>(most_results), "the results have room");
  mfma_product(w, i, {a, b, result, rows, columns, depth, blocks});
}

// ---- WMMA: 16 rows and columns, waves of 32 lanes ----

// On RDNA 3 lanes 16 to 31 repeat the factors of lanes 0 to 15; on RDNA 4 they hold the other half of each row.
Slot wmma_input(bool repeats, int depth, int index, int k) {
  const int each = depth / 2;
  return repeats ? Slot{index, k} : Slot{index + 16 * (k / each), k % each};
}

Slot wmma_result(bool interleaves, int row, int column) {
  return interleaves ? Slot{column + 16 * (row % 2), row / 2} : Slot{column + 16 * (row / 8), row % 8};
}

void check_repeated(const Items &items, int count, int operand) {
  for (int lane = 0; lane < 16; ++lane) {
    for (int k = 0; k < count; ++k) {
      if (items.get({lane, k}) != items.get({lane + 16, k})) {
        fault(Fault::Kind::instruction, "lanes %d and %d hold different values of source %d", lane, lane + 16, operand);
      }
    }
  }
}

void wmma_product(Wave &w, const Instruction &i, Product p) {
  if (w.lanes != 32 || w.exec() != w.all_lanes()) {
    fault(Fault::Kind::instruction, "a matrix product is emulated with all of 32 lanes, and %d of %d are active",
          __builtin_popcountll(w.exec()), w.lanes);
  }
  if (is_whole(p.a)) {  // modifiers of sign say which factors have one
    const bool is_byte = bits_of(p.a) == 8;
    p.a = (i.negate & 1) != 0 ? (is_byte ? Element::i8 : Element::i4) : (is_byte ? Element::u8 : Element::u4);
    p.b = (i.negate & 2) != 0 ? (is_byte ? Element::i8 : Element::i4) : (is_byte ? Element::u8 : Element::u4);
  }
  const bool is_rdna3 = is_gfx11(w.architecture);
  const int each = is_rdna3 ? p.depth : p.depth / 2;
  const Items a_items(w, i.sources[0], each, bits_of(p.a), bits_of(p.a));
  const Items b_items(w, i.sources[1], each, bits_of(p.b), bits_of(p.b));
  if (is_rdna3) {
    check_repeated(a_items, each, 0);
    check_repeated(b_items, each, 1);
  }
  const auto read = [&](const Items &items, int operand, Element element, int index, int k) {
    const double value = value_of(items.get(wmma_input(is_rdna3, p.depth, index, k)), element, w.architecture);
    const unsigned signs = k % 2 == 0 ? i.negate : i.negate_high;
    return is_small_float(element) && (signs >> operand & 1) != 0 ? -value : value;
  };
  Inputs a, b;
  for (int k = 0; k < p.depth; ++k) {
    for (int index = 0; index < 16; ++index) {
      a[static_cast<size_t>(index * p.depth + k)] = read(a_items, 0, p.a, index, k);
      b[static_cast<size_t>(k * 16 + index)] = read(b_items, 1, p.b, index, k);
    }
  }
  // On RDNA 3 a result of 16 bits has a register to itself, in the half that op_sel names.
  const int width = bits_of(p.result), apart = is_rdna3 ? 32 : width;
  const int first = is_rdna3 && width == 16 && (i.select & 4) != 0 ? 16 : 0;
  Items to(w, i.results[0], 8, width, apart, first);
  const auto slot_of = [&](int, int row, int column) { return wmma_result(is_rdna3, row, column); };
  Results results;
  if (is_register(i.sources[2])) {
    const Items from(w, i.sources[2], 8, width, apart, first);
    read_sums(w, i, p, &from, slot_of, &results);
  } else {
    read_sums(w, i, p, nullptr, slot_of, &results);
  }
  if (!is_whole(p.result)) {
    for (size_t k = 0; k < 256; ++k) {
      const double sum = (i.negate_high & 4) != 0 ? std::fabs(results[k]) : results[k];
      results[k] = (i.negate & 4) != 0 ? -sum : sum;
    }
  }
  multiply(p, a, b, &results);
  for_results(p, [&](int block, int row, int column, size_t at) {
    to.set(slot_of(block, row, column), bits_from(results[at], p.result, i.clamp));
  });
}

template <Element a, Element b, Element result, int depth>
void wmma(Wave &w, const Instruction &i) {
  wmma_product(w, i, {a, b, result, 16, 16, depth, 1});
}

using E = Element;

// The five shapes of a type, with the names of MI200 and those of MI300.
template <E element, E result, int depth>
void add_shapes(Handlers &handlers, const std::string &prefix, const std::string &old_type, const std::string &type) {
  const auto add = [&](int extent, int k, int blocks, Handler handler) {
    const std::string shape = std::to_string(extent) + "x" + std::to_string(extent) + "x" + std::to_string(k);
    const std::string count = blocks == 1 ? "_" : "_" + std::to_string(blocks) + "b_";
    handlers.add(prefix + shape + old_type, handler);
    if (!type.empty()) {
      handlers.add(prefix + shape + count + type, handler);
    }
  };
  add(32, depth, 2, mfma<element, element, result, 32, 32, depth, 2>);
  add(16, depth, 4, mfma<element, element, result, 16, 16, depth, 4>);
  add(4, depth, 16, mfma<element, element, result, 4, 4, depth, 16>);
  add(32, 2 * depth, 1, mfma<element, element, result, 32, 32, 2 * depth, 1>);
  add(16, 4 * depth, 1, mfma<element, element, result, 16, 16, 4 * depth, 1>);
}

template <E a, E b>
void add_small(Handlers &handlers, const std::string &types) {
  handlers.add("v_mfma_f32_16x16x32_" + types, mfma<a, b, E::f32, 16, 16, 32, 1>);
  handlers.add("v_mfma_f32_32x32x16_" + types, mfma<a, b, E::f32, 32, 32, 16, 1>);
  handlers.add("v_wmma_f32_16x16x16_" + types, wmma<a, b, E::f32, 16>);
}

}  // namespace

void add_matrix(Handlers &handlers) {
  add_shapes<E::f32, E::f32, 1>(handlers, "v_mfma_f32_", "f32", "f32");
  add_shapes<E::f16, E::f32, 4>(handlers, "v_mfma_f32_", "f16", "f16");
  add_shapes<E::bf16, E::f32, 4>(handlers, "v_mfma_f32_", "bf16_1k", "bf16");
  add_shapes<E::bf16, E::f32, 2>(handlers, "v_mfma_f32_", "bf16", "");
  add_shapes<E::i8, E::i32, 4>(handlers, "v_mfma_i32_", "i8", "i8");
  add_small<E::fp8, E::fp8>(handlers, "fp8_fp8");
  add_small<E::fp8, E::bf8>(handlers, "fp8_bf8");
  add_small<E::bf8, E::fp8>(handlers, "bf8_fp8");
  add_small<E::bf8, E::bf8>(handlers, "bf8_bf8");
  handlers.add("v_mfma_i32_16x16x32_i8", mfma<E::i8, E::i8, E::i32, 16, 16, 32, 1>);
  handlers.add("v_mfma_i32_32x32x16_i8", mfma<E::i8, E::i8, E::i32, 32, 32, 16, 1>);
  handlers.add("v_mfma_i32_16x16x64_i8", mfma<E::i8, E::i8, E::i32, 16, 16, 64, 1>);
  handlers.add("v_mfma_i32_32x32x32_i8", mfma<E::i8, E::i8, E::i32, 32, 32, 32, 1>);
  handlers.add("v_mfma_f32_16x16x32_f16", mfma<E::f16, E::f16, E::f32, 16, 16, 32, 1>);
  handlers.add("v_mfma_f32_32x32x16_f16", mfma<E::f16, E::f16, E::f32, 32, 32, 16, 1>);
  handlers.add("v_mfma_f32_16x16x32_bf16", mfma<E::bf16, E::bf16, E::f32, 16, 16, 32, 1>);
  handlers.add("v_mfma_f32_32x32x16_bf16", mfma<E::bf16, E::bf16, E::f32, 32, 32, 16, 1>);
  handlers.add("v_mfma_f32_16x16x8_xf32", mfma<E::xf32, E::xf32, E::f32, 16, 16, 8, 1>);
  handlers.add("v_mfma_f32_32x32x4_xf32", mfma<E::xf32, E::xf32, E::f32, 32, 32, 4, 1>);
  for (const char *name : {"v_mfma_f64_16x16x4f64", "v_mfma_f64_16x16x4_f64"}) {
    handlers.add(name, mfma<E::f64, E::f64, E::f64, 16, 16, 4, 1>);
  }
  for (const char *name : {"v_mfma_f64_4x4x4f64", "v_mfma_f64_4x4x4_4b_f64"}) {
    handlers.add(name, mfma<E::f64, E::f64, E::f64, 4, 4, 4, 4>);
  }
  handlers.add("v_wmma_f32_16x16x16_f16", wmma<E::f16, E::f16, E::f32, 16>);
  handlers.add("v_wmma_f32_16x16x16_bf16", wmma<E::bf16, E::bf16, E::f32, 16>);
  handlers.add("v_wmma_f16_16x16x16_f16", wmma<E::f16, E::f16, E::f16, 16>);
  handlers.add("v_wmma_bf16_16x16x16_bf16", wmma<E::bf16, E::bf16, E::bf16, 16>);
  handlers.add("v_wmma_i32_16x16x16_iu8", wmma<E::i8, E::i8, E::i32, 16>);
  handlers.add("v_wmma_i32_16x16x16_iu4", wmma<E::i4, E::i4, E::i32, 16>);
  handlers.add("v_wmma_i32_16x16x32_iu4", wmma<E::i4, E::i4, E::i32, 32>);
}

}  // namespace rocpy_host::amdgpu
