# SPDX-License-Identifier: MIT
"""Every pair of what programs do with one Weight, in threads: products read memory that is theirs."""

from __future__ import annotations

import itertools
import random
import threading

import numpy as np
import pytest
from presented import is_composed
from weight_operations import STEPS, K, Shared, run_together

import rocpy

KINDS = ["numpy", pytest.param("torch", marks=pytest.mark.torch), "mx"]


def shared_of(kind):
    if kind == "mx":
        pytest.importorskip("ml_dtypes")
    return Shared(kind)


def steps_of(kind):
    """What programs do with a Weight of a kind: no graph holds a product that is composed, or copied to the device."""
    blocks = {"scale_a": "block32", "scale_b": "block32", "dtype": "float32"}
    composed = kind == "mx" and is_composed("float8_e4m3fn", **blocks)
    held = rocpy.platform.current().host_memory and not composed
    return {name: step for name, step in STEPS.items() if name != "capture" or held}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("one", list(STEPS))
def test_every_pair_of_operations(kind, one):
    shared, steps = shared_of(kind), steps_of(kind)
    names = list(steps)
    if one not in steps:
        pytest.skip("no graph holds such a product here")
    for other in names[names.index(one) :]:
        failures = run_together(shared, [steps[one], steps[other]], rounds=5)
        assert not failures, f"{one} beside {other}: {failures[0]!r}"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("third", ["refresh", "close", "change_source"])
def test_two_threads_multiply_while_a_third_has_its_way(kind, third):
    shared = shared_of(kind)
    steps = [STEPS["multiply"], STEPS["multiply_on_a_stream"], STEPS[third]]
    failures = run_together(shared, steps, rounds=40)
    assert not failures, failures[0]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_soak(kind, soak_s):
    """All operations at once, in another order each second, for as long as ``--soak-s`` says."""
    shared = shared_of(kind)
    rest = random.Random(5)
    steps = list(steps_of(kind).values())
    for _ in range(max(1, int(soak_s / len(KINDS)))):
        failures = run_together(shared, rest.sample(steps, 6), seconds=1.0)
        assert not failures, failures[0]


def test_closing_lets_running_products_finish_and_refuses_later_ones():
    shared = Shared("numpy")
    with rocpy.Stream() as stream:
        results = [rocpy.matmul(shared.x, shared.weight, stream=stream) for _ in range(20)]
        shared.weight.close()
        others = [rocpy.Weight(np.full(shared.source.shape, np.nan, np.float32)) for _ in range(4)]
        for use in (
            lambda: rocpy.matmul(shared.x, shared.weight),
            lambda: rocpy.Matmul(shared.x, shared.weight),
            lambda: rocpy.grouped_matmul([shared.x], shared.weight),
            lambda: rocpy.matmul(shared.x, shared.weight, epilogue=rocpy.epilogue(lambda x: x + 0.0)),
            lambda: rocpy.explain(shared.x, shared.weight),
            shared.weight.refresh,
            shared.weight.matrix,
        ):
            with pytest.raises(rocpy.ClosedError, match="Weight was closed"):
                use()
        stream.synchronize()
        for result in results:
            shared.check(result)
        del others


def test_a_plan_goes_on_with_a_refreshed_weight_and_ends_with_a_closed_one():
    shared = Shared("numpy")
    for epilogue in (None, rocpy.epilogue(lambda x: x + 0.0)):
        weight = shared.build()
        with rocpy.Matmul(shared.x, weight, epilogue=epilogue) as planned:
            assert (planned.execute() == K).all()
            shared.source[:] = 2
            assert (planned.execute() == K).all()
            weight.refresh()
            assert (planned.execute() == 2 * K).all()
            weight.close()
            with pytest.raises(rocpy.ClosedError):
                planned.execute()
        shared.source[:] = 1


def test_one_call_takes_the_weight_and_its_bias_of_one_time():
    """A refresh between reading the bias and reading the matrix gives no mixture of both."""
    source, bias = np.ones((K, 64), np.float32), np.full(64, K, np.float32)
    x = np.ones((4, K), np.float32)
    weight = rocpy.Weight(source, bias)

    def publish(value):
        source[:] = value
        bias[:] = K * value
        weight.refresh()

    stop = threading.Event()

    def change():
        for value in itertools.cycle((1, 2, 3)):
            publish(value)
            if stop.is_set():
                return

    thread = threading.Thread(target=change)
    thread.start()
    try:
        for _ in range(300):
            values = np.unique(rocpy.matmul(x, weight, epilogue="bias"))
            assert len(values) == 1
            assert values[0] % (2 * K) == 0, values
    finally:
        stop.set()
        thread.join()


def test_a_plan_with_an_epilogue_of_the_users_belongs_to_one_thread_at_a_time():
    """A plan belongs to one thread at a time, one with an epilogue of the user's too."""
    x = np.ones((600, 600), np.float32)
    with rocpy.Matmul(x, x, epilogue=rocpy.epilogue(lambda y: np.tanh(y) * 2)) as planned:
        planned.plan()
        expected = planned.execute()
        refused, wrong = [], []

        def work():
            for _ in range(20):
                try:
                    if not np.array_equal(planned.execute(), expected):
                        wrong.append(1)
                except rocpy.RocpyError as error:
                    refused.append(str(error))

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong
        assert all("another thread" in text for text in refused)
