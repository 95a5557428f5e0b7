// SPDX-License-Identifier: MIT
// The memory that the ranks of a communicator share: who they are, what each is doing, and room for what they exchange.
#pragma once

#include "os_shared.hpp"
#include "rccl_memory.hpp"
#include "rccl_reduce.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace rocpy_host {

constexpr int max_ranks = 256;
constexpr size_t slot_bytes = size_t{256} << 10;  // of each rank, twice
constexpr size_t pair_bytes = size_t{32} << 10;   // of each pair of ranks and direction, as often as messages fit
constexpr uint32_t most_messages = 8;             // in flight between two ranks
constexpr size_t small_bytes = size_t{32} << 10;  // up to this, every rank reduces everything itself
constexpr size_t large_bytes = size_t{1} << 20;   // from this on, processes read one another's memory

enum class Kind : uint32_t {
  none,
  all_reduce,
  reduce,
  broadcast,
  all_gather,
  reduce_scatter,
  all_to_all,
  all_to_all_v,
  gather,
  scatter,
  send,
  recv,
  split,
  grow,
  window,
  put,
  signal,
  wait_signal,
  shrink,   // without a number: not all ranks call it
  suspend,  // likewise
  barrier,  // to its users: an all_reduce to RCCL
};
constexpr size_t kind_count = static_cast<size_t>(Kind::suspend) + 1;  // of calls that are counted
const char *name_of(Kind kind);

// What a call is to its user, where that is more than the call says (rocpyExtCommDescribe); empty: nothing. Held in
// full to the end of the array, which is compared whole.
struct Description {
  char text[96] = {};
  bool is_empty() const { return text[0] == '\0'; }
};
bool operator==(const Description &a, const Description &b);
inline bool operator!=(const Description &a, const Description &b) { return !(a == b); }

// What a rank's call asks for. Those of one step must agree in all ranks.
struct Signature {
  Kind kind = Kind::none;
  int32_t type = 0, op = 0, root = -1;
  uint64_t count = 0, sequence = 0;
  uint32_t has_bias = 0;
  Description description;

  // Not compared.
  int32_t color = 0, key = 0;
  Scalar scale{};
  const void *send = nullptr;
  void *recv = nullptr;
  const void *bias = nullptr;
  uint64_t extent = 0;      // bytes of a window
  Location sent, received;  // where `send` and `recv` lie, between ranks of several processes
  // Where this process's key lies, for those who read its memory; and whether this rank can read that of all others.
  const void *process_key = nullptr;
  bool can_read = false;
};
bool agree(const Signature &a, const Signature &b);
std::string text_of(const Signature &signature);
// What a call is to its user: the call that it stands for, where its description begins with that one's name.
Kind shown_kind(const Signature &signature);

enum class Presence : uint32_t { absent, present, failed, finalized, left, aborted, revoked };
const char *name_of(Presence presence);

// A word that others sleep on, and how many do: who changes it wakes nobody in vain.
struct alignas(64) Bell {
  std::atomic<uint32_t> word{0}, sleepers{0};
};
void announce(Bell &bell);  // the word has changed

struct alignas(64) RankState {
  std::atomic<int32_t> pid{0};  // 0: nobody has this rank
  std::atomic<uint64_t> process{0};
  std::atomic<uint64_t> space{0};  // where `pid` means something
  std::atomic<int32_t> device{-1};
  std::atomic<Presence> presence{Presence::absent};
  std::atomic<uint32_t> is_reading{0};  // this rank reads memory that another rank owns
  std::atomic<int32_t> cpus{0};         // that it may run on
  std::atomic<uint64_t> mailbox{0};     // its number, once it has one
  std::atomic<bool> has_left{false};    // for good, whatever became of it before: nothing is created from it any more
  std::atomic<int32_t> cause{0};        // 1 + the rank because of which it failed: one that was gone, or late

  // Of those that ranks create where others have gone: how many attempts are over whose lowest rank is this one, and
  // whom this rank leaves out in the one that it waits in.
  std::atomic<uint32_t> attempts{0};
  std::atomic<uint64_t> excluded[max_ranks / 64] = {};

  // What it did last, for people.
  std::atomic<Kind> kind{Kind::none};
  std::atomic<int32_t> type{0}, op{0}, root{-1};
  std::atomic<uint64_t> count{0}, entered{0}, finished{0};
  std::atomic<uint64_t> calls[kind_count] = {};  // ever begun, by kind; written by this rank alone

  Signature signatures[2];  // by the parity of the sequence number
  Bell step;                // counts arrivals; others wait on it while ranks fit the processors
  Bell bell;                // rung when a message for, or room of, this rank comes up
};

// Messages from one rank to another, a few in flight.
struct alignas(64) Pair {
  struct Message {
    uint64_t total = 0;
    uint32_t bytes = 0;
    int32_t type = 0;
    const void *direct = nullptr;       // the whole message where it lies, for the receiver to read
    const void *process_key = nullptr;  // then: as in Signature
    Description description;
  };
  std::atomic<uint32_t> sent{0};
  Message messages[most_messages];
  alignas(64) std::atomic<uint32_t> taken{0};
  std::atomic<bool> is_unreadable{false};  // the second cannot read what the first has: all is copied from now on
  std::atomic<uint32_t> signals{0};        // by the first to the second, ever
};

// Why a communicator does not come to be.
struct WhyNot {
  ncclResult_t code = ncclSuccess;
  std::vector<int> ranks;  // whom it is about
  std::string text;
};

// That, by the rank that noticed it first: all ranks give the same reason.
struct InitProblem {
  std::atomic<bool> is_taken{false};  // somebody writes it; it is readable where the header is void
  int32_t code = 0;
  uint64_t ranks[max_ranks / 64] = {};
  char text[512] = {};
};

// In one word with the number of ranks, so that either all of them have a communicator or none.
constexpr uint32_t is_void = uint32_t{1} << 31;

struct Header {
  // What the memory is, for those who have no part in it; written before a rank is present.
  std::atomic<uint64_t> format{0};
  std::atomic<int32_t> rank_count{0};
  char name[64] = {};  // by rank 0
  InitProblem init_problem;
  alignas(64) std::atomic<uint32_t> attached{0};  // how many ranks; `is_void` beside it: a problem came first

  // Of more ranks than processors: whoever arrives last wakes all others at once, each of them once in a step.
  alignas(64) std::atomic<uint32_t> arrived{0};  // by all ranks, in all steps
  Bell released;                                 // the last step that all have arrived at
};

// One process's view of the memory; its ranks share it.
class Segment {
 public:
  // Joins the memory of a key, or makes it. Null with `problem` set, or without: nobody has answered yet.
  static std::shared_ptr<Segment> join(const SharedBlock::Key &key, int rank, int rank_count, uint64_t patience_ns,
                                       WhyNot *problem);
  // The memory of other processes' ranks, to look at. Null: it is none, or of another version.
  static std::unique_ptr<Segment> view(std::unique_ptr<SharedBlock> block);
  void describe(const std::string &name);  // for such views

  // Takes a rank for a process. False: another caller has it, whose process is then in `pid`.
  bool claim(int rank, int *pid);
  // Counts this rank in. False: there will be no communicator, somebody has reported a problem before.
  bool attach();
  bool is_complete() const;  // all ranks are here, and no problem was reported before the last came

  // Says to all ranks why there will be no communicator, unless that has been said, or all are here; and what has been
  // said.
  void report_init_problem(const WhyNot &problem);
  bool find_init_problem(WhyNot *out) const;

  // All ranks are here: the key may be used for another communicator.
  void close_entrance();

  // There will be no communicator: until all ranks have come, for half a minute at most and while this process lives,
  // who comes late is told why. By the process that made the memory; the others let go of it.
  static void keep_for_latecomers(const std::shared_ptr<Segment> &segment);

  int rank_count() const { return rank_count_; }
  SharedBlock &block() { return *block_; }
  Header &header() { return *header_; }
  RankState &rank(int index) { return ranks_[index]; }
  Pair &pair(int from, int to) { return pairs_[from * rank_count_ + to]; }
  char *slot(unsigned parity, int rank) {
    return slots_ + (parity * static_cast<size_t>(rank_count_) + rank) * slot_bytes;
  }
  char *result(unsigned parity) { return results_ + parity * slot_bytes; }
  // How many messages from one rank to another are in flight at most: with many ranks fewer.
  uint32_t message_count() const { return message_count_; }
  char *pair_data(int from, int to, uint32_t message) {
    return pair_data_ + ((static_cast<size_t>(from) * rank_count_ + to) * message_count_ + message) * pair_bytes;
  }

  // Which thread last called for a rank of this process, to know a thread that drives several.
  std::atomic<uint64_t> &caller(int index) { return callers_[index]; }

 private:
  Segment(const SharedBlock::Key &key, std::unique_ptr<SharedBlock> block, int rank_count);
  SharedBlock::Key key_;
  std::unique_ptr<SharedBlock> block_;
  int rank_count_;
  uint32_t message_count_;
  Header *header_;
  RankState *ranks_;
  Pair *pairs_;
  char *slots_, *results_, *pair_data_;
  std::vector<std::atomic<uint64_t>> callers_;
};

}  // namespace rocpy_host
