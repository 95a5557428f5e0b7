# SPDX-License-Identifier: MIT
"""What is in the wheel: our libraries alone, which need nothing but the C and C++ runtimes; no sources; a few MB."""

import io
import re
import zipfile

import pytest
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection

# The dynamic loader goes by several names; everything else is glibc, gcc's runtime, or ours.
ALLOWED_NEEDED = re.compile(
    r"^(libc\.so\.6|libm\.so\.6|libpthread\.so\.0|libdl\.so\.2|librt\.so\.1|libstdc\+\+\.so\.6|libgcc_s\.so\.1|ld-linux[\w.-]*\.so\.\d|librocpy_\w+\.so)$"
)
MAXIMUM_BYTES = 8 << 20
# The newest names that manylinux_2_28 allows in the libraries of a system.
NEWEST = {"GLIBC": (2, 28), "GLIBCXX": (3, 4, 24), "CXXABI": (1, 3, 11), "GCC": (7, 0, 0)}
# What a library may leave to the process without naming a version: Python, our own libraries, and what a linker adds.
UNVERSIONED = re.compile(
    r"^(_?Py|_ZNK?5rocpy|_ZT[HISV]N5rocpy|rocpy_host_|hip|nccl|rocblas_|_ITM_|__gmon_start__$|__cxa_finalize$)"
)


@pytest.fixture(scope="module")
def archive(wheel):
    with zipfile.ZipFile(wheel) as opened:
        yield opened


def libraries(archive):
    return [name for name in archive.namelist() if re.search(r"\.so(\.\d+)*$", name)]


def is_stand_in(name):
    """Return whether a library is of the stand-in ROCm tree: under AMD's names, and found by those who ask for it."""
    return name.startswith("rocpy/_host/rocm/")


def dynamic(archive, name):
    elf = ELFFile(io.BytesIO(archive.read(name)))
    section = elf.get_section_by_name(".dynamic")
    assert isinstance(section, DynamicSection), name
    return list(section.iter_tags())


def test_libraries_are_ours(archive):
    names = libraries(archive)
    assert names
    assert all(name.startswith("rocpy/") for name in names), names
    assert any("_lib/librocpy_core.so" in name for name in names), names
    assert any("librocpy_host.so" in name for name in names), names


def test_each_library_is_for_the_architecture_of_the_wheel(archive, wheel):
    arch, machine = {"x86_64": ("x86_64", "x64"), "aarch64": ("aarch64", "AArch64")}[
        re.search(r"(x86_64|aarch64)\.whl$", str(wheel))[1]
    ]
    for name in libraries(archive):
        suffix = re.search(r"\.cpython-\w+-(\w+)-linux-gnu\.so$", name)
        assert suffix is None or suffix[1] == arch, name
        assert ELFFile(io.BytesIO(archive.read(name))).get_machine_arch() == machine, name


def test_libraries_need_only_the_language_runtimes(archive):
    stand_ins = {name.rsplit("/", 1)[1] for name in libraries(archive) if is_stand_in(name)}
    foreign = {
        name: [
            tag.needed
            for tag in dynamic(archive, name)
            if tag.entry.d_tag == "DT_NEEDED"
            and not ALLOWED_NEEDED.match(tag.needed)
            and not (is_stand_in(name) and tag.needed in stand_ins)
        ]
        for name in libraries(archive)
    }
    assert {name: needed for name, needed in foreign.items() if needed} == {}


def test_tag_is_manylinux(wheel):
    assert re.search(r"[-.]manylinux_2_28_(x86_64|aarch64)\.whl$", wheel.name), wheel.name


def test_symbol_versions_are_as_old_as_the_tag(archive):
    newer = set()
    for name in libraries(archive):
        needed = ELFFile(io.BytesIO(archive.read(name))).get_section_by_name(".gnu.version_r")
        if not isinstance(needed, GNUVerNeedSection):
            continue
        for library, versions in needed.iter_versions():
            for version in versions:
                family, _, number = version.name.partition("_")
                if family not in NEWEST:
                    assert not library.name.startswith(("libc.", "libstdc++", "libgcc")), (name, version.name)
                elif tuple(int(part) for part in number.split(".")) > NEWEST[family]:
                    newer.add((name, library.name, version.name))
    assert newer == set()


def test_nothing_unknown_is_left_to_the_process(archive):
    # A name that the linker found nowhere has no version; Python's modules are linked without asking whether it exists.
    unknown = set()
    for name in libraries(archive):
        elf = ELFFile(io.BytesIO(archive.read(name)))
        versions = elf.get_section_by_name(".gnu.version")
        for index, symbol in enumerate(elf.get_section_by_name(".dynsym").iter_symbols()):
            absent = symbol["st_shndx"] == "SHN_UNDEF" and symbol.name
            bare = versions is None or versions.get_symbol(index)["ndx"] in ("VER_NDX_GLOBAL", "VER_NDX_LOCAL")
            if absent and bare and not UNVERSIONED.match(symbol.name):
                unknown.add((name, symbol.name))
    assert unknown == set()


def test_the_cpp_library_stays_inside(archive):
    # Several copies of its templates and of what is linked statically live in a process, each its library's own.
    shown = set()
    for name in libraries(archive):
        for symbol in ELFFile(io.BytesIO(archive.read(name))).get_section_by_name(".dynsym").iter_symbols():
            if symbol["st_shndx"] != "SHN_UNDEF" and re.match(
                r"_ZN?K?T?[ISV]?N?(St|9__gnu_cxx|10__cxxabiv1)|__cxa_", symbol.name
            ):
                shown.add((name, symbol.name))
    assert shown == set()


def test_exceptions_are_the_systems(archive):
    # What AMD's libraries throw passes through ours: one unwinder and one set of types has to know it.
    own = []
    for name in libraries(archive):
        elf = ELFFile(io.BytesIO(archive.read(name)))
        if elf.get_section_by_name(".gcc_except_table") is None:
            continue
        outside = {
            symbol.name
            for symbol in elf.get_section_by_name(".dynsym").iter_symbols()
            if symbol["st_shndx"] == "SHN_UNDEF"
        }
        if "__gxx_personality_v0" not in outside:
            own.append(name)
    assert own == []


def test_run_paths_are_relative(archive):
    for name in libraries(archive):
        for tag in dynamic(archive, name):
            path = getattr(tag, "runpath", None) or getattr(tag, "rpath", None) or ""
            assert all(part.startswith("$ORIGIN") for part in path.split(":") if part), (name, path)


def test_the_packages_own_libraries_come_before_those_of_the_environment(archive):
    # A runpath is searched after LD_LIBRARY_PATH, where another build's library may lie.
    later = {name for name in libraries(archive) for tag in dynamic(archive, name) if tag.entry.d_tag == "DT_RUNPATH"}
    assert not [name for name in later if not is_stand_in(name)]


def test_libraries_do_not_pose_as_amds(archive):
    # Equal sonames would be taken for AMD's by the dynamic loader, in both directions.
    sonames = {
        tag.soname
        for name in libraries(archive)
        if not is_stand_in(name)
        for tag in dynamic(archive, name)
        if tag.entry.d_tag == "DT_SONAME"
    }
    assert sonames
    assert not [soname for soname in sonames if not soname.startswith("librocpy_")]


def test_no_sources_of_extension_modules(archive):
    wrong = [
        name
        for name in archive.namelist()
        if (re.search(r"\.(pyx|c|cpp|hpp|h|def|o|a)$", name) or name.endswith("CMakeLists.txt"))
        # The device library is data: coop.headers() gives it to hipRTC and to compilers of raw kernels.
        and not re.fullmatch(r"rocpy/cooperative/include/rocpy_coop\w*\.h", name)
    ]
    # A .pxd is no source: Cython code of others can cimport our nouns.
    assert wrong == []


def test_device_library_is_there(archive, checkout):
    headers = {path.name for path in (checkout / "csrc/device").glob("*.h")}
    assert headers
    assert headers == {name.rsplit("/", 1)[1] for name in archive.namelist() if "/cooperative/include/" in name}


def test_typing_and_licences(archive, wheel):
    names = archive.namelist()
    assert "rocpy/py.typed" in names
    assert any(name.endswith(".pyi") for name in names)
    licences = [name for name in names if ".dist-info/licenses/" in name]
    assert any(name.endswith("licenses/LICENSE") for name in licences), licences
    # What the modules are compiled with: vendored headers, and those and the utility code of build requirements.
    assert {"cython", "dlpack", "numpy", "pybind11", "xla"} <= {name.split("/")[-2] for name in licences}, licences
    metadata = next(archive.read(name).decode() for name in names if name.endswith(".dist-info/METADATA"))
    assert "License-Expression: MIT AND Apache-2.0 AND BSD-3-Clause\n" in metadata


def test_top_level_is_the_package_and_what_torch_loads(archive):
    tops = {name.split("/")[0] for name in archive.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"rocpy", "rocpy_torch_backend"}


def test_size(wheel):
    assert wheel.stat().st_size < MAXIMUM_BYTES
