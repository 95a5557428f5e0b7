# SPDX-License-Identifier: MIT
"""What the doctor looks at: files below a root, environment and packages. A test gives it a made-up machine."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import metadata, util
from pathlib import Path

from rocpy._search import files_in
from rocpy.platform import rocpy_variables

AMD_VENDOR = "0x1002"
LIBRARY_FOLDERS = ("lib", "lib64")


def resolved(path: Path) -> Path:
    """Return a path without its symbolic links; those that form a loop stay, where ``Path.resolve`` raises."""
    return Path(os.path.realpath(path))


@dataclass(frozen=True)
class RocmTree:
    """A folder that looks like a ROCm install: where it is, who named it, and its libraries."""

    path: Path
    origin: str

    def libraries(self, stem: str) -> list[Path]:
        """Return the files ``lib<stem>.so*``, unversioned first."""
        paths: list[Path] = []
        for folder in LIBRARY_FOLDERS:
            paths += sorted((self.path / folder).glob(f"lib{stem}.so*"), key=lambda path: (len(path.name), path.name))
        return paths

    @property
    def is_host(self) -> bool:
        """Whether it is rocpy's own platform for the CPU, which a process that uses hip-python names in ROCM_PATH."""
        return bool(self.libraries("rocpy_host"))

    def hip_major(self) -> int | None:
        """Return HIP's major version as the file names tell it, without opening the library."""
        for path in self.libraries("amdhip64"):
            for name in (path.name, resolved(path).name):
                if match := re.search(r"\.so\.(\d+)", name):
                    return int(match[1])
        return None


@dataclass(frozen=True)
class Machine:
    """One machine as the checks see it; `here()` is the real one."""

    root: Path = Path("/")
    environ: Mapping[str, str] = field(default_factory=dict)
    site_packages: tuple[Path, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    process: str = "self"
    cache: Path | None = None

    @classmethod
    def here(cls, process: str = "self") -> Machine:
        """Return the machine that this process runs on; `process` is the one whose mapped libraries are looked at."""
        # Each name in full: tests/test_layout.py checks which variables are read, and where.
        environ = {
            "ROCM_PATH": os.environ.get("ROCM_PATH"),
            "ROCM_HOME": os.environ.get("ROCM_HOME"),
            "HIP_PLATFORM": os.environ.get("HIP_PLATFORM"),
            "HIP_VISIBLE_DEVICES": os.environ.get("HIP_VISIBLE_DEVICES"),
            "ROCR_VISIBLE_DEVICES": os.environ.get("ROCR_VISIBLE_DEVICES"),
            "CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES"),
            "GPU_DEVICE_ORDINAL": os.environ.get("GPU_DEVICE_ORDINAL"),
            "HSA_OVERRIDE_GFX_VERSION": os.environ.get("HSA_OVERRIDE_GFX_VERSION"),
            "HIPBLASLT_TENSILE_LIBPATH": os.environ.get("HIPBLASLT_TENSILE_LIBPATH"),
            "HIPBLASLT_TUNING_OVERRIDE_FILE": os.environ.get("HIPBLASLT_TUNING_OVERRIDE_FILE"),
            "HIPBLASLT_OVERRIDE_COMPUTE_TYPE_XF32": os.environ.get("HIPBLASLT_OVERRIDE_COMPUTE_TYPE_XF32"),
            "AMD_SERIALIZE_KERNEL": os.environ.get("AMD_SERIALIZE_KERNEL"),
            "RANK": os.environ.get("RANK"),
            "WORLD_SIZE": os.environ.get("WORLD_SIZE"),
            "LOCAL_WORLD_SIZE": os.environ.get("LOCAL_WORLD_SIZE"),
            "MASTER_ADDR": os.environ.get("MASTER_ADDR"),
            "MASTER_PORT": os.environ.get("MASTER_PORT"),
            "SLURM_JOB_ID": os.environ.get("SLURM_JOB_ID"),
            "SLURM_PROCID": os.environ.get("SLURM_PROCID"),
            "SLURM_NTASKS": os.environ.get("SLURM_NTASKS"),
            "SLURM_NNODES": os.environ.get("SLURM_NNODES"),
            "SLURM_LOCALID": os.environ.get("SLURM_LOCALID"),
            "NCCL_DEBUG": os.environ.get("NCCL_DEBUG"),
            "NCCL_SOCKET_IFNAME": os.environ.get("NCCL_SOCKET_IFNAME"),
            "NCCL_P2P_DISABLE": os.environ.get("NCCL_P2P_DISABLE"),
            "NCCL_SHM_DISABLE": os.environ.get("NCCL_SHM_DISABLE"),
            "NCCL_CUMEM_ENABLE": os.environ.get("NCCL_CUMEM_ENABLE"),
            "NCCL_RAS_ENABLE": os.environ.get("NCCL_RAS_ENABLE"),
            "NCCL_IB_DISABLE": os.environ.get("NCCL_IB_DISABLE"),
            "RCCL_TIMEOUT": os.environ.get("RCCL_TIMEOUT"),
            "NCCL_TIMEOUT": os.environ.get("NCCL_TIMEOUT"),
            "HSA_NO_SCRATCH_RECLAIM": os.environ.get("HSA_NO_SCRATCH_RECLAIM"),
            "HSA_FORCE_FINE_GRAIN_PCIE": os.environ.get("HSA_FORCE_FINE_GRAIN_PCIE"),
        }
        versions = {}
        for name in ("torch", "hip-python", "rocm-bindings-hip", "numpy"):
            try:
                versions[name] = metadata.version(name)
            except metadata.PackageNotFoundError:
                continue
        torch = util.find_spec("torch")
        site_packages = (
            tuple(Path(folder).parent for folder in (torch.submodule_search_locations or ())) if torch else ()
        )
        from rocpy.runtime import _disk_cache

        return cls(
            environ={name: value for name, value in environ.items() if value is not None} | rocpy_variables(),
            site_packages=site_packages,
            versions=versions,
            process=process,
            cache=_disk_cache.user_folder(),
        )

    def path(self, name: str) -> Path:
        """Return the place of an absolute path on this machine."""
        return self.root / name.lstrip("/")

    def text(self, name: str) -> str:
        """Return the file's text, empty if it cannot be read."""
        try:
            return self.path(name).read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            return ""

    def amd_gpus(self) -> list[str]:
        """Return the PCI addresses of AMD display and compute devices: the kernel's list, which needs no driver."""
        names = []
        for device in sorted(self.path("/sys/bus/pci/devices").glob("*")):
            name = f"/sys/bus/pci/devices/{device.name}"
            # Class 0x03 is display, 0x12 a processing accelerator.
            if self.text(f"{name}/vendor") == AMD_VENDOR and self.text(f"{name}/class")[:4] in {"0x03", "0x12"}:
                names.append(device.name)
        return names

    def architectures(self) -> list[str]:
        """Return the gfx names of the GPUs that the driver presents, such as gfx942."""
        names = []
        for node in sorted(self.path("/sys/class/kfd/kfd/topology/nodes").glob("*")):
            text = self.text(f"/sys/class/kfd/kfd/topology/nodes/{node.name}/properties")
            match = re.search(r"^gfx_target_version (\d+)", text, re.MULTILINE)
            if match and int(match[1]):
                number = int(match[1])
                # Decimal 90402 stands for 9.4.2; stepping and minor are hexadecimal digits in the name.
                names.append(f"gfx{number // 10000}{number // 100 % 100:x}{number % 100:x}")
        return names

    def is_wsl(self) -> bool:
        """Return whether the kernel is that of Windows Subsystem for Linux."""
        return "microsoft" in self.text("/proc/version").lower()

    def torch_hip(self) -> str | None:
        """Return the HIP version that torch was built for, ``None`` without HIP; torch is not imported."""
        for folder in self.site_packages:
            try:
                text = (folder / "torch" / "version.py").read_text(encoding="utf-8")
            except OSError:
                continue
            if match := re.search(r"^hip\b[^=]*=\s*['\"]([^'\"]+)['\"]", text, re.MULTILINE):
                return match[1]
        return None

    def rocm_trees(self) -> Iterator[RocmTree]:
        """Yield the ROCm installs with one folder for all libraries, each once; never rocpy's own.

        They come in the order in which rocpy tries them; it does not try versioned folders below /opt, which are last.
        """
        candidates: list[tuple[Path, str]] = []
        candidates += [(folder / "torch", "torch") for folder in self.site_packages]
        for variable in ("ROCM_PATH", "ROCM_HOME"):
            if named := self.environ.get(variable):
                candidates.append((self.path(named), variable))
        candidates.append((self.path("/opt/rocm"), "/opt/rocm"))
        candidates += [(path, str(path)) for path in sorted(self.path("/opt").glob("rocm-*"), reverse=True)]
        seen = set()
        for path, origin in candidates:
            tree = RocmTree(path, origin)
            if resolved(path) not in seen and tree.libraries("amdhip64") and not tree.is_host:
                seen.add(resolved(path))
                yield tree

    def mapped(self, stem: str) -> list[str]:
        """Return the files of one library that the looked-at process has mapped."""
        return list(files_in(self.text(f"/proc/{self.process}/maps"), stem))
