# SPDX-License-Identifier: MIT
"""reset_operands: operands that are not named stay what they were, or are refused, as by an execution."""

import numpy as np
import pytest

import rocpy

pytestmark = pytest.mark.skipif(
    not rocpy.platform.current().host_memory, reason="operands are copied to the device when they are given"
)


def _values(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _shrunk(array):
    array.resize((2, 2), refcheck=False)


def _transposed(array):
    array.strides = array.strides[::-1]


def _retyped(array):
    array.dtype = np.int32


OTHERS = [
    {},
    {"alpha": 2.0},
    {"beta": 0.5},
    {"a": _values(9, 16, 16)},
    {"c": _values(8, 16, 16)},
]


CHANGES = [
    (name, change, others)
    for name in ("a", "b", "c", "bias")
    for change in (_shrunk, _transposed, _retyped)
    for others in OTHERS
    if name not in others and (name != "bias" or change is _retyped)  # a vector has no other order
]


@pytest.mark.parametrize(
    ("name", "change", "others"),
    CHANGES,
    ids=[f"{name}{change.__name__}-{'-'.join(others) or 'nothing'}" for name, change, others in CHANGES],
)
@pytest.mark.filterwarnings("ignore:Setting the (strides|dtype|shape):DeprecationWarning")
def test_an_operand_that_became_another_one_is_refused(name, change, others):
    arrays = {"a": _values(0, 16, 16), "b": _values(1, 16, 16), "c": _values(2, 16, 16), "bias": _values(3, 16)}
    product = rocpy.Matmul(*[arrays[x] for x in "abc"], beta=1.0, epilogue="bias", bias=arrays["bias"])
    product.execute()
    change(arrays[name])
    for _ in range(2):
        with pytest.raises(rocpy.InvalidOperandError, match=f"^{name}: had shape"):
            product.reset_operands(**others)
        with pytest.raises(rocpy.InvalidOperandError, match=f"^{name}: had shape"):
            product.execute()
    arrays[name] = _values(7, *((16,) if name == "bias" else (16, 16)))
    product.reset_operands(**{name: arrays[name]})
    expected = arrays["a"].astype(float) @ arrays["b"] + arrays["c"] + arrays["bias"]
    np.testing.assert_allclose(product.execute(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("change", ["transposed", "larger", "other type", "same"])
def test_a_tensor_with_other_data(change, torch):
    a, b = torch.randn(4, 4), torch.randn(4, 4)
    product = rocpy.Matmul(a, b)
    b.data = {
        "transposed": torch.randn(4, 4).t(),
        "larger": torch.randn(8, 8),
        "other type": torch.ones(4, 4, dtype=torch.int64),
        "same": torch.randn(4, 4),
    }[change]
    if change == "same":
        product.reset_operands(a=2 * a)
        torch.testing.assert_close(product.execute(), 2 * a @ b)
        return
    with pytest.raises(rocpy.InvalidOperandError, match="b: had shape"):
        product.reset_operands(a=a)


def test_released_operands_are_not_asked():
    a, b = _values(0, 8, 8), _values(1, 8, 8)
    product = rocpy.Matmul(a, b)
    product.execute()
    product.release_operands()
    b.resize((2, 2), refcheck=False)
    product.reset_operands(a=a, b=_values(2, 8, 8))
    np.testing.assert_allclose(product.execute(), a @ _values(2, 8, 8), rtol=1e-4, atol=1e-5)
