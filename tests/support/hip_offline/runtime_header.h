// SPDX-License-Identifier: MIT
// Stands in for the header that hipRTC has built in, which numba-hip makes its functions of: for machines with no ROCm.
// The indices, barriers and bit counts are what a GPU does; so are those functions of numbers that LLVM has
// instructions for. The others only have their names here: a kernel that calls one cannot be linked.

#define ROCPY_DEVICE __attribute__((device)) inline

struct RocpyIndex {
  unsigned x, y, z;
};

ROCPY_DEVICE const unsigned *rocpy_launch() { return (const unsigned *)__builtin_amdgcn_implicitarg_ptr(); }

#define threadIdx \
  (RocpyIndex{__builtin_amdgcn_workitem_id_x(), __builtin_amdgcn_workitem_id_y(), __builtin_amdgcn_workitem_id_z()})
#define blockIdx \
  (RocpyIndex{__builtin_amdgcn_workgroup_id_x(), __builtin_amdgcn_workgroup_id_y(), __builtin_amdgcn_workgroup_id_z()})
#define blockDim                                                                        \
  (RocpyIndex{__builtin_amdgcn_workgroup_size_x(), __builtin_amdgcn_workgroup_size_y(), \
              __builtin_amdgcn_workgroup_size_z()})
#define gridDim (RocpyIndex{rocpy_launch()[0], rocpy_launch()[1], rocpy_launch()[2]})
#define warpSize (static_cast<int>(__builtin_amdgcn_wavefrontsize()))
#define HIP_PI 3.14159265358979323846
#define HIP_PI_F 3.14159265358979323846f

ROCPY_DEVICE void __syncthreads() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
ROCPY_DEVICE unsigned __lane_id() { return __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0)); }
ROCPY_DEVICE unsigned __popc(unsigned x) { return __builtin_popcount(x); }
ROCPY_DEVICE unsigned __popcll(unsigned long long x) { return __builtin_popcountll(x); }
ROCPY_DEVICE unsigned __ffs(unsigned x) { return __builtin_ffs(x); }
ROCPY_DEVICE unsigned __ffsll(unsigned long long x) { return __builtin_ffsll(x); }
ROCPY_DEVICE unsigned __brev(unsigned x) { return __builtin_bitreverse32(x); }
ROCPY_DEVICE unsigned long long __brevll(unsigned long long x) { return __builtin_bitreverse64(x); }
ROCPY_DEVICE int __clz(int x) { return x == 0 ? 32 : __builtin_clz(x); }
ROCPY_DEVICE int __clzll(long long x) { return x == 0 ? 64 : __builtin_clzll(x); }

#define ROCPY_UNARY(name)                                                \
  ROCPY_DEVICE double name(double x) { return __builtin_##name(x); }     \
  ROCPY_DEVICE float name##f(float x) { return __builtin_##name##f(x); } \
  ROCPY_DEVICE float name(float x) { return name##f(x); }

#define ROCPY_BINARY(name)                                                           \
  ROCPY_DEVICE double name(double x, double y) { return __builtin_##name(x, y); }    \
  ROCPY_DEVICE float name##f(float x, float y) { return __builtin_##name##f(x, y); } \
  ROCPY_DEVICE float name(float x, float y) { return name##f(x, y); }

#define ROCPY_TEST(name)                                           \
  ROCPY_DEVICE bool name(double x) { return __builtin_##name(x); } \
  ROCPY_DEVICE bool name(float x) { return __builtin_##name(x); }

ROCPY_UNARY(acos)
ROCPY_UNARY(acosh)
ROCPY_UNARY(asin)
ROCPY_UNARY(asinh)
ROCPY_UNARY(atan)
ROCPY_UNARY(atanh)
ROCPY_UNARY(ceil)
ROCPY_UNARY(cos)
ROCPY_UNARY(cosh)
ROCPY_UNARY(erf)
ROCPY_UNARY(erfc)
ROCPY_UNARY(exp)
ROCPY_UNARY(expm1)
ROCPY_UNARY(fabs)
ROCPY_UNARY(floor)
ROCPY_UNARY(lgamma)
ROCPY_UNARY(log)
ROCPY_UNARY(log10)
ROCPY_UNARY(log1p)
ROCPY_UNARY(log2)
ROCPY_UNARY(sin)
ROCPY_UNARY(sinh)
ROCPY_UNARY(sqrt)
ROCPY_UNARY(tan)
ROCPY_UNARY(tanh)
ROCPY_UNARY(tgamma)
ROCPY_UNARY(trunc)
ROCPY_BINARY(atan2)
ROCPY_BINARY(copysign)
ROCPY_BINARY(fmod)
ROCPY_BINARY(hypot)
ROCPY_BINARY(pow)
ROCPY_BINARY(remainder)
ROCPY_TEST(isfinite)
ROCPY_TEST(isinf)
ROCPY_TEST(isnan)
