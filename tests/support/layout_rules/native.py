# SPDX-License-Identifier: MIT
"""Rules of csrc: who may include what, who may name a platform, who reads the environment."""

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from layout_rules.tree import Tree, matching, numbered, rule

C_SUFFIXES = (".c", ".h", ".cpp", ".hpp", ".def", ".inc")
HEADERS = (".h", ".hpp")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
VENDOR = re.compile(
    r"^(?:(?:hip|hipblas|hipblaslt|hipblas-common|rccl|rocblas|rocprim|hiprtc|hsa|nccl)/"
    r"|(?:hip_runtime|hip_runtime_api|hipblas|hipblaslt|rccl|rocblas|nccl|cuda|cuda_runtime|cublas_v2|cublasLt)\.h$)"
)
PYTHON_HEADERS = re.compile(r"^(Python\.h|pybind11/|numpy/|nanobind/)")
LOADER = re.compile(r"^csrc/core/platform/platform\.(cpp|hpp)$")
PLATFORM_NAMES = re.compile(
    r'"(amd|host)"|\brocpy_host\w*|platforms/\w+|\blib(amdhip64|hipblaslt|rccl|rocpy_host)\b|/opt/rocm'
)
ENVIRONMENT_READER = "csrc/abi/environment.h"
GETENV = re.compile(r"\b(secure_)?getenv\s*\(|\benviron\b")


def includes(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield (line, bracket, name) of each include."""
    for number, line in numbered(text):
        if match := INCLUDE.match(line):
            yield number, match[1], match[2]


def names_under(tree: Tree, folder: str) -> set[str]:
    """Return the file names below a folder."""
    return {PurePosixPath(path).name for path in tree if path.startswith(folder)}


@rule(
    {"csrc/platforms/host/bad.cpp": '#include "../../core/table.hpp"\n'},
    {"csrc/platforms/host/bad.cpp": '#include "table.hpp"\n', "csrc/core/table.hpp": ""},
    {"csrc/platforms/other/bad.cpp": '#include "gemm.hpp"\n'},
)
def platform_includes_contract_and_itself(tree: Tree) -> Iterator[str]:
    """A platform includes, by bare name, from csrc/abi and from its own folder; nothing else."""
    contract = names_under(tree, "csrc/abi/")
    for path, text in matching(tree, "csrc/platforms/", suffixes=C_SUFFIXES):
        allowed = contract | names_under(tree, "/".join(path.split("/")[:3]) + "/")
        for number, bracket, name in includes(text):
            if bracket == '"' and name not in allowed:
                yield f"{path}:{number}: a platform includes bare names from csrc/abi or its own folder, not {name!r}"


LAYER = re.compile(r"rocpy_layer\(\s*\w+\s+([\w/]+)")
LAYERED = ("csrc/core/", "csrc/platforms/host/")
LIBRARY = re.compile(r"^ROCPY_LIBRARY\((\w+)", re.MULTILINE)


@rule(
    {"csrc/core/bad.cpp": ""},
    {"csrc/core/bad/bad.hpp": ""},
    {"csrc/platforms/host/hip/bad.cpp": ""},
    {"csrc/platforms/host/novelty/bad.cpp": ""},
)
def csrc_files_are_in_layers(tree: Tree) -> Iterator[str]:
    """A C++ file lies in a folder that its library's CMakeLists.txt orders by `rocpy_layer()` and names it.

    The folder of a library of the host platform, named in libraries.def, is a layer of all of its sources.
    """
    libraries = set(LIBRARY.findall(tree["csrc/abi/libraries.def"]))
    for root in LAYERED:
        lists = "".join(text for _, text in matching(tree, root, suffixes=("CMakeLists.txt", ".cmake")))
        # Compiled once for each instruction set.
        layers = {*LAYER.findall(lists), "gemm/kernels", "gemm/kernels/pairs"}
        for path, _ in matching(tree, root, suffixes=(".cpp", ".hpp")):
            folder, _, name = path.removeprefix(root).rpartition("/")
            if folder not in layers and folder in libraries and root == "csrc/platforms/host/":
                continue
            if folder not in layers:
                yield f"{path}: its folder is no layer of {root}CMakeLists.txt"
            elif name.endswith(".cpp") and name not in lists:
                yield f"{path}: {root}CMakeLists.txt does not name it"


@rule({"csrc/platforms/host/rccl/bad.hpp": "#pragma once\n", "csrc/platforms/host/hip/bad.hpp": "#pragma once\n"})
def platform_headers_are_one_each(tree: Tree) -> Iterator[str]:
    """A platform's headers are told apart by name alone, since includes are bare."""
    seen: dict[str, str] = {}
    for path, _ in sorted(matching(tree, "csrc/platforms/", suffixes=HEADERS)):
        name = "/".join([*path.split("/")[:3], PurePosixPath(path).name])
        if name in seen:
            yield f"{path}: has the name of {seen[name]}; an include of it could mean either"
        seen[name] = path


@rule(
    {"csrc/abi/bad.h": "#ifndef BAD_H\n#define BAD_H\n#endif\n"},
    {"csrc/device/bad.h": ""},
    {"tests/cpp/bad.hpp": ""},
    {"rocpy/jax/bad.hpp": ""},
)
def headers_are_read_once(tree: Tree) -> Iterator[str]:
    """A header has `#pragma once`, and no guard of its own."""
    for path, text in matching(tree, "csrc/", "rocpy/", "benchmarks/", "tests/cpp/", suffixes=HEADERS):
        if not re.search(r"^#pragma once$", text, re.MULTILINE):
            yield f"{path}: lacks `#pragma once`"


@rule(
    {"csrc/core/bad.cpp": '#include "../platforms/host/exports.h"\n'},
    {"csrc/core/bad.cpp": '#include "exports.h"\n', "csrc/platforms/host/hip/exports.h": ""},
    {"csrc/abi/bad.h": '#include "table.hpp"\n', "csrc/core/table.hpp": ""},
)
def core_includes_contract_and_itself(tree: Tree) -> Iterator[str]:
    """The core includes from csrc/abi, itself and DLPack; the contract from itself alone."""
    contract = names_under(tree, "csrc/abi/")
    core = contract | names_under(tree, "csrc/core/") | {"dlpack.h"}
    for folder, allowed in (("csrc/abi/", contract), ("csrc/core/", core)):
        for path, text in matching(tree, folder, suffixes=C_SUFFIXES):
            for number, bracket, name in includes(text):
                if bracket == '"' and name not in allowed and name != "dlpack/dlpack.h":
                    yield f"{path}:{number}: {folder} may not include {name!r}"


@rule({"csrc/core/bad.cpp": "#include <Python.h>\n"}, {"csrc/abi/bad.h": "#include <numpy/arrayobject.h>\n"})
def csrc_is_free_of_python(tree: Tree) -> Iterator[str]:
    """No Python header under csrc."""
    for path, text in matching(tree, "csrc/", suffixes=C_SUFFIXES):
        for number, _, name in includes(text):
            if PYTHON_HEADERS.match(name):
                yield f"{path}:{number}: csrc knows no Python, but includes {name!r}"


@rule(
    {"csrc/core/bad.cpp": "#include <hip/hip_runtime.h>\n"},
    {"rocpy/blaslt/bad.cpp": "#include <hipblaslt/hipblaslt.h>\n"},
    {"rocpy/bad.pyx": 'cdef extern from "rccl/rccl.h":\n    pass\n'},
)
def no_vendor_headers(tree: Tree) -> Iterator[str]:
    """Vendor headers are included nowhere: csrc/abi states what is used of them."""
    for path, text in matching(tree, "csrc/", "rocpy/", suffixes=(*C_SUFFIXES, ".pyx", ".pxd")):
        for number, _, name in includes(text):
            if VENDOR.match(name):
                yield f"{path}:{number}: vendor header {name!r}; declare what is needed in csrc/abi"
        for number, line in numbered(text):
            match = re.search(r"cdef extern from\s+[\"']<?([^\"'>]+)", line)
            if match and VENDOR.match(match[1]):
                yield f"{path}:{number}: vendor header {match[1]!r}; declare what is needed in csrc/abi"


@rule(
    {"csrc/core/platform/plan.cpp": 'bool slow = platform_name == "host";\n'},
    {"csrc/core/platform/plan.cpp": "void *library = dlopen(libamdhip64, 0);\n"},
)
def core_names_no_platform_outside_its_loader(tree: Tree) -> Iterator[str]:
    """Only the loader knows which platforms there are."""
    for path, text in matching(tree, "csrc/core/", suffixes=C_SUFFIXES):
        if LOADER.match(path):
            continue
        for number, line in numbered(text):
            code = line.split("//")[0]
            if match := PLATFORM_NAMES.search(code):
                yield f"{path}:{number}: names a platform ({match[0]}); only the loader may"


@rule(
    {"csrc/platforms/host/bad.cpp": 'const char *value = std::getenv("ROCPY_NUM_THREADS");\n'},
    {"csrc/core/bad.cpp": "extern char **environ;\n"},
)
def one_native_module_reads_the_environment(tree: Tree) -> Iterator[str]:
    """C and C++ read the environment through csrc/abi/environment.h."""
    if tree.get(ENVIRONMENT_READER) is not None and not GETENV.search(tree[ENVIRONMENT_READER]):
        yield f"{ENVIRONMENT_READER}: reads nothing; move the rule along with the reader"
    for path, text in matching(tree, "csrc/", "rocpy/", suffixes=C_SUFFIXES):
        if path == ENVIRONMENT_READER:
            continue
        for number, line in numbered(text):
            if GETENV.search(line.split("//")[0]):
                yield f"{path}:{number}: reads the environment; {ENVIRONMENT_READER} is the place"


@rule({"csrc/abi/bad.def": "ROCPY_FUNCTION(hip, hipError_t, hipMalloc, (void** p), 60000)\n" * 2})
def rows_are_unique(tree: Tree) -> Iterator[str]:
    """A C function is one row of one table."""
    seen: dict[str, str] = {}
    for path, text in matching(tree, "csrc/abi/", suffixes=(".def",)):
        for number, line in numbered(text):
            match = re.match(r"ROCPY_\w+\(\s*\w+\s*,\s*[^,]+,\s*(\w+)\s*,\s*\(", line) or re.match(
                r"ROCPY_VARIABLE\(\s*(\w+)", line
            )
            if not match:
                continue
            if match[1] in seen:
                yield f"{path}:{number}: {match[1]} is a row already, at {seen[match[1]]}"
            seen.setdefault(match[1], f"{path}:{number}")
