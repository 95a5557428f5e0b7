# SPDX-License-Identifier: MIT
"""Generated HIP kernels from the source to the launch, on a platform whose code objects run on the CPU."""

import subprocess
import sys
from pathlib import Path

import code_platform
import pytest

PRELUDE = """
import json, sys
import numpy as np, ml_dtypes
import rocpy
from rocpy.blaslt.front.planned import planned_product
from rocpy.testing import expressions
from rocpy.testing.tolerance import compare, ulp

rng = np.random.default_rng(5)
def ints(*shape, dtype=np.float32):
    return rng.integers(-3, 4, shape).astype(dtype)
assert rocpy.platform.current().name == "amd"
assert not rocpy.platform.current().host_memory
"""


@pytest.fixture
def run(tmp_path):
    return lambda program, **more: code_platform.run(tmp_path, PRELUDE + program, **more)


def test_a_kernel_after_the_product(run):
    launches = run("""
a, b, row, full = ints(6, 5), ints(5, 70), ints(70), ints(6, 70)
f = rocpy.epilogue(lambda x, row, full: (np.maximum(x + row, 0) * full, x > row + full, (x * 2).astype("int8"))[::2])
wanted = np.maximum(a @ b + row, 0) * full, np.clip(2 * (a @ b), -128, 127).astype(np.int8)
with rocpy.Matmul(a, b, epilogue=f, epilogue_inputs={"row": row, "full": full}) as mm:
    found = mm.plan()
    assert [one.lowering for one in found][0] == "native+kernel", found
    assert {one.lowering for one in found} == {"native+kernel", "unfused"}
    assert mm.algorithms[0].name.endswith("(native+kernel)")
    for one in found:
        for got, want in zip(mm.execute(algorithm=one), wanted):
            np.testing.assert_array_equal(got, want)
            assert got.dtype == want.dtype
    out = np.empty((6, 70), np.float32), np.empty((6, 70), np.int8)
    assert mm.execute(out=out)[0] is out[0]
    np.testing.assert_array_equal(out[1], wanted[1])
    mm.reset_operands(a=-a, epilogue_inputs={"full": full + 1})
    np.testing.assert_array_equal(mm.execute()[0], np.maximum(-a @ b + row, 0) * (full + 1))
got = rocpy.matmul(a, b, epilogue=f, epilogue_inputs={"row": row, "full": full})
np.testing.assert_array_equal(got[0], wanted[0])
""")
    assert {line.split()[0] for line in launches} == {"rocpy_epilogue"}
    assert {tuple(line.split()[1:]) for line in launches} == {("1", "6", "1", "128")}


def test_shapes_types_and_strides(run):
    run("""
tanh = rocpy.epilogue(lambda x, s: np.tanh(x) + s)
a, b = ints(2, 3, 4, 5), ints(5, 6)
for shape in ((6,), (4, 1), (4, 6), (3, 4, 6), (2, 3, 4, 6), (2, 1, 4, 6), (2, 1, 1, 1), (1,), ()):
    s = ints(*shape)
    got = rocpy.matmul(a, b, epilogue=tanh, epilogue_inputs={"s": s}, options={"fallback": "error"})
    np.testing.assert_allclose(got, np.tanh(a @ b) + s, rtol=2e-6, atol=1e-6)
s = ints(12, 8)[::2, ::-1][:4, 1:7]
got = rocpy.matmul(a[0, 0], b, epilogue=tanh, epilogue_inputs={"s": s})
np.testing.assert_allclose(got, np.tanh(a[0, 0] @ b) + s, rtol=2e-6, atol=1e-6)
for left, right in ((ints(5), b), (ints(7, 5), ints(5)), (ints(5), ints(5))):
    got = rocpy.matmul(left, right, epilogue=tanh, epilogue_inputs={"s": ints()}, options={"fallback": "error"})
    assert got.shape == (left @ right).shape
assert rocpy.matmul(np.ones((0, 5), np.float32), b, epilogue=tanh, epilogue_inputs={"s": ints(6)}).shape == (0, 6)
for dtype in (np.float16, ml_dtypes.bfloat16):
    x, y = ints(9, 8, dtype=dtype), ints(8, 16, dtype=dtype)
    mask = ints(9, 16) > 0
    f = rocpy.epilogue(lambda x, m: np.where(m, x * 0.5, 0.0).astype(x.dtype))
    got = rocpy.matmul(x, y, epilogue=f, epilogue_inputs={"m": mask}, options={"fallback": "error"})
    assert got.dtype == dtype
    product = x.astype(np.float32) @ y.astype(np.float32)
    np.testing.assert_array_equal(got.astype(np.float32), np.where(mask, product * 0.5, 0))
left, right, half = ints(8, 16, dtype=np.int8), ints(16, 8, dtype=np.int8), np.full(8, 0.5, np.float32)
requantise = rocpy.epilogues.scale_clamp_cast("int8")
q = rocpy.matmul(left, right, epilogue=requantise, epilogue_inputs={"scale": half}, options={"fallback": "error"})
np.testing.assert_array_equal(q, np.clip(np.rint((left.astype(int) @ right) * 0.5), -128, 127))
assert q.dtype == np.int8
gate, up, x = ints(5, 8), ints(5, 8), ints(4, 5)
both = rocpy.epilogues.interleave(gate, up)
h = rocpy.matmul(x, both, epilogue=rocpy.epilogues.swiglu, options={"fallback": "error"})
g = x @ gate
np.testing.assert_allclose(h, g / (1 + np.exp(-g)) * (x @ up), rtol=1e-5, atol=1e-5)
f8 = rocpy.epilogue(lambda x: (x * 0.25).astype("float8_e4m3fn"))
got = rocpy.matmul(x, gate, epilogue=f8, options={"fallback": "error"})
np.testing.assert_array_equal(got.astype(np.float32), (g * 0.25).astype(ml_dtypes.float8_e4m3fn).astype(np.float32))
""")


RANDOM = """
import random
shapes = {"row": (7,), "column": (5, 1), "full": (5, 7), "scalar": ()}
chooser = random.Random(SEED)
for count in range(COUNT):
    text, names = expressions.random_text(chooser.randrange, 1 + count % 8)
    epilogue = rocpy.epilogue(expressions.function_of(text, names))
    a, b = ints(5, 6), ints(6, 7)
    inputs = {name: rng.standard_normal(shapes[name]).astype(np.float32) for name in names}
    x = a.astype(np.float64) @ b
    ((value, error),) = expressions.bounded(epilogue.expression, x, 0.0, inputs)
    known = np.isfinite(error)
    bound = np.where(known, error + 0.5 * ulp(np.abs(value) + np.where(known, error, 0), np.float32), 1.0)
    with planned_product(a, b, epilogue=epilogue, epilogue_inputs=inputs) as mm:
        ways = {one.lowering: one for one in mm.plan()}
        assert ways.keys() & {"native", "native+kernel"}, (text, mm.absent)
        for one in ways.values():
            found = compare(np.where(known, mm.execute(algorithm=one), 0), np.where(known, value, 0), bound)
            assert found.ok, f"{one.lowering}: {found.message} {epilogue}"
"""


def test_random_expressions(run):
    run("SEED, COUNT = 0, 6\n" + RANDOM)


@pytest.mark.slow
def test_many_random_expressions(run):
    run("SEED, COUNT = 1, 100\n" + RANDOM)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_what_holds_of_epilogues_holds_with_code_objects(tmp_path):
    files = ["test_products.py", "test_ready.py", "test_gradients.py"]
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not slow", "-p", "no:cacheprovider", *files]
    environment = code_platform.environment(tmp_path)
    done = subprocess.run(command, cwd=Path(__file__).parent, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:]
    assert "rocpy_epilogue" in (tmp_path / "launches.log").read_text()


def test_the_autotuner_chooses_among_the_ways(run, tmp_path):
    program = """
from rocpy.tuning import _live
a, b, s = ints(32, 32), ints(32, 48), ints(48)
f = rocpy.epilogue(lambda x, s: np.tanh(x) * s)
"""
    run(
        program
        + """
with planned_product(a, b, epilogue=f, epilogue_inputs={"s": s}) as mm:
    found = mm.plan()
    last = len(found) - 1
    assert found[last].lowering == "unfused"
    # A measurement that finds the last one, the composed one, fastest by far.
    report = _live.tune(mm, measure=lambda place: (1.0, 1.0) if place == last else (9.0, 9.0), budget_ms=1e5)
    assert report.best.lowering == "unfused" and report.decided, report
    assert mm.algorithms[0].lowering == "unfused"
    np.testing.assert_allclose(mm.execute(), np.tanh(a @ b) * s, rtol=1e-5)
    with rocpy.Matmul(a, b, epilogue=f, epilogue_inputs={"s": s}) as same:
        real = same.autotune(budget_ms=300)
    assert {trial.algorithm.lowering for trial in real.trials} == {"native+kernel", "unfused"}
    assert _live.tune(mm, measure=lambda place: (1.0, 1.0) if place == last else (9.0, 9.0), budget_ms=1e5).decided
"""
    )
    launches = run(
        program
        + """
how = rocpy.explain(a, b, epilogue=f, epilogue_inputs={"s": s})
assert how.source == "tuned" and how.algorithm.lowering == "unfused", how
np.testing.assert_allclose(rocpy.matmul(a, b, epilogue=f, epilogue_inputs={"s": s}), np.tanh(a @ b) * s, rtol=1e-5)
"""
    )
    assert launches == []


def test_what_is_said_of_it(run):
    run("""
f = rocpy.epilogue(lambda x, s: np.tanh(x) * s)
a, b, s = ints(4, 5), ints(5, 6), ints(6)
how = rocpy.explain(a, b, epilogue=f, epilogue_inputs={"s": s})
assert how.algorithm.lowering == "native+kernel"
assert "one generated kernel" in how.unfused
assert "does not support tile programs" in dict(how.absent)["fused by tile programs"]
assert "not        fused by Triton: " in str(how)
answer = rocpy.blaslt.supported("float32", epilogue=f, epilogue_inputs={"s": "row"})
assert answer.lowering == "native+kernel", answer
assert answer.problem and any("Triton" in reason for reason in answer.reasons)
again = rocpy.blaslt.supported(how.problem)
assert again.lowering == "native+kernel", again
assert rocpy.blaslt.Problem.from_json(how.problem.to_json()) == how.problem
exported = rocpy.Matmul(a, b, epilogue=f, epilogue_inputs={"s": s}).export()
assert exported["algorithm"]["lowering"] == "native+kernel"
got = rocpy.matmul(a, b, epilogue=f, epilogue_inputs={"s": s}, algorithm=json.loads(json.dumps(exported)))
np.testing.assert_allclose(got, np.tanh(a @ b) * s, rtol=1e-5)
a, b = a.astype(np.float64), b.astype(np.float64)
wide = rocpy.explain(a, b, epilogue=f, epilogue_inputs={"s": s})
assert wide.algorithm.lowering == "unfused"
assert "generated kernels compute in float32" in dict(wide.absent)["native+kernel"]
try:
    rocpy.matmul(a, b, epilogue=f, epilogue_inputs={"s": s}, options={"fallback": "error"})
except rocpy.UnsupportedError as error:
    assert "fallback='error'" in str(error)
else:
    raise AssertionError
assert rocpy.platform.current().libraries["hiprtc"].version == "7.2.0"
""")


def test_kept_code_is_found_by_another_process(run, tmp_path):
    program = """
f = rocpy.epilogue(lambda x: np.tanh(x))
rocpy.matmul(ints(4, 5), ints(5, 6), epilogue=f, options={"fallback": "error"})
"""
    run(program)
    (kept,) = (tmp_path / "cache" / "rocpy" / "kernels").glob("*.json")
    assert len(run(program, CODE_PLATFORM_CXX="false")) == 1
    kept.write_text("{}")
    run(program)
    kept.unlink()
    run(
        """
f = rocpy.epilogue(lambda x: np.tanh(x))
how = rocpy.explain(ints(4, 5), ints(5, 6), epilogue=f)
assert how.algorithm.lowering == "unfused"
assert "does not compile" in dict(how.absent)["native+kernel"]
""",
        CODE_PLATFORM_CXX="false",
    )
