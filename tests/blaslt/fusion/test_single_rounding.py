# SPDX-License-Identifier: MIT
"""Float64 products are rounded once to a narrow type: in casts of an epilogue, and in an out of that type."""

import fractions

import ml_dtypes
import numpy as np
import pytest

import rocpy

NARROW = ["bfloat16", "float16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz"]


def numbers(form):
    """Return numbers beside those in the middle of two of a format, nearer to one than float32 can say."""
    digits = form.nmant + 1
    edges = [form.smallest_subnormal, form.smallest_normal, 1.0, float(form.max) / 2]
    middles = [float(edge) * (1 + (2 * i + 1) * 2.0**-digits) for edge in edges for i in (0, 1, 2)]
    middles += [1.5 * float(form.smallest_subnormal), 0.5 * float(form.smallest_subnormal), 0.0, -0.0]
    near = [x * (1 + sign * 2.0**-40) for x in middles for sign in (-1, 0, 1)]
    return np.array([*near, *(-x for x in near), np.inf, np.nan])


def exact(x, form):
    """Return numbers rounded to nearest even in a format of 16 bits or less, within its range."""
    digits, least = form.nmant + 1, float(form.smallest_subnormal)
    result = []
    for one in x:
        if not np.isfinite(one) or one == 0:
            result.append(one)
            continue
        step = fractions.Fraction(max(2.0 ** (np.frexp(one)[1] - digits), least))
        result.append(float(round(fractions.Fraction(one) / step) * step))
    return np.array(result)


@pytest.mark.parametrize("name", NARROW)
@pytest.mark.parametrize("way", ["cast", "cast in the middle", "out"])
@pytest.mark.parametrize("framework", ["numpy", pytest.param("torch", marks=pytest.mark.torch)])
def test_float64_products(name, way, framework, request):
    form = ml_dtypes.finfo(rocpy.dtypes.lookup(name).numpy)
    x = numbers(form)
    wanted = exact(x, form)
    finite = np.isfinite(x)
    a, b = x[:, None], np.ones((1, 1))
    out = np.zeros((len(x), 1), rocpy.dtypes.lookup(name).numpy)
    if framework == "torch":
        torch = request.getfixturevalue("torch")
        a, b, out = torch.from_numpy(a), torch.from_numpy(b), torch.zeros(out.shape, dtype=getattr(torch, name))
    if way == "out":
        found = rocpy.matmul(a, b, out=out)
        assert found is out
    elif way == "cast":
        found = rocpy.matmul(a, b, epilogue=rocpy.epilogue(lambda x: x.astype(name)))
    else:
        found = rocpy.matmul(a, b, epilogue=rocpy.epilogue(lambda x: x.astype(name).astype("float64")))
    found = found.double().numpy() if framework == "torch" else found.astype(np.float64)
    np.testing.assert_array_equal(found.ravel()[finite], wanted[finite])
    assert np.isnan(found.ravel()[-1])
    if "fnuz" not in name:
        assert (np.signbit(found.ravel()) == np.signbit(x))[finite & (x != 0)].all()


@pytest.mark.torch
def test_gradients_pass_through_a_cast(torch):
    x = torch.full((3, 2), 1 + 2.0**-8 + 2.0**-40, dtype=torch.float64, requires_grad=True)
    found = rocpy.matmul(x, torch.eye(2, dtype=torch.float64), epilogue=rocpy.epilogue(lambda x: x.astype("bfloat16")))
    found.sum().backward()
    assert (found == 1.0078125).all()
    np.testing.assert_array_equal(x.grad, 1.0)


CASTS = {
    "to float32 and back": lambda x: x.astype("float32").astype("float64") - x,
    "float32 in the middle": lambda x: (x.astype("float32") * 3).astype("float64"),
    "float64 in the middle": lambda x: (x.astype("float64") + 1e-9 - x).astype("float32"),
    "compared as float32": lambda x: np.where(x.astype("float32") > x, x, -x),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("casts", CASTS)
def test_each_cast_rounds_and_what_is_between_is_computed_in_its_type(casts, dtype):
    x = np.linspace(0.1, 3.7, 21, dtype=dtype).reshape(3, 7)
    found = rocpy.matmul(x, np.eye(7, dtype=dtype), epilogue=rocpy.epilogue(CASTS[casts]))
    np.testing.assert_array_equal(found, CASTS[casts](x))
