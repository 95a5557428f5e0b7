# SPDX-License-Identifier: MIT
"""A grid of plain products beside every installed peer and the roofline of the machine, with a verdict a shape.

The roofline of a product is the larger of two times, as machine.Roofline has them, measured in the same run.
"""

import math
import sys
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import machine
import numpy as np
from harness import Entry, Groups, Row, Session, main, number, ran_on, show_roofline, verdict_of
from peers import normal, nvmath_with, optional, to_torch, torch_with
from peers.isolation import CrashError, in_child
from peers.switches import best as fastest_switches

import rocpy
from rocpy.cli._output import print_table, say

SQUARES = (16, 17, 24, 31, 32, 33, 48, 63, 64, 65, 96, 100, 127, 128, 129)
LARGE_SQUARES = (192, 255, 256, 257, 300, 384, 511, 512, 513, 768, 1000, 1024, 2048)
FEED_FORWARD = (
    (64, 3072, 768),
    (128, 3072, 768),
    (512, 3072, 768),
    (64, 768, 3072),
    (512, 768, 3072),
    (256, 4096, 1024),
)
DECODE = (*((m, 4096, 4096) for m in (1, 2, 3, 4, 6, 8, 12, 16)), (1, 3072, 768), (8, 3072, 768), (16, 768, 3072))
TALL = ((4096, 64, 64), (10000, 32, 32), (2048, 16, 512), (4096, 8, 512))
SHORT_SUMS = ((512, 512, 8), (1024, 1024, 16), (128, 128, 8), (300, 300, 4))
NARROW = ((1000, 16, 1000), (1024, 4, 1024), (4096, 1, 4096))
TRANSPOSED = (
    *(((256, 256, 256), order) for order in ("NT", "TN", "TT")),
    *(((512, 512, 512), order) for order in ("NT", "TN")),
    *((shape, "NT") for shape in ((64, 3072, 768), (1, 4096, 4096), (8, 4096, 4096))),
)
DTYPES = ("float32", "float64")
PEER_MODULES = ("torch", "scipy.linalg.blas", "blis.py", "nvmath")

# The mean that is aimed at.
MEAN = 1.15


@dataclass(frozen=True)
class Product:
    """One product of the grid: its extents, how its operands lie (N or T each), and its dtype."""

    shape: tuple[int, int, int]
    order: str
    dtype: str

    @property
    def name(self) -> str:
        """What `--only` looks into."""
        return f"{'x'.join(map(str, self.shape))} {'' if self.order == 'NN' else self.order + ' '}{self.dtype}"

    def operands(self) -> tuple[np.ndarray, np.ndarray]:
        """Return A and B; a transposed one is a view."""
        m, n, k = self.shape
        a = normal("a", k, m, dtype=self.dtype).T if self.order[0] == "T" else normal("a", m, k, dtype=self.dtype)
        b = normal("b", n, k, dtype=self.dtype).T if self.order[1] == "T" else normal("b", k, n, dtype=self.dtype)
        return a, b


def grid(*, quick: bool) -> Iterator[Product]:
    """Return the products in the order in which they are measured."""
    squares = tuple((n, n, n) for n in (*SQUARES, *LARGE_SQUARES))
    plain = (*squares, *FEED_FORWARD, *DECODE, *TALL, *SHORT_SUMS, *NARROW)
    shapes = [(shape, "NN") for shape in plain] + list(TRANSPOSED)
    for dtype in DTYPES:
        for shape, order in [((16, 16, 16), "NN"), ((8, 96, 64), "NT")] if quick else shapes:
            yield Product(shape, order, dtype)


def copies(a: Any, b: Any) -> tuple[Any, Any]:
    """Return the operands in memory of their own: no entry finds in a cache what another has read."""
    return np.copy(a, order="K"), np.copy(b, order="K")


def peers_of(session: Session, product: Product) -> list[Entry]:
    """Return every peer that is installed and works, each with its own operands."""
    first, second = product.operands()
    a, b = copies(first, second)
    found = [Entry("numpy", "a @ b", {"a": a, "b": b})]
    torch = torch_with(session)
    if torch is not None:
        a, b = copies(first, second)
        found.append(Entry("torch", "a @ b", {"a": to_torch(torch, a), "b": to_torch(torch, b)}))
    blas = optional("scipy.linalg.blas")
    if blas is not None:
        a, b = copies(first, second)
        # By columns, as BLAS has them, the transposed product of transposed operands needs no copies.
        gemm = blas.dgemm if a.dtype == np.float64 else blas.sgemm
        operands = {name: x if x.flags.f_contiguous else x.T for name, x in (("left", b.T), ("right", a.T))}
        flags = f"trans_a={not b.T.flags.f_contiguous}, trans_b={not a.T.flags.f_contiguous}"
        found.append(Entry("scipy", f"gemm(1.0, left, right, {flags})", {"gemm": gemm, **operands}))
    blis = optional("blis.py")
    if blis is not None and a.flags.c_contiguous and b.flags.c_contiguous:
        a, b = copies(first, second)
        found.append(Entry("blis", "gemm(a, b)", {"gemm": blis.gemm, "a": a, "b": b}))
    nvmath = nvmath_with(session)
    if nvmath is not None:
        a, b = copies(first, second)
        found.append(Entry("nvmath (MKL)", "planned.execute()", {"planned": nvmath.planned(a, b)}))
    return found


def judge(rows: list[Row], bound: float | None) -> Row:
    """Return what the rows of rocpy and its peers say of one product: as fast as the best peer is what is wanted."""
    own, packed = rows[0], rows[1]
    best = min(rows[2:], key=lambda row: float(row["best_us"]))
    ratio = best["best_us"] / own["best_us"]
    share = None if bound is None else bound / own["best_us"]
    return {
        "best_peer": best["label"],
        "best_peer_us": best["best_us"],
        "best_peer_of_peak": best.get("of_peak"),
        "ratio": ratio,
        "packed_us": packed["best_us"],
        "packed_ratio": best["best_us"] / packed["best_us"],
        "roofline_us": bound,
        "of_roofline": share,
        # Whether the aimed mean is possible at all beside a peer that is as near to the roofline as this.
        "allows_mean": bound is None or best["best_us"] / bound >= MEAN,
        "verdict": verdict_of(ratio, 1, share, own["spread"] + best["spread"]),
    }


def measure(session: Session, product: Product, left_out: Container[str], starting: Callable[[str], None]) -> list[Row]:
    """Compare rocpy with the peers, without those that are `left_out`."""
    a, b = product.operands()
    names = {"rocpy": rocpy, "a": a, "b": b, "weight": rocpy.Weight(b)}
    entries = [Entry("rocpy", "rocpy.matmul(a, b)", names), Entry("rocpy Weight", "rocpy.matmul(a, weight)", names)]
    entries += [peer for peer in peers_of(session, product) if peer.label not in left_out]
    m, n, k = product.shape
    return session.compare(
        product.name,
        entries,
        against="rocpy",
        flops=2.0 * m * n * k,
        dtype=product.dtype,
        quiet=True,
        starting=starting,
        shape=product.shape,
    )


def compare(session: Session, product: Product) -> list[Row]:
    """Compare in a process of its own: a peer that crashes is left out of this product and reported."""
    left_out: set[str] = set()
    while True:
        try:
            rows, notes = in_child(lambda starting: (measure(session, product, left_out, starting), session.notes))
        except CrashError as crash:
            if not crash.task or crash.task.startswith("rocpy"):
                raise
            left_out.add(crash.task)
            session.note(f"{crash.task} ended the process by {crash.signal} at {product.name}: not compared there")
            continue
        session.notes += [note for note in notes if note not in session.notes]
        session.rows += rows
        return rows


def groups(*, quick: bool) -> Groups:
    return [(product.name, product) for product in grid(quick=quick)]


def run(session: Session, products: Sequence[Product]) -> None:
    session.roofline()
    # What a child would import again and again.
    for name in PEER_MODULES:
        optional(name)
    compared = [(product, compare(session, product)) for product in products]
    roofline, judged = session.roofline(), []
    for product, rows in compared:
        # The rows that the session keeps are these: the verdict is on rocpy's.
        bound = roofline.microseconds(product.shape, product.dtype, rows[0]["calls_per_sample"], len(rows))
        rows[0] |= judge(rows, bound)
        judged.append(rows[0])
    show(session, judged, roofline)


def show(session: Session, rows: list[Row], roofline: machine.Roofline) -> None:
    """Print a line a product, the means, and what the figures rest on."""
    times = ("best us", "median us", "packed us", "peer us")
    shares = ("of peak", "peer / rocpy", "peer / packed", "of roofline")
    kernels = machine.kernels_of_peers()
    cells = [
        (
            row["case"],
            *(number(row[key]) for key in ("best_us", "median_us", "packed_us", "best_peer_us")),
            ", ".join(filter(None, (row["best_peer"], kernels.get(row["best_peer"])))),
            *(
                "" if row[key] is None else f"{row[key]:.2f}"
                for key in ("best_peer_of_peak", "ratio", "packed_ratio", "of_roofline")
            ),
            row["verdict"],
        )
        for row in rows
    ]
    threads = "1 thread" if session.threads == 1 else f"{session.threads} threads"
    figures = (*times, *shares)
    columns = ("product", *times, "best peer", *shares, "")
    print_table(f"reach: {threads}, {session.clock} time", columns, cells, numbers=figures)
    for dtype in DTYPES:
        some = [row for row in rows if row["dtype"] == dtype]
        if some:
            allowed = [row["ratio"] for row in some if row["allows_mean"]]
            mean = f", {mean_of(allowed):.2f} over the {len(allowed)} whose roofline allows {MEAN}" if allowed else ""
            counts = ", ".join(
                f"{sum(row['verdict'] == word for row in some)} {word}" for word in ("ok", "even", "short")
            )
            say(
                f"{dtype}: {counts}; geometric mean of peer / rocpy {mean_of([row['ratio'] for row in some]):.2f}{mean}"
            )
    show_roofline(roofline)
    say(ran_on(rows[0]) + "\n")
    sys.stdout.flush()


def mean_of(ratios: list[float]) -> float:
    """Return the geometric mean."""
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


if __name__ == "__main__":
    sys.exit(main("reach", groups, run, threads=(1,), seconds=0.2, switches=fastest_switches))
