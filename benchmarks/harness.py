# SPDX-License-Identifier: MIT
"""How benchmarks measure: rivals interleaved in one process, in shuffled rounds; best, median, spread and ratios."""

from __future__ import annotations

import argparse
import json
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import timeit
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import machine

from rocpy.cli._output import print_table, say, say_folded

Row = dict[str, Any]
# What `--only` chooses from: the name of each group, and what measures it, a function of the session unless a benchmark
# has its own way to measure its groups.
Groups = Iterable[tuple[str, Any]]


@dataclass(frozen=True)
class Entry:
    """One rival: a Python statement, compiled into the timing loop, so that no call is measured but its own."""

    label: str
    statement: str
    names: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Effort:
    """How long to measure: seconds per sample of short statements, seconds per rival, and bounds on rounds."""

    window_s: float = 0.001
    budget_s: float = 1.5
    least_rounds: int = 9
    most_rounds: int = 200


CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.process_time}
QUICK = Effort(window_s=0.0002, budget_s=0.02, least_rounds=3, most_rounds=3)


class Session:
    """One run at one number of threads: measures groups of rivals, prints each as a table, and keeps the rows."""

    def __init__(self, name: str, arguments: argparse.Namespace) -> None:
        self.name = name
        self.quick: bool = arguments.quick
        self.only: str = arguments.only
        self.threads: int = arguments.child_threads
        self.isa: str = arguments.isa
        self.peak: dict[str, float] = json.loads(arguments.child_peak)
        self.effort = QUICK if self.quick else Effort(budget_s=arguments.seconds)
        # With one thread, CPU time of the whole process is the time that an idle machine would take.
        self.clock = arguments.clock if arguments.clock != "auto" else "cpu" if self.threads == 1 else "wall"
        self.context = machine.context(name, arguments.child_command)
        self.rows: list[Row] = []
        self.notes: list[str] = []
        self._bandwidth: dict[int, float] = {}

    def note(self, text: str) -> None:
        """Say once why something is not measured."""
        if text not in self.notes:
            self.notes.append(text)
            say_folded(f"note: {text}")

    def name_kernels(self) -> None:
        """Put into every row which kernels rocpy and its peers have run, and print it."""
        kernels = {"rocpy": self.context["isa"], **machine.kernels_of_peers()}
        for row in self.rows:
            row["kernels"] = kernels
        say_folded("kernels: " + "; ".join(f"{label}: {kernel}" for label, kernel in kernels.items()))

    def roofline(self) -> machine.Roofline:
        """Measure the bandwidth of memory, beside the peak that is known; the best of all times that this was asked.

        Other programs of a shared machine slow memory down for seconds: before and after the products is more often
        without them than before alone.
        """
        with tempfile.TemporaryDirectory() as folder:
            bandwidth = machine.read_bandwidth(self.threads, Path(folder), quick=self.quick, isa=self.isa)
        for size, rate in bandwidth.items():
            self._bandwidth[size] = max(rate, self._bandwidth.get(size, 0.0))
        return machine.Roofline(self.peak, dict(self._bandwidth))

    def compare(
        self,
        case: str,
        entries: Sequence[Entry],
        *,
        against: str | None = None,
        flops: float | None = None,
        dtype: str = "float32",
        quiet: bool = False,
        starting: Callable[[str], None] = lambda _: None,
        **facts: object,
    ) -> list[Row]:
        """Measure the rivals against each other, and print it unless `quiet`.

        `against` is the one that the others' speed is given relative to. `starting` is called with the label of a rival
        before each of its samples.
        """
        samples, calls = measure(entries, self.effort, CLOCKS[self.clock], starting, settle=self.threads > 1)
        rows = []
        for entry in entries:
            row: Row = {"case": case, "dtype": dtype, "threads": self.threads, "clock": self.clock}
            row |= {"label": entry.label, "statement": entry.statement}
            row |= summary(samples[entry.label]) | {"calls_per_sample": calls[entry.label]} | facts
            if flops is not None:
                row |= {"gflops_best": flops / row["best_us"] / 1e3, "gflops_median": flops / row["median_us"] / 1e3}
                row["of_peak"] = row["gflops_best"] / self.peak[dtype] if dtype in self.peak else None
            if against in samples:
                row |= {"against": against, **speed(samples[entry.label], samples[against])}
            rows.append(row | self.context)
        self.rows += rows
        if not quiet:
            show(case, rows)
        return rows


def measure(
    entries: Sequence[Entry],
    effort: Effort,
    clock: Callable[[], float],
    starting: Callable[[str], None],
    *,
    settle: bool,
) -> tuple[dict[str, list[float]], dict[str, int]]:
    """Return microseconds a call of every round, and how many calls made one sample, by label."""
    timers = {entry.label: timeit.Timer(entry.statement, timer=clock, globals=dict(entry.names)) for entry in entries}
    calls, once = {}, 0.0
    for label, timer in timers.items():
        starting(label)
        timer.timeit(1)  # loads libraries, plans, and compiles
        count, taken = 1, timer.timeit(1)
        while taken < effort.window_s and count < 1_000_000:
            count = max(2 * count, int(count * effort.window_s / max(taken, 1e-9)))
            taken = timer.timeit(count)
        calls[label] = count
        once += taken
    # A rival of seconds a call would hold up all the others.
    least = effort.least_rounds if once < 10 * effort.budget_s else 3
    rounds = int(min(effort.most_rounds, max(least, effort.budget_s * len(entries) / once)))
    samples: dict[str, list[float]] = {label: [] for label in timers}
    order, shuffler = list(timers), random.Random(0)
    for _ in range(rounds):
        shuffler.shuffle(order)
        for label in order:
            starting(label)
            if settle:
                # A rival's threads still spin after its last call, OpenBLAS's for 2^26 cycles, and would take the other
                # core.
                time.sleep(0.035)
                timers[label].timeit(1)
            samples[label].append(timers[label].timeit(calls[label]) / calls[label] * 1e6)
    return samples, calls


def summary(values: Sequence[float]) -> Row:
    """Return best, median and spread (half the distance of the quartiles, relative to the median)."""
    median = statistics.median(values)
    low, _, high = statistics.quantiles(values, n=4)
    return {"best_us": min(values), "median_us": median, "spread": (high - low) / 2 / median, "rounds": len(values)}


def speed(values: Sequence[float], reference: Sequence[float]) -> Row:
    """Return how many times faster than the reference: by the best of each, and the median over rounds."""
    paired = [other / own for own, other in zip(values, reference, strict=True)]
    return {"speed_best": min(reference) / min(values), "speed_median": statistics.median(paired)}


# The share of the roofline at which a product is as fast as can be asked.
SHARE = 0.95


def verdict_of(ratio: float, wanted: float, share: float | None, spread: float) -> str:
    """Return "ok", "even" or "short".

    ok: as many times as fast as the peer as is wanted, or at the share of the roofline; even: missed by less than both
    spread; short: by more.
    """
    if ratio >= wanted or (share is not None and share >= SHARE):
        return "ok"
    return "even" if ratio >= wanted * (1 - spread) else "short"


def show_roofline(roofline: machine.Roofline) -> None:
    """Print the bounds of the machine."""
    say("peak GF/s: " + ", ".join(f"{dtype} {rate:.0f}" for dtype, rate in roofline.peak.items()))
    say("read GB/s: " + ", ".join(f"{size >> 10} KiB {rate:.0f}" for size, rate in roofline.bandwidth.items()))


def show(case: str, rows: Sequence[Row]) -> None:
    """Print one group. The line above it says on what it ran: it belongs to each row."""
    if not rows:
        return
    first = rows[0]
    threads = "1 thread" if first["threads"] == 1 else f"{first['threads']} threads"
    figures = (
        "best us",
        "median us",
        "spread",
        "GF/s",
        "of peak",
        f"speed vs {first.get('against', '-')} (best, median)",
    )
    cells = [
        (
            row["label"],
            number(row["best_us"]),
            number(row["median_us"]),
            f"{row['spread']:.0%}",
            number(row.get("gflops_best")),
            "" if row.get("of_peak") is None else f"{row['of_peak']:.2f}",
            f"{row['speed_best']:.2f}  {row['speed_median']:.2f}" if "speed_best" in row else "",
        )
        for row in rows
    ]
    title = f"{first['benchmark']}: {case}, {threads}, {first['clock']} time"
    print_table(title, ("who", *figures), cells, numbers=figures)
    say_folded(f"{ran_on(first)}\n")


def ran_on(row: Row) -> str:
    """Return the line that says on what a row was measured."""
    versions = " ".join(f"{name} {version}" for name, version in row["versions"].items())
    words = (row["platform"], row["device"], row["isa"], versions, f"commit {row['commit']}", row["command"])
    return " | ".join(words)


def number(value: float | None) -> str:
    """Return three significant digits or more."""
    if value is None:
        return ""
    return (
        f"{value:.3f}"
        if value < 10
        else f"{value:.2f}"
        if value < 100
        else f"{value:,.0f}"
        if value >= 1000
        else f"{value:.1f}"
    )


def parser(name: str, *, threads: Sequence[int], seconds: float = Effort.budget_s) -> argparse.ArgumentParser:
    """Return the options that every benchmark takes."""
    made = argparse.ArgumentParser(prog=f"benchmarks/bench_{name}.py")
    made.add_argument("--json", type=Path, metavar="FILE", help="write the rows to FILE")
    made.add_argument("--quick", action="store_true", help="small and short: shows that it runs, not how fast it is")
    made.add_argument("--threads", type=int, nargs="+", default=list(threads), help="numbers of threads, one run each")
    made.add_argument("--seconds", type=float, default=seconds, help="seconds for each rival of a group")
    made.add_argument(
        "--isa",
        choices=tuple(machine.INSTRUCTION_SETS),
        default="native",
        help="instruction set that rocpy and its peers are held to (default: what the CPU has)",
    )
    made.add_argument(
        "--clock", choices=("auto", *CLOCKS), default="auto", help="cpu: of the process; auto: cpu with one thread"
    )
    add_choice(made)
    for hidden in ("--child-output", "--child-peak", "--child-command"):
        made.add_argument(hidden, help=argparse.SUPPRESS)
    made.add_argument("--child-threads", type=int, help=argparse.SUPPRESS)
    return made


def add_choice(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose groups and list them."""
    parser.add_argument("--only", default="", help="only groups whose name contains this")
    parser.add_argument("--list", action="store_true", help="print the names of the groups, and measure nothing")


def answer_choice(names: Sequence[str], arguments: argparse.Namespace) -> int | None:
    """Print the names if they are asked for, or refuse a choice that none of them contains.

    Returns the exit code, or None if there is something to measure.
    """
    if arguments.list:
        print(*names, sep="\n")
        return 0
    if not any(arguments.only in name for name in names):
        print(f"no group's name contains {arguments.only!r}; --list shows the names", file=sys.stderr)
        return 2
    return None


def each(session: Session, groups: Sequence[Callable[[Session], None]]) -> None:
    """Measure one group after the other."""
    for measure_group in groups:
        measure_group(session)


def main(
    name: str,
    groups: Callable[..., Groups],
    run: Callable[[Session, Sequence[Any]], None] = each,
    *,
    threads: Sequence[int] = (1,),
    seconds: float = Effort.budget_s,
    switches: Callable[..., dict[str, str]] | None = None,
) -> int:
    """Run a benchmark once per number of threads, each in a process whose libraries start with that number.

    `groups`, called with `quick`, returns the groups; `run` measures those that are chosen. `switches` returns what the
    environment needs besides, unless all are held to one instruction set.
    """
    arguments = parser(name, threads=threads, seconds=seconds).parse_args()
    all_groups = list(groups(quick=arguments.quick))
    if arguments.child_output is not None:
        session = Session(name, arguments)
        run(session, [group for title, group in all_groups if arguments.only in title])
        if session.rows:
            session.name_kernels()
        document = {"rows": session.rows, "notes": session.notes}
        Path(arguments.child_output).write_text(json.dumps(document), encoding="utf-8")
        return 0
    code = answer_choice([title for title, _ in all_groups], arguments)
    if code is not None:
        return code
    command = machine.command(f"bench_{name}.py")
    rows, notes, peaks = [], [], {}
    with tempfile.TemporaryDirectory() as folder:
        for count in arguments.threads:
            peak = machine.fma_peak(count, Path(folder), runs=1 if arguments.quick else 40, isa=arguments.isa)
            peaks[str(count)] = peak
            output = Path(folder) / f"{count}.json"
            words = [
                sys.executable,
                sys.argv[0],
                *sys.argv[1:],
                "--child-threads",
                str(count),
                "--child-output",
                str(output),
            ]
            words += ["--child-peak", json.dumps(peak), "--child-command", command]
            environment = machine.environment(count, arguments.isa)
            if switches and arguments.isa == "native":
                environment |= switches(environment, quick=arguments.quick)
            done = subprocess.run(words, env=environment, check=False)
            if done.returncode < 0:
                print(f"{words[1]} was ended by {signal.Signals(-done.returncode).name}", file=sys.stderr)
                return 128 - done.returncode
            if done.returncode:
                return done.returncode
            document = json.loads(output.read_text(encoding="utf-8"))
            rows += document["rows"]
            notes += [note for note in document["notes"] if note not in notes]
    result = {"benchmark": name, "quick": arguments.quick, "peak_gflops": peaks, "notes": notes, "rows": rows}
    if arguments.json:
        machine.write_result(arguments.json, result)
    return 0
