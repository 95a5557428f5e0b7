// SPDX-License-Identifier: MIT
// What was said last of something that went wrong (ncclGetLastError).
#include "rccl_comm.hpp"

#include <cstdio>
#include "exports.h"
#include "lazy.h"

namespace rocpy_host {

namespace {

// What was said of a failure, and of which communicator; null: the call named none.
struct Words {
  bool is_said = false;
  ncclComm_t about = nullptr;
  char text[1024] = "";
};

// RCCL has one text for the process. Here each thread has that of its own last failing call, so that ranks in threads
// do not read each other's, and falls back on the process's.
struct LastError {
  std::mutex mutex;
  Words words;
};
LastError &last_error() {
  static rocpy::Lazy<LastError> instance;
  return instance.get();
}
thread_local Words own_words;
thread_local ncclComm_t called = nullptr;  // what the call that this thread is in is about

void say(Words *words, ncclComm_t about, const char *text) noexcept {
  words->is_said = true;
  words->about = about;
  std::snprintf(words->text, sizeof words->text, "%s", text);
}

}  // namespace

ncclResult_t refuse(ncclResult_t code, const std::string &text) noexcept {
  say(&own_words, called, text.c_str());
  LastError &last = last_error();
  std::lock_guard<std::mutex> lock(last.mutex);
  say(&last.words, called, text.c_str());
  return code;
}

std::string own_last_words() { return own_words.text; }

void begin_call(ncclComm_t about) noexcept { called = about; }

}  // namespace rocpy_host

using namespace rocpy_host;

// Never another communicator's text: of one that has failed its own, of one that nothing is known of none.
const char *rocpy_host_ncclGetLastError(ncclComm_t comm) {
  // A copy for each thread: the text may change while it is read.
  static thread_local Words words;
  if (own_words.is_said && (comm == nullptr || own_words.about == comm)) return own_words.text;
  const auto communicator = comm == nullptr ? nullptr : find_communicator(comm);
  const Failure failure = communicator == nullptr ? Failure{} : communicator->failure();
  if (failure.kind != nullptr) {
    say(&words, comm, failure.text.c_str());
    return words.text;
  }
  if (own_words.is_said && own_words.about == nullptr) return own_words.text;
  LastError &last = last_error();
  std::lock_guard<std::mutex> lock(last.mutex);
  words = last.words;
  return comm == nullptr || words.about == nullptr || words.about == comm ? words.text : "";
}
