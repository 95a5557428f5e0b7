# SPDX-License-Identifier: MIT
"""Every algorithm that the platform offers, forced in turn: which wins where, by how much, and if that was foreseen."""

import argparse
import sys

from harness import Entry, Session, main
from peers import normal, shape_name

import rocpy

# Shapes for which different ways to cut a product pay: nothing to share out, little m and n but a long k, few rows
# against a large weight, and plenty of everything.
NAMED = {
    "small": (16, 16, 16),
    "long-k": (16, 16, 65536),
    "decode": (8, 4096, 4096),
    "square": (1024, 1024, 1024),
}


def run(session: Session, arguments: argparse.Namespace) -> None:
    shapes = {"quick": (32, 32, 32)} if session.quick else NAMED
    for name, shape in shapes.items():
        if arguments.only in name:
            one(session, name, shape)


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
    first = entries[0].label
    rows = session.compare(
        f"{name} {shape_name(shape)} float32", entries, against=first, flops=2.0 * m * n * k, shape=shape, name=name
    )
    product.close()
    ordered = sorted(rows, key=lambda row: row["best_us"])
    for place, row in enumerate(ordered):
        row["place"] = place + 1
    winner = ordered[0]
    winner["lead"] = ordered[1]["best_us"] / winner["best_us"] - 1 if len(ordered) > 1 else 0.0
    session.note(f"{name}: {winner['label']} wins by {winner['lead']:.0%}; the heuristic's first is {first}")


if __name__ == "__main__":
    sys.exit(main("algorithms", run, threads=(1, 2)))
