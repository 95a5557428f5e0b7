# SPDX-License-Identifier: MIT
"""Counts what one call costs, where a clock would show the machine's noise: instructions, library calls, allocations.

A forked process runs the statement step by step (ptrace), on one thread. A step whose address is that of a function of
the platform's libraries, entered from outside of them, is a library call; one at malloc and its relatives is an
allocation. The counts are compared with the last ones in the history that were made with the same versions; without
such, library calls and allocations with the last of the same packages.
"""

from __future__ import annotations

import argparse
import ctypes
import datetime as dt
import gc
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

import machine

HISTORY = Path(__file__).resolve().parent / "results" / "history" / "counts.json"
WHY_THIS = "counted on Linux for x86-64 only"
TRACEME, PEEK, CONTINUE, STEP, REGISTERS = 0, 2, 7, 9, 12
ALLOCATORS = ("malloc", "calloc", "realloc", "aligned_alloc", "posix_memalign", "memalign")
NAMES = (
    "r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi orig_rax rip cs eflags rsp ss "
    "fs_base gs_base ds es fs gs"
)

PACKAGES = ("python", "numpy", "torch")
# More instructions than before fail from here on: one tree was counted 5 % apart in two environments of one machine.
MOST_INSTRUCTIONS = 1.15

Row = dict[str, Any]


class Registers(ctypes.Structure):
    """What PTRACE_GETREGS fills on x86-64."""

    _fields_ = tuple((name, ctypes.c_ulonglong) for name in NAMES.split())


def ptrace() -> Callable[..., int]:
    """Return the C function."""
    function = ctypes.CDLL(None, use_errno=True).ptrace
    function.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    function.restype = ctypes.c_long
    return function


def steps(run: Callable[[], object]) -> Iterator[tuple[int, Callable[[], int]]]:
    """Run a function in a forked process and yield the address of each instruction, with what reads the return address.

    Raises
    ------
    ChildProcessError
        This machine lets no process be traced, or the function raised.
    """
    trace = ptrace()
    child = os.fork()
    if child == 0:
        be_traced(trace, run)
    registers = Registers()
    where = ctypes.byref(registers)
    ended = False
    try:
        stopped_by_mark(child)
        while True:
            trace(STEP, child, None, None)
            if stopped_by_mark(child):
                break
            trace(REGISTERS, child, None, where)
            yield registers.rip, lambda: trace(PEEK, child, registers.rsp, None) & (2**64 - 1)
    except ChildProcessError:
        ended = True
        raise
    finally:
        if not ended:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def be_traced(trace: Callable[..., int], run: Callable[[], object]) -> NoReturn:
    """Run the function between two marks, in the forked process, which ends here whatever happens."""
    try:
        gc.disable()
        run()
        run()
        if trace(TRACEME, 0, None, None) == 0:
            signal.raise_signal(signal.SIGUSR1)
            run()
            signal.raise_signal(signal.SIGUSR1)
    except BaseException:  # noqa: BLE001 (the fork must not go on in the code of its caller)
        traceback.print_exc()
    finally:
        os._exit(1)


def stopped_by_mark(child: int) -> bool:
    """Wait for the process to stop, and tell whether at a mark.

    Raises
    ------
    ChildProcessError
        It ended: this machine lets no process be traced, or the function raised what is printed.
    """
    _, status = os.waitpid(child, 0)
    if not os.WIFSTOPPED(status):
        raise ChildProcessError("the traced process ended before its last mark")
    return os.WSTOPSIG(status) == signal.SIGUSR1


class Addresses:
    """Where the functions are that count."""

    def __init__(self) -> None:
        import rocpy

        paths = sorted({str(Path(library.path).resolve()) for library in rocpy.platform.current().libraries.values()})
        libc = ctypes.CDLL(None)
        self.allocators = {address(libc, name) for name in ALLOCATORS}
        self.functions = {}
        self.ranges = []
        for path in paths:
            library = ctypes.CDLL(path)
            self.functions |= {address(library, name): name for name in exported(path)}
            self.ranges += mapped(path)

    def is_call(self, place: int, return_address: Callable[[], int]) -> bool:
        """Whether this is the first instruction of a library's function, entered from outside of the libraries."""
        if place not in self.functions:
            return False
        back = return_address()
        return not any(first <= back < end for first, end in self.ranges)


def address(library: ctypes.CDLL, name: str) -> int:
    """Return where a function begins."""
    return ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0


def exported(path: str) -> list[str]:
    """Return the names of the functions that a library exports."""
    words = ["nm", "--dynamic", "--defined-only", "--format=posix", path]
    lines = subprocess.run(words, check=True, capture_output=True, text=True).stdout.splitlines()
    return [line.split()[0].partition("@")[0] for line in lines if line.split()[1] in "TWi"]


def mapped(path: str) -> list[tuple[int, int]]:
    """Return the ranges of addresses of a loaded library."""
    lines = [line.split() for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()]
    return [
        (int(first, 16), int(end, 16)) for first, _, end in (one[0].partition("-") for one in lines if one[-1] == path)
    ]


def count(run: Callable[[], object], addresses: Addresses) -> Row:
    """Return the counts of one call."""
    calls: dict[str, int] = {}
    instructions = allocations = 0
    for place, return_address in steps(run):
        instructions += 1
        allocations += place in addresses.allocators
        if addresses.is_call(place, return_address):
            name = addresses.functions[place]
            calls[name] = calls.get(name, 0) + 1
    return {
        "instructions": instructions,
        "library calls": sum(calls.values()),
        "allocations": allocations,
        "calls": calls,
    }


def statements() -> Mapping[str, Callable[[], object]]:
    """Return what is counted, by label: products so small that little is left but the way to the library."""
    import numpy as np

    import rocpy

    a, b, bias = np.ones((4, 4), np.float32), np.ones((4, 4), np.float32), np.ones(4, np.float32)
    plan = rocpy.Matmul(a, b)
    plan.plan()
    own = rocpy.epilogue(lambda x, bias: np.maximum(x + bias, 0) / 2)
    weight = rocpy.Weight(b)
    found: dict[str, Callable[[], object]] = {
        "numpy a @ b": lambda: a @ b,
        "rocpy matmul": lambda: rocpy.matmul(a, b),
        "rocpy matmul gelu_bias": lambda: rocpy.matmul(a, b, epilogue="gelu_bias", bias=bias),
        "rocpy matmul Weight": lambda: rocpy.matmul(a, weight),
        "rocpy matmul, user's epilogue": lambda: rocpy.matmul(a, b, epilogue=own, epilogue_inputs={"bias": bias}),
        "rocpy execute": plan.execute,
    }
    try:
        import torch
    except ImportError:
        return found
    torch.set_num_threads(1)
    left, right = torch.ones(4, 4), torch.ones(4, 4)
    return found | {
        "torch a @ b": lambda: left @ right,
        "rocpy matmul, torch operands": lambda: rocpy.matmul(left, right),
    }


def counted() -> list[Row]:
    """Return a row for each statement, without what the measuring itself takes."""
    context = machine.context("counts", "python benchmarks/counts.py")
    addresses = Addresses()
    nothing = count(lambda: None, addresses)
    rows = []
    for label, run in statements().items():
        row = count(run, addresses)
        row["instructions"] -= nothing["instructions"]
        row["allocations"] -= nothing["allocations"]
        rows.append({"case": "4x4x4 float32", "label": label, **row, **context, "benchmark": "counts"})
    return rows


def versions(row: Row) -> dict[str, str]:
    """Return what a count depends on: all counts of two with the same versions can be compared."""
    minor = {name: ".".join(row["versions"].get(name, "none").split(".")[:2]) for name in PACKAGES}
    return minor | {"processor": platform.machine(), "isa": row["isa"], "libc": " ".join(platform.libc_ver())}


def comparable(now: Mapping[str, str], before: Mapping[str, str]) -> tuple[str, ...]:
    """Return the counts that can be compared between two machines.

    No compiler or package changes how often the library is called, and no machine how often memory is allocated.
    """
    same = [name for name in now if now[name] == before.get(name)]
    if not set(PACKAGES) <= set(same):
        return ("library calls",)
    return ("library calls", "allocations", *(["instructions"] if len(same) == len(now) else []))


def grown(rows: list[Row], history: list[Row]) -> tuple[list[str], list[str], tuple[str, ...]]:
    """Compare with the newest record of the nearest versions.

    Returns
    -------
    failures
        What grew, as "label: count, before -> now".
    remarks
        Instructions that grew, by no more than ``MOST_INSTRUCTIONS``.
    judged
        The counts that could be compared.
    """
    from rocpy.cli.measured.comparison import INSTRUCTIONS_CHANGE

    failures: list[str] = []
    remarks: list[str] = []
    if not history:
        return failures, remarks, ()
    now = versions(rows[0])
    last = max(reversed(history), key=lambda one: len(comparable(now, one["versions"])))
    judged = comparable(now, last["versions"])
    before = {row["label"]: row for row in last["rows"] if row["label"].startswith("rocpy")}
    for row in rows:
        for name in judged if row["label"] in before else ():
            old, new = before[row["label"]][name], row[name]
            line = f"{row['label']}: {name}, {old:,} -> {new:,}"
            if new > old * (MOST_INSTRUCTIONS if name == "instructions" else 1):
                failures.append(line)
            elif new > old * (1 + INSTRUCTIONS_CHANGE):
                remarks.append(line)
    return failures, remarks, judged


def record(rows: list[Row]) -> Row:
    """Return what the history keeps."""
    kept = ("label", "instructions", "library calls", "allocations", "calls")
    lines = [{name: row[name] for name in kept} for row in rows]
    date = dt.datetime.now(dt.UTC).date().isoformat()
    return {"date": date, "commit": rows[0]["commit"], "versions": versions(rows[0]), "rows": lines}


def main() -> int:
    """Count, print, and judge; exit code 1 if a count has grown."""
    from rocpy.cli._output import print_table

    parser = argparse.ArgumentParser(prog="benchmarks/counts.py", description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows to FILE")
    parser.add_argument("--history", type=Path, default=HISTORY, help="what the counts are compared with")
    parser.add_argument("--update", action="store_true", help="add these counts to the history")
    parser.add_argument("--quick", action="store_true", help="changes nothing: counting is quick")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if not arguments.child:
        words = [sys.executable, __file__, *sys.argv[1:], "--child"]
        with tempfile.TemporaryDirectory() as folder:
            # Neither the user's settings nor the choices that were measured on this machine change what a call does.
            own = {name: value for name, value in machine.environment(1).items() if not name.startswith("ROCPY_")}
            own |= {"PYTHONHASHSEED": "0", "ROCPY_NUM_THREADS": "1", "ROCPY_TUNING_DB": f"{folder}/tuning.sqlite3"}
            return subprocess.run(words, env=own, check=False).returncode
    if sys.platform != "linux" or platform.machine() != "x86_64":
        print(f"nothing counted: {WHY_THIS}")
        rows = []
    else:
        rows = counted()
    if arguments.json:
        machine.write_result(arguments.json, {"benchmark": "counts", "rows": rows})
    if not rows:
        return 0
    columns = ("who", "instructions", "library calls", "allocations", "which calls")
    cells = [
        (
            row["label"],
            *(row[name] for name in columns[1:4]),
            ", ".join(f"{name} {n}" for name, n in row["calls"].items()),
        )
        for row in rows
    ]
    print_table("counts: 4x4x4 float32, one call", columns, cells, numbers=columns[1:4])
    history = json.loads(arguments.history.read_text(encoding="utf-8")) if arguments.history.is_file() else []
    failures, remarks, judged = grown(rows, history)
    if arguments.update:
        arguments.history.parent.mkdir(parents=True, exist_ok=True)
        arguments.history.write_text(json.dumps([*history, record(rows)], indent=1) + "\n", encoding="utf-8")
        print(f"added to {arguments.history.name}")
        return 0
    for line in remarks:
        print(f"a little more than in the last record: {line}")
    for line in failures:
        print(f"grown since the last record: {line}")
    if failures:
        print("`python benchmarks/counts.py --update` records it, with a reason")
    if "instructions" not in judged:
        compared = " and ".join(judged) or "nothing"
        print(f"the history has no record with these versions: {compared} could be compared")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
