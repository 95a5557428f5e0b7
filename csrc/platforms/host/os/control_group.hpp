// SPDX-License-Identifier: MIT
// The control group of this process, of either generation, and of the groups that it is in.
#pragma once

#include <functional>
#include <string>

namespace rocpy_host {

// Calls visit(folder, is_unified) for the process's own group that has this controller ("cpu", "memory") and for each
// group around it, as far up as the process can see. With both generations mounted, both are visited. `root` is where
// the file system begins: empty, or a folder that holds a copy of proc and sys.
void visit_control_groups(const std::string &root, const std::string &controller,
                          const std::function<void(const std::string &folder, bool is_unified)> &visit);

// The narrowest CPU quota of these groups in CPUs, a part of one counting as one; 0 if none has a quota.
int quota_cpus(const std::string &root = "");

}  // namespace rocpy_host
