// SPDX-License-Identifier: MIT
// The machine as Linux describes it: /proc, /sys and the control group of this process.
#include "os.hpp"

#include <sys/mman.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>

#include "control_group.hpp"

namespace rocpy_host {

namespace {

constexpr size_t unlimited = std::numeric_limits<size_t>::max();

// A file that holds one number; `fallback` if there is none ("max" included).
size_t number_in(const std::string &path, size_t fallback) {
  std::ifstream file(path);
  size_t value;
  return file >> value ? value : fallback;
}

size_t meminfo_bytes(const char *key) {
  std::ifstream file("/proc/meminfo");
  std::string word;
  while (file >> word) {
    size_t kib;
    if (word == key && file >> kib) {
      return kib * 1024;
    }
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return 0;
}

struct GroupLimit {
  size_t limit = unlimited;
  size_t available = unlimited;
};

void tighten(GroupLimit &group, const std::string &limit_file, const std::string &usage_file) {
  const size_t limit = number_in(limit_file, unlimited);
  if (limit == unlimited) {
    return;
  }
  const size_t usage = number_in(usage_file, 0);
  group.limit = std::min(group.limit, limit);
  group.available = std::min(group.available, limit - std::min(limit, usage));
}

// The narrowest of the limits on the way from this process's group to the root.
GroupLimit group_limit() {
  GroupLimit group;
  visit_control_groups("", "memory", [&](const std::string &folder, bool is_unified) {
    if (is_unified) {
      tighten(group, folder + "/memory.max", folder + "/memory.current");
    } else {
      tighten(group, folder + "/memory.limit_in_bytes", folder + "/memory.usage_in_bytes");
    }
  });
  return group;
}

}  // namespace

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(':');
    if (line.compare(0, 10, "model name") == 0 && colon != std::string::npos && colon + 2 < line.size()) {
      return line.substr(colon + 2);
    }
  }
  utsname name;
  return uname(&name) == 0 ? name.machine : "unknown CPU";
}

int cpu_clock_khz() {
  const size_t reported = number_in("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq", 0);
  if (reported != 0) {
    return static_cast<int>(reported);
  }
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(':');
    if (line.compare(0, 7, "cpu MHz") == 0 && colon != std::string::npos) {
      return static_cast<int>(std::strtod(line.c_str() + colon + 1, nullptr) * 1000.0);
    }
  }
  return 0;
}

int l2_cache_bytes() {
#ifdef _SC_LEVEL2_CACHE_SIZE
  return static_cast<int>(std::max(0L, sysconf(_SC_LEVEL2_CACHE_SIZE)));
#else
  return 0;
#endif
}

size_t memory_total() {
  const size_t physical = static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGE_SIZE));
  return std::min(physical, group_limit().limit);
}

size_t memory_available() { return std::min(meminfo_bytes("MemAvailable:"), group_limit().available); }

void *allocate_aligned(size_t bytes, size_t alignment) {
  const size_t aligned = bytes < huge_page_bytes ? alignment : std::max(alignment, huge_page_bytes);
  void *memory = nullptr;
  if (posix_memalign(&memory, aligned, bytes) != 0) {
    return nullptr;
  }
#ifdef MADV_HUGEPAGE
  if (bytes >= huge_page_bytes) {
    // Pages that are not whole huge ones stay as they are; a kernel without huge pages refuses, which is no error.
    madvise(memory, bytes / huge_page_bytes * huge_page_bytes, MADV_HUGEPAGE);
  }
#endif
  return memory;
}

uint32_t host_name_hash() {
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  uint32_t hash = 2166136261u;
  for (const char *c = name; *c != '\0'; ++c) {
    hash = (hash ^ static_cast<unsigned char>(*c)) * 16777619u;
  }
  return hash;
}

}  // namespace rocpy_host
