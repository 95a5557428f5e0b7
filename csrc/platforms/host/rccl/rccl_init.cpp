// SPDX-License-Identifier: MIT
// RCCL rows that make communicators: unique ids, configurations, initialisation, split and shrink.
#include "rccl_comm.hpp"

#include <algorithm>
#include <climits>
#include <cstring>
#include "exports.h"

namespace rocpy_host {

namespace {

constexpr char id_magic[8] = {'r', 'o', 'c', 'p', 'y', 'i', 'd', '1'};

// Each field in the order of the struct, with the version that brought it (facts of rccl.h 2.30.4) and its range; a
// field that the caller's version does not have is unset.
struct Range {
  size_t offset;
  unsigned since;
  int low, high;
  const char *name;
};
#define FIELD(name, since, low, high) {offsetof(ncclConfig_t, name), since, low, high, #name}
constexpr Range ranges[] = {FIELD(blocking, 21400, 0, 1),
                            FIELD(cgaClusterSize, 21700, 0, INT_MAX),
                            FIELD(minCTAs, 21700, 1, INT_MAX),
                            FIELD(maxCTAs, 21700, 1, INT_MAX),
                            FIELD(splitShare, 21803, 0, 1),
                            FIELD(trafficClass, 22500, INT_MIN + 1, INT_MAX),
                            FIELD(collnetEnable, 22700, 0, INT_MAX),
                            FIELD(CTAPolicy, 22700, 0, INT_MAX),
                            FIELD(shrinkShare, 22700, 0, 1),
                            FIELD(nvlsCTAs, 22700, 1, INT_MAX),
                            FIELD(nChannelsPerNetPeer, 22800, 1, INT_MAX),
                            FIELD(nvlinkCentricSched, 22800, 0, 1),
                            FIELD(graphUsageMode, 22900, 0, 2),
                            FIELD(numRmaCtx, 22900, 0, INT_MAX),
                            FIELD(maxP2pPeers, 23000, 1, INT_MAX)};
#undef FIELD

int *field_of(ncclConfig_t *config, const Range &range) {
  return reinterpret_cast<int *>(reinterpret_cast<char *>(config) + range.offset);
}

ncclConfig_t unset_config() {
  ncclConfig_t config{};
  config.size = sizeof config;
  config.magic = NCCL_CONFIG_MAGIC;
  config.version = NCCL_VERSION_CODE;
  for (const Range &range : ranges) *field_of(&config, range) = NCCL_CONFIG_UNDEF_INT;
  return config;
}

ncclResult_t read_config(const ncclConfig_t *requested, ncclConfig_t *config) {
  if (requested == nullptr) return ncclSuccess;
  if (requested->magic != NCCL_CONFIG_MAGIC) {
    return refuse(ncclInvalidArgument, "config is not initialised: its magic number is wrong");
  }
  if (requested->size < offsetof(ncclConfig_t, blocking)) return refuse(ncclInvalidArgument, "config has no size");
  std::memcpy(config, requested, std::min(requested->size, sizeof *config));
  for (const Range &range : ranges) {
    int *value = field_of(config, range);
    if (requested->version < range.since) *value = NCCL_CONFIG_UNDEF_INT;
    if (*value == NCCL_CONFIG_UNDEF_INT || (*value >= range.low && *value <= range.high)) continue;
    return refuse(ncclInvalidArgument, std::string("config.") + range.name + " is " + std::to_string(*value));
  }
  if (requested->version < 22700) config->commName = nullptr;
  if (config->minCTAs != NCCL_CONFIG_UNDEF_INT && config->maxCTAs != NCCL_CONFIG_UNDEF_INT &&
      config->minCTAs > config->maxCTAs) {
    return refuse(ncclInvalidArgument, "config.minCTAs is larger than config.maxCTAs");
  }
  return ncclSuccess;
}

ncclResult_t read_id(const ncclUniqueId &id, SharedBlock::Key *key) {
  if (std::memcmp(id.internal, id_magic, sizeof id_magic) != 0) {
    return refuse(ncclInvalidArgument, "commId was not made by ncclGetUniqueId of this library");
  }
  std::memcpy(key->bytes, id.internal + sizeof id_magic, sizeof key->bytes);
  return ncclSuccess;
}

std::shared_ptr<Communicator> make_communicator(int count, int rank, const SharedBlock::Key &key,
                                                const ncclConfig_t &config) {
  auto communicator = std::make_shared<Communicator>();
  communicator->rank = rank;
  communicator->count = count;
  communicator->device = current_device();
  communicator->pid = process_id();
  communicator->process = process_key();
  communicator->key = key;
  communicator->config = config;
  communicator->is_blocking = config.blocking != 0;
  if (config.commName != nullptr) {
    // The caller's string may be gone after the call, and communicators that are made from this one inherit the name.
    communicator->name = config.commName;
    communicator->config.commName = communicator->name.c_str();
  }
  return communicator;
}

// Waits in the call for a blocking communicator, else in a thread of its own; within a group at the group's end. The
// result's address is used within the call alone: bindings give that of an object which may be gone at the group's end.
ncclResult_t start(const std::shared_ptr<Communicator> &communicator, ncclComm_t *out,
                   const std::shared_ptr<Communicator> &parent = nullptr) {
  *out = publish_communicator(communicator);
  const uint64_t caller = thread_id();
  const auto join = [communicator, caller] {
    const ncclResult_t code = communicator->join();
    if (code == ncclSuccess) communicator->segment->caller(communicator->rank).store(caller, std::memory_order_relaxed);
    return code;
  };
  const auto begin = [communicator, join]() -> ncclResult_t {
    if (communicator->is_blocking) return join();
    communicator->background.start([communicator, join] {
      const ncclResult_t code = rccl_call(join);
      if (code == ncclSuccess || communicator->state.load() != ncclInProgress) return;
      communicator->fail({"init", code, own_last_words(), Kind::none, 0, {}, {}});
    });
    return ncclInProgress;
  };
  if (in_group()) return submit_job({begin, parent, communicator});
  const ncclResult_t code = rccl_call(begin);
  if (code != ncclSuccess && code != ncclInProgress) {
    retire_communicator(communicator->handle);
    *out = nullptr;
  }
  return code;
}

// Each rank needs a device of its own, and all ranks are on this machine.
ncclResult_t check_count(int count) {
  const int there = runtime().device_count;
  if (count <= there) return ncclSuccess;
  return refuse(ncclInvalidUsage, std::to_string(count) + " ranks need a device each, and the host platform has " +
                                      std::to_string(there) + " (ROCPY_HOST_DEVICES sets how many)");
}

ncclResult_t initialise(ncclComm_t *out, int count, int rank, const ncclUniqueId &id, const ncclConfig_t *requested) {
  if (out == nullptr) return refuse(ncclInvalidArgument, "comm is NULL");
  *out = nullptr;
  if (count < 1 || rank < 0 || rank >= count) {
    return refuse(ncclInvalidArgument, "rank " + std::to_string(rank) + " of " + std::to_string(count) + " ranks");
  }
  ncclConfig_t config = unset_config();
  SharedBlock::Key key;
  ncclResult_t code = check_count(count);
  if (code == ncclSuccess) code = read_config(requested, &config);
  if (code == ncclSuccess) code = read_id(id, &key);
  return code == ncclSuccess ? start(make_communicator(count, rank, key, config), out) : code;
}

// The ranks that a communicator has without some of another's, which may have failed.
Origin recovery_of(const std::shared_ptr<Communicator> &parent, Kind call, const std::vector<bool> &is_excluded) {
  Origin origin(parent, call);
  origin.is_recovery = true;
  origin.is_excluded = is_excluded;
  for (int r = 0; r < parent->count; ++r) {
    if (!is_excluded[static_cast<size_t>(r)]) origin.ranks.push_back(r);
  }
  return origin;
}

// All ranks of a revoked communicator in one that works, for what is made from it.
ncclResult_t replace(std::shared_ptr<Communicator> *revoked) {
  const std::shared_ptr<Communicator> old = *revoked;
  *revoked = make_communicator(old->count, old->rank, old->key, old->config);
  Communicator &created = **revoked;
  created.origin = recovery_of(old, Kind::split, std::vector<bool>(static_cast<size_t>(old->count)));
  created.device = old->device;
  created.patience_ns = old->patience();
  return created.join();
}

ncclResult_t split(std::shared_ptr<Communicator> parent, int color, int key,
                   const std::shared_ptr<Communicator> &created) {
  const auto asked = parent;
  if (parent->is_revoked.load()) {
    const ncclResult_t code = replace(&parent);
    if (code != ncclSuccess) {
      created->fail(parent->failure());
      return code;
    }
  }
  Operation operation = parent->make_operation(Kind::split);
  operation.signature.sequence = ++parent->sequence;
  operation.signature.color = color;
  operation.signature.key = key;
  if (!carry_out_call(*parent, &operation)) return static_cast<ncclResult_t>(parent->state.load());
  std::vector<std::pair<int, int>> members;  // key and rank
  for (int r = 0; r < parent->count; ++r) {
    const Signature &other = parent->other(r).signatures[operation.signature.sequence & 1];
    if (other.color == color) members.push_back({other.key, r});
  }
  std::sort(members.begin(), members.end());
  created->origin.emplace(parent, Kind::split);
  for (const auto &member : members) {
    if (member.second == parent->rank) created->rank = static_cast<int>(created->origin->ranks.size());
    created->origin->ranks.push_back(member.second);
  }
  created->count = static_cast<int>(members.size());
  // All have read the colors before anybody goes on to write the next signature.
  if (!parent->rendezvous(operation)) return static_cast<ncclResult_t>(parent->state.load());
  if (color == NCCL_SPLIT_NOCOLOR) return ncclSuccess;
  created->key = child_key(parent->key, operation.signature.sequence, static_cast<uint32_t>(color));
  const uint64_t caller = asked->segment->caller(asked->rank).load();
  created->patience_ns = parent->patience();
  const ncclResult_t code = created->join();
  created->patience_ns = 0;
  if (code == ncclSuccess) created->segment->caller(created->rank).store(caller, std::memory_order_relaxed);
  return code;
}

// What a split came to. A nonblocking communicator that has a handle says itself why its ranks did not come together,
// as after ncclCommShrink.
ncclResult_t report_split(const std::shared_ptr<Communicator> &parent, const std::shared_ptr<Communicator> &created,
                          bool has_handle, ncclResult_t code) {
  const Failure failure = created->failure();
  if (code == ncclSuccess || failure.kind == nullptr) return code;
  begin_call(parent->handle);
  refuse(code, failure.text);
  return has_handle && !created->is_blocking ? ncclSuccess : code;
}

// The old ranks of a growing communicator learn the key from the one that was given the id.
ncclResult_t find_key(Communicator &parent, const ncclUniqueId *id, SharedBlock::Key *key) {
  Operation operation = parent.make_operation(Kind::grow);
  Signature &mine = operation.signature;
  mine.color = id != nullptr;
  if (id != nullptr) {
    const ncclResult_t code = read_id(*id, key);
    if (code != ncclSuccess) return code;
    std::memcpy(&mine.sent.memory, key->bytes, 8);
    std::memcpy(&mine.sent.offset, key->bytes + 8, 8);
  }
  mine.sequence = ++parent.sequence;
  if (!carry_out_call(parent, &operation)) return static_cast<ncclResult_t>(parent.state.load());
  int givers = 0;
  for (int r = 0; r < parent.count; ++r) {
    const Signature &its = parent.other(r).signatures[mine.sequence & 1];
    if (its.color == 0) continue;
    ++givers;
    std::memcpy(key->bytes, &its.sent.memory, 8);
    std::memcpy(key->bytes + 8, &its.sent.offset, 8);
  }
  if (!parent.rendezvous(operation)) return static_cast<ncclResult_t>(parent.state.load());
  if (givers == 1) return ncclSuccess;
  --parent.sequence;  // as of other calls that are refused; all ranks refuse it
  return refuse(ncclInvalidArgument, std::to_string(givers) + " ranks gave a uniqueId, and exactly one must");
}

}  // namespace

}  // namespace rocpy_host

using namespace rocpy_host;

ncclResult_t rocpy_host_ncclGetUniqueId(ncclUniqueId *id) {
  return rccl_call([=] {
    if (id == nullptr) return refuse(ncclInvalidArgument, "uniqueId is NULL");
    std::memset(id, 0, sizeof *id);
    std::memcpy(id->internal, id_magic, sizeof id_magic);
    return random_bytes(id->internal + sizeof id_magic, sizeof(SharedBlock::Key))
               ? ncclSuccess
               : refuse(ncclSystemError, "no random numbers");
  });
}

ncclResult_t rocpy_host_ncclCommInitRank(ncclComm_t *comm, int count, ncclUniqueId id, int rank) {
  return fail_group(rccl_call([&] { return initialise(comm, count, rank, id, nullptr); }));
}

ncclResult_t rocpy_host_ncclCommInitRankConfig(ncclComm_t *comm, int count, ncclUniqueId id, int rank,
                                               ncclConfig_t *config) {
  return fail_group(rccl_call([&] { return initialise(comm, count, rank, id, config); }));
}

ncclResult_t rocpy_host_ncclCommInitRankScalable(ncclComm_t *comm, int count, int rank, int id_count, ncclUniqueId *ids,
                                                 ncclConfig_t *config) {
  return fail_group(rccl_call([&] {
    if (ids == nullptr || id_count < 1 || id_count > count) {
      return refuse(ncclInvalidArgument, "nId is " + std::to_string(id_count) + ", expected 1 to the number of ranks");
    }
    return initialise(comm, count, rank, ids[0], config);
  }));
}

ncclResult_t rocpy_host_ncclCommInitAll(ncclComm_t *comms, int count, const int *devices) {
  return rccl_call([=] {
    if (comms == nullptr || count < 1) return refuse(ncclInvalidArgument, "comms is NULL, or there is no device");
    const int there = runtime().device_count;
    std::vector<bool> is_used(static_cast<size_t>(there));
    for (int i = 0; i < count; ++i) {
      const int device = devices == nullptr ? i : devices[i];
      if (device < 0 || device >= there) {
        return refuse(devices == nullptr ? ncclInvalidUsage : ncclInvalidArgument,
                      "there is no device " + std::to_string(device) + "; the host platform has " +
                          std::to_string(there) + " (ROCPY_HOST_DEVICES sets how many)");
      }
      if (is_used[static_cast<size_t>(device)]) {
        return refuse(ncclInvalidUsage,
                      "device " + std::to_string(device) + " is listed twice; each rank needs its own");
      }
      is_used[static_cast<size_t>(device)] = true;
    }
    ncclUniqueId id;
    ncclResult_t code = rocpy_host_ncclGetUniqueId(&id);
    if (code != ncclSuccess) return code;
    const int before = current_device();
    std::fill_n(comms, count, nullptr);
    rocpy_host_ncclGroupStart();
    for (int i = 0; i < count && code == ncclSuccess; ++i) {
      set_current_device(devices == nullptr ? i : devices[i]);
      code = initialise(comms + i, count, i, id, nullptr);
    }
    set_current_device(before);
    const ncclResult_t ended = rocpy_host_ncclGroupEnd();
    if (code == ncclSuccess) code = ended;
    for (int i = 0; i < count && code != ncclSuccess; ++i) {
      rocpy_host_ncclCommAbort(comms[i]);
      comms[i] = nullptr;
    }
    return code;
  });
}

ncclResult_t rocpy_host_ncclCommGetUniqueId(ncclComm_t comm, ncclUniqueId *id) {
  ncclResult_t code;
  return usable_communicator(comm, &code) == nullptr ? code : rocpy_host_ncclGetUniqueId(id);
}

ncclResult_t rocpy_host_ncclCommGrow(ncclComm_t comm, int count, const ncclUniqueId *id, int rank, ncclComm_t *out,
                                     ncclConfig_t *requested) {
  return fail_group(rccl_call([=]() -> ncclResult_t {
    if (out == nullptr) return refuse(ncclInvalidArgument, "newcomm is NULL");
    *out = nullptr;
    if (in_group()) return refuse(ncclInvalidUsage, "the host platform grows communicators outside of groups");
    if (comm == nullptr) {
      if (id == nullptr || rank < 0) return refuse(ncclInvalidArgument, "a new rank needs a uniqueId and its rank");
      return initialise(out, count, rank, *id, requested);
    }
    ncclResult_t code;
    const auto parent = usable_communicator(comm, &code);
    if (parent == nullptr) return code;
    if (rank != -1 || count <= parent->count) {
      return refuse(ncclInvalidArgument, "rank " + std::to_string(rank) + " of " + std::to_string(count) +
                                             " ranks: an old rank passes -1, and there must be more than " +
                                             std::to_string(parent->count) + " ranks");
    }
    ncclConfig_t config = parent->config;
    SharedBlock::Key key{};
    code = check_count(count);
    if (code == ncclSuccess) code = read_config(requested, &config);
    if (code == ncclSuccess) code = find_key(*parent, id, &key);
    if (code != ncclSuccess) return code;
    auto created = make_communicator(count, parent->rank, key, config);
    created->origin.emplace(parent, Kind::grow);
    for (int r = 0; r < parent->count; ++r) created->origin->ranks.push_back(r);
    created->device = parent->device;
    return start(created, out);
  }));
}

ncclResult_t rocpy_host_ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *out, ncclConfig_t *requested) {
  return fail_group(rccl_call([&] {
    ncclResult_t code;
    const auto parent = find_parent(comm, &code);
    if (parent == nullptr) return code;
    if (out == nullptr || (color < 0 && color != NCCL_SPLIT_NOCOLOR)) {
      return refuse(ncclInvalidArgument, "newcomm is NULL, or color is negative");
    }
    *out = nullptr;
    ncclConfig_t config = parent->config;
    code = read_config(requested, &config);
    if (code != ncclSuccess) return code;
    // Rank and number of ranks are known once all have called.
    auto created = make_communicator(1, 0, parent->key, config);
    created->device = parent->device;
    if (color != NCCL_SPLIT_NOCOLOR) *out = publish_communicator(created);
    const bool has_handle = color != NCCL_SPLIT_NOCOLOR || !in_group();
    const auto job = [=] { return report_split(parent, created, has_handle, split(parent, color, key, created)); };
    if (in_group()) return submit_job({job, parent, created});
    code = job();
    if (code != ncclSuccess && color != NCCL_SPLIT_NOCOLOR) {
      retire_communicator(created->handle);
      *out = nullptr;
    }
    // What failed has a handle, which says why; without a color too, where the parent was revoked.
    if (code == ncclSuccess && created->failure().kind != nullptr && *out == nullptr) {
      *out = publish_communicator(created);
    }
    return code;
  }));
}

ncclResult_t rocpy_host_ncclCommShrink(ncclComm_t comm, int *excluded, int excluded_count, ncclComm_t *out,
                                       ncclConfig_t *requested, int flags) {
  return fail_group(rccl_call([&] {
    const auto parent = find_communicator(comm);
    if (parent == nullptr || parent->pid != process_id()) {
      return refuse(ncclInvalidArgument, "comm is not a communicator of this process");
    }
    if (out == nullptr || excluded == nullptr || excluded_count < 1 || excluded_count >= parent->count ||
        (flags != NCCL_SHRINK_DEFAULT && flags != NCCL_SHRINK_ABORT)) {
      return refuse(ncclInvalidArgument,
                    "newcomm or excludeRanksList is NULL, the list is empty or complete, or the flags are unknown");
    }
    *out = nullptr;
    std::vector<bool> is_out(static_cast<size_t>(parent->count));
    for (int i = 0; i < excluded_count; ++i) {
      if (excluded[i] < 0 || excluded[i] >= parent->count || is_out[static_cast<size_t>(excluded[i])]) {
        return refuse(ncclInvalidArgument, "excludeRanksList names rank " + std::to_string(excluded[i]) +
                                               " that does not exist or is listed twice");
      }
      is_out[static_cast<size_t>(excluded[i])] = true;
    }
    if (is_out[static_cast<size_t>(parent->rank)]) {
      return refuse(ncclInvalidArgument, "an excluded rank must not call ncclCommShrink");
    }
    if (parent->joined() == nullptr) return refuse(ncclInvalidUsage, "the communicator was not created");
    Origin origin = recovery_of(parent, Kind::shrink, is_out);
    ncclConfig_t config = parent->config;
    ncclResult_t code = read_config(requested, &config);
    if (code != ncclSuccess) return code;
    if (flags == NCCL_SHRINK_DEFAULT) {
      if (find_parent(comm, &code) == nullptr) return code;
    } else if (parent->state.load() == ncclSuccess) {
      parent->fail({"aborted", ncclInvalidUsage, "work was aborted by ncclCommShrink", Kind::none, 0, {}, {}});
    }
    Operation operation = parent->make_operation(Kind::shrink);
    if (flags == NCCL_SHRINK_ABORT) {
      while (parent->running.load() != 0) yield_processor();  // what runs notices that it was aborted
    } else if (!parent->finish_work(&operation)) {
      return static_cast<ncclResult_t>(parent->state.load());
    }
    const auto rank = std::find(origin.ranks.begin(), origin.ranks.end(), parent->rank) - origin.ranks.begin();
    auto created =
        make_communicator(static_cast<int>(origin.ranks.size()), static_cast<int>(rank), parent->key, config);
    created->origin = std::move(origin);
    created->device = parent->device;
    return start(created, out, parent);
  }));
}
