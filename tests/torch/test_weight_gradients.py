# SPDX-License-Identifier: MIT
"""A Weight drops no gradient: its source and its bias are asked at each product, not only when it was created."""

import importlib

import numpy as np
import pytest
import torch

import rocpy

A = torch.ones(4, 5)


def _toggled():
    source = torch.ones(5, 3)
    weight = rocpy.Weight(source)
    rocpy.matmul(A, weight)
    source.requires_grad_()
    return weight, source


def _parameter():
    source = torch.nn.Parameter(torch.ones(5, 3))
    with torch.no_grad():
        return rocpy.Weight(source), source


def _parameter_in_inference_mode():
    source = torch.nn.Parameter(torch.ones(5, 3))
    with torch.inference_mode():
        return rocpy.Weight(source), source


def _view_of_what_was_toggled():
    base = torch.ones(10, 3)
    source = base[:5]
    weight = rocpy.Weight(source)
    base.requires_grad_()
    return weight, source


def _swapped():
    source = torch.ones(5, 3)
    weight = rocpy.Weight(source)
    torch.utils.swap_tensors(source, torch.ones(5, 3, requires_grad=True))
    return weight, source


def _bias():
    source, bias = torch.ones(5, 3), torch.zeros(3)
    weight = rocpy.Weight(source, bias=bias)
    bias.requires_grad_()
    return weight, bias


def _bias_beside_numpy():
    bias = torch.zeros(3)
    weight = rocpy.Weight(np.ones((5, 3), np.float32), bias=bias)
    bias.requires_grad_()
    return weight, bias


@pytest.mark.parametrize("layer", ["without the layer", "with it"])
@pytest.mark.parametrize(
    "made",
    [
        _toggled,
        _parameter,
        _parameter_in_inference_mode,
        _view_of_what_was_toggled,
        _swapped,
        _bias,
        _bias_beside_numpy,
    ],
)
def test_a_gradient_is_refused_where_autograd_records(made, layer):
    if layer == "with it":
        importlib.import_module("rocpy.torch")
    weight, recorded = made()
    assert recorded.requires_grad
    for _ in range(2):
        with pytest.raises(rocpy.UnsupportedError, match="requires grad"):
            rocpy.matmul(A, weight, epilogue="bias" if made in (_bias, _bias_beside_numpy) else None)
    with torch.no_grad():
        torch.testing.assert_close(rocpy.matmul(A, weight), torch.full((4, 3), 5.0))
    with torch.inference_mode():
        torch.testing.assert_close(rocpy.matmul(A, weight), torch.full((4, 3), 5.0))
    if recorded.is_leaf and not recorded.requires_grad_(False).requires_grad:  # a view is as its base is
        torch.testing.assert_close(rocpy.matmul(A, weight), torch.full((4, 3), 5.0))
