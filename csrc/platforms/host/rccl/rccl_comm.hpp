// SPDX-License-Identifier: MIT
// One rank's part of a communicator: its state, how it waits for the others, and what it says when something is wrong.
#pragma once

#include "fp_environment.h"
#include "rccl_segment.hpp"
#include "runtime.hpp"

#include <condition_variable>
#include <functional>
#include <initializer_list>
#include <optional>
#include <system_error>
#include <thread>

namespace rocpy_host {

// A failure's code, after its text has been made the last error of this thread and of the process (ncclGetLastError).
ncclResult_t refuse(ncclResult_t code, const std::string &text) noexcept;
std::string own_last_words();  // of this thread
// What this thread refuses from here on is about this communicator, or none.
void begin_call(ncclComm_t about = nullptr) noexcept;

// What went wrong with a communicator, for the rank that noticed it.
struct Failure {
  const char *kind = nullptr;  // "timeout", "remote", "mismatch", "aborted", "revoked", "init", "system"; or null
  ncclResult_t code = ncclSuccess;
  std::string text;
  Kind operation = Kind::none;
  uint64_t sequence = 0;
  std::vector<int> ranks;               // whom it is about
  std::vector<std::string> signatures;  // of all ranks, where they do not agree
};

// A call, as it will be carried out.
struct Operation {
  Signature signature;
  Reduction reduction;
  const void *device_scalar = nullptr;  // to be read when the operation runs
  int peer = -1;
  uint64_t number = 0;  // among the calls of this rank that take a stream
  uint64_t patience_ns = UINT64_MAX;
  uint64_t begin_ns = 0;    // its deadline counts from here; what is before it on its stream is done
  bool is_awaited = false;  // in the call that gives it, where that may wait
  bool is_behind = false;   // it waits for work that this rank has given to streams
  // Of all-to-all-v, in elements: counts and displacements to send, then to receive.
  std::shared_ptr<std::vector<uint64_t>> tables;
  std::vector<std::shared_ptr<void>> retained;  // what lives until it is done

  uint64_t deadline_ns() const { return patience_ns > UINT64_MAX - begin_ns ? UINT64_MAX : begin_ns + patience_ns; }
};

struct PreMultiplied {
  bool is_used = false;
  int type = 0;
  Scalar scalar{};
  const void *pointer = nullptr;
};

// When a call ran, for people; written by the thread that runs it.
struct Timing {
  std::atomic<uint64_t> number{0}, begin{0}, end{0};
};

// The thread that makes or finalizes a communicator. Calls of any threads may start it and wait for it, at the same
// time too: what it runs is over before something else begins, and before this is destroyed.
class Background {
 public:
  void start(std::function<void()> work);
  void wait();
  ~Background();

 private:
  std::mutex mutex_;
  std::thread thread_;
};

class Communicator;

// Whom a rank needs while it waits: those that are missing, or the others too, as in a step of all ranks. One that has
// arrived at a step which others have not reached cannot be through it: if it is gone, the operation has failed.
enum class Needed { missing, all };

bool is_failed(Presence presence);
bool is_gone(Presence presence);
// For people: "ranks 1, 2"; what one did that is gone.
std::string text_of_ranks(const std::vector<int> &ranks);
const char *name_of_leaving(Presence presence);

// What a communicator is created from, until all of its ranks have joined: errors have the numbers of that one's ranks,
// and what is known of them there says who will not come.
struct Origin {
  std::shared_ptr<Communicator> parent;
  Kind call = Kind::none;  // that creates it
  std::vector<int> ranks;  // numbers in the parent, by those in the new communicator; newcomers are beyond the end
  std::vector<bool> is_excluded;
  // Others may have failed or been revoked and come all the same. Attempts that failed on some ranks alone leave no
  // trace in the next: all read its number where they share it.
  bool is_recovery = false;
  uint32_t attempt = 0;
  uint64_t begin_ns = now_ns();  // its deadline counts from here, in all attempts
  // How often the parent was revoked or aborted before the call.
  uint32_t endings = 0;
  bool was_revoked = false;

  Origin(const std::shared_ptr<Communicator> &from, Kind kind);
  bool is_newcomer(int rank) const { return static_cast<size_t>(rank) >= ranks.size(); }
  RankState &state(int rank) const;
  std::atomic<uint32_t> &attempts() const;
};

class Communicator {
 public:
  // Fixed before the first operation.
  int rank = 0, count = 1, device = 0;
  int pid = 0;
  uint64_t process = 0;
  bool is_blocking = true;
  std::optional<Origin> origin;
  uint32_t serial = 0;  // differs among the communicators of a process
  std::string name;
  SharedBlock::Key key{};
  ncclConfig_t config{};
  std::shared_ptr<Segment> segment;
  bool is_one_process = false, may_spin = false;
  bool reads_processes = true;  // as ROCPY_RCCL_PROCESS_READS was when it was joined
  ncclComm_t handle = nullptr;

  // ncclInProgress while it is made; then ncclSuccess, or what it failed with.
  std::atomic<int> state{ncclInProgress};
  std::atomic<bool> is_aborting{false}, is_finalizing{false}, is_revoked{false}, is_suspended{false};
  std::atomic<uint32_t> endings{0};  // how often it was revoked or aborted
  // In stress mode, while the thread in the background gives the last call to its stream.
  std::atomic<bool> is_launching{false};
  std::atomic<uint64_t> patience_ns{0};  // 0: no limit, and calls do not wait themselves

  // Of the thread that calls.
  Description description;
  uint64_t sequence = 0, transfer_count = 0;
  uint64_t submitted = 0;
  Point last{nullptr, 0};

  Background background;

  // Operators are given back by whoever drops them last.
  std::mutex operators_mutex;
  std::vector<PreMultiplied> operators;

  // Of the thread that runs an operation; there is never more than one.
  uint32_t step = 0, put_count = 0;
  std::vector<uint32_t> signals_used;  // of each rank's to this one, by waits that are over

  Memories memories;
  std::vector<char> scratch;  // what has been read of other processes

  // The memory, once it is joined; another thread may still be at that.
  std::shared_ptr<Segment> joined() {
    std::lock_guard<std::mutex> lock(mutex_);
    return segment;
  }

  RankState &self() { return segment->rank(rank); }
  RankState &other(int index) { return segment->rank(index); }

  uint64_t patience() const { return patience_ns.load() == 0 ? UINT64_MAX : patience_ns.load(); }
  // An operation that takes no stream. It begins now: what it waits for before the others come counts too.
  Operation make_operation(Kind kind) const;

  // Joins the memory and waits for the other ranks; then it has no origin any more.
  ncclResult_t join();

  // Arrives at the next step, and waits until all ranks have. False: failed.
  bool rendezvous(const Operation &operation);
  void arrive();
  bool is_last_to_arrive();  // all others wait for this rank at the next step; while it runs nothing
  void rouse();              // whoever sleeps looks whether this rank is still there
  bool wait_for_step(const Operation &operation);

  // Sleeps until `ready`, looking after the ranks that it waits for, whenever the bell is rung for something else too.
  // False: failed.
  template <class Ready, class Missing>
  bool wait(Bell &bell, const Operation &operation, Ready ready, Missing missing, Needed needed = Needed::missing);

  // Reading memory of all ranks, or of one, or writing there: not once it has given up, or is gone. What has been read
  // counts only after the end: the owner may have changed it, once it had given up. False: failed.
  bool begin_reading(const Operation &operation, int owner = -1);
  bool end_reading(const Operation &operation, int owner = -1);
  // Whether to begin with another part of that. If not, the end fails.
  bool goes_on(int owner = -1);
  // False: a rank that is needed is gone, or the operation's time is over. What it did before it left counts: `ready`
  // has the last word.
  bool look_after(const Operation &operation, std::vector<int> missing, uint64_t *last_look,
                  const std::function<bool()> &ready, Needed needed = Needed::missing);
  // Whether a rank is there that takes what this one leaves for it without waiting. False: failed.
  bool can_take(const Operation &operation, int peer);

  // Whether the system lets this rank read another rank's operands, of so many bytes each. `process_key`: where that
  // rank's process has its key.
  bool can_read(int owner, const void *process_key, std::initializer_list<const void *> operands, size_t bytes);
  // Copies another rank's memory, with the system's help where it is of another process. False: failed.
  bool read(const Operation &operation, int owner, const void *from, void *to, size_t bytes);
  // Copies to another rank's memory that this process sees, as long as it goes on.
  void write(int owner, const void *from, void *to, size_t bytes);

  // Shows memory to the ranks of other processes, and waits for theirs, by owner and number. All ranks call it at the
  // same time. False: failed.
  bool exchange(const Operation &operation, const std::vector<Shown> &mine,
                const std::vector<std::pair<int, uint64_t>> &awaited);
  // Where this process sees another rank's memory.
  char *seen(int owner, const void *pointer, const Location &location);

  bool fail(Failure failure);  // gives false; the first failure is kept
  Failure failure();
  bool tell_failure();  // to this thread, where another has noticed it; gives false

  // The last calls' times, by their numbers.
  static constexpr size_t timing_count = 256;
  Timing timings[timing_count];
  uint64_t note_begin(uint64_t number);  // gives the time
  void note_end(uint64_t number);

  // Work that has been given to a stream and is not done.
  void begin_work();
  void end_work();
  void wait_for_work();
  // Waits for it as long as an operation that comes after it may take. False: failed.
  bool finish_work(Operation *operation);

  // What this rank is doing, for people, and how often it has.
  void show_begin(const Signature &signature);
  void show_end(const Signature &signature);
  void count_call(Kind kind);
  // The ranks that the running operation waits for, as it saw them last.
  std::vector<int> awaited();
  std::atomic<int> running{0};
  std::atomic<uint64_t> runner{0};  // the thread of what runs
  // Waits for what runs to notice that it is aborted; not for what this thread runs itself, in a signal's handler.
  void wait_for_running();

  // What ncclCommGetAsyncError answers.
  ncclResult_t async_error();

 private:
  // The number by which errors name a rank.
  int shown_rank(int index) const;
  std::vector<int> shown_ranks(const std::vector<int> &indices) const;
  // What a rank that is waited for does, for people.
  std::string deed_of(int index);
  ncclResult_t join_memory();  // ncclInProgress: it was overtaken
  // The others have given up an attempt because this rank had not come; they may be about to begin the next, as it
  // does.
  bool is_overtaken(const WhyNot &problem) const;
  // Its call was taken back with the parent's end.
  bool is_taken_back();
  // Where its origin says that one of them will not come, it fails. `ready` has the last word.
  bool look_at_origin(const Operation &operation, const std::vector<int> &missing, const std::function<bool()> &ready);
  void begin_attempt();
  void end_attempt();

  // The steps of join_memory(). Each that may fail reports it, to the other ranks where they must know.
  std::shared_ptr<Segment> open_segment(WhyNot *problem);  // null: `problem` says why
  ncclResult_t claim_rank(const std::shared_ptr<Segment> &opened);
  void introduce_rank(const std::shared_ptr<Segment> &opened);
  bool wait_for_ranks();
  ncclResult_t survey_ranks();  // what they have in common, and whether their devices differ
  ncclResult_t fail_join(const WhyNot &why);
  // Fails with what another rank has reported, if one has.
  bool take_over_problem(const Segment &opened);
  // Ranks that come late get the same answer, as long as this process lives.
  ncclResult_t give_up(const std::shared_ptr<Segment> &opened);

  // Says why to the other ranks and fails with what they were told. True: the last rank came first.
  bool fail_init(Failure *cause, const std::function<bool()> &ready);
  std::string name_of_operation(const Operation &operation);
  bool is_dead(int index);
  // Says that this rank has given up, and waits for those who use its memory.
  void withdraw();
  // A rank whose process died without leaving; -1: none. It may be why others gave up.
  int find_dead();
  // A rank that is needed and gone, one that is missing before the others; -1: none. Then the missing are those of now.
  int find_gone(std::vector<int> *missing, Needed needed);
  // The rank because of which one failed that is gone: itself, another that was gone before, or one that is only late.
  int cause_of(int index);
  std::vector<int> missing_at_step();
  bool fail_to_read(const Operation &operation, int owner, int reason);

  void note_awaited(const std::vector<int> &ranks);

  std::mutex mutex_;
  std::condition_variable changed_;
  int outstanding_ = 0;
  std::vector<int> awaited_;
  Failure failure_;
};

template <class Ready, class Missing>
bool Communicator::wait(Bell &bell, const Operation &operation, Ready ready, Missing missing, Needed needed) {
  constexpr int spins = 2000, yields = 20;
  constexpr uint64_t nap_ns = 20000000;
  if (may_spin) {
    for (int i = 0; i < spins; ++i) {
      if (ready()) return true;
      relax_processor();
    }
  }
  for (int i = 0; i < yields; ++i) {
    if (ready()) return true;
    yield_processor();
  }
  uint64_t last_look = 0;
  bool is_good = true;
  while (is_good && !ready()) {
    bell.sleepers.fetch_add(1);
    const uint32_t seen = bell.word.load();
    if (!ready()) wait_on_word(&bell.word, seen, nap_ns);
    bell.sleepers.fetch_sub(1);
    if (ready()) break;
    const std::vector<int> ranks = missing();
    note_awaited(ranks);
    is_good = look_after(operation, ranks, &last_look, ready, needed);
  }
  note_awaited({});
  return is_good;
}

Failure init_failure(const WhyNot &why);
// A key that all ranks of a new communicator work out alike from their parent's.
SharedBlock::Key child_key(const SharedBlock::Key &parent, uint64_t number, uint64_t which);

// Communicators by handle. A handle that was given back, or made up, is not found.
std::shared_ptr<Communicator> find_communicator(ncclComm_t handle);
ncclComm_t publish_communicator(const std::shared_ptr<Communicator> &communicator);
void retire_communicator(ncclComm_t handle);

// A communicator that may be used now. Else the code to answer, and null.
std::shared_ptr<Communicator> usable_communicator(ncclComm_t handle, ncclResult_t *code);

// One that communicators may be made from: usable, or revoked.
std::shared_ptr<Communicator> find_parent(ncclComm_t handle, ncclResult_t *code);

// Carries out operations of one communicator in their order; transfers between pairs go on together after the rest.
void carry_out(Communicator &communicator, std::vector<Operation> &operations);
bool carry_out_collective(Communicator &communicator, Operation &operation);
// One that takes no stream: in this thread, once the work of streams is done.
bool carry_out_call(Communicator &communicator, Operation *operation);
bool carry_out_transfers(Communicator &communicator, const std::vector<Operation *> &transfers);
bool carry_out_put(Communicator &communicator, const Operation &operation);  // or a signal alone
bool carry_out_wait(Communicator &communicator, const Operation &operation);

// Groups. A call is given to the stream now, or with its group's end.
ncclResult_t submit(const std::shared_ptr<Communicator> &communicator, Operation operation, hipStream_t stream);
// A call that waits for other ranks by itself: made now, or at the group's end beside the others.
struct Job {
  std::function<ncclResult_t()> run;
  std::shared_ptr<Communicator> parent;   // that its ranks meet in, if they do: one call after the other
  std::shared_ptr<Communicator> created;  // null: none
};
ncclResult_t submit_job(Job job);
bool in_group();
// Has the calls of this thread that wait ask it whether they are to end.
void set_interrupt(rocpyExtInterrupt_t asked, void *context);
bool is_thread_interrupted();
// A call failed: the whole group is void.
ncclResult_t fail_group(ncclResult_t code);

// The number that stands for a pre-multiplied sum of a communicator, and back (-1: not one of its own).
int operator_number(const Communicator &communicator, int index);
int operator_index(const Communicator &communicator, int op);

template <class Body>
ncclResult_t rccl_call(Body body) noexcept {
  const rocpy::DefaultFpEnvironment environment;
  begin_call();
  try {
    return body();
  } catch (const std::bad_alloc &) {
    return refuse(ncclSystemError, "out of memory");
  } catch (const std::system_error &error) {
    return refuse(ncclSystemError, std::string("no thread could be created: ") + error.what());
  } catch (const std::exception &error) {
    return refuse(ncclInternalError, error.what());
  }
}

}  // namespace rocpy_host
