# SPDX-License-Identifier: MIT
"""Tile programs through the C ABI: statuses of what is malformed or does not fit, and products launched by hand."""

import ctypes

import numpy as np
import pytest
from hipblaslt_support.host import library
from hipblaslt_support.programs import PAIRS, instruction, program

SUCCESS, NOT_INITIALIZED, INVALID_VALUE, INTERNAL_ERROR, NOT_SUPPORTED = 0, 1, 3, 6, 7
FLOAT32, FLOAT64, INT32, COMPLEX64, UINT8 = 0, 1, 10, 4, 8
PREFERENCE_WORKSPACE, EPILOGUE = 1, 2


class Product:
    """An m x n x k product in float32 with columns side by side, and its descriptor."""

    def __init__(self, m=3, n=2, k=4, *, a_rows=None, compute=2, kind=FLOAT32):
        self.lt = library("hipblaslt")
        self.m, self.n, self.k = m, n, k
        self.handle, self.desc, self.preference = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        assert self.lt.hipblasLtCreate(ctypes.byref(self.handle)) == 0
        assert self.lt.hipblasLtMatmulDescCreate(ctypes.byref(self.desc), compute, kind) == 0
        assert self.lt.hipblasLtMatmulPreferenceCreate(ctypes.byref(self.preference)) == 0
        rows = a_rows or m
        self.layouts = [self.layout(kind, *shape) for shape in ((rows, k), (k, n), (m, n), (m, n))]
        rng = np.random.default_rng(7)
        self.a, self.b = (rng.standard_normal(shape).astype(np.float32) for shape in ((k, rows), (n, k)))
        self.d = np.full((n, m), 77, np.float32)
        self.product = (self.b.astype(np.float64) @ self.a).astype(np.float32)  # in columns: (n, rows)

    def layout(self, kind, rows, columns):
        made = ctypes.c_void_p()
        assert self.lt.hipblasLtMatrixLayoutCreate(
            ctypes.byref(made), kind, ctypes.c_uint64(rows), ctypes.c_uint64(columns), ctypes.c_int64(rows)
        ) == 0  # fmt: skip
        return made

    def set(self, made):
        return self.lt.rocpyExtMatmulDescSetProgram(self.desc, None if made is None else ctypes.byref(made))

    def pointers(self, inputs=(), outputs=()):
        arrays = [(ctypes.c_void_p * max(1, len(group)))(*group) for group in (inputs, outputs)]
        return self.lt.rocpyExtMatmulDescSetProgramPointers(self.desc, *arrays)

    def attribute(self, number, value):
        return self.lt.hipblasLtMatmulDescSetAttribute(
            self.desc, number, ctypes.byref(value), ctypes.c_size_t(ctypes.sizeof(value))
        )

    def found(self):
        results, count = np.zeros(56 * 64, np.uint8), ctypes.c_int()
        assert self.lt.hipblasLtMatmulAlgoGetHeuristic(
            self.handle, self.desc, *self.layouts, self.preference, 64, ctypes.c_void_p(results.ctypes.data),
            ctypes.byref(count),
        ) == 0  # fmt: skip
        return count.value

    def run(self, beta=0.0):
        one, beta = ctypes.c_float(1.0), ctypes.c_float(beta)
        a, b, c, d = self.layouts
        data = [ctypes.c_void_p(x.ctypes.data) for x in (self.a, self.b, self.d)]
        status = self.lt.hipblasLtMatmul(
            self.handle, self.desc, ctypes.byref(one), data[0], a, data[1], b, ctypes.byref(beta), data[2], c, data[2],
            d, None, None, ctypes.c_size_t(0), None,
        )  # fmt: skip
        assert library("amdhip64").hipDeviceSynchronize() == 0
        return status


VALUE = instruction("VALUE", 0)


def test_a_program_with_pointers_runs_and_is_taken_away():
    p = Product()
    residual, second = np.arange(6, dtype=np.float32).reshape(2, 3), np.zeros((2, 3), np.float32)
    code = [VALUE, instruction("INPUT", 1), instruction("OUTPUT", 0, 0), instruction("ADD", 0, 0, 1)]
    assert p.set(program(code, result=0, inputs=[(FLOAT32, 1, 3, 0)], outputs=[(FLOAT32, 1, 3, 0)])) == SUCCESS
    assert p.found() > 0
    assert p.run() == INVALID_VALUE  # no pointers yet
    assert p.pointers([residual.ctypes.data], [None]) == SUCCESS
    assert p.run() == INVALID_VALUE
    assert p.pointers([residual.ctypes.data], [second.ctypes.data + 2]) == SUCCESS
    assert p.run() == INVALID_VALUE  # not aligned
    assert np.all(p.d == 77)
    assert p.pointers([residual.ctypes.data], [second.ctypes.data]) == SUCCESS
    assert p.run() == SUCCESS
    np.testing.assert_allclose(second, p.product, rtol=1e-5, atol=1e-6)
    assert np.array_equal(p.d, second + residual)
    assert p.set(None) == SUCCESS
    assert p.pointers([residual.ctypes.data], [second.ctypes.data]) == INVALID_VALUE
    assert p.run() == SUCCESS
    assert np.array_equal(p.d, second)


def test_a_program_takes_the_activation_s_place():
    p = Product()
    aux, bias = np.zeros((2, 3), np.float32), np.array([1, -1, 0.5], np.float32)
    assert p.attribute(EPILOGUE, ctypes.c_uint32(164)) == 0  # GELU_AUX_BIAS
    for number, value in (
        (3, ctypes.c_void_p(bias.ctypes.data)),
        (10, ctypes.c_void_p(aux.ctypes.data)),
        (11, ctypes.c_int64(3)),
    ):
        assert p.attribute(number, value) == 0
    assert p.set(program([VALUE, instruction("NEG", 0, 0)], result=0)) == SUCCESS
    assert p.run() == SUCCESS
    np.testing.assert_allclose(aux, p.product + bias, rtol=1e-5, atol=1e-6)
    assert np.array_equal(p.d, -aux)


MALFORMED = {
    "bad register": program([instruction("VALUE", 5)], result=0, registers=2),
    "bad source": program([VALUE, instruction("ADD", 1, 0, 9)], result=1),
    "read before written": program([instruction("ADD", 0, 0, 1), instruction("VALUE", 1)], result=0),
    "result not written": program([VALUE], result=1, registers=2),
    "too many instructions": program([VALUE] * 257, result=0),
    "too many registers": program([VALUE], result=0, registers=257),
    "too many inputs": program([VALUE], result=0, inputs=[(FLOAT32, 1, 1, 0)] * 17),
    "too many outputs": program([VALUE], result=0, outputs=[(FLOAT32, 1, 3, 0)] * 9),
    "no such input": program([instruction("INPUT", 0)], result=0),
    "output not written": program([VALUE], result=0, outputs=[(FLOAT32, 1, 3, 0)]),
    "output written twice": program(
        [VALUE, instruction("OUTPUT", 0, 0), instruction("OUTPUT", 0, 0)], result=0, outputs=[(FLOAT32, 1, 3, 0)]
    ),
    "partner without pairs": program([instruction("PARTNER", 0)], result=0),
    "unknown flag": program([VALUE], result=0, flags=4),
    "no opcode": program([instruction(0, 0)], result=0),
}
UNKNOWN = {
    "unknown opcode": program([instruction(60000, 0)], result=0),
    "type of an input": program([VALUE], result=0, inputs=[(COMPLEX64, 1, 1, 0)]),
    "type of an output": program([VALUE, instruction("OUTPUT", 0, 0)], result=0, outputs=[(999, 1, 3, 0)]),
    "rounded to integers of 32 bits": program([VALUE, instruction("ROUND", 0, 0, index=INT32)], result=0),
}
# Sound by themselves: no product here takes them.
UNFIT = {
    "aux without an epilogue that reads it": (program([instruction("AUX", 0)], result=0), INVALID_VALUE),
    "output whose elements share memory": (
        program([VALUE, instruction("OUTPUT", 0, 0)], result=0, outputs=[(FLOAT32, 0, 1, 0)]), INVALID_VALUE,
    ),
    "output whose columns overlap": (
        program([VALUE, instruction("OUTPUT", 0, 0)], result=0, outputs=[(FLOAT32, 1, 2, 0)]), INVALID_VALUE,
    ),
    "output of doubles": (
        program([VALUE, instruction("OUTPUT", 0, 0)], result=0, outputs=[(FLOAT64, 1, 3, 0)]), INTERNAL_ERROR,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", [*MALFORMED, *UNKNOWN])
def test_malformed_programs_are_refused_and_change_nothing(name, capfd):
    p = Product()
    assert p.set(program([VALUE, instruction("NEG", 0, 0)], result=0)) == SUCCESS
    given = MALFORMED.get(name) or UNKNOWN[name]
    assert p.set(given) == (INVALID_VALUE if name in MALFORMED else NOT_SUPPORTED)
    assert "rocpyExtMatmulDescSetProgram" in capfd.readouterr().err
    assert p.run() == SUCCESS
    np.testing.assert_allclose(p.d, -p.product, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", UNFIT)
def test_programs_that_no_product_takes(name):
    p = Product()
    made, status = UNFIT[name]
    assert p.set(made) == SUCCESS
    assert p.pointers([], [p.d.ctypes.data]) == SUCCESS
    assert p.found() == 0
    assert p.run() == status
    assert np.all(p.d == 77)


def test_pairs_take_twice_the_rows_and_no_c():
    p = Product(m=3, a_rows=6)
    made = program([VALUE, instruction("PARTNER", 1), instruction("SUB", 0, 0, 1)], result=0, flags=PAIRS)
    assert p.set(made) == SUCCESS
    assert p.found() > 0
    assert p.run(beta=1.0) == INVALID_VALUE
    assert p.run() == SUCCESS
    np.testing.assert_allclose(p.d, p.product[:, ::2] - p.product[:, 1::2], rtol=1e-5, atol=1e-5)
    short = Product(m=3, a_rows=5)
    assert short.set(made) == SUCCESS
    assert short.found() == 0
    assert short.run() == INVALID_VALUE


def test_dead_descriptors_and_null_arrays():
    p = Product()
    made = program([instruction("INPUT", 0)], result=0, inputs=[(FLOAT32, 0, 0, 0)])
    dead = ctypes.c_void_p(64)
    assert p.lt.rocpyExtMatmulDescSetProgram(dead, ctypes.byref(made)) == NOT_INITIALIZED
    assert p.lt.rocpyExtMatmulDescSetProgramPointers(dead, None, None) == NOT_INITIALIZED
    assert p.set(made) == SUCCESS
    assert p.lt.rocpyExtMatmulDescSetProgramPointers(p.desc, None, None) == INVALID_VALUE


def test_complex_products_take_no_program():
    p = Product(kind=COMPLEX64)
    assert p.set(program([VALUE], result=0)) == SUCCESS
    assert p.found() == 0


def test_a_queued_product_keeps_its_program():
    hip = library("amdhip64")
    stream, p = ctypes.c_void_p(), Product(400, 300, 500)
    assert hip.hipStreamCreate(ctypes.byref(stream)) == 0
    scale = np.array([2], np.float32)
    code = [VALUE, instruction("INPUT", 1), instruction("MUL", 0, 0, 1)]
    one, zero = ctypes.c_float(1.0), ctypes.c_float(0.0)
    a, b, c, d = p.layouts
    data = [ctypes.c_void_p(x.ctypes.data) for x in (p.a, p.b, p.d)]
    for _ in range(4):
        assert p.set(program(code, result=0, inputs=[(FLOAT32, 0, 0, 0)])) == SUCCESS
        assert p.pointers([scale.ctypes.data]) == SUCCESS
        assert p.lt.hipblasLtMatmul(
            p.handle, p.desc, ctypes.byref(one), data[0], a, data[1], b, ctypes.byref(zero), data[2], c, data[2], d,
            None, None, ctypes.c_size_t(0), stream,
        ) == SUCCESS  # fmt: skip
    assert p.set(program([VALUE, instruction("NEG", 0, 0)], result=0)) == SUCCESS
    assert p.lt.hipblasLtMatmulDescDestroy(p.desc) == SUCCESS
    assert hip.hipStreamSynchronize(stream) == 0
    np.testing.assert_allclose(p.d, 2 * p.product, rtol=1e-4, atol=1e-3)
    assert hip.hipStreamDestroy(stream) == 0
