// SPDX-License-Identifier: MIT
// The cards that a device may answer as: what their properties say, where it is not the CPU's.
#include "device_properties.hpp"

#include "environment.h"
#include "lazy.h"

#include <cstdio>
#include <cstring>

namespace rocpy_host {

namespace {

constexpr size_t largest_constant_memory = 0x7fffffff;

constexpr Card cards[] = {
    {"gfx90a", ":sramecc+:xnack-", "AMD Instinct MI210", 9, 0, 64, 104, 1700000, 1600000, 4096, 8 << 20, 64 << 10, 1,
     25000},
    {"gfx942", ":sramecc+:xnack-", "AMD Instinct MI300X", 9, 4, 64, 304, 2100000, 1300000, 8192, 4 << 20, 64 << 10, 8,
     100000},
    {"gfx950", ":sramecc+:xnack-", "AMD Instinct MI355X", 9, 5, 64, 256, 2400000, 2000000, 8192, 4 << 20, 160 << 10, 8,
     100000},
    {"gfx1100", "", "AMD Radeon RX 7900 XTX", 11, 0, 32, 48, 2482000, 1249000, 384, 6 << 20, 64 << 10, 1, 100000},
    {"gfx1201", "", "AMD Radeon RX 9070 XT", 12, 0, 32, 32, 2970000, 1258000, 256, 8 << 20, 64 << 10, 1, 100000},
};

const Card *choose() {
  const char *wanted = rocpy_environment(ROCPY_HOST_ARCH);
  if (*wanted == '\0') {
    return nullptr;
  }
  for (const Card &card : cards) {
    if (std::strcmp(card.architecture, wanted) == 0) {
      return &card;
    }
  }
  std::fprintf(stderr,
               "rocpy host platform: ROCPY_HOST_ARCH is \"%s\"; it must be gfx90a, gfx942, gfx950, gfx1100 or gfx1201, "
               "and devices answer as the CPU\n",
               wanted);
  return nullptr;
}

}  // namespace

const Card *presented_card() {
  static rocpy::Lazy<const Card *const> chosen;
  return chosen.get([] { return new const Card *const(choose()); });
}

void answer_as(const Card &card, hipDeviceProp_t *properties) {
  hipDeviceProp_t &p = *properties;
  std::snprintf(p.name, sizeof p.name, "%s (rocpy host platform)", card.name);
  std::snprintf(p.gcnArchName, sizeof p.gcnArchName, "%s%s", card.architecture, card.features);
  p.major = card.major;
  p.minor = card.minor;
  p.warpSize = card.warp_size;
  p.multiProcessorCount = card.multiprocessors;
  p.clockRate = card.clock_khz;
  p.memoryClockRate = card.memory_clock_khz;
  p.memoryBusWidth = card.memory_bus_bits;
  p.l2CacheSize = card.l2_bytes;
  p.sharedMemPerBlock = static_cast<size_t>(card.shared_bytes);
  p.sharedMemPerMultiprocessor = p.sharedMemPerBlock;
  p.maxSharedMemoryPerMultiProcessor = p.sharedMemPerBlock;
  p.maxThreadsPerMultiProcessor = 2048;
  p.maxBlocksPerMultiProcessor = 2;
  p.regsPerBlock = 65536;
  p.regsPerMultiprocessor = 65536;
  p.totalConstMem = largest_constant_memory;
  p.integrated = 0;
}

}  // namespace rocpy_host
