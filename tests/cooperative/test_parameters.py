# SPDX-License-Identifier: MIT
"""Parameters of kernels: defaults are arguments like others, and all are positional."""

import numpy as np
import pytest

from rocpy import cooperative as coop
from rocpy.errors import InvalidOperandError, InvalidProblemError, KernelTypeError


@pytest.mark.torch
def test_a_default_may_be_whatever_an_argument_may_be():
    import torch

    held = torch.zeros(2)
    two = (np.float64(3), held)

    @coop.jit
    def kernel(x, y=held, pair=two, z=1):
        y[0] = x[0] + pair[0] + z
        y[1] += pair[1][0]

    for count, x in enumerate((np.ones(2), torch.ones(2)), start=1):
        kernel[1, 1](x)
        assert held.tolist() == [5, 5 * count]
    assert held._version == 2
    kernel[1, 1](np.ones(2), z=2)
    assert held.tolist() == [6, 16]
    with pytest.raises(InvalidProblemError, match="kernel.x, y, pair, z. was called with 0 arguments"):
        kernel[1, 1]()


def test_a_default_that_no_argument_may_be_is_named():
    def kernel(x, y=None):
        x[0] = 1

    with pytest.raises(InvalidOperandError, match="kernel: y is NoneType"):
        coop.jit(kernel)[1, 1](np.ones(2))


def _gathers(x, *r):
    x[0] = 1


def _named_only(x, *, r=2):
    x[0] = 1


def _names(x, **r):
    x[0] = 1


@pytest.mark.parametrize(("function", "shown"), [(_gathers, r"\*r"), (_named_only, "r"), (_names, r"\*\*r")])
def test_parameters_that_are_not_positional_are_named(function, shown):
    kernel = coop.jit(function)
    message = rf"kernel {function.__name__}: its parameter {shown} is not positional"
    with pytest.raises(KernelTypeError, match=message):
        kernel[1, 1](np.ones(2))
    with pytest.raises(KernelTypeError, match=message):
        coop.compile(kernel, "void(float64[::1])")


def test_a_grid_may_be_a_list():
    @coop.jit
    def kernel(x):
        x[coop.grid(1)] = coop.gridDim.x

    x = np.zeros(8)
    kernel[[2, 1], [4]](x)
    assert (x == 2).all()
