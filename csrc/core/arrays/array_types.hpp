// SPDX-License-Identifier: MIT
// The element types an operand may have, from the rows of dtypes.def.
#ifndef ROCPY_CORE_ARRAY_TYPES_HPP
#define ROCPY_CORE_ARRAY_TYPES_HPP

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

constexpr uint8_t shift_of(int bits) { return bits <= 8 ? 0 : 1 + shift_of(bits / 2); }
constexpr bool numpy_has(int code) {
  return code == kDLInt || code == kDLUInt || code == kDLFloat || code == kDLComplex;
}

// Types of less than a byte lie one to a byte, as ml_dtypes has them; what is packed goes by other ways.
constexpr ArrayType array_types[] = {
#define ROCPY_DTYPE(name, hip, bits, kind, dlpack, nccl, torch, takes) \
  {hip, shift_of(bits), dlpack, bits, numpy_has(dlpack), nccl, #name},
#include "dtypes.def"
#undef ROCPY_DTYPE
};
constexpr int array_type_count = sizeof array_types / sizeof array_types[0];

inline const ArrayType *array_type_of_hip(int32_t type) {
  for (const ArrayType &row : array_types)
    if (row.type == type) return &row;
  return nullptr;
}

inline const ArrayType *array_type_of_dlpack(uint8_t code, uint8_t bits, uint16_t lanes) {
  // Producers disagree on how types of less than a byte are packed.
  if (lanes != 1 || bits < 8) return nullptr;
  for (const ArrayType &row : array_types)
    if (row.code == code && row.bits == bits) return &row;
  return nullptr;
}

inline const ArrayType *array_type_of_name(const char *name) {
  for (const ArrayType &row : array_types)
    if (std::strcmp(row.name, name) == 0) return &row;
  return nullptr;
}

}  // namespace rocpy

#endif
