# SPDX-License-Identifier: MIT
"""``alpha`` and ``beta`` are the same numbers wherever torch records, transforms or traces the product."""

from __future__ import annotations

import decimal
import fractions

import numpy as np
import pytest

import rocpy
from rocpy.errors import InvalidOperandError, InvalidProblemError

torch = pytest.importorskip("torch")
pytest.importorskip("rocpy.torch")

pytestmark = pytest.mark.torch
ONES = torch.ones(2, 2)
DOUBLED = rocpy.epilogue(lambda x: x * 2.0)


def run(a, name, value, epilogue=None, c=ONES):
    return rocpy.matmul(a, ONES, c, epilogue=epilogue, **{name: value})


CALLS = {
    "as it is": run,
    "recorded": lambda a, *others: run(a.clone().requires_grad_(), *others).detach(),
    "vmap": lambda a, *others: torch.vmap(lambda a: run(a, *others))(a.expand(1, 2, 2))[0],
}


@pytest.fixture(params=CALLS)
def call(request):
    return CALLS[request.param]


@pytest.mark.parametrize("name", ["alpha", "beta"])
@pytest.mark.parametrize("epilogue", [None, DOUBLED], ids=["none", "custom"])
@pytest.mark.parametrize(
    "value",
    ["2", " 2e0\n", "nan", b"2", bytearray(b"2"), [2], 10**400, -(10**400), 2 + 0j, 2 + 1j],
    ids=lambda x: str(x)[:9],
)
def test_what_is_no_number_is_refused(call, name, epilogue, value):
    if epilogue is DOUBLED and call is CALLS["vmap"]:
        epilogue = "relu"  # torch.func takes no c beside an epilogue of the user's
    with pytest.raises(InvalidOperandError, match=rf"^{name}: got .*expected a (real )?number on the host"):
        call(ONES, name, value, epilogue)


@pytest.mark.parametrize("name", ["alpha", "beta"])
@pytest.mark.parametrize("value", ["2", 10**400, 2**63], ids=lambda value: str(value)[:4])
def test_compiled(name, value):
    compiled = torch.compile(run, backend="eager")
    if value == 2**63:
        torch.testing.assert_close(compiled(ONES, name, value), run(ONES, name, value))
        return
    with pytest.raises(InvalidOperandError, match=rf"^{name}: got .*expected a (real )?number on the host"):
        compiled(ONES, name, value)


def test_alpha_is_not_left_out(call):
    with pytest.raises(InvalidOperandError, match=r"^alpha: got None"):
        call(ONES, "alpha", None)


@pytest.mark.parametrize("name", ["alpha", "beta"])
@pytest.mark.parametrize(
    "value", [2**63, -(2**70), 3, True, 2.5, np.float32(2), np.int64(3), fractions.Fraction(1, 2), decimal.Decimal(2)]
)
def test_numbers_of_every_kind(call, name, value):
    expected = 2 * float(value) + 1 if name == "alpha" else 2 + float(value)
    torch.testing.assert_close(call(ONES, name, value), torch.full((2, 2), expected), rtol=1e-6, atol=0)


@pytest.mark.parametrize("epilogue", [None, "relu", DOUBLED], ids=["none", "relu", "custom"])
def test_beta_needs_an_addend(call, epilogue):
    with pytest.raises(InvalidProblemError, match="^beta = 2 scales c"):
        call(ONES, "beta", 2, epilogue, None)


@pytest.mark.parametrize("value", ["2", None, 10**400, 1j], ids=lambda value: str(value)[:4])
def test_groups(value):
    a, groups = torch.ones(2, 2, requires_grad=True), ONES.expand(2, 2, 2)
    for product in (
        lambda: rocpy.grouped_matmul(a, groups, offsets=[0, 1, 2], alpha=value),
        lambda: rocpy.grouped_matmul([a], [ONES], alpha=value),
    ):
        with pytest.raises(InvalidOperandError, match="^alpha: got"):
            product()
