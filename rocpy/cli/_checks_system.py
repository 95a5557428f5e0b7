# SPDX-License-Identifier: MIT
"""Checks of the system: driver, device files and who may use them, kernel module, WSL, room for the database."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator

from rocpy import platform
from rocpy._messages.suggestions import nearest
from rocpy._variables import fault_of_variable
from rocpy.cli._checks import Finding, check
from rocpy.cli._machine import Machine
from rocpy.runtime._disk_cache import NOWHERE

# amdgpu-dkms 6.3 came with ROCm 6.0, the oldest that rocpy takes.
OLDEST_MODULE = (6, 3)
LEAST_FREE_BYTES = 64 << 20


@check(level=1)
def variables(machine: Machine) -> Iterator[Finding]:
    """Find ROCPY_* variables that rocpy does not know, and values that a variable cannot have."""
    ours = {name: value for name, value in machine.environ.items() if name.startswith("ROCPY_")}
    known = [variable.name for variable in platform.variables()]
    for name, value in sorted(ours.items()):
        if name not in known:
            near = nearest(name, known)
            fix = f"did you mean {near}?" if near else "`rocpy info` lists the variables that it knows"
            yield Finding("problem", f"{name} is set, but is not a rocpy variable", fix)
        elif fault := fault_of_variable(name, value):
            yield Finding("problem", fault, f"set {name} to one of these, or unset it: no platform is chosen with it")


@check(level=1)
def amd_gpu(machine: Machine) -> Iterator[Finding]:
    """Say which GPUs the machine has, by the PCI bus and by the driver."""
    on_bus, by_driver = machine.amd_gpus(), machine.architectures()
    if by_driver:
        yield Finding("ok", f"the driver presents {', '.join(by_driver)}")
    elif on_bus:
        yield Finding(
            "note", f"AMD GPU on the PCI bus at {', '.join(on_bus)}, but the driver presents none (see the next checks)"
        )
    elif machine.is_wsl():
        yield Finding("note", "Windows Subsystem for Linux lists no GPU on its PCI bus; it is reached through /dev/dxg")
    else:
        yield Finding("note", "no AMD GPU on the PCI bus; rocpy uses its host platform (the CPU)")


@check(level=1)
def kernel_driver(machine: Machine) -> Iterator[Finding]:
    """Find a missing or unreadable /dev/kfd, the driver's door for compute."""
    if machine.is_wsl():
        return
    kfd = machine.path("/dev/kfd")
    if not kfd.exists():
        if machine.amd_gpus():
            yield Finding(
                "problem",
                "there is an AMD GPU but no /dev/kfd",
                "load the driver (`sudo modprobe amdgpu`, or install amdgpu-dkms); "
                "in a container add `--device /dev/kfd --device /dev/dri`",
            )
        return
    if os.access(kfd, os.R_OK | os.W_OK):
        yield Finding("ok", "/dev/kfd can be read and written")
    else:
        yield Finding(
            "problem",
            "/dev/kfd exists, but this user may not read and write it",
            "`sudo usermod -aG render,video $USER` and log in again; "
            "in a container add `--group-add render --group-add video`",
        )


@check(level=1)
def render_nodes(machine: Machine) -> Iterator[Finding]:
    """Find missing or unreadable /dev/dri/renderD*, through which memory is mapped."""
    if not machine.path("/dev/kfd").exists():
        return
    nodes = sorted(machine.path("/dev/dri").glob("renderD*"))
    closed = [node.name for node in nodes if not os.access(node, os.R_OK | os.W_OK)]
    if not nodes:
        yield Finding("problem", "/dev/kfd exists, but no /dev/dri/renderD*", "in a container add `--device /dev/dri`")
    elif closed:
        yield Finding(
            "problem",
            f"this user may not read and write {', '.join(closed)}",
            "`sudo usermod -aG render,video $USER` and log in again",
        )
    else:
        yield Finding("ok", f"{len(nodes)} render node{'s' if len(nodes) > 1 else ''} can be read and written")


@check(level=1)
def kernel_module(machine: Machine) -> Iterator[Finding]:
    """Find an installed driver older than the ROCm that rocpy needs."""
    text = machine.text("/sys/module/amdgpu/version")
    numbers = tuple(int(number) for number in re.findall(r"\d+", text)[:2])
    if not numbers:
        return
    if numbers < OLDEST_MODULE:
        yield Finding(
            "problem",
            f"the amdgpu module is version {text}, older than ROCm 6.0's",
            "install the amdgpu-dkms of your ROCm, then restart",
        )
    else:
        yield Finding("ok", f"amdgpu module {text}")


@check(level=1)
def windows_subsystem(machine: Machine) -> Iterator[Finding]:
    """Find what WSL lacks for compute."""
    if not machine.is_wsl():
        return
    if machine.path("/dev/dxg").exists():
        yield Finding("ok", "Windows Subsystem for Linux with /dev/dxg")
    else:
        yield Finding(
            "problem",
            "Windows Subsystem for Linux without /dev/dxg",
            "use WSL2 (`wsl --set-version <distribution> 2`) and AMD's Windows driver for WSL, then `wsl --shutdown`",
        )


@check(level=1)
def cache_folder(machine: Machine) -> Iterator[Finding]:
    """Find a cache folder in which the tuning database cannot grow."""
    if machine.cache is None:
        return
    if machine.cache == NOWHERE:
        yield Finding(
            "problem",
            "this user has no home folder: no tuning record and no compiled kernel is stored",
            "set XDG_CACHE_HOME to a writable folder, or HOME",
        )
        return
    existing = machine.cache
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    try:
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        yield Finding(
            "problem", f"{existing} cannot be written ({error.strerror})", "set XDG_CACHE_HOME to a writable folder"
        )
        return
    free = shutil.disk_usage(existing).free
    if free < LEAST_FREE_BYTES:
        yield Finding(
            "problem",
            f"{free >> 20} MiB are free for {machine.cache}",
            "free some space, or set XDG_CACHE_HOME to a folder on another disk",
        )
    else:
        yield Finding("ok", f"{machine.cache} can be written")
