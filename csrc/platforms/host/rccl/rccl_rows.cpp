// SPDX-License-Identifier: MIT
// RCCL rows that communicate: each checks its arguments and gives an operation to its stream, or to the group.
#include "rccl_comm.hpp"

#include <cstring>
#include "exports.h"

namespace rocpy_host {

namespace {

// The same for all pre-multiplied sums: their own numbers differ from rank to rank.
constexpr int premultiplied_op = ncclNumOps;

// More than any memory has, and few enough for the bytes of all ranks together to be a number.
constexpr size_t most_elements = size_t{1} << 48;

template <class Body>
ncclResult_t with_communicator(ncclComm_t handle, const Body &body) {
  return fail_group(rccl_call([&] {
    ncclResult_t code;
    const auto communicator = usable_communicator(handle, &code);
    return communicator == nullptr ? code : body(communicator);
  }));
}

// What a call sends and receives: `count` elements, whose meaning is the call's.
struct Buffers {
  const void *send;
  void *recv;
  size_t count;
  int type;
};

ncclResult_t check_buffers(const Buffers &buffers, bool needs_send, bool needs_recv) {
  const auto [send, recv, count, type] = buffers;
  if (bytes_of_type(type) == 0) {
    return refuse(ncclInvalidArgument, "datatype " + std::to_string(type) + " is not one of RCCL's");
  }
  if (count > most_elements) {
    return refuse(ncclInvalidArgument, "count " + std::to_string(count) + " is larger than any memory");
  }
  if (count != 0 && needs_send && send == nullptr) return refuse(ncclInvalidArgument, "sendbuff is NULL");
  if (count != 0 && needs_recv && recv == nullptr) return refuse(ncclInvalidArgument, "recvbuff is NULL");
  return ncclSuccess;
}

ncclResult_t check_rank(const Communicator &communicator, const char *what, int rank) {
  if (rank >= 0 && rank < communicator.count) return ncclSuccess;
  return refuse(ncclInvalidArgument, std::string(what) + " " + std::to_string(rank) + " is not one of the " +
                                         std::to_string(communicator.count) + " ranks");
}

// What an operator means for a type.
ncclResult_t set_reduction(Communicator &communicator, int op, Operation *operation) {
  Signature &signature = operation->signature;
  Reduction &reduction = operation->reduction;
  const int type = signature.type;
  reduction.type = type;
  signature.op = op;
  const bool is_float = type >= ncclFloat16;
  if (op >= ncclSum && op <= ncclMin) {
    reduction.op = op;
    return ncclSuccess;
  }
  if (op == ncclAvg && is_float) {
    reduction.is_scaled = true;
    signature.scale = reciprocal(type, communicator.count);
    return ncclSuccess;
  }
  if (op == ncclAvg) {
    reduction.divisor = communicator.count;
    return ncclSuccess;
  }
  std::lock_guard<std::mutex> lock(communicator.operators_mutex);
  const int index = operator_index(communicator, op);
  if (index < 0) {
    return refuse(ncclInvalidArgument, "op " + std::to_string(op) + " is not an operator of this communicator");
  }
  const PreMultiplied &entry = communicator.operators[static_cast<size_t>(index)];
  if (entry.type != type) {
    return refuse(ncclInvalidArgument,
                  std::string("op was made for ") + name_of_type(entry.type) + ", the call has " + name_of_type(type));
  }
  signature.op = premultiplied_op;
  reduction.is_scaled = true;
  signature.scale = entry.scalar;
  operation->device_scalar = entry.pointer;
  return ncclSuccess;
}

Operation make(Kind kind, const Buffers &buffers) {
  Operation operation;
  operation.signature.kind = kind;
  operation.signature.type = buffers.type;
  operation.signature.count = buffers.count;
  operation.signature.send = buffers.send;
  operation.signature.recv = buffers.recv;
  return operation;
}

ncclResult_t reduction_call(Kind kind, const Buffers &buffers, int op, ncclComm_t comm, hipStream_t stream,
                            int root = -1, const void *bias = nullptr) {
  return with_communicator(comm, [=](const std::shared_ptr<Communicator> &communicator) {
    ncclResult_t code = kind == Kind::reduce ? check_rank(*communicator, "root", root) : ncclSuccess;
    const bool needs_recv = kind != Kind::reduce || communicator->rank == root;
    if (code == ncclSuccess) code = check_buffers(buffers, true, needs_recv);
    if (code != ncclSuccess) return code;
    Operation operation = make(kind, buffers);
    operation.signature.root = root;
    operation.signature.bias = bias;
    operation.signature.has_bias = bias != nullptr;
    code = set_reduction(*communicator, op, &operation);
    return code == ncclSuccess ? submit(communicator, std::move(operation), stream) : code;
  });
}

ncclResult_t copy_call(Kind kind, const Buffers &buffers, int root, ncclComm_t comm, hipStream_t stream) {
  return with_communicator(comm, [=](const std::shared_ptr<Communicator> &communicator) {
    const bool has_root = kind == Kind::broadcast || kind == Kind::gather || kind == Kind::scatter;
    ncclResult_t code = has_root ? check_rank(*communicator, "root", root) : ncclSuccess;
    const bool is_root = communicator->rank == root;
    const bool needs_send = kind == Kind::broadcast || kind == Kind::scatter ? is_root : true;
    const bool needs_recv = kind == Kind::gather ? is_root : true;
    if (code == ncclSuccess) code = check_buffers(buffers, needs_send, needs_recv);
    if (code == ncclSuccess && kind == Kind::all_to_all && buffers.send == buffers.recv && buffers.count != 0) {
      code = refuse(ncclInvalidArgument, "all-to-all does not work in place");
    }
    if (code != ncclSuccess) return code;
    Operation operation = make(kind, buffers);
    operation.signature.root = has_root ? root : -1;
    return submit(communicator, std::move(operation), stream);
  });
}

ncclResult_t transfer_call(Kind kind, const Buffers &buffers, int peer, ncclComm_t comm, hipStream_t stream) {
  return with_communicator(comm, [=](const std::shared_ptr<Communicator> &communicator) {
    ncclResult_t code = check_rank(*communicator, "peer", peer);
    if (code == ncclSuccess) code = check_buffers(buffers, kind == Kind::send, kind == Kind::recv);
    if (code == ncclSuccess && peer == communicator->rank && !in_group()) {
      code = refuse(ncclInvalidUsage, "a rank sends to itself only within a group, beside the receive");
    }
    if (code != ncclSuccess) return code;
    Operation operation = make(kind, buffers);
    operation.peer = peer;
    return submit(communicator, std::move(operation), stream);
  });
}

// For each rank, how many elements of a buffer are for it or from it, and where they begin.
struct Portions {
  const size_t *counts, *displacements;
};

ncclResult_t all_to_all_v(const Buffers &buffers, const Portions &sent, const Portions &received, ncclComm_t comm,
                          hipStream_t stream) {
  return with_communicator(comm, [=](const std::shared_ptr<Communicator> &communicator) {
    const size_t *const tables[] = {sent.counts, sent.displacements, received.counts, received.displacements};
    auto retained = std::make_shared<std::vector<uint64_t>>();
    uint64_t totals[2] = {};
    for (int t = 0; t < 4; ++t) {
      if (tables[t] == nullptr) return refuse(ncclInvalidArgument, "a table of counts or displacements is NULL");
      retained->insert(retained->end(), tables[t], tables[t] + communicator->count);
    }
    for (int t = 0; t < 4; t += 2) {
      for (int r = 0; r < communicator->count; ++r) {
        const size_t count = tables[t][r], displacement = tables[t + 1][r];
        if (count != 0 && (count > most_elements || displacement > most_elements)) {
          return refuse(ncclInvalidArgument, std::to_string(count) + " elements at " + std::to_string(displacement) +
                                                 ", for rank " + std::to_string(r) + ", are larger than any memory");
        }
        totals[t / 2] += count;
      }
    }
    ncclResult_t code = check_buffers({buffers.send, nullptr, totals[0], buffers.type}, true, false);
    if (code == ncclSuccess) code = check_buffers({nullptr, buffers.recv, totals[1], buffers.type}, false, true);
    if (code != ncclSuccess) return code;
    Operation operation = make(Kind::all_to_all_v, buffers);
    operation.tables = retained;
    return submit(communicator, std::move(operation), stream);
  });
}

}  // namespace

// An operator's number holds which communicator it belongs to, so that another one refuses it.
constexpr int operators_of_one = 1024;
int operator_number(const Communicator &communicator, int index) {
  constexpr uint32_t serials = (0x7fffffff - ncclNumOps) / operators_of_one;
  return ncclNumOps + static_cast<int>(communicator.serial % serials) * operators_of_one + index;
}

int operator_index(const Communicator &communicator, int op) {
  const int index = op - operator_number(communicator, 0);
  const bool is_known = index >= 0 && index < static_cast<int>(communicator.operators.size());
  return is_known && communicator.operators[static_cast<size_t>(index)].is_used ? index : -1;
}

}  // namespace rocpy_host

using namespace rocpy_host;

ncclResult_t rocpy_host_ncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar, ncclDataType_t type,
                                                 ncclScalarResidence_t residence, ncclComm_t comm) {
  return with_communicator(comm, [=](const std::shared_ptr<Communicator> &communicator) {
    if (op == nullptr || scalar == nullptr) return refuse(ncclInvalidArgument, "op or scalar is NULL");
    if (bytes_of_type(type) == 0) return refuse(ncclInvalidArgument, "datatype is not one of RCCL's");
    PreMultiplied entry;
    entry.is_used = true;
    entry.type = type;
    if (residence == ncclScalarDevice) {
      entry.pointer = scalar;
    } else if (residence == ncclScalarHostImmediate) {
      std::memcpy(entry.scalar.bytes, scalar, bytes_of_type(type));
    } else {
      return refuse(ncclInvalidArgument, "residence is neither ncclScalarDevice nor ncclScalarHostImmediate");
    }
    std::lock_guard<std::mutex> lock(communicator->operators_mutex);
    auto &operators = communicator->operators;
    size_t index = 0;
    while (index < operators.size() && operators[index].is_used) ++index;
    if (index == operators_of_one) {
      return refuse(ncclInvalidUsage, "too many operators; destroy those that are not used");
    }
    if (index == operators.size()) operators.emplace_back();
    operators[index] = entry;
    *op = static_cast<ncclRedOp_t>(operator_number(*communicator, static_cast<int>(index)));
    return ncclSuccess;
  });
}

ncclResult_t rocpy_host_ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm) {
  return with_communicator(comm, [=](const std::shared_ptr<Communicator> &communicator) {
    std::lock_guard<std::mutex> lock(communicator->operators_mutex);
    const int index = operator_index(*communicator, op);
    if (index < 0) return refuse(ncclInvalidArgument, "op is not an operator of this communicator");
    communicator->operators[static_cast<size_t>(index)].is_used = false;
    return ncclSuccess;
  });
}

ncclResult_t rocpy_host_ncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                                      ncclComm_t comm, hipStream_t stream) {
  return reduction_call(Kind::all_reduce, {send, recv, count, type}, op, comm, stream);
}

ncclResult_t rocpy_host_ncclAllReduceWithBias(const void *send, void *recv, size_t count, ncclDataType_t type,
                                              ncclRedOp_t op, ncclComm_t comm, hipStream_t stream, const void *bias) {
  if (bias == nullptr && count != 0) return fail_group(refuse(ncclInvalidArgument, "acc is NULL"));
  return reduction_call(Kind::all_reduce, {send, recv, count, type}, op, comm, stream, -1, bias);
}

ncclResult_t rocpy_host_ncclReduce(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                                   int root, ncclComm_t comm, hipStream_t stream) {
  return reduction_call(Kind::reduce, {send, recv, count, type}, op, comm, stream, root);
}

ncclResult_t rocpy_host_ncclReduceScatter(const void *send, void *recv, size_t count, ncclDataType_t type,
                                          ncclRedOp_t op, ncclComm_t comm, hipStream_t stream) {
  return reduction_call(Kind::reduce_scatter, {send, recv, count, type}, op, comm, stream);
}

ncclResult_t rocpy_host_ncclBroadcast(const void *send, void *recv, size_t count, ncclDataType_t type, int root,
                                      ncclComm_t comm, hipStream_t stream) {
  return copy_call(Kind::broadcast, {send, recv, count, type}, root, comm, stream);
}

ncclResult_t rocpy_host_ncclBcast(void *buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                                  hipStream_t stream) {
  return copy_call(Kind::broadcast, {buffer, buffer, count, type}, root, comm, stream);
}

ncclResult_t rocpy_host_ncclAllGather(const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm,
                                      hipStream_t stream) {
  return copy_call(Kind::all_gather, {send, recv, count, type}, -1, comm, stream);
}

ncclResult_t rocpy_host_ncclGather(const void *send, void *recv, size_t count, ncclDataType_t type, int root,
                                   ncclComm_t comm, hipStream_t stream) {
  return copy_call(Kind::gather, {send, recv, count, type}, root, comm, stream);
}

ncclResult_t rocpy_host_ncclScatter(const void *send, void *recv, size_t count, ncclDataType_t type, int root,
                                    ncclComm_t comm, hipStream_t stream) {
  return copy_call(Kind::scatter, {send, recv, count, type}, root, comm, stream);
}

ncclResult_t rocpy_host_ncclAlltoAll(const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm,
                                     hipStream_t stream) {
  return copy_call(Kind::all_to_all, {send, recv, count, type}, -1, comm, stream);
}

ncclResult_t rocpy_host_ncclAllToAll(const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm,
                                     hipStream_t stream) {
  return copy_call(Kind::all_to_all, {send, recv, count, type}, -1, comm, stream);
}

ncclResult_t rocpy_host_ncclAlltoAllv(const void *send, const size_t *send_counts, const size_t *send_displacements,
                                      void *recv, const size_t *recv_counts, const size_t *recv_displacements,
                                      ncclDataType_t type, ncclComm_t comm, hipStream_t stream) {
  return all_to_all_v({send, recv, 0, type}, {send_counts, send_displacements}, {recv_counts, recv_displacements}, comm,
                      stream);
}

ncclResult_t rocpy_host_ncclAllToAllv(const void *send, const size_t *send_counts, const size_t *send_displacements,
                                      void *recv, const size_t *recv_counts, const size_t *recv_displacements,
                                      ncclDataType_t type, ncclComm_t comm, hipStream_t stream) {
  return all_to_all_v({send, recv, 0, type}, {send_counts, send_displacements}, {recv_counts, recv_displacements}, comm,
                      stream);
}

ncclResult_t rocpy_host_ncclSend(const void *send, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                                 hipStream_t stream) {
  return transfer_call(Kind::send, {send, nullptr, count, type}, peer, comm, stream);
}

ncclResult_t rocpy_host_ncclRecv(void *recv, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                                 hipStream_t stream) {
  return transfer_call(Kind::recv, {nullptr, recv, count, type}, peer, comm, stream);
}
