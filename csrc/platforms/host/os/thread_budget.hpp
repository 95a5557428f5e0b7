// SPDX-License-Identifier: MIT
// How many threads rocpy may use: in the process, and in a call.
#pragma once

namespace rocpy_host {

// CPUs that the process may keep busy: those of its affinity mask, or fewer if its control group has a quota.
int usable_cpus();

// Threads of the process, at most 256: ROCPY_NUM_THREADS, else OMP_NUM_THREADS, else usable_cpus(). Fixed at first use.
int process_threads();

// Of these, the threads that a call from the calling thread may use. One inside a parallel region of any OpenMP runtime
// in the process: the other threads of the region have the other CPUs. Unless ROCPY_NUM_THREADS is set, no more than
// OpenMP would give that thread (torch.set_num_threads and DataLoader's workers set this), nor than the CPUs that the
// thread is bound to.
int caller_threads();

// Binds the calling thread to the CPUs of the process. A new thread is bound as the one that made it.
void bind_to_process();

}  // namespace rocpy_host
