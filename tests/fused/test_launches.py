# SPDX-License-Identifier: MIT
"""Triton kernels from the plan to the launch: what a GPU would be given runs in Triton's interpreter."""

import code_platform
import pytest

pytestmark = [pytest.mark.triton, pytest.mark.torch, pytest.mark.slow]

PRELUDE = """
import ctypes
import numpy as np
import torch
import rocpy
from rocpy.blaslt.front.planned import planned_product
from rocpy.blaslt.custom import triton_kernel as _custom_triton
from rocpy.epilogues.lowering import triton as _triton
from rocpy.epilogues.lowering import triton_source as _triton_source

SMALL = (_triton.Tile(16, 16, 16, 1, 1), _triton.Tile(32, 16, 16, 1, 1))
_triton.tiles = lambda m, n, arch, operand: SMALL
texts = {}
compile_text = _triton.compile_text

def noted(text, arch, **more):
    made = compile_text(text, arch, **more)
    texts[made.name] = text, made, more
    return made

_triton.compile_text = noted
WIDE = {"i32": ctypes.c_int32, "i64": ctypes.c_int64, "fp32": ctypes.c_float}
TYPES = {"*fp32": torch.float32, "*fp16": torch.float16, "*u8": torch.uint8, "*i8": torch.int8, "*bf16": torch.bfloat16,
         "*fp8e4nv": torch.float8_e4m3fn, "*fp8e5": torch.float8_e5m2, "*fp8e4b8": torch.float8_e4m3fnuz,
         "*fp8e5b16": torch.float8_e5m2fnuz}
launches = []

def watch(name, grid, threads, shared, params):
    try:
        from triton.runtime.interpreter import InterpretedFunction
        text, made, more = texts[name.decode()]
        tile = more["tile"]
        assert threads == made.threads and shared == made.shared_bytes, (threads, shared)
        values = []
        for place, argument in enumerate(text.arguments):
            if argument.kind == "pointer":
                address = ctypes.cast(params[place], ctypes.POINTER(ctypes.c_void_p))[0]
                dtype = TYPES[argument.signature]
                # More than any array here has; the interpreter touches what the kernel addresses.
                room = (ctypes.c_char * 4096).from_address(address)
                values.append(torch.frombuffer(room, dtype=dtype))
            else:
                values.append(ctypes.cast(params[place], ctypes.POINTER(WIDE[argument.signature]))[0])
        for last in (0, 1):
            assert ctypes.cast(params[len(text.arguments) + last], ctypes.POINTER(ctypes.c_void_p))[0] is None
        launches.append((tuple(grid[:3]), more["aligned"], tile.name))
        InterpretedFunction(_triton.python_function(text))[(grid[0], grid[1])](
            *values, BM=tile.m, BN=tile.n, BK=tile.k, GROUP=tile.group, EVEN_K=more["even_k"])
        return 0
    except BaseException:
        import traceback
        traceback.print_exc()
        return 1

kept = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.POINTER(ctypes.c_uint), ctypes.c_uint, ctypes.c_uint,
                        ctypes.POINTER(ctypes.c_void_p))(watch)
ctypes.CDLL(rocpy.platform.current().libraries["hip"].path).code_platform_watch(kept)
rng = np.random.default_rng(3)

def ints(*shape, dtype=np.float32):
    return rng.integers(-3, 4, shape).astype(dtype)

"""


@pytest.fixture
def run(tmp_path):
    return lambda program: code_platform.run(tmp_path, PRELUDE + program)


def test_candidates_are_launched(run):
    run("""
def both(x, row, full, column, s):
    return np.maximum(x + row, 0) * full + column * s, (x * 2).astype("int8")

f = rocpy.epilogue(both)
a, b, row, full, column, s = ints(17, 16), ints(16, 48), ints(48), ints(17, 48), ints(17, 1), ints()
inputs = dict(row=row, full=full, column=column, s=s)
x = a @ b
wanted = np.maximum(x + row, 0) * full + column * s, np.clip(2 * x, -128, 127).astype(np.int8)
with planned_product(a, b, epilogue=f, epilogue_inputs=inputs, alpha=1.0) as mm:
    found = mm.plan()
    fused = [one for one in found if one.lowering == "fused"]
    assert [one.name for one in fused] == [f"triton {tile.name} (fused)" for tile in SMALL], found
    assert found[0] is fused[0] or found[0] == fused[0]
    for one in fused:
        for got, want in zip(mm.execute(algorithm=one), wanted):
            np.testing.assert_array_equal(got, want)
    assert mm.why.startswith("one Triton kernel")
got = rocpy.matmul(a, b, epilogue=f, epilogue_inputs=inputs)
np.testing.assert_array_equal(got[0], wanted[0])
assert {one[0] for one in launches} == {(6, 1, 1), (3, 1, 1)}, launches
assert all(one[1] for one in launches)
""")


def test_layouts_batches_and_alignment(run):
    run("""
f = rocpy.epilogue(lambda x, a: x * a)
for a, b, c in (
    (ints(9, 7), ints(7, 5), ints(5)),                              # rows that begin anywhere
    (ints(16, 32).T, ints(48, 16).T, ints(32, 48)),                 # columns
    (ints(2, 3, 9, 16), ints(16, 16), ints(3, 9, 16)),              # a batch of two axes; an input repeats along one
    (ints(3, 9, 16), ints(3, 16, 16), ints(3, 1, 16)),
    (ints(9, 32)[:, ::2], ints(16, 16), ints(9, 1)),
):
    with planned_product(a, b, alpha=2.0, epilogue=f, epilogue_inputs={"a": c}) as mm:
        fused = [one for one in mm.plan() if one.lowering == "fused"]
        assert fused, mm.absent
        np.testing.assert_array_equal(mm.execute(algorithm=fused[0]), 2 * (a @ b) * c)
assert not launches[0][1] and launches[1][1], launches
gated = rocpy.epilogues.swiglu
x, gate, up = ints(9, 16), ints(16, 16), ints(16, 16)
h = rocpy.matmul(x, rocpy.epilogues.interleave(gate, up), epilogue=gated)
g = x @ gate
np.testing.assert_allclose(h, g / (1 + np.exp(-g)) * (x @ up), rtol=1e-5, atol=1e-5)
assert rocpy.matmul(np.ones((0, 16), np.float32), gate, epilogue=f, epilogue_inputs={"a": ints(16)}).shape == (0, 16)
""")


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"])
def test_operands_of_8_bits_with_one_scale_for_each(run, dtype):
    run(
        f"""
import ml_dtypes
eight = ml_dtypes.{dtype}
"""
        """
f = rocpy.epilogue(lambda x, s: np.maximum(x, -5) * s)
a, b, s = ints(17, 32, dtype=eight), ints(32, 48, dtype=eight), ints(48)
x = a.astype(np.float64) @ b.astype(np.float64)
one, half = np.array(1.0, np.float32), np.array([[0.5]], np.float32)
weight = rocpy.Weight(b, scale=0.25)
for right, scales, factor in (
    (b, dict(scale_a=1.0, scale_b=1.0), 1.0),
    (b, dict(scale_a=2.0, scale_b=np.float32(0.25)), 0.5),
    (b, dict(scale_a=one, scale_b=half), 0.5),
    (b, dict(scale_a=4, scale_b=half), 2.0),
    (weight, dict(scale_a=2.0), 0.5),
):
    wanted = np.maximum(3 * factor * x, -5) * s
    with planned_product(a, right, epilogue=f, epilogue_inputs={"s": s}, alpha=3.0, dtype="float32", **scales) as mm:
        fused = [one for one in mm.plan() if one.lowering == "fused"]
        assert fused, mm.absent
        np.testing.assert_array_equal(mm.execute(algorithm=fused[0]), wanted)
    got = rocpy.matmul(a, right, epilogue=f, epilogue_inputs={"s": s}, alpha=3.0, dtype="float32", **scales)
    np.testing.assert_array_equal(got, wanted)
with rocpy.Matmul(a, b, epilogue=f, epilogue_inputs={"s": s}, dtype="float32", scale_a=one, scale_b=half) as mm:
    mm.execute()
    one[...], half[...] = 2.0, 4.0
    np.testing.assert_array_equal(mm.execute(algorithm=0), np.maximum(8 * x, -5) * s)
rows = np.ones(17, np.float32)
with planned_product(a, b, epilogue=f, epilogue_inputs={"s": s}, dtype="float32", scale_a=rows, scale_b=1.0) as mm:
    mm.plan()
    assert "one number for all of an operand" in mm.absent["fused by Triton"]
shown = rocpy.explain(a, b, epilogue=f, epilogue_inputs={"s": s}, dtype="float32", scale_a=1.0, scale_b=1.0)
assert shown.algorithm.lowering == "fused", shown
"""
    )


def test_what_the_kernel_does_not_do(run):
    run("""
f = rocpy.epilogue(lambda x, s: np.tanh(x) * s)
a, s = ints(16, 16), ints(16)
def reason(*operands, **more):
    with planned_product(*operands, epilogue=f, epilogue_inputs={"s": s}, **more) as mm:
        mm.plan()
        return mm.absent.get("fused by Triton", "")
assert reason(a, a) == ""
assert "no c" in reason(a, a, a)
assert "two operands of one dtype" in reason(a.astype(float), a.astype(float))
assert "tf32" in reason(a, a, compute="tf32")
assert "vector" in reason(ints(16), a)
answer = rocpy.blaslt.supported("float32", epilogue=f, epilogue_inputs={"s": "row"}, m=16, n=16, k=16)
assert answer.lowering == "fused" and answer.algorithms == 2, answer
""")
