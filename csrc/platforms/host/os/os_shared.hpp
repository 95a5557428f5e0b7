// SPDX-License-Identifier: MIT
// What ranks of a communicator need of the operating system: memory that processes share, waiting on a word of it, and
// knowing whether the others still live.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

namespace rocpy_host {

int process_id();
uint64_t process_key();       // differs among processes, those of other pid namespaces too
uint64_t process_space();     // the pid namespace: process ids mean something only within one
uint64_t thread_id();         // differs among all threads of the machine that live now
char process_state(int pid);  // as /proc tells it ('R', 'S', 'T' for stopped, 'Z'); '?' where it does not
bool random_bytes(void *out, size_t count);

// Copies memory of another process of this pid namespace. False, with errno set: the system does not permit it, the
// process has ended, or the memory is not there.
bool read_process(int pid, const void *from, void *to, size_t bytes);

// Sleeps until the word is woken, has another value than `seen`, or the time is over. Works across processes.
void wait_on_word(std::atomic<uint32_t> *word, uint32_t seen, uint64_t nanoseconds);
void wake_word(std::atomic<uint32_t> *word);

uint64_t now_ns();
void yield_processor();
inline void relax_processor() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

// Memory that all processes see which know its key. The first to ask makes it and serves it to the others under a name
// that the system forgets with the last of them, however they end: nothing stays behind. It holds zeros at first.
class SharedBlock {
 public:
  struct Key {
    unsigned char bytes[16];
  };

  // Joins the block that somebody serves, or makes it. Null with `problem` set: the system refused; null without: who
  // serves it did not answer within `patience_ns`.
  static std::unique_ptr<SharedBlock> open(const Key &key, size_t bytes, uint64_t patience_ns, std::string *problem);
  ~SharedBlock();
  SharedBlock(const SharedBlock &) = delete;
  SharedBlock &operator=(const SharedBlock &) = delete;

  void *data() const { return data_; }
  size_t bytes() const { return bytes_; }
  bool is_maker() const { return is_maker_; }

  // Answers those who ask for the block, for at most the time given. Returns at once where this process does not serve.
  void serve(uint64_t nanoseconds);
  void stop_serving();

  // A mark that this process lives: others see it until the process ends, in whatever way, or lets go of the block.
  bool mark(unsigned index);
  bool is_marked_elsewhere(unsigned index) const;  // by another process that lives

 private:
  SharedBlock() = default;
  friend void visit_blocks_of_others(const std::function<void(std::unique_ptr<SharedBlock>)> &visit);
  void *data_ = nullptr;
  size_t bytes_ = 0;
  int memory_ = -1, listener_ = -1;
  bool is_maker_ = false, is_own_ = false;
  std::mutex serving_;
};

// The blocks of this user's processes in which this process has no part, each for reading as long as it is visited.
// Meanwhile this process joins no block: letting go of one in which it has a part would take its mark away.
void visit_blocks_of_others(const std::function<void(std::unique_ptr<SharedBlock>)> &visit);

// Memory that this process can show to others, or that another process has shown to it.
class SharedMemory {
 public:
  static std::shared_ptr<SharedMemory> make(size_t bytes, std::string *problem);
  static std::shared_ptr<SharedMemory> take(int descriptor, std::string *problem);  // the descriptor is taken over
  ~SharedMemory();
  SharedMemory(const SharedMemory &) = delete;
  SharedMemory &operator=(const SharedMemory &) = delete;

  char *data() const { return static_cast<char *>(data_); }
  size_t bytes() const { return bytes_; }
  // Now, whoever still sees it: all read zeros from here on. Not in a child of fork(), whose parent has them.
  void give_up_pages();
  int descriptor() const { return descriptor_; }  // -1 for memory of another process

 private:
  SharedMemory() = default;
  static std::shared_ptr<SharedMemory> map(int descriptor, std::string *problem);
  void *data_ = nullptr;
  size_t bytes_ = 0;
  int descriptor_ = -1;
  int pid_ = process_id();
};

// Where other processes of this user leave descriptors of their memory. Its number, by which they know it, goes with
// it.
class Mailbox {
 public:
  struct Tag {
    uint64_t from, memory;
  };
  static std::unique_ptr<Mailbox> open(uint64_t number, std::string *problem);
  ~Mailbox();
  Mailbox(const Mailbox &) = delete;
  Mailbox &operator=(const Mailbox &) = delete;

  // Leaves a descriptor in a mailbox, which does not have to be looked into first. False: `problem` says why.
  static bool post(uint64_t number, int descriptor, Tag tag, std::string *problem);
  int take(uint64_t nanoseconds, Tag *tag);  // -1: none came within the time

 private:
  explicit Mailbox(int listener) : listener_(listener) {}
  int listener_;
};

}  // namespace rocpy_host
