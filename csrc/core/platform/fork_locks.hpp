// SPDX-License-Identifier: MIT
// Locks that no other thread holds while the process forks: what they guard is whole in the child, which takes them as
// any process does.
#pragma once

#include "spin_lock.hpp"

namespace rocpy {

// The lock of an object: one of a few that all objects share. Under it nothing else is locked.
SpinLock &lock_over_forks(const void *object) noexcept;

}  // namespace rocpy
