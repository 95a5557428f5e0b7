// SPDX-License-Identifier: MIT
// The machine as Linux describes it: /proc, /sys and the control group of this process.
#include "os.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <memory>
#include <vector>

#include "control_group.hpp"
#include "lazy.h"

namespace rocpy_host {

namespace {

constexpr size_t unlimited = std::numeric_limits<size_t>::max();

// The beginning of a file, which is all of a small one; empty if there is none. A stream's buffer and locale cost more
// than the file.
template <size_t capacity>
struct FileText {
  char text[capacity + 1] = {};

  explicit FileText(const char *path) {
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file >= 0) {
      text[std::max<ssize_t>(0, read(file, text, capacity))] = '\0';
      close(file);
    }
  }
};

// A file that holds one number; `fallback` if there is none ("max" included).
size_t number_in(const std::string &path, size_t fallback) {
  const FileText<32> file(path.c_str());
  char *end = nullptr;
  const size_t value = std::strtoull(file.text, &end, 10);
  return end != file.text ? value : fallback;
}

size_t available_by_meminfo() {
  const FileText<4096> file("/proc/meminfo");
  constexpr char key[] = "\nMemAvailable:";
  const char *line = std::strstr(file.text, key);
  return line != nullptr ? static_cast<size_t>(std::strtoull(line + sizeof key - 1, nullptr, 10)) * 1024 : 0;
}

// Files of a control group that limits memory.
struct GroupFiles {
  std::string limit, usage;
};

// Of the groups from this process's own to the root. Which they are is looked up once, since that takes longer than
// reading the numbers in them.
const std::vector<GroupFiles> &group_files() {
  static rocpy::Lazy<const std::vector<GroupFiles>> files;
  return files.get([] {
    auto groups = std::make_unique<std::vector<GroupFiles>>();
    visit_control_groups("", "memory", [&groups](const std::string &folder, bool is_unified) {
      const auto file = [&folder](const char *name) { return folder + "/memory." + name; };
      GroupFiles group = is_unified ? GroupFiles{file("max"), file("current")}
                                    : GroupFiles{file("limit_in_bytes"), file("usage_in_bytes")};
      if (access(group.limit.c_str(), R_OK) == 0) {
        groups->push_back(std::move(group));
      }
    });
    return groups.release();
  });
}

size_t physical_memory() {
  return static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGE_SIZE));
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
  size_t total = physical_memory();
  for (const GroupFiles &group : group_files()) {
    total = std::min(total, number_in(group.limit, unlimited));
  }
  return total;
}

size_t memory_available() {
  size_t available = available_by_meminfo();
  const size_t physical = physical_memory();
  for (const GroupFiles &group : group_files()) {
    const size_t limit = number_in(group.limit, unlimited);
    if (limit < physical) {
      available = std::min(available, limit - std::min(limit, number_in(group.usage, 0)));
    }
  }
  return available;
}

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
