// SPDX-License-Identifier: MIT
// rocpy.plan_cache: the plan cache of librocpy_core as Python sees it. Policy, not the per-call path, hence pybind11.
#include "plan_cache.hpp"

#include <pybind11/pybind11.h>

#include <new>
#include <string>

#include "context.hpp"
#include "runtime/gil.hpp"

namespace py = pybind11;

PYBIND11_MODULE(_plan_cache, module) {
  module.doc() = "The plans that the function form keeps.";

  module.def(
      "info",
      [] {
        const rocpy::PlanCacheInfo info = rocpy::plan_cache().info();
        py::dict result;
        result["hits"] = info.hits;
        result["misses"] = info.misses;
        result["size"] = info.size;
        result["capacity"] = info.capacity;
        return result;
      },
      "Return hits, misses, size and capacity as a dict.\n\n"
      "Examples\n--------\n>>> import rocpy\n>>> sorted(rocpy.plan_cache.info())\n['capacity', 'hits', 'misses', "
      "'size']\n");
  module.def(
      "clear",
      [] {
        rocpy::ReleasedGil released;  // dropping a plan calls into the platform
        rocpy::plan_cache().clear();
        rocpy::drop_contexts();
      },
      "Drop every plan, and the handles and workspaces that no call uses now; counters start again at 0.");
  module.def(
      "resize",
      [](int64_t capacity) {
        if (capacity < 0) throw py::value_error("capacity = " + std::to_string(capacity) + "; it must be 0 or more");
        rocpy::ReleasedGil released;
        if (!rocpy::plan_cache().resize(capacity).ok()) throw std::bad_alloc();
      },
      py::arg("capacity"), "Set how many plans are kept; 0 keeps none. The default is ROCPY_PLAN_CACHE.");
  module.def("handles", &rocpy::context_count,
             "Return how many hipBLASLt handles are kept, each with its workspace: one for each device and stream in "
             "use, and where they are idle at most 256 altogether, or 64 while half of the device's memory is in use: "
             "those used least recently are dropped. clear() gives the idle ones back.");
  module.def("live_plans", &rocpy::MatmulPlan::live, "Return how many plans exist, in the cache and outside it.");
}
