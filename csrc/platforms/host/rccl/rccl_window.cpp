// SPDX-License-Identifier: MIT
// Windows: memory of all ranks that each of them sees; and what one rank does to another's without its help: put,
// signal.
#include "rccl_comm.hpp"

#include "exports.h"

#include <algorithm>
#include <cstring>

namespace rocpy_host {

namespace {

constexpr uint64_t window_kind = uint64_t{'W'} << 56;

ncclWindow_t handle_of(const Communicator &communicator, uint64_t number) {
  return reinterpret_cast<ncclWindow_t>(window_kind | uint64_t{communicator.serial} << 24 | number);
}

std::shared_ptr<RankWindow> find_window(const Communicator &communicator, ncclWindow_t handle) {
  const auto match = communicator.memories.windows.find(reinterpret_cast<uint64_t>(handle));
  return match == communicator.memories.windows.end() ? nullptr : match->second;
}

struct Request {
  void *buffer;
  size_t bytes;
  int flags;
  uint64_t handle;
};

// All ranks call it. Without a window at the end, and success: some rank's memory cannot be shown to other processes.
ncclResult_t open_window(const std::shared_ptr<Communicator> &communicator, const Request &request) {
  Communicator &comm = *communicator;
  Memories &memories = comm.memories;
  Operation operation = comm.make_operation(Kind::window);
  Signature &mine = operation.signature;
  const Shown shown = find_shared_memory(request.buffer, request.bytes);
  mine.root = request.flags;
  mine.sequence = ++comm.sequence;
  mine.send = request.buffer;
  mine.extent = request.bytes;
  mine.sent.memory = shown.number;
  if (shown.memory != nullptr) {
    mine.sent.offset = static_cast<uint64_t>(static_cast<char *>(request.buffer) - shown.memory->data());
  }
  if (!comm.finish_work(&operation)) return static_cast<ncclResult_t>(comm.state.load());
  mine.sent.is_new = memories.shown.count(shown.number) == 0;
  if (!carry_out_call(comm, &operation)) return static_cast<ncclResult_t>(comm.state.load());
  auto window = std::make_shared<RankWindow>();
  std::vector<const void *> pointers;
  std::vector<Location> locations;
  std::vector<std::pair<int, uint64_t>> awaited;
  bool is_visible = true, is_any_new = false;
  for (int r = 0; r < comm.count; ++r) {
    const Signature &its = comm.other(r).signatures[mine.sequence & 1];
    pointers.push_back(its.send);
    locations.push_back(its.sent);
    window->bytes.push_back(its.extent);
    is_visible = is_visible && (comm.is_one_process || its.sent.memory != 0);
    is_any_new = is_any_new || its.sent.is_new != 0;
    if (its.sent.is_new != 0 && comm.other(r).process.load() != comm.process) awaited.push_back({r, its.sent.memory});
  }
  // All have read the signatures before anybody goes on to write the next one.
  if (!comm.rendezvous(operation)) return static_cast<ncclResult_t>(comm.state.load());
  if (!is_visible) return ncclSuccess;
  if (!comm.is_one_process && is_any_new && !comm.exchange(operation, {shown}, awaited)) {
    return static_cast<ncclResult_t>(comm.state.load());
  }
  for (int r = 0; r < comm.count; ++r) {
    const void *pointer = pointers[static_cast<size_t>(r)];
    const Location &location = locations[static_cast<size_t>(r)];
    const bool is_here = comm.other(r).process.load() == comm.process;
    window->bases.push_back(comm.seen(r, pointer, location));
    window->retained.push_back(is_here ? find_shared_memory(pointer, 1).memory : memories.mapped[{r, location.memory}]);
  }
  window->registration = ++memories.last_handle;
  memories.registrations.push_back(
      {window->registration, static_cast<const char *>(request.buffer), request.bytes, shown});
  memories.windows[request.handle] = std::move(window);
  return ncclSuccess;
}

ncclResult_t register_window(ncclComm_t handle, void *buffer, size_t bytes, ncclWindow_t *out, int flags) {
  ncclResult_t code;
  const auto communicator = usable_communicator(handle, &code);
  if (communicator == nullptr) return code;
  if (buffer == nullptr || bytes == 0 || out == nullptr) {
    return refuse(ncclInvalidArgument, "buff or win is NULL, or size is 0");
  }
  if (reinterpret_cast<uintptr_t>(buffer) % NCCL_WIN_REQUIRED_ALIGNMENT != 0) {
    return refuse(ncclInvalidArgument, "buff is not aligned to 4096 bytes; memory of ncclMemAlloc is");
  }
  if ((flags & ~(NCCL_WIN_COLL_SYMMETRIC | NCCL_WIN_STRICT_ORDERING)) != 0) {
    return refuse(ncclInvalidArgument, "winFlags " + std::to_string(flags) + " are unknown");
  }
  const ncclWindow_t window = handle_of(*communicator, ++communicator->memories.last_handle);
  const Request request{buffer, bytes, flags, reinterpret_cast<uint64_t>(window)};
  if (in_group()) {
    // The result's address may be gone at the group's end: bindings give that of a temporary object.
    *out = window;
    const auto job = [=]() -> ncclResult_t {
      const ncclResult_t opened = open_window(communicator, request);
      if (opened != ncclSuccess || find_window(*communicator, window) != nullptr) return opened;
      return refuse(ncclInvalidUsage,
                    "a rank's memory is not from ncclMemAlloc: ranks of other processes cannot see it");
    };
    return submit_job({job, communicator, nullptr});
  }
  *out = nullptr;
  code = open_window(communicator, request);
  if (code == ncclSuccess && find_window(*communicator, window) != nullptr) *out = window;
  return code;
}

template <class Body>
ncclResult_t with_window(ncclComm_t comm, ncclWindow_t handle, Body body) {
  return rccl_call([&]() -> ncclResult_t {
    const auto communicator = find_communicator(comm);
    if (communicator == nullptr) return refuse(ncclInvalidArgument, "comm is not a communicator of this process");
    const auto window = find_window(*communicator, handle);
    if (window == nullptr) return refuse(ncclInvalidArgument, "win is not a window of this communicator");
    return body(*communicator, window);
  });
}

// A rank that is signalled, and which of its signals: there is one for each pair of ranks.
struct Signal {
  int peer, index = 0, context = 0;
  unsigned flags = 0;
};

ncclResult_t check_signal(const Communicator &communicator, const Signal &signal) {
  const auto [peer, index, context, flags] = signal;
  if (peer < 0 || peer >= communicator.count) {
    return refuse(ncclInvalidArgument, "peer " + std::to_string(peer) + " is not one of the " +
                                           std::to_string(communicator.count) + " ranks");
  }
  if (index != 0 || context != 0 || flags != 0) {
    return refuse(ncclInvalidArgument, "sigIdx, ctx and flags must be 0, as in RCCL 2.30");
  }
  return ncclSuccess;
}

// What a put copies to another rank: `count` elements, to an offset in that rank's memory of a window.
struct Put {
  const void *local;
  size_t count;
  int type;
  ncclWindow_t window;
  size_t offset;
};

ncclResult_t set_put(const Communicator &communicator, const Put &put, Operation *operation) {
  const auto rank = static_cast<size_t>(communicator.rank), peer = static_cast<size_t>(operation->peer);
  const auto target = find_window(communicator, put.window);
  if (target == nullptr) return refuse(ncclInvalidArgument, "peerWin is not a window of this communicator");
  const size_t size = bytes_of_type(put.type), bytes = put.count * size, capacity = target->bytes[peer];
  if (size == 0 || put.count > size_t{1} << 48 || put.offset > capacity || bytes > capacity - put.offset) {
    return refuse(ncclInvalidArgument, "count elements at the offset are more than the " + std::to_string(capacity) +
                                           " bytes of the peer's window, or the type is not one of RCCL's");
  }
  const char *first = static_cast<const char *>(put.local);
  const auto &windows = communicator.memories.windows;
  const bool is_inside = std::any_of(windows.begin(), windows.end(), [&](const auto &one) {
    const char *base = one.second->bases[rank];
    return first >= base && first + bytes <= base + one.second->bytes[rank];
  });
  if (bytes != 0 && !is_inside) {
    return refuse(ncclInvalidArgument, "localbuff must be in a window of this communicator");
  }
  operation->signature.kind = Kind::put;
  operation->signature.type = put.type;
  operation->signature.count = put.count;
  operation->signature.send = put.local;
  operation->signature.recv = target->bases[peer] + put.offset;
  operation->retained.push_back(target);
  return ncclSuccess;
}

// Signals a rank, after what is put there, if anything is.
ncclResult_t signal_call(const Signal &signal, const Put *put, ncclComm_t comm, hipStream_t stream) {
  return fail_group(rccl_call([&]() -> ncclResult_t {
    ncclResult_t code;
    const auto communicator = usable_communicator(comm, &code);
    if (communicator == nullptr) return code;
    code = check_signal(*communicator, signal);
    if (code != ncclSuccess) return code;
    Operation operation;
    operation.peer = signal.peer;
    operation.signature.kind = Kind::signal;
    operation.signature.type = ncclUint8;
    if (put != nullptr) code = set_put(*communicator, *put, &operation);
    return code == ncclSuccess ? submit(communicator, std::move(operation), stream) : code;
  }));
}

}  // namespace

bool carry_out_put(Communicator &communicator, const Operation &operation) {
  const Signature &signature = operation.signature;
  if (operation.peer != communicator.rank && !communicator.can_take(operation, operation.peer)) return false;
  if (signature.kind == Kind::put) {
    if (!communicator.begin_reading(operation, operation.peer)) return false;
    communicator.write(operation.peer, signature.send, signature.recv, signature.count * bytes_of_type(signature.type));
    if (!communicator.end_reading(operation, operation.peer)) return false;
  }
  communicator.segment->pair(communicator.rank, operation.peer).signals.fetch_add(1);
  Bell &bell = communicator.other(operation.peer).bell;
  bell.word.fetch_add(1);
  announce(bell);
  return true;
}

bool carry_out_wait(Communicator &communicator, const Operation &operation) {
  Bell &bell = communicator.self().bell;
  const std::vector<uint64_t> &wanted = *operation.tables;  // pairs of a rank and its number of signals
  const auto has_come = [&](size_t i) {
    const auto from = static_cast<size_t>(wanted[i]);
    const uint32_t came = communicator.segment->pair(static_cast<int>(from), communicator.rank).signals.load();
    return came - communicator.signals_used[from] >= wanted[i + 1];
  };
  const auto ready = [&] {
    for (size_t i = 0; i < wanted.size(); i += 2) {
      if (!has_come(i)) return false;
    }
    return true;
  };
  const auto missing = [&] {
    std::vector<int> ranks;
    for (size_t i = 0; i < wanted.size(); i += 2) {
      if (!has_come(i)) ranks.push_back(static_cast<int>(wanted[i]));
    }
    return ranks;
  };
  if (!communicator.wait(bell, operation, ready, missing)) return false;
  for (size_t i = 0; i < wanted.size(); i += 2) {
    communicator.signals_used[wanted[i]] += static_cast<uint32_t>(wanted[i + 1]);
  }
  return true;
}

}  // namespace rocpy_host

using namespace rocpy_host;

ncclResult_t rocpy_host_ncclCommWindowRegister(ncclComm_t comm, void *buffer, size_t size, ncclWindow_t *window,
                                               int flags) {
  return fail_group(rccl_call([=] { return register_window(comm, buffer, size, window, flags); }));
}

ncclResult_t rocpy_host_ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window) {
  return with_window(comm, window, [=](Communicator &communicator, const std::shared_ptr<RankWindow> &match) {
    auto &all = communicator.memories.registrations;
    all.erase(std::remove_if(all.begin(), all.end(),
                             [&](const Registration &one) { return one.handle == match->registration; }),
              all.end());
    communicator.memories.windows.erase(reinterpret_cast<uint64_t>(window));
    return ncclSuccess;
  });
}

ncclResult_t rocpy_host_ncclWinGetUserPtr(ncclComm_t comm, ncclWindow_t window, void **ptr) {
  if (ptr == nullptr) return refuse(ncclInvalidArgument, "outUserPtr is NULL");
  return with_window(comm, window, [=](Communicator &communicator, const std::shared_ptr<RankWindow> &match) {
    *ptr = match->bases[static_cast<size_t>(communicator.rank)];
    return ncclSuccess;
  });
}

ncclResult_t rocpy_host_rocpyExtWinLeasePeer(ncclComm_t comm, ncclWindow_t window, int peer, void **ptr, size_t *bytes,
                                             void **lease) {
  if (ptr == nullptr || bytes == nullptr || lease == nullptr) {
    return refuse(ncclInvalidArgument, "ptr, bytes or lease is NULL");
  }
  return with_window(comm, window, [=](Communicator &communicator, const std::shared_ptr<RankWindow> &match) {
    const ncclResult_t code = check_signal(communicator, {peer});
    if (code != ncclSuccess) return code;
    const auto index = static_cast<size_t>(peer);
    *lease = new std::shared_ptr<SharedMemory>(match->retained[index]);
    *ptr = match->bases[index];
    *bytes = match->bytes[index];
    return ncclSuccess;
  });
}

ncclResult_t rocpy_host_rocpyExtWinEndLease(void *lease) {
  delete static_cast<std::shared_ptr<SharedMemory> *>(lease);
  return ncclSuccess;
}

ncclResult_t rocpy_host_ncclPutSignal(const void *local, size_t count, ncclDataType_t type, int peer,
                                      ncclWindow_t window, size_t offset, int signal, int context, unsigned int flags,
                                      ncclComm_t comm, hipStream_t stream) {
  const Put put{local, count, type, window, offset};
  return signal_call({peer, signal, context, flags}, &put, comm, stream);
}

ncclResult_t rocpy_host_ncclSignal(int peer, int signal, int context, unsigned int flags, ncclComm_t comm,
                                   hipStream_t stream) {
  return signal_call({peer, signal, context, flags}, nullptr, comm, stream);
}

ncclResult_t rocpy_host_ncclWaitSignal(int count, ncclWaitSignalDesc_t *signals, ncclComm_t comm, hipStream_t stream) {
  return fail_group(rccl_call([=]() -> ncclResult_t {
    ncclResult_t code;
    const auto communicator = usable_communicator(comm, &code);
    if (communicator == nullptr) return code;
    if (count < 1 || signals == nullptr) return refuse(ncclInvalidArgument, "signalDescs is NULL, or nDesc below 1");
    Operation operation;
    operation.signature.kind = Kind::wait_signal;
    operation.tables = std::make_shared<std::vector<uint64_t>>();
    for (int i = 0; i < count; ++i) {
      code = check_signal(*communicator, {signals[i].peer, signals[i].sigIdx, signals[i].ctx});
      if (code != ncclSuccess) return code;
      if (signals[i].opCnt < 1) return refuse(ncclInvalidArgument, "opCnt must be 1 or more");
      for (int j = 0; j < i; ++j) {
        if (signals[j].peer == signals[i].peer) {
          return refuse(ncclInvalidArgument, "signalDescs names rank " + std::to_string(signals[i].peer) + " twice");
        }
      }
      operation.tables->insert(operation.tables->end(),
                               {static_cast<uint64_t>(signals[i].peer), static_cast<uint64_t>(signals[i].opCnt)});
    }
    return submit(communicator, std::move(operation), stream);
  }));
}
