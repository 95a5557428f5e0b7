// SPDX-License-Identifier: MIT
// HIP rows about user objects: data whose destructor is called when neither its user nor a graph, nor what was made of
// a graph, nor a launch refers to it.
#include "graph.hpp"
#include "hip_call.hpp"
#include "lazy.h"

#include <algorithm>
#include <climits>

namespace rocpy_host {

struct UserObject {
  std::atomic<uint64_t> handle{0};
  uint32_t slot = 0, generation = 0;
  hipHostFn_t destroy = nullptr;
  void *data = nullptr;
  unsigned owned = 0;                // references of the user's own
  std::shared_ptr<UserObject> self;  // while there are any
  std::weak_ptr<UserObject> shared;
  UserObject *next = nullptr;
};

namespace {

using ObjectTable = HandleTable<UserObject, 'U'>;

ObjectTable &user_objects() {
  static rocpy::Lazy<ObjectTable> table;
  return table.get();
}

// The last reference may go with a lock held, or on a thread of the platform's: the destructor is called later.
std::atomic<UserObject *> unreferenced{nullptr};

void set_aside(UserObject *object) {
  object->next = unreferenced.load(std::memory_order_relaxed);
  while (!unreferenced.compare_exchange_weak(object->next, object, std::memory_order_release)) {
  }
}

// Runs body(object, a reference to it) with the mutex held, if the handle is a live object's and the count can be one.
template <class Body>
hipError_t with_object(hipUserObject_t handle, unsigned count, Body body) {
  return hip_call([&] {
    std::lock_guard<std::mutex> lock(runtime().mutex);
    UserObject *object = user_objects().find(handle);
    const auto shared = object != nullptr ? object->shared.lock() : nullptr;
    if (shared == nullptr || count == 0 || count > INT_MAX) {
      return hipErrorInvalidValue;
    }
    return body(object, shared);
  });
}

hipError_t release_owned(UserObject *object, unsigned count) {
  if (count > object->owned) {
    return hipErrorInvalidValue;
  }
  object->owned -= count;
  if (object->owned == 0) {
    object->self.reset();
  }
  return hipSuccess;
}

}  // namespace

void destroy_unreferenced_objects() noexcept {
  if (unreferenced.load(std::memory_order_relaxed) == nullptr) {
    return;
  }
  UserObject *object = unreferenced.exchange(nullptr, std::memory_order_acquire);
  while (object != nullptr) {
    UserObject *next = object->next;
    const hipHostFn_t destroy = object->destroy;
    void *data = object->data;
    {
      std::lock_guard<std::mutex> lock(runtime().mutex);
      user_objects().retire(object);
      user_objects().give_back(object);
    }
    destroy(data);
    object = next;
  }
}

}  // namespace rocpy_host

using namespace rocpy_host;

hipError_t rocpy_host_hipUserObjectCreate(hipUserObject_t *object, void *data, hipHostFn_t destroy,
                                          unsigned int reference_count, unsigned int flags) {
  return hip_call([=] {
    if (object == nullptr || destroy == nullptr || reference_count == 0 || reference_count > INT_MAX ||
        flags != hipUserObjectNoDestructorSync) {
      return hipErrorInvalidValue;
    }
    std::lock_guard<std::mutex> lock(runtime().mutex);
    UserObject *created = user_objects().take();
    if (created == nullptr) {
      return hipErrorOutOfMemory;
    }
    created->destroy = destroy;
    created->data = data;
    created->owned = reference_count;
    created->self = std::shared_ptr<UserObject>(created, set_aside);
    created->shared = created->self;
    *object = reinterpret_cast<hipUserObject_t>(user_objects().publish(created));
    return hipSuccess;
  });
}

hipError_t rocpy_host_hipUserObjectRetain(hipUserObject_t object, unsigned int count) {
  return with_object(object, count, [=](UserObject *entry, const std::shared_ptr<UserObject> &shared) {
    if (count > INT_MAX - entry->owned) {
      return hipErrorInvalidValue;
    }
    entry->owned += count;
    entry->self = shared;
    return hipSuccess;
  });
}

hipError_t rocpy_host_hipUserObjectRelease(hipUserObject_t object, unsigned int count) {
  return with_object(object, count, [=](UserObject *entry, const auto &) { return release_owned(entry, count); });
}

hipError_t rocpy_host_hipGraphRetainUserObject(hipGraph_t graph, hipUserObject_t object, unsigned int count,
                                               unsigned int flags) {
  return with_object(object, count, [=](UserObject *entry, const std::shared_ptr<UserObject> &shared) {
    Graph *owner = graphs().find(graph);
    if (owner == nullptr || (flags != 0 && flags != hipGraphUserObjectMove)) {
      return hipErrorInvalidValue;
    }
    owner->retained.reserve(owner->retained.size() + 1);
    if (flags == hipGraphUserObjectMove) {
      if (const hipError_t error = release_owned(entry, count)) {
        return error;
      }
    }
    auto &list = owner->retained;
    const auto known =
        std::find_if(list.begin(), list.end(), [&](const Retained &one) { return one.object == shared; });
    if (known == list.end()) {
      list.push_back({shared, count});
    } else {
      known->count += count;
    }
    return hipSuccess;
  });
}

hipError_t rocpy_host_hipGraphReleaseUserObject(hipGraph_t graph, hipUserObject_t object, unsigned int count) {
  return with_object(object, count, [=](UserObject *, const std::shared_ptr<UserObject> &shared) {
    Graph *owner = graphs().find(graph);
    if (owner == nullptr) {
      return hipErrorInvalidValue;
    }
    auto &list = owner->retained;
    const auto known =
        std::find_if(list.begin(), list.end(), [&](const Retained &one) { return one.object == shared; });
    if (known == list.end() || count > known->count) {
      return hipErrorInvalidValue;
    }
    known->count -= count;
    if (known->count == 0) {
      list.erase(known);
    }
    return hipSuccess;
  });
}
