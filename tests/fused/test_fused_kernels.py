# SPDX-License-Identifier: MIT
"""The fused lowering on AMD without AMD: its kernel in Triton's interpreter, and the ISA of its code objects."""

from __future__ import annotations

import dataclasses
import doctest
import io
import re

import ml_dtypes
import numpy as np
import pytest
from elftools.elf.elffile import ELFFile
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import rocpy
from rocpy._messages.distribution import install_command
from rocpy.epilogues import Tile, compile_kernel
from rocpy.epilogues.lowering import triton as _triton
from rocpy.errors import InvalidProblemError, UnsupportedError
from rocpy.testing import expressions
from rocpy.testing.runner import to_numpy, to_torch
from rocpy.testing.tolerance import compare, gamma, ulp, unit_roundoff

pytestmark = [pytest.mark.triton, pytest.mark.torch, pytest.mark.slow]

# The interpreter multiplies the bits of bfloat16 operands, not their values; inputs it converts.
DTYPES = {"float32": np.float32, "float16": np.float16}
INPUT_TYPES = {**DTYPES, "bfloat16": ml_dtypes.bfloat16}
SMALL = Tile(16, 16, 16)
KINDS = {"row": "row", "column": "column", "full": "full", "scalar": "scalar"}


def run(epilogue, a, b, inputs, outs, *, kinds=KINDS, alpha=1.0):
    """Run a kernel in the interpreter on numpy arrays; returns numpy arrays like ``outs``."""
    import torch  # noqa: F401

    described = {name: (kinds[name], inputs[name].dtype) for name in epilogue.expression.used_inputs}
    made = [to_torch(np.zeros(shape, dtype)) for shape, dtype in outs]
    with np.errstate(all="ignore"):
        _triton.interpret(
            epilogue,
            to_torch(a),
            to_torch(b),
            {name: to_torch(np.asarray(value)) for name, value in inputs.items()},
            described,
            made,
            tile=SMALL,
            alpha=alpha,
        )
    return [to_numpy(one) for one in made]


def product_and_distance(a, b):
    """Return the product in float64, and how far one summed in float32 may lie from it."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    relative = gamma(a.shape[-1] + 6, unit_roundoff("float32")) + gamma(a.shape[-1] + 6, unit_roundoff("float64"))
    return a @ b, relative * (np.abs(a) @ np.abs(b))


@st.composite
def problems(draw):
    """A function's text with its inputs, the seed of the operands, a dtype, layouts and extents."""
    text, names = expressions.random_text(lambda count: draw(st.integers(0, count - 1)), draw(st.integers(1, 8)))
    extents = tuple(draw(st.sampled_from((1, 2, 5, 16, 31, 33))) for _ in range(3))
    layout = draw(st.sampled_from(("nn", "nt", "tn", "tt")))
    types = draw(st.sampled_from(tuple(DTYPES))), draw(st.sampled_from(tuple(INPUT_TYPES)))
    return text, names, draw(st.integers(0, 2**32 - 1)), types, layout, extents


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(problem=problems())
def test_random_expressions_in_the_interpreter(problem):
    text, names, seed, (dtype, input_dtype), layout, (m, n, k) = problem
    function = expressions.function_of(text, names)
    epilogue = rocpy.epilogue(function)
    rng = np.random.default_rng(seed)
    a, b = (
        rng.standard_normal(shape if way == "n" else shape[::-1]).astype(DTYPES[dtype])
        for shape, way in (((m, k), layout[0]), ((k, n), layout[1]))
    )
    a, b = (x if way == "n" else x.T for x, way in zip((a, b), layout, strict=True))
    shapes = {"row": (n,), "column": (m, 1), "full": (m, n), "scalar": ()}
    inputs = {name: rng.standard_normal(shapes[name]).astype(INPUT_TYPES[input_dtype]) for name in names}
    (kept,) = _triton.result_types(epilogue, dtype, {name: (name, input_dtype) for name in names})
    kept = INPUT_TYPES[kept]
    x, dx = product_and_distance(a, b)
    with np.errstate(all="ignore"):
        expected = np.broadcast_to(function(x, *(inputs[name].astype(np.float64) for name in names)), x.shape)
        ((_, error),) = expressions.bounded(epilogue.expression, x, dx, inputs)
        # The interpreter cuts bfloat16 off where a GPU rounds it to nearest.
        units = 1.0 if kept == ml_dtypes.bfloat16 else 0.5
        bound = error + units * ulp(np.abs(expected) + error, kept)
    (actual,) = run(epilogue, a, b, inputs, [((m, n), kept)])
    known = np.isfinite(bound)
    actual = np.where(known, actual.astype(np.float64), 0.0).astype(kept)
    found = compare(actual, np.where(known, expected, 0.0), np.where(known, bound, 1.0))
    assert found.ok, f"{found.message}\n{epilogue}"


def test_the_interpreter_runs_what_is_compiled(rng):
    a, b = rng.standard_normal((20, 24), dtype=np.float32), rng.standard_normal((24, 18), dtype=np.float32)
    (actual,) = run(rocpy.epilogue(lambda x: x + 1.0), a, b, {}, [((20, 18), np.float32)], alpha=2.0)
    x, dx = product_and_distance(a, b)
    assert compare(actual, 2 * x + 1, 2 * dx + ulp(2 * x, np.float32) + ulp(2 * x + 1, np.float32)).ok
    assert not compare(actual, 2 * x + 1.001, 2 * dx + ulp(2 * x, np.float32) + ulp(2 * x + 1, np.float32)).ok


def test_two_results_and_batches(rng):
    epilogue = rocpy.epilogue(lambda x, row, full: (np.maximum(x + row, 0), x * full > 0))
    a, b = (rng.integers(-2, 3, shape).astype(np.float32) for shape in ((3, 17, 9), (3, 9, 20)))
    row, full = (rng.integers(-2, 3, shape).astype(np.float32) for shape in ((20,), (3, 17, 20)))
    found = run(epilogue, a, b, {"row": row, "full": full}, [((3, 17, 20), np.float32), ((3, 17, 20), np.bool_)])
    np.testing.assert_array_equal(found[0], np.maximum(a @ b + row, 0))
    np.testing.assert_array_equal(found[1], (a @ b) * full > 0)


def test_every_second_column(rng):
    gated = rocpy.epilogue(lambda x, row: (np.maximum(x[..., ::2], 0) + row) * x[..., 1::2])
    assert gated.expression.halved
    a, b = (rng.integers(-2, 3, shape).astype(np.float32) for shape in ((17, 9), (9, 40)))
    row = rng.integers(-2, 3, 20).astype(np.float32)
    (found,) = run(gated, a, b, {"row": row}, [((17, 20), np.float32)])
    y = a @ b
    np.testing.assert_array_equal(found, (np.maximum(y[:, ::2], 0) + row) * y[:, 1::2])


def test_casts_saturate_and_round(rng):
    import torch as t

    requantise = rocpy.epilogue(lambda x, scalar: t.round(x * scalar).clamp(-128, 127).to(t.int8))
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((9, 5), (5, 7)))
    (found,) = run(requantise, a, b, {"scalar": np.asarray(40.0, np.float32)}, [((9, 7), np.int8)])
    exact = (a.astype(np.float64) @ b) * 40
    near = np.clip(exact, -128, 127)
    assert (np.abs(found - near) <= 0.5 + 1e-3).all()
    assert len(np.unique(found)) > 20


# ---- code objects ----

INPUTS = {"bias": ("row", "bfloat16"), "residual": ("full", "bfloat16")}


@pytest.fixture(scope="module")
def gated_residual():
    import torch

    return rocpy.epilogue(lambda x, bias, residual: torch.nn.functional.silu(x + bias) * 0.5 + residual)


@pytest.mark.parametrize("arch", ["gfx90a", "gfx942", "gfx1100", "gfx1201"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_code_objects(arch, dtype, gated_residual, tmp_path):
    made = compile_kernel(gated_residual, arch, dtype=dtype, inputs=INPUTS, folder=tmp_path)
    matrix = "v_wmma_f32_16x16x16" if arch.startswith("gfx1") else "v_mfma_f32_"
    assert made.isa.count(matrix) >= 4
    assert made.scratch_bytes == 0
    assert re.findall(r"ScratchSize: (\d+)", made.isa) == ["0"]
    assert not re.search(r"vgpr_spill_count: *[1-9]|scratch_(store|load)|s_swappc", made.isa)
    assert re.findall(r"\.amdhsa_kernel (\w+)", made.isa) == ["fused_matmul"]
    # The loader goes by the machine in the ELF header: EF_AMDGPU_MACH of LLVM's AMDGPU usage.
    machine = {"gfx90a": 0x3F, "gfx942": 0x4C, "gfx1100": 0x41, "gfx1201": 0x4E}[arch]
    assert ELFFile(io.BytesIO(made.code))["e_flags"] & 0xFF == machine
    assert made.threads == made.tile.warps * _triton.ARCHITECTURES[arch]


def test_the_arguments_are_those_of_the_code_object(gated_residual, tmp_path):
    made = compile_kernel(gated_residual, "gfx942", inputs=INPUTS, folder=tmp_path)
    sizes = {"i32": 4, "fp32": 4, "i64": 8}
    offset = 0
    for _, kind in made.arguments:
        size = sizes.get(kind, 8)
        offset = -(-offset // size) * size + size
    # Triton's own two pointers come last.
    wanted = -(-offset // 8) * 8 + 16
    (found,) = re.findall(r"\.amdhsa_kernarg_size (\d+)", made.isa)
    assert int(found) == wanted
    assert made.grid(1000, 300, 4) == (-(-1000 // made.tile.m) * -(-300 // made.tile.n), 4, 1)


def test_kept_kernels_are_found_again_by_what_they_are_made_of(gated_residual, tmp_path, monkeypatch):
    tile = Tile(32, 32, 32, 2)
    more = {"dtype": "float16", "inputs": INPUTS, "tile": tile, "folder": tmp_path}
    made = compile_kernel(gated_residual, "gfx942", **more)
    with monkeypatch.context() as blocked:
        blocked.setattr(_triton, "_compile", lambda *args: pytest.fail("compiled again"))
        assert compile_kernel(gated_residual, "gfx942", **more) == made
    for change in (
        {"contraction": False},
        {"layout": "nt"},
        {"even_k": False},
        {"tile": dataclasses.replace(tile, stages=1)},
    ):
        assert compile_kernel(gated_residual, "gfx942", **{**more, **change}) != made
    assert len(list(tmp_path.glob("*.json"))) == 5
    for path in tmp_path.glob("*.json"):
        path.write_text("{", encoding="utf-8")
    assert compile_kernel(gated_residual, "gfx942", **more) == made
    monkeypatch.setattr(_triton, "_version", lambda: "0")
    compile_kernel(gated_residual, "gfx942", **more)
    assert len(list(tmp_path.glob("*.json"))) == 6


@pytest.mark.parametrize("value", ["0", "1"])
def test_contraction_is_said_explicitly(value, gated_residual, tmp_path, monkeypatch):
    tile = Tile(32, 32, 32, 2)
    made = {}
    for contraction in (False, True):
        monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", value)
        made[contraction] = compile_kernel(
            gated_residual, "gfx1201", inputs=INPUTS, tile=tile, contraction=contraction, folder=tmp_path
        )
    # silu * 0.5 + residual is one instruction or two.
    body = {key: one.isa[one.isa.rindex("v_wmma") :] for key, one in made.items()}
    assert body[True].count("v_mul_f32") + body[True].count("v_dual_mul_f32") < body[False].count("v_mul_f32") + body[
        False
    ].count("v_dual_mul_f32")


def test_candidates():
    for arch in _triton.ARCHITECTURES:
        every = _triton.tiles(4096, 4096, arch, "bfloat16")
        assert len(set(every)) == len(every) >= 7
        assert every[0].m * every[0].n == 128 * 128
        assert _triton.tiles(16, 4096, arch, "bfloat16")[0].m == 16


def test_refusals(gated_residual, tmp_path, monkeypatch):
    with pytest.raises(InvalidProblemError, match="arch='sm_90'"):
        compile_kernel(gated_residual, "sm_90", inputs=INPUTS)
    with pytest.raises(InvalidProblemError, match="layout: got 'rc'"):
        compile_kernel(gated_residual, "gfx942", inputs=INPUTS, layout="rc")
    with pytest.raises(InvalidProblemError, match="inputs: 'residual' is None"):
        compile_kernel(gated_residual, "gfx942", inputs={"bias": ("row", "float16")})
    with pytest.raises(UnsupportedError, match="a and b are float64"):
        compile_kernel(gated_residual, "gfx942", dtype="float64", inputs=INPUTS)
    with pytest.raises(UnsupportedError, match="bias is float64"):
        compile_kernel(gated_residual, "gfx942", inputs={**INPUTS, "bias": ("row", "float64")})
    monkeypatch.setitem(__import__("sys").modules, "triton", None)
    with pytest.raises(UnsupportedError, match=re.escape(install_command("fused"))):
        compile_kernel(gated_residual, "gfx942", inputs=INPUTS, folder=tmp_path)


def test_examples():
    import rocpy.epilogues

    found = doctest.DocTestFinder().find(rocpy.epilogues.compile_kernel, "compile_kernel", globs={})
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    assert sum(runner.run(test).attempted for test in found) > 0
    assert runner.summarize().failed == 0
