# SPDX-License-Identifier: MIT
"""Each check of the doctor on a machine made of files: it reports what is wrong, with a fix, and nothing else."""

import dataclasses
import os

import pytest

from rocpy.cli import _checks_platform, _checks_rocm, _checks_system  # noqa: F401
from rocpy.cli._checks import CHECKS, examine
from rocpy.cli._machine import Machine
from rocpy.runtime import _disk_cache


class Builder:
    """Makes a machine below a folder, piece by piece."""

    def __init__(self, root):
        self.root = root
        self.options = {"environ": {}, "versions": {}}

    def write(self, name, text=""):
        path = self.root / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def gpu(self):
        self.write("/sys/bus/pci/devices/0000:03:00.0/vendor", "0x1002\n")
        self.write("/sys/bus/pci/devices/0000:03:00.0/class", "0x038000\n")

    def driver(self, target=90402):
        self.write("/dev/kfd")
        self.write("/dev/dri/renderD128")
        self.write("/sys/class/kfd/kfd/topology/nodes/0/properties", "cpu_cores_count 8\ngfx_target_version 0\n")
        self.write("/sys/class/kfd/kfd/topology/nodes/1/properties", f"simd_count 304\ngfx_target_version {target}\n")

    def rocm(self, folder="/opt/rocm", major=7, kernels=("TensileLibrary_gfx942.co",), unversioned=True):
        for stem, number in (("amdhip64", major), ("hipblaslt", 1)):
            real = self.write(f"{folder}/lib/lib{stem}.so.{number}")
            if unversioned:
                real.with_name(f"lib{stem}.so").symlink_to(real.name)
        for kernel in kernels:
            self.write(f"{folder}/lib/hipblaslt/library/{kernel}")

    def torch(self, hip):
        self.write("/site/torch/version.py", f"__version__ = '2.13.0'\nhip: Optional[str] = {hip!r}\n")
        self.options["site_packages"] = (self.root / "site",)
        self.options["versions"]["torch"] = "2.13.0"

    def machine(self):
        return Machine(root=self.root, cache=self.root / "cache", **self.options)

    def problems(self):
        return [row for row in examine(self.machine(), 1) if row["status"] == "problem"]


@pytest.fixture
def make(tmp_path):
    return Builder(tmp_path)


def only(rows, name):
    assert [row["check"] for row in rows] == [name], rows
    assert rows[0]["fix"], "a problem without a fix"
    return rows[0]["seen"]


def test_no_gpu_is_no_problem(make):
    rows = examine(make.machine(), 1)
    assert not [row for row in rows if row["status"] == "problem"]
    assert any("no AMD GPU" in row["seen"] for row in rows)


def test_healthy_machine(make):
    make.gpu()
    make.driver()
    make.rocm()
    make.torch("7.0.1")
    make.write("/sys/module/amdgpu/version", "6.14.14\n")
    assert make.problems() == []
    assert make.machine().architectures() == ["gfx942"]


@pytest.mark.parametrize(
    ("number", "name"), [(90010, "gfx90a"), (110000, "gfx1100"), (120001, "gfx1201"), (90500, "gfx950")]
)
def test_architecture_names(make, number, name):
    make.driver(number)
    assert make.machine().architectures() == [name]


def test_gpu_without_driver(make):
    make.gpu()
    make.rocm()
    assert "no /dev/kfd" in only(make.problems(), "kernel driver")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read and write every file")
def test_no_permission_as_user(make):
    make.gpu()
    make.driver()
    make.rocm()
    (make.root / "dev/kfd").chmod(0)
    assert "may not" in only(make.problems(), "kernel driver")


def test_no_permission(make, monkeypatch):
    make.gpu()
    make.driver()
    make.rocm()
    access = os.access
    monkeypatch.setattr(
        os, "access", lambda path, mode: not str(path).endswith(("kfd", "renderD128")) and access(path, mode)
    )
    rows = make.problems()
    assert [row["check"] for row in rows] == ["kernel driver", "render nodes"]
    assert all("render,video" in row["fix"] for row in rows)


def test_kfd_without_render_nodes(make):
    make.gpu()
    make.driver()
    make.rocm()
    (make.root / "dev/dri/renderD128").unlink()
    assert "renderD" in only(make.problems(), "render nodes")


def test_old_kernel_module(make):
    make.write("/sys/module/amdgpu/version", "5.18.13")
    assert "older" in only(make.problems(), "kernel module")


def test_wsl_without_its_device(make):
    make.write("/proc/version", "Linux version 5.15.90.1-microsoft-standard-WSL2")
    assert "/dev/dxg" in only(make.problems(), "windows subsystem")
    make.write("/dev/dxg")
    assert make.problems() == []


def test_gpu_without_rocm(make):
    make.gpu()
    make.driver()
    assert "no ROCm" in only(make.problems(), "rocm installs")


@pytest.mark.parametrize("there", [False, True])
def test_rocm_path_leads_nowhere(make, there):
    make.options["environ"]["ROCM_PATH"] = "/opt/gone"
    if there:
        make.write("/opt/gone/README")
    assert "/opt/gone" in only(make.problems(), "rocm path")


def test_rocm_path_of_the_host_platform_is_no_problem(make):
    make.options["environ"]["ROCM_PATH"] = "/site/rocpy/_host"
    for name in ("librocpy_host.so", "libamdhip64.so", "libhipblaslt.so"):
        make.write(f"/site/rocpy/_host/lib/{name}")
    assert make.problems() == []
    assert any("host platform" in row["seen"] for row in examine(make.machine(), 1) if row["check"] == "rocm path")


def test_old_hip(make):
    make.rocm(major=5)
    assert "HIP 5" in only(make.problems(), "rocm installs")


def test_old_hip_in_rocm_home(make):
    make.rocm("/srv/rocm", major=5)
    assert make.problems() == []
    make.options["environ"]["ROCM_HOME"] = "/srv/rocm"
    assert "/srv/rocm contains HIP 5" in only(make.problems(), "rocm installs")


def test_versioned_names_only_is_a_note(make):
    make.rocm(unversioned=False)
    assert make.problems() == []
    notes = [row for row in examine(make.machine(), 1) if row["status"] == "note" and row["check"] == "rocm installs"]
    assert len(notes) == 2
    assert "hip-python" in notes[0]["seen"]


def test_hipblaslt_without_kernels(make):
    make.rocm(kernels=())
    assert "no kernel folder" in only(make.problems(), "hipblaslt kernels")


def test_hipblaslt_without_kernels_for_this_gpu(make):
    make.gpu()
    make.driver(110000)
    make.rocm()
    assert "gfx1100" in only(make.problems(), "hipblaslt kernels")


def test_missing_hipblaslt(make):
    make.rocm()
    for path in (make.root / "opt/rocm/lib").glob("libhipblaslt*"):
        path.unlink()
    assert "libhipblaslt" in only(make.problems(), "rocm installs")


@pytest.mark.parametrize("name", ["HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"])
@pytest.mark.parametrize(("value", "hides_all"), [("", True), ("-1", True), ("0,1", False)])
def test_hidden_devices(make, name, value, hides_all):
    make.options["environ"][name] = value
    assert bool(make.problems()) == hides_all
    assert any(name in row["seen"] for row in examine(make.machine(), 1))


def test_override_of_the_architecture(make):
    make.options["environ"]["HSA_OVERRIDE_GFX_VERSION"] = "10.3.0"
    assert "treated as another model" in only(make.problems(), "steering variables")


def test_torch_without_rocm_beside_a_gpu(make):
    make.gpu()
    make.driver()
    make.rocm()
    make.torch(None)
    assert "without ROCm" in only(make.problems(), "torch build")


@pytest.mark.parametrize("cache", ["file", "file/below", "/proc/nope", "/proc/nope/below"])
def test_cache_that_cannot_be_written(make, tmp_path, cache):
    (tmp_path / "file").write_text("")
    rows = examine(dataclasses.replace(make.machine(), cache=tmp_path / cache), 1)
    assert "cannot be written" in only([row for row in rows if row["status"] == "problem"], "cache folder")


def test_a_user_without_a_home_folder(make):
    rows = examine(dataclasses.replace(make.machine(), cache=_disk_cache.NOWHERE), 1)
    assert "no home folder" in only([row for row in rows if row["status"] == "problem"], "cache folder")


def test_a_cache_that_does_not_exist_yet_can_be_written(make, tmp_path):
    assert not make.problems()
    assert not list(tmp_path.iterdir())


def test_two_runtimes_in_one_process(make):
    line = "7f00-7f01 r-xp 00000000 08:01 {}                      /opt/{}/lib/libamdhip64.so.{}\n"
    make.write("/proc/self/maps", line.format(1, "rocm", 7) + line.format(1, "rocm", 7) + line.format(2, "an other", 6))
    check = next(check for check in CHECKS if check.name == "one hip runtime")
    (finding,) = check.run(make.machine())
    assert finding.status == "problem"
    assert "/opt/an other/lib/libamdhip64.so.6" in finding.seen


def test_every_problem_of_the_catalogue_has_a_test():
    # What a check can find is worth a test here: keep the two in step.
    tested = {
        "variables",
        "amd gpu",
        "kernel driver",
        "render nodes",
        "kernel module",
        "windows subsystem",
        "cache folder",
        "rocm path",
        "rocm installs",
        "hipblaslt kernels",
        "visible devices",
        "steering variables",
        "torch build",
        "hip python",
        "platform",
        "one hip runtime",
        "product",
    }
    assert {check.name for check in CHECKS} == tested


def test_variables_that_rocpy_does_not_know_are_named(make):
    make.options["environ"] = {
        "ROCPY_AUTOTUNES": "1",
        "ROCPY_X": "",
        "ROCPY_DEBUG": "1",
        "ROCPY_TUNING_DB": "/any/:where",
    }
    found = make.problems()
    assert [row["check"] for row in found] == ["variables"] * 2
    assert "ROCPY_AUTOTUNES is set, but is not a rocpy variable" in found[0]["seen"]
    assert "ROCPY_AUTOTUNE?" in found[0]["fix"]
    assert "ROCPY_X" in found[1]["seen"]


def test_values_that_a_variable_cannot_have_are_told(make):
    make.options["environ"] = {"ROCPY_HOST_DEVICES": "many", "ROCPY_PLATFORM": "cuda", "ROCPY_PLAN_CACHE": ""}
    found = make.problems()
    assert ["HOST_DEVICES: got 'many'" in found[0]["seen"], "ROCPY_PLATFORM: got 'cuda'" in found[1]["seen"]] == [
        True,
        True,
    ]
    assert len(found) == 2
    make.options["environ"] = {"ROCPY_TUNING_DB": "/any:~nobody-of-this-name/db"}
    assert ["~nobody-of-this-name" in row["seen"] for row in make.problems()] == [True]


@pytest.mark.parametrize("looped", ["a library", "lib", "the tree", "the kernels"])
def test_links_that_form_a_loop_are_reported_and_end_no_check(make, looped):
    make.gpu()
    make.driver()
    make.rocm(folder="/opt/other")
    tree = make.root / "opt/other"
    path = {"a library": tree / "lib/libamdhip64.so", "lib": tree / "lib", "the tree": tree, "the kernels": None}[
        looped
    ]
    if path is None:
        path = make.root / "kernels"
        make.options["environ"]["HIPBLASLT_TENSILE_LIBPATH"] = "/kernels"
    elif path.is_symlink():
        path.unlink()
    else:
        path.rename(path.with_name("moved"))
    path.symlink_to(path.name)
    for library in ("amdhip64", "hipblaslt"):  # of a tree without other libraries, too
        link = make.root / f"opt/rocm/lib/lib{library}.so"
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(link.name)
    make.options["environ"]["ROCM_PATH"] = "/opt/other"
    assert make.problems()
