# SPDX-License-Identifier: MIT
"""Products with tile programs: what programs read and write, every algorithm, plans, and what is refused."""

import numpy as np
import pytest
from presented import skip_extension

import rocpy
from rocpy.blaslt.custom.tile import algorithms, product
from rocpy.blaslt.engine.program import OPCODES, TileProgram, available
from rocpy.blaslt.model.scale_arguments import ScaleArguments

pytestmark = pytest.mark.skipif(
    not rocpy.platform.current().host_memory,
    reason="the bare functions under test take operands that the device can use; custom epilogues copy them",
)

SILU_RESIDUAL = TileProgram(
    [("VALUE", 0), ("INPUT", 1, 0), ("ADD", 0, 0, 1), ("SILU", 0, 0), ("INPUT", 2, 1), ("ADD", 0, 0, 2)], 0, inputs=2
)
TWICE = TileProgram([("VALUE", 0), ("ADD", 0, 0, 0)], 0)


def silu(x):
    return x / (1 + np.exp(-x))


def draw(seed, *shape, dtype=np.float32):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def near(seen, wanted, k, eps=2.0**-24):
    wanted = np.asarray(wanted, np.float64)
    assert seen.shape == wanted.shape
    # Operands are standard normal: sums have about sqrt(k) terms' worth of size, errors of k roundings.
    bound = (k + 40) * eps * (np.abs(wanted) + 4 * np.sqrt(k) + 4)
    assert np.all(np.abs(np.asarray(seen, np.float64) - wanted) <= bound)


def test_the_host_platform_runs_programs():
    assert available()
    assert OPCODES["VALUE"] == (1, 0)
    assert OPCODES["WHERE"][1] == 3


@pytest.mark.parametrize(
    ("m", "n", "k"), [(1, 1, 1), (5, 33, 7), (70, 3, 40), (3, 700, 20), (64, 96, 200), (20, 20, 9000)]
)
def test_bias_silu_and_residual(m, n, k):
    a, b, bias, residual = draw(1, m, k), draw(2, k, n), draw(3, n), draw(4, m, n)
    wanted = silu(a.astype(np.float64) @ b.astype(np.float64) + bias) + residual
    for rank in range(len(algorithms(a, b, program=SILU_RESIDUAL, inputs=(bias, residual), requested=64))):
        (seen,) = product(a, b, program=SILU_RESIDUAL, inputs=(bias, residual), rank=rank)
        near(seen, wanted, k)


@pytest.mark.parametrize("layout", ["row", "column", "reversed", "stepped"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_inputs_of_every_layout_and_type(layout, dtype):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    kind = np.dtype(getattr(ml_dtypes, dtype, None) or dtype)
    a, b = draw(1, 6, 9).astype(kind), draw(2, 9, 34).astype(kind)
    full = draw(3, 12, 68).astype(kind)
    residual = {
        "row": full[:6, :34],
        "column": np.asfortranarray(full[:6, :34]),
        "reversed": full[:6, 33::-1],
        "stepped": full[::2, ::2],
    }[layout]
    column = draw(4, 6, 1).astype(kind)
    wide = np.float64
    (seen,) = product(a, b, program=SILU_RESIDUAL, inputs=(column, residual))
    assert seen.dtype == kind
    wanted = silu(a.astype(wide) @ b.astype(wide) + column.astype(wide)) + residual.astype(wide)
    near(seen, wanted, 9, {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}[dtype])


@pytest.mark.parametrize(
    ("a_shape", "b_shape"),
    [
        ((2, 5, 4), (4, 6)),
        ((2, 1, 5, 4), (3, 4, 6)),
        ((4,), (4, 6)),
        ((5, 4), (4,)),
        ((3, 1, 4), (4, 6)),
        ((2, 3, 4), (2, 4, 1)),
    ],
)
def test_batches_and_vectors(a_shape, b_shape):
    a, b = draw(1, *a_shape), draw(2, *b_shape)
    plain = a.astype(np.float64) @ b.astype(np.float64)
    for shape in {plain.shape, plain.shape[-1:], (1,) * plain.ndim, (), (*plain.shape[:-1], 1)}:
        x, y = draw(3, *shape), draw(4, *plain.shape)
        (seen,) = product(a, b, program=SILU_RESIDUAL, inputs=(x, y))
        near(seen, silu(plain + x) + y, 4)
    # The input of one batch entry serves all.
    if plain.ndim > 2:
        (seen,) = product(a, b, program=SILU_RESIDUAL, inputs=(draw(5, *plain.shape[-2:]), y))
        near(seen, silu(plain + draw(5, *plain.shape[-2:])) + y, 4)


def test_alpha_c_bias_outputs_and_masks():
    gate = TileProgram(
        [
            ("VALUE", 0), ("INPUT", 1, 0), ("CONSTANT", 2, 0.5), ("OUTPUT", 0, 0), ("GT", 3, 0, 2), ("OUTPUT", 3, 1),
            ("WHERE", 0, 1, 0, 2), ("ROUND", 0, 0, "float16"), ("CONSTANT", 4, 2), ("MUL", 0, 0, 4),
        ],
        result=0, inputs=1, outputs=("float32", "bool"),
    )  # fmt: skip
    a, b, c, bias = draw(1, 7, 8), draw(2, 8, 40), draw(3, 7, 40), draw(4, 40)
    mask = np.random.default_rng(5).integers(0, 2, (7, 40)).astype(bool)
    result, pre, large = product(a, b, c, alpha=-0.5, beta=2.0, bias=bias, program=gate, inputs=(mask,))
    wanted = -0.5 * (a.astype(np.float64) @ b) + 2 * c + bias
    near(pre, wanted, 8)
    assert np.array_equal(large, pre > 0.5)
    assert np.array_equal(result, 2 * np.where(mask, pre, np.float32(0.5)).astype(np.float16).astype(np.float32))
    assert (large.dtype, pre.dtype) == (np.bool_, np.float32)


def test_operands_that_must_be_copied():
    a, b = draw(1, 14, 24)[::2, ::2], draw(2, 24, 60)[::2, ::-3]
    wanted = 2 * (a.astype(np.float64) @ b)
    near(product(a, b, program=TWICE)[0], wanted, 12)
    with pytest.raises(rocpy.UnsupportedError, match="copies='error'"):
        product(a, b, program=TWICE, options={"copies": "error"})


def test_weights_and_integers():
    x, w, bias = draw(1, 9, 32), draw(2, 32, 70), draw(3, 70)
    packed = rocpy.Weight(w)
    near(product(x, packed, program=TWICE, bias=bias)[0], 2 * (x.astype(np.float64) @ w + bias), 32)
    requantise = TileProgram(
        [
            ("VALUE", 0), ("INPUT", 1, 0), ("MUL", 0, 0, 1),
            ("CONSTANT", 1, -128), ("MAX", 0, 0, 1), ("CONSTANT", 1, 127), ("MIN", 0, 0, 1),
        ],
        result=0, inputs=1,
    )  # fmt: skip
    a = np.random.default_rng(4).integers(-128, 128, (6, 64), np.int8)
    b = np.random.default_rng(5).integers(-128, 128, (64, 40), np.int8)
    scale = (2.0 ** -(np.arange(40) % 7 + 5)).astype(np.float32)
    exact = np.rint(np.clip((a.astype(np.int32) @ b.astype(np.int32)) * scale.astype(np.float64), -128, 127))
    (seen,) = product(a, b, program=requantise, inputs=(scale,), dtype="int8")
    assert seen.dtype == np.int8
    assert np.array_equal(seen, exact)


def test_integers_that_give_floats():
    skip_extension("int8", dtype="float32", scale_a="scalar", scale_b="scalar")
    a = np.random.default_rng(4).integers(-128, 128, (6, 64), np.int8)
    b = np.random.default_rng(5).integers(-128, 128, (64, 40), np.int8)
    (wide,) = product(a, b, program=TWICE, dtype="float32", scales=ScaleArguments(1.0, 1.0))
    assert np.array_equal(wide, 2.0 * (a.astype(np.int32) @ b.astype(np.int32)))


@pytest.mark.parametrize("shape", [(1, 2, 3), (5, 64, 20), (40, 130, 30)])
def test_pairs_of_columns(shape):
    m, n, k = shape
    swiglu = TileProgram([("VALUE", 0), ("PARTNER", 1), ("SILU", 0, 0), ("MUL", 0, 0, 1)], 0, pairs=True)
    a, gate, up, bias = draw(1, m, k), draw(2, k, n // 2), draw(3, k, n // 2), draw(4, n)
    b = np.stack((gate, up), axis=-1).reshape(k, n)
    wide = a.astype(np.float64)
    for rank in range(len(algorithms(a, b, program=swiglu, bias=bias, requested=64))):
        (seen,) = product(a, b, program=swiglu, bias=bias, rank=rank)
        near(seen, silu(wide @ gate + bias[::2]) * (wide @ up + bias[1::2]), 4 * k)
    (seen,) = product(np.stack((a, 2 * a)), b, program=swiglu, bias=bias)
    near(seen[1], silu(2 * wide @ gate + bias[::2]) * (2 * wide @ up + bias[1::2]), 16 * k)
    with pytest.raises(rocpy.InvalidProblemError, match="N must be even"):
        product(a, draw(5, k, 7), program=swiglu)


def test_plans_are_kept_and_programs_are_told_apart():
    a, b = draw(1, 4, 4), draw(2, 4, 4)
    same = TileProgram([["VALUE", 0], ["ADD", 0, 0, 0]], 0)
    other = TileProgram([("VALUE", 0), ("MUL", 0, 0, 0)], 0)
    assert same == TWICE
    assert same.id == TWICE.id
    assert hash(same) == hash(TWICE)
    assert other != TWICE
    rocpy.plan_cache.clear()
    first = product(a, b, program=TWICE)[0]
    misses = rocpy.plan_cache.info()["misses"]
    assert np.array_equal(product(a, b, program=same)[0], first)
    assert rocpy.plan_cache.info()["misses"] == misses
    assert not np.array_equal(product(a, b, program=other)[0], first)
    assert np.array_equal(rocpy.matmul(a, b), first / 2)


def test_torch_operands():
    torch = pytest.importorskip("torch")
    a, b, bias, residual = (torch.from_numpy(x) for x in (draw(1, 6, 5), draw(2, 8, 5), draw(3, 8), draw(4, 6, 8)))
    (seen,) = product(a, b.T, program=SILU_RESIDUAL, inputs=(bias, residual))
    assert isinstance(seen, torch.Tensor)
    near(seen.numpy(), silu((a.double() @ b.double().T + bias).numpy()) + residual.numpy(), 5)
    masked = TileProgram(
        [("VALUE", 0), ("INPUT", 1, 0), ("MUL", 0, 0, 1), ("OUTPUT", 1, 0)], 0, inputs=1, outputs=("bool",)
    )
    kept, mask = product(a, b.T, program=masked, inputs=(residual > 0,))
    assert mask.dtype == torch.bool
    assert torch.equal(mask, residual > 0)
    assert torch.equal(kept != 0, mask)


def test_empty_results():
    for m, n in ((0, 4), (4, 0)):
        (seen,) = product(draw(1, m, 3), draw(2, 3, n), program=TWICE)
        assert seen.shape == (m, n)
    one = TileProgram([("VALUE", 0), ("EXP", 0, 0)], 0)
    assert np.array_equal(
        product(np.empty((2, 0), np.float32), np.empty((0, 3), np.float32), program=one)[0], np.ones((2, 3))
    )


@pytest.mark.parametrize(
    ("instructions", "words"),
    [
        ([], "0 instructions"),
        ([("SINH", 0, 0)], "unknown opcode"),
        ([("ADD", 0, 0)], "expected 4 for ADD"),
        ([("VALUE", 256)], "register is 256"),
        ([("INPUT", 0, 0)], "number is 0"),
        ([("VALUE", 0), ("OUTPUT", 0, 1)], "number is 1"),
        ([("VALUE", 0)] * 257, "257 instructions"),
    ],
)
def test_what_is_no_program(instructions, words):
    with pytest.raises(rocpy.InvalidProblemError, match=words):
        TileProgram(instructions, 0)


def test_what_no_platform_runs():
    a, b = draw(1, 4, 4), draw(2, 4, 4)
    for wrong in (
        TileProgram([("ADD", 0, 0, 0)], 0),  # reads what was never written
        TileProgram([("VALUE", 0), ("PARTNER", 1)], 0),
        TileProgram([("AUX", 0)], 0),
        TileProgram([("VALUE", 0), ("OUTPUT", 0, 0)], 0, outputs=("int32",)),
    ):
        with pytest.raises(rocpy.UnsupportedError, match="tile program"):
            product(a, b, program=wrong)
    with pytest.raises(rocpy.UnsupportedError, match="tile program"):
        product(a.astype(complex), b.astype(complex), program=TWICE)
    with pytest.raises(rocpy.InvalidProblemError, match="the tile program reads 2"):
        product(a, b, program=SILU_RESIDUAL, inputs=(a,))
    with pytest.raises(rocpy.InvalidProblemError, match=r"inputs\[1\].*broadcast"):
        product(a, b, program=SILU_RESIDUAL, inputs=(a, draw(3, 3, 4)))
    with pytest.raises(rocpy.InvalidProblemError, match="rank=99"):
        product(a, b, program=TWICE, rank=99)


# ---- operands that are brought into another form first ----


@pytest.mark.parametrize("shape", [(6, 1), (2, 6, 1)])
def test_a_bias_for_each_row(shape):
    a, b, bias, row, residual = draw(1, 2, 6, 9), draw(2, 9, 34), draw(3, *shape), draw(4, 34), draw(5, 6, 34)
    wanted = silu(a.astype(np.float64) @ b.astype(np.float64) + bias + row) + residual
    for right in (b, rocpy.Weight(b)):
        (seen,) = product(a, right, program=SILU_RESIDUAL, inputs=(row, residual), bias=bias)
        near(seen, wanted, 9)
    (seen,) = product(a, b, program=TWICE, bias=bias)
    near(seen, 2 * (a.astype(np.float64) @ b.astype(np.float64) + bias), 9)
    assert algorithms(a, b, program=TWICE, bias=bias)
    pairs = TileProgram(
        [("VALUE", 0), ("PARTNER", 1), ("CONSTANT", 2, 1000.0), ("MUL", 0, 0, 1), ("ADD", 0, 0, 2)], 0, pairs=True
    )
    whole = a.astype(np.float64) @ b.astype(np.float64) + bias
    (seen,) = product(a, b, program=pairs, bias=bias)
    np.testing.assert_allclose(seen, whole[..., 0::2] * whole[..., 1::2] + 1000, rtol=1e-4, atol=1e-4)


def test_what_no_program_can_help_with_is_refused():
    a, b = np.ones((4, 8), np.int8), np.ones((8, 4), np.int8)
    with pytest.raises(rocpy.UnsupportedError, match="scale_a and scale_b: hipBLASLt applies none"):
        product(a, b, program=TWICE, scales=ScaleArguments(2.0, 1.0), dtype="int32")


# In place, broadcast, narrow and wide inputs: read where they lie or copied, whatever part of a vector is left over.
@pytest.mark.parametrize("n", [16, 33, 64, 70])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("shapes", [("row", "full"), ("column", "row"), ("full", "column"), ("column", "column")])
def test_inputs_that_repeat(n, dtype, shapes):
    a, b = draw(1, 31, 12, dtype=dtype), draw(2, 12, n, dtype=dtype)
    extents = {"row": (n,), "column": (31, 1), "full": (31, n)}
    first, second = (draw(3 + place, *extents[shape], dtype=dtype) for place, shape in enumerate(shapes))
    program = TileProgram(
        [("INPUT", 1, 0), ("VALUE", 0), ("MUL", 2, 1, 1), ("ADD", 1, 0, 1), ("INPUT", 3, 1), ("SUB", 3, 3, 2),
         ("OUTPUT", 1, 0), ("MUL", 0, 3, 1)], 0, inputs=2, outputs=("float32",),
    )  # fmt: skip
    seen, beside = product(a, b, program=program, inputs=(first, second), dtype="float32")
    x, y = first.astype(np.float64), second.astype(np.float64)
    total = a.astype(np.float64) @ b.astype(np.float64) + x
    near(beside, np.broadcast_to(total, (31, n)), 12)
    np.testing.assert_allclose(seen, (y - x * x) * total, rtol=2e-4, atol=2e-4)
