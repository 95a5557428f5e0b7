# SPDX-License-Identifier: MIT
"""Which instruction set each peer is fastest with: tried in processes of their own, one for each value of its switch.

A peer's library may choose kernels for another processor than it runs on, as MKL does on AMD's. A comparison with
whatever it chose would be one with its dispatch.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

# For each environment variable: the peer that shows what a value does, and the values; an empty one leaves it unset.
SWITCHES = {
    "OPENBLAS_CORETYPE": ("numpy", ("", "SapphireRapids", "Cooperlake", "SkylakeX", "Zen", "Haswell")),
    "BLIS_ARCH_TYPE": ("blis", ("", "skx", "zen3", "zen2", "haswell")),
    "MKL_ENABLE_INSTRUCTIONS": ("torch", ("", "AVX512", "AVX2")),
    "ATEN_CPU_CAPABILITY": ("torch", ("", "avx512", "avx2")),
    "ONEDNN_MAX_CPU_ISA": ("torch", ("", "AVX512_CORE", "AVX2")),
}
# Products that are bound by arithmetic, by packing and by memory.
SHAPES = ((512, 512, 512), (64, 3072, 768), (8, 4096, 4096))
# A set takes the place of the library's own choice only if it is clearly faster.
CLEARLY = 1.02


def best(environment: Mapping[str, str], *, quick: bool = False) -> dict[str, str]:
    """Return the switches that make the peers fastest on this machine; those whose default is as fast are absent."""
    chosen: dict[str, str] = {}
    for variable, (peer, values) in SWITCHES.items():
        rates = {value: _rate(peer, environment | chosen, variable, value, quick=quick) for value in values}
        if not rates[""]:
            continue  # the peer is absent
        fastest = max(rates, key=lambda value: rates[value])
        if rates[fastest] > CLEARLY * rates[""]:
            chosen[variable] = fastest
        tried = ", ".join(f"{value or 'its own choice'} {rate:.1f}" for value, rate in rates.items() if rate)
        print(f"{peer} by {variable}: {tried} GF/s; {fastest if variable in chosen else 'its own choice'}", flush=True)
    return chosen


def _rate(peer: str, environment: Mapping[str, str], variable: str, value: str, *, quick: bool) -> float:
    """Return the mean GF/s of a peer in a process of its own; 0 where it is absent or cannot run with the value."""
    own = dict(environment)
    own.pop(variable, None)
    if value:
        own[variable] = value
    words = [sys.executable, "-m", "peers.switches", peer, *(["--quick"] if quick else [])]
    folder = Path(__file__).parents[1]
    done = subprocess.run(words, env=own, cwd=folder, capture_output=True, text=True, check=False)
    return float(json.loads(done.stdout)) if done.returncode == 0 else 0.0


def _products(peer: str) -> Iterator[tuple[float, Callable[[], Any]]]:
    """Yield multiply-adds and a call of the peer for each shape; nothing where it is absent."""
    from peers import normal, optional, to_torch

    module = optional({"blis": "blis.py"}.get(peer, peer))
    if module is None:
        return
    if peer == "torch":
        module.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    for m, n, k in SHAPES:
        a, b = normal("a", m, k), normal("b", k, n)
        if peer == "torch":
            a, b = to_torch(module, a), to_torch(module, b)
            # With the activation that oneDNN and ATEN compute as well.
            yield 2.0 * m * n * k, lambda a=a, b=b, module=module: module.nn.functional.gelu(a @ b)
        elif peer == "blis":
            yield 2.0 * m * n * k, lambda a=a, b=b, module=module: module.gemm(a, b)
        else:
            yield 2.0 * m * n * k, lambda a=a, b=b: np.matmul(a, b)


def main() -> int:
    """Print the geometric mean of a peer's GF/s over the shapes, as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("peer", choices=sorted({peer for peer, _ in SWITCHES.values()}))
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    logarithms = []
    for flops, call in _products(arguments.peer):
        call()
        end, shortest = time.perf_counter() + (0.01 if arguments.quick else 0.3), math.inf
        while time.perf_counter() < end:
            begun = time.perf_counter()
            call()
            shortest = min(shortest, time.perf_counter() - begun)
        logarithms.append(math.log(flops / shortest / 1e9))
    print(json.dumps(math.exp(sum(logarithms) / len(logarithms)) if logarithms else 0.0))
    return 0


if __name__ == "__main__":
    sys.exit(main())
