# SPDX-License-Identifier: MIT
"""A mapped product is what the products of the entries are: their types, their values, and what they refuse."""

from __future__ import annotations

import itertools

import pytest

import rocpy
from rocpy.errors import InvalidProblemError, UnsupportedError

torch = pytest.importorskip("torch")
pytest.importorskip("rocpy.torch")

pytestmark = pytest.mark.torch
ROWS = rocpy.blaslt.EPILOGUES.values()
INTEGERS = [row.name for row in ROWS if not any(name in row.name for name in ("gelu", "silu", "sigmoid"))]
PLUS = rocpy.epilogue(lambda x, r: x + r)


def results(a, b, c=None, **arguments):
    result = rocpy.matmul(a, b, c, **arguments)
    return (result[0], *result[1].values()) if isinstance(result, tuple) else (result,)


def small(*shape, dtype):
    # Products of which no sum is rounded.
    return torch.randint(-9, 10, shape).to(dtype)


def operands_of(row, dtype, result):
    """Return shapes and types of a product's operands by name."""
    shapes = {"a": ((3, 4), dtype), "b": ((4, 5), dtype), "c": ((3, 5), result)}
    if row.bias:
        shapes["bias"] = ((5,), torch.int32 if result == torch.int8 else result)
    if row.aux == "load":
        shapes["aux"] = ((3, 5), result)
    return shapes


def check(row, dtype, result, clamp):
    given = {"epilogue": row.name, "dtype": result, **({"clamp": clamp} if row.clamp else {})}
    shapes = operands_of(row, dtype, result)

    def run(*values):
        return results(**dict(zip(shapes, values, strict=True)), **given)

    for mapped in itertools.product((0, None), repeat=len(shapes)):
        if mapped == (None,) * len(shapes):
            continue
        values = [
            small(*(shape if axis is None else (2, *shape)), dtype=kind)
            for (shape, kind), axis in zip(shapes.values(), mapped, strict=True)
        ]
        entries = [
            run(*(x if axis is None else x[i] for x, axis in zip(values, mapped, strict=True))) for i in range(2)
        ]
        for found, expected in zip(torch.vmap(run, in_dims=mapped)(*values), zip(*entries, strict=True), strict=True):
            torch.testing.assert_close(found, torch.stack(expected), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("result", [torch.int32, torch.int8], ids=str)
@pytest.mark.parametrize("epilogue", INTEGERS)
def test_integers(epilogue, result):
    check(rocpy.blaslt.EPILOGUES[epilogue], torch.int8, result, (0, 2**30))


@pytest.mark.parametrize("epilogue", [row.name for row in ROWS])
def test_floats(epilogue):
    check(rocpy.blaslt.EPILOGUES[epilogue], torch.float64, torch.float64, (-2.5, 7.5))


def test_sums_and_bounds_of_integers_are_exact():
    a, b = torch.full((2, 2, 1041), 127, dtype=torch.int8), torch.full((1041, 2), 127, dtype=torch.int8)
    sums = torch.vmap(lambda x: rocpy.matmul(x, b, epilogue="bgrada", dtype="int8")[1]["bgrada"])(a)
    assert (sums.dtype, sums.unique().tolist()) == (torch.int32, [127 * 1041])
    clamped = torch.vmap(lambda x: rocpy.matmul(x, b, epilogue="clamp", clamp=(0, 2**30)))(a)
    assert (clamped.dtype, clamped.unique().tolist()) == (torch.int32, [127 * 127 * 1041])


# Shapes of what is not mapped, for entries of shape (3, 4) and b of shape (4, 5).
REFUSED = {
    "c of entries": ({"c": (2, 3, 5)}, {}, "^c: shape"),
    "bias of entries": ({"bias": (2, 5)}, {"epilogue": "bias"}, "^bias: got shape"),
    "bias of all": ({"bias": (1,)}, {"epilogue": "relu_bias"}, "^bias: got shape"),
    "aux of entries": ({"aux": (2, 3, 5)}, {"epilogue": "drelu"}, "^aux: got shape"),
    "input of entries": ({"r": (2, 3, 5)}, {"epilogue": PLUS}, r"^epilogue_inputs\['r'\]: shape"),
    "input of two rows": ({"r": (2, 5)}, {"epilogue": PLUS}, r"^epilogue_inputs\['r'\]: shape"),
}


@pytest.mark.parametrize("count", [2, 0])
@pytest.mark.parametrize(("shapes", "given", "message"), REFUSED.values(), ids=REFUSED)
def test_what_one_product_refuses(shapes, given, message, count):
    a, b = torch.ones(count, 3, 4), torch.ones(4, 5)
    values = {name: torch.ones(shape) for name, shape in shapes.items()}
    if "r" in values:
        values = {"epilogue_inputs": values}
    with pytest.raises(InvalidProblemError, match=message):
        rocpy.matmul(torch.ones(3, 4), b, **values, **given)
    if count or "epilogue_inputs" not in values:
        with pytest.raises(InvalidProblemError, match=message):
            torch.vmap(lambda x: rocpy.matmul(x, b, **values, **given))(a)


def test_a_vector_of_each_entry_is_no_row_of_the_addend():
    x, w, c = torch.ones(3, 4), torch.ones(4, 5), torch.ones(3, 5)
    with pytest.raises(InvalidProblemError, match="^c: shape"):
        torch.vmap(lambda row: rocpy.matmul(row, w, c))(x)
    with pytest.raises(InvalidProblemError, match=r"^epilogue_inputs\['r'\]: shape"):
        torch.vmap(lambda row: rocpy.matmul(row, w, epilogue=PLUS, epilogue_inputs={"r": c}))(x)
    # The same inputs where a product of a vector is recorded.
    with pytest.raises(InvalidProblemError, match=r"^epilogue_inputs\['r'\]: shape"):
        rocpy.matmul(x[0].requires_grad_(), w, epilogue=PLUS, epilogue_inputs={"r": c})


def test_a_bias_that_torch_would_not_expand():
    a, b, bias = torch.ones(2, 3, 4), torch.ones(4, 1), torch.ones(1, 1)
    with pytest.raises(InvalidProblemError, match="^bias: got shape"):
        rocpy.matmul(a[0], b, epilogue="bias", bias=bias)
    with pytest.raises(InvalidProblemError, match="^bias: got shape"):
        torch.vmap(lambda x: rocpy.matmul(x, b, epilogue="bias", bias=bias))(a)


NO_FUNCTION = [
    (torch.int8, "gelu_aux"), (torch.int8, "sigmoid"), (torch.complex64, "relu"), (torch.complex64, "clamp"),
    (torch.complex64, "relu_aux"), (torch.complex64, "dgelu_bgrad"),
]  # fmt: skip


@pytest.mark.parametrize("columns", [8, 0])
@pytest.mark.parametrize(("dtype", "epilogue"), NO_FUNCTION)
def test_what_no_product_has(dtype, epilogue, columns):
    a, b = torch.ones(2, 3, 4).to(dtype), torch.ones(4, columns).to(dtype)
    given = {"clamp": (0, 1)} if epilogue == "clamp" else {}
    if epilogue == "dgelu_bgrad":
        given["aux"] = torch.ones(3, columns).to(dtype)
    for call in (lambda: rocpy.matmul(a[0], b, epilogue=epilogue, **given),
                 lambda: torch.vmap(lambda x: rocpy.matmul(x, b, epilogue=epilogue, **given))(a)):  # fmt: skip
        with pytest.raises(UnsupportedError, match=epilogue):
            call()
