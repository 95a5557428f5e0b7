// SPDX-License-Identifier: MIT
// The table of algorithms: which take a problem, with what workspace, in what order they are worth trying, and how one
// runs.
#include <array>
#include <cstring>
#include <initializer_list>
#include <type_traits>

#include "blocking.hpp"
#include "blocks.hpp"
#include "drivers.hpp"
#include "expression.hpp"
#include "passes.hpp"

namespace rocpy_host::gemm {
namespace {

bool valid_strides(const Problem &p) {
  // More than one result per address would make the order of writes show.
  return p.d_row_stride >= 0 && p.d_batch_stride >= 0 && p.c_row_stride >= 0 && p.c_batch_stride >= 0;
}

bool gradient(Activation activation) { return activation == Activation::drelu || activation == Activation::dgelu; }
bool narrow(Type type) { return type == Type::e2m3 || type == Type::e3m2 || type == Type::e2m1; }
bool byte_float(Type type) {
  return type == Type::e4m3 || type == Type::e5m2 || type == Type::e4m3_fnuz || type == Type::e5m2_fnuz;
}
// What the epilogue of float stores.
bool stored(Type type) { return type == Type::f32 || type == Type::f16 || type == Type::bf16 || byte_float(type); }

bool valid_program(const Problem &p) {
  const Program &program = *p.program->program;
  if (program.reads_aux && p.aux != Aux::load) return false;
  if (p.compute == Type::f64 && program.rounds) return false;
  return !program.pairs || (p.n % 2 == 0 && p.beta == 0 && !p.alpha_vector && !p.bias_per_row && p.aux != Aux::load &&
                            p.reduction == Reduction::none);
}

// Types and options that do not depend on the type of accumulation.
bool valid_options(const Problem &p) {
  if (p.m < 0 || p.n < 0 || p.k < 0 || p.batch < 0 || !valid_strides(p) || p.a.packed) return false;
  if (p.program && !valid_program(p)) return false;
  if (p.has_bias && p.reduction != Reduction::none) return false;
  // Panels keep b in an order of their own, from which no column sum is taken.
  if (p.b.packed && p.reduction == Reduction::b_columns) return false;
  return gradient(p.activation) == (p.aux == Aux::load);
}

// An operand narrower than a byte, or with a scale for every 32 of k: k is adjacent, and each line of it starts with a
// whole byte and a scale of its own. Packed ones have scales.
bool valid_staged(const Matrix &m, int64_t k_stride, int64_t line_stride, int64_t k) {
  if (!staged(m)) return true;
  if (m.packed) return packed_blocks(m) && k % block_depth == 0 && block_index(m.type) >= 0;
  const int64_t whole = m.type == Type::e2m1 ? 2 : narrow(m.type) ? 4 : 1;
  if (k_stride != 1 || line_stride % whole || m.batch_stride % whole) return false;
  if (m.scale.kind != ScaleKind::block32) return true;
  return k % 32 == 0 && (narrow(m.type) || m.type == Type::e4m3 || m.type == Type::e5m2);
}

bool valid_double(const Problem &p) {
  const bool bias = p.has_bias || p.reduction != Reduction::none;
  if (has_factors(p) || staged(p.a) || staged(p.b)) return false;
  return p.a.type == Type::f64 && p.b.type == Type::f64 && p.d_type == Type::f64 &&
         (!bias || p.bias_type == Type::f64) && (p.aux == Aux::none || p.aux_type == Type::f64);
}

bool valid_float(const Problem &p) {
  const auto taken = [](Type type) { return stored(type) || narrow(type); };
  if (!taken(p.a.type) || !taken(p.b.type) || !stored(p.d_type)) return false;
  if (!valid_staged(p.a, p.a.column_stride, p.a.row_stride, p.k)) return false;
  if (!valid_staged(p.b, p.b.row_stride, p.b.column_stride, p.k)) return false;
  if (p.reduction == Reduction::a_rows && staged(p.a)) return false;
  if (p.reduction == Reduction::b_columns && staged(p.b)) return false;
  const bool bias = p.has_bias || p.reduction != Reduction::none;
  return (!bias || stored(p.bias_type)) && (p.aux == Aux::none || stored(p.aux_type));
}

bool valid_integer(const Problem &p) {
  if (p.a.type != Type::i8 || p.b.type != Type::i8 || p.reduction != Reduction::none) return false;
  if (staged(p.a) || staged(p.b)) return false;
  if (!integer_epilogue(p)) {
    return (stored(p.d_type) || p.d_type == Type::i8) && (!p.has_bias || stored(p.bias_type)) &&
           (p.aux == Aux::none || stored(p.aux_type) || p.aux_type == Type::i8);
  }
  const bool simple =
      p.activation == Activation::none || p.activation == Activation::relu || p.activation == Activation::clamp;
  return simple && !p.program && !has_factors(p) && p.aux == Aux::none &&
         (!p.has_bias || p.bias_type == Type::i32 || p.bias_type == Type::i8);
}

bool valid(const Problem &p) {
  if (!valid_options(p)) return false;
  switch (p.compute) {
    case Type::f32:
      return valid_float(p);
    case Type::f64:
      return valid_double(p);
    case Type::i32:
      return valid_integer(p);
    default:
      return false;
  }
}

// Nothing to multiply: no driver is asked, only bias gradients are written.
bool empty(const Problem &p) { return p.m == 0 || p.n == 0 || p.batch == 0; }

bool takes(const Variant &variant, const Problem &p, size_t *workspace) {
  size_t bytes = 0;
  if (!empty(p)) {
    switch (variant.family) {
      case Family::direct:
      case Family::blocked:
        bytes = tiled_workspace(variant, p);
        break;
      case Family::skinny:
        if (!skinny_takes(p)) return false;
        bytes = skinny_workspace(variant, p);
        break;
      case Family::split:
        if (!split_takes(variant, p)) return false;
        bytes = split_workspace(variant, p);
        break;
      case Family::small:
        if (!small_takes(variant, p)) return false;
        break;
    }
  }
  if (workspace) *workspace = bytes;
  return true;
}

template <class T>
void run_variant(const Variant &variant, const Problem &p, void *workspace) {
  if (p.amax) *p.amax = 0;
  if constexpr (!std::is_same_v<T, int32_t>) {
    if (p.reduction == Reduction::a_rows || p.reduction == Reduction::b_columns) operand_sums<T>(p);
    if (empty(p) && p.reduction == Reduction::result_columns) finish_sums<T>(p, nullptr, 0);
  }
  if (empty(p)) return;
  switch (variant.family) {
    case Family::direct:
    case Family::blocked:
      return run_tiled<T>(variant, p, workspace);
    case Family::skinny:
      return run_skinny<T>(variant, p, workspace);
    case Family::split:
      return run_split<T>(variant, p, workspace);
    case Family::small:
      if constexpr (!std::is_same_v<T, int32_t>) run_small<T>(p);
      return;
  }
}

// The variants by their ids, which are below this.
constexpr size_t end_of_ids = 600;

const Variant *find(int32_t id) {
  static constexpr auto by_id = [] {
    std::array<const Variant *, end_of_ids> table{};
    for (const Variant &variant : variants) table[static_cast<size_t>(variant.algorithm.id)] = &variant;
    return table;
  }();
  const auto index = static_cast<size_t>(id);
  return index < end_of_ids ? by_id[index] : nullptr;
}

}  // namespace

int bits_of(Type type) { return static_cast<int>(element_bits[static_cast<int>(type)]); }
size_t size_of(Type type) { return static_cast<size_t>(bits_of(type)) / 8; }

int algorithm_count() { return variant_count + complex_count; }
const Algorithm &algorithm(int index) {
  return index < variant_count ? variants[index].algorithm : complex_algorithms[index - variant_count];
}

const char *algorithm_name(int32_t id) {
  const Variant *variant = find(id);
  const Algorithm *algorithm = variant ? &variant->algorithm : find_complex(id);
  return algorithm ? algorithm->name : nullptr;
}

bool supports(int32_t id, const Problem &problem, size_t *workspace_bytes) {
  if (is_complex(problem.compute)) return complex_supports(id, problem, workspace_bytes);
  const Variant *variant = find(id);
  return variant && valid(problem) && takes(*variant, problem, workspace_bytes);
}

int rank(const Problem &problem, size_t max_workspace_bytes, int capacity, Candidate *candidates) {
  if (is_complex(problem.compute)) return complex_rank(problem, max_workspace_bytes, capacity, candidates);
  if (!valid(problem)) return 0;
  Candidate ranked[variant_count];
  int count = 0;
  for (const Variant &variant : variants) {
    size_t bytes = 0;
    if (!takes(variant, problem, &bytes) || bytes > max_workspace_bytes) continue;
    const Candidate candidate = {variant.algorithm.id, bytes, empty(problem) ? 0.0f : predict(variant, problem)};
    int at = count++;
    // Equal predictions keep the table's order.
    for (; at > 0 && candidate.predicted_us < ranked[at - 1].predicted_us; at--) ranked[at] = ranked[at - 1];
    ranked[at] = candidate;
  }
  if (count > capacity) count = capacity < 0 ? 0 : capacity;
  for (int i = 0; i < count; i++) candidates[i] = ranked[i];
  return count;
}

namespace {

bool run_sums(int32_t id, const Problem &problem, void *workspace, size_t workspace_bytes) {
  if (is_complex(problem.compute)) return complex_run(id, problem, workspace, workspace_bytes);
  const Variant *variant = find(id);
  size_t needed = 0;
  if (!variant) return false;
  if (problem.taken_by != id && (!valid(problem) || !takes(*variant, problem, &needed))) return false;
  if (needed > workspace_bytes || (needed && !workspace)) return false;
  switch (problem.compute) {
    case Type::f64:
      run_variant<double>(*variant, problem, workspace);
      break;
    case Type::i32:
      run_variant<int32_t>(*variant, problem, workspace);
      break;
    default:
      run_variant<float>(*variant, problem, workspace);
  }
  return true;
}

void *moved(void *data, Type type, int64_t elements) {
  return data ? const_cast<char *>(offset(data, type, elements)) : nullptr;
}

// Rows [first, first + count) of one batch entry by themselves.
Problem rows_of(const Problem &p, int64_t g, int64_t first, int64_t count) {
  Problem rows = p;
  rows.m = count;
  rows.batch = 1;
  rows.a.data = offset(p.a.data, p.a.type, g * p.a.batch_stride + first * p.a.row_stride);
  const int64_t scales = g * p.a.scale.batch_stride + first * (p.k / block_depth);
  rows.a.scale.data = static_cast<const char *>(p.a.scale.data) + scales;
  if (!p.b.packed) {
    rows.b.data = offset(p.b.data, p.b.type, g * p.b.batch_stride);
    rows.b.scale.data = static_cast<const char *>(p.b.scale.data) + g * p.b.scale.batch_stride;
  }
  rows.d = moved(p.d, p.d_type, g * p.d_batch_stride + first * p.d_row_stride);
  if (p.c) rows.c = offset(p.c, p.d_type, g * p.c_batch_stride + first * p.c_row_stride);
  rows.aux_data = moved(p.aux_data, p.aux_type, g * p.aux_batch_stride + first * p.aux_row_stride);
  rows.bias = moved(p.bias, p.bias_type, g * p.bias_batch_stride + (p.bias_per_row ? first : 0));
  return rows;
}

// Runs of rows with large scales apart from those without, whose bits must not depend on the others.
bool run_rows_apart(int32_t id, const Problem &p, void *workspace, size_t workspace_bytes) {
  for (int64_t g = 0; g < p.batch; g++) {
    const auto is_large = [&p, g](int64_t i) { return has_large_scales(rows_of(p, g, i, 1).a, 1, p.k, 1); };
    for (int64_t first = 0, end = 0; first < p.m; first = end) {
      const bool large = is_large(first);
      for (end = first + 1; end < p.m && is_large(end) == large;) end++;
      const Problem rows = rows_of(p, g, first, end - first);
      if (!(large ? run_large_scales(rows) : run_sums(id, rows, workspace, workspace_bytes))) return false;
    }
  }
  return true;
}

bool run_large(int32_t id, const Problem &p, bool in_b, void *workspace, size_t workspace_bytes) {
  size_t needed = 0;
  if (!supports(id, p, &needed) || needed > workspace_bytes) return false;
  const bool joined = p.amax || p.program || p.reduction != Reduction::none;
  if (in_b || joined || !batch_invariant(id, p)) return run_large_scales(p);
  return run_rows_apart(id, p, workspace, workspace_bytes);
}

}  // namespace

bool run(int32_t id, const Problem &problem, void *workspace, size_t workspace_bytes) {
  const Problem &p = problem;
  if (p.k > 0 && (p.a.scale.kind == ScaleKind::block32 || p.b.scale.kind == ScaleKind::block32)) {
    const bool in_b = has_large_scales(p.b, p.n, p.k, p.batch);
    const bool large = in_b || has_large_scales(p.a, p.m, p.k, p.batch);
    if (large && p.m > 0 && p.n > 0 && p.batch > 0) return run_large(id, p, in_b, workspace, workspace_bytes);
  }
  if (problem.k > 0) return run_sums(id, problem, workspace, workspace_bytes);
  // Nothing is multiplied: a factor that is not finite makes no NaN out of it.
  Problem empty = problem;
  empty.alpha = 0;
  empty.alpha_imaginary = 0;
  empty.alpha_vector = nullptr;
  for (Matrix *operand : {&empty.a, &empty.b}) {
    if (operand->scale.kind != ScaleKind::block32) operand->scale = {};
  }
  return run_sums(id, empty, workspace, workspace_bytes);
}

bool batch_invariant(int32_t id, const Problem &problem) {
  if (is_complex(problem.compute)) return complex_batch_invariant(id, problem);
  const Variant *variant = find(id);
  if (!variant || !valid(problem)) return false;
  if (variant->family == Family::small) return variant->depth != sums_of_few_rows && small_takes(*variant, problem);
  return variant->family == Family::direct || variant->family == Family::blocked;
}

size_t packed_bytes(Type type, Type compute, int64_t k, int64_t n) {
  if (is_complex(compute)) return complex_packed_bytes(compute, k, n);
  const int64_t width = compute == Type::f64 ? kernels<double>().tile_columns : kernels<float>().tile_columns;
  const int64_t values = round_up(n, width);
  if (compute == Type::i32) {
    const int group = kernels<int32_t>().group;
    return static_cast<size_t>(values * values_of(k, group) * group);
  }
  // Behind the panels of bfloat16 lies their least magnitude.
  const size_t behind = type == Type::bf16 && kernel_set().pairs ? line_bytes : 0;
  return static_cast<size_t>(values * k) * size_of(type) + behind;
}

void pack(const Matrix &b, Type compute, int64_t k, int64_t n, void *packed) {
  if (k == 0 || n == 0) return;
  if (is_complex(compute)) return complex_pack(b, compute, k, n, packed);
  switch (compute) {
    case Type::f64:
      return pack_operand<double>(kernels<double>(), b, k, n, true, packed);
    case Type::i32:
      return pack_operand<int32_t>(kernels<int32_t>(), b, k, n, true, packed);
    default:
      pack_operand<float>(kernels<float>(), b, k, n, true, packed);
      if (b.type == Type::bf16 && kernel_set().pairs) {
        const int64_t bytes = panels_bytes(b.type, k, n);
        const int least = kernel_set().pairs->least_magnitude(static_cast<const float *>(packed), 1, bytes / 4, 0);
        std::memcpy(static_cast<char *>(packed) + bytes, &least, sizeof least);
      }
  }
}

}  // namespace rocpy_host::gemm
