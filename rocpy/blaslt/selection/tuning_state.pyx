# SPDX-License-Identifier: MIT
"""What products do about tuning: the process's mode, a thread's or task's own, and whether cached plans are still of today.

Each call reads it for its plan's key, so that it is kept in C: a call pays for two loads, and for two context variables more once a
thread or task had a mode of its own.
"""

from contextlib import contextmanager
from contextvars import ContextVar

from cpython.ref cimport Py_XDECREF, PyObject
from libc.stdint cimport int32_t
from libcpp cimport bool as c_bool

from rocpy import platform
from rocpy.errors import InvalidProblemError

cdef extern from "Python.h":
    int PyContextVar_Get(object variable, PyObject *default, PyObject **value) except -1

cdef extern from "plan_key.hpp" namespace "rocpy" nogil:
    cppclass TuningSettings:
        int32_t generation
        int32_t mode
        c_bool trial
        int64_t word()

# Nothing; take what was measured; measure what was not.
OFF, USE, MEASURE = 0, 1, 2

# -1: the environment's.
cdef int _process_mode = -1
# -1: not read yet.
cdef int _environment_mode = -1
# Counts what makes cached plans out of date: a record stored, another mode, a recorder that wants to see every problem.
cdef int32_t _generation = 0
# Whether a thread or task of this process ever had a mode of its own, or planned apart.
cdef bint _overridden = False
cdef object _override = ContextVar("rocpy_autotune", default=-1)
cdef object _on_trial = ContextVar("rocpy_trial", default=0)


cdef int value_of(object variable) except -2:
    """Return what an integer context variable holds here."""
    cdef PyObject *value = NULL
    PyContextVar_Get(variable, NULL, &value)
    try:
        return <object>value
    finally:
        Py_XDECREF(value)


cdef int shared_mode() except -1:
    """Return the mode of threads that have none of their own."""
    global _environment_mode
    if _environment_mode < 0:
        _environment_mode = {"": USE, "0": OFF, "1": MEASURE}[platform.environment("ROCPY_AUTOTUNE")]
    return _process_mode if _process_mode >= 0 else _environment_mode


cdef int own_mode() except -1:
    """Return the mode of this thread or task."""
    cdef int own = value_of(_override) if _overridden else -1
    return own if own >= 0 else shared_mode()


cdef inline int64_t word_of(bint on_trial, int mode) noexcept nogil:
    cdef TuningSettings settings
    settings.generation, settings.mode, settings.trial = _generation, mode, on_trial
    return settings.word()


cdef int64_t tuning_word() except -1:
    cdef bint on_trial = _overridden and value_of(_on_trial) != 0
    return word_of(on_trial, own_mode())


cdef bint knows_process_tuning() noexcept nogil:
    return _environment_mode >= 0


cdef int64_t process_tuning_word() noexcept nogil:
    return word_of(False, _process_mode if _process_mode >= 0 else _environment_mode)


cdef bint measures() except -1:
    return own_mode() == MEASURE


def mode():
    """Return what a product made here does about tuning: ``OFF``, ``USE`` or ``MEASURE``."""
    return own_mode()


def process_mode():
    """Return the mode that the process was put in, ``None`` for that of the environment."""
    return None if _process_mode < 0 else _process_mode


def set_process_mode(value):
    """Put the whole process in a mode; ``None``: that of the environment."""
    global _process_mode
    _process_mode = -1 if value is None else value
    changed()


cdef class override:
    """Measure, or neither measure nor use what was measured, in this thread or task; entered once."""

    cdef object token
    cdef int mode

    def __init__(self, autotune):
        if not isinstance(autotune, bool):
            raise InvalidProblemError(f"autotune: got {autotune!r}, expected True, False or None")
        self.mode = MEASURE if autotune else OFF

    def __enter__(self):
        global _overridden
        _overridden = True
        self.token = _override.set(self.mode)

    def __exit__(self, *error):
        _override.reset(self.token)


@contextmanager
def trial():
    """Plan apart from other threads and tasks, whose cached plans are not found here nor these there."""
    global _overridden
    _overridden = True
    token = _on_trial.set(1)
    try:
        yield
    finally:
        _on_trial.reset(token)


def is_trial():
    """Return whether this thread or task plans apart from others."""
    return value_of(_on_trial) != 0


def changed():
    """Let every cached plan be chosen again when it is next asked for."""
    global _generation
    _generation += 1
