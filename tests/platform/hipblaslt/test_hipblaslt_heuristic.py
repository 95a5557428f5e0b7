# SPDX-License-Identifier: MIT
"""What the host platform's heuristic returns: 56-byte results, algorithms, workspace limits."""

import numpy as np
import pytest

pytest.importorskip("rocm.bindings.hipblaslt", exc_type=ModuleNotFoundError)

from hipblaslt_support import calls
from hipblaslt_support.calls import Call, Problem, hip, unwrap

SUCCESS, INVALID_VALUE = 0, 3


@pytest.fixture(scope="module")
def handle():
    with calls.handle() as made:
        yield made


def index_of(result):
    return int(result[:4].view(np.int32)[0])


def test_bytes_of_the_results(handle):
    cap = 12345678
    with Call(Problem(64, 48, 96)) as call:
        status, found, results = call.heuristic(handle, 40, workspace=cap)
        assert status == SUCCESS
        assert 1 <= len(found) < 40
        for result in found:
            # Index at 0, fallback flag at 8, cap at 9: as the library packs it, not as its header declares it.
            assert index_of(result) > 0
            assert (result[4:9] == 0).all()
            assert int(result[9:17].copy().view(np.uint64)[0]) == cap
            assert (result[17:24] == 0).all()
            assert calls.workspace_of(result) <= cap
            assert int(result[32:36].view(np.int32)[0]) == SUCCESS
        for result in results.reshape(40, 56)[len(found) :]:
            assert int(result[32:36].copy().view(np.int32)[0]) == 7
            assert (np.delete(result, range(32, 36)) == 0).all()
        assert (results.reshape(40, 56)[:, 36:40] == 0).all(), "wavesCount is never filled"
        names = [calls.algo_name(handle, calls.algo_of(result)) for result in found]
        assert len(set(names)) == len({index_of(result) for result in found}) == len(found)


def test_fewer_requested_are_the_first_ones(handle):
    with Call(Problem(100, 200, 300)) as call:
        everything = [index_of(result) for result in call.heuristic(handle, 40)[1]]
        for requested in range(1, len(everything) + 1):
            assert [index_of(result) for result in call.heuristic(handle, requested)[1]] == everything[:requested]


def test_pointers_do_not_change_the_choice(handle):
    bias = np.zeros(64, np.float32)
    pointer = calls.Desc.HIPBLASLT_MATMUL_DESC_BIAS_POINTER
    with (
        Call(Problem(64, 64, 64, epilogue=36)) as unset,
        Call(Problem(64, 64, 64, epilogue=36, attributes={pointer: bias})) as given,
    ):
        assert [index_of(r) for r in unset.heuristic(handle, 40)[1]] == [
            index_of(r) for r in given.heuristic(handle, 40)[1]
        ]


@pytest.mark.parametrize("shape", [(64, 48, 96), (4, 4, 20000), (1024, 8, 1024)])
def test_workspace_limits(handle, shape):
    m, n, k = shape
    a, b = np.ones(m * k, np.float32), np.ones(k * n, np.float32)
    with Call(Problem(m, n, k)) as call:
        _, without, _ = call.heuristic(handle, 40, workspace=0)
        assert without, "every problem has an algorithm that needs no workspace"
        assert all(calls.workspace_of(result) == 0 for result in without)
        _, found, _ = call.heuristic(handle, 40)
        for result in found:
            needed = calls.workspace_of(result)
            workspace = np.zeros(max(needed, 1), np.uint8)

            def matmul(workspace_bytes, algo):
                d = np.zeros(m * n, np.float32)
                status = call.matmul(handle, 1.0, a, b, 0.0, d, d, algo, workspace, workspace_bytes)  # noqa: B023
                unwrap(hip.hipStreamSynchronize(None))
                assert (d == (k if status == SUCCESS else 0)).all()
                return status

            assert matmul(needed, calls.algo_of(result)) == SUCCESS
            if needed:
                assert matmul(needed - 1, calls.algo_of(result)) == INVALID_VALUE
                # The cap inside the algorithm counts too, whatever the caller passes.
                capped = calls.algo_of(result)
                capped[9:17] = np.array([needed - 1], np.uint64).view(np.uint8)
                assert matmul(needed, capped) == INVALID_VALUE


def test_null_algorithm_is_an_implicit_query(handle):
    a, b, d = np.ones(6, np.float32), np.ones(8, np.float32), np.zeros(12, np.float32)
    with Call(Problem(3, 4, 2)) as call:
        assert call.matmul(handle, 1.0, a, b, 0.0, d, d, None) == SUCCESS
        unwrap(hip.hipStreamSynchronize(None))
    assert (d == 2).all()


def test_a_repeated_call_is_checked_as_the_first_is(handle):
    """The platform may remember what it has checked; another algorithm, factor or descriptor is another call."""
    a, b, d = np.ones(20000, np.float32), np.ones(20000, np.float32), np.zeros(16, np.float32)
    with Call(Problem(4, 4, 8)) as short, Call(Problem(4, 4, 4096)) as long:
        (own, *_), (others, *_) = (
            [calls.algo_of(result) for result in call.heuristic(handle, 40, workspace=0)[1]] for call in (short, long)
        )

        def product(call, algo, alpha=1.0, operand=a):
            d[:] = -1
            status = call.matmul(handle, alpha, operand, b, 0.0, d, d, algo)
            unwrap(hip.hipStreamSynchronize(None))
            return status, set(d.tolist())

        for _ in range(3):
            assert product(short, own) == (SUCCESS, {8.0})
            assert product(long, others) == (SUCCESS, {4096.0})
            refused, untouched = product(long, own)
            assert refused != SUCCESS
            assert untouched == {-1.0}
            assert product(short, own, alpha=0.0, operand=None) == (SUCCESS, {0.0})
        calls.set_desc(short.desc, calls.Desc.HIPBLASLT_MATMUL_DESC_TRANSA, int(calls.Operation.HIPBLAS_OP_T))
        assert product(short, own)[0] != SUCCESS
        calls.set_desc(short.desc, calls.Desc.HIPBLASLT_MATMUL_DESC_TRANSA, int(calls.Operation.HIPBLAS_OP_N))
        assert product(short, own) == (SUCCESS, {8.0})
