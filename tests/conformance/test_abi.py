# SPDX-License-Identifier: MIT
"""csrc/abi against AMD's generated bindings, function by function, value by value, byte by byte; facades against rows.

Needs the rocm-bindings wheels, which exist for x86-64 alone, and a C compiler.
"""

import ctypes
import importlib
import importlib.util
import pathlib
import platform as machine
import re
import struct
import subprocess
import sysconfig

import generate_abi
import pytest

pytest.importorskip("rocm.bindings.cyhipblaslt", exc_type=ModuleNotFoundError)

from hipblaslt_support.host import ROOT, host_folder, rows

ABI = ROOT / "csrc" / "abi"
HEADERS = ("types_hip.h", "types_hip_attributes.h", "types_hipblaslt.h", "types_rccl.h", "types_hiprtc.h")
LIBRARIES = {
    "hip": ("cyhip", "libamdhip64.so"),
    "hipblaslt": ("cyhipblaslt", "libhipblaslt.so"),
    "rccl": ("cyrccl", "librccl.so"),
    "hiprtc": ("cyhiprtc", None),  # the host platform has none
}

# Linked name of a row -> name in the bindings: a header macro renames the function.
RENAMED = {"hipGetDevicePropertiesR0600": "hipGetDeviceProperties"}

# What AMD's headers declare and the bindings leave out: hip/hip_ext.h of HIP 6.0.
OF_HEADERS = {
    "hipExtModuleLaunchKernel": (
        "hipError_t",
        (
            "hipFunction_t f, unsigned int globalWorkSizeX, unsigned int globalWorkSizeY, "
            "unsigned int globalWorkSizeZ, unsigned int localWorkSizeX, unsigned int localWorkSizeY, "
            "unsigned int localWorkSizeZ, size_t sharedMemBytes, "
            "hipStream_t hStream, void ** kernelParams, void ** extra, hipEvent_t startEvent, hipEvent_t stopEvent, "
            "unsigned int flags"
        ),
    )
}

# One type, two names: what the bindings write and what the rows write. Typedefs of pointers are opened; a tag and its
# typedef are one.
SPELLINGS = {
    "hipDeviceptr_t": "void *",
    "hipblasLtHandle_t": "void *",
    "_hipblasLtMatmulAlgo_t": "hipblasLtMatmulAlgo_t",
    "_hipblasLtMatmulHeuristicResult_t": "hipblasLtMatmulHeuristicResult_t",
    "hipDeviceProp_tR0600": "hipDeviceProp_t",
    "hipUUID_t": "hipUUID",
    "ncclConfig_t": "ncclConfig_v22800",
    "ncclSimInfo_t": "ncclSimInfo_v22200",
    "ncclParamHandle_t": "ncclParamHandle",
}

# A const that only one side has does not change a call, nor does the word before a tag; all other words count.
IGNORED = r"\bconst\b|\bstruct\b|\benum\b"


@pytest.fixture(autouse=True, scope="module")
def only_x86():
    assert machine.machine() in ("x86_64", "AMD64"), "the wheels that this compares with exist for x86-64 alone"


def pxd(name):
    spec = importlib.util.find_spec(f"rocm.bindings.{name}")
    return pathlib.Path(spec.origin).parent.joinpath(f"{name}.pxd").read_text()


def declarations(name):
    """Function -> (result, parameters) of a .pxd file."""
    pattern = r"^cdef ([\w ]+?[ *]+)(\w+)\((.*)\) (?:except|nogil|noexcept)"
    return {
        function: (result, parameters) for result, function, parameters in re.findall(pattern, pxd(name), re.MULTILINE)
    }


def split_parameters(text):
    text = text.strip()
    if text in ("", "void"):
        return []
    return [part.strip() for part in text.split(",")]


def canonical(parameter, named=True):
    """A parameter's type: without its name and without words that do not change a call."""
    text = re.sub(IGNORED, " ", parameter)
    words = re.findall(r"\w+|\*", text)
    if (
        named
        and words
        and words[-1] != "*"
        and len([w for w in words if w != "*"]) > 1
        and words[-1] not in ("int", "char", "long", "short")
    ):
        words = words[:-1]
    words = re.findall(r"\w+|\*", " ".join(SPELLINGS.get(word, word) for word in words))
    plain = " ".join(sorted(word for word in words if word != "*"))
    plain = {"int long long unsigned": "long long unsigned", "unsigned": "int unsigned"}.get(plain, plain)
    return plain + " *" * words.count("*")


ROWS = [(library, name) for library in LIBRARIES for name, (_, _, own) in rows(library).items() if not own]


@pytest.mark.parametrize(("library", "name"), ROWS, ids=[name for _, name in ROWS])
def test_prototype(library, name):
    declared = declarations(LIBRARIES[library][0])
    wanted = declared.get(name) or declared.get(RENAMED.get(name, "")) or OF_HEADERS.get(name)
    assert wanted, f"{LIBRARIES[library][0]}.pxd declares no {name}"
    result, parameters, _ = rows(library)[name]
    assert canonical(result, named=False) == canonical(wanted[0], named=False)
    assert [canonical(p) for p in split_parameters(parameters)] == [canonical(p) for p in split_parameters(wanted[1])]


def test_hipblaslt_rows_are_complete():
    declared = {name for name in declarations("cyhipblaslt") if name.startswith("hipblasLt")}
    assert {name for library, name in ROWS if library == "hipblaslt"} == declared


def test_rccl_rows_are_complete():
    declared = {name for name in declarations("cyrccl") if name.startswith("nccl")}
    assert {name for library, name in ROWS if library == "rccl"} == declared


def enumerations():
    """Enum name -> {enumerator: value} as the headers have them."""
    found = {}
    for header in HEADERS:
        text = re.sub(r"/\*.*?\*/", "", (ABI / header).read_text(), flags=re.DOTALL)
        for name, body in re.findall(r"typedef enum (\w+) \{(.*?)\}", text, re.DOTALL):
            found[name] = {key: int(value, 0) for key, value in re.findall(r"(\w+)\s*=\s*(-?\w+)", body)}
    return found


ENUMERATIONS = enumerations()


def bindings_member(name):
    for module in ("hip", "hipblaslt", "hipblas", "rccl", "hiprtc"):
        member = getattr(importlib.import_module(f"rocm.bindings.{module}"), name, None)
        if member is not None:
            return member
    return None


@pytest.mark.parametrize("name", ENUMERATIONS)
def test_enumeration(name):
    member = bindings_member(name)
    assert member is not None, f"the bindings have no {name}"
    theirs = {key: int(value) for key, value in member.__members__.items()}
    ours = ENUMERATIONS[name]
    assert {key: theirs.get(key) for key in ours} == ours
    if name.startswith(("hipblas", "nccl")) and name != "hipblasComputeType_t":
        assert set(theirs) == set(ours)


# Struct of ours -> class of the bindings.
STRUCTS = {
    "hipblasLtMatmulAlgo_t": "_hipblasLtMatmulAlgo_t",
    "hipblasLtMatmulHeuristicResult_t": "_hipblasLtMatmulHeuristicResult_t",
    "hipDeviceProp_tR0600": "hipDeviceProp_t",
    "hipPointerAttribute_t": "hipPointerAttribute_t",
    "hipUUID_t": "hipUUID_t",
    "hipDeviceArch_t": "hipDeviceArch_t",
    "ncclUniqueId": "ncclUniqueId",
    "ncclConfig_t": "ncclConfig_v22800",
    "ncclSimInfo_t": "ncclSimInfo_v22200",
    "ncclWaitSignalDesc_t": "ncclWaitSignalDesc_t",
}


# Fields that the bindings follow as pointers to text.
TEXTS = ("netName", "commName")


def struct_fields():
    """Struct -> names of its fields; a bit-field comes as (name, index of its bit)."""
    text = "\n".join((ABI / header).read_text() for header in HEADERS)
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    found = {}
    for body, name in re.findall(r"typedef struct \w+ \{\n([^{}]*)\n\} (\w+);", text):
        fields = found[name] = []
        for declaration in body.split(";"):
            bit = re.fullmatch(r"\s*unsigned int (\w+) : 1", declaration)
            if bit:
                fields.append((bit[1], len(fields)))
                continue
            # The declarators follow the type: names, perhaps with stars before and extents behind.
            of_type = (
                r"^\s*(?:const |struct |enum )*(?:unsigned(?: int| char| short| long long| long)?|long long|\w+)\b"
            )
            declarators = re.sub(of_type, "", declaration)
            fields += [re.findall(r"[A-Za-z_]\w*", part)[0] for part in declarators.split(",") if part.strip()]
    return found


@pytest.fixture(scope="module")
def layout(tmp_path_factory):
    """Struct -> {"size": ..., "fields": {name: [offset, size]}}, from a small C program over the headers."""
    folder = tmp_path_factory.mktemp("layout")
    lines = ["#include <stddef.h>", "#include <stdio.h>", '#include "types.h"', "int main(void) {"]
    for name in STRUCTS:
        lines.append(f'  printf("{name} . %zu 0\\n", sizeof({name}));')
        lines += [
            f'  printf("{name} {field} %zu %zu\\n", offsetof({name}, {field}), sizeof((({name} *)0)->{field}));'
            for field in struct_fields()[name]
            if isinstance(field, str)
        ]
    lines += ["  return 0;", "}"]
    source = folder / "layout.c"
    source.write_text("\n".join(lines))
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    subprocess.run([compiler, "-std=c11", "-I", str(ABI), str(source), "-o", str(folder / "layout")], check=True)
    output = subprocess.run([str(folder / "layout")], check=True, capture_output=True, text=True).stdout
    found = {name: {"fields": {}} for name in STRUCTS}
    for line in output.splitlines():
        name, field, first, second = line.split()
        if field == ".":
            found[name]["size"] = int(first)
        else:
            found[name]["fields"][field] = (int(first), int(second))
    return found


def read_back(made, field, memory, offset, size):
    """Whether the bindings find at `field` what was written at our offset, told by the type of what they read."""
    base = int(made) + offset
    getter = getattr(made, f"get_{field}", None)
    if field in TEXTS:
        text = ctypes.create_string_buffer(b"name")
        memory[offset : offset + 8] = struct.pack("<Q", ctypes.addressof(text))
        return getter(0) in ("name", b"name")
    value = getattr(made, field) if getter is None else getter(0)
    if isinstance(value, float):
        memory[offset : offset + size] = struct.pack("<f" if size == 4 else "<d", 2.5)
        return getter(0) == 2.5
    if isinstance(value, int):
        memory[offset] = 1
        return int(getter(0)) == 1
    if isinstance(value, bytes | str):
        memory[offset] = ord("x")
        seen = getter(0)
        return seen[0] in ("x", ord("x"))
    if isinstance(value, list):
        memory[offset] = 1
        return int(getter(0)[0]) == 1 and len(value) * 4 == size
    if value.is_ptr_null:
        memory[offset : offset + 8] = struct.pack("<Q", 4096)
        return int(getattr(made, field) if getter is None else getter(0)) == 4096
    return int(value) == base


@pytest.mark.parametrize("name", STRUCTS)
def test_struct(name, layout):
    made = bindings_member(STRUCTS[name])()
    ours = layout[name]
    assert made.c_sizeof() == ours["size"]
    memory = (ctypes.c_ubyte * ours["size"]).from_address(int(made))
    bits = dict(field for field in struct_fields()[name] if isinstance(field, tuple))
    assert set(made.PROPERTIES()) == set(ours["fields"]) | set(bits)
    for field, (offset, size) in ours["fields"].items():
        ctypes.memset(memory, 0, ours["size"])
        assert read_back(made, field, memory, offset, size), f"{field} is not at {offset}"
    for field, bit in bits.items():
        memory[:] = list((1 << bit).to_bytes(ours["size"], "little"))
        assert [other for other in bits if getattr(made, f"get_{other}")(0)] == [field]


@pytest.mark.parametrize("library", [name for name, (_, file) in LIBRARIES.items() if file])
def test_exported_symbols(library):
    file = host_folder() / "lib" / LIBRARIES[library][1]
    output = subprocess.run(
        ["nm", "-D", "--defined-only", str(file)], check=True, capture_output=True, text=True
    ).stdout
    exported = {line.split()[-1] for line in output.splitlines() if line.split()[-2] == "T"}
    assert exported == generate_abi.symbols(library)


def test_profilers_call_rccl_by_second_names():
    library = ctypes.CDLL(str(host_folder() / "lib" / "librccl.so"))
    names = [name for name in rows("rccl") if name.startswith("nccl")]
    assert len(names) > 60
    for name in names:
        first, second = (ctypes.cast(getattr(library, each), ctypes.c_void_p).value for each in (name, f"p{name}"))
        assert first == second
    version = ctypes.c_int()
    assert library.pncclGetVersion(ctypes.byref(version)) == 0
    assert version.value == 23004
