// SPDX-License-Identifier: MIT
// What the primitives of rocpy_coop.h are made of: lanes of a wave, moves between them by DPP, operators. Compiler
// builtins alone.
#pragma once

#define COOP_DEVICE __attribute__((device)) __attribute__((always_inline)) inline
#define COOP_SHARED __attribute__((shared))

// Lanes of a wave: 64 on GCN and CDNA, 32 on RDNA. A build for RDNA with -mwavefrontsize64 defines it as 64.
#ifndef COOP_WARP_SIZE
#if defined(__GFX9__)
#define COOP_WARP_SIZE 64
#else
#define COOP_WARP_SIZE 32
#endif
#endif

// Most threads of a block: what static LDS is sized for.
#ifndef COOP_MOST_THREADS
#define COOP_MOST_THREADS 1024
#endif

namespace rocpy {

static_assert(COOP_WARP_SIZE == 32 || COOP_WARP_SIZE == 64, "waves have 32 or 64 lanes");
constexpr unsigned warp_size = COOP_WARP_SIZE;
constexpr unsigned most_warps = (COOP_MOST_THREADS + warp_size - 1) / warp_size;

// Operators. Operands come from left to right, so that an operator need not be commutative. No operation is contracted
// with one of the caller's: the bits are those of the CPU runtime.
struct Plus {
  template <class T>
  COOP_DEVICE T operator()(T a, T b) const {
#pragma clang fp contract(off)
    return static_cast<T>(a + b);
  }
};
struct Times {
  template <class T>
  COOP_DEVICE T operator()(T a, T b) const {
#pragma clang fp contract(off)
    return static_cast<T>(a * b);
  }
};
struct Min {  // a NaN wins: it is the one value that differs from itself
  template <class T>
  COOP_DEVICE T operator()(T a, T b) const {
    return (a < b || a != a) ? a : b;
  }
};
struct Max {
  template <class T>
  COOP_DEVICE T operator()(T a, T b) const {
    return (a > b || a != a) ? a : b;
  }
};
struct And {
  template <class T>
  COOP_DEVICE T operator()(T a, T b) const {
    return static_cast<T>(a & b);
  }
};
struct Or {
  template <class T>
  COOP_DEVICE T operator()(T a, T b) const {
    return static_cast<T>(a | b);
  }
};
struct Xor {
  template <class T>
  COOP_DEVICE T operator()(T a, T b) const {
    return static_cast<T>(a ^ b);
  }
};

namespace lanes {

// A build whose waves are not of COOP_WARP_SIZE lanes is no build: these have no code in the other mode.
COOP_DEVICE void check_wave_size() {
#if defined(__AMDGCN__) && \
    (__has_builtin(__builtin_amdgcn_inverse_ballot_w64) || __has_builtin(__builtin_amdgcn_inverse_ballot_w32))
#if COOP_WARP_SIZE == 64
  (void)__builtin_amdgcn_inverse_ballot_w64(0);
#else
  (void)__builtin_amdgcn_inverse_ballot_w32(0);
#endif
#elif defined(__AMDGCN_WAVEFRONT_SIZE__)
  static_assert(__AMDGCN_WAVEFRONT_SIZE__ == COOP_WARP_SIZE, "COOP_WARP_SIZE is not that of the build's waves");
#endif
}

COOP_DEVICE unsigned own() {
  check_wave_size();
#if COOP_WARP_SIZE == 64
  return __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0));
#else
  return __builtin_amdgcn_mbcnt_lo(~0u, 0);
#endif
}

// Moves are made of 32-bit words: a value of any trivially copyable type is cut into them.
template <class Move, class T>
COOP_DEVICE T by_words(T value, Move move) {
  constexpr unsigned count = (sizeof(T) + 3) / 4;
  unsigned words[count] = {};
  __builtin_memcpy(words, &value, sizeof(T));
#pragma unroll
  for (unsigned i = 0; i < count; ++i) words[i] = move(words[i]);
  T moved = value;
  __builtin_memcpy(&moved, words, sizeof(T));
  return moved;
}

template <int Control>
struct Dpp {  // lanes without a source get zero, so that the compiler may fuse the move with the operation that follows
  COOP_DEVICE unsigned operator()(unsigned word) const {
    return __builtin_amdgcn_update_dpp(0, word, Control, 0xf, 0xf, true);
  }
};
struct FromOtherRow {  // lane i gets lane i ^ 16
  COOP_DEVICE unsigned operator()(unsigned word) const {
#if defined(__GFX9__) || !defined(__AMDGCN__)
    return __builtin_amdgcn_ds_swizzle(word, 0x401f);
#else
    return __builtin_amdgcn_permlanex16(word, word, 0x76543210, 0xfedcba98, false, false);
#endif
  }
};
struct FromLane {  // of each lane's own choice
  unsigned lane;
  COOP_DEVICE unsigned operator()(unsigned word) const {
#if COOP_WARP_SIZE == 64 && (defined(__GFX10__) || defined(__GFX11__))
    // The halves of a wave are permuted each by itself there. One turn for each different lane of the other half.
    unsigned taken = __builtin_amdgcn_ds_bpermute((lane & 31) << 2, word);
    bool open = ((lane ^ own()) & 32) != 0;
    while (open) {
      const unsigned source = __builtin_amdgcn_readfirstlane(lane);
      const unsigned other = __builtin_amdgcn_readlane(word, source);
      if (lane == source) {
        taken = other;
        open = false;
      }
    }
    return taken;
#else
    return __builtin_amdgcn_ds_bpermute(lane << 2, word);
#endif
  }
};
struct FromUniformLane {
  unsigned lane;
  COOP_DEVICE unsigned operator()(unsigned word) const { return __builtin_amdgcn_readlane(word, lane); }
};
struct FromFirstLane {
  COOP_DEVICE unsigned operator()(unsigned word) const { return __builtin_amdgcn_readfirstlane(word); }
};

template <int Distance, class T>
COOP_DEVICE T down(T value) {  // within a row of 16: lane i gets lane i + Distance
  return by_words(value, Dpp<0x100 + Distance>{});
}
template <int Distance, class T>
COOP_DEVICE T up(T value) {  // within a row of 16: lane i gets lane i - Distance
  return by_words(value, Dpp<0x110 + Distance>{});
}
template <class T>
COOP_DEVICE T other_row(T value) {
  return by_words(value, FromOtherRow{});
}
template <class T>
COOP_DEVICE T from(T value, unsigned lane) {
  return by_words(value, FromLane{lane});
}
template <class T>
COOP_DEVICE T from_uniform(T value, unsigned lane) {
  return by_words(value, FromUniformLane{lane});
}
template <class T>
COOP_DEVICE T from_first(T value) {
  return by_words(value, FromFirstLane{});
}

COOP_DEVICE unsigned long long ballot(bool condition) {
#if COOP_WARP_SIZE == 64
  return __builtin_amdgcn_ballot_w64(condition);
#else
  return __builtin_amdgcn_ballot_w32(condition);
#endif
}

// One step of a reduction: rank r combines with rank r + Distance, where that is below the limit.
template <int Distance, class T, class Op>
COOP_DEVICE T reduce_step(T value, T other, unsigned rank, unsigned limit, bool whole, Op op) {
  if (whole || rank + Distance < limit) value = op(value, other);
  return value;
}

// Reduction of aligned runs of `width` lanes into the first lane of each: neighbours, then neighbours of those. `limit`
// ranks of the run take part. Lanes that are no longer first of anything hold what nobody reads.
template <class T, class Op>
COOP_DEVICE T reduce(T value, unsigned rank, unsigned width, unsigned limit, bool whole, Op op) {
  if (width > 1) value = reduce_step<1>(value, down<1>(value), rank, limit, whole, op);
  if (width > 2) value = reduce_step<2>(value, down<2>(value), rank, limit, whole, op);
  if (width > 4) value = reduce_step<4>(value, down<4>(value), rank, limit, whole, op);
  if (width > 8) value = reduce_step<8>(value, down<8>(value), rank, limit, whole, op);
  if (width > 16) value = reduce_step<16>(value, other_row(value), rank, limit, whole, op);
#if COOP_WARP_SIZE == 64
  if (width > 32) value = reduce_step<32>(value, from_uniform(value, 32), rank, limit, whole, op);
#endif
  return value;
}

template <int Distance, class T, class Op>
COOP_DEVICE T scan_step(T value, unsigned row_rank, Op op) {
  const T left = up<Distance>(value);
  if (row_rank >= Distance) value = op(left, value);
  return value;
}

// Inclusive scan of aligned runs of `width` lanes: rows of 16 by doubling distances, then pairs of rows, of pairs.
template <class T, class Op>
COOP_DEVICE T scan(T value, unsigned lane, unsigned width, Op op) {
  const unsigned row_rank = lane & (width < 16 ? width - 1 : 15);
  if (width > 1) value = scan_step<1>(value, row_rank, op);
  if (width > 2) value = scan_step<2>(value, row_rank, op);
  if (width > 4) value = scan_step<4>(value, row_rank, op);
  if (width > 8) value = scan_step<8>(value, row_rank, op);
  if (width > 16) {
#if COOP_WARP_SIZE == 64
    const T low = from_uniform(value, 15), high = from_uniform(value, 47);
    const T left = lane < 32 ? low : high;
#else
    const T left = from_uniform(value, 15);
#endif
    if (lane & 16) value = op(left, value);
  }
#if COOP_WARP_SIZE == 64
  if (width > 32) {
    const T left = from_uniform(value, 31);
    if (lane & 32) value = op(left, value);
  }
#endif
  return value;
}

}  // namespace lanes

// Waits for the block; what its threads wrote before, to any memory, is seen by all after.
COOP_DEVICE void barrier() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

// Lanes of a wave run together: only the compiler, and the memory's order, have to be told.
COOP_DEVICE void warp_barrier() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
  __builtin_amdgcn_wave_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
}

// A block whose extents the compiler knows, or, with zeros, reads when the kernel runs.
template <unsigned X = 0, unsigned Y = 1, unsigned Z = 1>
struct Block {
  static constexpr unsigned most_threads = X != 0 ? X * Y * Z : COOP_MOST_THREADS;
  COOP_DEVICE static unsigned size() {
    if (X != 0) return X * Y * Z;
    return __builtin_amdgcn_workgroup_size_x() * __builtin_amdgcn_workgroup_size_y() *
           __builtin_amdgcn_workgroup_size_z();
  }
  COOP_DEVICE static unsigned rank() {  // x fastest, as lanes are numbered
    const unsigned x = X != 0 ? X : __builtin_amdgcn_workgroup_size_x();
    const unsigned y = X != 0 ? Y : __builtin_amdgcn_workgroup_size_y();
    unsigned rank = __builtin_amdgcn_workitem_id_x();
    if (X == 0 || Y * Z != 1) rank += x * (__builtin_amdgcn_workitem_id_y() + y * __builtin_amdgcn_workitem_id_z());
    return rank;
  }
  COOP_DEVICE static unsigned first() { return 0; }
  COOP_DEVICE static void sync() { barrier(); }
};

// An aligned run of lanes; the last one of a block may be short.
struct Warp {
  unsigned width;
  COOP_DEVICE unsigned rank() const { return lanes::own() & (width - 1); }
  COOP_DEVICE unsigned size(unsigned block_rank, unsigned block_size) const {
    const unsigned left = block_size - (block_rank & ~(width - 1));
    return left < width ? left : width;
  }
};

}  // namespace rocpy
