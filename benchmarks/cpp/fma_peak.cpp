// SPDX-License-Identifier: MIT
// Measures how many multiply-adds a second the CPU does when nothing leaves its registers. Usage: fma_peak THREADS
// RUNS; prints JSON, in GF/s.
#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "rates.hpp"

#if defined(__AVX512F__)
constexpr int vector_bytes = 64, accumulators = 24;
#elif defined(__AVX__)
constexpr int vector_bytes = 32, accumulators = 12;
#elif defined(__aarch64__)
constexpr int vector_bytes = 16, accumulators = 24;
#else
constexpr int vector_bytes = 16, accumulators = 12;
#endif

// Independent chains, more than latency times units; the count is known, so that all of them stay in registers.
template <class Scalar>
double chains(long steps) {
  typedef Scalar Vector __attribute__((vector_size(vector_bytes)));
  Vector sums[accumulators] = {}, factor, addend;
  for (unsigned lane = 0; lane < vector_bytes / sizeof(Scalar); ++lane) {
    factor[lane] = Scalar(0.5) + Scalar(lane) / 64;
    addend[lane] = Scalar(1) / (lane + 1);
  }
  asm volatile("" : "+m"(factor), "+m"(addend));
  const Vector f = factor, a = addend;
  for (long step = 0; step < steps; ++step) {
#pragma GCC unroll 24
    for (int i = 0; i < accumulators; ++i) sums[i] = sums[i] * f + a;
  }
  Vector total = {};
  for (const Vector &sum : sums) total += sum;
  volatile Scalar kept = total[0];
  (void)kept;
  return 2.0 * accumulators * (vector_bytes / sizeof(Scalar)) * static_cast<double>(steps);
}

template <class Scalar>
double rate(int) {
  const double begin = thread_seconds();
  const double flops = chains<Scalar>(1'000'000);
  return flops / (thread_seconds() - begin) * 1e-9;
}

int main(int count, char **words) {
  const int threads = count > 1 ? std::max(1, std::atoi(words[1])) : 1;
  const int runs = count > 2 ? std::max(1, std::atoi(words[2])) : 40;
  std::printf("{\"float32\": %.1f, \"float64\": %.1f}\n", best_rate(threads, runs, rate<float>),
              best_rate(threads, runs, rate<double>));
  return 0;
}
