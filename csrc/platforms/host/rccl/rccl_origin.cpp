// SPDX-License-Identifier: MIT
// What a communicator that is being created knows of the one that it is created from: which ranks will not come, what
// they do instead, and which attempt this is.
#include "rccl_comm.hpp"

#include <algorithm>
#include <cstring>

namespace rocpy_host {

namespace {

std::string last_deed(const RankState &state) {
  const Kind kind = state.kind.load(std::memory_order_relaxed);
  if (kind == Kind::none) return "has made no call yet";
  const bool is_done = state.finished.load(std::memory_order_relaxed) >= state.entered.load(std::memory_order_relaxed);
  return (is_done ? "last finished " : "is in ") + std::string(name_of(kind)) + " number " +
         std::to_string(state.entered.load(std::memory_order_relaxed));
}

}  // namespace

bool is_failed(Presence presence) {
  return presence == Presence::failed || presence == Presence::aborted || presence == Presence::revoked;
}

bool is_gone(Presence presence) {
  return is_failed(presence) || presence == Presence::finalized || presence == Presence::left;
}

std::string text_of_ranks(const std::vector<int> &ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  return text;
}

const char *name_of_leaving(Presence presence) {
  return presence == Presence::failed    ? " failed"
         : presence == Presence::aborted ? " aborted the communicator"
         : presence == Presence::revoked ? " revoked the communicator"
                                         : " has left the communicator";
}

SharedBlock::Key child_key(const SharedBlock::Key &parent, uint64_t number, uint64_t which) {
  SharedBlock::Key key;
  for (unsigned half = 0; half < 2; ++half) {
    uint64_t mixed;
    std::memcpy(&mixed, parent.bytes + 8 * half, 8);
    for (uint64_t part : {number, which, uint64_t{half}}) {
      mixed = (mixed ^ part) * 0x9e3779b97f4a7c15;
      mixed = (mixed ^ mixed >> 32) * 0xbf58476d1ce4e5b9;
      mixed ^= mixed >> 29;
    }
    std::memcpy(key.bytes + 8 * half, &mixed, 8);
  }
  return key;
}

Origin::Origin(const std::shared_ptr<Communicator> &from, Kind kind)
    : parent(from), call(kind), endings(from->endings.load()), was_revoked(from->is_revoked.load()) {}

RankState &Origin::state(int rank) const { return parent->other(ranks[static_cast<size_t>(rank)]); }

std::atomic<uint32_t> &Origin::attempts() const { return state(0).attempts; }

std::string Communicator::deed_of(int index) {
  RankState *state = &other(index);
  std::string text = text_of_ranks({shown_rank(index)});
  if (state->pid.load() != 0) {
    text += " " + last_deed(*state);
  } else if (!origin || origin->is_newcomer(index)) {
    return text + " has not joined";
  } else {
    state = &origin->state(index);
    std::vector<int> excluded;
    for (int r = 0; r < origin->parent->count; ++r) {
      if ((state->excluded[r / 64].load() >> r % 64 & 1) != 0) excluded.push_back(r);
    }
    text += excluded.empty() ? std::string(" has not called ") + name_of(origin->call) + ", and " + last_deed(*state)
                             : " calls shrink without " + text_of_ranks(excluded);
  }
  const int its_pid = state->pid.load();
  if (state->process.load() != process && state->space.load() == process_space() && process_state(its_pid) == 'T') {
    text += " and its process " + std::to_string(its_pid) + " is stopped";
  }
  return text;
}

int Communicator::shown_rank(int index) const {
  return origin && !origin->is_newcomer(index) ? origin->ranks[static_cast<size_t>(index)] : index;
}

std::vector<int> Communicator::shown_ranks(const std::vector<int> &indices) const {
  std::vector<int> ranks;
  std::transform(indices.begin(), indices.end(), std::back_inserter(ranks), [this](int r) { return shown_rank(r); });
  return ranks;
}

bool Communicator::look_at_origin(const Operation &operation, const std::vector<int> &missing,
                                  const std::function<bool()> &ready) {
  if (!origin) return true;
  const Origin &own = *origin;
  std::vector<int> known, dead, gone;
  std::copy_if(missing.begin(), missing.end(), std::back_inserter(known), [&](int r) { return !own.is_newcomer(r); });
  // Looked at first: who leaves a moment later may do so because of one that died.
  std::copy_if(known.begin(), known.end(), std::back_inserter(gone), [&](int r) {
    const RankState &state = own.state(r);
    return state.has_left.load() || (!own.is_recovery && is_gone(state.presence.load()));
  });
  std::copy_if(known.begin(), known.end(), std::back_inserter(dead),
               [&](int r) { return own.parent->is_dead(shown_rank(r)); });
  if (dead.empty() && gone.empty()) return true;
  const int r = dead.empty() ? gone.front() : dead.front();
  const RankState &state = own.state(r);
  const Presence presence = state.presence.load();
  Failure cause{"remote", ncclRemoteError, "", operation.signature.kind, 0, {shown_rank(r)}, {}};
  cause.text = text_of_ranks(cause.ranks);
  if (!dead.empty()) {
    cause.text += " (process " + std::to_string(state.pid.load()) + ") is dead";
  } else {
    // What it failed with before is not why it will not come.
    cause.text += name_of_leaving(own.is_recovery && presence != Presence::aborted ? Presence::left : presence);
  }
  cause.text += "; this rank waits for it in " + name_of_operation(operation);
  return ready() || fail_init(&cause, ready);
}

bool Communicator::is_overtaken(const WhyNot &problem) const {
  const std::vector<int> &ranks = problem.ranks;
  return origin && origin->is_recovery && std::find(ranks.begin(), ranks.end(), shown_rank(rank)) != ranks.end();
}

bool Communicator::is_taken_back() {
  if (origin && origin->parent->endings.load() != origin->endings) {
    // Of one that was revoked before, the end is that it is aborted.
    if (origin->parent->is_revoked.load() && !origin->was_revoked) is_revoked = true;
    is_aborting = true;
  }
  return is_aborting.load();
}

void Communicator::begin_attempt() {
  if (!origin || !origin->is_recovery) return;
  uint64_t which = 0;
  for (int word = 0; word < max_ranks / 64; ++word) {
    uint64_t bits = 0;
    for (int r = word * 64; r < std::min(origin->parent->count, word * 64 + 64); ++r) {
      bits |= uint64_t{origin->is_excluded[static_cast<size_t>(r)]} << r % 64;
    }
    which = which * 0x9e3779b97f4a7c15 + bits;
    origin->parent->self().excluded[word].store(bits);
  }
  origin->attempt = origin->attempts().load();
  key = child_key(origin->parent->key, ~uint64_t{origin->attempt}, which);
}

void Communicator::end_attempt() {
  if (!origin || !origin->is_recovery) return;
  for (auto &word : origin->parent->self().excluded) word.store(0);
  uint32_t own = origin->attempt;
  origin->attempts().compare_exchange_strong(own, own + 1);
}

}  // namespace rocpy_host
