// SPDX-License-Identifier: MIT
// Attributes of hipBLASLt's objects as tables: which member an attribute is, how large, what it may be, and whether it
// can be read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "types.h"
#include "window.hpp"

namespace rocpy_host::lt {

struct Attribute {
  int id;
  uint16_t offset;
  uint16_t bytes;
  bool readable;                         // the library itself does not answer for all that it stores
  bool (*allowed)(const void *value);    // null: any value is stored
  bool (*answered)(const void *object);  // null: always
  int since = 0;                         // first version of the library that has it
  int until = INT32_MAX;                 // first version that has it no more
  bool exact = false;                    // read with its own size only
};

// The first version of hipBLASLt whose attribute it is, where that is within the window that the platform presents.
inline bool presented(int since) { return window().hipblaslt >= since; }

template <size_t count>
const Attribute *find_attribute(const Attribute (&table)[count], int id) {
  for (const Attribute &row : table) {
    if (row.id == id && presented(row.since) && !presented(row.until)) return &row;
  }
  return nullptr;
}

// Sizes are checked as "at least", as the library does.
template <size_t count>
hipblasStatus_t set_attribute(const Attribute (&table)[count], void *object, int id, const void *value, size_t bytes) {
  const Attribute *row = find_attribute(table, id);
  if (!value || !row || bytes < row->bytes) return HIPBLAS_STATUS_INVALID_VALUE;
  if (row->allowed && !row->allowed(value)) return HIPBLAS_STATUS_INVALID_VALUE;
  std::memcpy(static_cast<char *>(object) + row->offset, value, row->bytes);
  return HIPBLAS_STATUS_SUCCESS;
}

// A query with size 0 writes the size needed and answers INVALID_VALUE all the same: the library does, whatever its
// header says.
template <size_t count>
hipblasStatus_t get_attribute(const Attribute (&table)[count], const void *object, int id, void *value, size_t bytes,
                              size_t *written) {
  if (bytes == 0 && !written) return HIPBLAS_STATUS_INVALID_VALUE;
  if (bytes != 0 && !value) return HIPBLAS_STATUS_INVALID_VALUE;
  const Attribute *row = find_attribute(table, id);
  if (!row || !row->readable) return HIPBLAS_STATUS_INVALID_VALUE;
  if (written) *written = row->bytes;
  if (bytes < row->bytes || (row->exact && bytes != row->bytes)) return HIPBLAS_STATUS_INVALID_VALUE;
  if (row->answered && !row->answered(object)) return HIPBLAS_STATUS_INVALID_VALUE;
  std::memcpy(value, static_cast<const char *>(object) + row->offset, row->bytes);
  return HIPBLAS_STATUS_SUCCESS;
}

inline bool not_negative(const void *value) {
  int32_t number;
  std::memcpy(&number, value, sizeof(number));
  return number >= 0;
}

}  // namespace rocpy_host::lt
