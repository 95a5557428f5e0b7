// SPDX-License-Identifier: MIT
// The ends of processes: exit with work queued, exit from a thread's work, and a forked child while the parent's
// streams are busy.
#include "check.hpp"
#include "gate.hpp"
#include "prototypes.h"

#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

extern char **environ;

namespace {

constexpr int code_of_success = 17;

// The child's exit code; a child that takes too long is killed and gives -1.
int exit_code_of(pid_t child) {
  for (int tries = 0; tries < 3000; ++tries) {
    int status = 0;
    if (waitpid(child, &status, WNOHANG) == child) {
      return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  return -1;
}

int exit_code_of_role(const char *program, const char *role) {
  char *arguments[] = {const_cast<char *>(program), const_cast<char *>(role), nullptr};
  pid_t child = 0;
  CHECK_EQUAL(posix_spawn(&child, "/proc/self/exe", nullptr, nullptr, arguments, environ), 0);
  return exit_code_of(child);
}

// Exits with a host function that never returns, copies queued behind it, and a destroyed stream that still has work.
int exit_with_queued_work() {
  auto *never_opened = new Gate;  // never destroyed either: the function still waits at it
  static char source[4096], target[4096];
  for (int i = 0; i < 3; ++i) {
    hipStream_t stream = nullptr;
    hipStreamCreate(&stream);
    hipLaunchHostFunc(stream, Gate::wait_at, never_opened);
    hipMemcpyAsync(target, source, sizeof target, hipMemcpyDefault, stream);
    if (i == 1) {
      hipStreamDestroy(stream);
    }
  }
  return code_of_success;
}

// Exits while copies run and more are queued.
int exit_while_busy() {
  constexpr size_t bytes = 8 << 20;
  std::vector<hipStream_t> streams(3);
  for (hipStream_t &stream : streams) {
    hipStreamCreate(&stream);
    void *from = nullptr, *to = nullptr;
    hipMalloc(&from, bytes);
    hipMalloc(&to, bytes);
    hipLaunchHostFunc(stream, [](void *) {}, nullptr);
    for (int i = 0; i < 50; ++i) {
      hipMemcpyAsync(to, from, bytes, hipMemcpyDeviceToDevice, stream);
    }
  }
  std::exit(code_of_success);
}

#ifndef __SANITIZE_THREAD__  // which does not follow a fork of several threads
// What a forked child does: the parent's stuck work is not its own.
int use_after_fork(hipStream_t stream, void *memory, const Gate *) {
  int seen = 0, value = 5;
  std::atomic<bool> has_run{false};
  hipEvent_t event = nullptr;
  CHECK_EQUAL(hipStreamSynchronize(stream), hipSuccess);
  CHECK_EQUAL(hipMemcpyAsync(memory, &value, sizeof value, hipMemcpyHostToDevice, stream), hipSuccess);
  CHECK_EQUAL(hipLaunchHostFunc(
                  stream, [](void *flag) { static_cast<std::atomic<bool> *>(flag)->store(true); }, &has_run),
              hipSuccess);
  CHECK_EQUAL(hipEventCreate(&event), hipSuccess);
  CHECK_EQUAL(hipEventRecord(event, stream), hipSuccess);
  CHECK_EQUAL(hipEventSynchronize(event), hipSuccess);
  CHECK(has_run);
  CHECK_EQUAL(hipMemcpy(&seen, memory, sizeof seen, hipMemcpyDeviceToHost), hipSuccess);
  CHECK_EQUAL(seen, value);
  CHECK_EQUAL(hipLaunchHostFunc(hipStreamPerThread, [](void *) {}, nullptr), hipSuccess);
  CHECK_EQUAL(hipFree(memory), hipSuccess);
  CHECK_EQUAL(hipDeviceSynchronize(), hipSuccess);
  return failures.load() == 0 ? code_of_success : 1;
}

void check_fork() {
  hipStream_t stream = nullptr, busy = nullptr;
  void *memory = nullptr;
  CHECK_EQUAL(hipStreamCreate(&stream), hipSuccess);
  CHECK_EQUAL(hipStreamCreate(&busy), hipSuccess);
  CHECK_EQUAL(hipMalloc(&memory, 64), hipSuccess);
  Gate gate;
  CHECK_EQUAL(hipLaunchHostFunc(stream, Gate::wait_at, &gate), hipSuccess);
  CHECK_EQUAL(hipMemsetAsync(memory, 1, 64, stream), hipSuccess);
  gate.wait_until_reached();  // a fork while the sanitizer starts a thread may leave its locks held in the child
#ifndef __SANITIZE_ADDRESS__  // whose own locks a fork may copy while another thread holds them: the child then waits
                              // for ever
  // Another thread is in the runtime's lock most of the time while this one forks.
  std::atomic<bool> has_begun{false}, is_over{false};
  std::thread caller([&has_begun, &is_over, busy] {
    int from = 1, to = 0;
    while (!is_over) {
      CHECK_EQUAL(hipMemcpyAsync(&to, &from, sizeof to, hipMemcpyDefault, busy), hipSuccess);
      CHECK_EQUAL(hipStreamSynchronize(busy), hipSuccess);
      has_begun = true;
    }
  });
  while (!has_begun) {
    std::this_thread::yield();
  }
#endif
  for (int i = 0; i < 4; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      std::exit(use_after_fork(stream, memory, &gate));
    }
    CHECK_EQUAL(exit_code_of(child), code_of_success);
  }
#ifndef __SANITIZE_ADDRESS__
  is_over = true;
  caller.join();
#endif
  CHECK_EQUAL(hipStreamQuery(stream), hipErrorNotReady);
  gate.open();
  CHECK_EQUAL(hipDeviceSynchronize(), hipSuccess);
  CHECK_EQUAL(static_cast<unsigned char *>(memory)[63], 1);
  CHECK_EQUAL(hipFree(memory), hipSuccess);
}
#endif

}  // namespace

int main(int count, char **arguments) {
  const struct {
    const char *name;
    int (*run)();
  } roles[] = {{"queued", exit_with_queued_work}, {"busy", exit_while_busy}};
  for (const auto &role : roles) {
    if (count > 1) {
      if (std::strcmp(arguments[1], role.name) == 0) {
        return role.run();
      }
    } else {
      for (int i = 0; i < 3; ++i) {
        CHECK_EQUAL(exit_code_of_role(arguments[0], role.name), code_of_success);
      }
    }
  }
#ifndef __SANITIZE_THREAD__
  check_fork();
#endif
  return failures.load() == 0 ? 0 : 1;
}
