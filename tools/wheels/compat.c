// SPDX-License-Identifier: MIT
// What headers of newer C and C++ libraries use and an older C library does not export: three objects of an archive, of
// which each library of a wheel is linked with those that it needs, hidden.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <sys/stat.h>
#include <time.h>

#define HIDDEN __attribute__((visibility("hidden")))

#if defined(ROCPY_FLAG)

// False is right in any process, at the price of atomic operations.
HIDDEN char __libc_single_threaded = 0;

#elif defined(ROCPY_STAT)

// stat() was always a call of __xstat(), with the number of a structure that has not changed since.
#ifdef __x86_64__
#define VERSION 1
#else
#define VERSION 0
#endif
extern int __xstat(int, const char *, struct stat *);
extern int __lxstat(int, const char *, struct stat *);
extern int __fxstat(int, int, struct stat *);

HIDDEN int stat(const char *restrict path, struct stat *restrict found) { return __xstat(VERSION, path, found); }
HIDDEN int lstat(const char *restrict path, struct stat *restrict found) { return __lxstat(VERSION, path, found); }
HIDDEN int fstat(int file, struct stat *found) { return __fxstat(VERSION, file, found); }

#elif defined(ROCPY_WAIT)

// The C library's own where it has one; else the wait may end early or late as the time of day is set, and those who
// wait look at their clock.
HIDDEN int pthread_cond_clockwait(pthread_cond_t *condition, pthread_mutex_t *mutex, clockid_t clock,
                                  const struct timespec *until) {
  typedef int Wait(pthread_cond_t *, pthread_mutex_t *, clockid_t, const struct timespec *);
  static _Atomic(Wait *) known;
  Wait *wait = known;
  if (!wait) known = wait = (Wait *)dlsym(RTLD_DEFAULT, "pthread_cond_clockwait");
  if (wait) return wait(condition, mutex, clock, until);
  struct timespec now, day;
  clock_gettime(clock, &now);
  clock_gettime(CLOCK_REALTIME, &day);
  day.tv_sec += until->tv_sec - now.tv_sec;
  day.tv_nsec += until->tv_nsec - now.tv_nsec;
  for (; day.tv_nsec < 0; day.tv_nsec += 1000000000) --day.tv_sec;
  for (; day.tv_nsec >= 1000000000; day.tv_nsec -= 1000000000) ++day.tv_sec;
  return pthread_cond_timedwait(condition, mutex, &day);
}

#endif
