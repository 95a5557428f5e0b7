# SPDX-License-Identifier: MIT
"""What programs do with a Weight, each as a step that threads may take at any time and that checks what it gets."""

from __future__ import annotations

import pickle
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import rocpy
from rocpy.blaslt.operands.weight import sources_may_have_changed

M, K, N = 24, 192, 160
# What elements of the source may be: a result is K times one of them, or a sum of several while the source is written.
LOW, HIGH = 1, 4


class Shared:
    """A Weight that all steps use, what it is made of, and operands to multiply it by.

    Parameters
    ----------
    kind : str
        ``"numpy"``, ``"torch"`` or ``"mx"``.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.x: Any = np.ones((M, K), np.float32)
        self.source: Any = np.ones((K, N), np.float32)
        self.more: dict[str, Any] = {}
        self.scales: dict[str, Any] = {}
        if kind == "mx":
            import ml_dtypes

            self.x, self.source = (array.astype(ml_dtypes.float8_e4m3fn) for array in (self.x, self.source))
            self.more = {"scale": np.full((K // 32, N), 127, np.uint8)}
            self.scales = {"scale_a": np.full((M, K // 32), 127, np.uint8)}
        elif kind == "torch":
            import torch

            self.x, self.source = torch.ones(M, K), torch.ones(K, N)
        self.bias = None if kind == "mx" else self.source[0] * 0
        self.weight = self.build()

    def build(self) -> rocpy.Weight:
        """Return another Weight of the same source."""
        return rocpy.Weight(self.source, self.bias, **self.more)

    def check(self, result: Any) -> None:
        """Refuse what no value that the source had explains."""
        values = np.asarray(result).astype(np.float64)
        low, high = values.min(), values.max()
        assert low >= K * LOW, f"{low} for at least {K * LOW}"
        assert high <= K * HIGH, f"{high} for at most {K * HIGH}"


def multiply(shared: Shared) -> None:
    shared.check(rocpy.matmul(shared.x, shared.weight, dtype="float32", **shared.scales))


def multiply_with_bias(shared: Shared) -> None:
    epilogue = "bias" if shared.bias is not None else None
    shared.check(rocpy.matmul(shared.x, shared.weight, epilogue=epilogue, dtype="float32", **shared.scales))


def multiply_on_a_stream(shared: Shared) -> None:
    with rocpy.Stream() as stream:
        result = rocpy.matmul(shared.x, shared.weight, dtype="float32", stream=stream, **shared.scales)
        stream.synchronize()
        shared.check(result)


def custom_epilogue(shared: Shared) -> None:
    shared.check(rocpy.matmul(shared.x, shared.weight, epilogue=SAME, dtype="float32", **shared.scales))


def plan(shared: Shared) -> None:
    with rocpy.Matmul(shared.x, shared.weight, dtype="float32", **shared.scales) as planned:
        shared.check(planned.execute())
        time.sleep(0)
        shared.check(planned.execute())


def grouped(shared: Shared) -> None:
    for result in rocpy.grouped_matmul([shared.x, shared.x], shared.weight, dtype="float32", **shared.scales):
        shared.check(result)


def capture(shared: Shared) -> None:
    # Products of other threads run on the null stream, which waits for blocking streams: HIP forbids that in a capture.
    with rocpy.Stream(nonblocking=True) as stream:
        out = np.zeros((M, N), np.float32)
        if shared.kind == "torch":
            import torch

            out = torch.zeros(M, N)
        with stream.capture() as graph:
            rocpy.matmul(shared.x, shared.weight, out=out, stream=stream, dtype="float32", **shared.scales)
        time.sleep(0)
        for _ in range(2):
            graph.launch()
            stream.synchronize()
            shared.check(out)
        graph.close()


def refresh(shared: Shared) -> None:
    shared.weight.refresh()


def close(shared: Shared) -> None:
    before = shared.weight
    shared.weight = shared.build()
    before.close()


def change_source(shared: Shared) -> None:
    if shared.kind == "torch":
        shared.source.fill_(int(shared.source[0, 0]) % HIGH + 1)
    elif shared.kind == "numpy":
        shared.source[:] = int(shared.source[0, 0]) % HIGH + 1
    else:
        shared.source[:] = 1
    sources_may_have_changed()


def copy_by_pickle(shared: Shared) -> None:
    again = pickle.loads(pickle.dumps(shared.weight))
    shared.check(rocpy.matmul(shared.x, again, dtype="float32", **shared.scales))


def describe(shared: Shared) -> None:
    weight = shared.weight
    assert "rocpy.Weight" in repr(weight)
    assert weight.shape == (K, N)
    assert weight.packed in (True, False)
    assert (weight.bias is None) == (shared.bias is None)


SAME = rocpy.epilogue(lambda x: x + 0.0)

STEPS: dict[str, Callable[[Shared], None]] = {
    step.__name__: step
    for step in (
        multiply, multiply_with_bias, multiply_on_a_stream, custom_epilogue, plan, grouped, capture, refresh, close,
        change_source, copy_by_pickle, describe,
    )
}  # fmt: skip


def make_others(stop: Callable[[], bool]) -> None:
    """Make and free packed memory of other values, where memory that was freed too early would show them."""
    other = np.full((K, N), -1.7e38, np.float32)
    while not stop():
        rocpy.Weight(other).close()


def run_together(
    shared: Shared, steps: list[Callable[[Shared], None]], *, rounds: int = 0, seconds: float = 0.0
) -> list[BaseException]:
    """Take each step in a thread of its own, again and again, beside a thread that makes other Weights.

    Parameters
    ----------
    shared : Shared
        What they share.
    steps : list
        A step of each thread.
    rounds : int
        How often; or
    seconds : float
        for how long.

    Returns
    -------
    list of BaseException
        What the steps raised besides ClosedError, which who multiplies by a closed Weight gets.
    """
    failures: list[BaseException] = []
    until = time.monotonic() + seconds
    done = threading.Event()

    def work(step: Callable[[Shared], None]) -> None:
        count = 0
        while not failures and (count < rounds if rounds else time.monotonic() < until):
            count += 1
            try:
                step(shared)
            except rocpy.ClosedError:
                continue
            except BaseException as error:
                failures.append(error)

    threads = [threading.Thread(target=work, args=(step,)) for step in steps]
    other = threading.Thread(target=make_others, args=(done.is_set,))
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in (*threads, other):
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        done.set()
        other.join()
        sys.setswitchinterval(interval)
    return failures
