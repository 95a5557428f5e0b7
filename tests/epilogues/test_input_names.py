# SPDX-License-Identifier: MIT
"""An input may have any name that a parameter may: those of the product and of the code's own arguments too."""

import numpy as np
import pytest

import rocpy

NAMES = ["x", "x_", "a", "b", "c", "w", "self", "input", "grad", "grad_x", "product", "alpha", "out", "inputs"]


def epilogue_of(name):
    """Return a function of the product, whose own name is another one, and of an input of a name."""
    function = eval(f"lambda y, {name}: y * {name} + y")
    return function, rocpy.epilogue(function)


@pytest.mark.parametrize("name", NAMES)
def test_values(name, rng):
    function, epilogue = epilogue_of(name)
    a, b, r = (rng.standard_normal(shape, dtype=np.float32) for shape in ((3, 4), (4, 5), (3, 5)))
    d = rocpy.matmul(a, b, epilogue=epilogue, epilogue_inputs={name: r})
    np.testing.assert_allclose(d, function(a @ b, r), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(epilogue.evaluate(a @ b, **{name: r}), function(a @ b, r), rtol=1e-6)
    np.testing.assert_array_equal(epilogue(a @ b, **{name: r}), function(a @ b, r))
    unpickled = rocpy.epilogues.CustomEpilogue.from_json(epilogue.to_json())
    np.testing.assert_allclose(unpickled(a @ b, **{name: r}), function(a @ b, r), rtol=1e-6)


@pytest.mark.torch
@pytest.mark.parametrize("needed", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_gradients(torch, name, needed):
    import rocpy.torch

    function, epilogue = epilogue_of(name)
    a, b, r = (torch.randn(shape, dtype=torch.float64) for shape in ((3, 4), (4, 5), (3, 5)))
    leaves = [a.requires_grad_(), b.requires_grad_()] + ([r.requires_grad_()] if needed else [])
    grad = torch.randn(3, 5, dtype=torch.float64)
    found = torch.autograd.grad(
        rocpy.torch.matmul(a, b, epilogue=epilogue, epilogue_inputs={name: r}), leaves, grad, retain_graph=True
    )
    for mine, theirs in zip(found, torch.autograd.grad(function(a @ b, r), leaves, grad), strict=True):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("name", NAMES)
def test_the_gradient_names_the_product_apart(name):
    _, epilogue = epilogue_of(name)
    gradient = epilogue.vjp()
    assert gradient.names == (gradient.product, name)
    assert gradient.saved == (gradient.product, name)
    assert gradient.product == ("x_" if name == "x" else "x")
    y, r, g = (np.full((2, 2), value, np.float64) for value in (2, 3, 5))
    found = gradient(y, {name: r}, [g])
    assert {key: value[0, 0] for key, value in found.items()} == {gradient.product: 20.0, name: 10.0}
    assert list(gradient(y, {name: r}, [g], [name])) == [name]
