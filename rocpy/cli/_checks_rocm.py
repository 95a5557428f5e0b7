# SPDX-License-Identifier: MIT
"""Checks of the ROCm installs and of the variables that steer them; none opens a library."""

from __future__ import annotations

from collections.abc import Iterator

from rocpy.cli._checks import Finding, check
from rocpy.cli._machine import Machine, RocmTree, resolved

OLDEST_HIP = 6
# hipBLASLt finds its kernels beside the library; the folders are those of its releases, newest first.
KERNEL_FOLDERS = ("hipblaslt/library", "../Tensile/library", "library")


@check(level=1)
def rocm_path(machine: Machine) -> Iterator[Finding]:
    """Find a ROCM_PATH that leads nowhere."""
    named = machine.environ.get("ROCM_PATH")
    if named is None:
        return
    folder = machine.path(named)
    if not folder.is_dir():
        yield Finding(
            "problem",
            f"ROCM_PATH is {named!r}, which is not a directory",
            "unset it, or name the folder that holds lib/libamdhip64.so",
        )
    elif RocmTree(folder, "ROCM_PATH").is_host:
        yield Finding(
            "note", f"ROCM_PATH is {named}, rocpy's host platform: it was inherited from a parent process that uses it"
        )
    elif not any(tree.origin == "ROCM_PATH" for tree in machine.rocm_trees()):
        yield Finding(
            "problem",
            f"ROCM_PATH is {named!r}, but it has no lib/libamdhip64.so*",
            "unset it, or name ROCm's own folder",
        )
    else:
        yield Finding("ok", f"ROCM_PATH is {named}")


@check(level=1)
def rocm_installs(machine: Machine) -> Iterator[Finding]:
    """List the ROCm installs, find too old ones and those without development links."""
    trees = list(machine.rocm_trees())
    if not trees and machine.amd_gpus():
        yield Finding(
            "problem",
            "there is an AMD GPU but no ROCm",
            "install ROCm 6.0 or newer (packages hip-runtime-amd and hipblaslt)",
        )
    for tree in trees:
        major = tree.hip_major()
        if major is not None and major < OLDEST_HIP:
            yield Finding(
                "problem",
                f"{tree.path} contains HIP {major}; rocpy needs 6.0 or newer",
                "install a newer ROCm, and set ROCM_PATH to it",
            )
            continue
        yield Finding("ok", f"{tree.path} (from {tree.origin}){f', HIP {major}' if major else ''}")
        for stem in ("amdhip64", "hipblaslt"):
            libraries = tree.libraries(stem)
            if not libraries:
                yield Finding(
                    "problem", f"{tree.path} has no lib{stem}.so*", "install the package hipblaslt of the same ROCm"
                )
            elif all(not path.name.endswith(".so") for path in libraries):
                yield Finding(
                    "note",
                    f"{tree.path} has {libraries[0].name} but no lib{stem}.so: "
                    "rocpy can load it; hip-python alone cannot",
                    f"install the -dev package of {stem} if another program needs it",
                )


@check(level=1)
def hipblaslt_kernels(machine: Machine) -> Iterator[Finding]:
    """Find a hipBLASLt without kernels: it opens, and fails at the first product."""
    if (named := machine.environ.get("HIPBLASLT_TENSILE_LIBPATH")) is not None:
        if not machine.path(named).is_dir():
            yield Finding("problem", f"HIPBLASLT_TENSILE_LIBPATH is {named!r}, which is not a directory", "unset it")
        return
    for tree in machine.rocm_trees():
        for library in tree.libraries("hipblaslt")[:1]:
            folder = resolved(library).parent
            folders = [folder / name for name in KERNEL_FOLDERS if (folder / name).is_dir()]
            if not folders:
                yield Finding(
                    "problem",
                    f"{library} has no kernel folder ({folder / KERNEL_FOLDERS[0]})",
                    "reinstall hipblaslt of this ROCm; if you moved the library, move its kernel folder too",
                )
                continue
            files = [file.name for file in folders[0].rglob("*") if file.is_file()]
            missing = [name for name in machine.architectures() if not any(name in file for file in files)]
            if missing:
                yield Finding(
                    "problem",
                    f"{folders[0]} has no kernels for {', '.join(missing)}",
                    "install a hipblaslt built for this GPU",
                )
            else:
                yield Finding("ok", f"{len(files)} kernel files in {folders[0]}")


@check(level=1)
def visible_devices(machine: Machine) -> Iterator[Finding]:
    """Find variables that hide every device."""
    for name in ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL"):
        value = machine.environ.get(name)
        if value is None:
            continue
        # HIP reads the list up to the first entry that it does not understand, -1 included.
        if not value.split(",")[0].strip() or value.strip().startswith("-"):
            yield Finding("problem", f"{name}={value!r} hides every device", f"unset {name}, or name devices: {name}=0")
        else:
            yield Finding("note", f"{name}={value!r} hides the devices it does not name")


@check(level=1)
def steering_variables(machine: Machine) -> Iterator[Finding]:
    """Point at variables that change results or speed unseen."""
    told = {
        "HSA_OVERRIDE_GFX_VERSION": "the GPU is treated as another model: kernels may be wrong or crash",
        "HIPBLASLT_OVERRIDE_COMPUTE_TYPE_XF32": "float32 products are computed in TF32",
        "HIPBLASLT_TUNING_OVERRIDE_FILE": "hipBLASLt takes its algorithms from this file, not from rocpy's choice",
        "AMD_SERIALIZE_KERNEL": "every kernel waits for the previous one: for debugging only",
    }
    for name, meaning in told.items():
        if value := machine.environ.get(name):
            status = "problem" if name == "HSA_OVERRIDE_GFX_VERSION" else "note"
            yield Finding(status, f"{name}={value!r}: {meaning}", f"unset {name}")  # type: ignore[arg-type]
    if machine.environ.get("HIP_PLATFORM", "amd") not in {"amd", "hcc"}:
        yield Finding(
            "note",
            f"HIP_PLATFORM={machine.environ['HIP_PLATFORM']!r}: AMD's compiler drivers build for another vendor",
            "unset it",
        )


@check(level=1)
def torch_build(machine: Machine) -> Iterator[Finding]:
    """Find a torch that cannot use the GPU that is there."""
    version = machine.versions.get("torch")
    if version is None:
        return
    hip = machine.torch_hip()
    if hip:
        yield Finding("ok", f"torch {version} is built for HIP {hip}; rocpy runs on the libraries that it brings")
    elif machine.amd_gpus():
        yield Finding(
            "problem",
            f"torch {version} is a build without ROCm, although there is "
            "an AMD GPU: its tensors stay in CPU memory and rocpy copies them",
            "install torch's ROCm build (the selector on torch's site names the command)",
        )
    else:
        yield Finding("ok", f"torch {version}, a build without ROCm, as the machine has no AMD GPU")


@check(level=1)
def hip_python(machine: Machine) -> Iterator[Finding]:
    """Find a hip-python of another HIP than the one installed."""
    version = machine.versions.get("rocm-bindings-hip") or machine.versions.get("hip-python")
    if version is None:
        return
    for tree in machine.rocm_trees():
        major = tree.hip_major()
        # hip-python 10 follows ROCm's number, whose HIP libraries are named .so.7.
        bound = {10: 7}.get(int(version.split(".")[0]), int(version.split(".")[0]))
        if major is not None and major != bound:
            yield Finding(
                "note",
                f"hip-python {version} is made for HIP {bound}, but {tree.path} contains HIP {major}",
                "install the hip-python of your ROCm",
            )
        return
    yield Finding("ok", f"hip-python {version}")
