// SPDX-License-Identifier: MIT
// Matrix layouts of the host platform's hipBLASLt. Extents and leading dimensions are stored unchecked, as the library
// does.
#include <cstddef>

#include "exports.h"
#include "hipblaslt_attributes.hpp"
#include "hipblaslt_objects.hpp"

namespace rocpy_host::lt {

namespace {

constexpr Attribute attributes[] = {
    {HIPBLASLT_MATRIX_LAYOUT_BATCH_COUNT, offsetof(Layout, batch_count), 4, true, nullptr, nullptr},
    {HIPBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, offsetof(Layout, batch_stride), 8, true, nullptr, nullptr},
    {HIPBLASLT_MATRIX_LAYOUT_TYPE, offsetof(Layout, type), 4, false, nullptr, nullptr},
    {HIPBLASLT_MATRIX_LAYOUT_ORDER, offsetof(Layout, order), 4, false, nullptr, nullptr},
    {HIPBLASLT_MATRIX_LAYOUT_ROWS, offsetof(Layout, rows), 8, false, nullptr, nullptr},
    {HIPBLASLT_MATRIX_LAYOUT_COLS, offsetof(Layout, columns), 8, false, nullptr, nullptr},
    {HIPBLASLT_MATRIX_LAYOUT_LD, offsetof(Layout, ld), 8, false, nullptr, nullptr},
    {HIPBLASLT_MATRIX_LAYOUT_BATCH_MODE, offsetof(Layout, batch_mode), 4, true, nullptr, nullptr, 100300, INT32_MAX,
     true},
};

}  // namespace
}  // namespace rocpy_host::lt

using namespace rocpy_host::lt;

hipblasStatus_t rocpy_host_hipblasLtMatrixLayoutCreate(hipblasLtMatrixLayout_t *layout, hipDataType type, uint64_t rows,
                                                       uint64_t columns, int64_t ld) {
  if (!layout) return HIPBLAS_STATUS_INVALID_VALUE;
  Layout *created = layouts.allocate();
  *layout = reinterpret_cast<hipblasLtMatrixLayout_t>(created);
  if (!created) return HIPBLAS_STATUS_ALLOC_FAILED;
  created->type = type;
  created->rows = rows;
  created->columns = columns;
  created->ld = ld;
  return HIPBLAS_STATUS_SUCCESS;
}

hipblasStatus_t rocpy_host_hipblasLtMatrixLayoutDestroy(const hipblasLtMatrixLayout_t layout) {
  if (!layout) return HIPBLAS_STATUS_INVALID_VALUE;
  if (layouts.release(layout)) return HIPBLAS_STATUS_SUCCESS;
  report("hipblasLtMatrixLayoutDestroy", "%p is not a live layout", static_cast<const void *>(layout));
  return HIPBLAS_STATUS_INVALID_VALUE;
}

hipblasStatus_t rocpy_host_hipblasLtMatrixLayoutSetAttribute(hipblasLtMatrixLayout_t layout,
                                                             hipblasLtMatrixLayoutAttribute_t attribute,
                                                             const void *value, size_t bytes) {
  Layout *entry = layouts.find_to_change(layout);
  if (!entry) return HIPBLAS_STATUS_NOT_INITIALIZED;
  return set_attribute(attributes, entry, attribute, value, bytes);
}

hipblasStatus_t rocpy_host_hipblasLtMatrixLayoutGetAttribute(hipblasLtMatrixLayout_t layout,
                                                             hipblasLtMatrixLayoutAttribute_t attribute, void *value,
                                                             size_t bytes, size_t *written) {
  const Layout *entry = layouts.find(layout);
  if (!entry) return HIPBLAS_STATUS_NOT_INITIALIZED;
  return get_attribute(attributes, entry, attribute, value, bytes, written);
}
