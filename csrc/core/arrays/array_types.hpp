// SPDX-License-Identifier: MIT
// The element types an operand may have: hipDataType number, size, DLPack code and name, one row each.
#ifndef ROCPY_CORE_ARRAY_TYPES_HPP
#define ROCPY_CORE_ARRAY_TYPES_HPP

#include <cstdint>
#include <cstring>

#include "dlpack.h"
#include "types_hipblaslt.h"

namespace rocpy {

struct ArrayType {
  int32_t type;   // hipDataType
  uint8_t shift;  // size in bytes is 1 << shift
  uint8_t code;   // DLDataTypeCode
  uint8_t bits;
  bool in_numpy;  // a type of numpy itself; the others come from ml_dtypes
  const char *name;
};

// Types of less than a byte lie one to a byte, as ml_dtypes has them; what is packed goes by other ways.
constexpr ArrayType array_types[] = {
    {HIP_R_32F, 2, kDLFloat, 32, true, "float32"},
    {HIP_R_64F, 3, kDLFloat, 64, true, "float64"},
    {HIP_R_16F, 1, kDLFloat, 16, true, "float16"},
    {HIP_R_16BF, 1, kDLBfloat, 16, false, "bfloat16"},
    {HIP_C_32F, 3, kDLComplex, 64, true, "complex64"},
    {HIP_C_64F, 4, kDLComplex, 128, true, "complex128"},
    {HIP_R_8I, 0, kDLInt, 8, true, "int8"},
    {HIP_R_16I, 1, kDLInt, 16, true, "int16"},
    {HIP_R_32I, 2, kDLInt, 32, true, "int32"},
    {HIP_R_64I, 3, kDLInt, 64, true, "int64"},
    {HIP_R_8U, 0, kDLUInt, 8, true, "uint8"},
    {HIP_R_16U, 1, kDLUInt, 16, true, "uint16"},
    {HIP_R_32U, 2, kDLUInt, 32, true, "uint32"},
    {HIP_R_64U, 3, kDLUInt, 64, true, "uint64"},
    {HIP_R_8F_E4M3, 0, kDLFloat8_e4m3fn, 8, false, "float8_e4m3fn"},
    {HIP_R_8F_E5M2, 0, kDLFloat8_e5m2, 8, false, "float8_e5m2"},
    {HIP_R_8F_E4M3_FNUZ, 0, kDLFloat8_e4m3fnuz, 8, false, "float8_e4m3fnuz"},
    {HIP_R_8F_E5M2_FNUZ, 0, kDLFloat8_e5m2fnuz, 8, false, "float8_e5m2fnuz"},
    {HIP_R_8F_UE8M0, 0, kDLFloat8_e8m0fnu, 8, false, "float8_e8m0fnu"},
    {HIP_R_6F_E2M3, 0, kDLFloat6_e2m3fn, 6, false, "float6_e2m3fn"},
    {HIP_R_6F_E3M2, 0, kDLFloat6_e3m2fn, 6, false, "float6_e3m2fn"},
    {HIP_R_4F_E2M1, 0, kDLFloat4_e2m1fn, 4, false, "float4_e2m1fn"},
};

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
