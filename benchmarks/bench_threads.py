# SPDX-License-Identifier: MIT
"""What further threads bring to products of the grid, beside what they bring to multiply-adds in registers alone.

Processors of a virtual machine may share a core for seconds, when a second one brings nothing to anybody: one thread
and all of them, products and multiply-adds, take turns within a tenth of a second, and each round is judged by itself.
"""

import math
import multiprocessing
import os
import statistics
import sys
import tempfile
import timeit
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import machine
from bench_reach import Product, grid
from harness import Groups, Row, Session, main, number, ran_on, show_roofline, summary

import rocpy
from rocpy.cli._output import print_table, say

# The share of the multiply-adds' gain that is wanted of a product which arithmetic bounds for a millisecond or more: in
# a shorter one the threads' beginning and end count.
WANTED, LONG_US = 0.93, 1000.0
SAMPLE_US, LEAST_ROUNDS = 15_000.0, 5
PEAK_RUNS = 1  # of some milliseconds each


class Timed:
    """Products that one process calls in a loop."""

    def __init__(self, product: Product) -> None:
        a, b = product.operands()
        self._timer = timeit.Timer("rocpy.matmul(a, b)", globals={"rocpy": rocpy, "a": a, "b": b})
        self._timer.timeit(2)

    def microseconds(self, calls: int) -> float:
        """Return the time of a call, measured over so many after one that finds the operands and wakes the threads."""
        self._timer.timeit(1)
        return self._timer.timeit(calls) / calls * 1e6


def serve(connection: Connection) -> None:
    """Time products for another process: a product begins, a number asks for so many calls, None ends."""
    timed = None
    while (asked := connection.recv()) is not None:
        if isinstance(asked, Product):
            timed = Timed(asked)
        elif timed is not None:
            connection.send(timed.microseconds(asked))


class OneThread:
    """A process whose libraries have one thread."""

    def __init__(self, isa: str) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, other = context.Pipe()
        before = dict(os.environ)
        os.environ.update(machine.environment(1, isa))
        try:
            self._process = context.Process(target=serve, args=(other,), daemon=True)
            self._process.start()
        finally:
            os.environ.clear()
            os.environ.update(before)
        other.close()

    def begin(self, product: Product) -> None:
        """Let the process get a product ready."""
        self._connection.send(product)

    def microseconds(self, calls: int) -> float:
        """Return what `Timed.microseconds` measures there."""
        self._connection.send(calls)
        return float(self._connection.recv())

    def close(self) -> None:
        """End the process."""
        self._connection.send(None)
        self._process.join()


def measure(session: Session, product: Product, one: OneThread, folder: Path) -> Row:
    """Measure one product in rounds, one thread and all in turns, and the multiply-adds beside them."""
    one.begin(product)
    timed = Timed(product)
    guess = max(one.microseconds(1), 0.1)
    calls = max(1, int(SAMPLE_US / guess))
    times: dict[int, list[float]] = {1: [], session.threads: []}
    peaks: dict[int, list[float]] = {1: [], session.threads: []}
    rounds = LEAST_ROUNDS if session.quick else max(LEAST_ROUNDS, int(session.effort.budget_s * 1e6 / (4 * SAMPLE_US)))
    for turn in range(rounds):
        order = (1, session.threads) if turn % 2 else (session.threads, 1)
        for count in order:
            times[count].append((one if count == 1 else timed).microseconds(calls))
            peak = machine.fma_peak(count, folder, runs=PEAK_RUNS, isa=session.isa)
            peaks[count].append(peak.get(product.dtype, 0.0))
    return row_of(session, product, times, peaks)


def gain(first: Sequence[float], second: Sequence[float]) -> tuple[float, list[float]]:
    """Return how many times the first is of the second: by the least of each, and in each round."""
    return min(first) / min(second), [one / other for one, other in zip(first, second, strict=True)]


def row_of(session: Session, product: Product, times: dict[int, list[float]], peaks: dict[int, list[float]]) -> Row:
    """Return what the samples of one product say."""
    threads = session.threads
    row: Row = {"case": product.name, "dtype": product.dtype, "threads": threads, "clock": "wall", "label": "rocpy"}
    row |= {"shape": product.shape, "statement": "rocpy.matmul(a, b)"} | summary(times[threads])
    row["one_thread_best_us"], row["one_thread_median_us"] = min(times[1]), statistics.median(times[1])
    best, rounds = gain(times[1], times[threads])
    row["gain_best"], row["gain_median"] = best, statistics.median(rounds)
    if all(peaks[1]):
        peak_best, peak_rounds = gain([1 / rate for rate in peaks[1]], [1 / rate for rate in peaks[threads]])
        row["peak_gain_best"], row["peak_gain_median"] = peak_best, statistics.median(peak_rounds)
        shares = [own / possible for own, possible in zip(rounds, peak_rounds, strict=True)]
        row["share_best"], row["share_median"] = best / peak_best, statistics.median(shares)
    return row | session.context


def judge(row: Row, roofline: machine.Roofline) -> Row:
    """Return whether the row is as wanted: by the better of best and median, since others' work only ever disturbs."""
    bound = roofline.microseconds(row["shape"], row["dtype"], 1, 1)
    arithmetic = 2e-3 * math.prod(row["shape"]) / roofline.peak.get(row["dtype"], math.inf)
    judged: Row = {"is_bound_by_arithmetic": bound is not None and math.isclose(bound, arithmetic)}
    least = max(row["gain_best"], row["gain_median"])
    share = max(row.get("share_best", 0.0), row.get("share_median", 0.0))
    judged["asks_for_share"] = judged["is_bound_by_arithmetic"] and row["one_thread_best_us"] >= LONG_US
    is_fast = least >= 1 - row["spread"] and (not judged["asks_for_share"] or share >= WANTED)
    return judged | {"verdict": "ok" if is_fast else "short"}


def groups(*, quick: bool) -> Groups:
    return [(product.name, product) for product in grid(quick=quick)]


def run(session: Session, products: Sequence[Any]) -> None:
    if session.threads == 1:
        session.note("one thread has nothing to be compared with")
        return
    one = OneThread(session.isa)
    try:
        with tempfile.TemporaryDirectory() as folder:
            session.rows += [measure(session, product, one, Path(folder)) for product in products]
    finally:
        one.close()
    roofline = session.roofline()
    for row in session.rows:
        row.update(judge(row, roofline))
    show(session, session.rows, roofline)


def show(session: Session, rows: list[Row], roofline: machine.Roofline) -> None:
    """Print a line a product, and how many are as wanted."""
    all_threads = f"{session.threads} threads"
    ratios = ("gain_best", "gain_median", "share_best", "share_median")
    cells = [
        (
            row["case"],
            *(number(row[key]) for key in ("one_thread_best_us", "best_us")),
            *("" if row.get(key) is None else f"{row[key]:.2f}" for key in ratios),
            f"{WANTED}" if row["asks_for_share"] else "",
            row["verdict"],
        )
        for row in rows
    ]
    figures = ("1 thread us", f"{all_threads} us", "gain", "(rounds)", "share", "(rounds) ")
    print_table(f"threads: {all_threads}, wall time", ("product", *figures, "asked", ""), cells, numbers=figures)
    asked = [row for row in rows if row["asks_for_share"]]
    short = ", ".join(row["case"] for row in rows if row["verdict"] == "short")
    say(
        "gain: what the further threads bring, by the best of all rounds and in the median round; share: of what they "
        f"bring to multiply-adds in registers. Of {len(rows)} products {len(asked)} are bound by arithmetic for "
        f"{LONG_US / 1000:.0f} ms or more, of which a share of {WANTED} is wanted; short: {short or 'none'}"
    )
    show_roofline(roofline)
    say(ran_on(rows[0]) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    all_cores = max(2, len(os.sched_getaffinity(0)))
    sys.exit(main("threads", groups, run, threads=(all_cores,), seconds=0.6))
