// SPDX-License-Identifier: MIT
// Reading memory of ranks that are other processes, where the system permits it: one copy in place of two.
#include "rccl_comm.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace rocpy_host {

namespace {

constexpr size_t chunk = size_t{1} << 20;  // between two looks at whether that rank, or this one, has given up

}  // namespace

bool Communicator::can_read(int owner, const void *process_key, std::initializer_list<const void *> operands,
                            size_t bytes) {
  RankState &state = other(owner);
  if (state.process.load() == process) return true;
  // Where a process id means another process, its key is another one too.
  uint64_t key = 0;
  const int its_pid = state.pid.load();
  if (state.space.load() != self().space.load() || !read_process(its_pid, process_key, &key, sizeof key) ||
      key != state.process.load()) {
    return false;
  }
  for (const void *memory : operands) {
    const char *first = static_cast<const char *>(memory);
    char byte;
    if (!read_process(its_pid, first, &byte, 1) || !read_process(its_pid, first + bytes - 1, &byte, 1)) return false;
  }
  return true;
}

bool Communicator::read(const Operation &operation, int owner, const void *from, void *to, size_t bytes) {
  RankState &state = other(owner);
  const bool is_here = state.process.load() == process;
  for (size_t start = 0; start < bytes; start += chunk) {
    if (!goes_on(owner)) return end_reading(operation, owner);
    const size_t length = std::min(chunk, bytes - start);
    char *target = static_cast<char *>(to) + start;
    const char *source = static_cast<const char *>(from) + start;
    if (is_here) {
      std::memcpy(target, source, length);
    } else if (!read_process(state.pid.load(), source, target, length)) {
      return fail_to_read(operation, owner, errno);
    }
  }
  return true;
}

void Communicator::write(int owner, const void *from, void *to, size_t bytes) {
  const size_t part = owner == rank ? bytes : chunk;  // within one rank's memory both may overlap
  for (size_t start = 0; start < bytes && goes_on(owner); start += part) {
    const size_t length = std::min(part, bytes - start);
    std::memmove(static_cast<char *>(to) + start, static_cast<const char *>(from) + start, length);
  }
}

// A process that ends gives its memory back before its mark of life, much memory long before: the better reason is
// waited for.
bool Communicator::fail_to_read(const Operation &operation, int owner, int reason) {
  if (!end_reading(operation, owner)) return false;
  const uint64_t longest_ns = reason == ESRCH ? 10000000000 : 100000000;
  for (const uint64_t start = now_ns(); now_ns() - start < longest_ns; yield_processor()) {
    uint64_t last_look = 0;
    if (!look_after(operation, {owner}, &last_look, [] { return false; })) return false;
  }
  const Signature &signature = operation.signature;
  const Kind kind = shown_kind(signature);
  Failure failure{"system", ncclSystemError, "", kind, signature.sequence, {owner}, {}};
  failure.text = "cannot read the operands of rank " + std::to_string(owner) + " (process " +
                 std::to_string(other(owner).pid.load()) + ") in " + name_of(kind) + " number " +
                 std::to_string(signature.sequence) + ": " + std::strerror(reason) +
                 "; keep them allocated until all ranks are done, or set ROCPY_RCCL_PROCESS_READS=0";
  return fail(failure);
}

}  // namespace rocpy_host
