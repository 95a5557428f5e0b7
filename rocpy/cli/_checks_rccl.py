# SPDX-License-Identifier: MIT
"""Checks of `rocpy rccl check`: launcher's variables, RCCL's variables, shared memory, kernel, library and platform."""

from __future__ import annotations

import functools
import os
import resource
from collections.abc import Iterator

from rocpy.cli._checks import Check, Finding, check
from rocpy.cli._machine import Machine

CHECKS: list[Check] = []
# RCCL's transport in shared memory takes some MiB for each pair of GPUs; docker gives 64 MiB if nothing is said.
SHARED_BYTES = 1 << 30
SHARED = "/dev/shm"  # noqa: S108  (looked at, not written)
UNUSED = ("RCCL_TIMEOUT", "NCCL_TIMEOUT")
SLOW = {
    "NCCL_P2P_DISABLE": "GPUs send through host memory instead of to each other",
    "NCCL_SHM_DISABLE": "GPUs of one machine that cannot reach each other send through sockets",
    "NCCL_IB_DISABLE": "machines send through TCP instead of InfiniBand or RoCE",
}

own_check = functools.partial(check, checks=CHECKS)


@own_check(level=1)
def launcher(machine: Machine) -> Iterator[Finding]:
    """Find variables of a launcher that make no sense together: the usual reason why ranks wait for each other."""
    known = machine.environ
    if "RANK" in known or "WORLD_SIZE" in known:
        missing = [name for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT") if name not in known]
        if missing:
            yield Finding(
                "problem",
                f"some of torchrun's variables are set, but not {', '.join(missing)}",
                "start with torchrun, or set all of RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT (and LOCAL_RANK)",
            )
        else:
            yield Finding("ok", f"rank {known['RANK']} of {known['WORLD_SIZE']} by torchrun's variables")
        if known.get("MASTER_ADDR") in ("localhost", "127.0.0.1") and int_of(known.get("SLURM_NNODES")) > 1:
            yield Finding(
                "problem",
                f"MASTER_ADDR={known['MASTER_ADDR']} on a job of {known['SLURM_NNODES']} machines: each rank connects "
                "only to itself",
                'export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1) in the batch script',
            )
    elif "SLURM_JOB_ID" in known:
        if "SLURM_LOCALID" not in known and int_of(known.get("SLURM_NTASKS")) > 1:
            yield Finding(
                "problem",
                f"a Slurm job of {known['SLURM_NTASKS']} tasks, but this process was not started by srun: it is the "
                "only rank",
                "start the program with srun in the batch script",
            )
        else:
            yield Finding("ok", f"rank {known.get('SLURM_PROCID', '0')} of {known.get('SLURM_NTASKS', '1')} by Slurm")
    else:
        yield Finding(
            "note",
            "no launcher's variables are set: this process is the only rank (or mpiexec's variables are hidden)",
        )


def int_of(text: str | None) -> int:
    """Return a variable's number, 0 where it has none."""
    return int(text) if text is not None and text.isdigit() else 0


@own_check(level=1)
def variables(machine: Machine) -> Iterator[Finding]:
    """Find variables of RCCL's that slow it down, blind it, or do nothing."""
    known = machine.environ
    for name in UNUSED:
        if name in known:
            yield Finding(
                "note",
                f"{name}={known[name]}: RCCL reads no such variable",
                "pass timeout_s= to rocpy.rccl, or timeout= to init_process_group",
            )
    for name, effect in SLOW.items():
        if known.get(name, "0") not in ("", "0"):
            yield Finding("note", f"{name}={known[name]}: {effect}", f"unset {name} once what it works around is fixed")
    if known.get("NCCL_RAS_ENABLE") == "0":
        yield Finding(
            "note", "NCCL_RAS_ENABLE=0: a hanging job cannot report which rank is behind", "unset NCCL_RAS_ENABLE"
        )
    if known.get("NCCL_DEBUG", "").upper() in ("INFO", "TRACE"):
        yield Finding("note", f"NCCL_DEBUG={known['NCCL_DEBUG']} logs every call, which is slow", "set NCCL_DEBUG=WARN")
    selection = known.get("NCCL_SOCKET_IFNAME", "")
    wanted = [name for name in selection.lstrip("^=").split(",") if name]
    there = [path.name for path in sorted(machine.path("/sys/class/net").glob("*"))]
    if wanted and not selection.startswith("^") and not any(name.startswith(tuple(wanted)) for name in there):
        yield Finding(
            "problem",
            f"NCCL_SOCKET_IFNAME={selection}, but the interfaces are {', '.join(there) or 'none'}",
            "name one of them, or unset NCCL_SOCKET_IFNAME",
        )


@own_check(level=1)
def shared_memory(machine: Machine) -> Iterator[Finding]:
    """Find a /dev/shm in which RCCL's buffers do not fit: ranks then end by SIGBUS. The host platform needs none."""
    folder = machine.path(SHARED)
    if not folder.exists():
        if machine.amd_gpus():
            yield Finding("problem", f"there is no {SHARED}", "in a container add `--ipc=host`")
        return
    facts = os.statvfs(folder)
    size = facts.f_blocks * facts.f_frsize
    if size >= SHARED_BYTES:
        yield Finding("ok", f"{SHARED} has {size >> 20} MiB")
    elif len(machine.amd_gpus()) > 1:
        yield Finding(
            "problem",
            f"{SHARED} has {size >> 20} MiB, too little for RCCL between {len(machine.amd_gpus())} GPUs",
            "in a container add `--shm-size=8g` or `--ipc=host`",
        )
    else:
        yield Finding("ok", f"{SHARED} has {size >> 20} MiB; a single GPU does not need it")


@own_check(level=1)
def kernel_command_line(machine: Machine) -> Iterator[Finding]:
    """Find an IOMMU that translates: transfers between GPUs hang or crawl."""
    if len(machine.amd_gpus()) < 2:
        return
    words = machine.text("/proc/cmdline").split()
    if "iommu=pt" in words or "iommu=off" in words or "amd_iommu=off" in words:
        yield Finding("ok", "the IOMMU passes transfers through")
    else:
        yield Finding(
            "problem",
            f"{len(machine.amd_gpus())} GPUs, but no iommu=pt on the kernel's command line",
            "add `iommu=pt` (with amd_iommu=on or intel_iommu=on) to the boot loader's kernel options, then restart; "
            "turn ACS off in the firmware. Until then NCCL_P2P_DISABLE=1 works around it",
        )


@own_check(level=1)
def devices(machine: Machine) -> Iterator[Finding]:
    """Find settings that some GPUs need."""
    names = machine.architectures()
    if {"gfx942", "gfx950"} & set(names) and machine.environ.get("NCCL_CUMEM_ENABLE") != "1":
        yield Finding(
            "note",
            "NCCL_CUMEM_ENABLE is not 1: windows (Communicator.window) are not supported on this GPU",
            "set NCCL_CUMEM_ENABLE=1 on all ranks if you use them",
        )
    if "gfx90a" in names and machine.environ.get("HSA_NO_SCRATCH_RECLAIM") != "1":
        yield Finding(
            "note",
            "HSA_NO_SCRATCH_RECLAIM is not 1: with ROCm 7.13 and newer, small collectives are 5 to 10 times slower on "
            "gfx90a",
            "set HSA_NO_SCRATCH_RECLAIM=1",
        )


@own_check(level=1)
def locked_memory(machine: Machine) -> Iterator[Finding]:
    """Find a limit of locked memory below which InfiniBand cannot register buffers."""
    if not list(machine.path("/sys/class/infiniband").glob("*")):
        return
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if soft == resource.RLIM_INFINITY:
        yield Finding("ok", "locked memory has no limit")
    else:
        yield Finding(
            "problem",
            f"InfiniBand is present, but locked memory is limited to {soft >> 10} KiB",
            "`ulimit -l unlimited`; for Slurm set PropagateResourceLimitsExcept=MEMLOCK; "
            "in a container add `--ulimit memlock=-1`",
        )


@own_check(level=1)
def one_library(machine: Machine) -> Iterator[Finding]:
    """Find two librccl in one process."""
    libraries = machine.mapped("rccl")
    if len(libraries) > 1:
        yield Finding(
            "problem",
            f"the process has {len(libraries)} librccl mapped: {', '.join(libraries)}",
            "import torch before other users of RCCL, and point ROCM_PATH to the ROCm that torch brings",
        )


@own_check(level=2)
def library(machine: Machine) -> Iterator[Finding]:
    """Load the platform and say which RCCL it has, and what is known of that version."""
    from rocpy import platform
    from rocpy.errors import RocpyError
    from rocpy.rccl.engine.library import device_count, library_version

    try:
        chosen = platform.current()
    except RocpyError as error:
        yield Finding("problem", str(error), "see `rocpy doctor`")
        return
    if "rccl" not in chosen.libraries:
        yield Finding(
            "problem", f"the platform {chosen.name} has no librccl", "install RCCL (package rccl) of your ROCm"
        )
        return
    version = library_version()
    text = f"RCCL {version // 10000}.{version // 100 % 100}.{version % 100}"
    yield Finding("ok", f"{text} at {chosen.libraries['rccl'].path}, platform {chosen.name}")
    if not chosen.is_emulated and 22707 <= version <= 22803:
        yield Finding(
            "note",
            f"{text}: all-to-all hangs on a communicator with one rank (ROCm 7.1.1 to 7.11)",
            "update ROCm, or skip the call where nranks is 1",
        )
    count = device_count()
    ranks = int_of(machine.environ.get("LOCAL_WORLD_SIZE"))
    if ranks > count:
        fix = "set ROCPY_HOST_DEVICES to the number of ranks" if chosen.is_emulated else "start one rank for each GPU"
        yield Finding("problem", f"{ranks} ranks on this machine, but {count} devices", fix)
    else:
        yield Finding("ok", f"{count} device{'' if count == 1 else 's'}, one for each rank of this machine")


@own_check(level=3)
def all_reduce(machine: Machine) -> Iterator[Finding]:  # noqa: ARG001
    """Sum over all devices, with a deadline."""
    import numpy as np

    import rocpy
    from rocpy import rccl

    comms: list[rccl.Communicator] = []
    try:
        comms = rccl.Communicator.init_all(timeout_s=60.0)
        operands = []
        for comm in comms:
            operands.append(rocpy.Buffer(1 << 16, "float32", device=comm.device_index))
            operands[-1].copy_from(np.full(1 << 16, comm.rank + 1, np.float32))
        with rccl.group():
            for comm, x in zip(comms, operands, strict=True):
                comm.all_reduce(x, out=x)
        expected = len(comms) * (len(comms) + 1) / 2
        wrong = []
        for comm, x in zip(comms, operands, strict=True):
            rocpy.Device(comm.device_index).synchronize()
            if (x.to_numpy() != expected).any():
                wrong.append(comm.device_index)
        if wrong:
            yield Finding("problem", f"the sum is wrong on devices {wrong}", "run `rocpy doctor --selftest`")
        else:
            yield Finding("ok", f"all-reduce over {len(comms)} devices gives the right sums")
    except rccl.RcclError as error:
        yield Finding("problem", str(error), "set NCCL_DEBUG=WARN and run this again")
    finally:
        for comm in comms:
            comm.abort()
