// SPDX-License-Identifier: MIT
// Windows, puts and signals of ranks that are threads; then what is made of a communicator that was revoked, or grows.
#include "rccl/finished.hpp"

#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

namespace {

constexpr int ranks = 4;

// Runs body(rank, communicator) on a thread for each rank, each on a device of its own.
void with_ranks(const std::function<void(int, ncclComm_t)> &body) {
  ncclUniqueId id;
  CHECK_EQUAL(ncclGetUniqueId(&id), ncclSuccess);
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      ncclComm_t comm = nullptr;
      CHECK_EQUAL(hipSetDevice(r), hipSuccess);
      CHECK_EQUAL(ncclCommInitRank(&comm, ranks, id, r), ncclSuccess);
      if (comm == nullptr) return;
      body(r, comm);
      CHECK_EQUAL(ncclCommDestroy(comm), ncclSuccess);
    });
  }
  for (std::thread &thread : threads) thread.join();
}

void meet(ncclComm_t comm) {
  int one = 1;
  CHECK_EQUAL(finished(comm, ncclAllReduce(&one, &one, 1, ncclInt32, ncclSum, comm, nullptr)), ncclSuccess);
  CHECK_EQUAL(one, ranks);
}

// Every rank puts into every window, round after round; signals keep readers from writers.
void test_puts() {
  with_ranks([](int r, ncclComm_t comm) {
    constexpr size_t count = 1024;
    int *memory = nullptr;
    CHECK_EQUAL(ncclMemAlloc(reinterpret_cast<void **>(&memory), (ranks + 1) * count * sizeof(int)), ncclSuccess);
    ncclWindow_t window = nullptr;
    CHECK_EQUAL(ncclCommWindowRegister(comm, memory, (ranks + 1) * count * sizeof(int), &window, NCCL_WIN_DEFAULT),
                ncclSuccess);
    CHECK(window != nullptr);
    std::vector<ncclWaitSignalDesc_t> all;
    for (int s = 0; s < ranks; ++s) all.push_back({1, s, 0, 0});
    for (int round = 0; round < 20; ++round) {
      for (size_t i = 0; i < count; ++i) memory[ranks * count + i] = round * 100 + r;
      for (int s = 0; s < ranks; ++s) {
        CHECK_EQUAL(ncclPutSignal(memory + ranks * count, count, ncclInt32, s, window,
                                  static_cast<size_t>(r) * count * sizeof(int), 0, 0, 0, comm, nullptr),
                    ncclSuccess);
      }
      CHECK_EQUAL(finished(comm, ncclWaitSignal(ranks, all.data(), comm, nullptr)), ncclSuccess);
      int wrong = 0;
      for (int s = 0; s < ranks; ++s) {
        for (size_t i = 0; i < count; ++i) wrong += memory[static_cast<size_t>(s) * count + i] != round * 100 + s;
      }
      CHECK_EQUAL(wrong, 0);
      meet(comm);
    }
    void *peer = nullptr, *lease = nullptr;
    size_t bytes = 0;
    CHECK_EQUAL(rocpyExtWinLeasePeer(comm, window, (r + 1) % ranks, &peer, &bytes, &lease), ncclSuccess);
    CHECK_EQUAL(bytes, (ranks + 1) * count * sizeof(int));
    CHECK_EQUAL(static_cast<int *>(peer)[ranks * count], 1900 + (r + 1) % ranks);
    meet(comm);
    CHECK_EQUAL(ncclCommWindowDeregister(comm, window), ncclSuccess);
    CHECK_EQUAL(ncclCommWindowDeregister(comm, window), ncclInvalidArgument);
    CHECK_EQUAL(ncclMemFree(memory), ncclSuccess);
    meet(comm);
    CHECK_EQUAL(static_cast<int *>(peer)[ranks * count], 0);
    CHECK_EQUAL(rocpyExtWinEndLease(lease), ncclSuccess);
  });
}

void test_windows_in_a_group() {
  ncclComm_t comms[ranks] = {};
  CHECK_EQUAL(ncclCommInitAll(comms, ranks, nullptr), ncclSuccess);
  void *memories[ranks];
  ncclWindow_t windows[ranks] = {};
  ncclGroupStart();
  for (int r = 0; r < ranks; ++r) {
    CHECK_EQUAL(ncclMemAlloc(&memories[r], 4096), ncclSuccess);
    CHECK_EQUAL(ncclCommWindowRegister(comms[r], memories[r], 4096, &windows[r], NCCL_WIN_COLL_SYMMETRIC), ncclSuccess);
  }
  CHECK_EQUAL(ncclGroupEnd(), ncclSuccess);
  for (int r = 0; r < ranks; ++r) {
    void *pointer = nullptr;
    CHECK_EQUAL(ncclWinGetUserPtr(comms[r], windows[r], &pointer), ncclSuccess);
    CHECK(pointer == memories[r]);
    CHECK_EQUAL(ncclWinGetUserPtr(comms[(r + 1) % ranks], windows[r], &pointer), ncclInvalidArgument);
  }
  for (int r = 0; r < ranks; ++r) {
    CHECK_EQUAL(ncclCommAbort(comms[r]), ncclSuccess);
    CHECK_EQUAL(ncclMemFree(memories[r]), ncclSuccess);
  }
}

// A wait on a stream lets its thread go on; a signal does not wait for who is to have it.
void test_nobody_waits_in_a_call() {
  std::atomic<bool> is_waiting{false};
  with_ranks([&](int r, ncclComm_t comm) {
    hipStream_t stream;
    CHECK_EQUAL(hipStreamCreate(&stream), hipSuccess);
    CHECK_EQUAL(rocpyExtCommSetPatience(comm, 0), ncclSuccess);
    if (r == 0) {
      ncclWaitSignalDesc_t two[2] = {{1, 1, 0, 0}, {2, 2, 0, 0}};
      CHECK_EQUAL(ncclWaitSignal(2, two, comm, stream), ncclSuccess);
      CHECK_EQUAL(hipStreamQuery(stream), hipErrorNotReady);
      is_waiting = true;
    } else if (r <= 2) {
      while (r == 1 && !is_waiting.load()) std::this_thread::yield();
      for (int i = 0; i < r; ++i) CHECK_EQUAL(ncclSignal(0, 0, 0, 0, comm, stream), ncclSuccess);
    }
    CHECK_EQUAL(hipStreamSynchronize(stream), hipSuccess);
    CHECK_EQUAL(hipStreamDestroy(stream), hipSuccess);
    CHECK_EQUAL(rocpyExtCommSetPatience(comm, UINT64_MAX), ncclSuccess);
    meet(comm);
  });
}

void test_revoke() {
  with_ranks([](int r, ncclComm_t comm) {
    float data = 1.0f;
    if (r == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      CHECK_EQUAL(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT), ncclSuccess);
    } else {
      // Rank 0 does not come: the others are told, and revoke too.
      CHECK_EQUAL(finished(comm, ncclAllReduce(&data, &data, 1, ncclFloat32, ncclSum, comm, nullptr)), ncclRemoteError);
      CHECK_EQUAL(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT), ncclSuccess);
    }
    CHECK_EQUAL(ncclAllReduce(&data, &data, 1, ncclFloat32, ncclSum, comm, nullptr), ncclInvalidUsage);
    ncclComm_t half = nullptr, rest = nullptr;
    CHECK_EQUAL(ncclCommSplit(comm, r / 2, 0, &half, nullptr), ncclSuccess);
    int number = 1, count = 0;
    CHECK_EQUAL(ncclCommCount(half, &count), ncclSuccess);
    CHECK_EQUAL(count, 2);
    CHECK_EQUAL(finished(half, ncclAllReduce(&number, &number, 1, ncclInt32, ncclSum, half, nullptr)), ncclSuccess);
    CHECK_EQUAL(number, 2);
    CHECK_EQUAL(ncclCommDestroy(half), ncclSuccess);
    int excluded[1] = {0};
    if (r == 0) return;
    CHECK_EQUAL(ncclCommShrink(comm, excluded, 1, &rest, nullptr, NCCL_SHRINK_DEFAULT), ncclSuccess);
    CHECK_EQUAL(finished(rest, ncclAllReduce(&number, &number, 1, ncclInt32, ncclSum, rest, nullptr)), ncclSuccess);
    CHECK_EQUAL(number, 6);
    CHECK_EQUAL(ncclCommDestroy(rest), ncclSuccess);
  });
}

void test_grow() {
  ncclUniqueId id;
  std::atomic<bool> is_known{false};
  std::thread late([&] {
    CHECK_EQUAL(hipSetDevice(ranks), hipSuccess);
    while (!is_known.load()) std::this_thread::yield();
    ncclComm_t grown = nullptr;
    CHECK_EQUAL(ncclCommGrow(nullptr, ranks + 1, &id, ranks, &grown, nullptr), ncclSuccess);
    int data = 1;
    CHECK_EQUAL(finished(grown, ncclAllReduce(&data, &data, 1, ncclInt32, ncclSum, grown, nullptr)), ncclSuccess);
    CHECK_EQUAL(data, ranks + 1);
    CHECK_EQUAL(ncclCommDestroy(grown), ncclSuccess);
  });
  with_ranks([&](int r, ncclComm_t comm) {
    ncclComm_t grown = nullptr;
    CHECK_EQUAL(ncclCommGrow(comm, ranks, nullptr, -1, &grown, nullptr), ncclInvalidArgument);
    CHECK_EQUAL(ncclCommGrow(comm, ranks + 1, nullptr, r, &grown, nullptr), ncclInvalidArgument);
    CHECK_EQUAL(ncclCommGrow(nullptr, ranks + 1, nullptr, ranks, &grown, nullptr), ncclInvalidArgument);
    // Nobody has the id.
    CHECK_EQUAL(ncclCommGrow(comm, ranks + 1, nullptr, -1, &grown, nullptr), ncclInvalidArgument);
    if (r == 2) {
      CHECK_EQUAL(ncclCommGetUniqueId(comm, &id), ncclSuccess);
      is_known = true;
    }
    CHECK_EQUAL(ncclCommGrow(comm, ranks + 1, r == 2 ? &id : nullptr, -1, &grown, nullptr), ncclSuccess);
    int data = 1;
    CHECK_EQUAL(finished(grown, ncclAllReduce(&data, &data, 1, ncclInt32, ncclSum, grown, nullptr)), ncclSuccess);
    CHECK_EQUAL(data, ranks + 1);
    CHECK_EQUAL(ncclCommDestroy(grown), ncclSuccess);
    uint64_t bytes = 0;
    CHECK_EQUAL(ncclCommMemStats(comm, ncclStatGpuMemTotal, &bytes), ncclSuccess);
    CHECK(bytes > 0);
  });
  late.join();
}

}  // namespace

int main() {
  test_puts();
  test_windows_in_a_group();
  test_nobody_waits_in_a_call();
  test_revoke();
  test_grow();
  return failures.load() == 0 ? 0 : 1;
}
