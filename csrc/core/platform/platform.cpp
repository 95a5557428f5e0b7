// SPDX-License-Identifier: MIT
// Finding the libraries of a tree, opening them, judging them, filling the table.
#include "platform.hpp"

#include <dirent.h>
#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>
#include <new>

#include "capture_relaxed.hpp"
#include "table.hpp"

namespace rocpy {
namespace {

std::mutex mutex;
std::array<LibraryFacts, library_count> facts;

// Another thread may have held it at a fork, which the child does not have. It cannot be waited for: it may itself wait
// for what the platform holds while the process forks.
void renew_in_child() { new (&mutex) std::mutex; }
const int at_fork = pthread_atfork(nullptr, nullptr, renew_in_child);

using Handles = std::array<void *, library_count>;
Handles open_handles{};  // of the platform in the table

bool is_filled() { return open_handles.front() != nullptr; }

std::string version_text(Library library, int version) {
  const LibraryRow &row = library_row(library);
  return std::to_string(version / row.major) + "." + std::to_string(version / row.minor % (row.major / row.minor)) +
         "." + std::to_string(version % row.minor);
}

// Which version a user needs: HIP's rows count major * 10000 + minor * 100, the others as their libraries do.
std::string since_text(Library library, const char *function) {
  for (int i = 0; i < row_count(); ++i) {
    const Row &row = row_at(i);
    if (row.optional || row.library != library || std::strcmp(row.function, function) != 0) continue;
    if (library_row(library).counts_releases_of_hip) {
      return "; HIP " + std::to_string(row.since / 10000) + "." + std::to_string(row.since / 100 % 100) + " has it";
    }
    return "; " + std::string(library_stem(library)) + " " + version_text(library, row.since) + " has it";
  }
  return {};
}

std::string file_name_of(Library library) { return std::string("lib") + library_stem(library) + ".so"; }

// "7.2.1" -> {7, 2, 1}; empty when it is not a list of numbers.
std::vector<long> version_numbers(const std::string &text) {
  std::vector<long> numbers;
  const char *at = text.c_str();
  while (*at) {
    char *end = nullptr;
    long number = strtol(at, &end, 10);
    if (end == at || (*end && *end != '.')) return {};
    numbers.push_back(number);
    at = *end ? end + 1 : end;
  }
  return numbers;
}

// lib<stem>.so, then lib<stem>.so.N with the highest version first: an install without the development package has only
// those.
std::vector<std::string> files_in(const std::string &directory, Library library) {
  std::string plain = file_name_of(library);
  std::vector<std::pair<std::vector<long>, std::string>> versioned;
  std::vector<std::string> files;
  DIR *listing = opendir(directory.c_str());
  if (!listing) return files;
  bool has_plain = false;
  while (dirent *entry = readdir(listing)) {
    std::string name = entry->d_name;
    if (name == plain) has_plain = true;
    if (name.size() <= plain.size() + 1 || name.compare(0, plain.size() + 1, plain + ".") != 0) continue;
    std::vector<long> numbers = version_numbers(name.substr(plain.size() + 1));
    if (!numbers.empty()) versioned.emplace_back(std::move(numbers), name);
  }
  closedir(listing);
  std::sort(versioned.begin(), versioned.end(), [](const auto &a, const auto &b) { return a.first > b.first; });
  if (has_plain) files.push_back(directory + "/" + plain);
  for (auto &entry : versioned) files.push_back(directory + "/" + entry.second);
  return files;
}

// The system's loader cannot be asked for a list, so a range of sonames is tried.
std::vector<std::string> bare_names(Library library) {
  constexpr int highest_soname = 12;
  std::vector<std::string> names{file_name_of(library)};
  for (int version = highest_soname; version >= 0; --version) {
    names.push_back(names.front() + "." + std::to_string(version));
  }
  return names;
}

std::string mapped_path(void *handle) {
  link_map *map = nullptr;
  if (dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0 || !map || !map->l_name) return {};
  return map->l_name;
}

std::string directory_of_real_file(const std::string &path) {
  char real[PATH_MAX];
  std::string resolved = realpath(path.c_str(), real) ? real : path;
  return resolved.substr(0, resolved.rfind('/'));
}

std::string file_version_of(const std::string &path) {
  char real[PATH_MAX];
  std::string resolved = realpath(path.c_str(), real) ? real : path;
  size_t at = resolved.rfind(".so.");
  return at == std::string::npos ? std::string() : resolved.substr(at + 4);
}

void *open_library(const Tree &tree, Library library, Attempt *attempt) {
  std::vector<std::string> names;
  if (tree.directories.empty()) {
    names = bare_names(library);
  } else {
    for (const std::string &directory : tree.directories) {
      for (std::string &file : files_in(directory, library)) names.push_back(std::move(file));
    }
  }
  if (names.empty()) {
    attempt->outcome = Outcome::absent;
    attempt->reason = "no " + file_name_of(library) + " (with or without a version) in " + tree.directories.front();
    return nullptr;
  }
  std::string first_error;
  for (const std::string &name : names) {
    if (void *handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) return handle;
    const char *error = dlerror();
    if (first_error.empty() && error) first_error = error;
  }
  attempt->outcome = tree.directories.empty() ? Outcome::absent : Outcome::unusable;
  attempt->reason = (tree.directories.empty() ? "the system's loader finds no " : "cannot open ") +
                    file_name_of(library) + ": " + first_error;
  return nullptr;
}

// A library over HIP that is already bound to another HIP runtime would work on memory that the table's runtime does
// not know. dlsym on a handle searches what the library was linked with, so it tells which runtime that is; a library
// not linked with HIP answers nothing.
bool bound_to_other_runtime(void *handle, void *hip_handle, Attempt *attempt, const std::string &path) {
  void *theirs = dlsym(handle, "hipGetDeviceCount");
  void *ours = dlsym(hip_handle, "hipGetDeviceCount");
  if (!theirs || theirs == ours) return false;
  attempt->outcome = Outcome::unusable;
  attempt->reason = path + " is bound to another HIP runtime of this process, " + file_of_address(theirs) +
                    ", not to " + file_of_address(ours);
  return true;
}

template <class Function>
Function symbol(void *handle, const char *name) {
  return reinterpret_cast<Function>(dlsym(handle, name));
}

// Asks the HIP runtime for its version and devices. *called tells whether any of its code ran.
bool accept_hip(void *handle, const Tree &tree, LibraryFacts *hip, Attempt *attempt, bool *called) {
  auto get_version = symbol<decltype(table.hipRuntimeGetVersion)>(handle, "hipRuntimeGetVersion");
  auto get_count = symbol<decltype(table.hipGetDeviceCount)>(handle, "hipGetDeviceCount");
  if (!get_version || !get_count) {
    attempt->outcome = Outcome::unusable;
    attempt->reason =
        hip->path + " is not a HIP runtime: it has no " + (get_version ? "hipGetDeviceCount" : "hipRuntimeGetVersion");
    return false;
  }
  *called = true;
  hipError_t error = get_version(&hip->version);
  if (error == hipErrorNoDevice) {
    attempt->outcome = Outcome::no_device;
    attempt->reason = hip->path + ": hipRuntimeGetVersion answered hipErrorNoDevice";
    return false;
  }
  if (error != hipSuccess) {
    attempt->outcome = Outcome::unusable;
    attempt->reason =
        hip->path + ": hipRuntimeGetVersion failed with status " + std::to_string(static_cast<int>(error));
    return false;
  }
  if (hip->version < oldest_hip_version) {
    attempt->outcome = Outcome::too_old;
    attempt->reason =
        hip->path + " is HIP " + version_text(Library::hip, hip->version) + "; rocpy needs HIP 6.0 or later";
    return false;
  }
  error = get_count(&attempt->device_count);
  if (error != hipSuccess) attempt->device_count = 0;
  if (tree.need_device && attempt->device_count < 1) {
    attempt->outcome = Outcome::no_device;
    attempt->reason = hip->path + ": no device answers (hipGetDeviceCount: status " +
                      std::to_string(static_cast<int>(error)) + ", " + std::to_string(attempt->device_count) +
                      " devices)";
    return false;
  }
  return true;
}

bool open_one(const Tree &tree, Library library, Handles *handles, std::array<LibraryFacts, library_count> *libraries,
              Attempt *attempt) {
  void *handle = (*handles)[static_cast<int>(library)] = open_library(tree, library, attempt);
  if (!handle) return false;
  LibraryFacts &fact = (*libraries)[static_cast<int>(library)];
  fact.path = mapped_path(handle);
  fact.file_version = file_version_of(fact.path);
  if (library == Library::hip) return true;
  if (bound_to_other_runtime(handle, handles->front(), attempt, fact.path)) return false;
  if (tree.directories.empty() &&
      directory_of_real_file(fact.path) != directory_of_real_file(libraries->front().path)) {
    attempt->outcome = Outcome::unusable;
    attempt->reason =
        "the system's loader takes " + libraries->front().path + " and " + fact.path + " from different folders";
    return false;
  }
  return true;
}

bool open_tree(const Tree &tree, Handles *handles, std::array<LibraryFacts, library_count> *libraries, Attempt *attempt,
               bool *called) {
  for (int i = 0; i < library_count; ++i) {
    auto library = static_cast<Library>(i);
    (*libraries)[i].library = library;
    if (open_one(tree, library, handles, libraries, attempt)) continue;
    if (!library_row(library).optional) return false;
    void *&handle = (*handles)[i];
    if (handle) dlclose(handle);
    handle = nullptr;
    (*libraries)[i].absence = attempt->reason;
    *attempt = Attempt{};
  }
  return accept_hip(handles->front(), tree, &libraries->front(), attempt, called);
}

// A platform may present an older ROCm than its libraries are.
bool hidden(const Handles &handles, const char *function) {
  auto ask = symbol<decltype(table.rocpyExtRowIsHidden)>(handles.front(), "rocpyExtRowIsHidden");
  int answer = 0;
  return ask && ask(function, &answer) == hipSuccess && answer != 0;
}

void *lookup(Library library, const char *function, void *context) {
  const Handles &handles = *static_cast<Handles *>(context);
  void *handle = handles[static_cast<int>(library)];
  if (!handle || hidden(handles, function)) return nullptr;
  return dlsym(handle, function);
}

// Asks a library for its version by a function that needs no handle; its status is 0 where that worked.
void ask_version(void *address, LibraryFacts *fact) {
  auto ask = reinterpret_cast<int (*)(int *)>(address);
  if (!ask || ask(&fact->version) != 0) fact->version = 0;
}

}  // namespace

std::atomic<bool> platform_loaded{false};

Attempt load_platform(const Tree &tree) {
  std::lock_guard<std::mutex> lock(mutex);
  Attempt attempt;
  if (loaded()) {
    attempt.outcome = Outcome::already_loaded;
    attempt.reason = "a platform is already loaded: " + facts.front().path;
    return attempt;
  }
  Handles handles{};
  std::array<LibraryFacts, library_count> libraries;
  bool called = false;
  if (!open_tree(tree, &handles, &libraries, &attempt, &called)) {
    for (void *handle : handles) {
      if (handle && !called) dlclose(handle);
    }
    return attempt;
  }
  fill_table(lookup, &handles);
  for (LibraryFacts &fact : libraries) {
    fact.missing = missing(fact.library);
    const char *function = library_row(fact.library).version_function;
    if (*function && fact.absence.empty()) ask_version(lookup(fact.library, function, &handles), &fact);
  }
  // hipRTC tells its version in two numbers.
  LibraryFacts &hiprtc = libraries[static_cast<int>(Library::hiprtc)];
  int major = 0, minor = 0;
  if (hiprtc.absence.empty() && table.hiprtcVersion(&major, &minor) == HIPRTC_SUCCESS) {
    hiprtc.version = major * 10000000 + minor * 100000;
  }
  facts = std::move(libraries);
  open_handles = handles;
  attempt.outcome = Outcome::loaded;
  return attempt;
}

void publish_platform() { platform_loaded.store(true, std::memory_order_release); }

std::vector<LibraryFacts> library_facts() {
  std::lock_guard<std::mutex> lock(mutex);
  std::vector<LibraryFacts> there;
  if (!is_filled()) return there;
  for (const LibraryFacts &fact : facts) {
    if (fact.absence.empty()) there.push_back(fact);
  }
  return there;
}

void probe_versions() {
  // hipblasLtCreate ends the process when its own allocation fails, so it is called only where memory is free.
  constexpr size_t least_free_bytes = size_t{64} << 20;
  LibraryFacts &fact = facts[static_cast<int>(Library::hipblaslt)];
  std::lock_guard<std::mutex> lock(mutex);
  size_t free_bytes = 0, total_bytes = 0;
  if (!is_filled() || fact.version || !has("hipblasLtCreate") || !has("hipblasLtGetVersion")) return;
  if (table.hipMemGetInfo(&free_bytes, &total_bytes) != hipSuccess || free_bytes < least_free_bytes) return;
  CaptureRelaxed relaxed;
  // Never destroyed: that would wait for the device, on which a collective may wait for other ranks.
  static hipblasLtHandle_t handle = nullptr;
  if (table.hipblasLtCreate(&handle) != HIPBLAS_STATUS_SUCCESS) return;
  int version = 0;
  if (table.hipblasLtGetVersion(handle, &version) == HIPBLAS_STATUS_SUCCESS) fact.version = version;
}

void *find_symbol(Library library, const char *symbol) {
  std::lock_guard<std::mutex> lock(mutex);
  void *handle = open_handles[static_cast<int>(library)];
  return handle ? dlsym(handle, symbol) : nullptr;
}

std::string missing_text(Library library, const char *function) {
  std::string text = std::string(function) + " (" + library_name(library) + ") is not available: ";
  std::lock_guard<std::mutex> lock(mutex);
  if (!is_filled()) return text + "no platform is loaded";
  const LibraryFacts &fact = facts[static_cast<int>(library)];
  if (!fact.absence.empty()) return text + fact.absence;
  text += "the library at " + fact.path;
  if (library == Library::hip) {
    text += ", HIP " + version_text(library, fact.version) + ",";
  } else if (fact.version) {
    text += ", version " + version_text(library, fact.version) + ",";
  } else {
    text += fact.file_version.empty() ? ", of unknown version," : ", version " + fact.file_version + ",";
  }
  return text + " does not have this function" + since_text(library, function);
}

std::string platform_info() {
  size_t needed = 0;
  if (!has("rocpyExtPlatformInfo") || table.rocpyExtPlatformInfo(nullptr, 0, &needed) != hipSuccess || needed == 0) {
    return {};
  }
  std::string text(needed, '\0');
  if (table.rocpyExtPlatformInfo(&text[0], text.size(), &needed) != hipSuccess) return {};
  return text.c_str();
}

std::vector<DeviceFacts> devices() {
  int count = 0;
  std::vector<DeviceFacts> result;
  if (table.hipGetDeviceCount(&count) != hipSuccess) return result;
  for (int device = 0; device < count; ++device) {
    hipDeviceProp_tR0600 properties;
    if (table.hipGetDevicePropertiesR0600(&properties, device) != hipSuccess) properties = {};
    result.push_back({properties.name, properties.gcnArchName, properties.totalGlobalMem});
  }
  return result;
}

const void *error_name_address(int32_t code) { return table.hipGetErrorName(static_cast<hipError_t>(code)); }

std::string file_of_address(const void *address) {
  Dl_info info;
  return dladdr(address, &info) && info.dli_fname ? info.dli_fname : "";
}

}  // namespace rocpy
