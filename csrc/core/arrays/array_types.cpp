// SPDX-License-Identifier: MIT
// The table of element types. It is compiled once, so that a new row changes this library and no extension module.
#include "array_types.hpp"

#include "dlpack.h"
#include "types_hipblaslt.h"
#include "types_rccl.h"

namespace rocpy {
namespace {

constexpr uint8_t shift_of(int bits) { return bits <= 8 ? 0 : 1 + shift_of(bits / 2); }
constexpr bool numpy_has(int code) {
  return code == kDLInt || code == kDLUInt || code == kDLFloat || code == kDLComplex;
}

}  // namespace

// Types of less than a byte lie one to a byte, as ml_dtypes has them; what is packed goes by other ways.
extern const ArrayType array_types[] = {
#define ROCPY_DTYPE(name, hip, bits, kind, dlpack, nccl, torch, takes) \
  {hip, shift_of(bits), dlpack, bits, numpy_has(dlpack), nccl, #name},
#include "dtypes.def"
#undef ROCPY_DTYPE
};
extern const int array_type_count = sizeof array_types / sizeof array_types[0];

}  // namespace rocpy
