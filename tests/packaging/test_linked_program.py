# SPDX-License-Identifier: MIT
"""C programs linked with the host platform's libraries start, and share their state with rocpy in one process."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

LIBRARIES = ("amdhip64", "hipblaslt", "rccl")
SOURCE = """
#include <stddef.h>
#include <stdio.h>
#include <string.h>
int hipGetDeviceCount(int *count);
int hipMalloc(void **pointer, size_t bytes);
int hipMemcpy(void *to, const void *from, size_t bytes, int kind);
int hipFree(void *pointer);
int hipDeviceSynchronize(void);
int hipblasLtCreate(void **handle);
int hipblasLtDestroy(void *handle);
int ncclGetVersion(int *version);
int ncclCommInitAll(void **comms, int count, const int *devices);
int ncclAllReduce(const void *send, void *receive, size_t count, int type, int op, void *comm, void *stream);
int ncclCommDestroy(void *comm);

int work(void) {
  int count = 0, version = 0;
  float given[4] = {1, 2, 3, 4}, found[4] = {0};
  void *memory = NULL, *handle = NULL, *comm = NULL;
  if (hipGetDeviceCount(&count) || count < 1) return 1;
  if (ncclGetVersion(&version) || version < 20000) return 2;
  if (hipblasLtCreate(&handle) || hipblasLtDestroy(handle)) return 3;
  if (hipMalloc(&memory, sizeof given) || hipMemcpy(memory, given, sizeof given, 1)) return 4;
  if (ncclCommInitAll(&comm, 1, NULL)) return 5;
  if (ncclAllReduce(memory, memory, 4, 7, 0, comm, NULL) || hipDeviceSynchronize()) return 6;
  if (hipMemcpy(found, memory, sizeof found, 2) || memcmp(given, found, sizeof found)) return 7;
  return ncclCommDestroy(comm) || hipFree(memory) ? 8 : 0;
}

void *allocate(void) {
  void *memory = NULL;
  return hipMalloc(&memory, 64) ? NULL : memory;
}

int main(void) {
  printf("%d\\n", work());
  return 0;
}
"""


@pytest.fixture(scope="module")
def folder():
    """The host platform's libraries."""
    from rocpy import _core

    return Path(_core.__file__).resolve().parent / "_host" / "lib"


@pytest.fixture(scope="module")
def build(folder, tmp_path_factory):
    """Compile SOURCE with the system's compiler, linked with all of the libraries."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    place = tmp_path_factory.mktemp("linked")
    (place / "program.c").write_text(SOURCE)

    def run(name, *flags):
        words = [compiler, place / "program.c", "-o", place / name, *flags, f"-L{folder}"]
        subprocess.run([*words, *(f"-l{library}" for library in LIBRARIES)], check=True)
        return place / name

    return run


@pytest.mark.parametrize("way", ["run path", "LD_LIBRARY_PATH"])
def test_a_program(build, folder, way):
    if way == "run path":
        program, environ = build("by_path", f"-Wl,-rpath,{folder}"), {}
    else:
        program, environ = build("by_variable"), {"LD_LIBRARY_PATH": str(folder)}
    done = subprocess.run([program], capture_output=True, text=True, env={**os.environ, **environ})
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")


def test_each_name_in_a_linked_program_is_a_file_of_the_folder(folder):
    for library in LIBRARIES:
        own, asked_for = folder / f"lib{library}.so", folder / f"librocpy_{library}.so"
        assert own.is_file()
        assert own.read_bytes() == asked_for.read_bytes()


@pytest.mark.parametrize("first", ["library", "rocpy"])
def test_a_library_in_one_process_with_rocpy(build, folder, python, first):
    """The library's HIP and rocpy's are one: what one of them allocates, the other knows."""
    library = build("libuser.so", "-shared", "-fPIC", f"-Wl,-rpath,{folder}")
    program = f"""
import ctypes, json
import numpy as np
import rocpy

def product():
    return rocpy.matmul(np.eye(2, dtype=np.float32), np.ones((2, 2), np.float32)).tolist()

if {first!r} == "rocpy":
    product()
user = ctypes.CDLL({str(library)!r})
user.allocate.restype = ctypes.c_void_p
found = {{"work": user.work(), "product": product()}}
own = ctypes.CDLL({str(folder / "libamdhip64.so")!r})
found["free"] = own.hipFree(ctypes.c_void_p(user.allocate()))
print(json.dumps(found))
"""
    found = json.loads(python(program, ROCPY_PLATFORM="host"))
    assert found == {"work": 0, "product": [[1.0, 1.0], [1.0, 1.0]], "free": 0}
