# SPDX-License-Identifier: MIT
"""Many threads in the function form, on shared and separate operands, streams and weights."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import rocpy
from rocpy.testing import cases as case_list
from rocpy.testing import run_case


def in_threads(count, work):
    """Run work(index) in threads that start together; raises the first failure."""
    start = threading.Barrier(count)

    def run(index):
        start.wait()
        return work(index)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


def scale_kinds(case):
    """Return the kinds of a case's scales, as `supported` takes them."""
    kind = {"": None, "batch": "vector"}.get(case.scale, case.scale)
    return {"scale_a": kind, "scale_b": kind}


def test_the_case_list_in_parallel():
    chosen = [
        case
        for case in case_list.cases("quick")[::9]
        # Devices differ in the types that they have; every one has the common ones.
        if case.dtype in case_list.DTYPES
        or rocpy.blaslt.supported(case.dtype, case.dtype_b or None, **scale_kinds(case))
    ]

    def work(index):
        for case in chosen[index::4]:
            result = run_case(case)
            assert result.ok, result.message

    in_threads(4, work)


@pytest.mark.parametrize(("size", "rounds"), [(65, 200), (400, 5)])
def test_one_problem_in_all_threads(size, rounds, rng):
    a, b = rng.standard_normal((size, 80), dtype=np.float32), rng.standard_normal((80, size + 5), dtype=np.float32)
    expected = rocpy.matmul(a, b, epilogue="gelu")

    def work(_):
        for _ in range(rounds):
            assert np.array_equal(rocpy.matmul(a, b, epilogue="gelu"), expected)

    in_threads(8, work)


def test_a_shared_weight(rng):
    x, weight = rng.standard_normal((9, 33), dtype=np.float32), rng.standard_normal((33, 21), dtype=np.float32)
    w = rocpy.Weight(weight)
    expected = rocpy.matmul(x, w)

    def work(_):
        for _ in range(200):
            assert np.array_equal(rocpy.matmul(x, w), expected)

    in_threads(6, work)


@pytest.mark.torch
def test_a_torch_weight_that_changes_under_readers(torch):
    # Values may be torn; packed memory, handles and counts must not be.
    x, weight = torch.ones(4, 16), torch.ones(16, 8)
    w = rocpy.Weight(weight)

    def work(index):
        for _ in range(100):
            if index == 0:
                weight.add_(1)
            else:
                assert rocpy.matmul(x, w).shape == (4, 8)

    in_threads(4, work)
    torch.testing.assert_close(rocpy.matmul(x, w), x @ weight)


def test_a_stream_per_thread(rng):
    a = rng.standard_normal((100, 100), dtype=np.float32)
    expected = rocpy.matmul(a, a)

    def work(_):
        with rocpy.Stream() as stream:
            for _ in range(20):
                d = rocpy.matmul(a.copy(), a.copy(), stream=stream)
                stream.synchronize()
                assert np.array_equal(d, expected)

    in_threads(6, work)


def test_one_stream_in_all_threads(rng):
    a = rng.standard_normal((50, 50), dtype=np.float32)
    expected = rocpy.matmul(a, a)
    with rocpy.Stream() as stream:

        def work(_):
            for _ in range(30):
                d = rocpy.matmul(a.copy(), a.copy(), stream=stream)
                stream.synchronize()
                assert np.array_equal(d, expected)

        in_threads(6, work)


def test_options_belong_to_their_thread():
    a, b = np.ones((4, 8), dtype=np.float32)[:, ::2], np.ones((4, 3), dtype=np.float32)
    inside, leave = threading.Event(), threading.Event()

    def strict(index):
        if index == 0:
            with rocpy.options(copies="error"):
                inside.set()
                with pytest.raises(rocpy.UnsupportedError):
                    rocpy.matmul(a, b)
                leave.wait(10)
        else:
            inside.wait(10)
            assert rocpy.matmul(a, b).shape == (4, 3)
            leave.set()

    in_threads(2, strict)


def test_errors_stay_in_their_thread():
    good = np.ones((4, 4), dtype=np.float32)

    def work(index):
        for _ in range(100):
            if index % 2:
                with pytest.raises(rocpy.InvalidProblemError):
                    rocpy.matmul(good, good[:3])
            else:
                assert rocpy.matmul(good, good)[0, 0] == 4

    in_threads(6, work)


def test_threads_that_come_and_go(rng):
    a = rng.standard_normal((32, 32), dtype=np.float32)
    expected = rocpy.matmul(a, a)
    for _ in range(50):
        assert all(np.array_equal(d, expected) for d in in_threads(3, lambda _: rocpy.matmul(a, a)))


def test_first_use_in_many_threads(run_python):
    code = """
        import threading
        import numpy as np
        import rocpy
        a = np.ones((5, 5), np.float32)
        start, failures = threading.Barrier(8), []
        def work():
            start.wait()
            try:
                assert (rocpy.matmul(a, a, epilogue="relu") == 5).all()
            except BaseException as error:
                failures.append(error)
        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        assert not failures, failures
    """
    run_python(code)


@pytest.mark.torch
def test_torch_operands_in_many_threads(torch):
    operands = [torch.randn(64, 64) for _ in range(8)]
    expected = [rocpy.matmul(x, x) for x in operands]
    found = in_threads(4, lambda _: [rocpy.matmul(x, x) for x in operands])
    for results in found:
        assert all(torch.equal(one, other) for one, other in zip(results, expected, strict=True))
