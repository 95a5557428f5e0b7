// SPDX-License-Identifier: MIT
// What programs ask the stand-in ROCm tree for in vain: counted by name, in a file.
#include "environment.h"
#include "exports.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <string>

namespace rocpy_host {

namespace {

// Digits of a count in the file, which is written again at each call: a process may end without its destructors.
constexpr int width = 20;

struct Count {
  unsigned long long calls = 0;
  off_t offset = -1;  // of the digits in the file; negative where it cannot be written twice
};

struct Counts {
  explicit Counts(const std::string &name) : file(name) {}

  const std::string file;  // empty: nothing is written
  std::mutex mutex;
  std::map<std::string, Count> by_name;  // by "library function"
  bool has_failed = false;
};

// The absolute name of the file, so that a program that changes its folder has one.
std::string file_name() {
  const std::string name = rocpy_environment(ROCPY_HOST_REPORT);
  std::error_code error;
  const std::filesystem::path absolute = name.empty() ? "" : std::filesystem::absolute(name, error);
  return error ? name : absolute.string();
}

// Never destroyed: other libraries may call while the process ends.
Counts *counts = nullptr;

std::string digits_of(unsigned long long calls) {
  const std::string digits = std::to_string(calls);
  return std::string(width - digits.size(), ' ') + digits;
}

// Adds one line by one write(), so that lines of several processes do not mix, or writes its count again.
bool write_count(const std::string &name, Count &count) {
  const bool is_new = count.offset < 0;
  const int descriptor = open(counts->file.c_str(), O_WRONLY | O_CLOEXEC | (is_new ? O_CREAT | O_APPEND : 0), 0644);
  if (descriptor < 0) {
    return false;
  }
  const std::string digits = digits_of(count.calls);
  ssize_t written = 0;
  if (is_new) {
    const std::string line = std::to_string(getpid()) + " " + name + " " + digits + "\n";
    written = write(descriptor, line.data(), line.size());
    const off_t end = lseek(descriptor, 0, SEEK_CUR);
    count.offset = written < 0 || end < 0 ? -1 : end - width - 1;
  } else {
    written = pwrite(descriptor, digits.data(), digits.size(), count.offset);
  }
  close(descriptor);
  return written >= 0;
}

void report(const std::string &name, Count &count) {
  if (counts->file.empty() || write_count(name, count) || counts->has_failed) {
    return;
  }
  counts->has_failed = true;
  std::fprintf(stderr, "rocpy host platform: cannot write to %s, which ROCPY_HOST_REPORT names: %s\n",
               counts->file.c_str(), std::strerror(errno));
}

// A pipe or a terminal has the last counts at the end.
struct AtExit {
  ~AtExit() {
    std::lock_guard<std::mutex> lock(counts->mutex);
    for (auto &[name, count] : counts->by_name) {
      if (count.offset < 0 && count.calls > 1) {
        report(name, count);
      }
    }
  }
};
const AtExit at_exit;

// A child counts its own calls. The parent's counts are leaked: a thread that is gone may have held them.
void renew_in_child() { counts = new Counts(counts->file); }

__attribute__((constructor)) void begin_counts() {
  counts = new Counts(file_name());
  pthread_atfork(nullptr, nullptr, renew_in_child);
}

}  // namespace

}  // namespace rocpy_host

using namespace rocpy_host;

void rocpy_host_count_unsupported(const char *library, const char *function) {
  const std::string name = std::string(library) + " " + function;
  std::lock_guard<std::mutex> lock(counts->mutex);
  Count &count = counts->by_name[name];
  if (++count.calls == 1 || count.offset >= 0) {
    report(name, count);
  }
}
