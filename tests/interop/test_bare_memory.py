# SPDX-License-Identifier: MIT
"""Operands that offer nothing but their memory, by DLPack, the array interface or the buffer protocol."""

import copy

import ml_dtypes
import numpy as np
import pytest
from dlpack_producers import OnlyDlpack
from presented import skip_without

import rocpy

FP8 = ml_dtypes.float8_e4m3fn


class InterfaceOnly:
    def __init__(self, array):
        self.array = array
        self.__array_interface__ = array.__array_interface__


BARE = pytest.mark.parametrize("bare", [OnlyDlpack, InterfaceOnly, memoryview])

MATRIX, OTHER = np.arange(12.0).reshape(3, 4), np.arange(8.0).reshape(4, 2)
INTEGERS = MATRIX.astype("i1"), OTHER.astype("i1")
FLOATS = MATRIX.astype("f4"), OTHER.astype("f4")
SCALED = {"scale_a": 1.0, "scale_b": 1.0}

# Products that are launched, composed, or launched on copies.
PRODUCTS = {
    "launched": (*FLOATS, {}),
    "composed": (*INTEGERS, {"epilogue": "relu_aux"}),
    "quantized": (*INTEGERS, {"dtype": "int8", **SCALED}),
    "amax": (*INTEGERS, {"amax": True, "dtype": "float32", **SCALED}),
    "complex": (MATRIX.astype("c8"), OTHER.astype("c8"), {"epilogue": "bgrada"}),
    "empty": (np.zeros((0, 4), "f4"), FLOATS[1], {"epilogue": "bgradb"}),
    "float64": (MATRIX, OTHER, {"epilogue": "clamp", "clamp": (0, 9)}),
    "reversed": (FLOATS[0][::-1], FLOATS[1], {}),
    "strided": (np.repeat(FLOATS[0], 2, axis=1)[:, ::2], FLOATS[1], {}),
    "bias": (*FLOATS, {"epilogue": "relu_bias", "bias": np.ones(2, "f4")}),
    "addend": (*FLOATS, {"c": np.ones((1, 2), "f4")}),
    "aux": (*FLOATS, {"epilogue": "drelu_bgrad", "aux": np.ones((3, 2), "f4")}),
}


def check(found, wanted):
    if isinstance(wanted, (tuple, list, dict)):
        assert type(found) is type(wanted)
        assert len(found) == len(wanted)
        pairs = (
            ((found[key], wanted[key]) for key in wanted)
            if isinstance(wanted, dict)
            else zip(found, wanted, strict=True)
        )
        for one, other in pairs:
            check(one, other)
        return
    assert type(found) is np.ndarray
    assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(found, wanted)


def executed(a, b, **arguments):
    with rocpy.Matmul(a, b, **arguments) as product:
        return product.execute()


@BARE
@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("form", [rocpy.matmul, executed], ids=["matmul", "Matmul"])
def test_products(bare, name, form):
    a, b, arguments = PRODUCTS[name]
    if name == "complex":
        skip_without("complex64")
    wrapped = {key: bare(value) if isinstance(value, np.ndarray) else value for key, value in arguments.items()}
    check(form(bare(a), bare(b), **wrapped), rocpy.matmul(a, b, **arguments))
    assert str(rocpy.explain(bare(a), bare(b), **wrapped).problem) == str(rocpy.explain(a, b, **arguments).problem)


@BARE
def test_groups(bare):
    (a, b), stack = INTEGERS, np.stack([INTEGERS[1]] * 2)
    wanted = rocpy.grouped_matmul([a, a], [b, b], epilogue="relu_aux")
    check(rocpy.grouped_matmul([bare(a)] * 2, [bare(b)] * 2, epilogue="relu_aux"), wanted)
    wanted = rocpy.grouped_matmul(a, stack, offsets=[0, 1, 3], epilogue="relu_aux")
    check(rocpy.grouped_matmul(bare(a), bare(stack), offsets=[0, 1, 3], epilogue="relu_aux"), wanted)


@BARE
def test_scales_by_blocks(bare):
    """Both scales without a dtype were taken for others, and the operands were read beyond their memory."""
    a, b = np.ones((3, 32), FP8), np.ones((32, 2), FP8)
    scale_a, scale_b = np.full((3, 1), 128, "u1"), np.full((1, 2), 127, "u1")
    wanted = rocpy.matmul(a, b, scale_a=scale_a, scale_b=scale_b)
    scales = {"scale_a": bare(scale_a), "scale_b": bare(scale_b)}
    check(rocpy.matmul(a, b, **scales), wanted)
    check(executed(a, b, **scales), wanted)
    check(rocpy.grouped_matmul([a], [b], **{key: [value] for key, value in scales.items()}), [wanted])
    check(rocpy.matmul(a, rocpy.Weight(b, scale=bare(scale_b)), scale_a=bare(scale_a)), wanted)
    with rocpy.Matmul(a, b, scale_a=scale_b.T[:1].repeat(3, 0), scale_b=scale_b) as product:
        product.reset_operands(**scales)
        check(product.execute(), wanted)


@BARE
def test_weights_out_and_tuning(bare):
    a, b = FLOATS
    bias = np.ones(2, "f4")
    wanted = rocpy.matmul(a, b, epilogue="bias", bias=bias)
    check(rocpy.matmul(bare(a), rocpy.Weight(bare(b), bias=bare(bias)), epilogue="bias"), wanted)
    check(rocpy.matmul(bare(a), bare(b), epilogue="bias", bias=bare(bias), autotune=True), wanted)
    out = np.zeros((3, 2), "i4")
    target = bare(out)
    assert rocpy.matmul(*map(bare, INTEGERS), epilogue="relu", out=target) is target
    np.testing.assert_array_equal(out, rocpy.matmul(*INTEGERS))


def test_a_capsule_is_read_once():
    a, b = (array.copy() for array in INTEGERS)
    found = rocpy.matmul(a.__dlpack__(), b.__dlpack__(), epilogue="relu_aux")
    check(found, rocpy.matmul(a, b, epilogue="relu_aux"))


def test_mask_and_byte_order_of_a_device_interface():
    class Device:
        def __init__(self, array, mask=None):
            self.__cuda_array_interface__ = {**array.__array_interface__, "version": 3, "mask": mask}

    a = FLOATS[0]
    with pytest.raises(rocpy.InvalidOperandError, match="a: .*mask of its __cuda_array_interface__"):
        rocpy.matmul(Device(a, a), FLOATS[1])
    with pytest.raises(rocpy.InvalidOperandError, match="a: .*other byte order"):
        rocpy.matmul(Device(a.astype(">f4")), FLOATS[1])


@BARE
def test_custom_epilogues(bare):
    function = rocpy.epilogue(lambda x, s: np.tanh(x) * s)
    (a, b), s = FLOATS, np.full((1, 2), 2, "f4")
    wanted = rocpy.matmul(a, b, epilogue=function, epilogue_inputs={"s": s})
    arguments = {"epilogue": function, "epilogue_inputs": {"s": bare(s)}}
    check(rocpy.matmul(bare(a), bare(b), **arguments), wanted)
    check(rocpy.matmul(a, b, **arguments), wanted)
    check(executed(bare(a), bare(b), **arguments), wanted)
    with rocpy.Matmul(bare(a), bare(b), **arguments) as product:
        product.reset_operands(a=bare(np.zeros_like(a)))
        check(product.execute(), np.zeros_like(wanted))
        product.reset_operands(a=bare(a), b=bare(b), epilogue_inputs={"s": bare(2 * s)})
        check(product.execute(), 2 * wanted)


def capsule(array):
    return array.__dlpack__()


@pytest.mark.parametrize("bare", [capsule, OnlyDlpack, InterfaceOnly, memoryview])
@pytest.mark.parametrize("layout", ["kn", "nk"])
def test_weights(bare, layout):
    matrix, bias = FLOATS[1], np.arange(2, dtype="f4")
    source = np.ascontiguousarray(matrix.T) if layout == "nk" else matrix.copy()
    w = rocpy.Weight(bare(source), bare(bias), layout=layout)
    for factor in (1, 2):
        for one in (w, copy.deepcopy(w)):
            np.testing.assert_array_equal(
                rocpy.matmul(FLOATS[0], one, epilogue="bias"), FLOATS[0] @ matrix * factor + bias
            )
        np.testing.assert_array_equal(w.matrix(), matrix * factor)
        source *= 2
        w.refresh()


@pytest.mark.parametrize("bare", [InterfaceOnly, memoryview])
def test_weights_in_the_other_byte_order(bare):
    matrix, bias = FLOATS[1].astype(">f4"), np.arange(2).astype(">f4")
    w = rocpy.Weight(bare(matrix), bare(bias))
    np.testing.assert_array_equal(rocpy.matmul(FLOATS[0], w, epilogue="bias"), FLOATS[0] @ FLOATS[1] + bias)
    np.testing.assert_array_equal(w.matrix(), FLOATS[1])


class ActsWhenRead(OnlyDlpack):
    """An array that does something when it is read."""

    def __init__(self, array, action):
        super().__init__(array)
        self.action = action

    def __dlpack__(self, **options):
        self.action()
        return super().__dlpack__(**options)


@pytest.mark.parametrize("name", ["a", "b", "bias", "out"])
def test_lists_that_are_cleared_while_they_are_read(name):
    lists = {key: [np.ones(shape) for _ in range(3)] for key, shape in (("a", (2, 2)), ("b", (2, 2)), ("bias", 2))}
    lists["out"] = [np.zeros((2, 2)) for _ in range(3)]
    lists["b"][0] = ActsWhenRead(lists["b"][0], lists[name].clear)
    results = rocpy.grouped_matmul(lists["a"], lists["b"], epilogue="bias", bias=lists["bias"], out=lists["out"])
    assert [one.tolist() for one in results] == [[[3.0, 3.0], [3.0, 3.0]]] * 3
