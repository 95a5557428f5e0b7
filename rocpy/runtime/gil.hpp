// SPDX-License-Identifier: MIT
// The GIL in C++ that cannot be unwound. Once the interpreter ends, CPython until 3.14 ends a thread that takes the GIL
// (pthread_exit), which unwinds its stack: a destructor, or any other function that is noexcept, then ends the process.
#pragma once

#include <Python.h>
#include <unistd.h>

namespace rocpy {

// Waits for the process's end; what the stack owns stays as it is.
[[noreturn]] inline void sleep_until_exit() {
  for (;;) pause();
}

// Gives the GIL to other threads in a scope; a thread that outlives the interpreter does not leave that.
class ReleasedGil {
 public:
  ReleasedGil() : state_(PyEval_SaveThread()) {}
  ReleasedGil(const ReleasedGil &) = delete;
  ReleasedGil &operator=(const ReleasedGil &) = delete;
  ~ReleasedGil() {
    try {
      PyEval_RestoreThread(state_);
    } catch (...) {
      sleep_until_exit();
    }
  }

 private:
  PyThreadState *state_;
};

// PyGILState_Ensure, which a thread that outlives the interpreter does not return from.
inline PyGILState_STATE ensure_gil() noexcept {
  try {
    return PyGILState_Ensure();
  } catch (...) {
    sleep_until_exit();
  }
}

}  // namespace rocpy
