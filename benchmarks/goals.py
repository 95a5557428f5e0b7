# SPDX-License-Identifier: MIT
"""Judges the project's goals by what the benchmarks measured: what is wanted, what was measured, and if it is met."""

from __future__ import annotations

import argparse
import json
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
NEEDED = ("overhead", "matmul", "epilogue", "algorithms", "import")
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


@dataclass(frozen=True)
class Goal:
    """One goal: what is wanted, and the measured figure as (best, median), None where it could not be measured."""

    item: str
    wanted: str
    limit: float
    measured: tuple[float, float] | None
    at_most: bool = False
    unit: str = "x"

    def row(self) -> Row:
        """Return the goal with its verdict; the best decides, because other work on the machine only ever adds time."""
        verdict = "not measured"
        if self.measured is not None:
            best = self.measured[0]
            verdict = "ok" if (best <= self.limit if self.at_most else best >= self.limit) else "short"
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
    for library, limit in (("torch", 1.0), ("numpy", 0.8)):
        case = f"4x4x4 float32, {library} operands"
        own = f"{library} a @ b"
        for call in ("rocpy matmul", "rocpy matmul gelu_bias"):
            ratio = results.ratio("overhead", case, call, own)
            yield Goal(f"4x4x4, {library}: time of {call} / {own}", f"<= {limit:.2f}x", limit, ratio, at_most=True)
        for call in ("rocpy matmul", "rocpy matmul gelu_bias"):
            yield Goal(
                f"4x4x4, {library}: time of nvmath matmul / {call}",
                ">= 150x",
                150,
                results.ratio("overhead", case, "nvmath matmul", call),
            )
        for call in ("rocpy execute", "rocpy execute gelu_bias"):
            row = results.find("overhead", case, call)
            time = None if row is None else (row["best_us"], row["median_us"])
            yield Goal(f"4x4x4, {library}: {call}", "<= 1.5 us", 1.5, time, at_most=True, unit=" us")
            yield Goal(
                f"4x4x4, {library}: time of nvmath execute / {call}",
                ">= 12x",
                12,
                results.ratio("overhead", case, "nvmath execute", call),
            )


def throughput(results: Results) -> Iterator[Goal]:
    """Goals for plain float32 products and for the narrow types."""
    for extent in (1024, 2048):
        case = f"{extent}x{extent}x{extent} float32"
        ratios = [results.ratio("matmul", case, peer, "rocpy") for peer in ("torch", "numpy", "nvmath (MKL)")]
        known = [ratio for ratio in ratios if ratio is not None]
        # The smallest quotient is that against the fastest rival.
        worst = (min(best for best, _ in known), min(median for _, median in known)) if known else None
        yield Goal(f"{extent}^3 float32, one thread: speed / best rival's", ">= 0.97x", 0.97, worst)
    for extent in (1024, 2048):
        case = f"{extent}x{extent}x{extent} float32"
        speedup = results.ratio("matmul", case, "rocpy", "rocpy", 1, 2)
        yield Goal(f"{extent}^3 float32: two threads / one", ">= 1.85x", 1.85, speedup)
    for shape, limit in (*((shape, 0.95) for shape in COMPUTE_BOUND), ("8x4096x4096", 1.3)):
        for dtype in ("bfloat16", "float16"):
            ratio = results.ratio("matmul", f"{shape} own dtypes", "rocpy float32", f"rocpy {dtype}")
            yield Goal(f"{shape}: {dtype} speed / own float32", f">= {limit:.2f}x", limit, ratio)


def fusion(results: Results) -> Iterator[Goal]:
    """Goals for products with an epilogue."""
    for shape, limit in (("64x3072x768", 1.25), ("512x3072x768", 1.25), ("1024x1024x1024", 1.1), ("8x4096x4096", 1.5)):
        case = f"{shape} float32 gelu_bias"
        yield Goal(
            f"{shape} gelu_bias: speed / torch eager",
            f">= {limit:.2f}x",
            limit,
            results.ratio("epilogue", case, "torch eager", "rocpy gelu_bias"),
        )
        compiled = results.ratio("epilogue", case, "torch.compile", "rocpy gelu_bias")
        yield Goal(f"{shape} gelu_bias: speed / torch.compile", ">= 1.00x", 1.0, compiled)
    aux = results.ratio("epilogue", "512x3072x768 float32 gelu_bias", "rocpy gelu_aux_bias", "rocpy gelu_bias")
    yield Goal("512x3072x768: time with aux / without", "<= 1.08x", 1.08, aux, at_most=True)


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
    yield Goal("import rocpy after numpy", "< 0.1 s", 0.1, measured, at_most=True, unit=" s")


PARTS: tuple[Callable[[Results], Iterator[Goal]], ...] = (overhead, throughput, fusion, choice, imports)


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
        results.rows.extend(json.loads(path.read_text(encoding="utf-8"))["rows"])
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
