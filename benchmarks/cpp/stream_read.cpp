// SPDX-License-Identifier: MIT
// Measures how fast the CPU reads memory in order, for working sets from 16 KiB to 256 MiB. Usage: stream_read THREADS
// RUNS; prints JSON, bytes of a working set to GB/s of all threads together.
#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "rates.hpp"

#if defined(__AVX512F__)
constexpr int vector_bytes = 64;
#elif defined(__AVX__)
constexpr int vector_bytes = 32;
#else
constexpr int vector_bytes = 16;
#endif
typedef unsigned long Vector __attribute__((vector_size(vector_bytes)));
constexpr int streams = 8;

// The exclusive or of all vectors: what is added up cannot be slower than the reading.
void read_all(const char *data, size_t bytes) {
  Vector sums[streams] = {};
  for (size_t at = 0; at + sizeof sums <= bytes; at += sizeof sums) {
#pragma GCC unroll 8
    for (int i = 0; i < streams; ++i) {
      Vector value;
      std::memcpy(&value, data + at + static_cast<size_t>(i) * sizeof value, sizeof value);
      sums[i] ^= value;
    }
  }
  Vector total = {};
  for (const Vector &sum : sums) total ^= sum;
  asm volatile("" : : "m"(total));
}

int main(int count, char **words) {
  const int threads = count > 1 ? std::max(1, std::atoi(words[1])) : 1;
  const int runs = count > 2 ? std::max(1, std::atoi(words[2])) : 8;
  const size_t most = size_t{256} << 20;
  const std::vector<char> data(most, 1);
  const char *before = "{";
  for (size_t bytes = size_t{16} << 10; bytes <= most; bytes *= 2) {
    // Every thread reads its own part of the working set, as often as about 32 MiB take.
    const size_t part = bytes / static_cast<size_t>(threads) & ~size_t{1023};
    const size_t repeats = std::max<size_t>(1, (size_t{32} << 20) / bytes);
    const double rate = best_rate(threads, runs, [&](int thread) {
      const double begin = thread_seconds();
      for (size_t r = 0; r < repeats; ++r) read_all(data.data() + static_cast<size_t>(thread) * part, part);
      return static_cast<double>(part) * static_cast<double>(repeats) / (thread_seconds() - begin) * 1e-9;
    });
    std::printf("%s\"%zu\": %.1f", before, bytes, rate);
    before = ", ";
  }
  std::printf("}\n");
  return 0;
}
