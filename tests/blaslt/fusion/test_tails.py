# SPDX-License-Identifier: MIT
"""Far to the left silu and sigmoid have their values down to the smallest subnormal number: none is flushed to 0."""

import ml_dtypes
import numpy as np
import pytest

import rocpy

# From where exp(-x) leaves half of the exponents to where x sigmoid(x) is 0.
RANGES = {"float32": (-112.0, -60.0), "bfloat16": (-112.0, -60.0), "float64": (-760.0, -480.0)}
TYPES = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16, "float64": np.float64}


@pytest.mark.parametrize("dtype", RANGES)
@pytest.mark.parametrize("name", ["silu", "silu_bias", "silu_aux", "silu_aux_bias", "sigmoid", "sigmoid_bias", "dsilu"])
@pytest.mark.parametrize("programs", [True, False])
def test_tails(name, dtype, programs, request):
    if not programs:
        request.getfixturevalue("without_programs")
    x = np.linspace(*RANGES[dtype], 501)[:, None].astype(TYPES[dtype])
    one = np.ones((1, 1), TYPES[dtype])
    arguments = {"bias": np.zeros(1, TYPES[dtype])} if "bias" in name else {"aux": x} if name == "dsilu" else {}
    a = np.ones_like(x) if name == "dsilu" else x
    found = rocpy.matmul(a, one, epilogue=name, **arguments)
    found = (found[0] if isinstance(found, tuple) else found).astype(np.longdouble)
    wide = x.astype(np.longdouble)
    s = np.exp(wide) / (1 + np.exp(wide))
    wanted = {"s": wide * s, "d": s * (1 + wide * (1 - s))}[name[0]] if "silu" in name else s
    form = ml_dtypes.finfo(TYPES[dtype])
    least = np.longdouble(form.smallest_subnormal)
    step = np.maximum(np.abs(wanted) * np.longdouble(form.eps), least)
    # Frameworks multiply by a sigmoid that is subnormal first.
    slack = -wide * least if rocpy.explain(a, one, epilogue=name, **arguments).unfused else 0
    assert (np.abs(found - wanted) <= (8 if name == "dsilu" else 3) * step + slack).all()
    assert (found[np.abs(wanted) > 3 * least + slack] != 0).all()


@pytest.mark.parametrize("dtype", RANGES)
@pytest.mark.parametrize(("name", "limits"), [("silu", (-0.0, np.inf)), ("sigmoid", (0.0, 1.0))])
def test_limits(name, limits, dtype):
    x = np.array([[-np.inf, -1e30, np.inf, np.nan]], TYPES[dtype]).T
    found = rocpy.matmul(x, np.ones((1, 1), TYPES[dtype]), epilogue=name).astype(np.float64).ravel()
    wanted = np.array([limits[0], limits[0], limits[1], np.nan])
    np.testing.assert_array_equal(found, wanted)
    assert (np.signbit(found) == np.signbit(wanted))[:3].all()
