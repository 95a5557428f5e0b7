# SPDX-License-Identifier: MIT
"""Every algorithm that the platform offers, forced in turn: which wins where, by how much, and if that was foreseen."""

import sys
from functools import partial
from typing import Any

from harness import Entry, Groups, Session, main
from peers import normal, shape_name

import rocpy

# Shapes for which different ways to cut a product pay: nothing to share out, few rows against a large weight, little m
# and n but a long k (two threads can share only that), and operands larger than the caches.
NAMED = {
    "small": (16, 16, 16),
    "decode": (8, 4096, 4096),
    "long-k": (16, 16, 65536),
    "large": (2048, 2048, 2048),
}


def groups(*, quick: bool) -> Groups:
    for name, shape in ({"quick": (32, 32, 32)} if quick else NAMED).items():
        yield name, partial(one, name=name, shape=shape)


def one(session: Session, name: str, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    product = rocpy.Matmul(normal("a", m, k), normal("b", k, n))
    entries = [
        Entry(
            f"{algorithm.name} #{algorithm.id}",
            "execute(algorithm=algorithm)",
            {"execute": product.execute, "algorithm": algorithm},
        )
        for algorithm in product.plan()
    ]
    rows = session.compare(
        f"{name} {shape_name(shape)} float32",
        entries,
        against=entries[0].label,
        flops=2.0 * m * n * k,
        shape=shape,
        name=name,
    )
    product.close()
    judge(session, name, rows)


def judge(session: Session, name: str, rows: list[dict[str, Any]]) -> None:
    """Note who won, and by how much over other drivers: block sizes of one driver are often near equal."""
    ordered = sorted(rows, key=lambda row: row["best_us"])
    for place, row in enumerate(ordered, 1):
        row |= {"place": place, "driver": driver(row["label"])}
    winner = ordered[0]
    rest = [row["best_us"] for row in ordered if row["driver"] != winner["driver"]]
    winner["lead"] = min(rest) / winner["best_us"] - 1 if rest else 0.0
    first = rows[0]
    session.note(
        f"{name}: {winner['label']} wins, by {winner['lead']:.0%} over other drivers; the heuristic's first, "
        f"{first['label']}, takes {first['best_us'] / winner['best_us']:.2f} of its time"
    )


def driver(label: str) -> str:
    """Return the part of an algorithm's name that says how it works: all but the block sizes."""
    return label.split(".", 1)[0].split(" ", 1)[0]


if __name__ == "__main__":
    sys.exit(main("algorithms", groups, threads=(1, 2)))
