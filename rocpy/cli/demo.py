# SPDX-License-Identifier: MIT
"""`rocpy demo`: the fused product here, checked against a float64 oracle and timed beside numpy and torch."""

from __future__ import annotations

import importlib
import math
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rocpy.cli._application import Arguments, set_run
from rocpy.cli._output import EXIT_PROBLEM, print_json, print_table, say, say_folded
from rocpy.cli._output import progress as progress_bar
from rocpy.cli._parser import Parser, add_json

SHAPES = ((64, 3072, 768), (512, 3072, 768), (1024, 1024, 1024), (8, 4096, 4096))
# So long threads of numpy's and torch's products spin after their last call: OpenBLAS's for 2^26 cycles.
SPINNING_S, ROUNDS, CALLS_A_ROUND = 0.035, 6, 3
# hipBLASLt's gelu and ours: the tanh form.
SQRT_2_OVER_PI, CUBIC = np.float32(math.sqrt(2 / math.pi)), np.float32(0.044715)

Call = Callable[[], object]


def configure(parser: Parser) -> None:
    """Add the command's options."""
    add_json(parser)
    set_run(parser, demo)


def demo(arguments: Arguments) -> int:
    """Show platform and device, then gelu(x @ w + bias) in one product; a result out of its bound is a problem."""
    document = measure(progress=not arguments.as_json)
    if arguments.as_json:
        print_json(document)
    else:
        _show(document)
    return 0 if all(row["ok"] for row in document["rows"]) else EXIT_PROBLEM


def measure(*, progress: bool = False) -> dict[str, Any]:
    """Return platform, device, threads and one row a shape, ready for JSON.

    Parameters
    ----------
    progress
        Show a progress bar on standard error.

    Returns
    -------
    dict
        ``platform``, ``device``, ``arch``, ``info``, ``peers`` and ``rows``.
    """
    import rocpy

    current = rocpy.platform.current()
    device = current.devices[0]
    torch = _optional("torch")
    rows = []
    with progress_bar(shown=progress) as advance:
        for done, shape in enumerate(SHAPES):
            advance(done, len(SHAPES), "x".join(map(str, shape)))
            rows.append(_row(shape, torch))
    return {
        "platform": current.name,
        "is_emulated": current.is_emulated,
        "device": device.name,
        "arch": device.arch,
        "info": current.info,
        "peers": {"numpy": np.__version__}
        | ({} if torch is None else {"torch": str(torch.__version__), "torch threads": torch.get_num_threads()}),
        "rows": rows,
    }


def _optional(name: str) -> Any:
    # The demo shows itself beside what is installed and needs none of it; the library itself imports no framework.
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def _gelu(x: np.ndarray) -> np.ndarray:
    return np.float32(0.5) * x * (1 + np.tanh(SQRT_2_OVER_PI * (x + CUBIC * x * x * x)))


def _row(shape: tuple[int, int, int], torch: Any) -> dict[str, Any]:
    import rocpy
    from rocpy import testing

    m, n, k = shape
    rng = np.random.default_rng(m)
    x = rng.standard_normal((m, k), dtype=np.float32)
    w = rng.standard_normal((k, n), dtype=np.float32) / np.float32(math.sqrt(k))
    bias = rng.standard_normal(n, dtype=np.float32)
    weight = rocpy.Weight(w, bias=bias)
    expected = testing.evaluate(x, w, epilogue="gelu_bias", bias=bias)
    bound = testing.bounds(expected, np.float32)["result"]
    results = {
        "rocpy": rocpy.matmul(x, w, epilogue="gelu_bias", bias=bias),
        "rocpy Weight": rocpy.matmul(x, weight, epilogue="gelu_bias"),
    }
    compared = {name: testing.compare(result, expected.result, bound, name=name) for name, result in results.items()}
    calls: dict[str, Call] = {
        "rocpy": lambda: rocpy.matmul(x, w, epilogue="gelu_bias", bias=bias),
        "rocpy Weight": lambda: rocpy.matmul(x, weight, epilogue="gelu_bias"),
        "numpy": lambda: _gelu(x @ w + bias),
    }
    if torch is not None:
        tensors = torch.from_numpy(x), torch.from_numpy(np.ascontiguousarray(w.T)), torch.from_numpy(bias)
        functional = torch.nn.functional
        calls["torch"] = lambda: functional.gelu(functional.linear(*tensors), approximate="tanh")
    best = _best_ms(calls)
    return {
        "shape": list(shape),
        "ok": all(comparison.ok for comparison in compared.values()),
        "error_over_bound": max(comparison.ratio for comparison in compared.values()),
        "max_error": max(comparison.max_error for comparison in compared.values()),
        "messages": [comparison.message for comparison in compared.values() if comparison.message],
        "algorithm": chosen.name if (chosen := rocpy.explain(x, weight, epilogue="gelu_bias").algorithm) else "",
        "best_ms": best,
    }


def _best_ms(calls: Mapping[str, Call]) -> dict[str, float]:
    """Return the best time of each call, in rounds that interleave them: each alone on the machine's cores."""
    best = dict.fromkeys(calls, math.inf)
    for _ in range(ROUNDS):
        for name, call in calls.items():
            time.sleep(SPINNING_S)
            call()  # wakes its threads
            for _ in range(CALLS_A_ROUND):
                start = time.perf_counter()
                call()
                best[name] = min(best[name], (time.perf_counter() - start) * 1e3)
    return best


def _show(document: Mapping[str, Any]) -> None:
    emulated = " (on the CPU)" if document["is_emulated"] else ""
    info = document["info"]
    threads = f", {info['threads']} threads" if "threads" in info else ""
    say(f"platform {document['platform']}{emulated}")
    say_folded(f"device {document['device']}, {document['arch']}{threads}")
    say_folded("beside " + ", ".join(f"{name} {version}" for name, version in document["peers"].items()))
    if "torch" not in document["peers"]:
        say("torch is not installed and is not compared")
    say()
    rivals = [name for name in document["rows"][0]["best_ms"] if not name.startswith("rocpy")]
    rows = []
    for row in document["rows"]:
        best = row["best_ms"]
        error = f"{row['error_over_bound']:.1g}" + ("" if row["ok"] else " TOO LARGE")
        times = [f"{best[name]:.2f}" for name in ("rocpy", "rocpy Weight", *rivals)]
        rows.append(
            (
                "x".join(map(str, row["shape"])),
                error,
                *times,
                *(f"{best[name] / best['rocpy']:.2f}x" for name in rivals),
            )
        )
    columns = ("M x N x K", "error", "rocpy", "Weight", *rivals, *(f"vs {name}" for name in rivals))
    print_table("gelu(x @ w + bias), float32, in one product; best times in ms", columns, rows)
    for row in document["rows"]:
        for message in row["messages"]:
            say(message)
    say_folded("error: largest difference from float64, over the bound derived from K and roundings.")
    say_folded("At most 1 is correct. Weight: with the weights packed in advance.")
