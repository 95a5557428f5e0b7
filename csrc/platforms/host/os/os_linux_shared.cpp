// SPDX-License-Identifier: MIT
// Shared memory, futexes and signs of life on Linux.
//
// A block is a memfd, passed over a socket with an abstract name: neither leaves a file, and a container's limit of
// /dev/shm does not bind it. A sign of life is a record lock: the kernel drops it when the process ends, a forked child
// does not inherit it, and unlike a process id it means the same in every pid namespace.
#include "lazy.h"
#include "os_shared.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <set>
#include <utility>

namespace rocpy_host {

namespace {

constexpr uint64_t million = 1000000;

std::string system_text(const char *what) { return std::string(what) + ": " + std::strerror(errno); }

timespec to_timespec(uint64_t nanoseconds) {
  return {static_cast<time_t>(nanoseconds / 1000000000), static_cast<long>(nanoseconds % 1000000000)};
}

socklen_t abstract_name(const std::string &name, sockaddr_un *address) {
  std::memset(address, 0, sizeof *address);
  address->sun_family = AF_UNIX;
  std::memcpy(address->sun_path + 1, name.data(), name.size());  // the zero before it makes the name abstract
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

std::string hexadecimal(const unsigned char *bytes, size_t count) {
  std::string text;
  for (size_t i = 0; i < count; ++i) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", bytes[i]);
    text += digits;
  }
  return text;
}

socklen_t name_of_block(const SharedBlock::Key &key, sockaddr_un *address) {
  return abstract_name("rocpy-rccl-" + hexadecimal(key.bytes, sizeof key.bytes), address);
}

socklen_t name_of_mailbox(uint64_t number, sockaddr_un *address) {
  unsigned char bytes[sizeof number];
  std::memcpy(bytes, &number, sizeof number);
  return abstract_name("rocpy-mailbox-" + hexadecimal(bytes, sizeof bytes), address);
}

// A socket that connects within a time, even to one whose queue is full because nobody takes from it. -1: the system
// refused.
int connecting_socket() {
  const int connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const timeval longest{0, 20000};
  if (connection >= 0) setsockopt(connection, SOL_SOCKET, SO_SNDTIMEO, &longest, sizeof longest);
  return connection;
}

// Only processes of the same user take part.
bool is_same_user(int connection) {
  ucred peer{};
  socklen_t length = sizeof peer;
  return getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == geteuid();
}

struct Message {
  Message() {
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof control;
  }
  Mailbox::Tag tag{};
  iovec part{&tag, sizeof tag};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr header{};
};

bool send_descriptor(int connection, int descriptor, Mailbox::Tag tag = {}) {
  Message message;
  message.tag = tag;
  cmsghdr *control = CMSG_FIRSTHDR(&message.header);
  control->cmsg_level = SOL_SOCKET;
  control->cmsg_type = SCM_RIGHTS;
  control->cmsg_len = CMSG_LEN(sizeof descriptor);
  std::memcpy(CMSG_DATA(control), &descriptor, sizeof descriptor);
  return sendmsg(connection, &message.header, MSG_NOSIGNAL) >= 0;
}

// -1: none came within the time, or the server went away.
int receive_descriptor(int connection, uint64_t patience_ns, Mailbox::Tag *tag = nullptr) {
  pollfd waiting{connection, POLLIN, 0};
  const timespec time = to_timespec(patience_ns);
  if (ppoll(&waiting, 1, &time, nullptr) != 1) return -1;
  Message message;
  if (recvmsg(connection, &message.header, MSG_CMSG_CLOEXEC) <= 0) return -1;
  const cmsghdr *control = CMSG_FIRSTHDR(&message.header);
  if (control == nullptr || control->cmsg_type != SCM_RIGHTS) return -1;
  int descriptor;
  std::memcpy(&descriptor, CMSG_DATA(control), sizeof descriptor);
  if (tag != nullptr) *tag = message.tag;
  return descriptor;
}

// Files of the blocks that this process takes part in.
struct OwnFiles {
  std::mutex mutex;
  std::set<std::pair<dev_t, ino_t>> files;
};
OwnFiles &own_files() {
  static rocpy::Lazy<OwnFiles> instance;
  return instance.get();
}

struct flock record(short type, unsigned index) {
  struct flock lock{};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = index;
  lock.l_len = 1;
  return lock;
}

std::mutex key_mutex;
uint64_t key = 0;
pid_t key_owner = 0;

// A thread that held it is not in the child.
void renew_key_mutex() { new (&key_mutex) std::mutex; }
__attribute__((constructor)) void renew_at_forks() { pthread_atfork(nullptr, nullptr, renew_key_mutex); }

}  // namespace

int process_id() { return static_cast<int>(getpid()); }

uint64_t process_key() {
  std::lock_guard<std::mutex> lock(key_mutex);
  if (key_owner != getpid() && random_bytes(&key, sizeof key)) key_owner = getpid();
  return key;
}

uint64_t process_space() {
  struct stat facts{};
  return stat("/proc/self/ns/pid", &facts) == 0 ? static_cast<uint64_t>(facts.st_ino) : 0;
}

uint64_t thread_id() {
  static thread_local const uint64_t id = static_cast<uint64_t>(syscall(SYS_gettid));
  return id;
}

char process_state(int pid) {
  char path[64], line[512];
  std::snprintf(path, sizeof path, "/proc/%d/stat", pid);
  FILE *file = std::fopen(path, "re");
  if (file == nullptr) return '?';
  const size_t length = std::fread(line, 1, sizeof line - 1, file);
  std::fclose(file);
  line[length] = '\0';
  const char *end = std::strrchr(line, ')');  // a command's name may hold anything
  return end != nullptr && end[1] == ' ' && end[2] != '\0' ? end[2] : '?';
}

bool read_process(int pid, const void *from, void *to, size_t bytes) {
  for (size_t done = 0; done < bytes;) {
    const iovec own{static_cast<char *>(to) + done, bytes - done};
    const iovec others{const_cast<char *>(static_cast<const char *>(from)) + done, bytes - done};
    const ssize_t count = process_vm_readv(pid, &own, 1, &others, 1, 0);
    if (count <= 0) return false;
    done += static_cast<size_t>(count);  // fewer than asked for: the next call says why, or goes on
  }
  return true;
}

bool random_bytes(void *out, size_t count) {
  auto *at = static_cast<char *>(out);
  while (count > 0) {
    const ssize_t got = getrandom(at, count, 0);
    if (got < 0 && errno != EINTR) return false;
    if (got > 0) {
      at += got;
      count -= static_cast<size_t>(got);
    }
  }
  return true;
}

void wait_on_word(std::atomic<uint32_t> *word, uint32_t seen, uint64_t nanoseconds) {
  const timespec time = to_timespec(nanoseconds);
  syscall(SYS_futex, reinterpret_cast<uint32_t *>(word), FUTEX_WAIT, seen, &time, nullptr, 0);
}

void wake_word(std::atomic<uint32_t> *word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t *>(word), FUTEX_WAKE, 0x7fffffff, nullptr, nullptr, 0);
}

uint64_t now_ns() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<uint64_t>(time.tv_sec) * 1000000000 + static_cast<uint64_t>(time.tv_nsec);
}

void yield_processor() { sched_yield(); }

std::unique_ptr<SharedBlock> SharedBlock::open(const Key &key, size_t bytes, uint64_t patience_ns,
                                               std::string *problem) {
  std::unique_ptr<SharedBlock> block(new SharedBlock);
  sockaddr_un address;
  const socklen_t length = name_of_block(key, &address);
  const uint64_t start = now_ns();
  while (block->memory_ < 0) {
    const int connection = connecting_socket();
    if (connection < 0) {
      *problem = system_text("socket");
      return nullptr;
    }
    if (connect(connection, reinterpret_cast<sockaddr *>(&address), length) == 0) {
      if (is_same_user(connection)) block->memory_ = receive_descriptor(connection, 20 * million);
      close(connection);
    } else if (errno == ECONNREFUSED) {
      // Nobody serves it: make it, unless somebody is quicker.
      const int memory = memfd_create("rocpy-rccl", MFD_CLOEXEC);
      if (memory < 0 || ftruncate(memory, static_cast<off_t>(bytes)) != 0) {
        *problem = system_text("memfd of shared memory");
        if (memory >= 0) close(memory);
        close(connection);
        return nullptr;
      }
      if (bind(connection, reinterpret_cast<sockaddr *>(&address), length) == 0 && listen(connection, 1024) == 0) {
        block->memory_ = memory;
        block->listener_ = connection;
        block->is_maker_ = true;
        break;
      }
      close(memory);
      close(connection);
    } else if (errno != EAGAIN && errno != EINTR) {
      *problem = system_text("connect");
      close(connection);
      return nullptr;
    } else {
      close(connection);
    }
    if (block->memory_ < 0 && now_ns() - start > patience_ns) {
      problem->clear();  // no answer yet
      return nullptr;
    }
  }
  struct stat facts{};
  if (fstat(block->memory_, &facts) != 0) {
    *problem = system_text("fstat");
    return nullptr;
  }
  {
    OwnFiles &own = own_files();
    std::lock_guard<std::mutex> lock(own.mutex);
    own.files.insert({facts.st_dev, facts.st_ino});
    block->is_own_ = true;
  }
  block->bytes_ = static_cast<size_t>(facts.st_size);
  void *data = mmap(nullptr, block->bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, block->memory_, 0);
  if (data == MAP_FAILED) {
    *problem = system_text("mmap of shared memory");
    return nullptr;
  }
  block->data_ = data;
  return block;
}

SharedBlock::~SharedBlock() {
  stop_serving();
  if (data_ != nullptr) munmap(data_, bytes_);
  if (memory_ < 0) return;
  struct stat facts{};
  if (is_own_ && fstat(memory_, &facts) == 0) {
    OwnFiles &own = own_files();
    std::lock_guard<std::mutex> lock(own.mutex);
    own.files.erase({facts.st_dev, facts.st_ino});
  }
  close(memory_);
}

void SharedBlock::serve(uint64_t nanoseconds) {
  std::unique_lock<std::mutex> lock(serving_, std::try_to_lock);
  if (!lock.owns_lock() || listener_ < 0) return;
  pollfd waiting{listener_, POLLIN, 0};
  timespec time = to_timespec(nanoseconds);
  while (ppoll(&waiting, 1, &time, nullptr) == 1) {
    const int connection = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (connection < 0) return;
    // One that asked and went away is its own problem.
    if (is_same_user(connection)) send_descriptor(connection, memory_);
    close(connection);
    time = {0, 0};
  }
}

void SharedBlock::stop_serving() {
  std::lock_guard<std::mutex> lock(serving_);
  if (listener_ >= 0) close(listener_);
  listener_ = -1;
}

bool SharedBlock::mark(unsigned index) {
  struct flock lock = record(F_WRLCK, index);
  return fcntl(memory_, F_SETLK, &lock) == 0;
}

bool SharedBlock::is_marked_elsewhere(unsigned index) const {
  struct flock lock = record(F_WRLCK, index);
  return fcntl(memory_, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

namespace {

// Calls back with each number that names an entry of a folder of /proc.
template <class Body>
void for_each_number(const std::string &folder, Body body) {
  DIR *opened = opendir(folder.c_str());
  if (opened == nullptr) return;
  while (const dirent *entry = readdir(opened)) {
    if (entry->d_name[0] >= '0' && entry->d_name[0] <= '9') body(std::string(entry->d_name));
  }
  closedir(opened);
}

}  // namespace

void visit_blocks_of_others(const std::function<void(std::unique_ptr<SharedBlock>)> &visit) {
  std::set<std::pair<dev_t, ino_t>> seen;
  OwnFiles &own = own_files();
  std::lock_guard<std::mutex> lock(own.mutex);
  for_each_number("/proc", [&](const std::string &pid) {
    const std::string folder = "/proc/" + pid + "/fd";
    for_each_number(folder, [&](const std::string &number) {
      const std::string path = folder + "/" + number;
      char target[64] = {};
      struct stat facts{};
      if (readlink(path.c_str(), target, sizeof target - 1) < 0 ||
          std::strncmp(target, "/memfd:rocpy-rccl ", 18) != 0 || stat(path.c_str(), &facts) != 0 ||
          own.files.count({facts.st_dev, facts.st_ino}) != 0 || !seen.insert({facts.st_dev, facts.st_ino}).second) {
        return;
      }
      std::unique_ptr<SharedBlock> block(new SharedBlock);
      block->memory_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
      block->bytes_ = static_cast<size_t>(facts.st_size);
      if (block->memory_ < 0) return;
      void *data = mmap(nullptr, block->bytes_, PROT_READ, MAP_SHARED, block->memory_, 0);
      if (data == MAP_FAILED) return;
      block->data_ = data;
      visit(std::move(block));
    });
  });
}

std::shared_ptr<SharedMemory> SharedMemory::make(size_t bytes, std::string *problem) {
  const int descriptor = memfd_create("rocpy-memory", MFD_CLOEXEC);
  if (descriptor < 0 || ftruncate(descriptor, static_cast<off_t>(bytes)) != 0) {
    *problem = system_text("memfd of shared memory");
    if (descriptor >= 0) close(descriptor);
    return nullptr;
  }
  auto memory = map(descriptor, problem);
  if (memory != nullptr) {
    memory->descriptor_ = descriptor;
  } else {
    close(descriptor);
  }
  return memory;
}

std::shared_ptr<SharedMemory> SharedMemory::take(int descriptor, std::string *problem) {
  auto memory = map(descriptor, problem);
  close(descriptor);
  return memory;
}

std::shared_ptr<SharedMemory> SharedMemory::map(int descriptor, std::string *problem) {
  struct stat facts{};
  if (fstat(descriptor, &facts) != 0) {
    *problem = system_text("fstat");
    return nullptr;
  }
  std::shared_ptr<SharedMemory> memory(new SharedMemory);
  const auto bytes = static_cast<size_t>(facts.st_size);
  void *data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (data == MAP_FAILED) {
    *problem = system_text("mmap of shared memory");
    return nullptr;
  }
  memory->data_ = data;
  memory->bytes_ = bytes;
  return memory;
}

void SharedMemory::give_up_pages() {
  if (pid_ == process_id()) madvise(data_, bytes_, MADV_REMOVE);
}

SharedMemory::~SharedMemory() {
  if (data_ != nullptr) munmap(data_, bytes_);
  if (descriptor_ >= 0) close(descriptor_);
}

std::unique_ptr<Mailbox> Mailbox::open(uint64_t number, std::string *problem) {
  const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (listener >= 0) {
    sockaddr_un address;
    const socklen_t length = name_of_mailbox(number, &address);
    if (bind(listener, reinterpret_cast<sockaddr *>(&address), length) == 0 && listen(listener, 1024) == 0) {
      return std::unique_ptr<Mailbox>(new Mailbox(listener));
    }
  }
  *problem = system_text("socket");
  if (listener >= 0) close(listener);
  return nullptr;
}

Mailbox::~Mailbox() { close(listener_); }

bool Mailbox::post(uint64_t number, int descriptor, Tag tag, std::string *problem) {
  const int connection = connecting_socket();
  sockaddr_un address;
  const socklen_t length = name_of_mailbox(number, &address);
  const bool is_posted = connection >= 0 && connect(connection, reinterpret_cast<sockaddr *>(&address), length) == 0 &&
                         is_same_user(connection) && send_descriptor(connection, descriptor, tag);
  if (!is_posted) *problem = system_text("socket of another rank");
  if (connection >= 0) close(connection);
  return is_posted;
}

int Mailbox::take(uint64_t nanoseconds, Tag *tag) {
  pollfd waiting{listener_, POLLIN, 0};
  const timespec time = to_timespec(nanoseconds);
  if (ppoll(&waiting, 1, &time, nullptr) != 1) return -1;
  const int connection = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
  if (connection < 0) return -1;
  const int descriptor = is_same_user(connection) ? receive_descriptor(connection, nanoseconds, tag) : -1;
  close(connection);
  return descriptor;
}

}  // namespace rocpy_host
