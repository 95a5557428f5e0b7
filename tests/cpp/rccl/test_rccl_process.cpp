// SPDX-License-Identifier: MIT
// Collectives of ranks that are processes: results, a dead rank, a late rank, a rank that never comes, and nothing left
// behind.
#include "rccl/processes.hpp"

#include <dirent.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace {

int open_files() {
  int count = 0;
  DIR *folder = opendir("/proc/self/fd");
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

void test_results() {
  on_processes(3, [](int r, const ncclUniqueId &id) {
    const int files = open_files();
    const ncclComm_t comm = joined(3, id, r);
    for (const size_t count : {size_t{1}, size_t{5000}, size_t{300001}}) {
      std::vector<float> send(3 * count), recv(3 * count, -1.0f);
      for (size_t i = 0; i < send.size(); ++i) send[i] = static_cast<float>((i * 5 + static_cast<size_t>(r)) % 31);
      const auto at = [](int rank, size_t i) { return static_cast<float>((i * 5 + static_cast<size_t>(rank)) % 31); };
      int wrong = 0;
      CHECK_EQUAL(finished(comm, ncclAllReduce(send.data(), recv.data(), count, ncclFloat32, ncclSum, comm, nullptr)),
                  ncclSuccess);
      for (size_t i = 0; i < count; ++i) wrong += recv[i] != at(0, i) + at(1, i) + at(2, i);
      CHECK_EQUAL(
          finished(comm, ncclReduceScatter(send.data(), recv.data(), count, ncclFloat32, ncclMin, comm, nullptr)),
          ncclSuccess);
      for (size_t i = 0; i < count; ++i) {
        const size_t j = static_cast<size_t>(r) * count + i;
        wrong += recv[i] != std::min(at(0, j), std::min(at(1, j), at(2, j)));
      }
      CHECK_EQUAL(finished(comm, ncclAllGather(send.data(), recv.data(), count, ncclFloat32, comm, nullptr)),
                  ncclSuccess);
      for (size_t i = 0; i < 3 * count; ++i) wrong += recv[i] != at(static_cast<int>(i / count), i % count);
      CHECK_EQUAL(finished(comm, ncclAlltoAll(send.data(), recv.data(), count, ncclFloat32, comm, nullptr)),
                  ncclSuccess);
      for (size_t i = 0; i < 3 * count; ++i) {
        wrong += recv[i] != at(static_cast<int>(i / count), static_cast<size_t>(r) * count + i % count);
      }
      CHECK_EQUAL(ncclGroupStart(), ncclSuccess);
      CHECK_EQUAL(ncclSend(send.data(), count, ncclFloat32, (r + 1) % 3, comm, nullptr), ncclSuccess);
      CHECK_EQUAL(ncclRecv(recv.data(), count, ncclFloat32, (r + 2) % 3, comm, nullptr), ncclSuccess);
      CHECK_EQUAL(finished(comm, ncclGroupEnd()), ncclSuccess);
      for (size_t i = 0; i < count; ++i) wrong += recv[i] != at((r + 2) % 3, i);
      CHECK_EQUAL(wrong, 0);
    }
    CHECK_EQUAL(ncclCommFinalize(comm), ncclSuccess);
    CHECK_EQUAL(ncclCommDestroy(comm), ncclSuccess);
    CHECK_EQUAL(open_files(), files);
  });
}

// Operands in registered memory are read where they lie; windows; then nothing is left open.
void test_memory() {
  on_processes(3, [](int r, const ncclUniqueId &id) {
    const int files = open_files();
    const ncclComm_t comm = joined(3, id, r);
    constexpr size_t count = 100003;
    for (int turn = 0; turn < 3; ++turn) {
      float *memory = nullptr;
      void *handle = nullptr;
      CHECK_EQUAL(ncclMemAlloc(reinterpret_cast<void **>(&memory), 2 * count * sizeof(float)), ncclSuccess);
      CHECK_EQUAL(ncclCommRegister(comm, memory, 2 * count * sizeof(float), &handle), ncclSuccess);
      for (size_t i = 0; i < count; ++i) memory[i] = static_cast<float>(i % 31) + static_cast<float>(r + turn);
      for (int again = 0; again < 2; ++again) {
        CHECK_EQUAL(finished(comm, ncclAllReduce(memory, memory + count, count, ncclFloat32, ncclSum, comm, nullptr)),
                    ncclSuccess);
        int wrong = 0;
        for (size_t i = 0; i < count; ++i) {
          wrong += memory[count + i] != static_cast<float>(3 * (i % 31)) + static_cast<float>(3 + 3 * turn);
        }
        CHECK_EQUAL(wrong, 0);
      }
      CHECK_EQUAL(ncclCommDeregister(comm, handle), ncclSuccess);
      ncclWindow_t window = nullptr;
      CHECK_EQUAL(ncclCommWindowRegister(comm, memory, 2 * count * sizeof(float), &window, NCCL_WIN_DEFAULT),
                  ncclSuccess);
      CHECK(window != nullptr);
      memory[0] = static_cast<float>(r);
      const int next = (r + 1) % 3;
      CHECK_EQUAL(
          finished(comm, ncclPutSignal(memory, 1, ncclFloat32, next, window, sizeof(float), 0, 0, 0, comm, nullptr)),
          ncclSuccess);
      ncclWaitSignalDesc_t one{1, (r + 2) % 3, 0, 0};
      CHECK_EQUAL(finished(comm, ncclWaitSignal(1, &one, comm, nullptr)), ncclSuccess);
      CHECK_EQUAL(memory[1], static_cast<float>((r + 2) % 3));
      CHECK_EQUAL(ncclCommWindowDeregister(comm, window), ncclSuccess);
      CHECK_EQUAL(ncclMemFree(memory), ncclSuccess);
      // Memory that other processes cannot be shown: success, and no window.
      alignas(4096) static char own[4096];
      CHECK_EQUAL(ncclCommWindowRegister(comm, own, sizeof own, &window, NCCL_WIN_DEFAULT), ncclSuccess);
      CHECK(window == nullptr);
    }
    CHECK_EQUAL(ncclCommDestroy(comm), ncclSuccess);
    CHECK_EQUAL(open_files(), files);
  });
}

// Another process sees the communicator, and has no part in it.
void test_machine_status() {
  on_processes(2, [](int r, const ncclUniqueId &id) {
    const ncclComm_t comm = joined(2, id, r);
    float data = 1.0f;
    CHECK_EQUAL(finished(comm, ncclAllReduce(&data, &data, 1, ncclFloat32, ncclSum, comm, nullptr)), ncclSuccess);
    if (r == 0) {
      const pid_t child = fork();
      if (child == 0) {
        execl("/proc/self/exe", "test_rccl_process", "status", static_cast<char *>(nullptr));
        _exit(1);
      }
      int status = 1;
      waitpid(child, &status, 0);
      CHECK_EQUAL(status, 0);
    }
    CHECK_EQUAL(finished(comm, ncclAllReduce(&data, &data, 1, ncclFloat32, ncclSum, comm, nullptr)), ncclSuccess);
    // Looking on has taken no mark of life away, this process's own included.
    size_t needed = 0;
    CHECK_EQUAL(rocpyExtMachineStatus(nullptr, 0, &needed), ncclSuccess);
    std::this_thread::sleep_for(std::chrono::milliseconds(r == 0 ? 250 : 0));
    CHECK_EQUAL(finished(comm, ncclAllReduce(&data, &data, 1, ncclFloat32, ncclSum, comm, nullptr)), ncclSuccess);
    CHECK_EQUAL(ncclCommDestroy(comm), ncclSuccess);
  });
}

int show_status() {
  size_t needed = 0;
  CHECK_EQUAL(rocpyExtMachineStatus(nullptr, 0, &needed), ncclSuccess);
  std::vector<char> text(needed + 4096);
  CHECK_EQUAL(rocpyExtMachineStatus(text.data(), text.size(), &needed), ncclSuccess);
  const std::string parent = "\"pid\":" + std::to_string(getppid()) + ",\"process\":\"alive\"";
  const char *found = std::strstr(text.data(), parent.c_str());
  CHECK(found != nullptr);
  CHECK(found != nullptr && std::strstr(found, "all_reduce") != nullptr);
  return failures.load() == 0 ? 0 : 1;
}

void test_dead_rank() {
  on_processes(
      3,
      [](int r, const ncclUniqueId &id) {
        const ncclComm_t comm = joined(3, id, r);
        if (r == 1) raise(SIGKILL);
        float data = 1.0f;
        CHECK_EQUAL(finished(comm, ncclAllReduce(&data, &data, 1, ncclFloat32, ncclSum, comm, nullptr)),
                    ncclRemoteError);
        CHECK(std::strstr(ncclGetLastError(comm), "rank 1") != nullptr);
        CHECK_EQUAL(ncclCommAbort(comm), ncclSuccess);
      },
      1);
}

void test_dead_rank_in_init() {
  on_processes(
      2,
      [](int r, const ncclUniqueId &id) {
        ncclComm_t comm = nullptr;
        if (r == 1) {
          // Rank 2 never comes, and rank 1 dies while it waits for it.
          std::thread([] {
            std::this_thread::sleep_for(std::chrono::milliseconds(200));
            raise(SIGKILL);
          }).detach();
        }
        CHECK_EQUAL(ncclCommInitRank(&comm, 3, id, r), ncclRemoteError);
        CHECK(comm == nullptr);
        CHECK(std::strstr(ncclGetLastError(nullptr), "rank 1") != nullptr);
      },
      1);
}

// Of the ranks that stay one is dead: the other does not wait for it until its deadline.
void test_dead_rank_in_shrink() {
  on_processes(
      3,
      [](int r, const ncclUniqueId &id) {
        const ncclComm_t comm = joined(3, id, r);
        if (r == 1) raise(SIGKILL);
        ncclComm_t rest = nullptr;
        int excluded = 0;
        if (r == 2) {
          CHECK_EQUAL(ncclCommShrink(comm, &excluded, 1, &rest, nullptr, NCCL_SHRINK_ABORT), ncclRemoteError);
          CHECK(std::strstr(ncclGetLastError(nullptr), "rank 1 (process") != nullptr);
        }
        CHECK_EQUAL(ncclCommAbort(comm), ncclSuccess);
      },
      1);
}

void test_same_device() {
  on_processes(2, [](int r, const ncclUniqueId &id) {
    CHECK_EQUAL(hipSetDevice(0), hipSuccess);
    ncclComm_t comm = nullptr;
    CHECK_EQUAL(ncclCommInitRank(&comm, 2, id, r), ncclInvalidUsage);
    CHECK(std::strstr(ncclGetLastError(nullptr), "both use device 0") != nullptr);
  });
}

void test_fork() {
  on_processes(1, [](int, const ncclUniqueId &id) {
    ncclComm_t comm = nullptr;
    CHECK_EQUAL(ncclCommInitRank(&comm, 1, id, 0), ncclSuccess);
    int *memory = nullptr;
    CHECK_EQUAL(ncclMemAlloc(reinterpret_cast<void **>(&memory), sizeof *memory), ncclSuccess);
    *memory = 5;
    const pid_t child = fork();
    if (child == 0) {
      float data = 1.0f;
      if (ncclMemFree(memory) != ncclSuccess) _exit(2);
      _exit(ncclAllReduce(&data, &data, 1, ncclFloat32, ncclSum, comm, nullptr) == ncclInvalidUsage ? 0 : 1);
    }
    int status = 1;
    waitpid(child, &status, 0);
    CHECK_EQUAL(status, 0);
    CHECK_EQUAL(*memory, 5);  // what the child frees is its part in it
    CHECK_EQUAL(ncclMemFree(memory), ncclSuccess);
    CHECK_EQUAL(ncclCommDestroy(comm), ncclSuccess);
  });
}

}  // namespace

int main(int count, char **words) {
  if (count == 2 && std::strcmp(words[1], "status") == 0) return show_status();
  test_results();
  test_memory();
  test_machine_status();
  test_dead_rank();
  test_dead_rank_in_init();
  test_dead_rank_in_shrink();
  test_same_device();
  test_fork();
  return failures.load() == 0 ? 0 : 1;
}
