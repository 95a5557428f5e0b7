// SPDX-License-Identifier: MIT
// RCCL rows about a communicator that is there: what it is, its errors, its end; and the rows about
// parameters, of which the host platform has none.
#include "rccl_comm.hpp"

#include "exports.h"
#include "window.hpp"

#include <cstdlib>
#include <cstring>

namespace rocpy_host {

namespace {

template <class Value, class Read>
ncclResult_t query(ncclComm_t handle, Value *out, Read read) {
  return rccl_call([&] {
    const auto communicator = find_communicator(handle);
    if (communicator == nullptr || out == nullptr) {
      return refuse(ncclInvalidArgument, "comm is not a communicator of this process, or the result's address is NULL");
    }
    *out = read(*communicator);
    return ncclSuccess;
  });
}

// Work has ended, the memory is given back, the others see that this rank is gone.
void leave(const std::shared_ptr<Communicator> &communicator, Presence presence) {
  communicator->background.wait();
  if (communicator->segment != nullptr && communicator->self().process.load() == communicator->process) {
    RankState &mine = communicator->self();
    // One that has given up stays so: the others are to know that it did not leave in good order.
    Presence before = mine.presence.load();
    while ((before == Presence::present || before == Presence::finalized) &&
           !mine.presence.compare_exchange_weak(before, presence)) {
    }
    mine.has_left = true;
    communicator->rouse();
    wake_word(&communicator->segment->header().attached);
  }
  retire_communicator(communicator->handle);
}

// RCCL's parameters steer networks, channels and kernels: there are none here.
ncclResult_t no_parameter(const char *key) {
  if (key == nullptr) return refuse(ncclInvalidArgument, "key is NULL");
  return refuse(ncclInvalidArgument, std::string("the host platform has no parameters, so not ") + key + " either");
}
ncclResult_t no_handle() { return refuse(ncclInvalidArgument, "handle was not returned by ncclParamBind"); }

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
  return query(comm, error, [](Communicator &communicator) {
    const ncclResult_t state = communicator.async_error();
    // Now this thread knows of the failure: it is what it asks about next.
    if (state != ncclSuccess && state != ncclInProgress) refuse(state, communicator.failure().text);
    return state;
  });
}

ncclResult_t rocpy_host_ncclCommFinalize(ncclComm_t comm) {
  return fail_group(rccl_call([=]() -> ncclResult_t {
    const auto match = find_communicator(comm);
    if (match != nullptr && match->is_finalizing.load()) {
      return refuse(ncclInvalidArgument, "the communicator was finalized already");
    }
    ncclResult_t code;
    const auto communicator = usable_communicator(comm, &code);
    if (communicator == nullptr) return code;
    // What was given to streams is done first; then the others may know. Whether they are done too is what the state
    // tells.
    if (communicator->is_finalizing.exchange(true)) {
      return refuse(ncclInvalidArgument, "the communicator was finalized already");
    }
    const auto finish = [communicator] {
      communicator->wait_for_work();
      Presence present = Presence::present;
      communicator->self().presence.compare_exchange_strong(present, Presence::finalized);
      const int state = communicator->state.load();
      return static_cast<ncclResult_t>(state);
    };
    if (communicator->is_blocking) return finish();
    communicator->background.start(finish);
    return ncclInProgress;
  }));
}

ncclResult_t rocpy_host_ncclCommDestroy(ncclComm_t comm) {
  return rccl_call([=]() -> ncclResult_t {
    if (comm == nullptr) return ncclSuccess;
    const auto communicator = find_communicator(comm);
    if (communicator == nullptr) {
      return refuse(ncclInvalidArgument, "comm is not a communicator of this process, or was destroyed");
    }
    if (communicator->pid != process_id()) {
      return refuse(ncclInvalidUsage, "the communicator belongs to the parent process");
    }
    communicator->background.wait();
    communicator->wait_for_work();
    leave(communicator, Presence::left);
    return ncclSuccess;
  });
}

ncclResult_t rocpy_host_ncclCommAbort(ncclComm_t comm) {
  return rccl_call([=]() -> ncclResult_t {
    if (comm == nullptr) return ncclSuccess;
    const auto communicator = find_communicator(comm);
    if (communicator == nullptr) {
      return refuse(ncclInvalidArgument, "comm is not a communicator of this process, or was destroyed");
    }
    if (communicator->pid != process_id()) {
      return refuse(ncclInvalidUsage, "the communicator belongs to the parent process");
    }
    ++communicator->endings;
    communicator->is_aborting = true;
    communicator->background.wait();
    // What runs notices soon; what is still queued will find the communicator aborted.
    communicator->wait_for_running();
    if (communicator->segment != nullptr && communicator->state.load() == ncclSuccess) {
      communicator->fail({"aborted", ncclInvalidUsage, "the communicator was aborted", Kind::none, 0, {}, {}});
    }
    leave(communicator, Presence::aborted);
    return ncclSuccess;
  });
}

ncclResult_t rocpy_host_ncclCommRevoke(ncclComm_t comm, int flags) {
  return rccl_call([=]() -> ncclResult_t {
    if (flags != NCCL_REVOKE_DEFAULT) return refuse(ncclInvalidArgument, "revokeFlags must be NCCL_REVOKE_DEFAULT");
    const auto match = find_communicator(comm);
    if (match != nullptr && (match->is_revoked.load() || match->is_finalizing.load())) {
      return refuse(ncclInvalidArgument, "the communicator was revoked or finalized already");
    }
    if (match == nullptr || match->pid != process_id() || match->state.load() == ncclInProgress) {
      return refuse(ncclInvalidArgument, "comm is not a communicator of this process, or is not ready yet");
    }
    match->is_revoked = true;
    ++match->endings;
    match->is_aborting = true;
    match->background.wait();
    // What runs notices soon; what is still queued will find the communicator revoked.
    match->wait_for_running();
    if (match->state.load() == ncclSuccess) {
      match->fail({"revoked", ncclInvalidUsage, "the communicator was revoked", Kind::none, 0, {}, {}});
    }
    return ncclSuccess;
  });
}

// Nothing lies in a device's memory alone that could be given back meanwhile: the ranks share all of it. Calls are
// refused as ever.
ncclResult_t rocpy_host_ncclCommSuspend(ncclComm_t comm, int flags) {
  return fail_group(rccl_call([=]() -> ncclResult_t {
    ncclResult_t code;
    const auto communicator = usable_communicator(comm, &code);
    if (communicator == nullptr) return code;
    if (flags != NCCL_SUSPEND_MEM) return refuse(ncclInvalidArgument, "flags must be NCCL_SUSPEND_MEM");
    Operation operation = communicator->make_operation(Kind::suspend);
    if (!communicator->finish_work(&operation)) return static_cast<ncclResult_t>(communicator->state.load());
    communicator->is_suspended = true;
    return ncclSuccess;
  }));
}

ncclResult_t rocpy_host_ncclCommResume(ncclComm_t comm) {
  return fail_group(rccl_call([=]() -> ncclResult_t {
    const auto communicator = find_communicator(comm);
    if (communicator == nullptr) return refuse(ncclInvalidArgument, "comm is not a communicator of this process");
    if (!communicator->is_suspended.exchange(false)) {
      return refuse(ncclInvalidUsage, "the communicator is not suspended");
    }
    return ncclSuccess;
  }));
}

ncclResult_t rocpy_host_ncclCommMemStats(ncclComm_t comm, ncclCommMemStat_t stat, uint64_t *value) {
  if (stat < ncclStatGpuMemSuspend || stat > ncclStatGpuMemTotal) {
    return refuse(ncclInvalidArgument, "stat is not a ncclCommMemStat_t");
  }
  return query(comm, value, [=](Communicator &communicator) -> uint64_t {
    if (stat == ncclStatGpuMemSuspended) return communicator.is_suspended.load() ? 1 : 0;
    const auto segment = communicator.joined();
    const bool is_persistent = stat == ncclStatGpuMemPersist || stat == ncclStatGpuMemTotal;
    return is_persistent && segment != nullptr ? segment->block().bytes() : 0;
  });
}

ncclResult_t rocpy_host_rocpyExtCommSetPatience(ncclComm_t comm, uint64_t nanoseconds) {
  return fail_group(rccl_call([=] {
    const auto communicator = find_communicator(comm);
    if (communicator == nullptr) return refuse(ncclInvalidArgument, "comm is not a communicator of this process");
    communicator->patience_ns = nanoseconds;
    return ncclSuccess;
  }));
}

ncclResult_t rocpy_host_rocpyExtCommDescribe(ncclComm_t comm, const char *text) {
  return fail_group(rccl_call([=] {
    const auto communicator = find_communicator(comm);
    if (communicator == nullptr) return refuse(ncclInvalidArgument, "comm is not a communicator of this process");
    Description description;
    const size_t length = text == nullptr ? 0 : std::strlen(text);
    if (length >= sizeof description.text) {
      return refuse(ncclInvalidArgument, "text has " + std::to_string(length) + " bytes, at most " +
                                             std::to_string(sizeof description.text - 1) + " can be compared");
    }
    if (length != 0) std::memcpy(description.text, text, length);
    communicator->description = description;
    return ncclSuccess;
  }));
}

ncclResult_t rocpy_host_ncclParamBind(ncclParamHandle_t **, const char *key) { return no_parameter(key); }
ncclResult_t rocpy_host_ncclParamGetI8(ncclParamHandle_t *, int8_t *) { return no_handle(); }
ncclResult_t rocpy_host_ncclParamGetI16(ncclParamHandle_t *, int16_t *) { return no_handle(); }
ncclResult_t rocpy_host_ncclParamGetI32(ncclParamHandle_t *, int32_t *) { return no_handle(); }
ncclResult_t rocpy_host_ncclParamGetI64(ncclParamHandle_t *, int64_t *) { return no_handle(); }
ncclResult_t rocpy_host_ncclParamGetU8(ncclParamHandle_t *, uint8_t *) { return no_handle(); }
ncclResult_t rocpy_host_ncclParamGetU16(ncclParamHandle_t *, uint16_t *) { return no_handle(); }
ncclResult_t rocpy_host_ncclParamGetU32(ncclParamHandle_t *, uint32_t *) { return no_handle(); }
ncclResult_t rocpy_host_ncclParamGetU64(ncclParamHandle_t *, uint64_t *) { return no_handle(); }
ncclResult_t rocpy_host_ncclParamGetStr(ncclParamHandle_t *, const char **) { return no_handle(); }
ncclResult_t rocpy_host_ncclParamGet(ncclParamHandle_t *, void *, int, int *) { return no_handle(); }
ncclResult_t rocpy_host_ncclParamGetParameter(const char *key, const char **, int *) { return no_parameter(key); }
void rocpy_host_ncclParamDumpAll(void) {}

// There are no parameters, and that is a complete list.
ncclResult_t rocpy_host_ncclParamGetAllParameterKeys(const char ***keys, int *count) {
  static const char *none[1] = {nullptr};
  if (keys == nullptr || count == nullptr) return refuse(ncclInvalidArgument, "table or tableLen is NULL");
  *keys = none;
  *count = 0;
  return ncclSuccess;
}
