# SPDX-License-Identifier: MIT
"""Calls with a wrong keyword say which was probably meant, at no cost to calls of compiled functions that are right.

A wrapper would be paid for by each call. Here the pointer through which Python calls a compiled function or a class is
exchanged: the call goes where it went before, and only an error is looked at. Functions of Python, which Python calls without
that pointer, get a wrapper, but from Python 3.13 on, which suggests keywords itself.
"""

import sys
from types import FunctionType

from rocpy._messages.suggestions import tell_of_arguments, with_suggestions

cdef bint _PYTHON_SUGGESTS = sys.version_info >= (3, 13)

cdef extern from *:
    """
    #include <array>
    #include <cstring>
    #include <utility>

    namespace rocpy_keywords {

    // Functions share a few pointers: the compiled ones of a module have the same.
    constexpr std::size_t most_pointers = 96;
    std::array<vectorcallfunc, most_pointers> originals{};
    std::size_t known = 1;  // the first one stands for classes, which have none
    PyObject *tell = nullptr;  // what is asked about an error

    void set_tell(PyObject *function) {
      Py_INCREF(function);
      tell = function;
    }

    // What Python does for a class: arguments become a tuple and a dict.
    PyObject *call_class(PyObject *callable, PyObject *const *args, std::size_t flags, PyObject *names) {
      const Py_ssize_t count = PyVectorcall_NARGS(flags);
      PyObject *positional = PyTuple_New(count);
      if (positional == nullptr) return nullptr;
      for (Py_ssize_t i = 0; i < count; ++i) {
        Py_INCREF(args[i]);
        PyTuple_SET_ITEM(positional, i, args[i]);
      }
      PyObject *named = nullptr;
      bool failed = false;
      if (names != nullptr && PyTuple_GET_SIZE(names) != 0) {
        named = PyDict_New();
        failed = named == nullptr;
        for (Py_ssize_t i = 0; !failed && i < PyTuple_GET_SIZE(names); ++i) {
          failed = PyDict_SetItem(named, PyTuple_GET_ITEM(names, i), args[count + i]) != 0;
        }
      }
      PyObject *result = failed ? nullptr : Py_TYPE(callable)->tp_call(callable, positional, named);
      Py_XDECREF(named);
      Py_DECREF(positional);
      return result;
    }

    void look_at_error(PyObject *callable, std::size_t flags, PyObject *names) {
      PyObject *type, *value, *trace;
      PyErr_Fetch(&type, &value, &trace);
      PyErr_NormalizeException(&type, &value, &trace);
      PyObject *done =
          PyObject_CallFunction(tell, "OOnO", callable, value, PyVectorcall_NARGS(flags), names == nullptr ? Py_None : names);
      if (done == nullptr) PyErr_Clear();  // the error itself matters more
      Py_XDECREF(done);
      PyErr_Restore(type, value, trace);
    }

    template <std::size_t index>
    PyObject *call(PyObject *callable, PyObject *const *args, std::size_t flags, PyObject *names) {
      PyObject *result =
          index == 0 ? call_class(callable, args, flags, names) : originals[index](callable, args, flags, names);
      if (result == nullptr && PyErr_ExceptionMatches(PyExc_TypeError)) look_at_error(callable, flags, names);
      return result;
    }

    template <std::size_t... indices>
    constexpr std::array<vectorcallfunc, sizeof...(indices)> make_calls(std::index_sequence<indices...>) {
      return {&call<indices>...};
    }
    constexpr auto calls = make_calls(std::make_index_sequence<most_pointers>());

    // Whether the callable's errors are looked at from now on.
    bool attach(PyObject *callable) {
      PyTypeObject *type = Py_TYPE(callable);
      if (!PyType_HasFeature(type, Py_TPFLAGS_HAVE_VECTORCALL)) return false;
      vectorcallfunc before;
      auto *slot = reinterpret_cast<char *>(callable) + type->tp_vectorcall_offset;
      std::memcpy(&before, slot, sizeof before);
      for (const vectorcallfunc one : calls) {
        if (before == one) return true;
      }
      std::size_t number = 0;
      if (before == nullptr) {
        if (!PyType_Check(callable)) return false;
      } else {
        number = 1;
        while (number < known && originals[number] != before) ++number;
        if (number == most_pointers) return false;
        if (number == known) originals[known++] = before;
      }
      std::memcpy(slot, &calls[number], sizeof before);
      return true;
    }

    }  // namespace rocpy_keywords
    """
    bint attach "rocpy_keywords::attach"(object callable)
    void set_tell "rocpy_keywords::set_tell"(object function)


set_tell(tell_of_arguments)


def suggest_keywords(function, /):
    """Let a function or class say which keyword was probably meant when it is called with one that it does not take.

    Parameters
    ----------
    function
        Function or class, of Python or compiled.

    Returns
    -------
    callable
        The same object, or what stands for it: for use as a decorator.

    Examples
    --------
    >>> @suggest_keywords
    ... def product(*, epilogue=None):
    ...     return epilogue
    >>> product(epilog="relu")
    Traceback (most recent call last):
    ...
    TypeError: product() got an unexpected keyword argument 'epilog'. Did you mean 'epilogue'?
    """
    if type(function) is FunctionType:
        return function if _PYTHON_SUGGESTS else with_suggestions(function)
    attach(function)
    return function


def suggest_keywords_in(namespace, names, /):
    """Do so for functions and classes that a module makes public, and for the compiled methods of its classes.

    Parameters
    ----------
    namespace
        The module's ``globals()``.
    names
        Names there; those that are not there yet, or not rocpy's, are left out.
    """
    for name in names:
        value = namespace.get(name)
        if not callable(value) or not (getattr(value, "__module__", None) or "").startswith("rocpy"):
            continue
        namespace[name] = suggest_keywords(value)
        for base in getattr(value, "__mro__", ()):
            if base.__module__.startswith("rocpy"):
                for method_name, method in vars(base).items():
                    function = method.__func__ if isinstance(method, (classmethod, staticmethod)) else method
                    if not method_name.startswith("_") and type(function) is not FunctionType:
                        attach(function)
