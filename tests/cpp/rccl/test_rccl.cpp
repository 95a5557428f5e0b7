// SPDX-License-Identifier: MIT
// Collectives of ranks that are threads: results, groups, order on streams, disagreement, timeouts, abort, split and
// shrink.
#include "rccl/finished.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <future>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr int ranks = 4;

// Runs body(rank) on a thread for each rank, each on a device of its own.
void on_ranks(int count, const std::function<void(int)> &body) {
  std::vector<std::thread> threads;
  for (int r = 0; r < count; ++r) {
    threads.emplace_back([&, r] {
      CHECK_EQUAL(hipSetDevice(r), hipSuccess);
      body(r);
    });
  }
  for (std::thread &thread : threads) thread.join();
}

void with_communicators(int count, const std::function<void(int, ncclComm_t)> &body) {
  ncclUniqueId id;
  CHECK_EQUAL(ncclGetUniqueId(&id), ncclSuccess);
  on_ranks(count, [&](int r) {
    ncclComm_t comm = nullptr;
    CHECK_EQUAL(ncclCommInitRank(&comm, count, id, r), ncclSuccess);
    if (comm == nullptr) return;
    body(r, comm);
    CHECK_EQUAL(ncclCommDestroy(comm), ncclSuccess);
  });
}

float value(int rank, size_t i) { return static_cast<float>((i * 7 + static_cast<size_t>(rank) * 3) % 23) - 5.0f; }

void test_collectives(size_t count) {
  with_communicators(ranks, [count](int r, ncclComm_t comm) {
    std::vector<float> send(count * ranks), recv(count * ranks, -1.0f);
    for (size_t i = 0; i < send.size(); ++i) send[i] = value(r, i);
    const auto sum = [](size_t i) {
      float total = value(0, i);
      for (int s = 1; s < ranks; ++s) total += value(s, i);
      return total;
    };
    int wrong = 0;
    CHECK_EQUAL(finished(comm, ncclAllReduce(send.data(), recv.data(), count, ncclFloat32, ncclSum, comm, nullptr)),
                ncclSuccess);
    for (size_t i = 0; i < count; ++i) wrong += recv[i] != sum(i);
    CHECK_EQUAL(finished(comm, ncclReduceScatter(send.data(), recv.data(), count, ncclFloat32, ncclSum, comm, nullptr)),
                ncclSuccess);
    for (size_t i = 0; i < count; ++i) wrong += recv[i] != sum(static_cast<size_t>(r) * count + i);
    CHECK_EQUAL(finished(comm, ncclAllGather(send.data(), recv.data(), count, ncclFloat32, comm, nullptr)),
                ncclSuccess);
    for (size_t i = 0; i < count * ranks; ++i) {
      wrong += recv[i] != value(static_cast<int>(i / std::max<size_t>(count, 1)), i % std::max<size_t>(count, 1));
    }
    CHECK_EQUAL(finished(comm, ncclAlltoAll(send.data(), recv.data(), count, ncclFloat32, comm, nullptr)), ncclSuccess);
    for (int s = 0; s < ranks; ++s) {
      for (size_t i = 0; i < count; ++i) {
        wrong += recv[static_cast<size_t>(s) * count + i] != value(s, static_cast<size_t>(r) * count + i);
      }
    }
    CHECK_EQUAL(finished(comm, ncclBroadcast(send.data(), recv.data(), count, ncclFloat32, 2, comm, nullptr)),
                ncclSuccess);
    for (size_t i = 0; i < count; ++i) wrong += recv[i] != value(2, i);
    CHECK_EQUAL(finished(comm, ncclScatter(send.data(), recv.data(), count, ncclFloat32, 1, comm, nullptr)),
                ncclSuccess);
    for (size_t i = 0; i < count; ++i) wrong += recv[i] != value(1, static_cast<size_t>(r) * count + i);
    CHECK_EQUAL(finished(comm, ncclReduce(send.data(), r == 3 ? recv.data() : nullptr, count, ncclFloat32, ncclMax, 3,
                                          comm, nullptr)),
                ncclSuccess);
    for (size_t i = 0; r == 3 && i < count; ++i) {
      float most = value(0, i);
      for (int s = 1; s < ranks; ++s) most = std::max(most, value(s, i));
      wrong += recv[i] != most;
    }
    CHECK_EQUAL(
        finished(comm, ncclGather(send.data(), r == 0 ? recv.data() : nullptr, count, ncclFloat32, 0, comm, nullptr)),
        ncclSuccess);
    for (size_t i = 0; r == 0 && i < count * ranks; ++i) {
      wrong += recv[i] != value(static_cast<int>(i / count), i % count);
    }
    // A ring, and every rank to every rank, itself among them.
    CHECK_EQUAL(ncclGroupStart(), ncclSuccess);
    CHECK_EQUAL(ncclSend(send.data(), count, ncclFloat32, (r + 1) % ranks, comm, nullptr), ncclSuccess);
    CHECK_EQUAL(ncclRecv(recv.data(), count, ncclFloat32, (r + ranks - 1) % ranks, comm, nullptr), ncclSuccess);
    CHECK_EQUAL(finished(comm, ncclGroupEnd()), ncclSuccess);
    for (size_t i = 0; i < count; ++i) wrong += recv[i] != value((r + ranks - 1) % ranks, i);
    ncclGroupStart();
    for (int s = 0; s < ranks; ++s) {
      ncclRecv(recv.data() + static_cast<size_t>(s) * count, count, ncclFloat32, s, comm, nullptr);
      ncclSend(send.data() + static_cast<size_t>(s) * count, count, ncclFloat32, s, comm, nullptr);
    }
    CHECK_EQUAL(finished(comm, ncclGroupEnd()), ncclSuccess);
    for (int s = 0; s < ranks; ++s) {
      for (size_t i = 0; i < count; ++i) {
        wrong += recv[static_cast<size_t>(s) * count + i] != value(s, static_cast<size_t>(r) * count + i);
      }
    }
    CHECK_EQUAL(wrong, 0);
  });
}

void test_all_to_all_v() {
  with_communicators(3, [](int r, ncclComm_t comm) {
    // Rank r sends (r + s) * 30000 integers to rank s.
    const auto n = [](int from, int to) { return static_cast<size_t>(from + to) * 30000; };
    size_t counts[2][3], places[2][3], totals[2] = {};
    for (int s = 0; s < 3; ++s) {
      counts[0][s] = n(r, s);
      counts[1][s] = n(s, r);
      for (int way = 0; way < 2; ++way) {
        places[way][s] = totals[way];
        totals[way] += counts[way][s];
      }
    }
    std::vector<int> send(totals[0] + 1), recv(totals[1] + 1, -1);
    for (int s = 0; s < 3; ++s) {
      for (size_t i = 0; i < counts[0][s]; ++i) send[places[0][s] + i] = r * 1000 + s * 100 + static_cast<int>(i % 97);
    }
    CHECK_EQUAL(finished(comm, ncclAlltoAllv(send.data(), counts[0], places[0], recv.data(), counts[1], places[1],
                                             ncclInt32, comm, nullptr)),
                ncclSuccess);
    int wrong = 0;
    for (int s = 0; s < 3; ++s) {
      for (size_t i = 0; i < counts[1][s]; ++i) {
        wrong += recv[places[1][s] + i] != s * 1000 + r * 100 + static_cast<int>(i % 97);
      }
    }
    CHECK_EQUAL(wrong, 0);
    counts[1][0] += r == 1;
    CHECK_EQUAL(finished(comm, ncclAlltoAllv(send.data(), counts[0], places[0], recv.data(), counts[1], places[1],
                                             ncclInt32, comm, nullptr)),
                ncclInvalidUsage);
    CHECK(std::strstr(ncclGetLastError(comm), "rank 0 sends 30000 elements to rank 1, which takes 30001") != nullptr);
  });
}

// As of RCCL, a call returns while the others have not called: a program may tell them to only then.
void test_calls_do_not_wait() {
  for (int kind = 0; kind < 4; ++kind) {
    std::promise<void> called;
    auto told = called.get_future();
    with_communicators(2, [&](int r, ncclComm_t comm) {
      constexpr size_t count = size_t{1} << 18;
      std::vector<float> send(count, 1.0f), recv(count, 0.0f);
      if (r == 1) CHECK(told.wait_for(std::chrono::seconds(10)) == std::future_status::ready);
      const ncclResult_t code =
          kind == 0       ? ncclAllReduce(send.data(), recv.data(), count, ncclFloat32, ncclMax, comm, nullptr)
          : kind == 1     ? ncclBroadcast(send.data(), recv.data(), count, ncclFloat32, 0, comm, nullptr)
          : kind - 2 == r ? ncclSend(send.data(), count, ncclFloat32, 1 - r, comm, nullptr)
                          : ncclRecv(recv.data(), count, ncclFloat32, 1 - r, comm, nullptr);
      if (r == 0) called.set_value();
      CHECK_EQUAL(finished(comm, code), ncclSuccess);
      CHECK(kind - 2 == r || recv[count - 1] == 1.0f);
    });
  }
}

// A group is one operation of all streams that its calls name: they wait for one another's earlier work, not within it.
void test_streams_of_a_group() {
  with_communicators(2, [](int r, ncclComm_t comm) {
    constexpr size_t count = size_t{1} << 18;
    std::vector<float> send(count, static_cast<float>(r)), recv(count, -1.0f);
    hipStream_t first, second;
    CHECK_EQUAL(hipStreamCreateWithFlags(&first, hipStreamNonBlocking), hipSuccess);
    CHECK_EQUAL(hipStreamCreateWithFlags(&second, hipStreamNonBlocking), hipSuccess);
    const hipStream_t orders[][2] = {{first, second}, {second, first}, {nullptr, second}, {first, nullptr}};
    for (const auto &[sends, receives] : orders) {
      for (const int peer : {1 - r, r}) {
        CHECK_EQUAL(ncclGroupStart(), ncclSuccess);
        CHECK_EQUAL(ncclSend(send.data(), count, ncclFloat32, peer, comm, sends), ncclSuccess);
        CHECK_EQUAL(ncclRecv(recv.data(), count, ncclFloat32, peer, comm, receives), ncclSuccess);
        CHECK_EQUAL(ncclGroupEnd(), ncclSuccess);
        CHECK_EQUAL(hipStreamSynchronize(sends), hipSuccess);  // of the receive, too
        CHECK_EQUAL(recv[count - 1], static_cast<float>(peer));
      }
    }
    // The calls of one rank on several streams, of the other on one: they go on in their order.
    float sums[3] = {1.0f, 10.0f, 0.0f};
    const auto arrive = [](void *late) {
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
      *static_cast<float *>(late) = 100.0f;
    };
    CHECK_EQUAL(hipLaunchHostFunc(second, arrive, &sums[2]), hipSuccess);
    CHECK_EQUAL(ncclGroupStart(), ncclSuccess);
    for (int i = 0; i < 3; ++i) {
      const hipStream_t stream = r == 1 || i == 1 ? second : first;
      CHECK_EQUAL(ncclAllReduce(&sums[i], &sums[i], 1, ncclFloat32, ncclSum, comm, stream), ncclSuccess);
    }
    CHECK_EQUAL(ncclGroupEnd(), ncclSuccess);
    CHECK_EQUAL(hipStreamSynchronize(second), hipSuccess);
    for (int i = 0; i < 3; ++i) CHECK_EQUAL(sums[i], i == 0 ? 2 : i == 1 ? 20 : 200);
    CHECK_EQUAL(hipStreamDestroy(first), hipSuccess);
    CHECK_EQUAL(hipStreamDestroy(second), hipSuccess);
  });
}

// One thread drives all ranks: its calls must return before the others are made.
void test_one_thread() {
  ncclComm_t comms[ranks];
  CHECK_EQUAL(ncclCommInitAll(comms, ranks, nullptr), ncclSuccess);
  std::vector<std::vector<double>> data(ranks, std::vector<double>(10));
  hipStream_t streams[ranks];
  for (int r = 0; r < ranks; ++r) {
    CHECK_EQUAL(hipSetDevice(r), hipSuccess);
    CHECK_EQUAL(hipStreamCreate(&streams[r]), hipSuccess);
    for (size_t i = 0; i < 10; ++i) data[static_cast<size_t>(r)][i] = r + 1;
  }
  for (int round = 0; round < 2; ++round) {
    if (round == 1) ncclGroupStart();
    for (int r = 0; r < ranks; ++r) {
      double *mine = data[static_cast<size_t>(r)].data();
      CHECK_EQUAL(ncclAllReduce(mine, mine, 10, ncclFloat64, round == 0 ? ncclSum : ncclAvg, comms[r], streams[r]),
                  ncclSuccess);
    }
    if (round == 1) CHECK_EQUAL(ncclGroupEnd(), ncclSuccess);
    for (int r = 0; r < ranks; ++r) {
      CHECK_EQUAL(hipStreamSynchronize(streams[r]), hipSuccess);
      CHECK(data[static_cast<size_t>(r)][9] == 10.0);
    }
  }
  for (int r = 0; r < ranks; ++r) {
    CHECK_EQUAL(ncclCommFinalize(comms[r]), ncclSuccess);
    CHECK_EQUAL(ncclCommDestroy(comms[r]), ncclSuccess);
    CHECK_EQUAL(hipStreamDestroy(streams[r]), hipSuccess);
    CHECK_EQUAL(ncclCommDestroy(comms[r]), ncclInvalidArgument);
  }
  ncclComm_t many[64];
  CHECK_EQUAL(ncclCommInitAll(many, 64, nullptr), ncclInvalidUsage);
  CHECK(std::strstr(ncclGetLastError(nullptr), "ROCPY_HOST_DEVICES") != nullptr);
  const int twice[2] = {1, 1};
  CHECK_EQUAL(ncclCommInitAll(many, 2, twice), ncclInvalidUsage);
}

void test_mismatch() {
  with_communicators(3, [](int r, ncclComm_t comm) {
    float data[8] = {};
    CHECK_EQUAL(finished(comm, ncclAllReduce(data, data, r == 1 ? 7 : 8, ncclFloat32, ncclSum, comm, nullptr)),
                ncclInvalidUsage);
    ncclResult_t error = ncclSuccess;
    CHECK_EQUAL(ncclCommGetAsyncError(comm, &error), ncclSuccess);
    CHECK_EQUAL(error, ncclInvalidUsage);
    CHECK(std::strstr(ncclGetLastError(comm), "rank 1 calls all_reduce(count=7") != nullptr);
    CHECK_EQUAL(finished(comm, ncclAllReduce(data, data, 8, ncclFloat32, ncclSum, comm, nullptr)), ncclInvalidUsage);
  });
}

// Ranks whose calls are the same to the library, and not to their users.
void test_described_mismatch() {
  with_communicators(2, [](int r, ncclComm_t comm) {
    int32_t data[4] = {};
    const char *text = "(count=4, dtype=int16, op=sum)";
    CHECK_EQUAL(rocpyExtCommDescribe(comm, text), ncclSuccess);
    CHECK_EQUAL(finished(comm, ncclAllReduce(data, data, 4, ncclInt32, ncclSum, comm, nullptr)), ncclSuccess);
    CHECK_EQUAL(rocpyExtCommDescribe(comm, std::string(96, 'x').c_str()), ncclInvalidArgument);
    CHECK_EQUAL(rocpyExtCommDescribe(comm, r == 0 ? text : nullptr), ncclSuccess);
    CHECK_EQUAL(finished(comm, ncclAllReduce(data, data, 4, ncclInt32, ncclSum, comm, nullptr)), ncclInvalidUsage);
    CHECK(std::strstr(ncclGetLastError(comm),
                      "rank 0 calls all_reduce(count=4, dtype=int16, op=sum), number 2; rank 1 "
                      "calls all_reduce(count=4, dtype=int32, op=sum)") != nullptr);
  });
}

void test_late_rank() {
  with_communicators(2, [](int r, ncclComm_t comm) {
    std::vector<float> data(100000, 1.0f);
    if (r == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(400));
      CHECK_EQUAL(
          finished(comm, ncclAllReduce(data.data(), data.data(), data.size(), ncclFloat32, ncclSum, comm, nullptr)),
          ncclRemoteError);
      return;
    }
    CHECK_EQUAL(rocpyExtCommSetPatience(comm, 100000000), ncclSuccess);
    CHECK_EQUAL(
        finished(comm, ncclAllReduce(data.data(), data.data(), data.size(), ncclFloat32, ncclSum, comm, nullptr)),
        ncclTimeout);
    CHECK(std::strstr(ncclGetLastError(comm), "waiting for rank 1") != nullptr);
    size_t needed = 0;
    CHECK_EQUAL(rocpyExtCommStatus(comm, nullptr, 0, &needed), ncclSuccess);
    std::string json(needed, '\0');
    CHECK_EQUAL(rocpyExtCommStatus(comm, &json[0], json.size(), &needed), ncclSuccess);
    CHECK(json.find("\"kind\":\"timeout\"") != std::string::npos);
    CHECK(json.find("\"ranks\":[1]") != std::string::npos);
  });
}

// A rank that waits is ended by another thread's abort, and the others notice.
void test_abort() {
  ncclUniqueId id;
  ncclGetUniqueId(&id);
  ncclComm_t comms[3] = {};
  on_ranks(3, [&](int r) { CHECK_EQUAL(ncclCommInitRank(&comms[r], 3, id, r), ncclSuccess); });
  on_ranks(3, [&](int r) {
    float data[4] = {};
    if (r == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      CHECK_EQUAL(ncclCommAbort(comms[0]), ncclSuccess);
    } else {
      CHECK_EQUAL(finished(comms[r], ncclAllReduce(data, data, 4, ncclFloat32, ncclSum, comms[r], nullptr)),
                  ncclRemoteError);
      CHECK_EQUAL(ncclCommAbort(comms[r]), ncclSuccess);
    }
  });
}

ncclConfig_t nonblocking() {
  ncclConfig_t config{};
  config.size = sizeof config;
  config.magic = NCCL_CONFIG_MAGIC;
  config.version = NCCL_VERSION_CODE;
  for (int *field :
       {&config.cgaClusterSize, &config.minCTAs, &config.maxCTAs, &config.splitShare, &config.trafficClass,
        &config.collnetEnable, &config.CTAPolicy, &config.shrinkShare, &config.nvlsCTAs, &config.nChannelsPerNetPeer,
        &config.nvlinkCentricSched, &config.graphUsageMode, &config.numRmaCtx, &config.maxP2pPeers}) {
    *field = NCCL_CONFIG_UNDEF_INT;
  }
  config.blocking = 0;
  return config;
}

void test_abort_of_init() {
  ncclUniqueId id;
  ncclGetUniqueId(&id);
  ncclConfig_t config = nonblocking();
  ncclComm_t comm = nullptr;
  CHECK_EQUAL(ncclCommInitRankConfig(&comm, 2, id, 0, &config), ncclInProgress);
  ncclResult_t error = ncclSuccess;
  CHECK_EQUAL(ncclCommGetAsyncError(comm, &error), ncclSuccess);
  CHECK_EQUAL(error, ncclInProgress);
  CHECK_EQUAL(ncclCommAbort(comm), ncclSuccess);
  config.magic = 1;
  CHECK_EQUAL(ncclCommInitRankConfig(&comm, 2, id, 0, &config), ncclInvalidArgument);
}

// Every two calls about one communicator's end, from two threads: each comes to a result, and the end comes once.
void test_ends_of_two_threads() {
  using Call = ncclResult_t (*)(ncclComm_t);
  const Call calls[] = {ncclCommFinalize, ncclCommAbort, ncclCommDestroy,
                        [](ncclComm_t comm) { return ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT); },
                        [](ncclComm_t comm) {
                          ncclResult_t state = ncclSuccess;
                          return ncclCommGetAsyncError(comm, &state);
                        }};
  ncclConfig_t config = nonblocking();
  for (const Call first : calls) {
    for (const Call second : calls) {
      for (int turn = 0; turn < 20; ++turn) {
        ncclUniqueId id;
        CHECK_EQUAL(ncclGetUniqueId(&id), ncclSuccess);
        ncclComm_t comm = nullptr;
        CHECK_EQUAL(ncclCommInitRankConfig(&comm, 1, id, 0, &config), ncclInProgress);
        ncclResult_t state = ncclInProgress;
        // Half of them while it is made.
        while (turn % 2 == 0 && state == ncclInProgress) CHECK_EQUAL(ncclCommGetAsyncError(comm, &state), ncclSuccess);
        std::atomic<int> ready{0};
        const auto end = [&](Call call) {
          ++ready;
          while (ready.load() != 2) {
          }
          call(comm);
        };
        std::thread other(end, second);
        end(first);
        other.join();
        ncclCommAbort(comm);
        CHECK_EQUAL(ncclCommGetAsyncError(comm, &state), ncclInvalidArgument);
      }
    }
  }
}

void test_children() {
  with_communicators(ranks, [](int r, ncclComm_t comm) {
    ncclComm_t half = nullptr, rest = nullptr;
    CHECK_EQUAL(ncclCommSplit(comm, r % 2, -r, &half, nullptr), ncclSuccess);
    int rank = -1, count = 0;
    CHECK_EQUAL(ncclCommUserRank(half, &rank), ncclSuccess);
    CHECK_EQUAL(ncclCommCount(half, &count), ncclSuccess);
    CHECK_EQUAL(rank, r < 2 ? 1 : 0);
    CHECK_EQUAL(count, 2);
    int sum = r;
    CHECK_EQUAL(finished(half, ncclAllReduce(&sum, &sum, 1, ncclInt32, ncclSum, half, nullptr)), ncclSuccess);
    CHECK_EQUAL(sum, r % 2 == 0 ? 2 : 4);
    CHECK_EQUAL(ncclCommDestroy(half), ncclSuccess);
    CHECK_EQUAL(ncclCommSplit(comm, r == 0 ? NCCL_SPLIT_NOCOLOR : 5, 0, &half, nullptr), ncclSuccess);
    CHECK((half == nullptr) == (r == 0));
    if (half != nullptr) CHECK_EQUAL(ncclCommDestroy(half), ncclSuccess);
    int excluded[1] = {1};
    if (r != 1) {
      CHECK_EQUAL(ncclCommShrink(comm, excluded, 1, &rest, nullptr, NCCL_SHRINK_DEFAULT), ncclSuccess);
      sum = 1;
      CHECK_EQUAL(finished(rest, ncclAllReduce(&sum, &sum, 1, ncclInt32, ncclSum, rest, nullptr)), ncclSuccess);
      CHECK_EQUAL(sum, 3);
      CHECK_EQUAL(ncclCommDestroy(rest), ncclSuccess);
    }
  });
}

void test_operators() {
  with_communicators(3, [](int r, ncclComm_t comm) {
    float scalar = static_cast<float>(r) + 0.5f, data[2] = {2.0f, 4.0f};
    ncclRedOp_t op;
    CHECK_EQUAL(ncclRedOpCreatePreMulSum(&op, &scalar, ncclFloat32, ncclScalarHostImmediate, comm), ncclSuccess);
    CHECK_EQUAL(finished(comm, ncclAllReduce(data, data, 2, ncclFloat64, op, comm, nullptr)), ncclInvalidArgument);
    CHECK_EQUAL(finished(comm, ncclAllReduce(data, data, 2, ncclFloat32, op, comm, nullptr)), ncclSuccess);
    CHECK(data[0] == 9.0f && data[1] == 18.0f);
    CHECK_EQUAL(ncclRedOpDestroy(op, comm), ncclSuccess);
    CHECK_EQUAL(finished(comm, ncclAllReduce(data, data, 2, ncclFloat32, op, comm, nullptr)), ncclInvalidArgument);
    int8_t small = static_cast<int8_t>(r == 0 ? -7 : 0);
    CHECK_EQUAL(finished(comm, ncclAllReduce(&small, &small, 1, ncclInt8, ncclAvg, comm, nullptr)), ncclSuccess);
    CHECK_EQUAL(small, -2);
    float one = 1.0f, bias = 1.0f;
    CHECK_EQUAL(finished(comm, ncclAllReduceWithBias(&one, &one, 1, ncclFloat32, ncclSum, comm, nullptr, &bias)),
                ncclSuccess);
    CHECK(one == 4.0f);
  });
}

}  // namespace

int main() {
  for (const size_t count : {size_t{1}, size_t{1000}, size_t{200003}}) test_collectives(count);
  test_all_to_all_v();
  test_calls_do_not_wait();
  test_streams_of_a_group();
  test_one_thread();
  test_mismatch();
  test_described_mismatch();
  test_late_rank();
  test_abort();
  test_abort_of_init();
  test_ends_of_two_threads();
  test_children();
  test_operators();
  return failures.load() == 0 ? 0 : 1;
}
