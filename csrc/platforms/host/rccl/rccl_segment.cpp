// SPDX-License-Identifier: MIT
// Layout of a communicator's memory, and how the ranks of one process come to share one view of it.
#include "rccl_segment.hpp"
#include "lazy.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <string_view>
#include <thread>

namespace rocpy_host {

namespace {

// Changes with the layout, so that versions of rocpy which do not know each other's see nothing.
constexpr uint64_t format = 0x726f637079000009 ^ uint64_t { sizeof(RankState) } << 8;
constexpr size_t page = 4096;
size_t pages(size_t bytes) { return (bytes + page - 1) / page * page; }

struct Layout {
  explicit Layout(int count) {
    const auto n = static_cast<size_t>(count);
    // A power of two, so that messages go on in their order where their numbers begin again at 0.
    for (messages = most_messages; messages > 2 && n * n * messages * pair_bytes > most_pair_data;) messages /= 2;
    ranks = pages(sizeof(Header));
    pairs = ranks + pages(n * sizeof(RankState));
    slots = pairs + pages(n * n * sizeof(Pair));
    results = slots + 2 * n * slot_bytes;
    pair_data = results + 2 * slot_bytes;
    total = pair_data + n * n * messages * pair_bytes;
  }
  static constexpr size_t most_pair_data = size_t{32} << 20;
  size_t ranks, pairs, slots, results, pair_data, total;
  uint32_t messages;  // of each pair, in flight
};

// Views that this process has of memory whose ranks are not all here yet.
struct Entrances {
  std::mutex mutex;
  std::map<std::string, std::weak_ptr<Segment>> open;
};
Entrances &entrances() {
  static rocpy::Lazy<Entrances> instance;
  return instance.get();
}

// Neither complete nor void yet.
bool is_open(const Header &header) { return header.attached.load() < static_cast<uint32_t>(header.rank_count.load()); }

void write_problem(Header &header, const WhyNot &why) {
  InitProblem &problem = header.init_problem;
  bool is_being_written = false;
  if (!problem.is_taken.compare_exchange_strong(is_being_written, true)) {
    constexpr uint64_t longest_ns = 100000000;  // who writes may be killed meanwhile
    for (const uint64_t start = now_ns(); is_open(header) && now_ns() - start < longest_ns;) yield_processor();
    return;
  }
  problem.code = static_cast<int32_t>(why.code);
  for (const int rank : why.ranks) problem.ranks[rank / 64] |= uint64_t{1} << rank % 64;
  std::snprintf(problem.text, sizeof problem.text, "%s", why.text.c_str());
  uint32_t seen = header.attached.load();
  while (is_open(header) && !header.attached.compare_exchange_weak(seen, seen | is_void)) {
  }
  wake_word(&header.attached);
}

bool read_problem(const Header &header, WhyNot *out) {
  const InitProblem &problem = header.init_problem;
  if ((header.attached.load() & is_void) == 0) return false;
  *out = {static_cast<ncclResult_t>(problem.code), {}, problem.text};
  for (int rank = 0; rank < max_ranks; ++rank) {
    if ((problem.ranks[rank / 64] >> rank % 64 & 1) != 0) out->ranks.push_back(rank);
  }
  return true;
}

bool claim(RankState &state, int *pid) {
  const int own = *pid;
  *pid = 0;
  return state.pid.compare_exchange_strong(*pid, own);
}

// Views of communicators that never came to be, served by a thread while there are any.
class Latecomers {
 public:
  void expect(const std::shared_ptr<Segment> &segment) {
    constexpr uint64_t longest_ns = 30000000000;
    constexpr size_t most = 64;
    std::lock_guard<std::mutex> lock(mutex_);
    for (const Retained &one : retained_) {
      if (one.segment == segment) return;
    }
    if (retained_.size() == most) retained_.erase(retained_.begin());
    retained_.push_back({segment, now_ns() + longest_ns});
    if (server_ == process_id()) return;
    std::thread([this] { serve(); }).detach();
    server_ = process_id();  // it begins with the mutex
  }

 private:
  struct Retained {
    std::shared_ptr<Segment> segment;
    uint64_t until;
  };

  static bool is_awaited(Segment &segment) {
    for (int rank = 0; rank < segment.rank_count(); ++rank) {
      if (segment.rank(rank).pid.load() == 0) return true;
    }
    return false;
  }

  void serve() {
    constexpr uint64_t interval_ns = 20000000;
    for (;;) {
      std::vector<Retained> served;
      {
        std::lock_guard<std::mutex> lock(mutex_);
        const uint64_t now = now_ns();
        const auto is_over = [now](const Retained &one) { return one.until < now || !is_awaited(*one.segment); };
        retained_.erase(std::remove_if(retained_.begin(), retained_.end(), is_over), retained_.end());
        if (retained_.empty()) {
          server_ = 0;
          return;
        }
        served = retained_;
      }
      for (const Retained &one : served) one.segment->block().serve(interval_ns / served.size());
    }
  }

  std::mutex mutex_;
  std::vector<Retained> retained_;
  int server_ = 0;  // the process that has the thread: a forked child has none
};

WhyNot disagreement(int rank, int own, int theirs) {
  return {ncclInvalidArgument,
          {rank},
          "the ranks do not agree on their number: rank " + std::to_string(rank) + " was given " + std::to_string(own) +
              ", others " + std::to_string(theirs)};
}

std::string text_of_key(const SharedBlock::Key &key) {
  return {reinterpret_cast<const char *>(key.bytes), sizeof key.bytes};
}

const char *name_of_op(int op) {
  static const char *const names[] = {"sum", "prod", "max", "min", "avg"};
  return op >= 0 && op < 5 ? names[op] : "premul_sum";
}

bool has_op(Kind kind) { return kind == Kind::all_reduce || kind == Kind::reduce || kind == Kind::reduce_scatter; }

}  // namespace

const char *name_of(Kind kind) {
  static const char *const names[] = {
      "none",         "all_reduce", "reduce",  "broadcast",   "all_gather", "reduce_scatter", "all_to_all",
      "all_to_all_v", "gather",     "scatter", "send",        "recv",       "split",          "grow",
      "window",       "put",        "signal",  "wait_signal", "shrink",     "suspend",        "barrier"};
  return names[static_cast<uint32_t>(kind)];
}

const char *name_of(Presence presence) {
  static const char *const names[] = {"absent", "present", "failed", "finalized", "left", "aborted", "revoked"};
  return names[static_cast<uint32_t>(presence)];
}

void announce(Bell &bell) {
  if (bell.sleepers.load() != 0) wake_word(&bell.word);
}

bool agree(const Signature &a, const Signature &b) {
  return a.kind == b.kind && a.type == b.type && a.op == b.op && a.root == b.root && a.count == b.count &&
         a.sequence == b.sequence && a.has_bias == b.has_bias && a.description == b.description;
}

bool operator==(const Description &a, const Description &b) { return std::memcmp(a.text, b.text, sizeof a.text) == 0; }

std::string text_of(const Signature &signature) {
  std::string text = name_of(signature.kind);
  if (signature.kind == Kind::none) return text;
  if (const std::string described = signature.description.text; !described.empty()) {
    return (described[0] == '(' ? text + described : described) + ", number " + std::to_string(signature.sequence);
  }
  text += "(";
  if (signature.kind == Kind::window) {
    static const char *const flags[] = {"default", "symmetric", "strict", "symmetric_strict"};
    text += std::string("flags=") + flags[signature.root & 3];
  }
  if (signature.kind == Kind::split || signature.kind == Kind::grow || signature.kind == Kind::window) {
    return text + "), number " + std::to_string(signature.sequence);
  }
  if (signature.kind != Kind::all_to_all_v) text += "count=" + std::to_string(signature.count) + ", ";
  text += std::string("dtype=") + name_of_type(signature.type);
  if (has_op(signature.kind)) text += std::string(", op=") + name_of_op(signature.op);
  if (signature.root >= 0) text += ", root=" + std::to_string(signature.root);
  if (signature.has_bias != 0) text += ", with bias";
  return text + "), number " + std::to_string(signature.sequence);
}

Kind shown_kind(const Signature &signature) {
  const std::string_view description = signature.description.text;
  const std::string_view name = description.substr(0, description.find('('));
  for (uint32_t kind = 1; !name.empty() && kind <= static_cast<uint32_t>(Kind::barrier); ++kind) {
    if (name == name_of(static_cast<Kind>(kind))) return static_cast<Kind>(kind);
  }
  return signature.kind;
}

Segment::Segment(const SharedBlock::Key &key, std::unique_ptr<SharedBlock> block, int rank_count)
    : key_(key), block_(std::move(block)), rank_count_(rank_count), callers_(static_cast<size_t>(rank_count)) {
  const Layout layout(rank_count);
  message_count_ = layout.messages;
  char *base = static_cast<char *>(block_->data());
  // Zeros are what all of these begin with.
  header_ = reinterpret_cast<Header *>(base);
  ranks_ = reinterpret_cast<RankState *>(base + layout.ranks);
  pairs_ = reinterpret_cast<Pair *>(base + layout.pairs);
  slots_ = base + layout.slots;
  results_ = base + layout.results;
  pair_data_ = base + layout.pair_data;
}

std::shared_ptr<Segment> Segment::join(const SharedBlock::Key &key, int rank, int rank_count, uint64_t patience_ns,
                                       WhyNot *problem) {
  Entrances &all = entrances();
  std::lock_guard<std::mutex> lock(all.mutex);
  std::weak_ptr<Segment> &known = all.open[text_of_key(key)];
  std::shared_ptr<Segment> segment = known.lock();
  *problem = {ncclSystemError, {}, ""};
  if (segment == nullptr) {
    auto block = SharedBlock::open(key, Layout(rank_count).total, patience_ns, &problem->text);
    if (block != nullptr && block->bytes() == Layout(rank_count).total) {
      segment.reset(new Segment(key, std::move(block), rank_count));
      known = segment;
      if (segment->block_->is_maker()) segment->describe("");
    } else if (block != nullptr) {
      Header *theirs = static_cast<Header *>(block->data());
      const bool is_known = block->bytes() >= sizeof(Header) && theirs->format.load() == format;
      *problem = disagreement(rank, rank_count, is_known ? theirs->rank_count.load() : 0);
      if (is_known) {
        write_problem(*theirs, *problem);
        read_problem(*theirs, problem);  // the first has the word
        // What comes before the states of the ranks has one size for all counts.
        auto *ranks = reinterpret_cast<RankState *>(static_cast<char *>(block->data()) + Layout(1).ranks);
        int own = process_id();
        if (rank < theirs->rank_count.load()) rocpy_host::claim(ranks[rank], &own);
      }
    }
  } else if (segment->rank_count_ != rank_count) {
    *problem = disagreement(rank, rank_count, segment->rank_count_);
    segment->report_init_problem(*problem);
    segment->find_init_problem(problem);
    int own = process_id();
    if (rank < segment->rank_count_) segment->claim(rank, &own);
    segment = nullptr;
  }
  for (auto at = all.open.begin(); at != all.open.end();) {
    at = at->second.expired() ? all.open.erase(at) : std::next(at);
  }
  return segment;
}

std::unique_ptr<Segment> Segment::view(std::unique_ptr<SharedBlock> block) {
  if (block->bytes() < sizeof(Header)) return nullptr;
  const Header &header = *static_cast<const Header *>(block->data());
  const int count = header.rank_count.load();
  if (header.format.load() != format || count < 1 || count > max_ranks || block->bytes() != Layout(count).total) {
    return nullptr;
  }
  if ((header.attached.load() & is_void) != 0) return nullptr;  // kept for latecomers
  return std::unique_ptr<Segment>(new Segment({}, std::move(block), count));
}

void Segment::describe(const std::string &name) {
  header_->rank_count.store(rank_count_);
  if (!name.empty()) std::snprintf(header_->name, sizeof header_->name, "%s", name.c_str());
  header_->format.store(format);
}

void Segment::report_init_problem(const WhyNot &problem) { write_problem(*header_, problem); }

bool Segment::attach() {
  const uint32_t before = header_->attached.fetch_add(1);
  wake_word(&header_->attached);
  return (before & is_void) == 0;
}

bool Segment::is_complete() const {
  const uint32_t now = header_->attached.load();
  return (now & is_void) == 0 && now >= static_cast<uint32_t>(rank_count_);
}

void Segment::keep_for_latecomers(const std::shared_ptr<Segment> &segment) {
  static rocpy::Lazy<Latecomers> instance;
  if (segment->block_->is_maker()) instance.get().expect(segment);
}

bool Segment::claim(int rank, int *pid) { return rocpy_host::claim(ranks_[rank], pid); }

bool Segment::find_init_problem(WhyNot *out) const { return read_problem(*header_, out); }

void Segment::close_entrance() {
  Entrances &all = entrances();
  std::lock_guard<std::mutex> lock(all.mutex);
  const auto known = all.open.find(text_of_key(key_));
  if (known != all.open.end() && known->second.lock().get() == this) all.open.erase(known);
  block_->stop_serving();
}

}  // namespace rocpy_host
