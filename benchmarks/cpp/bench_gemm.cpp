// SPDX-License-Identifier: MIT
// Speed of every algorithm of the product engine per shape, with the peak of the FMA units measured in between:
//   bench_gemm [--threads N] [--rounds N] [--only TEXT] [--all] [--shape "MxNxK [WORD] ..." ...]
//              [--blas LIBRARY] [--evict MB]
// A WORD is at, bt, packed, bias, an activation (relu, gelu or silu) or a type.
// Types are f32 (as without one), f64, f16, bf16, e4m3, e5m2, e4m3_fnuz or i8.
// Prints the best of interleaved rounds in GF/s; * marks the algorithm that rank() puts first, and "lost" is what that
// one is below the best. --all adds types and epilogues; with --shape these are measured and no others. --blas compares
// float32 and float64 with a library's cblas_sgemm and cblas_dgemm, such as NumPy's copy of OpenBLAS. --evict writes so
// many megabytes before each product, which then finds in the caches what these leave of its operands.
#include <dlfcn.h>
#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "gemm.hpp"
#include "scalar.hpp"
#include "threads.hpp"

namespace {

using namespace rocpy_host;
using namespace rocpy_host::gemm;
// One thread is measured by its own CPU time, which a busy machine disturbs less; several by the wall clock.
bool cpu_time = false;
double now() {
  timespec t;
  clock_gettime(cpu_time ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}
double seconds_since(double start) { return now() - start; }

// What --evict writes.
std::vector<char> other_data;

#if defined(__x86_64__)
// Twelve independent chains of a fused multiply-add of floats, nothing but registers.
#define CHAIN(c) asm volatile("vfmadd231ps %1, %2, %0" : "+v"(c) : "v"(a), "v"(b))
#define PEAK(name, features, bytes)                                                   \
  __attribute__((target(features))) double name() {                                   \
    typedef float Wide __attribute__((vector_size(bytes), may_alias));                \
    const long steps = 500000;                                                        \
    Wide a{}, b{};                                                                    \
    Wide c0{}, c1{}, c2{}, c3{}, c4{}, c5{}, c6{}, c7{}, c8{}, c9{}, ca{}, cb{};      \
    const double start = now();                                                       \
    for (long i = 0; i < steps; i++) {                                                \
      CHAIN(c0);                                                                      \
      CHAIN(c1);                                                                      \
      CHAIN(c2);                                                                      \
      CHAIN(c3);                                                                      \
      CHAIN(c4);                                                                      \
      CHAIN(c5);                                                                      \
      CHAIN(c6);                                                                      \
      CHAIN(c7);                                                                      \
      CHAIN(c8);                                                                      \
      CHAIN(c9);                                                                      \
      CHAIN(ca);                                                                      \
      CHAIN(cb);                                                                      \
    }                                                                                 \
    return static_cast<double>(steps) * 12 * bytes / 2 / seconds_since(start) * 1e-9; \
  }
PEAK(peak_avx512, "avx512f,avx512vl,fma", 64)
PEAK(peak_avx2, "avx2,fma", 32)
#undef PEAK
#undef CHAIN
#endif

// The rate of the kernel set's multiply-adds, 0 where it is not known.
double peak_once() {
#if defined(__x86_64__)
  if (strncmp(isa_name(), "avx512", 6) == 0) return peak_avx512();
  if (strncmp(isa_name(), "avx2", 4) == 0) return peak_avx2();
#endif
  return 0;
}

struct Shape {
  const char *name;
  int64_t m, n, k, batch;
  Type type;
  bool b_transposed, packed, bias;
  Activation activation;
  Aux aux;
  bool scaled = false;  // a scalar for a, a vector for b, and a result in bfloat16
  bool a_transposed = false;
};

// Of a library's sizes of 32 bits the lower halves of these arguments are read.
template <class T>
using Gemm = void (*)(int, int, int, int64_t, int64_t, int64_t, T, const T *, int64_t, const T *, int64_t, T, T *,
                      int64_t);
struct Blas {
  Gemm<float> f32 = nullptr;
  Gemm<double> f64 = nullptr;
};

// As NumPy has its arrays: large ones in huge pages.
void resize(std::vector<char> &v, size_t bytes) {
  constexpr size_t large = size_t{4} << 20, page = 4096;
  v.reserve(bytes);
  if (bytes >= large) {
    const size_t skipped = (page - reinterpret_cast<uintptr_t>(v.data()) % page) % page;
    madvise(v.data() + skipped, bytes - skipped, MADV_HUGEPAGE);
  }
  v.resize(bytes);
}

struct Run {
  Shape shape;
  std::vector<char> a, b, packed, d, aux, bias, workspace;
  Problem p;
  std::vector<Candidate> candidates;
  std::vector<double> best;
  size_t rounds = 0;
  double blas = 0;

  std::vector<unsigned char> scales;
  std::vector<float> factors;

  // Of narrow types the result is what a product has without further wishes.
  static Type result_of(Type type) { return type == Type::i8 ? Type::i32 : bits_of(type) <= 8 ? Type::bf16 : type; }

  explicit Run(const Shape &s) : shape(s), scales(static_cast<size_t>((s.m + s.n) * s.k / 32 + 1), 127) {
    const Type result = s.scaled ? Type::bf16 : result_of(s.type);
    auto fill = [&](std::vector<char> &v, int64_t count, Type type) {
      const size_t bits = static_cast<size_t>(bits_of(type)), size = bits / 8;
      resize(v, static_cast<size_t>(count) * bits / 8 + 64);
      for (size_t i = 0; bits <= 8 && i < v.size(); i++) {
        // No code of a NaN among them.
        v[i] = static_cast<char>((i * 2654435761u >> 7) % 101);
      }
      for (int64_t i = 0; bits > 8 && i < count; i++) {
        double x = static_cast<double>(i * 2654435761 % 1000) / 1000 - 0.5;
        char *to = v.data() + static_cast<size_t>(i) * size;
        float f = static_cast<float>(x);
        uint16_t h = type == Type::f16 ? float_to_f16(f) : float_to_bf16(f);
        if (size == 8) memcpy(to, &x, 8);
        if (size == 4) memcpy(to, &f, 4);
        if (size == 2) memcpy(to, &h, 2);
      }
    };
    fill(a, s.batch * s.m * s.k, s.type);
    fill(b, s.batch * s.k * s.n, s.type);
    fill(d, s.batch * s.m * s.n, result);
    fill(aux, s.aux == Aux::none ? 1 : s.m * s.n, result);
    fill(bias, s.n, result);
    p.m = s.m;
    p.n = s.n;
    p.k = s.k;
    p.batch = s.batch;
    p.compute = s.type == Type::f64 ? Type::f64 : s.type == Type::i8 ? Type::i32 : Type::f32;
    p.d_type = p.bias_type = p.aux_type = result;
    p.a.data = a.data();
    p.a.row_stride = s.a_transposed ? 1 : s.k;
    p.a.column_stride = s.a_transposed ? s.m : 1;
    p.b.data = b.data();
    p.b.row_stride = s.b_transposed ? 1 : s.n;
    p.b.column_stride = s.b_transposed ? s.k : 1;
    p.a.batch_stride = s.m * s.k;
    p.b.batch_stride = s.k * s.n;
    p.a.type = p.b.type = s.type;
    if (s.scaled) {
      factors.assign(static_cast<size_t>(s.n), 0.001f);
      p.a.scale.data = p.b.scale.data = factors.data();
      p.a.scale.kind = ScaleKind::scalar;
      p.b.scale.kind = ScaleKind::vector;
    }
    if (bits_of(s.type) < 8) {
      p.a.scale.data = scales.data();
      p.b.scale.data = scales.data() + s.m * s.k / 32;
      p.a.scale.kind = p.b.scale.kind = ScaleKind::block32;
    }
    p.d = d.data();
    p.d_row_stride = s.n;
    p.d_batch_stride = s.m * s.n;
    p.has_bias = s.bias;
    p.bias = bias.data();
    p.activation = s.activation;
    p.aux = s.aux;
    p.aux_data = aux.data();
    p.aux_row_stride = s.n;
    if (s.packed) {
      packed.resize(packed_bytes(s.type, p.compute, s.k, s.n) + 64);
      char *to = packed.data() + (64 - reinterpret_cast<uintptr_t>(packed.data()) % 64) % 64;
      pack(p.b, p.compute, s.k, s.n, to);
      p.b.data = to;
      p.b.packed = true;
    }
    candidates.resize(static_cast<size_t>(algorithm_count()));
    candidates.resize(static_cast<size_t>(rank(p, SIZE_MAX, algorithm_count(), candidates.data())));
    best.assign(candidates.size(), 0);
    size_t most = 0;
    for (const Candidate &c : candidates) most = std::max(most, c.workspace_bytes);
    workspace.resize(most + 256);
  }

  double flops() const {
    return 2.0 * static_cast<double>(shape.m) * static_cast<double>(shape.n) * static_cast<double>(shape.k) *
           static_cast<double>(shape.batch);
  }

  template <class F>
  double measure(F f) const {
    if (!other_data.empty()) {
      std::fill(other_data.begin(), other_data.end(), static_cast<char>(other_data[0] + 1));
      const double begin = now();
      f();
      return flops() / seconds_since(begin) * 1e-9;
    }
    int repeats = static_cast<int>(std::max(1.0, std::min(5000.0, 2e8 / flops())));
    f();
    double start = now();
    for (int i = 0; i < repeats; i++) f();
    return flops() * repeats / seconds_since(start) * 1e-9;
  }

  template <class T>
  double measure_blas(Gemm<T> gemm) const {
    if (!gemm || shape.batch != 1 || shape.packed) return 0;
    constexpr int rows = 101, plain = 111, transposed = 112;
    return measure([&] {
      gemm(rows, shape.a_transposed ? transposed : plain, shape.b_transposed ? transposed : plain, shape.m, shape.n,
           shape.k, 1, reinterpret_cast<const T *>(a.data()), shape.a_transposed ? shape.m : shape.k,
           reinterpret_cast<const T *>(b.data()), shape.b_transposed ? shape.k : shape.n, 0, static_cast<T *>(p.d),
           shape.n);
    });
  }

  void round(const Blas &other) {
    char *space = workspace.data() + (256 - reinterpret_cast<uintptr_t>(workspace.data()) % 256) % 256;
    // Another one goes first in each round: what goes first finds its operands in no cache.
    const size_t first = rounds++;
    for (size_t turn = 0; turn < candidates.size(); turn++) {
      const size_t i = (first + turn) % candidates.size();
      const Candidate &c = candidates[i];
      best[i] = std::max(best[i], measure([&] { run(c.id, p, space, c.workspace_bytes); }));
    }
    if (shape.type == Type::f32) blas = std::max(blas, measure_blas(other.f32));
    if (shape.type == Type::f64) blas = std::max(blas, measure_blas(other.f64));
  }

  void print(double peak) const {
    printf("%-34s", shape.name);
    const double most = *std::max_element(best.begin(), best.end());
    if (peak > 0) printf(" %5.1f%% of peak", 100 * most / peak);
    printf(" %9.3f us  lost %.1f%%", flops() / most * 1e-3, 100 * (1 - best[0] / most));
    if (blas > 0) printf("  blas %.1f, ours / blas %.2f", blas, best[0] / blas);
    std::vector<size_t> order(best.size());
    for (size_t i = 0; i < order.size(); i++) order[i] = i;
    std::sort(order.begin(), order.end(), [&](size_t x, size_t y) { return best[x] > best[y]; });
    for (size_t i : order) {
      printf("  %s%s %.1f (%.0f)", i == 0 ? "*" : "", algorithm_name(candidates[i].id), best[i],
             static_cast<double>(candidates[i].predicted_us));
    }
    printf("\n");
  }
};

// Short names for the tables.
constexpr Activation none = Activation::none, gelu = Activation::gelu;
constexpr Aux no = Aux::none, store = Aux::store;
constexpr Type f32 = Type::f32, f64 = Type::f64, f16 = Type::f16, bf16 = Type::bf16, e4m3 = Type::e4m3, i8 = Type::i8;

const Shape usual_shapes[] = {
    {"4x4x4", 4, 4, 4, 1, f32, false, false, false, none, no},
    {"32x32x32", 32, 32, 32, 1, f32, false, false, false, none, no},
    {"128x128x128", 128, 128, 128, 1, f32, false, false, false, none, no},
    {"256x256x256", 256, 256, 256, 1, f32, false, false, false, none, no},
    {"512x512x512", 512, 512, 512, 1, f32, false, false, false, none, no},
    {"64x3072x768", 64, 3072, 768, 1, f32, false, false, false, none, no},
    {"512x3072x768", 512, 3072, 768, 1, f32, false, false, false, none, no},
    {"1024x1024x1024", 1024, 1024, 1024, 1, f32, false, false, false, none, no},
    {"2048x2048x2048", 2048, 2048, 2048, 1, f32, false, false, false, none, no},
    {"300x300x4", 300, 300, 4, 1, f32, false, false, false, none, no},
    {"512x512x8", 512, 512, 8, 1, f32, false, false, false, none, no},
    {"1x4096x4096", 1, 4096, 4096, 1, f32, false, false, false, none, no},
    {"2x4096x4096", 2, 4096, 4096, 1, f32, false, false, false, none, no},
    {"4x4096x4096", 4, 4096, 4096, 1, f32, false, false, false, none, no},
    {"8x4096x4096", 8, 4096, 4096, 1, f32, false, false, false, none, no},
    {"16x4096x4096", 16, 4096, 4096, 1, f32, false, false, false, none, no},
    {"8x4096x4096 bt", 8, 4096, 4096, 1, f32, true, false, false, none, no},
    {"4096x1x4096", 4096, 1, 4096, 1, f32, false, false, false, none, no},
    {"64 of 32x32x64", 32, 32, 64, 64, f32, false, false, false, none, no},
    {"32x32x65536", 32, 32, 65536, 1, f32, false, false, false, none, no},
    {"512x3072x768 bt", 512, 3072, 768, 1, f32, true, false, false, none, no},
    {"64x3072x768 packed", 64, 3072, 768, 1, f32, false, true, false, none, no},
    {"512x3072x768 packed", 512, 3072, 768, 1, f32, false, true, false, none, no},
    {"256x256x256 packed", 256, 256, 256, 1, f32, false, true, false, none, no},
    {"512x512x512 packed", 512, 512, 512, 1, f32, false, true, false, none, no},
    {"1024x1024x1024 packed", 1024, 1024, 1024, 1, f32, false, true, false, none, no},
    {"8x4096x4096 packed", 8, 4096, 4096, 1, f32, false, true, false, none, no},
    {"4x4096x4096 packed", 4, 4096, 4096, 1, f32, false, true, false, none, no},
    {"2x4096x4096 packed", 2, 4096, 4096, 1, f32, false, true, false, none, no},
    {"1x4096x4096 packed", 1, 4096, 4096, 1, f32, false, true, false, none, no},
};
// Types and epilogues.
const Shape more_shapes[] = {
    {"64x3072x768 bias gelu", 64, 3072, 768, 1, f32, false, false, true, gelu, no},
    {"512x3072x768 bias gelu", 512, 3072, 768, 1, f32, false, false, true, gelu, no},
    {"512x3072x768 bias gelu aux", 512, 3072, 768, 1, f32, false, false, true, gelu, store},
    {"1024x1024x1024 bias gelu", 1024, 1024, 1024, 1, f32, false, false, true, gelu, no},
    {"8x4096x4096 bias gelu", 8, 4096, 4096, 1, f32, false, false, true, gelu, no},
    {"64x3072x768 bf16", 64, 3072, 768, 1, bf16, false, false, false, none, no},
    {"512x3072x768 bf16", 512, 3072, 768, 1, bf16, false, false, false, none, no},
    {"1024x1024x1024 bf16", 1024, 1024, 1024, 1, bf16, false, false, false, none, no},
    {"8x4096x4096 bf16", 8, 4096, 4096, 1, bf16, false, false, false, none, no},
    {"8x4096x4096 bt bf16", 8, 4096, 4096, 1, bf16, true, false, false, none, no},
    {"1x4096x4096 bf16", 1, 4096, 4096, 1, bf16, false, false, false, none, no},
    {"512x3072x768 bf16 packed", 512, 3072, 768, 1, bf16, false, true, false, none, no},
    {"1024x1024x1024 bf16 packed", 1024, 1024, 1024, 1, bf16, false, true, false, none, no},
    {"8x4096x4096 bf16 packed", 8, 4096, 4096, 1, bf16, false, true, false, none, no},
    {"1x4096x4096 bf16 packed", 1, 4096, 4096, 1, bf16, false, true, false, none, no},
    {"512x3072x768 f16", 512, 3072, 768, 1, f16, false, false, false, none, no},
    {"1024x1024x1024 f16", 1024, 1024, 1024, 1, f16, false, false, false, none, no},
    {"8x4096x4096 f16", 8, 4096, 4096, 1, f16, false, false, false, none, no},
    {"1024x1024x1024 e4m3", 1024, 1024, 1024, 1, e4m3, false, false, false, none, no},
    {"1024x1024x1024 e4m3 bt", 1024, 1024, 1024, 1, e4m3, true, false, false, none, no},
    {"1024x1024x1024 e4m3 packed", 1024, 1024, 1024, 1, e4m3, false, true, false, none, no},
    {"1024x1024x1024 e4m3 scaled", 1024, 1024, 1024, 1, e4m3, false, false, false, none, no, true},
    {"1024x1024x1024 e4m3 scaled gelu", 1024, 1024, 1024, 1, e4m3, false, false, true, gelu, no, true},
    {"1024x1024x1024 i8 scaled", 1024, 1024, 1024, 1, i8, false, false, false, none, no, true},
    {"1024x1024x1024 i8 scaled gelu", 1024, 1024, 1024, 1, i8, false, false, true, gelu, no, true},
    {"1024x1024x1024 e5m2", 1024, 1024, 1024, 1, Type::e5m2, false, false, false, none, no},
    {"1024x1024x1024 e4m3_fnuz", 1024, 1024, 1024, 1, Type::e4m3_fnuz, false, false, false, none, no},
    {"512x3072x768 e4m3", 512, 3072, 768, 1, e4m3, false, false, false, none, no},
    {"8x4096x4096 e4m3", 8, 4096, 4096, 1, e4m3, false, false, false, none, no},
    {"8x4096x4096 e4m3 bt", 8, 4096, 4096, 1, e4m3, true, false, false, none, no},
    {"8x4096x4096 e4m3 packed", 8, 4096, 4096, 1, e4m3, false, true, false, none, no},
    {"1x4096x4096 e4m3", 1, 4096, 4096, 1, e4m3, false, false, false, none, no},
    {"1x4096x4096 e4m3 bt", 1, 4096, 4096, 1, e4m3, true, false, false, none, no},
    {"1x4096x4096 e4m3 packed", 1, 4096, 4096, 1, e4m3, false, true, false, none, no},
    {"1024x1024x1024 mx e2m1", 1024, 1024, 1024, 1, Type::e2m1, true, false, false, none, no},
    {"1024x1024x1024 mx e2m3", 1024, 1024, 1024, 1, Type::e2m3, true, false, false, none, no},
    {"8x4096x4096 mx e2m1", 8, 4096, 4096, 1, Type::e2m1, true, false, false, none, no},
    {"32x32x32 i8", 32, 32, 32, 1, i8, false, false, false, none, no},
    {"1024x1024x1024 i8", 1024, 1024, 1024, 1, i8, false, false, false, none, no},
    {"1024x1024x1024 i8 bt", 1024, 1024, 1024, 1, i8, true, false, false, none, no},
    {"1024x1024x1024 i8 packed", 1024, 1024, 1024, 1, i8, false, true, false, none, no},
    {"512x3072x768 i8", 512, 3072, 768, 1, i8, false, false, false, none, no},
    {"2048x2048x2048 i8", 2048, 2048, 2048, 1, i8, false, false, false, none, no},
    {"8x4096x4096 i8", 8, 4096, 4096, 1, i8, false, false, false, none, no},
    {"8x4096x4096 i8 bt", 8, 4096, 4096, 1, i8, true, false, false, none, no},
    {"8x4096x4096 i8 packed", 8, 4096, 4096, 1, i8, false, true, false, none, no},
    {"1x4096x4096 i8", 1, 4096, 4096, 1, i8, false, false, false, none, no},
    {"1x4096x4096 i8 bt", 1, 4096, 4096, 1, i8, true, false, false, none, no},
    {"1x4096x4096 i8 packed", 1, 4096, 4096, 1, i8, false, true, false, none, no},
    {"1024x1024x1024 f64", 1024, 1024, 1024, 1, f64, false, false, false, none, no},
    {"512x3072x768 f64", 512, 3072, 768, 1, f64, false, false, false, none, no},
};

struct Options {
  int rounds = 5;
  bool all = false;
  std::string only;
  std::vector<std::string> shapes;
  Blas blas;
};

const std::map<std::string, Type> types = {
    {"f32", f32},   {"f64", f64},         {"f16", f16}, {"bf16", bf16},
    {"e4m3", e4m3}, {"e5m2", Type::e5m2}, {"i8", i8},   {"e4m3_fnuz", Type::e4m3_fnuz}};

const std::map<std::string, Activation> activations = {
    {"relu", Activation::relu}, {"gelu", gelu}, {"silu", Activation::silu}};

// A shape of the command line, which has to outlive what is made of it.
Shape read_shape(const std::string &text) {
  long m = 0, n = 0, k = 0;
  std::istringstream words(text);
  std::string word;
  words >> word;
  bool known = sscanf(word.c_str(), "%ldx%ldx%ld", &m, &n, &k) == 3;
  Shape shape{text.c_str(), m, n, k, 1, f32, false, false, false, none, no};
  while (words >> word) {
    if (word == "at") {
      shape.a_transposed = true;
    } else if (word == "bt") {
      shape.b_transposed = true;
    } else if (word == "packed") {
      shape.packed = true;
    } else if (word == "bias") {
      shape.bias = true;
    } else if (activations.count(word)) {
      shape.activation = activations.at(word);
    } else if (types.count(word)) {
      shape.type = types.at(word);
    } else {
      known = false;
    }
  }
  if (!known) {
    fprintf(stderr, "no shape: %s\n", text.c_str());
    exit(2);
  }
  return shape;
}

// NumPy's and SciPy's copies have names of their own.
template <class T>
Gemm<T> find_gemm(void *library, const std::string &name) {
  for (const std::string &known : {"scipy_" + name + "64_", "scipy_" + name, name + "64_", name}) {
    if (void *function = dlsym(library, known.c_str())) return reinterpret_cast<Gemm<T>>(function);
  }
  fprintf(stderr, "no %s\n", name.c_str());
  return nullptr;
}

Blas open_blas(const char *path) {
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    fprintf(stderr, "%s\n", dlerror());
    return {};
  }
  return {find_gemm<float>(library, "cblas_sgemm"), find_gemm<double>(library, "cblas_dgemm")};
}

Options read_options(int argc, char **argv) {
  Options options;
  for (int i = 1; i < argc; i++) {
    const std::string word = argv[i];
    const char *value = i + 1 < argc ? argv[i + 1] : "";
    if (word == "--threads") set_thread_limit(atoi(value));
    if (word == "--rounds") options.rounds = atoi(value);
    if (word == "--only") options.only = value;
    if (word == "--all") options.all = true;
    if (word == "--shape") options.shapes.emplace_back(value);
    if (word == "--evict") other_data.resize(static_cast<size_t>(std::max(0, atoi(value))) << 20);
    if (word == "--blas") options.blas = open_blas(value);
  }
  return options;
}

void measure(const Shape &shape, const Options &options) {
  if (!options.only.empty() && std::string(shape.name).find(options.only) == std::string::npos) return;
  Run run(shape);
  double peak = 0;
  for (int r = 0; r < options.rounds; r++) {
    peak = std::max(peak, peak_once());
    run.round(options.blas);
  }
  if (shape.type == Type::f64) peak /= 2;
  run.print(thread_count() == 1 && bits_of(shape.type) > 8 ? peak : 0);
  fflush(stdout);
}

}  // namespace

int main(int argc, char **argv) {
  const Options options = read_options(argc, argv);
  cpu_time = thread_count() == 1;
  printf("kernel set %s, %d thread(s)\n", isa_name(), thread_count());
  for (const std::string &text : options.shapes) measure(read_shape(text), options);
  if (!options.shapes.empty()) return 0;
  for (const Shape &shape : usual_shapes) measure(shape, options);
  if (options.all) {
    for (const Shape &shape : more_shapes) measure(shape, options);
  }
  return 0;
}
