// SPDX-License-Identifier: MIT
// rocpy.cooperative._simt: the fiber runtime as Python sees it: addresses for compiled kernels, settings of a launch,
// what went wrong.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <array>
#include <cstring>
#include <string>

#include "launch.hpp"
#include "pool.hpp"
#include "simt.h"

namespace py = pybind11;
using rocpy::simt::Error;
using rocpy::simt::Fault;
using rocpy::simt::Index3;

namespace {

py::tuple index_tuple(const Index3 &index) { return py::make_tuple(index[0], index[1], index[2]); }

const char *name_of(Fault fault) {
  switch (fault) {
    case Fault::exception:
      return "exception";
    case Fault::divergence:
      return "divergence";
    case Fault::race:
      return "race";
    case Fault::uninitialised:
      return "uninitialised";
    case Fault::shared_memory:
      return "shared_memory";
    case Fault::out_of_memory:
      return "out_of_memory";
    case Fault::unsupported:
      return "unsupported";
  }
  return "";
}

// Numba's {pickled exception, its length, hash or arguments, how to unpack those, number of those}.
struct ExceptionInformation {
  const char *pickled;
  int32_t length;
  const void *arguments;
  const void *unpack;
  int32_t dynamic;
};

py::dict take_error(uintptr_t address) {
  const std::unique_ptr<Error> error = rocpy::simt::take(reinterpret_cast<void *>(address));
  py::dict result;
  result["fault"] = name_of(error->fault);
  result["block"] = index_tuple(error->block);
  result["thread"] = index_tuple(error->thread);
  result["site"] = error->site;
  result["detail"] = error->detail;
  result["other_thread"] = error->has_other ? py::object(index_tuple(error->other_thread)) : py::none();
  result["other_site"] = error->other_site;
  result["code"] = error->code;
  result["pickled"] = py::none();
  if (error->information) {
    const auto &information = *static_cast<const ExceptionInformation *>(error->information);
    result["pickled"] = py::bytes(information.pickled, static_cast<size_t>(information.length));
  }
  return result;
}

py::dict symbols() {
  py::dict result;
  const auto add = [&](const char *name, auto *function) { result[name] = reinterpret_cast<uintptr_t>(function); };
  add("rocpy_simt_current", &rocpy_simt_current);
  add("rocpy_simt_barrier", &rocpy_simt_barrier);
  add("rocpy_simt_slots", &rocpy_simt_slots);
  add("rocpy_simt_arrive", &rocpy_simt_arrive);
  add("rocpy_simt_release", &rocpy_simt_release);
  add("rocpy_simt_group_size", &rocpy_simt_group_size);
  add("rocpy_simt_shared", &rocpy_simt_shared);
  add("rocpy_simt_dynamic_shared", &rocpy_simt_dynamic_shared);
  add("rocpy_simt_access", &rocpy_simt_access);
  add("rocpy_simt_stored", &rocpy_simt_stored);
  add("rocpy_simt_raise", &rocpy_simt_raise);
  add("rocpy_simt_launch", &rocpy_simt_launch);
  return result;
}

class Config {
 public:
  Config(const std::array<int32_t, 3> &grid, const std::array<int32_t, 3> &block, int64_t dynamic_shared_bytes,
         int64_t shared_limit_bytes, int32_t warp_size, bool debug, bool shuffle, uint64_t seed, int32_t threads,
         int64_t stack_bytes) {
    std::memcpy(config_.grid, grid.data(), sizeof config_.grid);
    std::memcpy(config_.block, block.data(), sizeof config_.block);
    config_.dynamic_shared_bytes = dynamic_shared_bytes;
    config_.shared_limit_bytes = shared_limit_bytes;
    config_.warp_size = warp_size;
    config_.debug = debug;
    config_.shuffle = shuffle;
    config_.seed = seed;
    config_.threads = threads;
    config_.stack_bytes = stack_bytes;
  }

  uintptr_t address() const { return reinterpret_cast<uintptr_t>(&config_); }

 private:
  rocpy_simt_config config_{};
};

}  // namespace

PYBIND11_MODULE(_simt, module) {
  module.doc() = "GPU threads as fibers: what the kernels of rocpy.cooperative run on where there is no GPU.";

  py::class_<Config>(module, "Config", "Settings of a launch, at an address that compiled code can read.")
      .def(py::init<const std::array<int32_t, 3> &, const std::array<int32_t, 3> &, int64_t, int64_t, int32_t, bool,
                    bool, uint64_t, int32_t, int64_t>(),
           py::kw_only(), py::arg("grid"), py::arg("block"), py::arg("dynamic_shared_bytes"),
           py::arg("shared_limit_bytes"), py::arg("warp_size"), py::arg("debug"), py::arg("shuffle"), py::arg("seed"),
           py::arg("threads"), py::arg("stack_bytes"))
      .def_property_readonly("address", &Config::address, "Address of the C structure; valid while this object lives.");

  module.def("symbols", &symbols, "Return name and address of each function that compiled kernels call.");
  module.def("take_error", &take_error, py::arg("address"),
             "Return, and free, the error that a launch gave, as a dict.");
  module.def("default_threads", &rocpy::simt::default_threads, "Return how many OS threads a launch uses by default.");
  module.def(
      "measure_switch_ns",
      [](int32_t threads, int32_t rounds) {
        py::gil_scoped_release released;
        return rocpy::simt::measure_switch_ns(threads, rounds);
      },
      py::arg("threads"), py::arg("rounds"),
      "Return the nanoseconds of a switch between two of `threads` fibers that pass `rounds` barriers.");
}
