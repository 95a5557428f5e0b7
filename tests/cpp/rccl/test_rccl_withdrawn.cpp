// SPDX-License-Identifier: MIT
// A rank of another process gives up while its memory is read, or written to: once its call has returned the memory is
// its own, and the other takes nothing of what comes there for its result, and writes no more.
//
// Rank 0 is stopped in the midst of that, rank 1 gives up, changes its memory, and lets rank 0 go on.
#include "rccl/processes.hpp"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/uio.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <new>
#include <string>
#include <vector>

namespace {

constexpr size_t page = 4096, part = size_t{1} << 20;
constexpr size_t count = 3 * part / 2;  // bytes, of each rank

// How far they are, in memory that both processes have.
enum Stage : int { begun, stopped, changed, over };
std::atomic<int> *stage = nullptr;

void await(Stage wanted) {
  while (stage->load() < wanted) sched_yield();
}

// Of a signal's handler, once.
void stop_here() {
  int expected = begun;
  if (stage->compare_exchange_strong(expected, stopped)) await(changed);
}

// Stops this rank where it touches a page of its own memory: what it copies there or from there is half copied.
char *touched = nullptr;
void stop_at_page(char *memory) {
  touched = memory;
  handle_signal(SIGSEGV, [](int, siginfo_t *, void *) {
    stop_here();
    if (mprotect(touched, page, PROT_READ | PROT_WRITE) != 0) _exit(1);
  });
  CHECK_EQUAL(mprotect(touched, page, PROT_NONE), 0);
}

// Stops it where it asks the system for much of the other's memory, which it is then given.
void stop_at_reading() {
  trap_reading([](int, siginfo_t *, void *context) {
    const auto *own = reinterpret_cast<const iovec *>(trapped_argument(context, 1));
    const auto *others = reinterpret_cast<const iovec *>(trapped_argument(context, 3));
    if (own->iov_len > part / 2) stop_here();
    const std::string path = "/proc/" + std::to_string(static_cast<int>(trapped_argument(context, 0))) + "/mem";
    const int memory = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    const ssize_t got = pread(memory, own->iov_base, own->iov_len, reinterpret_cast<off_t>(others->iov_base));
    answer_trap(context, got < 0 ? -errno : got);
    close(memory);
  });
}

struct Case {
  bool is_registered;
  std::function<ncclResult_t(int rank, char *send, char *recv, ncclComm_t)> call;
  size_t late = 0;        // bytes that rank 0 may still write to the memory of rank 1
  size_t page_begin = 0;  // of the page in registered memory
};

// `send` has count bytes for each rank, and `recv`.
void test_withdrawn(const Case &one) {
  stage = new (mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) std::atomic<int>(begun);
  on_processes(2, [&](int r, ncclComm_t comm) {
    constexpr size_t bytes = 4 * count;
    std::vector<char> own(bytes);
    char *memory = own.data();
    void *handle = nullptr;
    if (one.is_registered) {
      CHECK_EQUAL(ncclMemAlloc(reinterpret_cast<void **>(&memory), bytes), ncclSuccess);
      CHECK_EQUAL(ncclCommRegister(comm, memory, bytes, &handle), ncclSuccess);
    }
    std::fill_n(memory, bytes, char{1});
    char *send = memory, *recv = memory + 2 * count;
    if (r == 1) {
      CHECK_EQUAL(rocpyExtThreadSetInterrupt([](void *) { return stage->load() == stopped ? 1 : 0; }, nullptr),
                  ncclSuccess);
      CHECK(one.call(r, send, recv, comm) != ncclSuccess);
      CHECK_EQUAL(stage->load(), stopped);
      std::fill_n(memory, bytes, char{7});
      stage->store(changed);
      await(over);
      CHECK(bytes - static_cast<size_t>(std::count(memory, memory + bytes, char{7})) <= one.late);
      return;
    }
    if (one.is_registered) {
      stop_at_page(memory + one.page_begin);
    } else {
      stop_at_reading();
    }
    CHECK_EQUAL(one.call(r, send, recv, comm), ncclRemoteError);
    stage->store(over);
  });
  munmap(stage, page);
}

ncclResult_t put(int r, char *send, char *, ncclComm_t comm) {
  ncclWindow_t window = nullptr;
  CHECK_EQUAL(ncclCommWindowRegister(comm, send, 4 * count, &window, NCCL_WIN_DEFAULT), ncclSuccess);
  if (r == 0) return ncclPutSignal(send, 2 * count, ncclInt8, 1, window, 2 * count, 0, 0, 0, comm, nullptr);
  ncclWaitSignalDesc_t one{1, 0, 0, 0};
  return ncclWaitSignal(1, &one, comm, nullptr);
}

}  // namespace

int main() {
  const auto transfer = [](int r, char *send, char *recv, ncclComm_t comm) {
    return r == 0 ? ncclRecv(recv, count, ncclInt8, 1, comm, nullptr)
                  : ncclSend(send, count, ncclInt8, 0, comm, nullptr);
  };
  const auto all_reduce = [](int, char *send, char *recv, ncclComm_t comm) {
    return ncclAllReduce(send, recv, count, ncclInt8, ncclSum, comm, nullptr);
  };
  const auto all_gather = [](int, char *send, char *recv, ncclComm_t comm) {
    return ncclAllGather(send, recv, count, ncclInt8, comm, nullptr);
  };
  constexpr size_t in_result = 2 * count + part / 4;
  test_withdrawn({false, transfer});
  test_withdrawn({false, all_reduce});
  test_withdrawn({true, all_gather, 0, in_result});
  test_withdrawn({true, all_reduce, 2048, in_result});
  test_withdrawn({true, put, part, count});
  return failures.load() == 0 ? 0 : 1;
}
