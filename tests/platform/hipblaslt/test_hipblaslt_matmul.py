# SPDX-License-Identifier: MIT
"""Products of the host platform's hipBLASLt through unmodified hip-python, against numpy in float64."""

import ctypes
import threading

import numpy as np
import pytest

pytest.importorskip("rocm.bindings.hipblaslt", exc_type=ModuleNotFoundError)

from hipblaslt_support import calls, oracle
from hipblaslt_support.calls import DTYPES, FLOATS, Call, Desc, Epilogue, Order, Problem, hip, lt, unwrap
from hipblaslt_support.host import library

ROW = int(Order.HIPBLASLT_ORDER_ROW)
LOW, HIGH = -0.5, 0.75


@pytest.fixture(scope="module")
def handle():
    with calls.handle() as made:
        yield made


def random_values(seed, shape, dtype):
    values = np.random.default_rng(seed).standard_normal(shape)
    return values.astype(DTYPES[dtype][0]).astype(np.float64)


def transposed(matrix, op):
    return matrix if op == "N" else np.swapaxes(matrix, -1, -2)


def assert_within(seen, wanted_and_bound, what):
    wanted, bound = wanted_and_bound
    wrong = ~(np.abs(seen - wanted) <= bound)
    assert not wrong.any(), (
        f"{what}: {wrong.sum()} of {wrong.size} wrong, first {np.argwhere(wrong)[0]}: "
        f"{seen[wrong][0]} != {wanted[wrong][0]}"
    )


def check_product(handle, problem, seed=1, alpha=1.0, beta=0.0, bias_by_entry=False, algo_index=0):
    """Run a problem with every operand its epilogue needs and compare D, aux and bias gradient."""
    p = problem
    name, adds_bias, stores_aux, loads_aux, gradient = oracle.EPILOGUES.get(p.epilogue, oracle.EPILOGUES[1])
    a = random_values(seed, (p.batch, p.m, p.k) if p.op_a == "N" else (p.batch, p.k, p.m), p.dtype)
    b = random_values(seed + 1, (p.batch, p.k, p.n) if p.op_b == "N" else (p.batch, p.n, p.k), p.dtype)
    c = random_values(seed + 2, (p.batch, p.m, p.n), p.result) if beta else None
    result_dtype, result_type = DTYPES[p.result]
    bias = aux = None
    length = p.n if gradient == "b" else p.m
    by_entry = bias_by_entry or (gradient and p.batch > 1)
    if adds_bias or gradient:
        entries = p.batch if by_entry else 1
        bias = random_values(seed + 3, (entries, length), p.result).astype(result_dtype)
        p.attributes |= {
            Desc.HIPBLASLT_MATMUL_DESC_BIAS_POINTER: bias,
            Desc.HIPBLASLT_MATMUL_DESC_BIAS_DATA_TYPE: int(result_type),
            Desc.HIPBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE: length if by_entry else 0,
        }
    if stores_aux or loads_aux:
        aux_values = random_values(seed + 4, (p.batch, p.m, p.n), p.result)
        aux = calls.stored(aux_values, p.result)
        p.attributes |= {
            Desc.HIPBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER: aux,
            Desc.HIPBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD: p.m,
            Desc.HIPBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE: p.m * p.n,
            Desc.HIPBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE: int(result_type),
        }
    if name == "clamp":
        p.attributes |= {
            Desc.HIPBLASLT_MATMUL_DESC_EPILOGUE_ACT_ARG0_EXT: LOW,
            Desc.HIPBLASLT_MATMUL_DESC_EPILOGUE_ACT_ARG1_EXT: HIGH,
        }
    alpha_vector = alpha if isinstance(alpha, np.ndarray) else None
    if alpha_vector is not None:
        p.attributes[Desc.HIPBLASLT_MATMUL_DESC_POINTER_MODE] = 4
    d_wanted, aux_wanted, sums_wanted = oracle.expected(
        transposed(a, p.op_a), transposed(b, p.op_b), c, alpha, beta, p.epilogue, p.result,
        bias=bias.astype(np.float64) if adds_bias else None, aux=aux_values if loads_aux else None, low=LOW, high=HIGH,
    )  # fmt: skip
    d = calls.run(handle, p, a, b, c, alpha, beta, algo_index)
    assert_within(d, d_wanted, "D")
    if stores_aux:
        assert_within(calls.unstored(aux, p.m, p.n), aux_wanted, "aux")
    if gradient:
        assert_within(bias.astype(np.float64).reshape(-1, length), sums_wanted, "bias gradient")


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    "epilogue", oracle.EPILOGUES, ids=lambda value: Epilogue(value).name.removeprefix("HIPBLASLT_EPILOGUE_")
)
def test_epilogue_dtype_transpose_batch(handle, epilogue, dtype):
    for op_a in "NT":
        for op_b in "NT":
            for batch in (1, 3):
                problem = Problem(19, 13, 21, dtype, batch=batch, op_a=op_a, op_b=op_b, epilogue=epilogue)
                check_product(handle, problem, seed=batch)


@pytest.mark.parametrize("epilogue", [1, 36, 160, 208])
def test_alpha_beta(handle, epilogue):
    for dtype in FLOATS:
        check_product(handle, Problem(9, 14, 31, dtype, batch=2, epilogue=epilogue), alpha=-0.5, beta=1.5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("epilogue", [1, 36, 164, 152])
def test_float32_result_of_half_operands(handle, dtype, epilogue):
    check_product(handle, Problem(16, 11, 40, dtype, "float32", epilogue=epilogue))


@pytest.mark.parametrize(
    ("dtype", "compute", "scale"),
    [
        ("float32", "32F_FAST_TF32", "HIP_R_32F"),
        ("float32", "32F_FAST_16F", "HIP_R_32F"),
        ("float32", "32F_FAST_16BF", "HIP_R_32F"),
        ("float16", "16F", "HIP_R_32F"),
        ("float16", "16F", "HIP_R_16F"),
        ("float16", "32F_FAST_16F", "HIP_R_32F"),
        ("bfloat16", "32F_FAST_16BF", "HIP_R_32F"),
    ],
)
def test_reduced_compute_types_accumulate_in_float32(handle, dtype, compute, scale):
    compute_type = calls.Compute[f"HIPBLAS_COMPUTE_{compute}"]
    check_product(handle, Problem(8, 8, 100, dtype, compute=compute_type, scale=calls.Type[scale]), alpha=0.5, beta=2.0)


def test_operation_c_is_t_for_real_types(handle):
    problem = Problem(7, 5, 6, op_a="C", op_b="C")
    check_product(handle, problem)


def test_every_algorithm(handle):
    problem = Problem(33, 65, 129, epilogue=36)
    with Call(problem) as call:
        _, found, _ = call.heuristic(handle, 32)
    assert found
    for index in range(len(found)):
        check_product(handle, Problem(33, 65, 129, epilogue=36), algo_index=index)


def test_alpha_vector_scales_rows_and_not_c(handle):
    for dtype, vector in (("float32", np.float32), ("float64", np.float64), ("bfloat16", np.float32)):
        alpha = np.random.default_rng(5).standard_normal(12).astype(vector)
        check_product(handle, Problem(12, 9, 10, dtype, epilogue=36), alpha=alpha, beta=0.5)


def test_bias_by_batch_entry(handle):
    check_product(handle, Problem(12, 9, 10, batch=4, epilogue=36), bias_by_entry=True)


def test_clamp_limits_default_to_zero(handle):
    ones = np.ones((1, 8, 8))
    assert (calls.run(handle, Problem(8, 8, 8, epilogue=131072), ones, ones) == 0).all()


def test_unknown_epilogue_is_no_activation(handle):
    check_product(handle, Problem(9, 8, 7, epilogue=3))


@pytest.mark.parametrize(
    "orders", [{"a": ROW}, {"b": ROW}, {"a": ROW, "b": ROW}, {"c": ROW, "d": ROW}, dict.fromkeys("abcd", ROW)]
)
@pytest.mark.parametrize("op_a", "NT")
def test_row_order(handle, orders, op_a):
    check_product(handle, Problem(9, 14, 11, op_a=op_a, op_b="T", orders=orders), alpha=2.0, beta=0.5)


@pytest.mark.parametrize("epilogue", [4, 36, 256, 512])
def test_row_order_of_d_with_bias(handle, epilogue):
    check_product(handle, Problem(9, 14, 11, epilogue=epilogue, orders={"c": ROW, "d": ROW}))


@pytest.mark.parametrize("epilogue", [160, 152])
def test_row_order_of_d_with_aux_finds_nothing(handle, epilogue):
    with pytest.raises(calls.StatusError, match="0 found"):
        check_product(handle, Problem(9, 14, 11, epilogue=epilogue, orders={"c": ROW, "d": ROW}))


def test_broadcast_by_stride_zero(handle):
    a, b = random_values(1, (1, 6, 7), "float32"), random_values(2, (3, 7, 5), "float32")
    problem = Problem(6, 5, 7, batch=3, layouts={"a": {"stride": 0}})
    seen = calls.run(handle, problem, a, b)
    np.testing.assert_allclose(seen, a @ b, rtol=1e-5, atol=1e-5)


def test_in_place(handle):
    problem = Problem(6, 5, 7)
    a, b, c = (
        random_values(1, (6, 7), "float32"),
        random_values(2, (7, 5), "float32"),
        random_values(3, (6, 5), "float32"),
    )
    memory_a, memory_b, memory = (calls.stored(x, "float32") for x in (a, b, c))
    with Call(problem) as call:
        assert call.matmul(handle, 1.0, memory_a, memory_b, 2.0, memory, memory) == 0
        unwrap(hip.hipStreamSynchronize(None))
    np.testing.assert_allclose(memory.T, a @ b + 2 * c, rtol=1e-5, atol=1e-5)


def test_k_zero_is_beta_c_and_bias(handle):
    bias = np.arange(4, dtype=np.float32)
    attributes = {Desc.HIPBLASLT_MATMUL_DESC_BIAS_POINTER: bias}
    problem = Problem(4, 3, 0, epilogue=6, attributes=attributes, layouts={"a": {"ld": 4}, "b": {"ld": 1}})
    c = random_values(3, (4, 3), "float32")
    memory_c, d = calls.stored(c, "float32"), np.zeros((3, 4), np.float32)
    unread = np.full(4, np.nan, np.float32)
    with Call(problem) as call:
        assert call.matmul(handle, 1.0, unread, unread, -1.0, memory_c, d) == 0
        unwrap(hip.hipStreamSynchronize(None))
    np.testing.assert_array_equal(d.T, np.maximum(-c + bias[:, None], 0).astype(np.float32))


def test_alpha_zero_reads_neither_a_nor_b(handle):
    problem = Problem(4, 3, 5)
    c = random_values(3, (4, 3), "float32")
    for operand in (None, np.full(20, np.nan, np.float32)):
        memory_c, d = calls.stored(c, "float32"), np.zeros((3, 4), np.float32)
        with Call(problem) as call:
            assert call.matmul(handle, 0.0, operand, operand, 1.0, memory_c, d) == 0
            unwrap(hip.hipStreamSynchronize(None))
        np.testing.assert_array_equal(d.T, c)


def test_nan_and_infinity_come_through(handle):
    a, b = np.ones((1, 4, 4)), np.ones((1, 4, 4))
    a[0, 1, 2], a[0, 2, 0] = np.nan, np.inf
    seen = calls.run(handle, Problem(4, 4, 4), a, b)[0]
    assert np.isnan(seen[1]).all()
    assert np.isposinf(seen[2]).all()
    assert (seen[[0, 3]] == 4).all()


def test_pointer_array_batch(handle):
    a, b = random_values(1, (3, 6, 7), "float32"), random_values(2, (3, 7, 5), "float32")
    c = random_values(4, (3, 6, 5), "float32")
    memory = {
        name: [calls.stored(x, "float32") for x in values]
        for name, values in (("a", a), ("b", b), ("c", c), ("d", 0 * c))
    }
    pointers = {name: np.array([x.ctypes.data for x in entries], np.uint64) for name, entries in memory.items()}
    problem = Problem(6, 5, 7, batch=3, layouts={name: {"mode": 1, "stride": 0} for name in "abcd"})
    with Call(problem) as call:
        _, found, _ = call.heuristic(handle)
        assert found
        for algo in [None, *map(calls.algo_of, found)]:
            workspace = np.zeros(problem.workspace, np.uint8)
            assert (
                call.matmul(
                    handle, 2.0, *[pointers[x] for x in "ab"], -1.0, *[pointers[x] for x in "cd"], algo, workspace
                )
                == 0
            )
            unwrap(hip.hipStreamSynchronize(None))
            seen = np.stack([entry.T for entry in memory["d"]])
            np.testing.assert_allclose(seen, 2 * a @ b - c, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("op", "NT")
def test_packed_operand(handle, dtype, op):
    m, n, k, batch = 37, 9, 50, 2
    native = library("hipblaslt")
    compute = Problem(dtype=dtype).compute_type()
    a, b = random_values(1, (m, k), dtype), random_values(2, (batch, k, n), dtype)
    source = calls.stored(transposed(a, op), dtype)
    layout = calls.make_layout(DTYPES[dtype][1], *transposed(a, op).shape, transposed(a, op).shape[0])
    size = ctypes.c_size_t()
    pointer = ctypes.c_void_p(int(handle))
    assert (
        native.rocpyExtPackBytes(
            pointer, int(DTYPES[dtype][1]), int(compute), ctypes.c_uint64(m), ctypes.c_uint64(k), ctypes.byref(size)
        )
        == 0
    )
    memory = np.zeros(size.value + 64, np.uint8)
    packed = memory[-memory.ctypes.data % 64 :][: size.value]
    operation = int(calls.Operation[f"HIPBLAS_OP_{op}"])
    arguments = (
        pointer, operation, int(compute), ctypes.c_void_p(source.ctypes.data), ctypes.c_void_p(int(layout)),
        ctypes.c_void_p(packed.ctypes.data),
    )  # fmt: skip
    assert native.rocpyExtPack(*arguments, ctypes.c_size_t(size.value - 1), None) == 3
    assert native.rocpyExtPack(*arguments, size, None) == 0
    unwrap(hip.hipStreamSynchronize(None))
    unwrap(lt.hipblasLtMatrixLayoutDestroy(layout))
    source[...] = 0
    a_layout = {"order": calls.PACKED_ORDER, "batch": 1, "stride": 0, "ld": 1}
    problem = Problem(m, n, k, dtype, batch=batch, layouts={"a": a_layout})
    wanted, _, _ = oracle.expected(a[None], b, None, 1.0, 0.0, 1, dtype)
    memory_b = calls.stored(b, dtype)
    with Call(problem) as call:
        _, found, _ = call.heuristic(handle)
        assert found
        for result in found:
            d = np.zeros((batch, n, m), DTYPES[dtype][0])
            workspace = np.zeros(problem.workspace, np.uint8)
            assert call.matmul(handle, 1.0, packed, memory_b, 0.0, d, d, calls.algo_of(result), workspace) == 0
            unwrap(hip.hipStreamSynchronize(None))
            assert_within(calls.unstored(d, m, n), wanted, calls.algo_name(handle, calls.algo_of(result)))


def test_queued_call_owns_what_it_was_given(handle):
    a, b = random_values(1, (1, 30, 20), "float32"), random_values(2, (1, 20, 10), "float32")
    memory_a, memory_b, d = calls.stored(a, "float32"), calls.stored(b, "float32"), np.zeros((10, 30), np.float32)
    stream = unwrap(hip.hipStreamCreateWithFlags(1))
    order, started = [], ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    release = threading.Event()

    def wait(_):
        release.wait(20)
        order.append("host function")

    callback = started(wait)
    native = library("amdhip64")
    assert native.hipLaunchHostFunc(ctypes.c_void_p(int(stream)), callback, None) == 0
    alpha, beta = np.array([3.0], np.float32), np.array([0.0], np.float32)
    call = Call(Problem(30, 10, 20))
    assert call.matmul(handle, alpha, memory_a, memory_b, beta, d, d, stream=stream) == 0
    alpha[0] = beta[0] = np.nan
    call.close()
    assert (d == 0).all()
    release.set()
    unwrap(hip.hipStreamSynchronize(stream))
    assert order == ["host function"]
    np.testing.assert_allclose(d.T, 3 * (a @ b)[0], rtol=1e-5, atol=1e-5)
    unwrap(hip.hipStreamDestroy(stream))
