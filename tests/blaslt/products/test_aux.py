# SPDX-License-Identifier: MIT
"""Auxiliary outputs, and the gradients that are made from them, against finite differences."""

from __future__ import annotations

import numpy as np
import pytest

import rocpy
from rocpy.testing import evaluate, oracles
from rocpy.testing.runner import check_outputs

FORWARD = {"gelu_aux": "dgelu", "relu_aux": "drelu"}


@pytest.fixture
def layer(rng):
    return (rng.standard_normal(shape) for shape in ((6, 5), (5, 7), (7,)))


@pytest.mark.parametrize("name", FORWARD)
def test_dict_and_array_are_the_same_aux(name, layer, rng):
    x, w, bias = layer
    _, aux = rocpy.matmul(x, w, epilogue=name + "_bias", bias=bias)
    assert list(aux) == [name]
    assert aux[name].shape == (6, 7)
    g = rng.standard_normal((6, 5))
    by_dict = rocpy.matmul(g, w, epilogue=FORWARD[name], aux=aux)
    by_array = rocpy.matmul(g, w, epilogue=FORWARD[name], aux=aux[name])
    np.testing.assert_array_equal(by_dict, by_array)


def test_aux_is_the_pre_activation(layer):
    x, w, bias = layer
    plain = rocpy.matmul(x, w, epilogue="bias", bias=bias)
    for name in ("gelu_aux", "relu_aux", "clamp_aux"):
        options = {"clamp": (-0.5, 0.5)} if name == "clamp_aux" else {}
        d, aux = rocpy.matmul(x, w, epilogue=name + "_bias", bias=bias, **options)
        np.testing.assert_allclose(aux[name], plain, rtol=1e-13)
        forward, _ = rocpy.matmul(x, w, epilogue=name + "_bias", bias=bias, out=np.empty((6, 7)), **options)
        np.testing.assert_array_equal(d, forward)


def test_aux_of_vectors_and_batches(rng):
    a, b = rng.standard_normal((2, 3, 4, 5)), rng.standard_normal((5, 6))
    for left, right in ((a, b), (a[0, 0, 0], b), (a, b[:, 0]), (a[0, 0, 0], b[:, 0]), (a[:, :, :1], b)):
        outputs = rocpy.matmul(left, right, epilogue="gelu_aux")
        assert outputs[1]["gelu_aux"].shape == np.matmul(left, right).shape
        for found in check_outputs(evaluate(left, right, epilogue="gelu_aux"), outputs, np.float64).values():
            assert found.ok, found.message


@pytest.mark.parametrize("name", FORWARD)
def test_the_backward_chain_equals_finite_differences(name, layer, rng):
    # Two layers: y = act(x w1 + b1) w2, loss = sum(y * g); every gradient that the epilogues can give is compared.
    x, w1, b1 = layer
    w2, g = rng.standard_normal((7, 4)), rng.standard_normal((6, 4))
    activation = oracles.FUNCTIONS[name.removesuffix("_aux")]

    def loss(x, w1, b1, w2):
        return float((activation(x @ w1 + b1) @ w2 * g).sum())

    h, aux = rocpy.matmul(x, w1, epilogue=name + "_bias", bias=b1)
    dz, grads = rocpy.matmul(g, w2.T, epilogue=FORWARD[name] + "_bgrad", aux=aux)
    found = {"w2": rocpy.matmul(h.T, g), "b1": grads["bgrad"], "w1": rocpy.matmul(x.T, dz), "x": rocpy.matmul(dz, w1.T)}

    values = {"x": x, "w1": w1, "b1": b1, "w2": w2}
    step = 1e-6
    for key, value in values.items():
        numeric = np.empty_like(value)
        for index in np.ndindex(value.shape):
            shifted = {k: v.copy() for k, v in values.items()}
            shifted[key][index] += step
            above = loss(**shifted)
            shifted[key][index] -= 2 * step
            numeric[index] = (above - loss(**shifted)) / (2 * step)
        np.testing.assert_allclose(found[key], numeric, rtol=1e-6, atol=1e-6, err_msg=key)


def test_bias_gradients_of_a_plain_backward(layer, rng):
    x, _, _ = layer
    g = rng.standard_normal((6, 7))
    dw, grads = rocpy.matmul(x.T, g, epilogue="bgradb")
    np.testing.assert_allclose(dw, x.T @ g, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(grads["bgradb"], g.sum(0), rtol=1e-12, atol=1e-12)
    _, grads = rocpy.matmul(g.T, x, epilogue="bgrada")
    np.testing.assert_allclose(grads["bgrada"], g.sum(0), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("epilogue", ["drelu", "drelu_bgrad", "dgelu", "dgelu_bgrad"])
def test_aux_that_is_missing_or_wrong(epilogue):
    a, b = np.ones((3, 4), dtype=np.float32), np.ones((4, 5), dtype=np.float32)
    good = np.ones((3, 5), dtype=np.float32)
    for wrong, text in (
        (None, r"needs aux="),
        (good.T.copy(), r"aux: got shape \(5, 3\)"),
        (good[0], r"aux: got shape \(5,\)"),
        (good.astype(np.float64), "aux is float64"),
        ({}, "aux"),
        ({"bgrad": good}, "aux"),
        ({"gelu_aux": good, "relu_aux": good}, "aux"),
        ("text", "aux"),
    ):
        with pytest.raises((rocpy.InvalidProblemError, rocpy.InvalidOperandError), match=text):
            rocpy.matmul(a, b, epilogue=epilogue, aux=wrong)


def test_aux_where_none_is_taken():
    a, b = np.ones((3, 4), dtype=np.float32), np.ones((4, 5), dtype=np.float32)
    for epilogue in ("default", "relu", "gelu_aux"):
        with pytest.raises(rocpy.InvalidProblemError, match="takes no aux"):
            rocpy.matmul(a, b, epilogue=epilogue, aux=np.ones((3, 5), dtype=np.float32))


@pytest.mark.torch
def test_the_torch_backward_agrees_with_autograd(torch):
    torch.manual_seed(1)
    x, w, bias, g = torch.randn(33, 20), torch.randn(20, 17), torch.randn(17), torch.randn(33, 17)
    h, aux = rocpy.matmul(x, w, epilogue="gelu_aux_bias", bias=bias)
    parameters = [item.clone().requires_grad_() for item in (x, w, bias)]
    y = torch.nn.functional.gelu(parameters[0] @ parameters[1] + parameters[2], approximate="tanh")
    torch.testing.assert_close(h, y.detach())
    y.backward(g)
    # g times the identity is g, so the epilogue alone acts on it.
    dz, grads = rocpy.matmul(g, torch.eye(17), epilogue="dgelu_bgrad", aux=aux)
    torch.testing.assert_close(grads["bgrad"], parameters[2].grad, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(rocpy.matmul(x.T, dz), parameters[1].grad, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(rocpy.matmul(dz, w.T), parameters[0].grad, rtol=1e-5, atol=1e-5)
