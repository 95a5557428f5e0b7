// SPDX-License-Identifier: MIT
// Packed panels of an operand with a scale for every 32 of k: for each block the scales of the panel's columns, a byte
// each, then its rows of codes. Codes of 4 bits share a byte with those half a panel away, others have one each.
#pragma once

#include "isa.hpp"

namespace rocpy_host::gemm {

constexpr int64_t block_depth = 32;

// Whether an operand is one that pack_blocks() made.
inline bool packed_blocks(const Matrix &m) { return m.packed && m.scale.kind == ScaleKind::block32; }

// By type, for Kernels::blocks.
constexpr int block_index(Type type) {
  switch (type) {
    case Type::e4m3:
      return 0;
    case Type::e5m2:
      return 1;
    case Type::e2m3:
      return 2;
    case Type::e3m2:
      return 3;
    case Type::e2m1:
      return 4;
    default:
      return -1;
  }
}

inline int64_t bytes_of_block(Type type, int64_t width) {
  return width + block_depth * (type == Type::e2m1 ? width / 2 : width);
}

// Of a whole k x n operand, k a multiple of 32: the bytes of its panels, those with what lies behind them, a byte that
// says whether it has large scales; and the packing of one whose lines have k adjacent.
int64_t panels_of_blocks_bytes(Type type, int64_t k, int64_t n);
size_t packed_block_bytes(Type type, int64_t k, int64_t n);
void pack_blocks(const Matrix &b, int64_t k, int64_t n, void *packed);

// Whether elements of an operand with `lines` rows of a or columns of b may be beyond float32 when they are scaled, and
// the product of such ones, in the place of any algorithm's. False: no memory; nothing was written then.
bool has_large_scales(const Matrix &m, int64_t lines, int64_t k, int64_t batch);
bool run_large_scales(const Problem &p);

}  // namespace rocpy_host::gemm
