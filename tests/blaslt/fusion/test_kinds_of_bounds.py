# SPDX-License-Identifier: MIT
"""Bounds of a clamp are two numbers of any kind, in anything that can be read twice, fused and composed."""

from __future__ import annotations

import numpy as np
import pytest

import rocpy
from rocpy.testing.runner import to_torch

BOUNDS = {
    "a list": lambda: [-1, 2],
    "numpy's numbers": lambda: (np.float32(-1), np.int8(2)),
    "a long double": lambda: (np.longdouble(-1), 2),
    "arrays without axes": lambda: (np.array(-1), np.array(2.0)),
    "an array": lambda: np.array([-1, 2]),
}
TENSORS = {
    "tensors": lambda torch: (torch.tensor(-1), torch.tensor(2.0)),
    "a tensor": lambda torch: torch.tensor([-1, 2]),
}


def numbers(kind, axis):
    x = np.random.default_rng(axis).integers(-9, 9, (4, 32) if axis else (32, 6))
    if kind in ("float32", "float64", "int8"):
        return (x.astype(kind),)
    conversion, dtype = (rocpy.quantize_mx, kind[3:]) if kind.startswith("mx") else (rocpy.quantize, kind)
    return conversion(x.astype(np.float32), dtype, axis=-1 if axis else -2)


def product(form, kind, clamp, to=lambda x: x):
    """Return the arrays that a product gives with bounds."""
    (a, *scale_a), (b, *scale_b) = numbers(kind, 1), numbers(kind, 0)
    arguments = {"clamp": clamp, "epilogue": "clamp"}
    if scale_a:
        arguments |= {"scale_a": to(scale_a[0]), "scale_b": to(scale_b[0]), "dtype": "float32"}
    a, b = to(a), to(b)
    if form == "aux":
        result = rocpy.matmul(a, b, **{**arguments, "epilogue": "clamp_aux"})
    elif form == "amax":
        result = rocpy.matmul(a, b, amax=True, **arguments)
    elif form == "planned":
        result = rocpy.Matmul(a, b, **{**arguments, "epilogue": "clamp_aux"}).execute()
    elif form == "groups":
        result = rocpy.grouped_matmul([a], [b], **arguments)[0]
    else:
        result = rocpy.matmul(a, b, **arguments)
    result, extra = result if isinstance(result, tuple) else (result, {})
    return [np.asarray(one) for one in (result, *extra.values())]


PRODUCTS = pytest.mark.parametrize(
    ("form", "kind"),
    [(form, kind) for form in ("function", "aux", "planned", "groups") for kind in ("float32", "float64", "int8")]
    + [("function", "float8_e4m3fn"), ("amax", "float8_e4m3fn"), ("amax", "mx float8_e4m3fn")],
)


@PRODUCTS
@pytest.mark.parametrize("bounds", BOUNDS)
def test_bounds_of_every_kind(form, kind, bounds):
    for one, wanted in zip(product(form, kind, BOUNDS[bounds]()), product(form, kind, (-1.0, 2.0)), strict=True):
        np.testing.assert_array_equal(one, wanted)


@pytest.mark.torch
@PRODUCTS
@pytest.mark.parametrize("to", [np.asarray, to_torch])
def test_bounds_that_are_tensors_or_stand_beside_them(torch, form, kind, to):
    wanted = product(form, kind, (-1.0, 2.0))
    for bounds in (*(make(torch) for make in TENSORS.values()), *(make() for make in BOUNDS.values())):
        for one, other in zip(product(form, kind, bounds, to), wanted, strict=True):
            np.testing.assert_array_equal(one, other)


@PRODUCTS
@pytest.mark.parametrize(
    "bounds",
    [
        lambda: iter([-1, 2]),
        lambda: (x for x in (-1, 2)),
        dict.fromkeys([-1]).items,
        lambda: frozenset([0, 2]),
        lambda: {0: 5, 2: 6},
    ],
)
def test_what_is_no_pair_in_an_order_that_can_be_read_twice_is_refused(form, kind, bounds):
    with pytest.raises(rocpy.InvalidProblemError, match="^clamp: got .*expected a pair of numbers"):
        product(form, kind, bounds())
