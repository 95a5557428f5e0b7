# SPDX-License-Identifier: MIT
"""A device with memory of its own: part of tests/blaslt again, where arrays in CPU memory are copied there and back."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest
from presented import skip_without

import rocpy

pytestmark = pytest.mark.skipif(
    not rocpy.platform.current().is_emulated,
    reason="only the host platform can be told to treat CPU memory as foreign",
)
FOLDER = Path(__file__).resolve().parents[1]
PARTS = (
    "fusion/test_explain.py",
    "plans/test_plans.py",
    "plans/test_walk.py",
    "scales/test_scales.py",
    "fusion/test_supported.py",
    "products/test_complex.py",
    "products/test_grouped.py",
    "products/test_out_dtype.py",
    "products/test_shapes.py",
    "products/test_shapes_bias.py",
    "scales/test_mx.py",
)


@pytest.mark.slow
@pytest.mark.skipif(not rocpy.platform.current().host_memory, reason="operands are copied in this run already")
def test_part_of_the_folder_with_operands_that_must_be_copied():
    done = subprocess.run(
        [sys.executable, "-P", "-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider", "-m", "not slow"]
        + [str(FOLDER / part) for part in PARTS],
        cwd=FOLDER.parent.parent,
        env={**os.environ, "ROCPY_HOST_STAGING": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    assert " passed" in done.stdout


CONJUGATES = """
import torch, rocpy
a = torch.randn(4, 6, dtype=torch.complex64)
strict = {"copies": "error"}
rows, columns = a.conj(), a.t().contiguous().t().conj()
for make in (lambda x: rocpy.matmul(x, x.mT, options=strict), lambda x: rocpy.Matmul(x, a.mT, options=strict)):
    try:
        make(rows)
    except rocpy.UnsupportedError as error:
        assert str(error).startswith("a: "), error
    else:
        raise SystemExit("a conjugate whose rows are contiguous was copied")
with rocpy.Matmul(columns, a.mT, options=strict) as mm:
    torch.testing.assert_close(mm.execute(), columns.resolve_conj() @ a.mT)
"""


@pytest.mark.torch
def test_a_conjugate_that_the_library_cannot_take_is_refused_where_copies_are(run_python):
    skip_without("complex64")
    exec(CONJUGATES, {})
    run_python(CONJUGATES, ROCPY_HOST_STAGING="1")


CAPTURED = """
import numpy as np, rocpy
a = np.ones((4, 3), np.float32)
experts = rocpy.Buffer((1, 3, 5), "float32")
experts.copy_from(np.ones((1, 3, 5), np.float32))
on_device = [rocpy.Buffer(shape, "float32") for shape in ((4, 3), (3, 5), (4, 5))]
with rocpy.Stream(nonblocking=True) as stream:
    with stream.capture() as graph:
        for product, operands in ((rocpy.matmul, (a, a.T)), (rocpy.grouped_matmul, ([a], [a.T]))):
            try:
                product(*operands, stream=stream)
            except rocpy.UnsupportedError as error:
                assert "captured into a graph" in str(error), error
            else:
                raise SystemExit("operands in CPU memory were captured")
        with rocpy.Buffer((2,), "int64") as offsets:
            try:
                rocpy.grouped_matmul(on_device[0], experts, offsets=offsets, stream=stream)
            except rocpy.UnsupportedError as error:
                assert "offsets on a device" in str(error), error
            else:
                raise SystemExit("offsets on a device were read back")
        rocpy.matmul(on_device[0], on_device[1], out=on_device[2], stream=stream)
        groups = rocpy.grouped_matmul(on_device[0], experts, offsets=[1, 4], stream=stream)
    for value in (2, 3):
        for operand in on_device[:2]:
            operand.copy_from(np.full(operand.shape, value, np.float32))
        graph.launch()
        stream.synchronize()
        assert (on_device[2].to_numpy() == 3 * value**2).all()
        assert (groups.to_numpy()[1:] == 3 * value).all()
    graph.close()
"""


def test_a_capture_takes_what_is_on_the_device_and_refuses_the_rest_unspoilt(run_python):
    run_python(CAPTURED, ROCPY_HOST_STAGING="1")


SELF_TESTED = """
import rocpy
from rocpy.testing import Case, selftest
met, explain = [], rocpy.explain

def explain_and_note(*operands, **more):
    found = explain(*operands, **more)
    met.append((found.problem.a.strides, found.problem.b.strides))
    return found

rocpy.explain = explain_and_note
with selftest._library.trial():
    for layout in ("nn", "tn", "nt", "qp", "xn"):
        name, status, message = selftest.try_native(Case(4, 5, 6, layout=layout, epilogue="bias"))
        assert status == "ok" and name.startswith("bias"), (layout, status, message)
print(met)
"""


def test_the_self_test_shows_the_library_each_layout_on_a_device_with_memory_of_its_own(run_python):
    """An array that rocpy copies to the device becomes row-major, so that its layout is not tested by it."""
    met = ast.literal_eval(run_python(SELF_TESTED, ROCPY_HOST_STAGING="1").stdout)
    rows = (6, 1), (5, 1)
    assert met == [rows, ((1, 4), (5, 1)), ((6, 1), (1, 6)), ((1, 9), (10, 1)), rows]


WEIGHTS = """
import ml_dtypes, numpy as np, rocpy

def computed(a, w, scale):
    yield rocpy.matmul(a, w, scale_a=scale, dtype="float32")
    yield rocpy.grouped_matmul([a], [w], scale_a=[scale], dtype="float32")[0]
    with rocpy.Matmul(a, w, scale_a=scale, dtype="float32") as mm:
        yield mm.execute()
        yield mm.execute()

for name in ("float8_e4m3fn", "float8_e5m2", "float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn"):
    for k, n in ((0, 5), (64, 0), (64, 5)):
        b, scale_b = np.ones((k, n), getattr(ml_dtypes, name)), np.full((k // 32, n), 128, np.uint8)
        a, scale_a = np.ones((4, k), b.dtype), np.full((4, k // 32), 127, np.uint8)
        for w in (rocpy.Weight(b, scale=scale_b), rocpy.Weight(b.T.copy(), scale=scale_b.T.copy(), layout="nk")):
            for d in computed(a, w, scale_a):
                assert d.shape == (4, n) and (d == 2 * k).all(), (name, k, n, w.layout, d)
"""


def test_a_weight_with_block_scales_that_is_not_packed_is_multiplied_by_what_is_in_cpu_memory(run_python):
    run_python(WEIGHTS, ROCPY_HOST_STAGING="1")


CPU_ARRAYS = """
import numpy as np, rocpy

a, b = np.arange(8).reshape(2, 4), np.arange(12).reshape(4, 3)
c, bias = np.ones((2, 3), np.float32), np.array([[2], [3]], np.float32)
form = rocpy.epilogue(lambda x, b, r: np.tanh(x + b) * 0.5 + r)
for dtype, scales in (("float32", {}), ("int8", {"scale_a": 0.5, "scale_b": 2.0, "dtype": "float32"})):
    for order in "CF":
        operands, c = (a.astype(dtype), b.astype(dtype)), c.copy(order=order)
        x, inputs = a @ b + c + bias, {"b": bias, "r": np.ones((2, 1), np.int32)}
        biased, formed = {"epilogue": "bias", "bias": bias}, {"epilogue": form, "epilogue_inputs": inputs}
        for expected, more in ((x, biased), *([] if scales else [(np.tanh(x) * 0.5 + 1, formed)])):
            with rocpy.Matmul(*operands, c, **more, **scales) as mm:
                for d in (rocpy.matmul(*operands, c, **more, **scales), mm.execute(), mm.execute()):
                    assert type(d) is np.ndarray
                    np.testing.assert_allclose(d, expected, rtol=1e-6)

a, b = [np.ones((1, 4), np.float32)] * 3, [np.ones((4, 3), np.float32)] * 3
for make in (lambda: np.zeros(13, np.uint8)[1:].view(np.float32).reshape(1, 3), lambda: np.zeros((1, 3), ">f4")):
    out = [np.zeros((1, 3), np.float32), make(), make()]
    try:
        rocpy.grouped_matmul(a, b, out=out)
    except rocpy.InvalidOperandError as error:
        assert str(error).startswith("out: ") and "(group 1)" in str(error), error
    else:
        raise SystemExit("a result was written where it cannot be")
    assert not any(each.any() for each in out)
"""


def test_products_of_arrays_in_cpu_memory_are_those_of_arrays_on_the_device(run_python):
    """A bias per row goes with c; a result that cannot be written is refused as that, not as one that shares memory."""
    run_python(CPU_ARRAYS, ROCPY_HOST_STAGING="1")


PINNED = """
import numpy as np, rocpy
from blocked_streams import delay
ones = np.ones((8, 8), np.float32)
for call in (
    lambda x, stream: rocpy.matmul(x, ones, stream=stream),
    lambda x, stream: rocpy.Matmul(x, ones, stream=stream).execute(),
    lambda x, stream: rocpy.grouped_matmul([np.asarray(x)], [ones], stream=stream)[0],
):
    for view in (lambda memory: memory, np.asarray):
        memory = rocpy.Buffer((8, 8), "float32", location="host")
        x = view(memory)
        np.asarray(memory)[:] = 0
        with rocpy.Stream(nonblocking=True) as stream:
            function = delay(stream)
            memory.fill(0x40, stream=stream)  # of each byte
            result = call(x, stream)
            stream.synchronize()
            result = result.to_numpy() if isinstance(result, rocpy.Buffer) else result
            np.testing.assert_allclose(result, np.asarray(memory) @ ones)
"""


def test_pinned_memory_is_copied_behind_the_work_of_the_calls_stream(run_python):
    run_python(PINNED, ROCPY_HOST_STAGING="1", PYTHONPATH=str(FOLDER.parent / "support"))
