// SPDX-License-Identifier: MIT
// Runs a tile program: each step goes over a chunk of elements, some vectors of every slot, so that choosing the step
// costs little and the slots stay in the innermost cache.
#pragma once

#include "expression.hpp"
#include "functions.hpp"
#include "kernels_epilogue.hpp"

namespace rocpy_host::gemm {
namespace {

// Elements that only programs read or write.
struct UInt8 {
  uint8_t value;
};
struct Int32 {
  int32_t value;
};

ROCPY_INLINE VecF load(const UInt8 *p) {
  return __builtin_convertvector(cast<VecI>(widen_bytes(load_bits<VecB>(p))), VecF);
}
ROCPY_INLINE VecF load(const Int32 *p) { return __builtin_convertvector(load_bits<VecI>(p), VecF); }
ROCPY_INLINE float to_compute(UInt8 x) { return x.value; }
ROCPY_INLINE float to_compute(Int32 x) { return static_cast<float>(x.value); }
#if defined(__AVX512F__)
ROCPY_INLINE VecF load_part(const UInt8 *p, int count) {
  return __builtin_convertvector(cast<VecI>(widen_bytes(load_bytes(p, count))), VecF);
}
ROCPY_INLINE VecF load_part(const Int32 *p, int count) {
  return __builtin_convertvector(load_part(reinterpret_cast<const int32_t *>(p), count), VecF);
}
#endif

// As to_int8, for bytes without a sign.
ROCPY_INLINE uint8_t to_uint8(double x) {
  return static_cast<uint8_t>(x >= 255 ? 255 : x > 0 ? __builtin_nearbyint(x) : 0);
}

// `use` with a null pointer to the element of an input.
template <class T, class Use>
ROCPY_INLINE void with_input(Type type, Use use) {
  if constexpr (sizeof(T) == 8) {
    use(static_cast<double *>(nullptr));
  } else if (type == Type::u8) {
    use(static_cast<UInt8 *>(nullptr));
  } else if (type == Type::i32) {
    use(static_cast<Int32 *>(nullptr));
  } else {
    with_element(type, use);
  }
}

// One element of any type that an input can have.
template <class T>
ROCPY_INLINE T element(const void *data, Type type, int64_t at) {
  if (type == Type::f64) return static_cast<T>(static_cast<const double *>(data)[at]);
  if (type == Type::i32) return static_cast<T>(static_cast<const int32_t *>(data)[at]);
  if (type == Type::u8) return static_cast<T>(static_cast<const uint8_t *>(data)[at]);
  return static_cast<T>(load_one<float>(data, type, at));
}

// A vector's worth of memory for the slots: small enough for the innermost cache of every CPU, and on the stack.
constexpr int chunk_bytes = 48 << 10, usual_chunk_bytes = 24 << 10, most_vectors = 32;

// Where the values of a slot are: mostly in the slot itself, but the tile, inputs of the compute type and the result
// are read and written where they lie. Steps between rows and between vectors of a row.
template <class T>
struct View {
  T *data;
  int64_t row, pace;
};

template <class T>
struct Tape {
  static constexpr int lanes = vector_lanes<T>;
  static constexpr Type own_type = sizeof(T) == 8 ? Type::f64 : Type::f32;

  const Problem &p;
  const BoundProgram &bound;
  const Program &program;
  const Affine<T> &affine;
  const int64_t g;
  T *slots, *uniforms;
  int capacity;  // vectors of a slot
  View<T> *views;
  // The chunk: rows x columns of the result at (i0, j0), `across` vectors wide.
  int64_t i0 = 0, j0 = 0, columns = 0;
  int rows = 0, across = 0;
  // A step that writes the result where it belongs, and where that is.
  const Step *last = nullptr;
  View<T> result{};

  ROCPY_INLINE T *at(uint16_t slot) const { return slots + int64_t{slot} * capacity * lanes; }
  ROCPY_INLINE View<T> own(uint16_t slot) const { return {at(slot), int64_t{across} * lanes, lanes}; }
  ROCPY_INLINE View<T> view(uint16_t slot) const {
    if (slot & uniform_bit) return {uniforms + (slot & (uniform_bit - 1)) * lanes, 0, 0};
    return views[slot];
  }
  // Where a step writes. Its sources' views must have been asked for.
  ROCPY_INLINE View<T> target(const Step &step) const {
    if (step.to & uniform_bit) return {uniforms + (step.to & (uniform_bit - 1)) * lanes, 0, 0};
    return views[step.to] = &step == last ? result : own(step.to);
  }
  ROCPY_INLINE int count_of(int v) const {
    const int64_t left = columns - int64_t{v} * lanes;
    return left < lanes ? static_cast<int>(left) : lanes;
  }

  // body(x, y, z, to) for each vector of a chunk, or once for a value that is the same everywhere.
  template <class Body>
  ROCPY_INLINE void each(View<T> x, View<T> y, View<T> z, View<T> to, Body body) const {
    int lines = to.pace ? rows : 1;
    int64_t count = to.pace ? across : 1;
    const int64_t whole = int64_t{across} * lanes;
    const auto follows = [whole](const View<T> &v) { return v.row == (v.pace ? whole : 0); };
    if (follows(x) && follows(y) && follows(z) && follows(to)) {
      count *= lines;
      lines = 1;
    }
    for (int i = 0; i < lines; i++) {
      const T *a = x.data + i * x.row, *b = y.data + i * y.row, *c = z.data + i * z.row;
      T *out = to.data + i * to.row;
      for (int64_t n = count; n > 0; n--, a += x.pace, b += y.pace, c += z.pace, out += lanes) body(a, b, c, out);
    }
  }
  template <class F>
  ROCPY_INLINE void unary(const Step &step, F function) const {
    const View<T> x = view(step.from[0]), to = target(step);
    each(x, to, to, to, [&](const T *a, const T *, const T *, T *out) { store(out, function(load(a))); });
  }
  template <class F>
  ROCPY_INLINE void binary(const Step &step, F function) const {
    const View<T> x = view(step.from[0]), y = view(step.from[1]), to = target(step);
    each(x, y, to, to, [&](const T *a, const T *b, const T *, T *out) { store(out, function(load(a), load(b))); });
  }
  template <class F>
  ROCPY_INLINE void compare(const Step &step, F function) const {
    const Vec<T> one = splat(static_cast<T>(1)), zero = splat(static_cast<T>(0));
    binary(step, [&](Vec<T> x, Vec<T> y) { return function(x, y) ? one : zero; });
  }
  ROCPY_INLINE void where(const Step &step) const {
    const View<T> x = view(step.from[0]), y = view(step.from[1]), z = view(step.from[2]), to = target(step);
    const Vec<T> zero = splat(static_cast<T>(0));
    each(x, y, z, to,
         [&](const T *a, const T *b, const T *c, T *out) { store(out, load(a) != zero ? load(b) : load(c)); });
  }

  ROCPY_INLINE int64_t row_stride(const ProgramOperand &o) const {
    return p.program_transposed ? o.column_stride : o.row_stride;
  }
  ROCPY_INLINE int64_t column_stride(const ProgramOperand &o) const {
    return p.program_transposed ? o.row_stride : o.column_stride;
  }

  void input(const Step &step) const {
    const ProgramOperand &operand = program.inputs[step.index];
    const void *data = bound.inputs[step.index];
    const int64_t down = row_stride(operand), right = column_stride(operand);
    const View<T> to = target(step);
    if (step.to & uniform_bit) {
      store(to.data, splat(element<T>(data, operand.type, g * operand.batch_stride)));
      return;
    }
    const int64_t base = g * operand.batch_stride + i0 * down + j0 * right;
    if (right == 1 && operand.type == own_type && columns == int64_t{across} * lanes) {
      views[step.to] = {static_cast<T *>(const_cast<void *>(data)) + base, down, lanes};
      return;
    }
    // A line that all rows share is read once and lies where the last row would; a column's values are a vector for
    // each row and lie at its end: so a step may write over them as it goes.
    T *out = to.data;
    int lines = rows;
    if (down == 0) {
      lines = 1;
      out += int64_t{rows - 1} * across * lanes;
      views[step.to] = {out, 0, lanes};
    }
    const bool direct = sizeof(T) == 8 ? operand.type == Type::f64 : operand.type != Type::f64;
    if (right == 1 && direct) {
      with_input<T>(operand.type, [&](auto *kind) {
        const auto *from = reinterpret_cast<decltype(kind)>(const_cast<void *>(data)) + base;
        for (int i = 0; i < lines; i++, from += down) {
          for (int v = 0; v < across; v++, out += lanes) store(out, load_some(from + v * lanes, count_of(v), lanes));
        }
      });
      return;
    }
    if (right == 0) {
      out = to.data + (across - 1) * lanes;
      views[step.to] = {out, to.row, 0};
      for (int i = 0; i < rows; i++, out += to.row) store(out, splat(element<T>(data, operand.type, base + i * down)));
      return;
    }
    for (int i = 0; i < lines; i++, out += across * lanes) {
      for (int64_t j = 0; j < int64_t{across} * lanes; j++) {
        out[j] = j < columns ? element<T>(data, operand.type, base + i * down + j * right) : static_cast<T>(0);
      }
    }
  }

  void output(const Step &step) const {
    const ProgramOperand &operand = program.outputs[step.index];
    void *data = bound.outputs[step.index];
    const int64_t down = row_stride(operand), right = column_stride(operand);
    const int64_t base = g * operand.batch_stride + i0 * down + j0 * right;
    const View<T> source = view(step.from[0]);
    for (int i = 0; i < rows; i++) {
      const T *from = source.data + i * source.row;
      for (int v = 0; v < across; v++, from += source.pace) {
        const int count = count_of(v);
        const int64_t line = base + i * down + v * lanes * right;
        if (operand.type == Type::u8) {
          uint8_t *to = static_cast<uint8_t *>(data) + line;
          for (int c = 0; c < count; c++) to[c * right] = to_uint8(static_cast<double>(from[c]));
        } else if (right == 1) {
          store_typed<T>(data, operand.type, line, load(from), count);
        } else {
          for (int c = 0; c < count; c++) {
            store_typed<T>(data, operand.type, line + c * right, splat(from[c]), 1);
          }
        }
      }
    }
  }

  void aux(const Step &step) const {
    T *to = target(step).data;
    for (int i = 0; i < rows; i++) {
      for (int v = 0; v < across; v++, to += lanes) {
        store(to, affine.load_aux(i0 + i, j0 + v * lanes, count_of(v)));
      }
    }
  }

  template <class E>
  ROCPY_INLINE void round_as(const Step &step, E *) const {
    unary(step, [](Vec<T> x) {
      E stored[lanes];
      store(stored, x);
      return load(stored);
    });
  }
  ROCPY_INLINE void round(const Step &step) const {
    if constexpr (sizeof(T) == 8) {
      if (step.type == Type::f64) return unary(step, [](Vec<T> x) { return x; });
      // Not element by element: of two conversions that GCC 12 makes a vector of, nothing is left.
      unary(step, [](Vec<T> x) { return __builtin_convertvector(__builtin_convertvector(x, VecHalfF), Vec<T>); });
    } else if (step.type == Type::f32 || step.type == Type::f64) {
      unary(step, [](Vec<T> x) { return x; });
    } else {
      with_element(step.type, [&](auto *kind) { round_as(step, kind); });
    }
  }

  void run(const Step &step) const {
    switch (step.opcode) {
      case ROCPY_EXT_OP_AUX:
        return aux(step);
      case ROCPY_EXT_OP_INPUT:
        return input(step);
      case ROCPY_EXT_OP_CONSTANT:
        return store(target(step).data, splat(static_cast<T>(step.immediate)));
      case ROCPY_EXT_OP_OUTPUT:
        return output(step);
      case ROCPY_EXT_OP_ROUND:
        return round(step);
      case ROCPY_EXT_OP_WHERE:
        return where(step);
      default:
        return combine(step);
    }
  }

  // A step of two sources, or of one.
  ROCPY_INLINE void combine(const Step &step) const {
    const Vec<T> zero = splat(static_cast<T>(0));
    using V = Vec<T>;
    switch (step.opcode) {
      case ROCPY_EXT_OP_ADD:
        return binary(step, [](V x, V y) { return x + y; });
      case ROCPY_EXT_OP_SUB:
        return binary(step, [](V x, V y) { return x - y; });
      case ROCPY_EXT_OP_MUL:
        return binary(step, [](V x, V y) { return x * y; });
      case ROCPY_EXT_OP_DIV:
        return binary(step, [](V x, V y) { return x / y; });
      case ROCPY_EXT_OP_MIN:
        return binary(step, [](V x, V y) { return (x < y) | (x != x) ? x : y; });
      case ROCPY_EXT_OP_MAX:
        return binary(step, [](V x, V y) { return (x > y) | (x != x) ? x : y; });
      case ROCPY_EXT_OP_EQ:
        return compare(step, [](V x, V y) { return x == y; });
      case ROCPY_EXT_OP_NE:
        return compare(step, [](V x, V y) { return x != y; });
      case ROCPY_EXT_OP_LT:
        return compare(step, [](V x, V y) { return x < y; });
      case ROCPY_EXT_OP_LE:
        return compare(step, [](V x, V y) { return x <= y; });
      case ROCPY_EXT_OP_GT:
        return compare(step, [](V x, V y) { return x > y; });
      case ROCPY_EXT_OP_GE:
        return compare(step, [](V x, V y) { return x >= y; });
      case ROCPY_EXT_OP_AND:
        return compare(step, [zero](V x, V y) { return (x != zero) & (y != zero); });
      case ROCPY_EXT_OP_OR:
        return compare(step, [zero](V x, V y) { return (x != zero) | (y != zero); });
      default:
        return apply(step);
    }
  }

  // A step that is a function of one source.
  ROCPY_INLINE void apply(const Step &step) const {
    const Vec<T> zero = splat(static_cast<T>(0)), one = splat(static_cast<T>(1));
    using V = Vec<T>;
    switch (step.opcode) {
      case ROCPY_EXT_OP_NEG:
        return unary(step, [](V x) { return -x; });
      case ROCPY_EXT_OP_ABS:
        return unary(step, magnitude<T>);
      case ROCPY_EXT_OP_FLOOR:
        return unary(step, round_down<T>);
      case ROCPY_EXT_OP_CEIL:
        return unary(step, round_up<T>);
      case ROCPY_EXT_OP_TRUNC:
        return unary(step, round_to_zero<T>);
      case ROCPY_EXT_OP_RINT:
        return unary(step, round_even<T>);
      case ROCPY_EXT_OP_NOT:
        return unary(step, [zero, one](V x) { return x != zero ? zero : one; });
      case ROCPY_EXT_OP_EXP:
        return unary(step, exponential<T>);
      case ROCPY_EXT_OP_LOG:
        return unary(step, logarithm<T>);
      case ROCPY_EXT_OP_SQRT:
        return unary(step, [](V x) { return square_root(x); });
      case ROCPY_EXT_OP_RSQRT:
        return unary(step, [one](V x) { return one / square_root(x); });
      case ROCPY_EXT_OP_TANH:
        return unary(step, tangent<T>);
      case ROCPY_EXT_OP_ERF:
        return unary(step, error_function<T>);
      case ROCPY_EXT_OP_ERFC:
        return unary(step, error_complement<T>);
      case ROCPY_EXT_OP_EXPM1:
        return unary(step, exponential_less_one<T>);
      case ROCPY_EXT_OP_RELU:
        return unary(step, relu<T>);
      case ROCPY_EXT_OP_SIGMOID:
        return unary(step, sigmoid<T>);
      case ROCPY_EXT_OP_SILU:
        return unary(step, silu<T>);
      case ROCPY_EXT_OP_GELU:
        return unary(step, gelu<T>);
      case ROCPY_EXT_OP_GELU_ERF:
        return unary(step, gelu_erf<T>);
      case ROCPY_EXT_OP_SILU_GRADIENT:
        return unary(step, silu_gradient<T>);
      case ROCPY_EXT_OP_GELU_GRADIENT:
        return unary(step, gelu_gradient<T>);
      case ROCPY_EXT_OP_GELU_ERF_GRADIENT:
        return unary(step, gelu_erf_gradient<T>);
      default:
        return;
    }
  }
};

// The first and the second of neighbours.
template <class T>
ROCPY_INLINE void part_pairs(Vec<T> low, Vec<T> high, T *first, T *second) {
  constexpr int lanes = vector_lanes<T>;
  T both[2 * lanes];
  store(both, low);
  store(both + lanes, high);
  for (int i = 0; i < lanes; i++) first[i] = both[2 * i];
  for (int i = 0; i < lanes; i++) second[i] = both[2 * i + 1];
}

// A chunk of the result, stored and counted in `sums` and `most`.
template <class T>
ROCPY_INLINE void store_result(const Tape<T> &tape, const View<T> &from, T *sums, VecU *most) {
  constexpr int lanes = vector_lanes<T>;
  const Problem &p = tape.p;
  const int64_t base = tape.g * p.d_batch_stride + tape.i0 * p.d_row_stride + tape.j0;
  for (int v = 0; v < tape.across; v++) {
    const int count = tape.count_of(v);
    Vec<T> total = splat(static_cast<T>(0));
    if (sums) total = load_some(sums + v * lanes, count, lanes);
    for (int r = 0; r < tape.rows; r++) {
      Vec<T> x = load(from.data + r * from.row + v * from.pace);
      total = total + x;
      if constexpr (sizeof(T) == 4) {
        if (p.amax) {
          const VecU larger = magnitudes<T>(x, count);
          *most = larger > *most ? larger : *most;
        }
      }
      if (p.d_scale) x = x * splat(tape.affine.factors.result);
      store_typed<T>(p.d, p.d_type, base + r * p.d_row_stride + v * lanes, x, count);
    }
    if (sums) store_some(sums + v * lanes, total, count, lanes);
  }
}

// As epilogue_any, with the tile program in place of the activation.
template <class T, class Acc = T>
void epilogue_program(const Finish<T> &finish, const Acc *tile, int64_t stride, const Region &region, T *sums) {
  constexpr int lanes = vector_lanes<T>;
  const auto [g, i0, j0, rows, columns] = region;
  const Problem &p = *finish.problem;
  const Program &program = *p.program->program;
  const int parts = program.pairs ? 2 : 1;
  alignas(64) T memory[chunk_bytes / sizeof(T)];
  View<T> views[most_steps];
  Affine<T> affine(finish, g), next(finish, g);
  Tape<T> tape{p, *p.program, program, affine, g, memory + program.uniform_count * lanes, memory, 0, views};
  const int available = (chunk_bytes / vector_bytes - program.uniform_count) / program.slot_count;
  const int usual = usual_chunk_bytes / vector_bytes / program.slot_count;
  tape.capacity = available < usual || usual < 2 ? available : usual;
  if (tape.capacity > most_vectors) tape.capacity = most_vectors;
  for (int s = 0; s < program.uniform_steps; s++) tape.run(program.steps[s]);
  const bool in_tile = parts == 1 && __is_same(T, Acc) && affine.is_nothing() && p.aux != Aux::store;
  const Step *last = program.step_count > program.uniform_steps ? program.steps + program.step_count - 1 : nullptr;
  const bool computes = last && last->opcode != ROCPY_EXT_OP_OUTPUT && last->opcode != ROCPY_EXT_OP_INPUT &&
                        last->opcode != ROCPY_EXT_OP_AUX;
  const bool to_result =
      computes && last->to == program.result && !sums && !p.amax && !p.d_scale && p.d_type == Tape<T>::own_type;

  const int64_t width = columns / parts, first_column = j0 / parts;
  VecU most{};
  for (int64_t j = 0; j < width; j += int64_t{tape.across} * lanes) {
    const int64_t left = (width - j + lanes - 1) / lanes;
    tape.across = left < tape.capacity ? static_cast<int>(left) : tape.capacity;
    tape.j0 = first_column + j;
    tape.columns = width - j < int64_t{tape.across} * lanes ? width - j : int64_t{tape.across} * lanes;
    const bool direct = to_result && tape.columns == int64_t{tape.across} * lanes;
    const int at_once = tape.capacity / tape.across;
    for (int64_t i = 0; i < rows; i += tape.rows) {
      tape.rows = rows - i < at_once ? static_cast<int>(rows - i) : at_once;
      tape.i0 = i0 + i;

      for (int s = 0; s < parts; s++) views[s] = tape.own(static_cast<uint16_t>(s));
      if (in_tile) {
        views[0] = {const_cast<T *>(reinterpret_cast<const T *>(tile)) + i * stride + j, stride, lanes};
      }
      for (int v = 0; v < tape.across && !in_tile; v++) {
        const int64_t c = (j + v * lanes) * parts, rest = columns - c;
        affine.go_to(j0 + c, rest < lanes ? static_cast<int>(rest) : lanes);
        const bool second = parts == 2 && rest > lanes;
        if (second) next.go_to(j0 + c + lanes, rest < 2 * lanes ? static_cast<int>(rest - lanes) : lanes);
        for (int r = 0; r < tape.rows; r++) {
          const Acc *from = tile + (i + r) * stride + c;
          T *to = tape.slots + (r * tape.across + v) * lanes;
          const Vec<T> x = affine(load_sums<T>(from), tape.i0 + r);
          if (p.aux == Aux::store) affine.store_aux(x, tape.i0 + r);
          if (parts == 1) {
            store(to, x);
            continue;
          }
          Vec<T> y = splat(static_cast<T>(0));
          if (second) {
            y = next(load_sums<T>(from + lanes), tape.i0 + r);
            if (p.aux == Aux::store) next.store_aux(y, tape.i0 + r);
          }
          part_pairs<T>(x, y, to, to + tape.capacity * lanes);
        }
      }

      if (direct) {
        const int64_t at = g * p.d_batch_stride + tape.i0 * p.d_row_stride + tape.j0;
        tape.result = {static_cast<T *>(p.d) + at, p.d_row_stride, lanes};
        tape.last = last;
      }
      for (int s = program.uniform_steps; s < program.step_count; s++) tape.run(program.steps[s]);
      tape.last = nullptr;
      if (!direct) store_result<T>(tape, tape.view(program.result), sums ? sums + j : nullptr, &most);
    }
  }
  if (p.amax) raise_amax(p.amax, most);
}

inline void epilogue_program_integer(const Finish<int32_t> &finish, const int32_t *tile, int64_t stride,
                                     const Region &region, int32_t *) {
  epilogue_program<float, int32_t>(finish.real, tile, stride, region, nullptr);
}

}  // namespace
}  // namespace rocpy_host::gemm
