// SPDX-License-Identifier: MIT
// Where the kernel shows control groups: /proc/self/cgroup names the process's group in each hierarchy, and
// /proc/self/mountinfo says where a hierarchy is mounted and with which group at the top.
#include "control_group.hpp"

#include <algorithm>
#include <cctype>
#include <fstream>
#include <sstream>
#include <vector>

namespace rocpy_host {

namespace {

struct Hierarchy {
  bool is_unified;
  std::string top, folder;  // the group at the top of the mount, and where that is
};

bool has_word(const std::string &list, const std::string &word) {
  std::istringstream words(list);
  for (std::string one; std::getline(words, one, ',');) {
    if (one == word) return true;
  }
  return false;
}

// The kernel writes spaces and backslashes of a path as \ and three octal digits.
std::string unescaped(const std::string &text) {
  std::string path;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size() && std::isdigit(static_cast<unsigned char>(text[i + 1]))) {
      path += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + (text[i + 3] - '0'));
      i += 3;
    } else {
      path += text[i];
    }
  }
  return path;
}

std::vector<Hierarchy> mounted(const std::string &root, const std::string &controller) {
  std::vector<Hierarchy> result;
  std::ifstream file(root + "/proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string skipped, top, folder, word, type, source, options;
    words >> skipped >> skipped >> skipped >> top >> folder;
    while (words >> word && word != "-") {
    }
    words >> type >> source >> options;
    if (type == "cgroup2" || (type == "cgroup" && has_word(options, controller))) {
      result.push_back({type == "cgroup2", unescaped(top), root + unescaped(folder)});
    }
  }
  return result;
}

// The name of a group below the top of a mount: "" for the top itself, else beginning with a slash.
std::string below(const std::string &top, const std::string &name) {
  if (name == top || name == "/") return "";
  if (top == "/") return name;
  if (name.size() > top.size() && name.compare(0, top.size(), top) == 0 && name[top.size()] == '/') {
    return name.substr(top.size());
  }
  // A container may be told the name that its group has outside, where its own files show it as the top.
  return name;
}

void visit_upwards(const Hierarchy &hierarchy, std::string name,
                   const std::function<void(const std::string &folder, bool is_unified)> &visit) {
  // Of a group outside the process's namespace nothing but the top can be seen.
  if (name.find("/..") == 0) name.clear();
  for (;;) {
    visit(hierarchy.folder + name, hierarchy.is_unified);
    if (name.empty()) return;
    const size_t slash = name.rfind('/');
    name.resize(slash == std::string::npos ? 0 : slash);
  }
}

// CPUs that a group's quota comes to; 0 without one.
int quota_of(const std::string &folder, bool is_unified) {
  long long quota = -1, period = 0;
  if (is_unified) {
    std::ifstream file(folder + "/cpu.max");
    if (!(file >> quota >> period)) return 0;  // "max" is no number
  } else {
    std::ifstream quota_file(folder + "/cpu.cfs_quota_us"), period_file(folder + "/cpu.cfs_period_us");
    if (!(quota_file >> quota) || !(period_file >> period)) return 0;
  }
  if (quota <= 0 || period <= 0) return 0;
  return static_cast<int>(std::min<long long>(1 + (quota - 1) / period, 1 << 20));
}

}  // namespace

void visit_control_groups(const std::string &root, const std::string &controller,
                          const std::function<void(const std::string &folder, bool is_unified)> &visit) {
  const std::vector<Hierarchy> hierarchies = mounted(root, controller);
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool is_unified = controllers.empty();
    if (!is_unified && !has_word(controllers, controller)) continue;
    for (const Hierarchy &hierarchy : hierarchies) {
      if (hierarchy.is_unified == is_unified) {
        visit_upwards(hierarchy, below(hierarchy.top, line.substr(second + 1)), visit);
      }
    }
  }
}

int quota_cpus(const std::string &root) {
  int least = 0;
  visit_control_groups(root, "cpu", [&](const std::string &folder, bool is_unified) {
    const int cpus = quota_of(folder, is_unified);
    if (cpus != 0 && (least == 0 || cpus < least)) least = cpus;
  });
  return least;
}

}  // namespace rocpy_host
