# SPDX-License-Identifier: MIT
"""HIP C++ kernels for the emulator's tests; they include no headers."""

_HEAD = """
#define KERNEL extern "C" __attribute__((global)) void
#define SHARED __attribute__((shared))
#define GROUP(axis) __builtin_amdgcn_workgroup_id_##axis()
#define SIZE(axis) __builtin_amdgcn_workgroup_size_##axis()
#define ITEM(axis) __builtin_amdgcn_workitem_id_##axis()
#define THREAD ITEM(x)
#define BLOCK GROUP(x)
static __attribute__((device)) void barrier() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
typedef _Float16 half;
typedef half half2 __attribute__((ext_vector_type(2)));
"""

KERNELS = {
    name: _HEAD + text
    for name, text in {
        "add": """
KERNEL add(const float *a, const float *b, float *c, int n) {
  int i = BLOCK * 256 + THREAD;
  if (i < n) c[i] = a[i] + b[i] * 2.0f;
}""",
        "tree": """
KERNEL tree(const float *x, float *out, int n) {
  SHARED float s[256];
  int t = THREAD;
  float sum = 0;
  for (int i = BLOCK * 256 + t; i < n; i += 1024) sum += x[i];
  s[t] = sum;
  barrier();
  for (int k = 128; k > 0; k /= 2) {
    if (t < k) s[t] += s[t + k];
    barrier();
  }
  if (t == 0) out[BLOCK] = s[0];
}""",
        "doubles": """
KERNEL doubles(const double *a, const float *f, double *o, float *q, long *l, unsigned n) {
  unsigned i = BLOCK * 64 + THREAD;
  if (i >= n) return;
  double x = a[i];
  o[i] = x / (x * x + 1.0) + __builtin_sqrt(x < 0 ? -x : x);
  q[i] = f[i] / (f[i] + 3.0f);
  l[i] = (long)(x * 1e6) * (long)i / 7;
}""",
        "division": """
KERNEL division(const int *a, const int *b, int *q, int *r, unsigned n) {
  unsigned i = BLOCK * 64 + THREAD;
  if (i >= n) return;
  q[i] = a[i] / b[i];
  r[i] = a[i] % b[i];
}""",
        "histogram": """
KERNEL histogram(int *bins, const unsigned *x, float *sum, unsigned n) {
  unsigned i = BLOCK * 64 + THREAD;
  if (i >= n) return;
  __hip_atomic_fetch_add(bins + (x[i] & 15), 1, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
  __hip_atomic_fetch_add(sum, 1.0f, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}""",
        "own_memory": """
KERNEL own_memory(const int *a, int *o, int k) {
  int v[40];
  int t = THREAD;
  for (int i = 0; i < 40; ++i) v[i] = a[t * 40 + i] * 3;
  int sum = 0;
  for (int i = 0; i < k; ++i) sum += v[(i * 7 + t) % 40] ^ i;
  o[t] = sum;
}""",
        "halves": """
KERNEL halves(const half *a, const half *b, half *o, float *f, __bf16 *q, half2 *p, unsigned n) {
  unsigned i = BLOCK * 64 + THREAD;
  if (i >= n) return;
  half x = a[i], y = b[i];
  o[i] = x * y + (half)1.5f;
  f[i] = (float)x - (float)y;
  q[i] = (__bf16)((float)x * 3.3f);
  half2 z = {x, y};
  p[i] = z * z + z;
}""",
        "grid": """
KERNEL grid(unsigned *out) {
  unsigned x = GROUP(x) * SIZE(x) + ITEM(x);
  unsigned y = GROUP(y) * SIZE(y) + ITEM(y);
  unsigned z = GROUP(z) * SIZE(z) + ITEM(z);
  out[(z * 6 + y) * 8 + x] = x | y << 8 | z << 16;
}""",
    }.items()
}
