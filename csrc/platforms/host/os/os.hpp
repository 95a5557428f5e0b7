// SPDX-License-Identifier: MIT
// What the platform asks the operating system about the machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace rocpy_host {

std::string cpu_model();
int cpu_clock_khz();   // the highest that the kernel reports; 0: it does not say
int l2_cache_bytes();  // of one core; 0: unknown

// Memory this process may use: the machine's, or less if a control group says so.
size_t memory_total();
size_t memory_available();

// Memory for std::free, null if there is none. Large memory, from huge_page_bytes on, is aligned to huge pages, and the
// system is asked for them: reading gigabytes through small pages waits for their translation, on a virtual machine
// half of the time.
constexpr size_t huge_page_bytes = size_t{2} << 20;
void *allocate_aligned(size_t bytes, size_t alignment);

uint32_t host_name_hash();

}  // namespace rocpy_host
