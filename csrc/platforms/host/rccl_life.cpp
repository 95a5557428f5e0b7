// SPDX-License-Identifier: MIT
// RCCL rows about a communicator that is there: what it is, its errors, its end; and the rows that the host platform
// lacks.
#include "rccl_comm.hpp"

#include "exports.h"
#include "window.hpp"

#include <cstdlib>

namespace rocpy_host {

namespace {

template <class Value, class Read>
ncclResult_t query(ncclComm_t handle, Value *out, Read read) {
  return rccl_call([&] {
    const auto communicator = find_communicator(handle);
    if (communicator == nullptr || out == nullptr) {
      return refuse(ncclInvalidArgument, "comm is no communicator of this process, or the result's address is NULL");
    }
    *out = read(*communicator);
    return ncclSuccess;
  });
}

// Work has ended, the memory is given back, the others see that this rank is gone.
void leave(const std::shared_ptr<Communicator> &communicator, Presence presence) {
  if (communicator->background.joinable()) communicator->background.join();
  if (communicator->segment != nullptr && communicator->self().process.load() == communicator->process) {
    RankState &mine = communicator->self();
    // One that has given up stays so: the others are to know that it did not leave in good order.
    Presence before = mine.presence.load();
    while ((before == Presence::present || before == Presence::finalized) &&
           !mine.presence.compare_exchange_weak(before, presence)) {
    }
    Header &header = communicator->segment->header();
    announce(header, mine.step);
    wake_word(&header.attached);
  }
  retire_communicator(communicator->handle);
}

ncclResult_t lacking(const char *function) {
  return fail_group(refuse(ncclInvalidUsage, std::string("the host platform has no ") + function));
}

}  // namespace

}  // namespace rocpy_host

using namespace rocpy_host;

ncclResult_t rocpy_host_ncclGetVersion(int *version) {
  if (version == nullptr) return refuse(ncclInvalidArgument, "version is NULL");
  *version = window().rccl;
  return ncclSuccess;
}

const char *rocpy_host_ncclGetErrorString(ncclResult_t result) {
  static const char *const texts[] = {"no error",
                                      "unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
                                      "unhandled system error (run with NCCL_DEBUG=INFO for details)",
                                      "internal error - please report this issue to the NCCL developers",
                                      "invalid argument (run with NCCL_DEBUG=WARN for details)",
                                      "invalid usage (run with NCCL_DEBUG=WARN for details)",
                                      "remote process exited or there was a network error",
                                      "NCCL operation in progress",
                                      "operation timed out"};
  const auto index = static_cast<unsigned>(result);
  return index < sizeof texts / sizeof texts[0] ? texts[index] : "unknown result code";
}

void rocpy_host_ncclResetDebugInit(void) {}

ncclResult_t rocpy_host_ncclCommCount(ncclComm_t comm, int *count) {
  return query(comm, count, [](Communicator &communicator) { return communicator.count; });
}

ncclResult_t rocpy_host_ncclCommCuDevice(ncclComm_t comm, int *device) {
  return query(comm, device, [](Communicator &communicator) { return communicator.device; });
}

ncclResult_t rocpy_host_ncclCommUserRank(ncclComm_t comm, int *rank) {
  return query(comm, rank, [](Communicator &communicator) { return communicator.rank; });
}

ncclResult_t rocpy_host_ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error) {
  return query(comm, error, [](Communicator &communicator) { return communicator.async_error(); });
}

ncclResult_t rocpy_host_ncclCommFinalize(ncclComm_t comm) {
  return fail_group(rccl_call([=]() -> ncclResult_t {
    const auto found = find_communicator(comm);
    if (found != nullptr && found->is_finalizing.load())
      return refuse(ncclInvalidArgument, "the communicator was finalized already");
    ncclResult_t code;
    const auto communicator = usable_communicator(comm, &code);
    if (communicator == nullptr) return code;
    // What was given to streams is done first; then the others may know. Whether they are done too is what the state
    // tells.
    communicator->is_finalizing = true;
    const auto finish = [communicator] {
      communicator->wait_for_work(false);
      Presence present = Presence::present;
      communicator->self().presence.compare_exchange_strong(present, Presence::finalized);
      const int state = communicator->state.load();
      return static_cast<ncclResult_t>(state);
    };
    if (communicator->is_blocking) return finish();
    communicator->background.joinable() ? communicator->background.join() : void();
    communicator->background = std::thread(finish);
    return ncclInProgress;
  }));
}

ncclResult_t rocpy_host_ncclCommDestroy(ncclComm_t comm) {
  return rccl_call([=]() -> ncclResult_t {
    if (comm == nullptr) return ncclSuccess;
    const auto communicator = find_communicator(comm);
    if (communicator == nullptr)
      return refuse(ncclInvalidArgument, "comm is no communicator of this process, or was destroyed");
    if (communicator->pid != process_id())
      return refuse(ncclInvalidUsage, "the communicator belongs to the parent process");
    if (communicator->background.joinable()) communicator->background.join();
    communicator->wait_for_work(false);
    leave(communicator, Presence::left);
    return ncclSuccess;
  });
}

ncclResult_t rocpy_host_ncclCommAbort(ncclComm_t comm) {
  return rccl_call([=]() -> ncclResult_t {
    if (comm == nullptr) return ncclSuccess;
    const auto communicator = find_communicator(comm);
    if (communicator == nullptr)
      return refuse(ncclInvalidArgument, "comm is no communicator of this process, or was destroyed");
    if (communicator->pid != process_id())
      return refuse(ncclInvalidUsage, "the communicator belongs to the parent process");
    communicator->is_aborting = true;
    if (communicator->background.joinable()) communicator->background.join();
    // What runs notices soon; what is still queued will find the communicator aborted.
    while (communicator->running.load() != 0) yield_processor();
    if (communicator->segment != nullptr && communicator->state.load() == ncclSuccess) {
      communicator->fail({"aborted", ncclInvalidUsage, "the communicator was aborted", Kind::none, 0, {}, {}});
    }
    leave(communicator, Presence::aborted);
    return ncclSuccess;
  });
}

ncclResult_t rocpy_host_ncclCommRevoke(ncclComm_t, int flags) {
  return rccl_call([=] {
    if (flags != NCCL_REVOKE_DEFAULT) return refuse(ncclInvalidArgument, "revokeFlags must be NCCL_REVOKE_DEFAULT");
    return lacking("ncclCommRevoke");
  });
}

ncclResult_t rocpy_host_rocpyExtCommSetPatience(ncclComm_t comm, uint64_t nanoseconds) {
  return rccl_call([=] {
    const auto communicator = find_communicator(comm);
    if (communicator == nullptr) return refuse(ncclInvalidArgument, "comm is no communicator of this process");
    communicator->patience_ns = nanoseconds;
    return ncclSuccess;
  });
}

// Memory for collectives is memory of the device here: all of it can be reached by every rank of the process.
ncclResult_t rocpy_host_ncclMemAlloc(void **ptr, size_t size) {
  if (ptr == nullptr) return refuse(ncclInvalidArgument, "ptr is NULL");
  return rocpy_host_hipMalloc(ptr, size) == hipSuccess
             ? ncclSuccess
             : refuse(ncclUnhandledCudaError, "hipMalloc failed: out of memory");
}

ncclResult_t rocpy_host_ncclMemFree(void *ptr) {
  return rocpy_host_hipFree(ptr) == hipSuccess ? ncclSuccess
                                               : refuse(ncclInvalidArgument, "ptr is not of ncclMemAlloc");
}

// Registration is a hint, which the host platform has no use for: the handle is good for ncclCommDeregister alone.
ncclResult_t rocpy_host_ncclCommRegister(ncclComm_t comm, void *buffer, size_t size, void **handle) {
  return fail_group(rccl_call([=] {
    ncclResult_t code;
    if (usable_communicator(comm, &code) == nullptr) return code;
    if (buffer == nullptr || size == 0 || handle == nullptr)
      return refuse(ncclInvalidArgument, "buff or handle is NULL, or size is 0");
    *handle = buffer;
    return ncclSuccess;
  }));
}

ncclResult_t rocpy_host_ncclCommDeregister(ncclComm_t comm, void *handle) {
  return rccl_call([=] {
    if (find_communicator(comm) == nullptr || handle == nullptr)
      return refuse(ncclInvalidArgument, "comm or handle is wrong");
    return ncclSuccess;
  });
}

// Success with a NULL window is RCCL's way to say that windows are not supported.
ncclResult_t rocpy_host_ncclCommWindowRegister(ncclComm_t comm, void *buffer, size_t size, ncclWindow_t *window, int) {
  return fail_group(rccl_call([=] {
    ncclResult_t code;
    if (usable_communicator(comm, &code) == nullptr) return code;
    if (buffer == nullptr || size == 0 || window == nullptr)
      return refuse(ncclInvalidArgument, "buff or win is NULL, or size is 0");
    *window = nullptr;
    return ncclSuccess;
  }));
}

ncclResult_t rocpy_host_ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window) {
  if (find_communicator(comm) != nullptr && window == nullptr) return ncclSuccess;
  return refuse(ncclInvalidArgument, "win is no window of this communicator");
}

ncclResult_t rocpy_host_ncclWinGetUserPtr(ncclComm_t, ncclWindow_t, void **) { return lacking("ncclWinGetUserPtr"); }
ncclResult_t rocpy_host_ncclCommGetUniqueId(ncclComm_t, ncclUniqueId *) { return lacking("ncclCommGetUniqueId"); }
ncclResult_t rocpy_host_ncclCommGrow(ncclComm_t, int, const ncclUniqueId *, int, ncclComm_t *, ncclConfig_t *) {
  return lacking("ncclCommGrow");
}
ncclResult_t rocpy_host_ncclCommSuspend(ncclComm_t, int) { return lacking("ncclCommSuspend"); }
ncclResult_t rocpy_host_ncclCommResume(ncclComm_t) { return lacking("ncclCommResume"); }
ncclResult_t rocpy_host_ncclCommMemStats(ncclComm_t, ncclCommMemStat_t, uint64_t *) {
  return lacking("ncclCommMemStats");
}
ncclResult_t rocpy_host_ncclPutSignal(const void *, size_t, ncclDataType_t, int, ncclWindow_t, size_t, int, int,
                                      unsigned int, ncclComm_t, hipStream_t) {
  return lacking("ncclPutSignal");
}
ncclResult_t rocpy_host_ncclSignal(int, int, int, unsigned int, ncclComm_t, hipStream_t) {
  return lacking("ncclSignal");
}
ncclResult_t rocpy_host_ncclWaitSignal(int, ncclWaitSignalDesc_t *, ncclComm_t, hipStream_t) {
  return lacking("ncclWaitSignal");
}
ncclResult_t rocpy_host_ncclParamBind(ncclParamHandle_t **, const char *) { return lacking("ncclParamBind"); }
ncclResult_t rocpy_host_ncclParamGetI8(ncclParamHandle_t *, int8_t *) { return lacking("ncclParamGetI8"); }
ncclResult_t rocpy_host_ncclParamGetI16(ncclParamHandle_t *, int16_t *) { return lacking("ncclParamGetI16"); }
ncclResult_t rocpy_host_ncclParamGetI32(ncclParamHandle_t *, int32_t *) { return lacking("ncclParamGetI32"); }
ncclResult_t rocpy_host_ncclParamGetI64(ncclParamHandle_t *, int64_t *) { return lacking("ncclParamGetI64"); }
ncclResult_t rocpy_host_ncclParamGetU8(ncclParamHandle_t *, uint8_t *) { return lacking("ncclParamGetU8"); }
ncclResult_t rocpy_host_ncclParamGetU16(ncclParamHandle_t *, uint16_t *) { return lacking("ncclParamGetU16"); }
ncclResult_t rocpy_host_ncclParamGetU32(ncclParamHandle_t *, uint32_t *) { return lacking("ncclParamGetU32"); }
ncclResult_t rocpy_host_ncclParamGetU64(ncclParamHandle_t *, uint64_t *) { return lacking("ncclParamGetU64"); }
ncclResult_t rocpy_host_ncclParamGetStr(ncclParamHandle_t *, const char **) { return lacking("ncclParamGetStr"); }
ncclResult_t rocpy_host_ncclParamGet(ncclParamHandle_t *, void *, int, int *) { return lacking("ncclParamGet"); }
ncclResult_t rocpy_host_ncclParamGetParameter(const char *, const char **, int *) {
  return lacking("ncclParamGetParameter");
}
void rocpy_host_ncclParamDumpAll(void) {}

// There are no parameters, and that is a complete list.
ncclResult_t rocpy_host_ncclParamGetAllParameterKeys(const char ***keys, int *count) {
  static const char *none[1] = {nullptr};
  if (keys == nullptr || count == nullptr) return refuse(ncclInvalidArgument, "table or tableLen is NULL");
  *keys = none;
  *count = 0;
  return ncclSuccess;
}
