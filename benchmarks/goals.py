# SPDX-License-Identifier: MIT
"""Judges the project's goals by what the benchmarks measured: what is wanted, what was measured, and if it is met."""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import machine
from harness import ran_on

Row = dict[str, Any]
NEEDED = (
    "overhead",
    "reach",
    "matmul",
    "epilogue",
    "weights",
    "threads",
    "training",
    "collectives",
    "cooperative",
    "algorithms",
    "import",
)
WIDE = ("float32", "float64")
COMPUTE_BOUND = ("512x3072x768", "1024x1024x1024", "2048x2048x2048")


@dataclass(frozen=True)
class Results:
    """The rows of all benchmarks, and which of them are rivals of which."""

    rows: list[Row] = field(default_factory=list)

    def find(self, benchmark: str, case: str, label: str, threads: int = 1) -> Row | None:
        """Return the row, or None where it was not measured."""
        for row in self.rows:
            if (row["benchmark"], row["case"], row["label"], row["threads"]) == (benchmark, case, label, threads):
                return row
        return None

    def ratio(
        self, benchmark: str, case: str, above: str, below: str, threads: int = 1, below_threads: int | None = None
    ) -> tuple[float, float] | None:
        """Return time of one over time of the other: by the best of each, and by the medians."""
        first = self.find(benchmark, case, above, threads)
        second = self.find(benchmark, case, below, below_threads or threads)
        if first is None or second is None:
            return None
        return first["best_us"] / second["best_us"], first["median_us"] / second["median_us"]

    def times(self, benchmark: str, case: str, label: str) -> tuple[float, float] | None:
        """Return microseconds with one thread, (best, median)."""
        row = self.find(benchmark, case, label)
        return None if row is None else (row["best_us"], row["median_us"])


@dataclass(frozen=True)
class Goal:
    """One goal: what is wanted, and the measured figure as (best, median), None where it could not be measured."""

    item: str
    wanted: str
    limit: float
    measured: tuple[float, float] | None
    at_most: bool = False
    unit: str = "x"
    reached: bool = False  # by another measure than the figure

    def row(self) -> Row:
        """Return the goal with its verdict; the best decides, because other work on the machine only ever adds time."""
        verdict = "not measured"
        if self.measured is not None:
            best = self.measured[0]
            met = self.reached or (best <= self.limit if self.at_most else best >= self.limit)
            verdict = "ok" if met else "short"
        best, median = self.measured or (None, None)
        return {
            "item": self.item,
            "wanted": self.wanted,
            "limit": self.limit,
            "best": best,
            "median": median,
            "unit": self.unit,
            "verdict": verdict,
        }


def overhead(results: Results) -> Iterator[Goal]:
    """Goals for the cost of a call."""
    calls = ("rocpy matmul", "rocpy matmul gelu_bias")
    for library, limit in (("torch", 0.9), ("numpy", 0.75)):
        case = f"4x4x4 float32, {library} operands"
        own = f"{library} a @ b"
        # What adds a bias and GELU takes no longer than their plain product.
        for call, most in zip(calls, (limit, 1.0), strict=True):
            ratio = results.ratio("overhead", case, call, own)
            yield Goal(f"4x4x4, {library}: time of {call} / {own}", f"<= {most:.2f}x", most, ratio, at_most=True)
        times = [results.times("overhead", case, f"rocpy matmul {word}") for word in ("own gelu_bias", "gelu_bias")]
        more = None if None in times else tuple(own - built_in for own, built_in in zip(*times, strict=True))
        item = f"4x4x4, {library}: a function as the epilogue, more than gelu_bias"
        yield Goal(item, "<= 1 us", 1.0, more, at_most=True, unit=" us")
        for call in calls:
            ratio = results.ratio("overhead", case, "nvmath matmul", call)
            yield Goal(f"4x4x4, {library}: time of nvmath matmul / {call}", ">= 150x", 150, ratio)
        for call in ("rocpy execute", "rocpy execute gelu_bias"):
            time = results.times("overhead", case, call)
            yield Goal(f"4x4x4, {library}: {call}", "<= 1 us", 1.0, time, at_most=True, unit=" us")
            ratio = results.ratio("overhead", case, "nvmath execute", call)
            yield Goal(f"4x4x4, {library}: time of nvmath execute / {call}", ">= 15x", 15, ratio)


def reach(results: Results) -> Iterator[Goal]:
    """Goals for plain products of all kinds of shapes, beside the best of the peers or the roofline."""
    rows = [row for row in results.rows if row["benchmark"] == "reach" and row["threads"] == 1 and "verdict" in row]
    for dtype in WIDE:
        some = [row for row in rows if row["dtype"] == dtype]
        short = [row["case"] for row in some if row["verdict"] == "short"]
        counted = (float(len(short)), float(len(short))) if some else None
        yield Goal(
            f"reach, {dtype}: shapes short ({', '.join(short) or 'none'})", "0", 0, counted, at_most=True, unit=""
        )
        allowed = [row["ratio"] for row in some if row["allows_mean"]]
        mean = (statistics.geometric_mean(allowed),) * 2 if allowed else None
        yield Goal(f"reach, {dtype}: geometric mean where the roofline allows it", ">= 1.15x", 1.15, mean)


def threads(results: Results) -> Iterator[Goal]:
    """Goals for the further threads: of what they bring to arithmetic alone, and that nothing is slower by them."""
    rows = [row for row in results.rows if row["benchmark"] == "threads"]
    for row in rows:
        if row["asks_for_share"]:
            share = (row["share_best"], row["share_median"])
            item = f"{row['case']}, threads {row['threads']}: gain of the further, of that of multiply-adds alone"
            yield Goal(item, ">= 0.93x", 0.93, share)
    worst = min(rows, key=lambda row: float(row["gain_best"]), default=None)
    gains = None if worst is None else (worst["gain_best"], worst["gain_median"])
    reached = all(row["verdict"] == "ok" for row in rows if not row["asks_for_share"])
    item = f"the least that further threads bring ({worst['case'] if worst else 'none'})"
    yield Goal(item, ">= 1.00x, or within the spread", 1.0, gains, reached=reached)


def throughput(results: Results) -> Iterator[Goal]:
    """Goals for the narrow types."""
    for shape, limit in (*((shape, 0.95) for shape in COMPUTE_BOUND), ("8x4096x4096", 1.3)):
        for dtype in ("bfloat16", "float16"):
            ratio = results.ratio("matmul", f"{shape} own dtypes", "rocpy float32", f"rocpy {dtype}")
            yield Goal(f"{shape}: {dtype} speed / own float32", f">= {limit:.2f}x", limit, ratio)


def fusion(results: Results) -> Iterator[Goal]:
    """Goals for products with an epilogue; those beside torch eager are met at the roofline too."""
    for row in results.rows:
        if row["benchmark"] == "epilogue" and "wanted" in row and row["threads"] == 1:
            of_roofline = "" if row["of_roofline"] is None else f", {row['of_roofline']:.2f} of the roofline"
            item = f"{row['case']}, {row['label']}: speed / torch eager{of_roofline}"
            measured = row["speed_best"], row["speed_median"]
            yield Goal(item, f">= {row['wanted']:.2f}x", row["wanted"], measured, reached=row["verdict"] == "ok")
    for shape in ("64x3072x768", "512x3072x768", "1024x1024x1024", "8x4096x4096"):
        compiled = results.ratio("epilogue", f"{shape} float32 gelu_bias", "torch.compile", "rocpy gelu_bias")
        yield Goal(f"{shape} gelu_bias: speed / torch.compile", ">= 1.00x", 1.0, compiled)
    aux = results.ratio("epilogue", "512x3072x768 float32 gelu_bias", "rocpy gelu_aux_bias", "rocpy gelu_bias")
    yield Goal("512x3072x768: time with aux / without", "<= 1.08x", 1.08, aux, at_most=True)


def weights(results: Results) -> Iterator[Goal]:
    """Goals for few rows with a large weight: the bandwidth of memory, and packed no slower than unpacked."""
    for threads in (1, 2):
        rows = [row for row in results.rows if row["benchmark"] == "weights" and row["threads"] == threads]
        for row in rows:
            share = row["of_bandwidth"]
            measured = None if share is None else (share, share * row["best_us"] / row["median_us"])
            yield Goal(f"{row['case']}, {row['label']}, threads {threads}: of memory", ">= 0.95x", 0.95, measured)
        for case in dict.fromkeys(row["case"] for row in rows):
            ratio = results.ratio("weights", case, "rocpy", "rocpy Weight", threads)
            yield Goal(f"{case}, threads {threads}: packed speed / unpacked", ">= 1.00x", 1.0, ratio)


def training(results: Results) -> Iterator[Goal]:
    """Goals for a training step: not slower than torch; with bfloat16 three times as fast."""
    for row in results.rows:
        if row["benchmark"] == "training" and row["label"] != "torch" and row["threads"] == 1:
            limit = 1.0 if row["dtype"] == "float32" else 3.0
            measured = row["speed_best"], row["speed_median"]
            yield Goal(f"{row['case']}, {row['label']}: speed / torch", f">= {limit:.2f}x", limit, measured)


def collectives(results: Results) -> Iterator[Goal]:
    """Goals for all-reduces of ordinary arrays, and for the cost of a call."""
    rows = [row for row in results.rows if row["benchmark"] == "collectives"]
    for row in rows:
        if row["label"].startswith("mpi4py, MPICH") and " of 64 MiB" in row["case"]:
            ratio = (1 / row["speed_best"], 1 / row["speed_median"])
            yield Goal(f"{row['case']}: speed / {row['label']}", ">= 2.00x", 2.0, ratio)
    for row in rows:
        if row["label"] == "torch.distributed, rocpy":
            ratio = (1 / row["speed_best"], 1 / row["speed_median"])
            item = f"{row['case']}: time of torch's backend / rocpy.rccl"
            yield Goal(item, "<= 1.10x", 1.1, ratio, at_most=True)
    over = next((row["over_c_call_us"] for row in rows if "over_c_call_us" in row), None)
    time = None if over is None else (over, over)
    yield Goal("a collective's call, over the C function", "<= 0.5 us", 0.5, time, at_most=True, unit=" us")


def cooperative(results: Results) -> Iterator[Goal]:
    """Goals for kernels in Python."""
    for case, label, own, limit in (
        ("sum of 10000000 float32", "numpy", "16 striped items a thread", 8),
        ("layer norm of (4096, 1024) float32", "torch", "64 threads a row", 12),
    ):
        ratio = results.ratio("cooperative", case, own, label)
        yield Goal(f"{case}: time / {label}", f"<= {limit}x", limit, ratio, at_most=True)


def choice(results: Results) -> Iterator[Goal]:
    """The goal that choosing among algorithms matters: different drivers win three shapes, each by a tenth."""
    winners = [row for row in results.rows if row["benchmark"] == "algorithms" and row.get("place") == 1]
    clear: dict[str, Row] = {}
    for row in winners:
        if row["lead"] >= 0.1:
            clear.setdefault(row["driver"], row)
    names = ", ".join(
        f"{row['name']} with {row['threads']} thread(s): {row['driver']} by {row['lead']:.0%}" for row in clear.values()
    )
    measured = (float(len(clear)), float(len(clear))) if winners else None
    yield Goal(f"drivers that win a shape by a tenth ({names or 'none'})", ">= 3", 3, measured, unit="")


def small(windows: int) -> Iterator[Goal]:
    """The goal for a 32^3 product inside the library, measured from C."""
    measured = None
    with tempfile.TemporaryDirectory() as name:
        include = machine.HERE.parent / "csrc" / "abi"
        program = machine.compile_program("small_product.cpp", Path(name), f"-I{include}") if include.is_dir() else None
        if program is not None:
            import rocpy

            library = rocpy.platform.current().libraries["hipblaslt"].path
            words = [str(program), library, str(windows), "32"]
            done = subprocess.run(words, env=machine.environment(1), capture_output=True, text=True, check=True)
            rate = 2 * 32**3 / json.loads(done.stdout)["32"] / 1e3
            measured = (rate, rate)
    yield Goal("32^3 float32 inside the library, one thread", ">= 80 GF/s", 80, measured, unit=" GF/s")


def imports(results: Results) -> Iterator[Goal]:
    """The goal for the time of the import."""
    row = results.find("import", "import", "rocpy after numpy")
    measured = None if row is None else (row["best_us"] / 1e6, row["median_us"] / 1e6)
    yield Goal("import rocpy after numpy", "<= 0.06 s", 0.06, measured, at_most=True, unit=" s")


PARTS: tuple[Callable[[Results], Iterator[Goal]], ...] = (
    overhead,
    reach,
    threads,
    throughput,
    fusion,
    weights,
    training,
    collectives,
    cooperative,
    choice,
    imports,
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks/goals.py", description=__doc__)
    parser.add_argument(
        "--results", type=Path, default=Path("benchmark-results"), help="folder of the benchmarks' JSON"
    )
    parser.add_argument("--json", type=Path, help="write the table to this file as well")
    parser.add_argument("--fresh", action="store_true", help="run the benchmarks again even where there are results")
    parser.add_argument("--quick", action="store_true", help="short runs: shows that it runs, not how fast it is")
    arguments = parser.parse_args()
    results = Results()
    for name in NEEDED:
        path = arguments.results / f"{name}.json"
        if arguments.fresh or not path.exists():
            words = [
                sys.executable,
                str(machine.HERE / f"bench_{name}.py"),
                "--json",
                str(path),
                *["--quick"] * arguments.quick,
            ]
            print(f"{arguments.results} has no results of {name}: it is measured first", file=sys.stderr, flush=True)
            if code := subprocess.run(words, check=False).returncode:
                return code
        document = json.loads(path.read_text(encoding="utf-8"))
        results.rows.extend(document["rows"])
    rows = [goal.row() for part in PARTS for goal in part(results)]
    rows += [goal.row() for goal in small(20 if arguments.quick else 2000)]
    context = machine.context("goals", machine.command("goals.py"))
    rows = [row | context for row in rows]
    show(rows)
    if arguments.json:
        machine.write_result(arguments.json, {"benchmark": "goals", "quick": arguments.quick, "rows": rows})
    return 0


def show(rows: list[Row]) -> None:
    """Print the table."""
    from rocpy.cli._output import print_table, say, say_folded

    cells = []
    for row in rows:
        figures = ["" if row[key] is None else f"{row[key]:.3g}{row['unit']}" for key in ("best", "median")]
        cells.append((row["item"], row["wanted"], *figures, row["verdict"]))
    print_table("goals", ("item", "wanted", "best", "median", ""), cells, numbers=("best", "median"))
    counts = {verdict: sum(row["verdict"] == verdict for row in rows) for verdict in ("ok", "short", "not measured")}
    say(", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
    say_folded(ran_on(rows[0]))


if __name__ == "__main__":
    sys.exit(main())
