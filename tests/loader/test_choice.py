# SPDX-License-Identifier: MIT
"""Which platform is chosen, from which tree, and why: every order of the search, on trees that were built for it."""

from pathlib import Path

import fake_rocm
import pytest
from elftools.elf.elffile import ELFFile
from fake_rocm import HIP_5, HIP_6, HIP_7, package, tree

from rocpy import _core

CHOICE = "result.update(facts())"
FAILURE = "result['error'] = failure(facts)"


def test_auto_without_a_gpu_opens_nothing_of_amd(machine):
    tree(machine.folder / "opt/rocm/lib", label="opt")
    machine.environment["ROCM_PATH"] = str(tree(machine.folder / "mine/lib", label="mine").parent)
    found = machine.run(CHOICE + "\nresult['mapped'] = mapped('amdhip64')")
    assert found["name"] == "host"
    assert found["is_emulated"]
    assert str(machine.node) in found["reason"]
    assert found["opened"] == []
    assert not any("opt/rocm" in path or "mine" in path for path in found["mapped"])


def test_auto_with_a_gpu_takes_amd(machine):
    machine.add_gpu()
    lib = tree(machine.folder / "opt/rocm/lib", label="opt", devices=3)
    found = machine.run(CHOICE)
    assert found["name"] == "amd"
    assert found["paths"] == {"hip": str(lib / "libamdhip64.so"), "hipblaslt": str(lib / "libhipblaslt.so")}
    assert found["devices"] == ["opt"] * 3
    assert found["versions"] == {"hip": "7.1.51000", "hipblaslt": "1.4.1"}
    assert not found["is_emulated"]
    assert set(found["opened"]) == {"opt"}


def test_auto_with_a_gpu_and_no_library_falls_back(machine):
    machine.add_gpu()
    found = machine.run(CHOICE)
    assert found["name"] == "host"
    assert "no libamdhip64.so" in found["reason"]


def test_auto_with_a_gpu_that_does_not_answer_falls_back(machine):
    machine.add_gpu()
    tree(machine.folder / "opt/rocm/lib", label="opt")
    machine.environment["ROCM_PATH"] = str(tree(machine.folder / "mine/lib", label="mine", devices=0).parent)
    found = machine.run(CHOICE)
    assert found["name"] == "host"
    assert "no device answers" in found["reason"]
    # A second runtime would see no more devices, and two must not meet in one process.
    assert set(found["opened"]) == {"mine"}


def test_amd_without_a_device_is_refused(machine):
    tree(machine.folder / "opt/rocm/lib", label="opt", devices=0)
    machine.environment["ROCPY_PLATFORM"] = "amd"
    error = machine.run(FAILURE)["error"]
    assert error["type"] == "LibraryError"
    assert "no device answers" in error["text"]


def test_amd_asks_no_device_node(machine):
    tree(machine.folder / "opt/rocm/lib", label="opt")
    machine.environment["ROCPY_PLATFORM"] = "amd"
    assert machine.run(CHOICE)["devices"] == ["opt"] * 2


def test_amd_without_a_library_names_every_place(machine):
    machine.environment |= {"ROCPY_PLATFORM": "amd", "ROCM_PATH": str(machine.folder / "nowhere")}
    error = machine.run(FAILURE)["error"]
    assert error["type"] == "LibraryError"
    assert str(machine.folder / "nowhere" / "lib") in error["text"]
    assert str(machine.folder / "opt/rocm/lib") in error["text"]


@pytest.mark.parametrize(
    ("hip", "hipblaslt", "version"),
    [("so.6", "so.0.10", HIP_6), ("so.7", "so.1", HIP_7), ("so.7.1.5", "so.1.4", HIP_7)],
)
def test_versioned_files_alone_serve(machine, hip, hipblaslt, version):
    machine.add_gpu()
    lib = tree(
        machine.folder / "opt/rocm/lib",
        label="opt",
        version=version,
        hip=f"libamdhip64.{hip}",
        hipblaslt=f"libhipblaslt.{hipblaslt}",
    )
    assert machine.run(CHOICE)["paths"] == {
        "hip": str(lib / f"libamdhip64.{hip}"),
        "hipblaslt": str(lib / f"libhipblaslt.{hipblaslt}"),
    }


def test_the_highest_version_is_tried_first(machine):
    machine.add_gpu()
    lib = tree(machine.folder / "opt/rocm/lib", label="old", version=HIP_6, hip="libamdhip64.so.9")
    tree(lib, label="new", version=HIP_7, hip="libamdhip64.so.10", hipblaslt="libhipblaslt.so.1")
    (lib / "libamdhip64.so.backup").write_text("no library")
    assert machine.run(CHOICE)["paths"]["hip"] == str(lib / "libamdhip64.so.10")


def test_a_broken_link_is_passed_over(machine):
    machine.add_gpu()
    lib = tree(machine.folder / "opt/rocm/lib", label="opt", hip="libamdhip64.so.7")
    (lib / "libamdhip64.so").symlink_to("libamdhip64.so.99")
    assert machine.run(CHOICE)["paths"]["hip"] == str(lib / "libamdhip64.so.7")


def test_too_old_a_hip_is_refused(machine):
    # Debian 12 installs ROCm 5.2's libamdhip64.so.5, and has no hipBLASLt; a folder of both is the harder case.
    machine.add_gpu()
    tree(machine.folder / "opt/rocm/lib", label="debian", version=HIP_5, hip="libamdhip64.so.5")
    found = machine.run(CHOICE)
    assert found["name"] == "host"
    assert "HIP 5.2.21152" in found["reason"]
    assert "6.0" in found["reason"]


def test_after_too_old_a_hip_the_next_tree_is_tried(machine):
    machine.add_gpu()
    old = tree(machine.folder / "old/lib", label="old", version=HIP_5)
    tree(machine.folder / "opt/rocm/lib", label="opt")
    machine.environment["ROCM_PATH"] = str(old.parent)
    found = machine.run(CHOICE)
    assert (found["name"], found["devices"]) == ("amd", ["opt"] * 2)
    assert "HIP 5.2" in found["reason"]


def test_hip_without_hipblaslt_is_refused_and_closed(machine):
    machine.add_gpu()
    tree(machine.folder / "half/lib", label="half", hipblaslt=None)
    tree(machine.folder / "opt/rocm/lib", label="opt")
    machine.environment["ROCM_PATH"] = str(machine.folder / "half")
    found = machine.run(CHOICE + "\nresult['mapped'] = mapped('amdhip64')")
    assert found["devices"] == ["opt"] * 2
    assert "no libhipblaslt.so" in found["reason"]
    assert found["mapped"] == [str(machine.folder / "opt/rocm/lib/libamdhip64.so")]


def test_a_file_that_is_no_hip_runtime_is_refused(machine):
    machine.add_gpu()
    tree(machine.folder / "opt/rocm/lib", label="opt", without=("hipRuntimeGetVersion",))
    found = machine.run(CHOICE)
    assert found["name"] == "host"
    assert "is not a HIP runtime" in found["reason"]


def test_rocm_path_comes_before_rocm_home_and_the_default(machine):
    machine.add_gpu()
    for name in ("path", "home", "opt/rocm"):
        tree(machine.folder / name / "lib", label=name.split("/", maxsplit=1)[0])
    machine.environment["ROCM_HOME"] = str(machine.folder / "home")
    assert set(machine.run(CHOICE)["opened"]) == {"home"}
    machine.environment["ROCM_PATH"] = str(machine.folder / "path")
    assert set(machine.run(CHOICE)["opened"]) == {"path"}


def test_the_systems_loader_is_asked_last(machine):
    machine.add_gpu()
    machine.environment["LD_LIBRARY_PATH"] = str(
        tree(machine.folder / "system", label="system", hip="libamdhip64.so.7", hipblaslt="libhipblaslt.so.1")
    )
    found = machine.run(CHOICE, system_loader=True)
    assert found["devices"] == ["system"] * 2
    tree(machine.folder / "opt/rocm/lib", label="opt")
    assert machine.run(CHOICE, system_loader=True)["devices"] == ["opt"] * 2


def test_the_systems_loader_must_give_one_tree(machine):
    machine.add_gpu()
    first = tree(machine.folder / "first", label="first", hipblaslt=None)
    second = tree(machine.folder / "second", label="second")
    (second / "libamdhip64.so").unlink()
    machine.environment["LD_LIBRARY_PATH"] = f"{first}:{second}"
    found = machine.run(CHOICE, system_loader=True)
    assert found["name"] == "host"
    assert "from different folders" in found["reason"]


def test_torch_of_rocm_comes_first_though_it_is_not_imported(machine):
    machine.add_gpu()
    torch = package(machine.site, "torch", version="__version__ = '2.9'\nhip: str = '7.1.2'\ncuda = None\n")
    lib = tree(torch / "lib", label="torch")
    machine.environment["ROCM_PATH"] = str(tree(machine.folder / "mine/lib", label="mine").parent)
    found = machine.run(CHOICE)
    assert found["paths"]["hip"] == str(lib / "libamdhip64.so")
    assert found["origin"] == "torch's own ROCm (HIP 7.1.2)"
    assert set(found["opened"]) == {"torch"}


def test_an_imported_torch_has_chosen_the_runtime(machine):
    machine.add_gpu()
    # This torch brings no libraries: it was built against a system's ROCm, whose runtime it opens when imported.
    system = tree(machine.folder / "system/lib", label="system")
    package(
        machine.site,
        "torch",
        __init__=f"import ctypes\nctypes.CDLL({str(system / 'libamdhip64.so')!r})\n",
        version="hip = '7.1.2'\n",
    )
    machine.environment["ROCM_PATH"] = str(tree(machine.folder / "mine/lib", label="mine").parent)
    found = machine.run(CHOICE + "\nresult['mapped'] = mapped('amdhip64')", early="import torch")
    assert found["mapped"] == [str(system / "libamdhip64.so")]
    assert found["devices"] == ["system"] * 2


def test_torch_of_the_sdk_packages(machine):
    machine.add_gpu()
    package(machine.site, "torch", version="hip = '7.15.0'\n")
    core = tree(package(machine.site, "_rocm_sdk_core") / "lib", label="sdk", hip="libamdhip64.so.7", hipblaslt=None)
    maths = tree(
        package(machine.site, "_rocm_sdk_libraries_gfx94X_dcgpu") / "lib", label="sdk", hipblaslt="libhipblaslt.so.1"
    )
    (maths / "libamdhip64.so").unlink()
    found = machine.run(CHOICE)
    assert found["paths"] == {"hip": str(core / "libamdhip64.so.7"), "hipblaslt": str(maths / "libhipblaslt.so.1")}
    assert "torch" in found["origin"]


def test_the_family_of_the_sdk_packages(machine):
    machine.add_gpu()
    tree(package(machine.site, "_rocm_sdk_core") / "lib", label="sdk", hipblaslt=None)
    for family in ("gfx110X_all", "gfx94X_dcgpu"):
        lib = tree(package(machine.site, f"_rocm_sdk_libraries_{family}") / "lib", label=family)
        (lib / "libamdhip64.so").unlink()
    assert "gfx110X_all" in machine.run(CHOICE)["paths"]["hipblaslt"]
    machine.environment["ROCM_SDK_TARGET_FAMILY"] = "gfx94X-dcgpu"
    assert "gfx94X_dcgpu" in machine.run(CHOICE)["paths"]["hipblaslt"]


def test_the_sdk_packages_come_before_rocm_path(machine):
    machine.add_gpu()
    tree(package(machine.site, "_rocm_sdk_core") / "lib", label="sdk")
    machine.environment["ROCM_PATH"] = str(tree(machine.folder / "mine/lib", label="mine").parent)
    found = machine.run(CHOICE)
    assert found["origin"] == "the rocm-sdk packages"
    assert set(found["opened"]) == {"sdk"}


def test_a_torch_for_another_device_does_not_count(machine):
    machine.add_gpu()
    torch = package(machine.site, "torch", version="hip = None\ncuda = '12.8'\n")
    tree(torch / "lib", label="torch")
    tree(machine.folder / "opt/rocm/lib", label="opt")
    assert set(machine.run(CHOICE)["opened"]) == {"opt"}


def test_nvidias_tools_change_nothing(machine):
    machine.add_gpu()
    tree(machine.folder / "opt/rocm/lib", label="opt")
    nvcc = machine.folder / "bin/nvcc"
    nvcc.parent.mkdir()
    nvcc.write_text("#!/bin/sh\nexit 1\n")
    nvcc.chmod(0o755)
    machine.environment |= {"HIP_PLATFORM": "nvidia", "CUDA_PATH": str(machine.folder), "PATH": str(nvcc.parent)}
    assert machine.run(CHOICE)["name"] == "amd"


def test_our_own_folder_is_no_rocm_though_rocm_path_names_it(machine):
    # A parent process that runs on the host platform may have set ROCM_PATH for hip-python.
    machine.add_gpu()
    machine.environment["ROCPY_PLATFORM"] = "host"
    own = machine.run(CHOICE)["paths"]["hip"]
    machine.environment |= {"ROCPY_PLATFORM": "auto", "ROCM_PATH": str(fake_rocm.Path(own).parent.parent)}
    found = machine.run(CHOICE)
    assert (found["name"], found["paths"]["hip"]) == ("host", own)


def test_a_library_bound_to_another_runtime_is_refused(machine):
    machine.add_gpu()
    stranger = tree(machine.folder / "stranger", label="stranger")
    tree(machine.folder / "opt/rocm/lib", label="opt", link=True)
    # The stranger's soname is the one that hipBLASLt needs, so the dynamic linker gives it the stranger.
    early = f"import ctypes\nctypes.CDLL({str(stranger / 'libamdhip64.so')!r})"
    found = machine.run(CHOICE, early=early)
    assert found["name"] == "host"
    assert "bound to another HIP runtime" in found["reason"]
    assert str(stranger / "libamdhip64.so") in found["reason"]
    assert machine.run(CHOICE)["name"] == "amd"


@pytest.mark.parametrize("value", ["AMD", "cuda", " host"])
def test_a_platform_that_is_none_is_refused(machine, value):
    machine.environment["ROCPY_PLATFORM"] = value
    error = machine.run(FAILURE)["error"]
    assert error["type"] == "InvalidProblemError"
    assert "ValueError" in error["bases"]
    assert "ROCPY_PLATFORM" in error["text"]
    assert "auto, amd or host" in error["text"]


def test_available_opens_nothing(machine):
    machine.add_gpu()
    tree(machine.folder / "opt/rocm/lib", label="opt")
    found = machine.run("from rocpy import platform\nresult['available'] = platform.available()")
    assert found["available"] == ["amd", "host"]
    assert found["opened"] == []
    machine.node.unlink()
    assert machine.run("from rocpy import platform\nresult['available'] = platform.available()")["available"] == [
        "host"
    ]


def test_the_packages_own_library_comes_before_those_of_the_environment():
    with Path(_core.__file__).open("rb") as file:
        tags = {tag.entry.d_tag for tag in ELFFile(file).get_section_by_name(".dynamic").iter_tags()}
    assert "DT_RPATH" in tags  # a DT_RUNPATH is searched after LD_LIBRARY_PATH
    assert "DT_RUNPATH" not in tags
