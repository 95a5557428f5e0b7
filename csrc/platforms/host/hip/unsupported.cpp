// SPDX-License-Identifier: MIT
// What programs ask the stand-in ROCm tree for in vain: counted by name, and reported to a file.
#include "environment.h"
#include "exports.h"
#include "lazy.h"

#include <fcntl.h>
#include <unistd.h>
#include <cstdio>
#include <map>
#include <mutex>
#include <string>

namespace rocpy_host {

namespace {

struct Counts {
  std::mutex mutex;
  std::map<std::string, unsigned long long> calls;  // by "library function"
};

// Adds one line by one write(), so that lines of several processes do not mix.
void append(const std::string &name, unsigned long long calls) {
  const char *file = rocpy_environment(ROCPY_HOST_REPORT);
  if (*file == '\0') {
    return;
  }
  const int descriptor = open(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (descriptor < 0) {
    return;
  }
  const std::string line = std::to_string(getpid()) + " " + name + " " + std::to_string(calls) + "\n";
  if (write(descriptor, line.data(), line.size()) < 0) {
    std::fprintf(stderr, "rocpy host platform: cannot write to %s, which ROCPY_HOST_REPORT names\n", file);
  }
  close(descriptor);
}

// Never destroyed: other libraries may call while the process ends.
Counts &counts() {
  static rocpy::Lazy<Counts> all;
  return all.get();
}

struct AtExit {
  ~AtExit() {
    std::lock_guard<std::mutex> lock(counts().mutex);
    for (const auto &[name, calls] : counts().calls) {
      append(name, calls);
    }
  }
};
const AtExit at_exit;

}  // namespace

}  // namespace rocpy_host

using namespace rocpy_host;

// The first call of a name is written at once, for a process may end without its destructors; all are at the end.
void rocpy_host_count_unsupported(const char *library, const char *function) {
  const std::string name = std::string(library) + " " + function;
  std::lock_guard<std::mutex> lock(counts().mutex);
  if (++counts().calls[name] == 1) {
    append(name, 1);
  }
}
