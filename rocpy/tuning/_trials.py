# SPDX-License-Identifier: MIT
"""Trials of a product's algorithms: timed on its stream, compared with float64, and shown while they go on.

They are what a race calls; they know nothing of it.
"""

from __future__ import annotations

import contextlib
import importlib.util
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rocpy import platform
from rocpy._producers.torch_refusals import TorchLayerRequired
from rocpy.blaslt.engine.streams import device_and_stream
from rocpy.blaslt.model.planned_product import PlannedProduct
from rocpy.blaslt.model.tuning_report import Trial
from rocpy.blaslt.selection import library as _library
from rocpy.errors import InvalidOperandError, LibraryError, RocpyError, UnsupportedError, warn
from rocpy.runtime.device import Device
from rocpy.runtime.memory import Buffer
from rocpy.tuning._retrial import Retrial
from rocpy.tuning._timing import Stopwatch
from rocpy.tuning._verification import Sample

__all__ = [
    "WrongResultError", "device_and_stream_of", "progress_bar", "takes_longer", "trials", "verified",
    "without_wrong_first",
]  # fmt: skip

# The bar is shown once a tuning took this long.
PATIENCE_S = 1.0
# What flushing writes on a GPU: above the largest cache behind the L2, which HIP does not tell (256 MB on MI300X).
GPU_FLUSH_BYTES = 512 << 20

_FAILED, _UNDECIDED = "failed: ", "undecided: "


def without_wrong_first(
    product: PlannedProduct, by_rank: list[Any], sample: Sample | None, retrial: Retrial
) -> tuple[list[Any], list[Trial]]:
    """Drop algorithms with wrong results from the front of the list, so that the race begins with a right one."""
    wrong: list[Trial] = []
    while sample is not None:
        message = _wrong(product, by_rank[0], sample, retrial)
        if not message or message.startswith(_UNDECIDED):
            break
        warn(
            f"algorithm {by_rank[0].name or by_rank[0].id} gives wrong results for {product.problem} and is not used: "
            f"{message}"
        )
        wrong.append(Trial(by_rank[0], None, 0.0, 0, message))
        by_rank = by_rank[1:]
        if not by_rank:
            if not any(
                trial.dropped.startswith(_FAILED) for trial in wrong
            ):  # one that fails may be right for other sizes
                _library.keep_wrong(
                    product.launched, device_and_stream_of(product)[0], None, f"all algorithms are wrong: {message}"
                )
            raise UnsupportedError(
                f"autotune: each of the library's {len(wrong)} algorithms fails or is wrong for {product.problem}: "
                f"{message}; `rocpy doctor --selftest` shows what else is wrong"
            )
    return by_rank, wrong


def verified(
    product: PlannedProduct,
    by_rank: Sequence[Any],
    measure: Callable[[int], tuple[float, float]],
    sample: Sample | None,
    retrial: Retrial,
) -> Callable[[int], tuple[float, float]]:
    """Return a measurer that compares a candidate's result with float64 before its first trial counts."""
    right = {0}

    def checked(rank: int) -> tuple[float, float]:
        if sample is not None and rank not in right:
            message = _wrong(product, by_rank[rank], sample, retrial)
            if message:
                raise WrongResultError(message.removeprefix(_FAILED))
            right.add(rank)
        return measure(rank)

    return checked


def _wrong(product: PlannedProduct, algorithm: Any, sample: Sample, retrial: Retrial) -> str:
    try:
        result, additional = _outputs(product.execute(algorithm=algorithm))
    except TorchLayerRequired:  # says nothing of an algorithm
        raise
    except (LibraryError, UnsupportedError) as error:
        return f"{_FAILED}{error}"
    message = sample.wrong(result, additional)
    if not message:
        return ""
    confirmed = retrial.wrong((algorithm.id, algorithm.name))
    if confirmed is None:
        return f"{_UNDECIDED}{message}"
    if confirmed:
        _library.keep_wrong(product.launched, device_and_stream_of(product)[0], algorithm, confirmed)
    return confirmed


def _outputs(result: Any) -> tuple[Any, dict[str, Any]]:
    """Return a product's result, and by name what it gives beside that."""
    return result if isinstance(result, tuple) else (result, {})


class WrongResultError(RocpyError):
    """An algorithm whose numbers are not those of the product: it is left out of the race."""


def device_and_stream_of(product: PlannedProduct) -> tuple[int, int]:
    return device_and_stream(product.operand_arrays["a"], product.stream)


def takes_longer(product: PlannedProduct, algorithm: Any, device: int, stream: int, limit_ms: float) -> bool:
    """Whether one product takes longer than a limit: twice, since the first launch of a kernel may load its code."""
    watch = Stopwatch(device, stream)
    try:
        return all(watch.time_ms(lambda: product.execute(algorithm=algorithm)) > limit_ms for _ in range(2))
    except (LibraryError, UnsupportedError):  # an algorithm that fails is left out later, with a warning
        return False
    finally:
        watch.close()


@contextlib.contextmanager
def trials(
    product: PlannedProduct, device: int, stream: int, by_rank: Sequence[Any]
) -> Iterator[Callable[[int], tuple[float, float]]]:
    """Give the function that makes one trial of one algorithm: right after the caches were flushed, then once more.

    Results go to scratch arrays, so that neither the user's result nor a C that it would replace is touched.
    """
    algorithms = by_rank
    flush = Buffer(_flush_bytes(device), "uint8", device=device)
    watch = Stopwatch(device, stream)
    result = product.execute(algorithm=algorithms[0])
    scratch = result[0] if isinstance(result, tuple) else result
    try:
        product.execute(algorithm=algorithms[0], out=scratch)
    except InvalidOperandError:  # an immutable array: each trial makes a result of its own
        scratch = None

    def measure(index: int) -> tuple[float, float]:
        algorithm = algorithms[index]

        def work() -> None:
            product.execute(algorithm=algorithm, out=scratch)

        flush.fill(index & 0xFF, stream=stream)
        cold = watch.time_ms(work)
        return max(cold, 1e-6), max(watch.time_ms(work), 1e-6)

    try:
        yield measure
    finally:
        watch.close()
        flush.close()


def _flush_bytes(device: int) -> int:
    chosen = Device(device)
    wanted = 2 * int(chosen.properties["l2_cache_bytes"])
    if not platform.current().is_emulated:
        wanted = max(wanted, GPU_FLUSH_BYTES)
    return max(1 << 20, min(wanted, chosen.memory.free_bytes // 4))


@contextlib.contextmanager
def progress_bar(title: str) -> Iterator[Callable[[float], None] | None]:
    """Give a function that moves a bar on a terminal, which appears after a second, where rich is installed."""
    if not sys.stderr.isatty() or importlib.util.find_spec("rich") is None:
        yield None
        return
    started = time.perf_counter()
    shown: list[Any] = []

    def move(part: float) -> None:
        if not shown:
            if time.perf_counter() - started < PATIENCE_S:
                return
            from rich.console import Console
            from rich.progress import Progress

            bar = Progress(console=Console(stderr=True), transient=True)
            bar.start()
            shown.extend((bar, bar.add_task(f"tuning {title}", total=1.0)))
        shown[0].update(shown[1], completed=part)

    try:
        yield move
    finally:
        if shown:
            shown[0].stop()
