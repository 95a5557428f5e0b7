// SPDX-License-Identifier: MIT
// Ranks that are processes, and a hook for when one asks the system for another's memory.
#pragma once

#include "rccl/finished.hpp"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <vector>

// A process for each rank. It fails if one of them does; -1 stands for one that is killed on purpose.
inline void on_processes(int ranks, const std::function<void(int, const ncclUniqueId &)> &body, int killed = -1) {
  ncclUniqueId id;
  CHECK_EQUAL(ncclGetUniqueId(&id), ncclSuccess);
  std::vector<pid_t> children;
  for (int r = 0; r < ranks; ++r) {
    const pid_t child = fork();
    if (child == 0) {
      failures.store(0);
      alarm(60);
      CHECK_EQUAL(hipSetDevice(r), hipSuccess);
      body(r, id);
      _exit(failures.load() == 0 ? 0 : 1);
    }
    children.push_back(child);
  }
  for (int r = 0; r < ranks; ++r) {
    int status = 0;
    waitpid(children[static_cast<size_t>(r)], &status, 0);
    if (r == killed) {
      CHECK(WIFSIGNALED(status));
    } else {
      CHECK_EQUAL(status, 0);
    }
  }
}

// Calls are carried out in the calling thread: it takes signals as the streams' own do not, of which the thread
// sanitizer knows too little after a fork.
inline ncclComm_t joined(int count, const ncclUniqueId &id, int rank) {
  ncclComm_t comm = nullptr;
  CHECK_EQUAL(ncclCommInitRank(&comm, count, id, rank), ncclSuccess);
  CHECK_EQUAL(rocpyExtCommSetPatience(comm, UINT64_MAX), ncclSuccess);
  return comm;
}

// The same, joined to a communicator. One that does not read others may be among them; -1: none.
inline void on_processes(int ranks, const std::function<void(int, ncclComm_t)> &body, int killed = -1,
                         int unwilling = -1) {
  on_processes(
      ranks,
      [&](int r, const ncclUniqueId &id) {
        if (r == unwilling) setenv("ROCPY_RCCL_PROCESS_READS", "0", 1);
        const ncclComm_t comm = joined(ranks, id, r);
        body(r, comm);
        CHECK_EQUAL(ncclCommAbort(comm), ncclSuccess);
      },
      killed);
}

using SignalHandler = void (*)(int, siginfo_t *, void *);

inline void handle_signal(int number, SignalHandler handler) {
  struct sigaction action{};
  action.sa_flags = SA_SIGINFO;
  action.sa_sigaction = handler;
  CHECK_EQUAL(sigaction(number, &action, nullptr), 0);
}

// Has a handler of SIGSYS answer, in place of the system, when this process asks for another's memory.
inline void trap_reading(SignalHandler handler) {
  handle_signal(SIGSYS, handler);
  sock_filter rows[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{sizeof rows / sizeof rows[0], rows};
  CHECK_EQUAL(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
  // Of all threads: those that carry operations out are there already.
  CHECK_EQUAL(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program), 0);
}

// What was asked for: its arguments by their numbers, and the answer.
inline uint64_t trapped_argument(void *context, int index) {
#if defined(__x86_64__)
  constexpr int registers[] = {REG_RDI, REG_RSI, REG_RDX, REG_R10};
  return static_cast<uint64_t>(static_cast<ucontext_t *>(context)->uc_mcontext.gregs[registers[index]]);
#elif defined(__aarch64__)
  return static_cast<ucontext_t *>(context)->uc_mcontext.regs[index];
#endif
}

inline void answer_trap(void *context, int64_t answer) {
#if defined(__x86_64__)
  static_cast<ucontext_t *>(context)->uc_mcontext.gregs[REG_RAX] = answer;
#elif defined(__aarch64__)
  static_cast<ucontext_t *>(context)->uc_mcontext.regs[0] = static_cast<unsigned long long>(answer);
#endif
}
