# SPDX-License-Identifier: MIT
"""The code objects of the fused lowering, run by the emulator of AMD's instructions and compared with float64."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

import rocpy
from rocpy.epilogues import Tile, compile_kernel
from rocpy.epilogues.lowering import triton as _triton
from rocpy.testing import amdgpu, expressions
from rocpy.testing.tolerance import compare, gamma, ulp, unit_roundoff

pytestmark = [pytest.mark.triton, pytest.mark.torch, pytest.mark.slow]

TYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
NUMBERS = {"i32": np.int32, "i64": np.int64, "fp32": np.float32}
TILES = {"small": Tile(16, 16, 32, 1), "wide": Tile(32, 64, 32, 2), "tall": Tile(64, 32, 64, 4, 1)}


def laid_out(rng, shape, letter, dtype):
    """Return random values as a row-major array, or as the transposed view of one."""
    made = rng.standard_normal(shape if letter == "n" else (*shape[:-2], shape[-1], shape[-2])).astype(dtype)
    return made if letter == "n" else made.swapaxes(-1, -2)


def bits(array):
    """Return an array's memory: row-major, and of a type that DLPack knows."""
    plain = array if array.flags.c_contiguous else array.swapaxes(-1, -2)
    known = {ml_dtypes.bfloat16: np.uint16, np.bool_: np.uint8}
    return plain.view(known.get(plain.dtype.type, plain.dtype))


def step(array, kind):
    if kind == "batch":
        return array.strides[0] // array.itemsize if array.ndim == 3 else 0
    row, column = (one // array.itemsize for one in array.strides[-2:])
    return row if column == 1 else column


def run(epilogue, arch, a, b, inputs, kinds, outs, *, dtype, layout, tile, folder, alpha=1.0):
    """Run the code object on the emulator; returns its report."""
    described = {name: (kinds[name], inputs[name].dtype) for name in epilogue.expression.used_inputs}
    m, k, n = a.shape[-2], a.shape[-1], b.shape[-1]
    more = {"dtype": dtype, "layout": layout, "inputs": described, "tile": tile, "folder": folder}
    kernel = compile_kernel(epilogue, arch, even_k=k % tile.k == 0, aligned=False, **more)
    arrays = {"a": a, "b": b} | {f"in_{name}": value for name, value in inputs.items()}
    arrays |= {f"out{number}": out for number, out in enumerate(outs)}
    extents = {"M": m, "N": n, "K": k}
    values = []
    for argument in _triton.text_of(epilogue, dtype, layout, described).arguments:
        if argument.kind == "pointer":
            values.append(bits(arrays[argument.of]))
        elif argument.kind == "number":
            values.append(NUMBERS[argument.signature](alpha if argument.of == "alpha" else arrays[argument.of]))
        else:
            number = extents[argument.name] if argument.kind == "extent" else step(arrays[argument.of], argument.kind)
            values.append(NUMBERS[argument.signature](number))
    grid = kernel.grid(m, n, a.shape[0] if a.ndim == 3 else 1)
    report = amdgpu.run(
        kernel.code, kernel.name, grid, kernel.threads, *values, None, None, shared_bytes=kernel.shared_bytes
    )
    products = {name for name in report.opcodes if name.startswith(("v_mfma", "v_wmma"))}
    expected = "v_mfma_f32_" if arch.startswith("gfx9") else "v_wmma_f32_16x16x16"
    assert {name[: len(expected)] for name in products} == {expected}, products
    return report


def check(epilogue, a, b, inputs, out):
    """Compare with float64: sums of float32 in any order, then the bound of the expression."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    distance = gamma(a.shape[-1] + 1, unit_roundoff("float32")) * (np.abs(a) @ np.abs(b))
    ((value, error),) = expressions.bounded(epilogue.expression, a @ b, distance, inputs)
    value, error = np.broadcast_to(value, out.shape), np.broadcast_to(error, out.shape)
    known = np.isfinite(error)
    bound = error + ulp(np.abs(value) + np.where(known, error, 0), out.dtype) / 2
    seen = np.where(known, out.astype(np.float64), 0.0).astype(out.dtype)
    found = compare(seen, np.where(known, value, 0.0), np.where(known, bound, 1.0))
    assert found.ok, f"{found.message}\n{epilogue}"


def gated(x, row, full):
    return np.maximum(x + row, 0) * 0.5 + full


@pytest.mark.parametrize("tile", TILES)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("arch", ["gfx90a", "gfx942", "gfx1100", "gfx1201"])
def test_products_with_an_epilogue(arch, dtype, tile, rng, tmp_path):
    tile, epilogue, kind = TILES[tile], rocpy.epilogue(gated), TYPES[dtype]
    if dtype == "float32" and arch.startswith("gfx1"):
        pytest.skip("RDNA has no matrix instruction of float32")
    layout = {"float16": "nn", "bfloat16": "nt", "float32": "tn"}[dtype]
    m, n, k = 40, 72, 96
    a, b = laid_out(rng, (m, k), layout[0], kind), laid_out(rng, (k, n), layout[1], kind)
    inputs = {"row": rng.standard_normal(n).astype(kind), "full": rng.standard_normal((m, n)).astype(kind)}
    (result,) = _triton.result_types(epilogue, dtype, {name: (name, dtype) for name in inputs})
    out = np.zeros((m, n), TYPES[result])
    kinds = {"row": "row", "full": "full"}
    run(epilogue, arch, a, b, inputs, kinds, [out], dtype=dtype, layout=layout, tile=tile, folder=tmp_path)
    check(epilogue, a, b, inputs, out)


@pytest.mark.parametrize("arch", ["gfx942", "gfx1201"])
def test_small_integers_are_exact(arch, rng, tmp_path):
    """Extents that no tile divides, a batch, two results."""
    epilogue = rocpy.epilogue(lambda x, row, full: (np.maximum(x + row, 0), x * full > 0))
    a, b = (rng.integers(-3, 4, shape).astype(np.float16) for shape in ((3, 17, 37), (3, 37, 50)))
    inputs = {"row": rng.integers(-2, 3, 50).astype(np.float16), "full": rng.integers(-2, 3, (3, 17, 50)).astype("f4")}
    kinds = {"row": "row", "full": "full"}
    first = _triton.result_types(epilogue, "float16", {"row": ("row", "float16"), "full": ("full", "float32")})[0]
    outs = [np.zeros((3, 17, 50), TYPES[first]), np.zeros((3, 17, 50), np.bool_)]
    run(epilogue, arch, a, b, inputs, kinds, outs, dtype="float16", layout="nn", tile=TILES["wide"], folder=tmp_path)
    x = a.astype(np.float64) @ b
    np.testing.assert_array_equal(outs[0], np.maximum(x + inputs["row"], 0))
    np.testing.assert_array_equal(outs[1], x * inputs["full"] > 0)


@pytest.mark.parametrize("arch", ["gfx942", "gfx1201"])
def test_functions(arch, rng, tmp_path):
    epilogue = rocpy.epilogue(
        expressions.function_of("silu(x + row) * tanh(x) + gelu(exp(minimum(x, 3.0)) * column)", ("row", "column"))
    )
    m, n, k = 33, 40, 24
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((m, k), (k, n)))
    inputs = {"row": rng.standard_normal(n).astype("f4"), "column": rng.standard_normal((m, 1)).astype("f4")}
    out = np.zeros((m, n), np.float32)
    kinds = {"row": "row", "column": "column"}
    run(epilogue, arch, a, b, inputs, kinds, [out], dtype="float16", layout="nn", tile=TILES["wide"], folder=tmp_path)
    check(epilogue, a, b, inputs, out)


@pytest.mark.parametrize("arch", ["gfx942", "gfx1201"])
def test_the_first_candidate(arch, rng, tmp_path):
    tile = _triton.tiles(4096, 4096, arch, "bfloat16")[0]
    a, b = (rng.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in ((130, 64), (64, 140)))
    epilogue = rocpy.epilogue(lambda x: x * 2.0)
    out = np.zeros((130, 140), TYPES[_triton.result_types(epilogue, "bfloat16", {})[0]])
    report = run(epilogue, arch, a, b, {}, {}, [out], dtype="bfloat16", layout="nn", tile=tile, folder=tmp_path)
    check(epilogue, a, b, {}, out)
    products = sum(count for name, count in report.opcodes.items() if name.startswith(("v_mfma", "v_wmma")))
    blocks = math.ceil(130 / tile.m) * math.ceil(140 / tile.n)
    assert products >= blocks * tile.m * tile.n * 64 // (32 * 32 * 16)
