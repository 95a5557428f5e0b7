# SPDX-License-Identifier: MIT
"""Plans of objects that export memory, by DLPack or an array interface, and export other memory later."""

import numpy as np
import pytest
from dlpack_producers import OnlyDlpack

import rocpy

pytestmark = pytest.mark.skipif(
    not rocpy.platform.current().host_memory, reason="a GPU's plans copy what is in CPU memory"
)


class Interface:
    """An array whose interface is of the memory that it has at the moment."""

    def __init__(self, array):
        self.array = array

    @property
    def __array_interface__(self):
        return self.array.__array_interface__


class Copies(Interface):
    """An array whose interface is of a new copy at each reading; the one before is overwritten."""

    copy = None

    @property
    def __array_interface__(self):
        if self.copy is not None:
            self.copy.fill(100)
        self.copy = self.array.copy()
        return self.copy.__array_interface__


def ones(*shape, dtype="f4"):
    return np.ones(shape, dtype)


BYTES = {"a": ones(3, 4, dtype="i1"), "b": ones(4, 2, dtype="i1")}
FLOATS = {"a": ones(3, 4), "b": ones(4, 2)}
ADDED = {"epilogue": rocpy.epilogue(lambda x, r: x * 3 + r)}
# A plan's arrays and its other arguments.
PLANS = {
    "product": ({**FLOATS, "c": ones(3, 2), "bias": ones(2)}, {"epilogue": "relu_bias"}),
    "gradient": ({**FLOATS, "aux": ones(3, 2)}, {"epilogue": "drelu"}),
    "scaled": ({**BYTES, "scale_a": ones(3), "scale_b": ones(2)}, {"dtype": "float32"}),
    "composed": (BYTES, {"epilogue": "relu_aux"}),
    "function": ({**FLOATS, "c": ones(3, 2), "r": ones(3, 2)}, ADDED),
    "scaled function": ({**BYTES, "scale_a": ones(3), "scale_b": ones(2), "r": ones(3, 2)}, ADDED),
}
CASES = [(plan, name) for plan, (arrays, _) in PLANS.items() for name in arrays]
BARE = pytest.mark.parametrize("bare", [Interface, Copies, OnlyDlpack])


def planned(arrays, arguments):
    arrays = dict(arrays)
    if "r" in arrays:
        arguments = {**arguments, "epilogue_inputs": {"r": arrays.pop("r")}}
    return rocpy.Matmul(arrays.pop("a"), arrays.pop("b"), **arrays, **arguments)


def executed(product):
    outputs = product.execute()
    return outputs[0] if isinstance(outputs, tuple) else outputs


class New(Interface):
    """An array that exports a new copy at each reading, by DLPack too."""

    @property
    def __array_interface__(self):
        self.copy = self.array.copy()
        return self.copy.__array_interface__

    def __dlpack__(self, **arguments):
        return self.array.copy().__dlpack__(**arguments)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


@pytest.mark.parametrize("bare", [Interface, Copies, New, OnlyDlpack])
@pytest.mark.parametrize("make", [lambda: rocpy.Buffer((3, 2), "float32"), lambda: memoryview(ones(3, 2))])
def test_a_result_of_any_kind_beside_exported_operands(make, bare):
    with rocpy.Matmul(bare(ones(3, 4)), bare(ones(4, 2))) as product:
        assert (np.asarray(product.execute(out=make())) == 4).all()


@BARE
@pytest.mark.parametrize(("plan", "name"), CASES)
def test_an_execution_reads_what_is_exported_then(plan, name, bare):
    arrays, arguments = PLANS[plan]
    array = bare(arrays[name].copy())
    with planned({**arrays, name: array}, arguments) as product:
        before = executed(product)
        for factor in (2, 3):
            array.array = arrays[name] * arrays[name].dtype.type(factor)
            with planned({**arrays, name: array.array}, arguments) as expected:
                np.testing.assert_array_equal(executed(product), executed(expected))
        if name != "aux":  # of which the sign alone counts
            assert (executed(product) != before).all()
        array.array = array.array[..., :1].copy()
        with pytest.raises(
            rocpy.InvalidOperandError, match=rf"^(epilogue_inputs\['r'\]|{name}): had shape .* and now has"
        ):
            product.execute()
        array.array = arrays[name].copy()
        np.testing.assert_array_equal(executed(product), before)


@BARE
def test_operands_that_take_the_place_of_others(bare):
    array, other = bare(ones(3, 4)), bare(ones(3, 4))
    with rocpy.Matmul(FLOATS["a"], FLOATS["b"]) as product:
        product.reset_operands(a=array)
        array.array = 2 * ones(3, 4)
        np.testing.assert_array_equal(product.execute(), np.full((3, 2), 8))
        product.reset_operands(a=other)
        array.array = ones(1)  # which is the plan's no more
        other.array = 3 * ones(3, 4)
        np.testing.assert_array_equal(product.execute(), np.full((3, 2), 12))


@BARE
@pytest.mark.parametrize("name", ["w", "bias", "scale"])
def test_a_weight_that_is_refreshed(name, bare):
    arrays = {"w": ones(4, 2, dtype="i1"), "bias": ones(2), "scale": ones(2)}
    x, arguments = BYTES["a"], {"scale_a": 1.0, "dtype": "float32", "epilogue": "bias"}
    array = bare(arrays[name].copy())
    weight = rocpy.Weight(**{**arrays, name: array})
    before = rocpy.matmul(x, weight, **arguments)
    array.array = arrays[name] * arrays[name].dtype.type(2)
    np.testing.assert_array_equal(rocpy.matmul(x, weight, **arguments), before)
    weight.refresh()
    expected = rocpy.Weight(**{**arrays, name: array.array})
    np.testing.assert_array_equal(rocpy.matmul(x, weight, **arguments), rocpy.matmul(x, expected, **arguments))


@pytest.mark.jax
@pytest.mark.parametrize("plan", ["product", "composed", "function"])
def test_a_deleted_array_of_jax(plan):
    jnp = pytest.importorskip("jax.numpy")
    arrays, arguments = PLANS[plan]
    a = jnp.asarray(arrays["a"])
    with planned({**arrays, "a": a}, arguments) as product:
        product.execute()
        a.delete()
        with pytest.raises(rocpy.InvalidOperandError, match="^a: .*deleted"):
            product.execute()
