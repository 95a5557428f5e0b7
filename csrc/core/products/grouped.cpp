// SPDX-License-Identifier: MIT
// The loops over the products of one call; no Python, and no allocation once the plans are kept.
#include "grouped.hpp"

#include <algorithm>
#include <limits>

namespace rocpy {
namespace {

int64_t step(const GroupedOperand &operand, int64_t extent) { return operand.per_index * extent + operand.per_group; }

}  // namespace

Status launch_list(StreamContext *context, const std::vector<ListedProduct> &products, double alpha) {
  for (const ListedProduct &product : products) {
    const Status status = product.call->plan->launch(context, product.pointers, {alpha, 0.0}, product.call->algorithm);
    if (!status.ok()) return status;
  }
  return Status{};
}

MatmulSpec GroupedProduct::spec_of(int64_t extent, int64_t count) const {
  MatmulSpec group_spec = *spec;
  if (ragged == Ragged::k) {
    (group_spec.op_a == HIPBLAS_OP_N ? group_spec.a.columns : group_spec.a.rows) = extent;
    (group_spec.op_b == HIPBLAS_OP_N ? group_spec.b.rows : group_spec.b.columns) = extent;
  } else if ((ragged == Ragged::n) == swapped) {
    (group_spec.op_a == HIPBLAS_OP_N ? group_spec.a.rows : group_spec.a.columns) = extent;
    group_spec.c.rows = group_spec.d.rows = extent;
  } else {
    (group_spec.op_b == HIPBLAS_OP_N ? group_spec.b.columns : group_spec.b.rows) = extent;
    group_spec.c.columns = group_spec.d.columns = extent;
  }
  group_spec.batch_count = static_cast<int32_t>(count);
  auto stride = [&](OperandIndex index) {
    return count > 1 ? step(operands[index], extent) / operands[index].element_bytes : 0;
  };
  group_spec.a.batch_stride = stride(operand_a);
  group_spec.b.batch_stride = stride(operand_b);
  group_spec.c.batch_stride = group_spec.d.batch_stride = stride(operand_d);
  group_spec.bias_batch_stride = stride(operand_bias);
  group_spec.aux_batch_stride =
      count > 1 ? stride(operand_aux) : group_spec.aux_ld * std::max<int64_t>(1, group_spec.d.columns);
  for (LayoutSpec *layout : {&group_spec.a, &group_spec.b, &group_spec.c, &group_spec.d}) {
    layout->ld = std::max<int64_t>({layout->ld, layout->rows, 1});
  }
  return group_spec;
}

int64_t GroupedProduct::run_length(const int64_t *starts, int64_t groups, int64_t first) const {
  const int64_t extent = starts[first + 1] - starts[first];
  for (const GroupedOperand &operand : operands) {
    const int64_t bytes = step(operand, extent);
    if (bytes < 0 || bytes % operand.element_bytes) return 1;
  }
  // The library has no stride from the scales of one batch entry to those of the next.
  for (OperandIndex index : {operand_scale_a, operand_scale_b}) {
    if (operands[index].data && step(operands[index], extent)) return 1;
  }
  // hipBLASLt keeps the stride between biases in 32 bits, and older releases have none.
  const GroupedOperand &bias = operands[operand_bias];
  const int64_t most = spec->strides_bias ? std::numeric_limits<int32_t>::max() : 0;
  if (bias.data && step(bias, extent) / bias.element_bytes > most) return 1;
  // Results of neighbouring groups that interleave are no batch: a batch stride must step over a whole matrix.
  const GroupedOperand &d = operands[operand_d];
  const bool library_rows = ragged != Ragged::k && (ragged == Ragged::n) == swapped;
  const bool library_columns = ragged != Ragged::k && !library_rows;
  const int64_t rows = library_rows ? extent : spec->d.rows, columns = library_columns ? extent : spec->d.columns;
  if (step(d, extent) / d.element_bytes < spec->d.ld * (columns - 1) + rows) return 1;
  int64_t count = 1;
  while (first + count < groups && starts[first + count + 1] - starts[first + count] == extent &&
         count < std::numeric_limits<int32_t>::max()) {
    ++count;
  }
  return count;
}

bool next_run(const GroupedProduct &product, const int64_t *starts, int64_t groups, GroupRun *run) {
  for (; run->first < groups; ++run->first) {
    run->extent = starts[run->first + 1] - starts[run->first];
    if (run->extent == 0 && product.ragged != Ragged::k) continue;
    run->count = product.run_length(starts, groups, run->first);
    return true;
  }
  return false;
}

Status launch_groups(StreamContext *context, const GroupedProduct &product, PlanKey *key, const int64_t *starts,
                     int64_t groups, const std::shared_ptr<CachedCall> &ready, double alpha, GroupRun *run) {
  std::shared_ptr<CachedCall> cached = ready;
  const int size = key->size;
  while (next_run(product, starts, groups, run)) {
    if (!cached) {
      key->add(run->extent);
      key->add(run->count);
      if (key->fits()) cached = plan_cache().find(*key);
      key->size = size;
      if (!cached) return Status{};
    }
    auto at = [&](OperandIndex index) -> void * {
      const GroupedOperand &operand = product.operands[index];
      return operand.data ? operand.data + starts[run->first] * operand.per_index + run->first * operand.per_group
                          : nullptr;
    };
    MatmulPointers pointers;
    pointers.d = at(operand_d);
    pointers.a = at(operand_a);
    pointers.b = at(operand_b);
    pointers.bias = at(operand_bias);
    pointers.aux = at(operand_aux);
    pointers.scales[scale_a] = at(operand_scale_a);
    pointers.scales[scale_b] = at(operand_scale_b);
    const Status status = cached->plan->launch(context, pointers, {alpha, 0.0}, cached->algorithm);
    if (!status.ok()) return status;
    cached.reset();
    run->first += run->count;
  }
  return Status{};
}

}  // namespace rocpy
