# SPDX-License-Identifier: MIT
"""HIP C++ compiled by the platform's hipRTC, where it has one."""

from libcpp.vector cimport vector

cimport abi

from rocpy cimport _core
from rocpy._core import has
from rocpy.errors import LibraryError


def available():
    """Return whether the platform can compile: it has libhiprtc."""
    _core.ensure()
    return has("hiprtcCompileProgram")


def version():
    """Return hipRTC's version, ``"major.minor"``."""
    cdef int major = 0, minor = 0
    abi.hiprtcVersion(&major, &minor)
    return f"{major}.{minor}"


def compile_source(str source, str name, options):
    """Return the code object of a program without headers (hiprtcCompileProgram).

    Parameters
    ----------
    source : str
        HIP C++.
    name : str
        File name for the compiler's messages.
    options : sequence of str
        Of the compiler: ``["--offload-arch=gfx942", "-O3"]``.

    Returns
    -------
    bytes
        The code object.

    Raises
    ------
    LibraryError
        If it does not compile; the message ends with the compiler's log.
    UnsupportedError
        If the platform has no hipRTC.
    """
    cdef abi.hiprtcProgram program = NULL
    cdef bytes text = source.encode(), file = name.encode("utf-8", "surrogateescape"), word
    cdef list words = [option.encode("utf-8", "surrogateescape") for option in options]
    cdef vector[const char*] pointers
    cdef size_t size = 0
    cdef int count, answer
    cdef bytearray code
    cdef char* target
    for word in words:
        pointers.push_back(<const char*>word)
    count = <int>pointers.size()
    abi.hiprtcCreateProgram(&program, <const char*>text, <const char*>file, 0, NULL, NULL)
    try:
        with nogil:
            answer = <int>abi.slot_hiprtcCompileProgram(program, count, pointers.data())
        if answer == <int>abi.HIPRTC_ERROR_COMPILATION:
            raise LibraryError(
                f"hiprtcCompileProgram (hiprtc) failed on {name}: {log_of(program)}", function="hiprtcCompileProgram", library="hiprtc",
                status=answer, status_name="HIPRTC_ERROR_COMPILATION")
        if answer != 0:
            _core.raise_status(_core.Library.hiprtc, answer, b"hiprtcCompileProgram")
        abi.hiprtcGetCodeSize(program, &size)
        code = bytearray(size)
        target = code
        abi.hiprtcGetCode(program, target)
        return bytes(code)
    finally:
        abi.slot_hiprtcDestroyProgram(&program)


cdef str log_of(abi.hiprtcProgram program):
    cdef size_t size = 0
    cdef bytearray text
    cdef char* target
    if <int>abi.slot_hiprtcGetProgramLogSize(program, &size) != 0 or size == 0:
        return "no log"
    text = bytearray(size)
    target = text
    if <int>abi.slot_hiprtcGetProgramLog(program, target) != 0:
        return "no log"
    return text.rstrip(b"\0").decode("utf-8", "replace").strip() or "no log"
