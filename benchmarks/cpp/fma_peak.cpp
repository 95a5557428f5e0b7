// SPDX-License-Identifier: MIT
// Measures how many multiply-adds a second the CPU does when nothing leaves its registers. Usage: fma_peak THREADS
// RUNS; prints JSON, in GF/s.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <thread>
#include <vector>

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

// CPU time of the calling thread: what others do on the machine is not in it.
double thread_seconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

template <class Scalar>
double rate() {
  const double begin = thread_seconds();
  const double flops = chains<Scalar>(1'000'000);
  return flops / (thread_seconds() - begin) * 1e-9;
}

// Best sum of the threads' rates while all of them run.
template <class Scalar>
double best_rate(int threads, int runs) {
  double best = 0;
  for (int run = 0; run < runs; ++run) {
    std::atomic<int> waiting{0};
    std::atomic<bool> started{false};
    std::vector<double> rates(threads);
    std::vector<std::thread> helpers;
    for (int i = 1; i < threads; ++i) {
      helpers.emplace_back([&, i] {
        ++waiting;
        while (!started) std::this_thread::yield();
        rates[i] = rate<Scalar>();
      });
    }
    while (waiting < threads - 1) std::this_thread::yield();
    started = true;
    rates[0] = rate<Scalar>();
    for (std::thread &helper : helpers) helper.join();
    double total = 0;
    for (const double each : rates) total += each;
    best = std::max(best, total);
  }
  return best;
}

int main(int count, char **words) {
  const int threads = count > 1 ? std::max(1, std::atoi(words[1])) : 1;
  const int runs = count > 2 ? std::max(1, std::atoi(words[2])) : 40;
  std::printf("{\"float32\": %.1f, \"float64\": %.1f}\n", best_rate<float>(threads, runs),
              best_rate<double>(threads, runs));
  return 0;
}
