# SPDX-License-Identifier: MIT
"""What tuning earns: the same products in fresh processes, with the tuning database and without, interleaved."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness import Groups, Session, main, number, summary

# (m, n, k): MiniLM's layers at a few lengths, Llama's at a prompt, and its decode steps with few rows.
SHAPES = {
    "minilm-qkv-16": (16, 1152, 384),
    "minilm-qkv-128": (128, 1152, 384),
    "minilm-out-128": (128, 384, 384),
    "minilm-up-16": (16, 1536, 384),
    "minilm-up-128": (128, 1536, 384),
    "minilm-up-512": (512, 1536, 384),
    "minilm-down-128": (128, 384, 1536),
    "minilm-down-512": (512, 384, 1536),
    "llama-qkv-64": (64, 3072, 2048),
    "llama-out-64": (64, 2048, 2048),
    "llama-up-64": (64, 8192, 2048),
    "llama-down-64": (64, 2048, 8192),
    "llama-out-256": (256, 2048, 2048),
    "llama-up-256": (256, 8192, 2048),
    "decode-1-out": (1, 2048, 2048),
    "decode-1-up": (1, 8192, 2048),
    "decode-1-down": (1, 2048, 8192),
    "decode-4-up": (4, 8192, 2048),
    "decode-8-down": (8, 2048, 8192),
    "decode-8-head": (8, 32000, 2048),
}
QUICK = ("minilm-qkv-16", "decode-1-out")
BUDGET_MS = 4000.0
ROUNDS = 15
WINDOW_S = 0.03
# What counts as slower with the database.
LOSS = 0.03

TUNE = """
import json, sys, numpy as np, rocpy
shapes, budget_ms = json.loads(sys.argv[1]), float(sys.argv[2])
found = {}
for name, (m, n, k) in shapes.items():
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((m, k), np.float32), rng.standard_normal((k, n), np.float32)
    with rocpy.Matmul(a, b) as product:
        report = product.autotune(budget_ms=budget_ms)
    found[name] = {"kernel": report.best.name, "rank": report.best.rank, "foreseen": report.gain}
print(json.dumps(found))
"""

# One shape a line in, the median of its calls out: the parent has this process and its rival measure in turns.
MEASURE = """
import json, sys, time, numpy as np, rocpy
operands = {}
for line in sys.stdin:
    name, (m, n, k), window_s = json.loads(line)
    if name not in operands:
        rng = np.random.default_rng(0)
        a, b = rng.standard_normal((m, k), np.float32), rng.standard_normal((k, n), np.float32)
        operands = {name: (a, b)}
    # Copies, since the pages that an array happens to get alter the time of a product that only reads them.
    (a, b), out = map(np.copy, operands[name]), np.empty((m, n), np.float32)
    rocpy.matmul(a, b, out=out)
    times, end = [], time.perf_counter() + window_s
    while len(times) < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        rocpy.matmul(a, b, out=out)
        times.append(time.perf_counter() - start)
    print(json.dumps([sorted(times)[len(times) // 2] * 1e6, rocpy.explain(a, b).source]), flush=True)
"""


def groups(*, quick: bool) -> Groups:
    return [(name, name) for name in (QUICK if quick else SHAPES)]


def run(session: Session, names: Sequence[str]) -> None:
    shapes = {name: SHAPES[name] for name in names}
    rounds = 3 if session.quick else ROUNDS
    with tempfile.TemporaryDirectory() as folder:
        database = str(Path(folder) / "tuning.sqlite3")
        tuned = tune(shapes, 50.0 if session.quick else BUDGET_MS, database)
        samples: dict[str, dict[str, list[float]]] = {name: {"on": [], "off": []} for name in shapes}
        for turn in range(rounds):
            with measurer(database, "") as on, measurer(database, "0") as off:
                for name, shape in shapes.items():
                    measure(session, name, shape, {"on": on, "off": off}, turn, tuned[name], samples[name])
    for name, shape in shapes.items():
        judge(session, name, shape, tuned[name], samples[name])
    conclude(session)


def tune(shapes: dict[str, Any], budget_ms: float, database: str) -> dict[str, Any]:
    """Tune in a process of its own; the kernel of each shape, its rank before, and the gain foreseen."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", TUNE, json.dumps(shapes), str(budget_ms)],
        env={**os.environ, "ROCPY_TUNING_DB": database},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def measurer(database: str, autotune: str) -> subprocess.Popen[str]:
    """A process that measures on demand. With autotune "0" the same file is neither read nor written."""
    return subprocess.Popen(
        [sys.executable, "-P", "-c", MEASURE],
        env={**os.environ, "ROCPY_TUNING_DB": database, "ROCPY_AUTOTUNE": autotune},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def measure(
    session: Session,
    name: str,
    shape: tuple[int, ...],
    processes: dict[str, subprocess.Popen[str]],
    turn: int,
    tuned: dict[str, Any],
    samples: dict[str, list[float]],
) -> None:
    """One round of one shape: the processes in turns, so that what slows one slows both; the least of each is kept."""
    found: dict[str, list[float]] = {"on": [], "off": []}
    for state in ("on", "off", "off", "on", "on", "off") if turn % 2 else ("off", "on", "on", "off", "off", "on"):
        process = processes[state]
        process.stdin.write(json.dumps([name, shape, WINDOW_S]) + "\n")
        process.stdin.flush()
        answer = process.stdout.readline()
        if not answer:
            raise RuntimeError(f"{name}: the process with the database {state} ended with exit code {process.wait()}")
        microseconds, source = json.loads(answer)
        found[state].append(microseconds)
        if (source == "tuned") != (state == "on" and tuned["kernel"] is not None):
            session.note(f"{name}: with the database {state} the choice came from {source}")
    for state, times in found.items():
        samples[state].append(min(times))


def judge(
    session: Session, name: str, shape: tuple[int, ...], tuned: dict[str, Any], samples: dict[str, list[float]]
) -> None:
    """Keep one row for each state: medians over the rounds, and the median of the rounds' ratios."""
    ratios = [off / on for on, off in zip(samples["on"], samples["off"], strict=True)]
    facts = {"case": name, "dtype": "float32", "threads": session.threads, "clock": "wall", "shape": shape}
    for state in ("off", "on"):
        row = {**facts, "label": f"database {state}", "statement": "rocpy.matmul(a, b, out=out)"}
        row |= summary(samples[state])
        if state == "on":
            row |= {"speed_median": statistics.median(ratios), "against": "database off"} | {
                "speed_best": min(samples["off"]) / min(samples["on"])
            }
            row |= {"kernel": tuned["kernel"], "rank": tuned["rank"], "foreseen": tuned["foreseen"]}
        session.rows.append(row | session.context)
    on = session.rows[-1]
    print(
        f"{name:16} off {number(statistics.median(samples['off'])):>9} us, on {number(on['median_us']):>9} us, "
        f"gain {on['speed_median'] - 1:+.1%} ({tuned['foreseen'] - 1:+.1%} when tuned), {tuned['kernel']}",
        flush=True,
    )


def conclude(session: Session) -> None:
    """Note the gain over all shapes, and which are slower."""
    rows = [row for row in session.rows if row["label"] == "database on"]
    gains = [row["speed_median"] for row in rows]
    slower = [row["case"] for row in rows if row["speed_median"] < 1 - LOSS]
    changed = [row for row in rows if row["rank"]]
    session.note(
        f"{session.threads} threads, {len(rows)} shapes: gain {statistics.geometric_mean(gains) - 1:+.1%} in the mean, "
        f"{min(gains) - 1:+.1%} to {max(gains) - 1:+.1%}; {len(changed)} left the heuristic's first choice; "
        f"slower by more than {LOSS:.0%}: {', '.join(slower) or 'none'}"
    )


if __name__ == "__main__":
    sys.exit(main("autotune", groups, run, threads=(2,)))
