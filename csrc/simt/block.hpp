// SPDX-License-Identifier: MIT
// Runs one block: its threads as fibers, their barriers and collectives, its shared memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "context.hpp"
#include "error.hpp"
#include "global_check.hpp"
#include "shared_check.hpp"
#include "simt.h"

namespace rocpy::simt {

struct Fiber {
  rocpy_simt_state state{};  // first: rocpy_simt_current hands out its address
  Context context;
  Fiber *next = nullptr;  // in the one list that the fiber is in
  std::size_t slot = 0;   // among the runner's fibers and stacks
};

// What a resumable kernel goes on with.
struct Frame {
  void (*go_on)(Frame *frame);
};

// A thread of a resumable kernel, which has a frame instead of a stack.
struct alignas(64) Thread : Fiber {};

// How a kernel is called: for each thread, on a fiber where it may wait; for each thread, and again to go on from where
// it waits; for the whole block. rocpy/cooperative/cpu/machine_code.py has the same numbers.
enum class Form : int { fibers = 0, turns = 1, loops = 2 };

struct Kernel {
  rocpy_simt_kernel function = nullptr;
  Form form = Form::fibers;
};

// Memory that grows and is not kept when it does; aligned to a line of the cache.
class Scratch {
 public:
  static constexpr std::size_t line_bytes = 64;

  // Null if there is not so much.
  char *reserve(std::size_t bytes);

 private:
  std::unique_ptr<char[]> memory_;
  std::size_t bytes_ = 0;
};

// First in, first out, through the fibers themselves.
struct FiberList {
  Fiber *head = nullptr;
  Fiber *tail = nullptr;

  void push(Fiber *fiber);
  Fiber *pop();
  void splice(FiberList &other);  // takes all of the other's to its end
};

// Threads that wait for each other: the block, or an aligned run of ranks.
struct Group {
  int32_t size = 0;
  int32_t exited = 0;
  int32_t arrived = 0;
  uint32_t generation = 0;     // collectives and barriers done; the low bit chooses the buffer
  uint64_t last_barrier = 0;   // its number among those of all groups of the block, from 1
  bool collective = false;     // what is waited for
  const char *site = nullptr;  // where the first of the waiting threads stands
  Index3 thread{};             // and which one that is
  FiberList waiting;
  std::vector<std::max_align_t> slots[2];
  void *opened = nullptr;  // those of the collective that threads are arriving at, each of `slot_bytes`
  int64_t slot_bytes = 0;
};

// Where the groups of a width are: the block's first.
inline int level_of(int32_t width) { return width == 0 ? 0 : 1 + __builtin_ctz(static_cast<unsigned>(width)); }

// One worker's blocks, one after the other. Fibers, stacks and buffers are kept from block to block and from launch to
// launch.
class BlockRunner {
 public:
  explicit BlockRunner(int64_t stack_bytes) : stack_bytes_(stack_bytes) {}

  int64_t stack_bytes() const { return stack_bytes_; }

  // Makes ready for the blocks of one launch; `arrays` checks their accesses to the arrays, if it is there.
  void begin(Kernel kernel, void *arguments, const rocpy_simt_config &config, GlobalCheck *arrays = nullptr);

  // Runs one block to its end; gives its error, if it has one.
  std::unique_ptr<Error> run(int64_t block_rank);

  uint64_t switches() const { return switches_; }

  // The first thing since `begin` that is no error and may surprise.
  std::unique_ptr<Error> take_warning() { return std::move(warning_); }

  // The runner whose block the calling OS thread runs, with the state of the running fiber.
  static thread_local BlockRunner *running __attribute__((tls_model("initial-exec")));
  rocpy_simt_state *state() { return &current_->state; }

  inline __attribute__((always_inline)) void barrier(rocpy_simt_state *state, int32_t width);
  void *slots(rocpy_simt_state *state, int32_t width, int64_t bytes);
  inline __attribute__((always_inline)) bool arrive(rocpy_simt_state *state, int32_t width);
  void release(rocpy_simt_state *state, int32_t width);
  bool begin_barrier(rocpy_simt_state *state, int32_t width);
  bool begin_arrive(rocpy_simt_state *state, int32_t width);
  void *frame(rocpy_simt_state *state, int64_t bytes);
  void *block_memory(rocpy_simt_state *state, int64_t bytes);
  void *block_slots(rocpy_simt_state *state, int32_t collective, int64_t bytes);
  // Lets the block's state be that of a thread.
  rocpy_simt_state *stand_for(rocpy_simt_state *state, int32_t rank, const char *site);
  int32_t group_size(rocpy_simt_state *state, int32_t width) { return group(state, width).size; }
  void *shared(rocpy_simt_state *state, const void *key, int64_t bytes);
  void *dynamic_shared() { return arena_; }
  void access(rocpy_simt_state *state, const void *address, int64_t bytes, int32_t kind);
  void stored(rocpy_simt_state *state, const void *address, uint64_t bits, int32_t bytes);
  void own(void *memory, void (*release)(void *));
  void disown(void *memory) { allocated_.erase(memory); }
  void note_poison() { poisoned_ = true; }
  [[noreturn]] void divided_by_zero(rocpy_simt_state *state) { fail(Fault::division, state, ""); }
  [[noreturn]] void raise(rocpy_simt_state *state, int32_t code, const void *information);

 private:
  struct Level {  // the groups of one width, over the whole block
    int32_t width = 0;
    bool used = false;
    std::vector<Group> groups;
  };
  struct Allocation {
    const void *key;
    std::size_t offset;
    int64_t bytes;
  };

  static void fiber_main();

  // What a fiber is left in is in line in the C functions: no return comes after a switch but theirs.
  Group &group(rocpy_simt_state *state, int32_t width);
  Level &open_level(rocpy_simt_state *state, int32_t width);
  void make_threads();
  void take_turns();
  [[noreturn]] void run_loops();
  char *reserve(Scratch &scratch, rocpy_simt_state *state, std::size_t bytes, const char *what);
  void leave_waiting(Group &group);
  void start_thread(Fiber &fiber);
  void finish_thread(Fiber &fiber);
  void abandon_allocations();
  void describe_launch(rocpy_simt_state &state) const;
  void add_fiber();
  Fiber *fresh_fiber();
  Fiber *next_fiber();
  inline __attribute__((always_inline)) void wait(Group &group);
  void free_waiting(Group &group);
  void enter(Group &group, rocpy_simt_state *state, bool collective);
  void access_array(rocpy_simt_state *state, const void *address, int64_t bytes, int32_t kind);
  Moment moment(const rocpy_simt_state *state) const;
  Index3 block_index(int64_t block_rank) const;
  void note_skipped(const Group &group);
  [[noreturn]] void fail(Fault fault, const rocpy_simt_state *state, std::string detail,
                         const char *other_site = nullptr, const Index3 *other = nullptr);
  [[noreturn]] void fail_diverged(Group &group, std::string detail);
  [[noreturn]] void drop_fibers();
  std::unique_ptr<Error> describe(Fault fault, const rocpy_simt_state *state, std::string detail) const;
  inline __attribute__((always_inline)) void leave(Fiber *to, bool last);
  uint64_t random();

  int64_t stack_bytes_;
  Kernel kernel_;
  void *arguments_ = nullptr;
  rocpy_simt_config config_{};
  int32_t size_ = 0;

  Context main_;
  Fiber *current_ = nullptr;
  Fiber *carrier_ = nullptr;  // on whose stack the threads of a resumable kernel run
  std::unique_ptr<Thread[]> threads_;
  int32_t threads_created_ = 0;
  Scratch frames_;
  char *first_frame_ = nullptr;
  std::size_t frame_stride_ = 0;  // from one thread's to the next's
  Scratch memory_of_loops_;
  Scratch slots_of_loops_[2];
  bool left_waiting_ = false;  // the thread that ran last
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Stack> stacks_;
  std::size_t fibers_used_ = 0;
  FiberList ready_;
  FiberList idle_;  // their threads are done; their stacks may be used again

  Index3 block_{};
  int64_t block_rank_ = 0;
  int32_t started_ = 0;
  int32_t finished_ = 0;
  std::vector<Index3> indices_;  // of the threads, by rank
  std::vector<int32_t> order_;   // in which the threads start
  std::vector<uint32_t> done_;   // stamp of the block in which the thread of this rank has ended
  uint32_t stamp_ = 0;
  Level levels_[8];           // the block, then widths 1, 2, 4 ... 64
  uint32_t levels_used_ = 0;  // a bit for each
  uint64_t barriers_ = 0;     // that groups of the block have passed

  std::vector<char> memory_;
  char *arena_ = nullptr;  // the aligned part of it
  std::size_t arena_bytes_ = 0;
  std::size_t arena_used_ = 0;
  std::vector<Allocation> allocations_;
  SharedCheck check_;
  GlobalCheck *arrays_ = nullptr;
  bool poisoned_ = false;  // some thread of the block has undefined values

  uint64_t random_state_ = 0;
  uint64_t switches_ = 0;
  std::unordered_map<void *, void (*)(void *)> allocated_;  // by the kernel's threads, with what frees it
  std::unique_ptr<Error> error_;
  std::unique_ptr<Error> pending_;  // what is reported if nothing worse is found
  std::unique_ptr<Error> warning_;
};

}  // namespace rocpy::simt
