# SPDX-License-Identifier: MIT
# distutils: language = c++
# cython: freethreading_compatible=True
"""The loader as Python sees it, and the only place where a C status becomes an exception."""

from os import fsdecode, fsencode

from cpython.pycapsule cimport PyCapsule_GetName, PyCapsule_GetPointer
from libc.stdint cimport int32_t
from libcpp.string cimport string
from libcpp.vector cimport vector

from rocpy.errors import LibraryError, error_for_missing, error_for_status


cdef extern from "status.hpp" namespace "rocpy" nogil:
    cdef cppclass LibraryRow:
        const char* name
        const char* stem
        cpp_bool optional
        int major
        int minor
    const int library_count
    const LibraryRow* library_rows
    const char* library_name(Library library)
    const char* library_stem(Library library)
    int32_t not_supported(Library library)
    const char* c_status_name "rocpy::status_name"(Library library, int32_t code)
    const char* c_status_text "rocpy::status_text"(Library library, int32_t code)
    void clear_last_error(Library library)


cdef extern from "table.hpp" namespace "rocpy" nogil:
    cdef cppclass Row:
        Library library
        const char* function
        int since
        cpp_bool optional
    int row_count()
    const Row& row_at(int index)


cdef extern from "platform.hpp" namespace "rocpy" nogil:
    cdef enum class Outcome(int32_t):
        already_loaded

    cdef cppclass LibraryFacts:
        Library library
        string path
        string file_version
        int version
        vector[const char*] missing

    cdef cppclass Tree:
        vector[string] directories
        cpp_bool need_device

    cdef cppclass Attempt:
        Outcome outcome
        string reason
        int device_count

    cdef cppclass DeviceFacts:
        string name
        string arch
        size_t memory_bytes

    Attempt load_platform(const Tree& tree) except +
    vector[LibraryFacts] c_library_facts "rocpy::library_facts"() except +
    void c_probe_versions "rocpy::probe_versions"()
    string missing_text(Library library, const char* function) except +
    string c_platform_info "rocpy::platform_info"() except +
    vector[DeviceFacts] c_devices "rocpy::devices"() except +
    const void* error_name_address(int32_t code)
    string file_of_address(const void* address) except +
    void publish_platform()


cdef extern from "algo_extension.hpp" namespace "rocpy" nogil:
    cdef cppclass ExtensionFunction:
        const char* name
        const char* symbol
        cpp_bool present
    vector[ExtensionFunction] c_extension_functions "rocpy::extension_functions"() except +


# Rows of the environment table as data: the header gives them to C by macro, and this to Python.
cdef extern from *:
    """
    struct rocpy_environment_row { const char *name, *fallback, *reader, *values, *meaning; };
    static const rocpy_environment_row rocpy_environment_rows[] = {
    #define ROCPY_VARIABLE(name, fallback, reader, values, meaning) {#name, fallback, #reader, values, meaning},
    #include "environment.def"
    #undef ROCPY_VARIABLE
    };
    static const int rocpy_environment_count = sizeof rocpy_environment_rows / sizeof rocpy_environment_rows[0];
    """
    cdef cppclass rocpy_environment_row:
        const char* name
        const char* fallback
        const char* reader
        const char* values
        const char* meaning
    const rocpy_environment_row* rocpy_environment_rows
    const int rocpy_environment_count


# Python ends a thread, or lets it sleep, that takes the GIL again after its end, but has no state left for one that takes it anew.
cdef extern from *:
    """
    static inline bool rocpy_thread_outlives_python() {
      return !Py_IsInitialized() && PyGILState_GetThisThreadState() == nullptr;
    }
    """
    bint rocpy_thread_outlives_python() nogil

cdef extern from "<unistd.h>" nogil:
    int pause()

# hip-python's function raises when it finds no library, although it is declared not to.
ctypedef const char* (*ErrorName)(int) except? NULL nogil

OUTCOMES = ("loaded", "already_loaded", "not_found", "unusable", "too_old", "no_device")

cdef object selector = None


cdef object text_or_none(const char* text):
    return None if text == NULL else text.decode("utf-8", "replace")


cdef object path_text(const string& path):
    # A path is bytes to the system: the encoding of file names, which Python encodes it with again.
    cdef bytes raw = path
    return fsdecode(raw)


cdef int park_after_python() noexcept nogil:
    # A library ends waits of daemon threads when the process exits.
    while rocpy_thread_outlives_python():
        pause()
    return 0


cdef int raise_status(Library library, int32_t code, const char* function) except -1 nogil:
    park_after_python()
    with gil:
        library_text = library_name(library).decode()
        function_text = function.decode()
        name = text_or_none(c_status_name(library, code))
        if code == not_supported(library) and not c_has(function):
            raise error_for_missing(library_text, function_text, code, name, path_text(missing_text(library, function)))
        detail = text_or_none(c_status_text(library, code))
        clear_last_error(library)
        raise error_for_status(library_text, function_text, code, name, detail)


cdef int select_platform() except -1 nogil:
    park_after_python()
    with gil:
        if selector is None:
            raise LibraryError("no platform has been chosen; import rocpy before its extension modules")
        selector()
        if not loaded():
            raise LibraryError("no platform was chosen")
        return 0


def set_selector(function):
    """Name the function that chooses and loads the platform when the first library call is made."""
    global selector
    selector = function


def is_loaded():
    """Return whether a platform is loaded, without choosing one."""
    return loaded()


def load(directories, *, need_device=False):
    """Try to fill the table with the libraries of one tree; `publish` makes them this process's platform.

    Parameters
    ----------
    directories
        Folders to look in, in this order, for each library; none: the system's loader is asked by bare name.
    need_device
        Refuse the tree when no device answers.

    Returns
    -------
    tuple of str
        The outcome, one of ``OUTCOMES``, and the reason when it is not ``"loaded"``.
    """
    cdef Tree tree
    cdef Attempt attempt
    for directory in directories:
        tree.directories.push_back(fsencode(directory))
    tree.need_device = need_device
    with nogil:
        attempt = load_platform(tree)
    return OUTCOMES[<int>attempt.outcome], path_text(attempt.reason)


def publish():
    """Let calls use the platform that was loaded; until then another load replaces it."""
    publish_platform()


def library_facts():
    """Return one ``(library, path, file_version, version, missing)`` for each library of the loaded platform.

    ``version`` is the number that the library reports, 0 while unknown; ``file_version`` comes from the name of its file.
    """
    return [
        (
            library_name(fact.library).decode(),
            path_text(fact.path),
            fact.file_version.decode(),
            fact.version,
            tuple([name.decode() for name in fact.missing]),
        )
        for fact in c_library_facts()
    ]


def library_files():
    """Return the stem of each library's file, by the library's name: ``{"hip": "amdhip64", ...}``."""
    return {library_name(<Library>i).decode(): library_stem(<Library>i).decode() for i in range(library_count)}


def libraries():
    """Return ``(optional, major, minor)`` of each library, by its name: whether a platform serves without it, and what a major and a minor
    version count for in its version number."""
    return {
        library_rows[i].name.decode(): (library_rows[i].optional, library_rows[i].major, library_rows[i].minor) for i in range(library_count)
    }


def has(function):
    """Return whether the loaded platform has a C function; ``False`` for a name that is no row."""
    return c_has(function.encode())


def extension_functions():
    """Return one ``(name, symbol, present)`` for each C++ extension function of hipBLASLt that rocpy knows."""
    return [(row.name.decode(), row.symbol.decode(), row.present) for row in c_extension_functions()]


def functions():
    """Return ``(library, function, since, optional)`` of every row."""
    return [
        (library_name(row_at(i).library).decode(), row_at(i).function.decode(), row_at(i).since, row_at(i).optional)
        for i in range(row_count())
    ]


def status_name(library, code):
    """Return a library's name for a status number, or ``None``."""
    cdef int i
    for i in range(library_count):
        if library_name(<Library>i).decode() == library:
            return text_or_none(c_status_name(<Library>i, code))
    raise ValueError(f"unknown library {library!r}")


def probe_versions():
    """Ask the libraries whose version only a handle can tell, where a device has room for one."""
    with nogil:
        c_probe_versions()


def call_in_default_fp_environment(function, tuple args, dict kwargs):
    """Call a function with the thread rounding to nearest, keeping subnormal numbers and masking exceptions, whatever the caller does."""
    cdef DefaultFpEnvironment environment
    environment.hold()
    return function(*args, **kwargs)


# An OpenMP runtime's function that runs another on each thread of the calling thread's team, as compilers call it.
ctypedef void (*openmp_parallel_t)(void (*)(void *) noexcept nogil, void *, unsigned, unsigned) noexcept nogil


cdef void note_other_environment(void *other) noexcept nogil:
    if not DefaultFpEnvironment.is_set():
        (<int *>other)[0] = 1


def openmp_threads_are_default(size_t parallel, unsigned threads):
    """Whether the threads that an OpenMP runtime gives this one have the default floating-point environment: its GOMP_parallel asks them."""
    cdef int other = 0
    with nogil:
        (<openmp_parallel_t>parallel)(note_other_environment, &other, threads, 0)
    return not other


def platform_info():
    """Return the loaded platform's description of itself, a JSON text; empty where it has none."""
    return path_text(c_platform_info())


def devices():
    """Return ``(name, arch, memory_bytes)`` of each device of the loaded platform."""
    cdef vector[DeviceFacts] facts
    with nogil:
        facts = c_devices()
    return [
        (fact.name.c_str().decode("utf-8", "replace"), fact.arch.c_str().decode("utf-8", "replace"), fact.memory_bytes)
        for fact in facts
    ]


def shares_runtime(capsule):
    """Tell whether another binding holds the HIP runtime of the loaded platform.

    Parameters
    ----------
    capsule
        Capsule of the other binding's ``const char *hipGetErrorName(hipError_t)``.

    Returns
    -------
    tuple of bool and str
        Whether both got the same string at the same address, and the file that holds the other's.
    """
    cdef ErrorName theirs = <ErrorName>PyCapsule_GetPointer(capsule, PyCapsule_GetName(capsule))
    cdef int32_t code = 1  # hipErrorInvalidValue: every HIP has it
    cdef const void* answer = theirs(code)
    if answer == NULL:
        raise RuntimeError("the other binding has no HIP runtime")
    return answer == error_name_address(code), path_text(file_of_address(answer))


def environment_table():
    """Return ``(name, default, reader, values, meaning)`` of every environment variable that rocpy knows."""
    cdef int i
    cdef const rocpy_environment_row* row
    table = []
    for i in range(rocpy_environment_count):
        row = rocpy_environment_rows + i
        table.append(tuple([text.decode() for text in (row.name, row.fallback, row.reader, row.values, row.meaning)]))
    return table
