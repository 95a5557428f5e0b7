# SPDX-License-Identifier: MIT
"""8-bit, integer and complex products through hip-python: small whole numbers, so that results are exact."""

import numpy as np
import pytest

pytest.importorskip("rocm.bindings.hipblaslt", exc_type=ModuleNotFoundError)

from hipblaslt_support import calls
from hipblaslt_support.calls import DTYPES, Call, Compute, Desc, Problem, Type, hip, stored, unwrap

M, N, K = 9, 7, 32
EIGHT_BITS = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")


@pytest.fixture(scope="module")
def handle():
    with calls.handle() as made:
        yield made


def numbers(rows, columns, seed):
    return np.random.default_rng(seed).integers(-2, 3, (1, rows, columns)).astype(np.float64)


def attribute(name):
    return Desc[f"HIPBLASLT_MATMUL_DESC_{name}"]


@pytest.mark.parametrize("out", ["float32", "bfloat16", "float16", "same"])
@pytest.mark.parametrize("dtype", EIGHT_BITS)
@pytest.mark.parametrize("mode", [0, 3])
def test_8_bit_with_scales(handle, dtype, out, mode):
    a, b = numbers(M, K, 1), numbers(K, N, 2)
    a[:, :, 4:] = 0  # sums that every result type holds
    lengths = (1, 1) if mode == 0 else (M, N)
    scales = [2.0 ** np.random.default_rng(i).integers(-1, 2, n) for i, n in enumerate(lengths)]
    scales = [np.ascontiguousarray(s, np.float32) for s in scales]
    problem = Problem(M, N, K, dtype=dtype, out=dtype if out == "same" else out)
    for name, values in zip("AB", scales, strict=True):
        problem.attributes[attribute(f"{name}_SCALE_POINTER")] = values
        problem.attributes[attribute(f"{name}_SCALE_MODE")] = mode
    exact = (a * scales[0].reshape(1, -1, 1)) @ (b * scales[1].reshape(1, 1, -1))
    wanted = exact.astype(DTYPES[problem.result][0]).astype(np.float64)
    np.testing.assert_array_equal(calls.run(handle, problem, a, b), wanted)


@pytest.mark.parametrize("out", ["int32", "int8"])
def test_int8(handle, out):
    problem = Problem(M, N, K, dtype="int8", out=out, compute=Compute.HIPBLAS_COMPUTE_32I, scale=Type.HIP_R_32I)
    a, b, c = numbers(M, K, 3), numbers(K, N, 4), numbers(M, N, 5)
    wanted = 2 * (a @ b) - 3 * c
    if out == "int8":
        wanted = np.clip(wanted, -128, 127)
    np.testing.assert_array_equal(calls.run(handle, problem, a, b, c=c, alpha=2, beta=-3), wanted)


def test_int8_to_float32_is_the_platforms_own(handle):
    problem = Problem(M, N, K, dtype="int8", out="float32", compute=Compute.HIPBLAS_COMPUTE_32I)
    a, b = numbers(M, K, 6), numbers(K, N, 7)
    np.testing.assert_array_equal(calls.run(handle, problem, a, b, alpha=0.5), 0.5 * (a @ b))


@pytest.mark.parametrize(("op_a", "op_b"), [("N", "N"), ("C", "N"), ("T", "C"), ("C", "C")])
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_complex(handle, dtype, op_a, op_b):
    wide = dtype == "complex128"
    problem = Problem(
        M, N, K, dtype=dtype, op_a=op_a, op_b=op_b, scale=DTYPES[dtype][1],
        compute=Compute.HIPBLAS_COMPUTE_64F if wide else Compute.HIPBLAS_COMPUTE_32F,
    )  # fmt: skip
    shapes = (M, K) if op_a == "N" else (K, M), (K, N) if op_b == "N" else (N, K)
    a, b = (numbers(*shape, 8) + 1j * numbers(*shape, 9) for shape in shapes)
    operate = {"N": lambda x: x, "T": lambda x: x.swapaxes(1, 2), "C": lambda x: x.conj().swapaxes(1, 2)}
    memory = [stored(x, dtype) for x in (a, b)]
    d = np.zeros((N, M), DTYPES[dtype][0])
    with Call(problem) as call:
        status, found, _ = call.heuristic(handle)
        assert (status, len(found)) == (0, 3)
        for result in found:
            d[:] = 0
            workspace = np.zeros(max(calls.workspace_of(result), 1), np.uint8)
            factor = problem.scalar(1 - 2j)
            status = call.matmul(
                handle, factor, memory[0], memory[1], problem.scalar(0), d, d, calls.algo_of(result), workspace
            )
            assert status == 0
            unwrap(hip.hipStreamSynchronize(None))
            np.testing.assert_array_equal(d.T, (1 - 2j) * (operate[op_a](a) @ operate[op_b](b))[0])
