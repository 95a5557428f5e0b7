// SPDX-License-Identifier: MIT
// How many threads rocpy uses: no more than the quota of the process's own control group and its affinity mask allow,
// and one where the caller's OpenMP region has the other CPUs already. Quotas are read from made-up copies of proc and
// sys.
#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "check.hpp"
#include "control_group.hpp"
#include "thread_budget.hpp"
#include "threads.hpp"

#ifdef _OPENMP
#include <omp.h>
#endif

namespace {

using rocpy_host::quota_cpus;

// A file system with what a process sees of its control groups.
class Machine {
 public:
  Machine(const std::string &groups, const std::string &mounts) {
    root_ = (std::filesystem::temp_directory_path() / "rocpy-groups-XXXXXX").string();
    CHECK(mkdtemp(root_.data()) != nullptr);
    write("/proc/self/cgroup", groups);
    write("/proc/self/mountinfo", mounts);
  }
  ~Machine() { std::filesystem::remove_all(root_); }
  Machine(const Machine &) = delete;
  Machine &operator=(const Machine &) = delete;

  Machine &write(const std::string &path, const std::string &text) {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
    return *this;
  }
  int cpus() const { return quota_cpus(root_); }

 private:
  std::string root_;
};

const char *const unified_mount = "26 20 0:23 / /sys/fs/cgroup rw,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";

void unified_groups() {
  const std::string base = "/sys/fs/cgroup";
  const auto of = [&](const std::string &text) {
    return Machine("0::/job\n", unified_mount).write(base + "/job/cpu.max", text).cpus();
  };
  CHECK_EQUAL(of("200000 100000\n"), 2);
  CHECK_EQUAL(of("150000 100000\n"), 2);  // a part of a CPU is used by a thread of its own
  CHECK_EQUAL(of("50000 100000\n"), 1);
  CHECK_EQUAL(of("1000 1000000\n"), 1);
  CHECK_EQUAL(of("max 100000\n"), 0);
  CHECK_EQUAL(of(""), 0);
  CHECK_EQUAL(of("nonsense\n"), 0);
  CHECK_EQUAL(of("9000000000000 1\n") > 256, true);

  // Any group around the process's own may be the narrowest; one beside it does not count.
  Machine nested("0::/user.slice/user-1000.slice/job.scope\n", unified_mount);
  nested.write(base + "/user.slice/user-1000.slice/job.scope/cpu.max", "800000 100000\n");
  nested.write(base + "/user.slice/other.scope/cpu.max", "100000 100000\n");
  CHECK_EQUAL(nested.cpus(), 8);
  nested.write(base + "/user.slice/cpu.max", "300000 100000\n");
  CHECK_EQUAL(nested.cpus(), 3);
  nested.write(base + "/user.slice/user-1000.slice/cpu.max", "max 100000\n");
  CHECK_EQUAL(nested.cpus(), 3);
  nested.write(base + "/user.slice/user-1000.slice/job.scope/cpu.max", "200000 100000\n");
  CHECK_EQUAL(nested.cpus(), 2);

  // In a container the process's group is the top of what it sees, or is named as it is outside.
  for (const char *name : {"0::/\n", "0::/../job\n", "0::/docker/0123\n"}) {
    CHECK_EQUAL(Machine(name, unified_mount).write(base + "/cpu.max", "400000 100000\n").cpus(), 4);
  }
  const char *const bound = "26 20 0:23 /docker/0123 /sys/fs/cgroup rw - cgroup2 cgroup rw\n";
  Machine inner("0::/docker/0123/part\n", bound);
  CHECK_EQUAL(inner.write(base + "/part/cpu.max", "500000 100000\n").cpus(), 5);
  // Mounted elsewhere, in a folder with a space.
  Machine elsewhere("0::/job\n", "26 20 0:23 / /run/control\\040groups rw - cgroup2 none rw\n");
  CHECK_EQUAL(elsewhere.write("/run/control groups/job/cpu.max", "600000 100000\n").cpus(), 6);
}

void first_generation() {
  const std::string base = "/sys/fs/cgroup/cpu,cpuacct";
  const char *const groups = "5:memory:/elsewhere\n4:cpu,cpuacct:/slurm/job_7/step_0\n1:name=systemd:/\n0::/\n";
  const char *const mounts =
      "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid - cgroup cgroup rw,cpu,cpuacct\n"
      "34 31 0:31 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset\n"
      "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";
  const auto quota = [&](Machine &machine, const std::string &group, const char *text, const char *period) {
    machine.write(base + group + "/cpu.cfs_quota_us", text).write(base + group + "/cpu.cfs_period_us", period);
  };
  Machine machine(groups, mounts);
  CHECK_EQUAL(machine.cpus(), 0);
  quota(machine, "", "-1\n", "100000\n");
  quota(machine, "/slurm/job_7/step_0", "-1\n", "100000\n");
  CHECK_EQUAL(machine.cpus(), 0);
  quota(machine, "/slurm/job_7", "250000\n", "100000\n");
  CHECK_EQUAL(machine.cpus(), 3);
  quota(machine, "/slurm/job_7/step_0", "10000\n", "20000\n");
  CHECK_EQUAL(machine.cpus(), 1);

  // Both generations at once: the narrower quota holds.
  machine.write("/sys/fs/cgroup/unified/cpu.max", "100000 100000\n");
  quota(machine, "/slurm/job_7/step_0", "900000\n", "100000\n");
  quota(machine, "/slurm/job_7", "900000\n", "100000\n");
  CHECK_EQUAL(machine.cpus(), 1);

  // A container without a namespace for control groups: named as outside, shown from there on.
  Machine inner("4:cpu,cpuacct:/docker/0123\n",
                "32 31 0:29 /docker/0123 /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n");
  quota(inner, "", "700000\n", "100000\n");
  CHECK_EQUAL(inner.cpus(), 7);
}

void no_control_groups() {
  CHECK_EQUAL(quota_cpus("/nowhere"), 0);
  CHECK_EQUAL(Machine("", "").cpus(), 0);
  CHECK_EQUAL(Machine("nonsense\n0\n:\n", "more nonsense\n\n - \n").cpus(), 0);
}

// Runs tasks and returns how many of them another thread than the caller ran.
int strays() {
  struct Context {
    std::thread::id caller = std::this_thread::get_id();
    std::atomic<int> strays{0};
  } context;
  for (int round = 0; round < 50; round++) {
    rocpy_host::parallel_for(
        64, 1024,
        [](void *data, int64_t) {
          auto *seen = static_cast<Context *>(data);
          if (std::this_thread::get_id() != seen->caller) seen->strays++;
        },
        &context);
  }
  return context.strays;
}

void bound_thread() {
  cpu_set_t all;
  CHECK(sched_getaffinity(0, sizeof all, &all) == 0);
  int first = 0;
  while (!CPU_ISSET(first, &all)) first++;
  int threads = 0, elsewhere = -1;
  std::thread([&] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
    threads = rocpy_host::caller_threads();
    elsewhere = strays();
    rocpy_host::bind_to_process();
    cpu_set_t now;
    CHECK(sched_getaffinity(0, sizeof now, &now) == 0);
    CHECK(CPU_EQUAL(&now, &all));
  }).join();
  CHECK_EQUAL(threads, 1);
  CHECK_EQUAL(elsewhere, 0);
}

#ifdef _OPENMP
void openmp() {
  const int usual = rocpy_host::caller_threads();
  std::atomic<int> most{0}, others{0};
#pragma omp parallel num_threads(3)
  {
    if (rocpy_host::caller_threads() > most) most = rocpy_host::caller_threads();
    others += strays();
  }
  CHECK_EQUAL(most, 1);
  CHECK_EQUAL(others, 0);
  const int before = omp_get_max_threads();
  omp_set_num_threads(1);
  CHECK_EQUAL(rocpy_host::caller_threads(), std::getenv("ROCPY_NUM_THREADS") == nullptr ? 1 : usual);
  omp_set_num_threads(before);
  CHECK_EQUAL(rocpy_host::caller_threads(), usual);
}
#endif

}  // namespace

int main() {
  unified_groups();
  first_generation();
  no_control_groups();
  if (std::getenv("ROCPY_NUM_THREADS") == nullptr) bound_thread();
#ifdef _OPENMP
  openmp();
#endif
  return failures != 0;
}
