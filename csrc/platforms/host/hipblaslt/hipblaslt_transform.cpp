// SPDX-License-Identifier: MIT
// hipblasLtMatrixTransform of the host platform: C = alpha * op(A) + beta * op(B), element by element, between storage
// orders.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <new>
#include <utility>

#include "elements.hpp"
#include "exports.h"
#include "fp_environment.h"
#include "hipblaslt_attributes.hpp"
#include "hipblaslt_objects.hpp"
#include "queue.hpp"
#include "threads.hpp"

namespace rocpy_host::lt {

namespace {

constexpr Attribute attributes[] = {
    {HIPBLASLT_MATRIX_TRANSFORM_DESC_SCALE_TYPE, offsetof(TransformDesc, scale_type), 4, true, nullptr, nullptr},
    {HIPBLASLT_MATRIX_TRANSFORM_DESC_POINTER_MODE, offsetof(TransformDesc, pointer_mode), 4, true, nullptr, nullptr},
    {HIPBLASLT_MATRIX_TRANSFORM_DESC_TRANSA, offsetof(TransformDesc, trans_a), 4, true, nullptr, nullptr},
    {HIPBLASLT_MATRIX_TRANSFORM_DESC_TRANSB, offsetof(TransformDesc, trans_b), 4, true, nullptr, nullptr},
};

// Element (row, column) of op(X) lies at row * row_stride + column * column_stride.
struct Source {
  const void *data = nullptr;
  int64_t row_stride = 0, column_stride = 0, batch_stride = 0;
};

struct Transform {
  Source a, b;
  void *c = nullptr;
  int64_t rows = 0, columns = 0, batch = 1;
  int64_t row_stride = 0, column_stride = 0, batch_stride = 0;
  int32_t type = HIP_R_32F, scale_type = HIP_R_32F;
  const void *alpha_pointer = nullptr, *beta_pointer = nullptr;  // in device pointer mode: read when it runs
  double alpha = 0, beta = 0;
};

double read_scale(const void *scalar, int32_t type) {
  if (!scalar) return 0;
  if (type == HIP_R_16F) {
    uint16_t half;
    std::memcpy(&half, scalar, sizeof(half));
    return f16_to_float(half);
  }
  float value;
  std::memcpy(&value, scalar, sizeof(value));
  return value;
}

// Integers are computed in double, which holds every int32, and come out rounded to nearest even and clipped.
template <class Integer>
struct Whole {
  using Stored = Integer;
  using Computed = double;
  static double load(Integer value) { return value; }
  static Integer store(double value) {
    if (std::isnan(value)) return 0;
    double low = std::numeric_limits<Integer>::min(), high = std::numeric_limits<Integer>::max();
    return static_cast<Integer>(std::min(std::max(std::nearbyint(value), low), high));
  }
};

constexpr int64_t tile = 32;

// A part of a row. `is_along`: the elements of all matrices are adjacent, whatever the strides say.
template <class Format, bool is_along>
void transform_line(const Transform &t, const typename Format::Stored *a, const typename Format::Stored *b,
                    typename Format::Stored *c, int64_t count) {
  using Compute = typename Format::Computed;
  const auto alpha = static_cast<Compute>(t.alpha), beta = static_cast<Compute>(t.beta);
  const int64_t a_stride = is_along ? 1 : t.a.column_stride, b_stride = is_along ? 1 : t.b.column_stride,
                c_stride = is_along ? 1 : t.column_stride;
  for (int64_t i = 0; i < count; ++i) {
    Compute value = 0;
    if (a) value += alpha * Format::load(a[i * a_stride]);
    if (b) value += beta * Format::load(b[i * b_stride]);
    c[i * c_stride] = Format::store(value);
  }
}

// One task is one band of `tile` rows of one batch entry; inside it goes tile by tile where one side is read across its
// lines.
template <class Format>
void transform_band(void *context, int64_t task) {
  using Storage = typename Format::Stored;
  const auto &t = *static_cast<const Transform *>(context);
  int64_t bands = (t.rows + tile - 1) / tile;
  int64_t entry = task / bands, first_row = task % bands * tile, end_row = std::min(first_row + tile, t.rows);
  auto a = t.a.data ? static_cast<const Storage *>(t.a.data) + entry * t.a.batch_stride : nullptr;
  auto b = t.b.data ? static_cast<const Storage *>(t.b.data) + entry * t.b.batch_stride : nullptr;
  auto c = static_cast<Storage *>(t.c) + entry * t.batch_stride;
  const bool is_along = t.column_stride == 1 && (!a || t.a.column_stride == 1) && (!b || t.b.column_stride == 1);
  const auto transform = is_along ? transform_line<Format, true> : transform_line<Format, false>;
  const int64_t width = is_along ? t.columns : tile;
  const auto at = [](auto *matrix, int64_t offset) { return matrix ? matrix + offset : nullptr; };
  for (int64_t column = 0; column < t.columns; column += width) {
    for (int64_t row = first_row; row < end_row; ++row) {
      transform(t, at(a, row * t.a.row_stride + column * t.a.column_stride),
                at(b, row * t.b.row_stride + column * t.b.column_stride),
                c + row * t.row_stride + column * t.column_stride, std::min(width, t.columns - column));
    }
  }
}

// The same with rows as columns: the loops go along the lines of C.
void exchange_axes(Transform *t) {
  std::swap(t->rows, t->columns);
  std::swap(t->row_stride, t->column_stride);
  std::swap(t->a.row_stride, t->a.column_stride);
  std::swap(t->b.row_stride, t->b.column_stride);
}

void run(Transform &t) {
  if (t.row_stride == 1) exchange_axes(&t);
  if (t.alpha_pointer) t.alpha = read_scale(t.alpha_pointer, t.scale_type);
  if (t.beta_pointer) t.beta = read_scale(t.beta_pointer, t.scale_type);
  // A zero scalar leaves its matrix unread.
  if (t.alpha == 0) t.a.data = nullptr;
  if (t.beta == 0) t.b.data = nullptr;
  void (*task)(void *, int64_t) = nullptr;
  switch (t.type) {
    case HIP_R_32F:
      task = transform_band<Plain<float>>;
      break;
    case HIP_R_16F:
      task = transform_band<Half>;
      break;
    case HIP_R_16BF:
      task = transform_band<Brain>;
      break;
    case HIP_R_8I:
      task = transform_band<Whole<int8_t>>;
      break;
    default:
      task = transform_band<Whole<int32_t>>;
      break;
  }
  int64_t bands = (t.rows + tile - 1) / tile;
  constexpr int64_t elements_per_thread = 1 << 16;
  int64_t useful = std::max<int64_t>(1, t.rows * t.columns / elements_per_thread * t.batch);
  parallel_for(bands * t.batch, int(std::min<int64_t>(useful, thread_count())), task, &t);
}

struct TransformWork final : Work {
  Transform transform;
  void run() override {
    lt::run(transform);
    delete this;
  }
};

bool types_supported(int32_t type, int32_t scale) {
  switch (type) {
    case HIP_R_16F:
      return scale == HIP_R_32F || scale == HIP_R_16F;
    case HIP_R_32F:
    case HIP_R_16BF:
    case HIP_R_8I:
    case HIP_R_32I:
      return scale == HIP_R_32F;
    default:
      return false;
  }
}

bool plain(const Layout &layout) {
  bool by_rows = layout.order == HIPBLASLT_ORDER_ROW;
  if (!by_rows && layout.order != HIPBLASLT_ORDER_COL) return false;
  uint64_t adjacent = by_rows ? layout.columns : layout.rows, lines = by_rows ? layout.rows : layout.columns;
  if ((layout.rows | layout.columns) >> 31 || layout.ld < 0 || layout.ld >> 31) return false;
  return lines <= 1 || uint64_t(layout.ld) >= adjacent;
}

// False: op(X) has another shape than C, another type, or a layout that no kernel takes.
bool make_source(const void *data, const Layout *layout, int32_t op, const Layout &c, Source *out) {
  if (!data) return true;
  if (op < HIPBLAS_OP_N || op > HIPBLAS_OP_C || layout->type != c.type || layout->batch_count != c.batch_count ||
      !plain(*layout)) {
    return false;
  }
  bool transposed = op != HIPBLAS_OP_N;
  if ((transposed ? layout->columns : layout->rows) != c.rows ||
      (transposed ? layout->rows : layout->columns) != c.columns) {
    return false;
  }
  if (layout->batch_stride < 0) return false;
  out->data = data;
  bool rows_adjacent = (layout->order == HIPBLASLT_ORDER_COL) != transposed;
  out->row_stride = rows_adjacent ? 1 : layout->ld;
  out->column_stride = rows_adjacent ? layout->ld : 1;
  out->batch_stride = layout->batch_stride;
  return true;
}

}  // namespace
}  // namespace rocpy_host::lt

using namespace rocpy_host::lt;

hipblasStatus_t rocpy_host_hipblasLtMatrixTransformDescCreate(hipblasLtMatrixTransformDesc_t *desc, hipDataType scale) {
  if (!desc) return HIPBLAS_STATUS_INVALID_VALUE;
  TransformDesc *created = transform_descs.allocate();
  *desc = reinterpret_cast<hipblasLtMatrixTransformDesc_t>(created);
  if (!created) return HIPBLAS_STATUS_ALLOC_FAILED;
  created->scale_type = scale;
  return HIPBLAS_STATUS_SUCCESS;
}

hipblasStatus_t rocpy_host_hipblasLtMatrixTransformDescDestroy(hipblasLtMatrixTransformDesc_t desc) {
  if (!desc) return HIPBLAS_STATUS_SUCCESS;  // the library deletes what it is given
  if (transform_descs.release(desc)) return HIPBLAS_STATUS_SUCCESS;
  report("hipblasLtMatrixTransformDescDestroy", "%p is not a live descriptor", static_cast<const void *>(desc));
  return HIPBLAS_STATUS_INVALID_VALUE;
}

// Unlike elsewhere the size must match exactly.
hipblasStatus_t rocpy_host_hipblasLtMatrixTransformDescSetAttribute(hipblasLtMatrixTransformDesc_t desc,
                                                                    hipblasLtMatrixTransformDescAttributes_t attribute,
                                                                    const void *value, size_t bytes) {
  TransformDesc *entry = transform_descs.find_to_change(desc);
  if (!entry || bytes != sizeof(int32_t)) return HIPBLAS_STATUS_INVALID_VALUE;
  return set_attribute(attributes, entry, attribute, value, bytes);
}

hipblasStatus_t rocpy_host_hipblasLtMatrixTransformDescGetAttribute(hipblasLtMatrixTransformDesc_t desc,
                                                                    hipblasLtMatrixTransformDescAttributes_t attribute,
                                                                    void *value, size_t bytes, size_t *written) {
  const TransformDesc *entry = transform_descs.find(desc);
  if (!entry || !written || bytes != sizeof(int32_t)) return HIPBLAS_STATUS_INVALID_VALUE;
  return get_attribute(attributes, entry, attribute, value, bytes, written);
}

hipblasStatus_t rocpy_host_hipblasLtMatrixTransform(hipblasLtHandle_t handle, hipblasLtMatrixTransformDesc_t desc,
                                                    const void *alpha, const void *a, hipblasLtMatrixLayout_t a_layout,
                                                    const void *beta, const void *b, hipblasLtMatrixLayout_t b_layout,
                                                    void *c, hipblasLtMatrixLayout_t c_layout, hipStream_t stream) {
  if (!handles.find(handle)) return HIPBLAS_STATUS_NOT_INITIALIZED;
  const TransformDesc *entry = transform_descs.find(desc);
  const Layout *layout_a = layouts.find(a_layout), *layout_b = layouts.find(b_layout),
               *layout_c = layouts.find(c_layout);
  if (!entry || (a && !layout_a) || (b && !layout_b) || (!layout_a && !layout_b) || !c || !layout_c) {
    return HIPBLAS_STATUS_INVALID_VALUE;
  }
  if (!types_supported(layout_c->type, entry->scale_type)) return HIPBLAS_STATUS_INVALID_VALUE;

  const rocpy::DefaultFpEnvironment environment;
  Transform transform;
  transform.c = c;
  transform.rows = int64_t(layout_c->rows);
  transform.columns = int64_t(layout_c->columns);
  transform.batch = layout_c->batch_count;
  bool by_rows = layout_c->order == HIPBLASLT_ORDER_ROW;
  transform.row_stride = by_rows ? layout_c->ld : 1;
  transform.column_stride = by_rows ? 1 : layout_c->ld;
  transform.batch_stride = layout_c->batch_stride;
  transform.type = layout_c->type;
  transform.scale_type = entry->scale_type;
  const bool is_empty = transform.rows == 0 || transform.columns == 0;
  if (!plain(*layout_c) || transform.batch < 1 || transform.batch_stride < 0 ||
      (transform.batch > 1 && transform.batch_stride == 0 && !is_empty) ||
      !make_source(a, layout_a, entry->trans_a, *layout_c, &transform.a) ||
      !make_source(b, layout_b, entry->trans_b, *layout_c, &transform.b)) {
    report("hipblasLtMatrixTransform", "types, shapes, orders, strides or batch counts of A, B and C do not match");
    return HIPBLAS_STATUS_INVALID_VALUE;
  }
  if ((a && !alpha) || (b && !beta)) return HIPBLAS_STATUS_INVALID_VALUE;
  if (entry->pointer_mode == HIPBLASLT_POINTER_MODE_HOST) {
    transform.alpha = read_scale(alpha, entry->scale_type);
    transform.beta = read_scale(beta, entry->scale_type);
    if ((!a && transform.alpha != 0) || (!b && transform.beta != 0)) return HIPBLAS_STATUS_INVALID_VALUE;
  } else {
    transform.alpha_pointer = alpha;
    transform.beta_pointer = beta;
  }
  if (is_empty) return HIPBLAS_STATUS_SUCCESS;

  rocpy_host::Stream *queue = rocpy_host::resolve(stream);
  if (!queue) return HIPBLAS_STATUS_INTERNAL_ERROR;
  const auto transform_once = [transform] {
    Transform once = transform;
    rocpy_host::lt::run(once);
  };
  const auto answer = captured_status(rocpy_host::offer_to_capture(queue, hipGraphNodeTypeKernel, transform_once));
  if (answer.has_value()) return *answer;
  if (rocpy_host::enter_inline(queue)) {
    rocpy_host::lt::run(transform);
    rocpy_host::leave_inline(queue);
    return HIPBLAS_STATUS_SUCCESS;
  }
  TransformWork *work = nullptr;
  try {
    work = new TransformWork;
    work->transform = transform;
    rocpy_host::enqueue(queue, work);
  } catch (const std::bad_alloc &) {
    delete work;
    return HIPBLAS_STATUS_ALLOC_FAILED;
  }
  return HIPBLAS_STATUS_SUCCESS;
}
