// SPDX-License-Identifier: MIT
// The table of algorithms: which take a problem, with what workspace, in what order they are worth trying, and how one
// runs.
#include "blocking.hpp"
#include "drivers.hpp"

namespace rocpy_host::gemm {
namespace {

bool valid_strides(const Problem &p) {
  // More than one result per address would make the order of writes show.
  return p.d_row_stride >= 0 && p.d_batch_stride >= 0 && p.c_row_stride >= 0 && p.c_batch_stride >= 0;
}

bool valid(const Problem &p) {
  if (p.m < 0 || p.n < 0 || p.k < 0 || p.batch < 0 || !valid_strides(p)) return false;
  const bool wide = p.compute == Type::f64;
  if (!wide && p.compute != Type::f32) return false;
  const auto fits = [wide](Type type) { return type <= Type::bf16 && wide == (type == Type::f64); };
  if (p.a.scale.data || p.b.scale.data || p.c_scale || p.d_scale || p.aux_scale || p.amax) return false;
  if (!fits(p.a.type) || !fits(p.b.type) || !fits(p.d_type) || p.a.packed) return false;
  const bool bias = p.has_bias || p.reduction != Reduction::none;
  if ((bias && !fits(p.bias_type)) || (p.aux != Aux::none && !fits(p.aux_type))) return false;
  if (p.has_bias && p.reduction != Reduction::none) return false;
  // Panels keep b in an order of their own, from which no column sum is taken.
  if (p.b.packed && p.reduction == Reduction::b_columns) return false;
  const bool gradient = p.activation == Activation::drelu || p.activation == Activation::dgelu;
  return gradient == (p.aux == Aux::load);
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
    }
  }
  if (workspace) *workspace = bytes;
  return true;
}

template <class T>
void run_variant(const Variant &variant, const Problem &p, void *workspace) {
  if (p.reduction == Reduction::a_rows || p.reduction == Reduction::b_columns) operand_sums<T>(p);
  if (empty(p)) {
    if (p.reduction == Reduction::result_columns) finish_sums<T>(p, nullptr, 0);
    return;
  }
  switch (variant.family) {
    case Family::direct:
    case Family::blocked:
      return run_tiled<T>(variant, p, workspace);
    case Family::skinny:
      return run_skinny<T>(variant, p, workspace);
    case Family::split:
      return run_split<T>(variant, p, workspace);
  }
}

const Variant *find(int32_t id) {
  for (const Variant &variant : kVariants) {
    if (variant.algorithm.id == id) return &variant;
  }
  return nullptr;
}

}  // namespace

int bits_of(Type type) {
  switch (type) {
    case Type::c64:
      return 128;
    case Type::f64:
    case Type::c32:
      return 64;
    case Type::f32:
    case Type::i32:
      return 32;
    case Type::f16:
    case Type::bf16:
      return 16;
    case Type::e2m3:
    case Type::e3m2:
      return 6;
    case Type::e2m1:
      return 4;
    default:
      return 8;
  }
}

size_t size_of(Type type) { return static_cast<size_t>(bits_of(type)) / 8; }

int algorithm_count() { return kVariantCount; }
const Algorithm &algorithm(int index) { return kVariants[index].algorithm; }

const char *algorithm_name(int32_t id) {
  const Variant *variant = find(id);
  return variant ? variant->algorithm.name : nullptr;
}

bool supports(int32_t id, const Problem &problem, size_t *workspace_bytes) {
  const Variant *variant = find(id);
  return variant && valid(problem) && takes(*variant, problem, workspace_bytes);
}

int rank(const Problem &problem, size_t max_workspace_bytes, int capacity, Candidate *candidates) {
  if (!valid(problem)) return 0;
  Candidate found[kVariantCount];
  int count = 0;
  for (const Variant &variant : kVariants) {
    size_t bytes = 0;
    if (!takes(variant, problem, &bytes) || bytes > max_workspace_bytes) continue;
    const Candidate candidate = {variant.algorithm.id, bytes, empty(problem) ? 0.0f : predict(variant, problem)};
    int at = count++;
    // Equal predictions keep the table's order.
    for (; at > 0 && candidate.predicted_us < found[at - 1].predicted_us; at--) found[at] = found[at - 1];
    found[at] = candidate;
  }
  if (count > capacity) count = capacity < 0 ? 0 : capacity;
  for (int i = 0; i < count; i++) candidates[i] = found[i];
  return count;
}

bool run(int32_t id, const Problem &problem, void *workspace, size_t workspace_bytes) {
  const Variant *variant = find(id);
  size_t needed = 0;
  if (!variant || !valid(problem) || !takes(*variant, problem, &needed)) return false;
  if (needed > workspace_bytes || (needed && !workspace)) return false;
  if (problem.compute == Type::f64) {
    run_variant<double>(*variant, problem, workspace);
  } else {
    run_variant<float>(*variant, problem, workspace);
  }
  return true;
}

size_t packed_bytes(Type type, Type compute, int64_t k, int64_t n) {
  const int64_t width = compute == Type::f64 ? kernels<double>().tile_columns : kernels<float>().tile_columns;
  return static_cast<size_t>(round_up(n, width) * k) * size_of(type);
}

void pack(const Matrix &b, Type compute, int64_t k, int64_t n, void *packed) {
  if (k == 0 || n == 0) return;
  if (compute == Type::f64) {
    pack_operand<double>(b, k, n, true, packed);
  } else {
    pack_operand<float>(b, k, n, true, packed);
  }
}

}  // namespace rocpy_host::gemm
