# SPDX-License-Identifier: MIT
"""Kernels on fibers against numpy, torch and Numba's simulator, on one core; the first call with code on disk."""

import importlib.util
import os
import subprocess
import sys
import tempfile
import time
import types
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from harness import Entry, Groups, Session, each, main
from peers import optional

from rocpy import cooperative as coop
from rocpy._messages.distribution import install_command
from rocpy.cooperative.cpu import _simt

THREADS = 256
ITEMS = 16
EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
WITHOUT_EXAMPLES = "layer norm is one of the examples, which the source tree has and an installed package does not"


@coop.jit(threads=1)
def empty(out):
    if coop.grid(1) < 0:
        out[0] = 1


@coop.jit(threads=1)
def sum_striped(x, out):
    block = coop.this_block()
    items = coop.ThreadData(16, np.float32)
    tile = coop.blockIdx.x * coop.blockDim.x * 16
    coop.load(block, x, items, algorithm="striped", valid_items=x.shape[0] - tile, oob_default=0, offset=tile)
    total = coop.sum(block, items)
    if coop.threadIdx.x == 0:
        out[coop.blockIdx.x] = total


@coop.jit(threads=1)
def sum_single(x, out):
    i = coop.grid(1)
    total = coop.sum(coop.this_block(), x[i] if i < x.shape[0] else np.float32(0))
    if coop.threadIdx.x == 0:
        out[coop.blockIdx.x] = total


@coop.jit(threads=1)
def sum_tree(x, out):
    held = coop.shared.array(256, np.float32)
    t, i = coop.threadIdx.x, coop.grid(1)
    held[t] = x[i] if i < x.shape[0] else np.float32(0)
    step = 128
    while step:
        coop.syncthreads()
        if t < step:
            held[t] += held[t + step]
        step //= 2
    if t == 0:
        out[coop.blockIdx.x] = held[0]


def compile_ms() -> float:
    """Return the time that a new kernel with one primitive takes, what the device library adds being on disk."""
    best = float("inf")
    for _ in range(6):
        function = sum_single.function  # a copy is a kernel that nothing is known of
        kernel = coop.jit(types.FunctionType(function.__code__, function.__globals__, function.__name__))
        begin = time.perf_counter()
        coop.compile(kernel, "void(float32[::1],float32[::1])", "gfx942", cache=False)
        best = min(best, time.perf_counter() - begin)
    return best * 1e3


def layer_norm_of(session: Session, *, case: str, size: int) -> None:
    """Layer norm of the examples against torch's, with 64 threads a row."""
    try:
        import torch
    except ModuleNotFoundError:
        session.note("torch is not installed: no layer norm")
        return
    if not EXAMPLES.is_dir():
        session.note(WITHOUT_EXAMPLES)
        return
    sys.path.insert(0, str(EXAMPLES))
    import kernels

    rows, columns = size, 1024
    x = torch.randn(rows, columns)
    names = {"x": x, "out": torch.empty_like(x), "weight": torch.ones(columns), "bias": torch.zeros(columns)}
    names |= {"kernel": coop.jit(threads=1)(kernels.layer_norm.function), "rows": rows, "columns": columns}
    names |= {"torch_norm": torch.nn.functional.layer_norm}
    session.compare(
        case,
        [
            Entry("torch", "torch_norm(x, (columns,), weight, bias)", names),
            Entry("64 threads a row", "kernel[rows, 64](x, weight, bias, 1e-5, out)", names),
        ],
        against="torch",
        gpu_threads=rows * 64,
    )


# The tree of `sum_tree` on Numba's simulator, which is chosen before Numba is imported.
SIMULATED = """
import time, warnings
warnings.simplefilter("ignore")
import numpy as np
from numba import cuda, float32

@cuda.jit
def tree(x, out):
    held = cuda.shared.array(256, float32)
    t = cuda.threadIdx.x
    held[t] = x[cuda.grid(1)]
    step = 128
    while step:
        cuda.syncthreads()
        if t < step:
            held[t] += held[t + step]
        step //= 2
    if t == 0:
        out[cuda.blockIdx.x] = held[0]

x, out = np.ones(512, np.float32), np.zeros(2, np.float32)
begin = time.process_time()
tree[2, 256](x, out)
print((time.process_time() - begin) / 512)
assert (out == 256).all()
"""

# Arguments: folder of the kernels, and what to import before the clock starts.
FIRST = """
import sys, time
sys.path.insert(0, sys.argv[1])
import numpy as np
import kernels
for name in sys.argv[2:]:
    __import__(name)
x = np.ones((4, 1024), np.float32)
ones = np.ones(1024, np.float32)
begin = time.perf_counter()
kernels.layer_norm[4, 64](x, ones, ones, 1e-5, x)
print(time.perf_counter() - begin)
"""


def simulator(session: Session, own_us: float) -> None:
    """Seconds a thread of Numba's simulator, against those of the same kernel here."""
    environment = os.environ | {"NUMBA_ENABLE_CUDASIM": "1"}
    done = subprocess.run(
        [sys.executable, "-c", SIMULATED], capture_output=True, text=True, env=environment, check=False
    )
    if done.returncode:
        session.note(f"Numba's simulator does not run here: {done.stderr.strip().splitlines()[-1]}")
        return
    theirs = float(done.stdout) * 1e6
    session.note(
        f"tree in shared memory: Numba's simulator {theirs:.0f} us a thread, here {own_us * 1e3:.0f} ns: "
        f"{theirs / own_us:.0f} times as fast"
    )


def first_call(session: Session) -> None:
    """First launch in a new process, which has imported numpy and rocpy.cooperative, of a kernel that lies on disk."""
    if not EXAMPLES.is_dir():
        session.note(WITHOUT_EXAMPLES)
        return
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"NUMBA_CACHE_DIR": folder}

        def seconds(*imported: str) -> float:
            command = [sys.executable, "-c", FIRST, str(EXAMPLES), *imported]
            done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
            return float(done.stdout)

        compiled = seconds()
        kept, with_numba = (min(seconds(*imported) for _ in range(4)) for imported in ((), ("numba",)))
    session.note(
        f"first launch of layer norm in a process: {compiled:.2f} s compiled; from disk {kept:.3f} s, or "
        f"{with_numba:.3f} s where Numba is imported already (best of 4)"
    )


KERNELS = {"threads": THREADS, "empty": empty, "striped": sum_striped, "single": sum_single, "tree": sum_tree}


def numbers(size: int) -> np.ndarray:
    """Return normal values, the same for the same size."""
    return np.random.default_rng(0).standard_normal(size, dtype=np.float32)


def sum_of_many(session: Session, *, case: str, size: int) -> None:
    """Sum with 16 numbers a thread."""
    x = numbers(size)
    blocks = -(-len(x) // (THREADS * ITEMS))
    names = KERNELS | {"x": x, "blocks": blocks, "out": np.zeros(blocks, np.float32)}
    session.compare(
        case,
        [
            Entry("numpy", "x.sum()", names),
            Entry("16 striped items a thread", "striped[blocks, threads](x, out)", names),
        ],
        against="numpy",
        gpu_threads=blocks * THREADS,
    )


def sum_of_few(session: Session, *, case: str, size: int) -> None:
    """Sums with one number a thread, and a launch of nothing."""
    x = numbers(size)
    blocks = -(-len(x) // THREADS)
    names = KERNELS | {"x": x, "blocks": blocks, "out": np.zeros(blocks, np.float32)}
    session.compare(
        case,
        [
            Entry("numpy", "x.sum()", names),
            Entry("coop.sum", "single[blocks, threads](x, out)", names),
            Entry("tree in shared memory", "tree[blocks, threads](x, out)", names),
            Entry("nothing", "empty[blocks, threads](out)", names),
        ],
        against="numpy",
        gpu_threads=blocks * THREADS,
    )


def groups(*, quick: bool) -> Groups:
    size, rows = (100_000, 64) if quick else (10_000_000, 4096)
    for case, measure, extent in (
        (f"sum of {size} float32", sum_of_many, size),
        (f"sum of {size // 50} float32, one a thread", sum_of_few, size // 50),
        (f"layer norm of ({rows}, 1024) float32", layer_norm_of, rows),
    ):
        yield case, partial(measure, case=case, size=extent)


def run(session: Session, measures: Sequence[Callable[[Session], None]]) -> None:
    if optional("numba") is None:
        session.note(f"Numba is not installed: no kernel is compiled ({install_command('cooperative')})")
        return
    each(session, measures)
    if not session.only:
        notes(session)


def notes(session: Session) -> None:
    """Measure what no library of Python's has: switches of fibers, compilation, Numba's simulator, the first launch."""
    for fibers in (2, 64, 256):
        best = min(_simt.measure_switch_ns(fibers, 20000) for _ in range(5))
        session.note(f"switch between two of {fibers} fibers: {best:.1f} ns (best of 5)")
    if importlib.util.find_spec("ziglang"):
        session.note(f"coop.compile of a block sum for gfx942: {compile_ms():.0f} ms (best of 6)")
    tree = next(row for row in session.rows if row["label"].startswith("tree"))
    simulator(session, tree["best_us"] / tree["gpu_threads"])
    first_call(session)


if __name__ == "__main__":
    sys.exit(main("cooperative", groups, run))
