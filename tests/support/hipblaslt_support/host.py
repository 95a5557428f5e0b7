# SPDX-License-Identifier: MIT
"""Finds the host platform's folder and points unmodified hip-python at it."""

import ctypes
import functools
import importlib.util
import os
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[3]


def rows(library):
    """The library's rows, those of extension.def among them: name -> (result, parameters, rocpy's own or not)."""
    entries = {}
    for file in (f"{library}.def", "extension.def"):
        text = (ROOT / "csrc" / "abi" / file).read_text()
        pattern = r"ROCPY_FUNCTION\((\w+), ([^,]+), (\w+), \((.*)\), (\w+)\)"
        for row_library, result, name, parameters, _ in re.findall(pattern, text):
            if row_library == library:
                entries[name] = (result, parameters, file == "extension.def")
    return entries


@functools.cache
def host_folder():
    """The folder that looks like a ROCm install: ROCPY_TEST_HOST_DIR, else the one beside the built package."""
    override = os.environ.get("ROCPY_TEST_HOST_DIR")
    if override:
        folder = pathlib.Path(override)
    else:
        spec = importlib.util.find_spec("rocpy._core")
        if spec is None or spec.origin is None:
            raise RuntimeError("neither ROCPY_TEST_HOST_DIR nor a built rocpy gives the host platform's folder")
        folder = pathlib.Path(spec.origin).parent / "_host"
    if not (folder / "lib" / "libhipblaslt.so").exists():
        raise RuntimeError(f"{folder} holds no lib/libhipblaslt.so: build the host platform first")
    return folder.resolve()


@functools.cache
def library(name):
    """The platform's library through ctypes, for what hip-python's wrappers do not let through."""
    return ctypes.CDLL(str(host_folder() / "lib" / f"lib{name}.so"), mode=os.RTLD_LOCAL | os.RTLD_NOW)


@functools.cache
def hip_python():
    """The pair (rocm.bindings.hip, rocm.bindings.hipblaslt), bound to the host platform for the rest of the process."""
    before = os.environ.get("ROCM_PATH")
    os.environ["ROCM_PATH"] = str(host_folder())
    try:
        from rocm.bindings import hip, hipblaslt

        # Each module opens its library at the first call and keeps it.
        hip.hipGetDeviceCount()
        hipblaslt.hipblasLtGetVersion(None)
    finally:
        if before is None:
            del os.environ["ROCM_PATH"]
        else:
            os.environ["ROCM_PATH"] = before
    mapped = {line.split()[-1] for line in pathlib.Path("/proc/self/maps").read_text().splitlines() if ".so" in line}
    for file in ("libamdhip64.so", "libhipblaslt.so"):
        wanted = str(host_folder() / "lib" / file)
        if wanted not in mapped:
            raise RuntimeError(f"hip-python holds another {file} than {wanted}")
    return hip, hipblaslt
