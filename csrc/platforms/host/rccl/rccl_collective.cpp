// SPDX-License-Identifier: MIT
// The collectives. Ranks go in steps: each puts what the others need where they see it, all arrive, each takes its
// part.
//
// What is put lies in a slot of shared memory, one of two in turn: who has arrived at step k + 1 has taken all of step
// k, so the slot of step k is free in step k + 2. Between ranks of one process large operands stay where they are, and
// a last step tells that all have read them; so do those of several processes that lie in registered memory on all
// ranks. An all-reduce of other memory reads what other processes send and what they have reduced, where the system
// lets each rank read the memory of all others.
#include "rccl_comm.hpp"

#include <algorithm>
#include <cstring>

namespace rocpy_host {

namespace {

void copy(void *to, const void *from, size_t bytes) {
  if (bytes != 0 && to != from) std::memmove(to, from, bytes);
}

class Run {
 public:
  Run(Communicator &communicator, Operation &operation)
      : comm_(communicator),
        operation_(operation),
        mine_(operation.signature),
        n_(communicator.count),
        me_(communicator.rank),
        size_(bytes_of_type(operation.signature.type)),
        count_(operation.signature.count) {}

  bool all_reduce_or_reduce();
  bool reduce_scatter();
  bool broadcast();
  bool all_gather_or_gather();
  bool scatter();
  bool all_to_all();
  bool all_to_all_v();

  // The first step of an operation: its signature, then the comparison with all others.
  bool rendezvous_and_agree();

 private:
  bool is_root() const { return me_ == mine_.root; }
  const Signature &signature(int rank) { return comm_.other(rank).signatures[mine_.sequence & 1]; }
  const char *sent_by(int rank) { return comm_.seen(rank, signature(rank).send, signature(rank).sent); }
  char *received_by(int rank) { return comm_.seen(rank, signature(rank).recv, signature(rank).received); }
  bool is_large() const { return count_ * size_ > small_bytes; }
  const char *send() const { return static_cast<const char *>(mine_.send); }
  char *recv() const { return static_cast<char *>(mine_.recv); }

  // A slot to put into, and after the step the slots of all.
  char *next_slot() {
    parity_ = comm_.put_count++ & 1;
    return comm_.segment->slot(parity_, me_);
  }
  const char *slot(int rank) { return comm_.segment->slot(parity_, rank); }
  bool step() { return is_first_ ? rendezvous_and_agree() : comm_.rendezvous(operation_); }

  // Whether a large operation reads operands where they lie, and writes results too where `writes` says so: if all that
  // takes part can be seen by all. False: failed.
  bool choose(bool writes, bool *is_direct);

  // Reading what the others have in their own memory, then the step after which they may change it.
  template <class Body>
  bool directly(Body body) {
    if ((is_first_ && !rendezvous_and_agree()) || !comm_.begin_reading(operation_)) return false;
    body();
    return comm_.end_reading(operation_) && comm_.rendezvous(operation_);
  }

  // Reduces `count` elements: source(rank) is where those of a rank begin.
  template <class Source>
  void reduce_from(void *out, size_t count, const void *bias, Source source) {
    const void *sources[max_ranks];
    Scalar scales[max_ranks];
    for (int r = 0; r < n_; ++r) {
      sources[r] = source(r);
      scales[r] = signature(r).scale;
    }
    reduce(operation_.reduction, out, sources, scales, n_, bias, count);
  }

  // The part of `count` elements that is a rank's to reduce, on lines of the cache.
  void part_of(int rank, size_t count, size_t *low, size_t *high) const {
    const size_t line = 64 / size_;
    const size_t part = ((count + n_ - 1) / n_ + line - 1) / line * line;
    *low = std::min(count, part * rank);
    *high = std::min(count, *low + part);
  }
  void my_part(size_t count, size_t *low, size_t *high) const { part_of(me_, count, low, high); }

  // Whether every rank can read the operands of all others. False: failed.
  bool agree_to_read(bool *is_agreed);

  bool all_reduce_directly();
  bool all_reduce_by_reading();
  bool reduce_my_part();
  bool gather_parts();
  bool all_reduce_in_blocks(bool takes_result);

  Communicator &comm_;
  Operation &operation_;
  Signature &mine_;
  const int n_, me_;
  const size_t size_, count_;
  unsigned parity_ = 0;
  bool is_first_ = true;
};

bool Run::rendezvous_and_agree() {
  is_first_ = false;
  comm_.self().signatures[mine_.sequence & 1] = mine_;
  if (!comm_.rendezvous(operation_)) return false;
  bool is_agreed = true;
  for (int r = 0; r < n_; ++r) is_agreed = is_agreed && agree(mine_, signature(r));
  if (is_agreed) return true;
  Failure failure{"mismatch",
                  ncclInvalidUsage,
                  "the ranks do not agree on operation number ",
                  shown_kind(mine_),
                  mine_.sequence,
                  {},
                  {}};
  failure.text += std::to_string(mine_.sequence);
  for (int r = 0; r < n_; ++r) {
    failure.ranks.push_back(r);
    failure.signatures.push_back(text_of(signature(r)));
    failure.text += (r == 0 ? ": rank " : "; rank ") + std::to_string(r) + " calls " + failure.signatures.back();
  }
  return comm_.fail(failure);
}

bool Run::choose(bool writes, bool *is_direct) {
  *is_direct = comm_.is_one_process && is_large();
  if (comm_.is_one_process || !is_large()) return true;
  const auto &shown = comm_.memories.shown;
  mine_.sent.is_new = mine_.sent.memory != 0 && shown.count(mine_.sent.memory) == 0;
  mine_.received.is_new = mine_.received.memory != 0 && shown.count(mine_.received.memory) == 0;
  mine_.process_key = &comm_.process;
  if (!rendezvous_and_agree()) return false;
  const bool one_sends = mine_.kind == Kind::broadcast || mine_.kind == Kind::scatter;
  std::vector<std::pair<int, uint64_t>> awaited;
  std::vector<Shown> own;
  bool is_any_new = false;
  const auto look_at = [&](int rank, const void *pointer, const Location &location) {
    if (location.memory == 0) return false;
    is_any_new = is_any_new || location.is_new != 0;
    if (rank == me_ && location.is_new != 0) own.push_back(find_shared_memory(pointer, 1));
    if (comm_.other(rank).process.load() != comm_.process && location.is_new != 0) {
      awaited.push_back({rank, location.memory});
    }
    return true;
  };
  for (int r = 0; r < n_; ++r) {
    const Signature &its = signature(r);
    const bool sends = !one_sends || r == mine_.root;
    const bool receives = writes && (mine_.root < 0 || r == mine_.root);
    if ((sends && !look_at(r, its.send, its.sent)) || (receives && !look_at(r, its.recv, its.received))) return true;
  }
  *is_direct = true;
  return !is_any_new || comm_.exchange(operation_, own, awaited);
}

bool Run::all_reduce_directly() {
  return directly([this] {
    const char *sources[max_ranks];
    char *targets[max_ranks];
    for (int r = 0; r < n_; ++r) {
      sources[r] = sent_by(r);
      targets[r] = mine_.kind == Kind::all_reduce || r == mine_.root ? received_by(r) : nullptr;
    }
    constexpr size_t block = 2048;
    alignas(64) char sums[block * 8];
    size_t low, high;
    my_part(count_, &low, &high);
    for (size_t start = low; start < high && comm_.goes_on(); start += block) {
      const size_t length = std::min(block, high - start), offset = start * size_;
      const char *bias = static_cast<const char *>(mine_.bias);
      reduce_from(sums, length, bias == nullptr ? nullptr : bias + offset, [&](int r) { return sources[r] + offset; });
      for (int r = 0; r < n_; ++r) {
        if (targets[r] != nullptr) std::memcpy(targets[r] + offset, sums, length * size_);
      }
    }
  });
}

bool Run::all_reduce_or_reduce() {
  const bool takes_result = mine_.kind == Kind::all_reduce || is_root();
  if (!is_large()) {
    copy(next_slot(), send(), count_ * size_);
    if (!step()) return false;
    if (takes_result) reduce_from(recv(), count_, mine_.bias, [this](int r) { return slot(r); });
    return true;
  }
  bool is_direct;
  if (!choose(true, &is_direct)) return false;
  if (is_direct) return all_reduce_directly();
  if (mine_.kind == Kind::all_reduce && count_ * size_ >= large_bytes) {
    bool is_readable;
    if (!agree_to_read(&is_readable)) return false;
    if (is_readable) return all_reduce_by_reading();
  }
  return all_reduce_in_blocks(takes_result);
}

bool Run::agree_to_read(bool *is_agreed) {
  bool can_read = comm_.reads_processes;
  for (int r = 0; r < n_ && can_read; ++r) {
    const Signature &its = signature(r);
    can_read = r == me_ || comm_.can_read(r, its.process_key, {its.send, its.recv}, count_ * size_);
  }
  comm_.self().signatures[mine_.sequence & 1].can_read = can_read;
  if (!comm_.rendezvous(operation_)) return false;
  *is_agreed = true;
  for (int r = 0; r < n_; ++r) *is_agreed = *is_agreed && signature(r).can_read;
  return true;
}

// What others send is read in blocks that are reduced while the nearest cache has them. Nobody's result is read before
// all have reduced their parts, nor given back before all have read it.
bool Run::all_reduce_by_reading() {
  const auto step = [this] { return comm_.end_reading(operation_) && comm_.rendezvous(operation_); };
  return comm_.begin_reading(operation_) && reduce_my_part() && step() && comm_.begin_reading(operation_) &&
         gather_parts() && step();
}

bool Run::reduce_my_part() {
  constexpr size_t least = size_t{16} << 10, most = size_t{128} << 10, all_bytes = size_t{512} << 10;
  const size_t block_bytes = std::clamp(all_bytes / n_ / 64 * 64, least, most), block = block_bytes / size_;
  comm_.scratch.resize(block_bytes * static_cast<size_t>(n_));
  const char *sources[max_ranks];
  const char *bias = static_cast<const char *>(mine_.bias);
  size_t low, high;
  my_part(count_, &low, &high);
  for (size_t start = low; start < high; start += block) {
    const size_t length = std::min(block, high - start), offset = start * size_;
    for (int r = 0; r < n_; ++r) {
      const char *sent = static_cast<const char *>(signature(r).send) + offset;
      const bool is_here = comm_.other(r).process.load() == comm_.process;
      char *copied = comm_.scratch.data() + static_cast<size_t>(r) * block_bytes;
      sources[r] = is_here ? sent : copied;
      if (!is_here && !comm_.read(operation_, r, sent, copied, length * size_)) return false;
    }
    reduce_from(recv() + offset, length, bias == nullptr ? nullptr : bias + offset, [&](int r) { return sources[r]; });
  }
  return true;
}

bool Run::gather_parts() {
  for (int i = 1; i < n_; ++i) {
    const int r = (me_ + i) % n_;  // each begins with another, so that they do not all read the same memory
    size_t low, high;
    part_of(r, count_, &low, &high);
    const char *reduced = static_cast<const char *>(signature(r).recv) + low * size_;
    if (!comm_.read(operation_, r, reduced, recv() + low * size_, (high - low) * size_)) return false;
  }
  return true;
}

// A step takes two blocks further: it tells that all have reduced their part of one, and put the next. A rank's own
// part is not put: it is reduced from where it lies.
bool Run::all_reduce_in_blocks(bool takes_result) {
  const size_t block = slot_bytes / size_;
  const char *bias = static_cast<const char *>(mine_.bias);
  const auto put = [&](size_t start) {
    const size_t length = std::min(block, count_ - start);
    size_t low, high;
    my_part(length, &low, &high);
    char *to = next_slot();
    const char *from = send() + start * size_;
    copy(to, from, low * size_);
    copy(to + high * size_, from + high * size_, (length - high) * size_);
  };
  put(0);
  if (!step()) return false;
  for (size_t start = 0; start < count_; start += block) {
    const size_t length = std::min(block, count_ - start);
    size_t low, high;
    my_part(length, &low, &high);
    char *result = comm_.segment->result(parity_);
    if (high > low) {
      reduce_from(result + low * size_, high - low, bias == nullptr ? nullptr : bias + (start + low) * size_,
                  [&](int r) { return (r == me_ ? send() + start * size_ : slot(r)) + low * size_; });
    }
    if (start + block < count_) put(start + block);
    if (!step()) return false;
    if (takes_result) copy(recv() + start * size_, result, length * size_);
  }
  return true;
}

bool Run::reduce_scatter() {
  bool is_direct;
  if (!choose(false, &is_direct)) return false;
  if (is_direct) {
    return directly(
        [this] { reduce_from(recv(), count_, nullptr, [this](int r) { return sent_by(r) + me_ * count_ * size_; }); });
  }
  const size_t block = slot_bytes / n_ / 64 * 64 / size_;
  for (size_t start = 0; is_first_ || start < count_; start += block) {
    const size_t length = std::min(block, count_ - start);
    char *to = next_slot();
    for (int r = 0; r < n_; ++r) copy(to + r * block * size_, send() + (r * count_ + start) * size_, length * size_);
    if (!step()) return false;
    reduce_from(recv() + start * size_, length, nullptr, [&](int r) { return slot(r) + me_ * block * size_; });
  }
  return true;
}

bool Run::broadcast() {
  bool is_direct;
  if (!choose(false, &is_direct)) return false;
  if (is_direct) {
    return directly([this] { copy(recv(), sent_by(mine_.root), count_ * size_); });
  }
  const size_t total = count_ * size_;
  for (size_t start = 0; is_first_ || start < total; start += slot_bytes) {
    const size_t length = std::min(slot_bytes, total - start);
    char *to = next_slot();
    if (is_root()) copy(to, send() + start, length);
    if (!step()) return false;
    copy(recv() + start, is_root() ? send() + start : slot(mine_.root), length);
  }
  return true;
}

bool Run::all_gather_or_gather() {
  const size_t total = count_ * size_;
  const bool takes_result = mine_.kind == Kind::all_gather || is_root();
  bool is_direct;
  if (!choose(false, &is_direct)) return false;
  if (is_direct) {
    return directly([&] {
      for (int r = 0; takes_result && r < n_; ++r) copy(recv() + r * total, sent_by(r), total);
    });
  }
  for (size_t start = 0; is_first_ || start < total; start += slot_bytes) {
    const size_t length = std::min(slot_bytes, total - start);
    copy(next_slot(), send() + start, length);
    if (!step()) return false;
    for (int r = 0; takes_result && r < n_; ++r) copy(recv() + r * total + start, slot(r), length);
  }
  return true;
}

bool Run::scatter() {
  const size_t total = count_ * size_;
  bool is_direct;
  if (!choose(false, &is_direct)) return false;
  if (is_direct) {
    return directly([&] { copy(recv(), sent_by(mine_.root) + me_ * total, total); });
  }
  const size_t block = slot_bytes / n_ / 64 * 64;
  for (size_t start = 0; is_first_ || start < total; start += block) {
    const size_t length = std::min(block, total - start);
    char *to = next_slot();
    for (int r = 0; is_root() && r < n_; ++r) copy(to + r * block, send() + r * total + start, length);
    if (!step()) return false;
    copy(recv() + start, slot(mine_.root) + me_ * block, length);
  }
  return true;
}

bool Run::all_to_all() {
  const size_t total = count_ * size_;
  bool is_direct;
  if (!choose(false, &is_direct)) return false;
  if (is_direct) {
    return directly([&] {
      for (int r = 0; r < n_; ++r) copy(recv() + r * total, sent_by(r) + me_ * total, total);
    });
  }
  const size_t block = slot_bytes / n_ / 64 * 64;
  for (size_t start = 0; is_first_ || start < total; start += block) {
    const size_t length = std::min(block, total - start);
    char *to = next_slot();
    for (int r = 0; r < n_; ++r) copy(to + r * block, send() + r * total + start, length);
    if (!step()) return false;
    for (int r = 0; r < n_; ++r) copy(recv() + r * total + start, slot(r) + me_ * block, length);
  }
  return true;
}

bool Run::all_to_all_v() {
  const size_t n = static_cast<size_t>(n_), me = static_cast<size_t>(me_);
  const std::vector<uint64_t> &mine = *operation_.tables;
  std::memcpy(next_slot(), mine.data(), mine.size() * sizeof(uint64_t));
  if (!step()) return false;
  // Every rank looks at all tables, so that all of them fail or none.
  std::vector<uint64_t> tables(4 * n * n);
  for (int r = 0; r < n_; ++r) std::memcpy(tables.data() + 4 * n * r, slot(r), 4 * n * sizeof(uint64_t));
  const auto sends = [&](size_t from, size_t to) { return tables[4 * n * from + to]; };
  const auto takes = [&](size_t to, size_t from) { return tables[4 * n * to + 2 * n + from]; };
  uint64_t longest = 0;
  for (size_t from = 0; from < n; ++from) {
    for (size_t to = 0; to < n; ++to) {
      longest = std::max(longest, sends(from, to));
      if (sends(from, to) == takes(to, from)) continue;
      Failure failure{"mismatch", ncclInvalidUsage, "",
                      mine_.kind, mine_.sequence,   {static_cast<int>(from), static_cast<int>(to)},
                      {}};
      failure.text = "all_to_all_v number " + std::to_string(mine_.sequence) + ": rank " + std::to_string(from) +
                     " sends " + std::to_string(sends(from, to)) + " elements to rank " + std::to_string(to) +
                     ", which takes " + std::to_string(takes(to, from));
      for (size_t r = 0; r < n; ++r) {
        failure.signatures.push_back(text_of(signature(static_cast<int>(r))));
        std::string &text = failure.signatures.back();
        const auto add = [&](const char *what, uint64_t count, const char *whom, size_t rank) {
          text += what + std::to_string(count) + whom + std::to_string(rank);
        };
        if (r == from) add("; sends ", sends(from, to), " elements to rank ", to);
        if (r == to) add("; takes ", takes(to, from), " elements from rank ", from);
      }
      return comm_.fail(failure);
    }
  }
  const size_t block = slot_bytes / n / 64 * 64 / size_;
  for (uint64_t start = 0; start < longest; start += block) {
    const auto part = [&](uint64_t total) { return total > start ? std::min<uint64_t>(block, total - start) : 0; };
    char *to = next_slot();
    for (size_t r = 0; r < n; ++r) {
      copy(to + r * block * size_, send() + (mine[n + r] + start) * size_, part(mine[r]) * size_);
    }
    if (!step()) return false;
    for (size_t r = 0; r < n; ++r) {
      copy(recv() + (mine[3 * n + r] + start) * size_, slot(static_cast<int>(r)) + me * block * size_,
           part(mine[2 * n + r]) * size_);
    }
  }
  return true;
}

}  // namespace

bool carry_out_collective(Communicator &communicator, Operation &operation) {
  Run run(communicator, operation);
  switch (operation.signature.kind) {
    case Kind::all_reduce:
    case Kind::reduce:
      return run.all_reduce_or_reduce();
    case Kind::broadcast:
      return run.broadcast();
    case Kind::all_gather:
    case Kind::gather:
      return run.all_gather_or_gather();
    case Kind::reduce_scatter:
      return run.reduce_scatter();
    case Kind::all_to_all:
      return run.all_to_all();
    case Kind::all_to_all_v:
      return run.all_to_all_v();
    case Kind::scatter:
      return run.scatter();
    default:
      return run.rendezvous_and_agree();
  }
}

}  // namespace rocpy_host
