// SPDX-License-Identifier: MIT
// Large all-reduces and transfers of processes that read one another's memory: the same bits as through shared memory,
// also where the system forbids it to one of the ranks, and a rank that dies meanwhile.
#include "rccl/processes.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace {

constexpr size_t count = 300007;  // of 4 bytes: more than large, and no whole number of lines or blocks

// How often this process has asked the system for another's memory, which then answers that it is forbidden, as a
// container's filter does.
std::atomic<int> asked{0};

void forbid_reading() {
  trap_reading([](int, siginfo_t *, void *context) {
    asked.fetch_add(1);
    answer_trap(context, -EPERM);
  });
}

// What a rank adds: sums of the ranks' depend on their order.
float value(int rank, size_t i) {
  return 1.0f / static_cast<float>(1 + (i * 7 + static_cast<size_t>(rank) * 13) % 101);
}

float sum(int ranks, size_t i) {
  float total = value(0, i);
  for (int r = 1; r < ranks; ++r) total += value(r, i);
  return total;
}

void check_sums(int ranks, int r, ncclComm_t comm) {
  std::vector<float> send(count), recv(count + 16, -1.0f);
  for (size_t i = 0; i < count; ++i) send[i] = value(r, i);
  const std::vector<float> kept = send;
  const auto wrong = [&](const std::vector<float> &result) {
    int differing = 0;
    for (size_t i = 0; i < count; ++i) differing += result[i] != sum(ranks, i);
    return differing;
  };
  for (int turn = 0; turn < 3; ++turn) {
    CHECK_EQUAL(finished(comm, ncclAllReduce(send.data(), recv.data(), count, ncclFloat32, ncclSum, comm, nullptr)),
                ncclSuccess);
    CHECK_EQUAL(wrong(recv), 0);
    CHECK_EQUAL(recv[count], -1.0f);  // nothing beyond the end
    CHECK(send == kept);
    // As soon as a rank has its result it may change both: nobody reads them any more.
    std::fill(recv.begin(), recv.end() - 16, 3.0f);
  }
  CHECK_EQUAL(finished(comm, ncclAllReduce(send.data(), send.data(), count, ncclFloat32, ncclSum, comm, nullptr)),
              ncclSuccess);
  CHECK_EQUAL(wrong(send), 0);
}

void check_integers(int ranks, int r, ncclComm_t comm) {
  std::vector<int32_t> data(count);
  for (size_t i = 0; i < count; ++i) data[i] = static_cast<int32_t>(i % 1000) * (r + 1) - 500;
  CHECK_EQUAL(finished(comm, ncclAllReduce(data.data(), data.data(), count, ncclInt32, ncclAvg, comm, nullptr)),
              ncclSuccess);
  int wrong = 0;
  for (size_t i = 0; i < count; ++i) {
    wrong += data[i] != (static_cast<int32_t>(i % 1000) * (ranks * (ranks + 1) / 2) - 500 * ranks) / ranks;
  }
  CHECK_EQUAL(wrong, 0);
}

// A NaN loses against a number, whichever rank has it; of more sources than two, the last wins.
void check_maxima(int ranks, int r, ncclComm_t comm) {
  std::vector<double> data(count), result(count);
  for (size_t i = 0; i < count; ++i) {
    data[i] = i % 4 == static_cast<size_t>(r) ? __builtin_nan("") : static_cast<double>(i * (r + 1));
  }
  CHECK_EQUAL(finished(comm, ncclAllReduce(data.data(), result.data(), count, ncclFloat64, ncclMax, comm, nullptr)),
              ncclSuccess);
  int wrong = 0;
  for (size_t i = 0; i < count; ++i) {
    const int best = i % 4 == static_cast<size_t>(ranks - 1) ? ranks - 1 : ranks;
    wrong += result[i] != static_cast<double>(i * best);
  }
  CHECK_EQUAL(wrong, 0);
}

ncclResult_t pass_on(int ranks, int r, const std::vector<float> &send, std::vector<float> *recv, ncclComm_t comm) {
  ncclGroupStart();
  ncclSend(send.data(), send.size(), ncclFloat32, (r + 1) % ranks, comm, nullptr);
  ncclRecv(recv->data(), send.size(), ncclFloat32, (r + ranks - 1) % ranks, comm, nullptr);
  return finished(comm, ncclGroupEnd());
}

void check_transfers(int ranks, int r, ncclComm_t comm) {
  for (const size_t elements : {size_t{1000}, size_t{16384}, size_t{16385}, count, size_t{7}, count, count}) {
    std::vector<float> send(elements), recv(elements + 16, -1.0f);
    for (size_t i = 0; i < elements; ++i) send[i] = value(r, i);
    CHECK_EQUAL(pass_on(ranks, r, send, &recv, comm), ncclSuccess);
    // Once the call is over the sender may change what it has sent.
    std::fill(send.begin(), send.end(), 3.0f);
    int wrong = recv[elements] != -1.0f;
    for (size_t i = 0; i < elements; ++i) wrong += recv[i] != value((r + ranks - 1) % ranks, i);
    CHECK_EQUAL(wrong, 0);
  }
}

void check_all(int ranks, int r, ncclComm_t comm) {
  check_transfers(ranks, r, comm);
  check_sums(ranks, r, comm);
  check_integers(ranks, r, comm);
  check_maxima(ranks, r, comm);
}

void test_results() {
  for (const int ranks : {2, 3, 4}) on_processes(ranks, [=](int r, ncclComm_t comm) { check_all(ranks, r, comm); });
}

void test_one_that_may_not() {
  on_processes(3, [](int r, ncclComm_t comm) {
    if (r == 1) forbid_reading();
    check_transfers(3, r, comm);
    CHECK_EQUAL(asked.load(), r == 1);  // one that may not is not asked to again
    check_all(3, r, comm);
    CHECK_EQUAL(asked.load() > 1, r == 1);
  });
}

void test_one_that_does_not_want_to() {
  const auto body = [](int r, ncclComm_t comm) {
    if (r == 2) forbid_reading();
    check_all(3, r, comm);
    CHECK_EQUAL(asked.load(), 0);
  };
  on_processes(3, body, -1, 2);
}

// The others are told which rank it was, wherever they were: reading, or waiting.
void test_dead_rank(bool is_transfer) {
  for (int turn = 0; turn < 10; ++turn) {
    on_processes(
        3,
        [=](int r, ncclComm_t comm) {
          constexpr size_t large = size_t{4} << 20;
          std::vector<float> data(large, 1.0f), result(large);
          ncclResult_t code = ncclSuccess;
          for (int i = 0; code == ncclSuccess && i < 10000; ++i) {
            if (r == 1 && i == 2) {
              signal(SIGALRM, SIG_DFL);
              ualarm(static_cast<useconds_t>(3000 + 1100 * turn), 0);
            }
            code = is_transfer ? pass_on(3, r, data, &result, comm)
                               : finished(comm, ncclAllReduce(data.data(), result.data(), large, ncclFloat32, ncclSum,
                                                              comm, nullptr));
          }
          CHECK_EQUAL(code, ncclRemoteError);
          CHECK(std::strstr(ncclGetLastError(comm), "rank 1") != nullptr);
        },
        1);
  }
}

}  // namespace

int main() {
  test_results();
  test_one_that_may_not();
  test_one_that_does_not_want_to();
  for (const bool is_transfer : {false, true}) test_dead_rank(is_transfer);
  return failures.load() == 0 ? 0 : 1;
}
