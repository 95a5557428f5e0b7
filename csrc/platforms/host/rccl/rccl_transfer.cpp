// SPDX-License-Identifier: MIT
// Sends and receives. Those of a group go on together: what can move moves, and only when nothing can does the rank
// sleep. A large operand stays where it is and the receiver reads it there; if that is of another process which it
// cannot read, it says so, and the sender copies instead.
#include "rccl_comm.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace rocpy_host {

namespace {

struct Transfer {
  Operation *operation;
  bool is_send;
  int peer;
  size_t total;  // bytes
  size_t moved = 0;
  bool is_posted = false;  // where it lies, for the receiver to read
  bool was_behind = false, is_done = false;
};

std::string text_of_transfer(Kind kind, const Description &description, size_t count, int type) {
  if (!description.is_empty()) return std::string(name_of(kind)) + description.text;
  return std::string(name_of(kind)) + "(count=" + std::to_string(count) + ", dtype=" + name_of_type(type) + ")";
}

class Exchange {
 public:
  Exchange(Communicator &communicator, const std::vector<Operation *> &operations) : comm_(communicator) {
    for (Operation *operation : operations) {
      const Signature &signature = operation->signature;
      transfers_.push_back(
          {operation, signature.kind == Kind::send, operation->peer, signature.count * bytes_of_type(signature.type)});
    }
  }

  bool run() {
    Bell &bell = comm_.self().bell;
    uint64_t looked = transfers_.front().operation->begin_ns, last_look = 0;
    while (true) {
      uint32_t heard = bell.word.load();
      bool is_moving = false;
      first_.clear();
      // Transfers with the same peer and direction match in their order: only the first may move.
      std::vector<bool> is_behind(2 * static_cast<size_t>(comm_.count));
      for (Transfer &transfer : transfers_) {
        if (transfer.is_done) continue;
        auto behind = is_behind[2 * static_cast<size_t>(transfer.peer) + transfer.is_send];
        if (behind) {
          transfer.was_behind = true;
          continue;
        }
        if (std::exchange(transfer.was_behind, false)) transfer.operation->begin_ns = now_ns();
        const Step step = transfer.is_send ? send(transfer) : receive(transfer);
        if (step == Step::failed) return false;
        is_moving = is_moving || step == Step::moved;
        if (transfer.is_done) continue;
        behind = true;
        first_.push_back(&transfer);
      }
      if (first_.empty()) return true;
      const Transfer &due = next_due();
      if (!is_moving) {
        bool is_ready = false;
        const auto can_move = [&] {
          if (const uint32_t rung = bell.word.load(std::memory_order_acquire); rung != heard) {
            heard = rung;
            is_ready = is_any_ready();
          }
          return is_ready;
        };
        if (!comm_.wait(bell, *due.operation, can_move, [this] { return peers(); })) return false;
      } else if (constexpr uint64_t interval_ns = 20000000; now_ns() - looked > interval_ns) {
        // What stands still has its deadline beside what moves.
        looked = now_ns();
        if (!comm_.look_after(*due.operation, {due.peer}, &last_look, [] { return true; })) return false;
      }
    }
  }

 private:
  enum class Step { stuck, moved, failed };

  // Of those that wait for their peers alone, the one whose deadline comes first.
  const Transfer &next_due() const {
    return **std::min_element(first_.begin(), first_.end(), [](const Transfer *a, const Transfer *b) {
      return a->operation->deadline_ns() < b->operation->deadline_ns();
    });
  }

  bool is_any_ready() {
    return std::any_of(first_.begin(), first_.end(), [this](const Transfer *transfer) {
      return transfer->is_send ? can_send(*transfer) : can_receive(*transfer);
    });
  }

  bool can_send(const Transfer &transfer) {
    const Pair &pair = comm_.segment->pair(comm_.rank, transfer.peer);
    const uint32_t unread = pair.sent.load(std::memory_order_relaxed) - pair.taken.load(std::memory_order_acquire);
    return transfer.is_posted ? unread == 0 : unread < comm_.segment->message_count();
  }

  bool can_receive(const Transfer &transfer) {
    const Pair &pair = comm_.segment->pair(transfer.peer, comm_.rank);
    return pair.sent.load(std::memory_order_acquire) != pair.taken.load(std::memory_order_relaxed);
  }

  std::vector<int> peers() {
    std::vector<int> pending;
    for (Transfer &transfer : transfers_) {
      if (!transfer.is_done && transfer.peer != comm_.rank) pending.push_back(transfer.peer);
    }
    std::sort(pending.begin(), pending.end());
    pending.erase(std::unique(pending.begin(), pending.end()), pending.end());
    return pending;
  }

  void ring(int rank) {
    Bell &bell = comm_.other(rank).bell;
    bell.word.fetch_add(1);
    announce(bell);
  }

  // Between processes what fits into two messages is sent without waiting for the receiver.
  bool is_read_there(const Transfer &transfer, const Pair &pair) {
    if (comm_.is_one_process || comm_.other(transfer.peer).process.load() == comm_.process) {
      return transfer.total > pair_bytes;
    }
    return transfer.total > 2 * pair_bytes && comm_.reads_processes && !pair.is_unreadable.load();
  }

  Step send(Transfer &transfer) {
    Pair &pair = comm_.segment->pair(comm_.rank, transfer.peer);
    const uint32_t sent = pair.sent.load(std::memory_order_relaxed), count = comm_.segment->message_count();
    if (!can_send(transfer)) return Step::stuck;
    if (transfer.is_posted) {
      transfer.is_posted = false;
      transfer.is_done = !pair.is_unreadable.load();
      return Step::moved;
    }
    if (transfer.peer != comm_.rank && !comm_.can_take(*transfer.operation, transfer.peer)) return Step::failed;
    const auto *data = static_cast<const char *>(transfer.operation->signature.send) + transfer.moved;
    const bool is_direct = transfer.moved == 0 && is_read_there(transfer, pair);
    Pair::Message &message = pair.messages[sent % count];
    const size_t part = is_direct ? 0 : std::min(pair_bytes, transfer.total - transfer.moved);
    message.total = transfer.total;
    message.type = transfer.operation->signature.type;
    message.description = transfer.operation->signature.description;
    message.bytes = static_cast<uint32_t>(part);
    message.direct = is_direct ? data : nullptr;
    message.process_key = &comm_.process;
    if (part != 0) std::memcpy(comm_.segment->pair_data(comm_.rank, transfer.peer, sent % count), data, part);
    transfer.moved += part;
    transfer.is_posted = is_direct;
    transfer.is_done = !is_direct && transfer.moved == transfer.total;
    pair.sent.store(sent + 1);
    ring(transfer.peer);
    return Step::moved;
  }

  Step receive(Transfer &transfer) {
    Pair &pair = comm_.segment->pair(transfer.peer, comm_.rank);
    const uint32_t taken = pair.taken.load(std::memory_order_relaxed), count = comm_.segment->message_count();
    if (!can_receive(transfer)) return Step::stuck;
    const Pair::Message &message = pair.messages[taken % count];
    const Signature &signature = transfer.operation->signature;
    if (message.total != transfer.total || message.type != signature.type ||
        message.description != signature.description) {
      const size_t elements = message.total / bytes_of_type(message.type);
      Failure failure{"mismatch", ncclInvalidUsage, "", Kind::recv, signature.sequence, {transfer.peer, comm_.rank},
                      {}};
      failure.signatures = {text_of_transfer(Kind::send, message.description, elements, message.type),
                            text_of_transfer(Kind::recv, signature.description, signature.count, signature.type)};
      failure.text = "rank " + std::to_string(transfer.peer) + " calls " + failure.signatures[0] + " to rank " +
                     std::to_string(comm_.rank) + ", which calls " + failure.signatures[1];
      comm_.fail(failure);
      return Step::failed;
    }
    auto *data = static_cast<char *>(const_cast<void *>(static_cast<const void *>(signature.recv)));
    if (message.direct != nullptr) {
      bool is_read = false;
      if (!read_there(transfer, message, data, &is_read)) return Step::failed;
      if (is_read) {
        transfer.moved = transfer.total;
      } else {
        pair.is_unreadable.store(true);
      }
    } else {
      if (message.bytes != 0) {
        std::memcpy(data + transfer.moved, comm_.segment->pair_data(transfer.peer, comm_.rank, taken % count),
                    message.bytes);
      }
      transfer.moved += message.bytes;
    }
    transfer.is_done = transfer.moved == transfer.total;
    pair.taken.store(taken + 1);
    ring(transfer.peer);
    return Step::moved;
  }

  // Reads a message where the peer has it, unless the system forbids that. False: failed.
  bool read_there(const Transfer &transfer, const Pair::Message &message, char *data, bool *is_read) {
    const Operation &operation = *transfer.operation;
    if (!comm_.begin_reading(operation, transfer.peer)) return false;
    if (comm_.is_one_process || comm_.other(transfer.peer).process.load() == comm_.process) {
      std::memmove(data, message.direct, transfer.total);
      *is_read = true;
    } else if (comm_.reads_processes &&
               comm_.can_read(transfer.peer, message.process_key, {message.direct}, transfer.total)) {
      if (!comm_.read(operation, transfer.peer, message.direct, data, transfer.total)) return false;
      *is_read = true;
    }
    return comm_.end_reading(operation, transfer.peer);
  }

  Communicator &comm_;
  std::vector<Transfer> transfers_;
  std::vector<Transfer *> first_;  // of those that match in their order, where they are not done
};

}  // namespace

bool carry_out_transfers(Communicator &communicator, const std::vector<Operation *> &transfers) {
  return Exchange(communicator, transfers).run();
}

}  // namespace rocpy_host
