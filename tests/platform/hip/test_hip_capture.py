# SPDX-License-Identifier: MIT
"""A ROCm with equal names in the same process, loaded for everyone: neither it nor the host answers for the other."""

import json
import shutil
import subprocess
import sys

import host_platform
import pytest

FAKE_HIP = """
int hipGetDeviceCount(int *count) { *count = 77; return 0; }
int hipRuntimeGetVersion(int *version) { *version = 1; return 0; }
int hipMalloc(void **pointer, unsigned long size) { *pointer = (void *)size; return 0; }
"""
FAKE_HIPBLASLT = """
int hipGetDeviceCount(int *count);
int hipblasLtCreate(void **handle) { int count; hipGetDeviceCount(&count); *handle = (void *)(long)count; return 0; }
"""
PROGRAM = """
import ctypes, json, os, sys

fakes, ours, order = sys.argv[1:]

def load_fakes():
    for name in ("libamdhip64.so", "libhipblaslt.so"):
        loaded["fake " + name] = ctypes.CDLL(os.path.join(fakes, name), ctypes.RTLD_GLOBAL)

def load_ours():
    for name in ("libhipblaslt.so", "libamdhip64.so"):
        loaded["our " + name] = ctypes.CDLL(os.path.join(ours, name), os.RTLD_LOCAL | os.RTLD_NOW)

loaded = {}
for load in (load_fakes, load_ours) if order == "fakes first" else (load_ours, load_fakes):
    load()

def number(library, function, type=ctypes.c_int):
    value = type()
    status = getattr(loaded[library], function)(ctypes.byref(value))
    return status, value.value

pointer = ctypes.c_void_p()
our_hip, our_lt = loaded["our libamdhip64.so"], loaded["our libhipblaslt.so"]
status = our_hip.hipMalloc(ctypes.byref(pointer), ctypes.c_size_t(4096))
ctypes.memset(pointer, 1, 4096)
handle = ctypes.c_void_p()
print(json.dumps({
    "our count": number("our libamdhip64.so", "hipGetDeviceCount"),
    "our version": number("our libamdhip64.so", "hipRuntimeGetVersion"),
    "our memory": [status, our_hip.hipFree(pointer)],
    "our handle": [our_lt.hipblasLtCreate(ctypes.byref(handle)), our_lt.hipblasLtDestroy(handle)],
    "fake count": number("fake libamdhip64.so", "hipGetDeviceCount"),
    "fake handle": number("fake libhipblaslt.so", "hipblasLtCreate", ctypes.c_void_p),
}))
"""


@pytest.fixture(scope="module")
def fakes(tmp_path_factory):
    """A folder with a fake HIP and a fake hipBLASLt that needs it, under AMD's SONAMEs."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    folder = tmp_path_factory.mktemp("fakes")
    for name, soname, text, needed in (
        ("amdhip64", "libamdhip64.so.7", FAKE_HIP, []),
        ("hipblaslt", "libhipblaslt.so.1", FAKE_HIPBLASLT, [f"-L{folder}", "-lamdhip64", "-Wl,-rpath,$ORIGIN"]),
    ):
        source = folder / f"{name}.c"
        source.write_text(text)
        command = [
            compiler,
            "-shared",
            "-fPIC",
            str(source),
            f"-Wl,-soname,{soname}",
            "-o",
            str(folder / f"lib{name}.so"),
            *needed,
        ]
        subprocess.run(command, check=True)
        (folder / soname).symlink_to(f"lib{name}.so")
    return folder


@pytest.mark.parametrize("order", ["fakes first", "ours first"])
def test_each_library_answers_for_itself(fakes, order):
    ours = host_platform.folder() / "lib"
    process = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(fakes), str(ours), order],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    assert json.loads(process.stdout) == {
        "our count": [0, 8],
        "our version": [0, 71500000],
        "our memory": [0, 0],
        "our handle": [0, 0],
        "fake count": [0, 77],
        "fake handle": [0, 77],
    }


def test_a_program_that_was_built_with_a_facade_is_told_apart(fakes):
    """The SONAMEs differ from AMD's, so that the loader never takes one for the other."""
    for name in ("amdhip64", "hipblaslt"):
        path = host_platform.folder() / "lib" / f"lib{name}.so"
        listing = subprocess.run(["readelf", "-d", str(path)], capture_output=True, text=True, check=True).stdout
        assert f"soname: [librocpy_{name}.so]" in listing
        assert "[librocpy_host.so]" in listing
        assert "SYMBOLIC" in listing
        needed = [line for line in listing.splitlines() if "(NEEDED)" in line]
        assert not [line for line in needed if "amdhip64" in line or "hipblaslt" in line], needed
        assert "$ORIGIN" in listing
