// SPDX-License-Identifier: MIT
// rocpy.cooperative.cpu._simt: the fiber runtime as Python sees it: launches on packed arguments, settings of a launch,
// what went wrong.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "launch.hpp"
#include "pool.hpp"
#include "runtime/gil.hpp"
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
    case Fault::global_race:
      return "global_race";
    case Fault::division:
      return "division";
    case Fault::skipped:
      return "skipped";
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
  void *arguments;
  PyObject *(*unpack)(void *arguments);  // frees them
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
  result["other_block"] = error->has_other ? py::object(index_tuple(error->other_block)) : py::none();
  result["other_thread"] = error->has_other ? py::object(index_tuple(error->other_thread)) : py::none();
  result["other_site"] = error->other_site;
  result["code"] = error->code;
  result["pickled"] = py::none();
  result["values"] = py::none();
  if (error->information) {
    const auto &information = *static_cast<const ExceptionInformation *>(error->information);
    result["pickled"] = py::bytes(information.pickled, static_cast<size_t>(information.length));
    if (information.dynamic > 0) {
      result["values"] = py::reinterpret_steal<py::object>(information.unpack(information.arguments));
      if (!result["values"].ptr()) throw py::error_already_set();
      for (const py::handle value : result["values"]) {  // an array among them is in use
        if (py::hasattr(value, "__array_interface__")) error->abandoned.allocations.clear();
      }
    }
  }
  return result;
}

py::dict symbols() {
  py::dict result;
  const auto add = [&](const char *name, auto *function) { result[name] = reinterpret_cast<uintptr_t>(function); };
  add("rocpy_simt_current", &rocpy_simt_current);
  add("rocpy_simt_debugging", &rocpy_simt_debugging);
  add("rocpy_simt_barrier", &rocpy_simt_barrier);
  add("rocpy_simt_slots", &rocpy_simt_slots);
  add("rocpy_simt_arrive", &rocpy_simt_arrive);
  add("rocpy_simt_begin_barrier", &rocpy_simt_begin_barrier);
  add("rocpy_simt_begin_arrive", &rocpy_simt_begin_arrive);
  add("rocpy_simt_frame", &rocpy_simt_frame);
  add("rocpy_simt_block_memory", &rocpy_simt_block_memory);
  add("rocpy_simt_block_slots", &rocpy_simt_block_slots);
  add("rocpy_simt_block_shared", &rocpy_simt_block_shared);
  add("rocpy_simt_block_reserve", &rocpy_simt_block_reserve);
  add("rocpy_simt_shared_in", &rocpy_simt_shared_in);
  add("rocpy_simt_raise_in", &rocpy_simt_raise_in);
  add("rocpy_simt_release", &rocpy_simt_release);
  add("rocpy_simt_group_size", &rocpy_simt_group_size);
  add("rocpy_simt_shared", &rocpy_simt_shared);
  add("rocpy_simt_dynamic_shared", &rocpy_simt_dynamic_shared);
  add("rocpy_simt_access", &rocpy_simt_access);
  add("rocpy_simt_stored", &rocpy_simt_stored);
  add("rocpy_simt_poisoned", &rocpy_simt_poisoned);
  add("rocpy_simt_divided_by_zero", &rocpy_simt_divided_by_zero);
  add("rocpy_simt_raise", &rocpy_simt_raise);
  add("rocpy_kernel_allocated", &rocpy_kernel_allocated);
  add("rocpy_kernel_freed", &rocpy_kernel_freed);
  return result;
}

// Arguments as words of 8 bytes, in the order that numba_entry.py reads them in, and what tells their types: addresses
// of dtypes, which whoever keeps the key must keep alive.
class Packed {
 public:
  std::string key;
  std::vector<uint64_t> words;
  std::vector<rocpy::simt::Range> arrays;  // their memory, if it is asked for

  explicit Packed(bool with_arrays = false) : with_arrays_(with_arrays) {}

  // False for a value that has no such form.
  bool add(PyObject *value) {
    if (Py_TYPE(value) == py::detail::npy_api::get().PyArray_Type_) return add_array(value);
    if (PyTuple_CheckExact(value)) return add_tuple(value);
    if (PyBool_Check(value)) return add_word('b', value == Py_True);
    if (PyLong_CheckExact(value)) return add_integer(value);
    if (PyFloat_CheckExact(value)) {
      const double number = PyFloat_AS_DOUBLE(value);
      return add_bytes('f', nullptr, &number, sizeof number);
    }
    if (PyComplex_CheckExact(value)) {
      const double parts[] = {PyComplex_RealAsDouble(value), PyComplex_ImagAsDouble(value)};
      return add_bytes('c', nullptr, parts, sizeof parts);
    }
    return add_numpy_scalar(value);
  }

 private:
  template <class T>
  void describe(const T &what) {
    key.append(reinterpret_cast<const char *>(&what), sizeof what);
  }

  bool add_word(char kind, uint64_t word) {
    key += kind;
    words.push_back(word);
    return true;
  }

  bool add_bytes(char kind, const void *type, const void *bytes, size_t length) {
    key += kind;
    if (type) describe(type);
    const size_t first = words.size();
    words.resize(first + (length + 7) / 8);
    std::memcpy(&words[first], bytes, length);
    return true;
  }

  bool add_array(PyObject *value) {
    using py::detail::npy_api;
    const auto *array = py::detail::array_proxy(value);
    constexpr int described_flags = npy_api::NPY_ARRAY_C_CONTIGUOUS_ | npy_api::NPY_ARRAY_F_CONTIGUOUS_ |
                                    npy_api::NPY_ARRAY_ALIGNED_ | npy_api::NPY_ARRAY_WRITEABLE_;
    key += 'A';
    describe(static_cast<int32_t>(array->nd));
    describe(static_cast<int32_t>(array->flags & described_flags));
    describe(static_cast<const void *>(array->descr));
    words.push_back(reinterpret_cast<uintptr_t>(array->data));
    for (int axis = 0; axis < array->nd; ++axis) words.push_back(static_cast<uint64_t>(array->dimensions[axis]));
    for (int axis = 0; axis < array->nd; ++axis) words.push_back(static_cast<uint64_t>(array->strides[axis]));
    if (with_arrays_) add_memory(py::reinterpret_borrow<py::array>(value));
    return true;
  }

  void add_memory(const py::array &array) {
    if (array.size() == 0 || array.itemsize() == 0) return;
    const auto size = static_cast<std::size_t>(array.itemsize());
    const char kind = array.dtype().kind();
    rocpy::simt::Range range;
    range.granule = kind == 'V' ? 1 : kind == 'c' ? size / 2 : size;  // parts of elements are accessed by themselves
    py::ssize_t first = 0, last = 0;
    for (py::ssize_t axis = 0; axis < array.ndim(); ++axis) {
      const py::ssize_t step = array.strides(axis);
      (step < 0 ? first : last) += step * (array.shape(axis) - 1);
      range.granule = std::gcd(range.granule, static_cast<std::size_t>(step < 0 ? -step : step));
    }
    range.begin = reinterpret_cast<std::uintptr_t>(array.data()) + static_cast<std::uintptr_t>(first);
    range.bytes = static_cast<std::size_t>(last - first) + size;
    arrays.push_back(range);
  }

  bool with_arrays_;

  bool add_tuple(PyObject *value) {
    const Py_ssize_t count = PyTuple_GET_SIZE(value);
    key += 'T';
    describe(static_cast<int64_t>(count));
    for (Py_ssize_t i = 0; i < count; ++i) {
      if (!add(PyTuple_GET_ITEM(value, i))) return false;
    }
    return true;
  }

  bool add_integer(PyObject *value) {
    int overflow = 0;
    const long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
    if (!overflow) return add_word('i', static_cast<uint64_t>(number));
    const unsigned long long large = PyLong_AsUnsignedLongLong(value);
    if (PyErr_Occurred()) {
      PyErr_Clear();
      return false;
    }
    return add_word('u', large);
  }

  bool add_numpy_scalar(PyObject *value) {
    static const py::handle generic = py::object(py::module_::import("numpy").attr("generic")).release();
    if (!py::isinstance(value, generic)) return false;
    const auto dtype = py::reinterpret_steal<py::dtype>(py::object(py::handle(value).attr("dtype")).release());
    const bool structured = dtype.has_fields();
    if (!structured && !std::strchr("biufcmM", dtype.kind())) return false;
    Py_buffer view;
    if (PyObject_GetBuffer(value, &view, PyBUF_SIMPLE)) {
      PyErr_Clear();
      return false;
    }
    const void *bytes = structured ? static_cast<const void *>(&view.buf) : view.buf;  // those by their place
    const bool added = add_bytes('g', dtype.ptr(), bytes, structured ? sizeof view.buf : static_cast<size_t>(view.len));
    PyBuffer_Release(&view);
    return added;
  }
};

py::object key_of(const py::tuple &values) {
  Packed packed;
  for (const py::handle value : values) {
    if (!packed.add(value.ptr())) return py::none();
  }
  return py::bytes(packed.key);
}

py::object run(const py::dict &entries, const rocpy_simt_config &config, const py::tuple &values) {
  Packed packed(config.debug != 0);
  for (const py::handle value : values) {
    if (!packed.add(value.ptr())) return py::none();
  }
  const py::bytes key(packed.key);
  PyObject *item = PyDict_GetItemWithError(entries.ptr(), key.ptr());
  if (!item) {
    if (PyErr_Occurred()) throw py::error_already_set();
    return py::none();
  }
  const auto entry = py::reinterpret_borrow<py::tuple>(item);  // kept from being freed while it runs
  const auto function = reinterpret_cast<rocpy_simt_kernel>(PyLong_AsVoidPtr(entry[0].ptr()));
  const auto form = static_cast<rocpy::simt::Form>(entry[1].cast<int>());
  rocpy_simt_config own = config;  // of this code, whose local arrays may need larger stacks
  own.stack_bytes = std::max(own.stack_bytes, entry[2].cast<int64_t>());
  std::unique_ptr<Error> error;
  {
    rocpy::ReleasedGil released;
    error = rocpy::simt::launch({function, form}, packed.words.data(), own, std::move(packed.arrays));
  }
  return py::int_(reinterpret_cast<uintptr_t>(error.release()));
}

// Where Python has no memory for an object, pybind11 raises a RuntimeError in place of Python's own error.
void keep_python_error(std::exception_ptr thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const std::runtime_error &) {
    if (!PyErr_Occurred()) throw;
  }
}

}  // namespace

PYBIND11_MODULE(_simt, module) {
  module.doc() = "GPU threads as fibers: what the kernels of rocpy.cooperative run on where there is no GPU.";
  py::register_local_exception_translator(&keep_python_error);

  using Extent = std::array<int32_t, 3>;
  py::class_<rocpy_simt_config>(module, "Config", "Settings of a launch.")
      .def(py::init([](const Extent &grid, const Extent &block, int64_t dynamic_shared_bytes,
                       int64_t shared_limit_bytes, int32_t warp_size, bool debug, bool shuffle, uint64_t seed,
                       int32_t threads, int64_t stack_bytes) {
             rocpy_simt_config config{};
             std::copy(grid.begin(), grid.end(), config.grid);
             std::copy(block.begin(), block.end(), config.block);
             config.dynamic_shared_bytes = dynamic_shared_bytes;
             config.shared_limit_bytes = shared_limit_bytes;
             config.warp_size = warp_size;
             config.debug = debug;
             config.shuffle = shuffle;
             config.seed = seed;
             config.threads = threads;
             config.stack_bytes = stack_bytes;
             return config;
           }),
           py::kw_only(), py::arg("grid"), py::arg("block"), py::arg("dynamic_shared_bytes"),
           py::arg("shared_limit_bytes"), py::arg("warp_size"), py::arg("debug"), py::arg("shuffle"), py::arg("seed"),
           py::arg("threads"), py::arg("stack_bytes"));

  module.def("symbols", &symbols, "Return name and address of each function that compiled kernels call.");
  module.def(
      "key_of", &key_of, py::arg("values"),
      "Return what tells arguments of other types apart; None if one of them cannot be passed. It holds addresses "
      "of dtypes: keep those alive as long as it.");
  module.def("run", &run, py::arg("entries"), py::arg("config"), py::arg("values"),
             "Run the entry (address, form, stack_bytes, ...) for the arguments' key on a grid; return 0 or the "
             "address of the error, None if there is no entry.");
  module.def("take_error", &take_error, py::arg("address"),
             "Return, and free, the error that a launch gave, as a dict.");
  module.def("default_threads", &rocpy::simt::default_threads, "Return how many OS threads a launch uses by default.");
  module.def(
      "measure_switch_ns",
      [](int32_t threads, int32_t rounds) {
        rocpy::ReleasedGil released;
        return rocpy::simt::measure_switch_ns(threads, rounds);
      },
      py::arg("threads"), py::arg("rounds"),
      "Return the nanoseconds of a switch between two of `threads` fibers that pass `rounds` barriers.");
}
