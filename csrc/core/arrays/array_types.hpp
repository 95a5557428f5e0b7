// SPDX-License-Identifier: MIT
// The element types an operand may have, from the rows of dtypes.def.
#pragma once

#include <cstdint>
#include <cstring>

#include "dlpack.h"
#include "types_hipblaslt.h"
#include "types_rccl.h"

namespace rocpy {

struct ArrayType {
  int32_t type;   // hipDataType
  uint8_t shift;  // size in bytes is 1 << shift
  uint8_t code;   // DLDataTypeCode
  uint8_t bits;
  bool in_numpy;  // a type of numpy itself; the others come from ml_dtypes
  int32_t nccl;   // ncclDataType_t, -1 where RCCL has none
  const char *name;
};

// In librocpy_core, for all extension modules.
extern const ArrayType array_types[];
extern const int array_type_count;

struct ArrayTypes {
  const ArrayType *begin() const { return array_types; }
  const ArrayType *end() const { return array_types + array_type_count; }
};

inline const ArrayType *array_type_of_hip(int32_t type) {
  for (const ArrayType &row : ArrayTypes()) {
    if (row.type == type) return &row;
  }
  return nullptr;
}

inline const ArrayType *array_type_of_dlpack(uint8_t code, uint8_t bits, uint16_t lanes) {
  // Producers disagree on how types of less than a byte are packed.
  if (lanes != 1 || bits < 8) return nullptr;
  for (const ArrayType &row : ArrayTypes()) {
    if (row.code == code && row.bits == bits) return &row;
  }
  return nullptr;
}

inline const ArrayType *array_type_of_name(const char *name) {
  for (const ArrayType &row : ArrayTypes()) {
    if (std::strcmp(row.name, name) == 0) return &row;
  }
  return nullptr;
}

}  // namespace rocpy
