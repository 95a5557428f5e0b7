# SPDX-License-Identifier: MIT
"""matmul, Matmul, supported() and explain() with custom epilogues: ways, inputs, results, refusals."""

from concurrent.futures import ThreadPoolExecutor

import ml_dtypes
import numpy as np
import pytest

import rocpy
from rocpy.blaslt import Problem
from rocpy.blaslt.selection import tuning_state as _tuning_state
from rocpy.tuning import Database, database


@pytest.fixture
def arrays(rng):
    shapes = {"a": (6, 5), "b": (5, 8), "bias": (8,), "column": (6, 1), "full": (6, 8)}
    return {name: rng.standard_normal(shape, dtype=np.float32) for name, shape in shapes.items()}


def lowering_of(arrays, function, **inputs):
    how = rocpy.explain(arrays["a"], arrays["b"], epilogue=rocpy.epilogue(function), epilogue_inputs=inputs)
    return how.algorithm.lowering, how.unfused


def native(name):
    """Whether the release that the platform presents has an epilogue of this name."""
    return rocpy.blaslt.supported("float32", epilogue=name).lowering == "native"


@pytest.mark.torch
def test_the_example(torch, rng):
    @rocpy.epilogue
    def gated_residual(x, bias, residual):
        return torch.nn.functional.silu(x + bias) * 0.5 + residual

    a, b = torch.from_numpy(rng.standard_normal((4, 5))).float(), torch.from_numpy(rng.standard_normal((5, 6))).float()
    bias, r = torch.arange(6.0), torch.ones(4, 6)
    d = rocpy.matmul(a, b, epilogue=gated_residual, epilogue_inputs={"bias": bias, "residual": r})
    assert isinstance(d, torch.Tensor)
    torch.testing.assert_close(d, gated_residual(a @ b, bias, r))


@pytest.mark.parametrize(
    ("function", "inputs", "name"),
    [
        (lambda x: x, (), "default"),
        (lambda x, bias: x + bias, ("bias",), "bias"),
        (lambda x, bias: np.maximum(bias + x, 0), ("bias",), "relu_bias"),
        (lambda x, bias: np.maximum(0.0, x * 0.5 + bias), ("bias",), "relu_bias"),
        (
            lambda x, column: (x + column).relu() if hasattr(x, "relu") else np.maximum(x + column, 0),
            ("column",),
            "relu_bias",
        ),
        (lambda x, bias: np.clip(x + bias, -0.5, 0.5), ("bias",), "clamp_bias"),
        (lambda x: np.minimum(np.maximum(x, -0.5), 0.5), (), "clamp"),
        (lambda x: np.maximum(np.minimum(0.5, x), -0.5), (), "clamp"),
        (lambda x, full: x - 2 * full, ("full",), "default"),
        (lambda x, bias, full: np.maximum(full / 2 + bias - -x, 0), ("bias", "full"), "relu_bias"),
    ],
)
def test_the_librarys_own_epilogues_are_found(arrays, function, inputs, name):
    given = {key: arrays[key] for key in inputs}
    if native(name):
        assert lowering_of(arrays, function, **given) == ("native", f"it is the library's epilogue {name}")
    d = rocpy.matmul(arrays["a"], arrays["b"], epilogue=rocpy.epilogue(function), epilogue_inputs=given)
    np.testing.assert_allclose(d, function(arrays["a"] @ arrays["b"], *given.values()), rtol=1e-5, atol=1e-5)


@pytest.mark.torch
@pytest.mark.parametrize("name", ["silu", "gelu", "sigmoid", "relu"])
def test_activations_of_torch_are_the_librarys_own(torch, arrays, name):
    F = torch.nn.functional
    functions = {
        "silu": lambda x, bias: F.silu(x + bias),
        "gelu": lambda x, bias: F.gelu(bias + x, approximate="tanh"),
        "relu": lambda x, bias: torch.relu(x + bias),
        "sigmoid": lambda x: torch.sigmoid(x),
    }
    inputs = {} if name == "sigmoid" else {"bias": arrays["bias"]}
    if native(name if name == "sigmoid" else f"{name}_bias"):
        assert lowering_of(arrays, functions[name], **inputs)[0] == "native"


@pytest.mark.parametrize(
    "function",
    [
        lambda x, bias: np.maximum(x, 0) + bias,
        lambda x, bias: np.maximum(x + 2 * bias, 0),
        lambda x, bias: np.tanh(x + bias),
        lambda x, bias: x * bias,
        lambda x, bias: np.maximum(x + bias + 1.0, 0),
        lambda x, bias: (x + bias, x),
    ],
)
def test_others_are_not(arrays, function):
    lowering, why = lowering_of(arrays, function, bias=arrays["bias"])
    assert lowering != "native"
    assert why


def test_c_that_is_given_leaves_no_room_for_a_residual(arrays):
    f = rocpy.epilogue(lambda x, full: x + full)
    inputs = {"full": arrays["full"]}
    c = np.ones((6, 8), np.float32)
    d = rocpy.matmul(arrays["a"], arrays["b"], c, beta=2.0, alpha=0.5, epilogue=f, epilogue_inputs=inputs)
    np.testing.assert_allclose(d, 0.5 * arrays["a"] @ arrays["b"] + 2 * c + arrays["full"], rtol=1e-5, atol=1e-5)
    half = rocpy.epilogue(lambda x: x * 0.5)
    d = rocpy.matmul(arrays["a"], arrays["b"], c, beta=2.0, alpha=0.5, epilogue=half)
    np.testing.assert_allclose(d, 0.25 * arrays["a"] @ arrays["b"] + c, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "values",
    [
        (2.0, 3.0),
        (2, np.float32(3)),
        (np.full(8, 2, np.float32), np.full(8, 3, np.float32)),
        (0.0, -0.0),
    ],
    ids=["floats", "kinds", "arrays", "zeros"],
)
def test_inputs_are_taken_by_name_whatever_their_order(arrays, values):
    def forth(x, p, q):
        return x * p + q

    def back(x, q, p):
        return x * p + q

    a, b = arrays["a"], arrays["b"]
    one, other = values
    for f in (rocpy.epilogue(forth), rocpy.epilogue(back)):
        for p, q in ((one, other), (other, one)):
            for inputs in ({"p": p, "q": q}, {"q": q, "p": p}):
                d = rocpy.matmul(a, b, epilogue=f, epilogue_inputs=inputs)
                np.testing.assert_allclose(d, (a @ b) * p + q, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("wrong", "words"), [
    ({}, "needs 'bias', 'full'"),
    ({"bias": 1.0}, "needs 'full'"),
    ({"bias": 1.0, "full": 1.0, "more": 2}, "no input 'more'"),
    ({"bias": np.ones(3, np.float32), "full": 1.0}, r"epilogue_inputs\['bias'\]: shape \(3,\)"),
    ({"bias": np.ones((2, 6, 8), np.float32), "full": 1.0}, r"epilogue_inputs\['bias'\]: shape \(2, 6, 8\)"),
    ([1, 2], "dict"),
])  # fmt: skip
def test_wrong_inputs_name_the_input(arrays, wrong, words):
    f = rocpy.epilogue(lambda x, bias, full: np.tanh(x + bias) + full)
    with pytest.raises(rocpy.InvalidProblemError, match=words):
        rocpy.matmul(arrays["a"], arrays["b"], epilogue=f, epilogue_inputs=wrong)
    with pytest.raises(rocpy.InvalidProblemError, match=words):
        rocpy.Matmul(arrays["a"], arrays["b"], epilogue=f, epilogue_inputs=wrong)


def test_other_wrong_arguments(arrays):
    a, b = arrays["a"], arrays["b"]
    f = rocpy.epilogue(lambda x, s: np.tanh(x * s))
    with pytest.raises(rocpy.InvalidOperandError, match="epilogue_inputs"):
        rocpy.matmul(a, b, epilogue=f, epilogue_inputs={"s": "much"})
    with pytest.raises(rocpy.InvalidProblemError, match="bias"):
        rocpy.matmul(a, b, epilogue=f, epilogue_inputs={"s": 1}, bias=arrays["bias"])
    with pytest.raises(rocpy.InvalidProblemError, match=r"rocpy\.epilogue"):
        rocpy.matmul(a, b, epilogue="relu", epilogue_inputs={})
    with pytest.raises(rocpy.InvalidProblemError, match=r"@rocpy\.epilogue"):
        rocpy.matmul(a, b, epilogue=lambda x: x, epilogue_inputs={})
    with pytest.raises(rocpy.InvalidProblemError, match="bool"):
        rocpy.matmul(a, b, epilogue=rocpy.epilogue(lambda x: x > 0))
    whole = rocpy.epilogue(lambda x: (x * x).astype("int32") * x.astype("int32"))
    with pytest.raises(rocpy.UnsupportedError, match="fallback"):
        rocpy.matmul(a, b[:, :4], epilogue=whole, options={"fallback": "error"})
    with pytest.raises(rocpy.UnsupportedError, match="complex64"):
        rocpy.matmul(a.astype("c8"), b.astype("c8"), epilogue=rocpy.epilogue(lambda x: np.tanh(x)))


def test_numbers_scalars_and_defaults(arrays):
    a, b = arrays["a"], arrays["b"]

    @rocpy.epilogue
    def f(x, scale, top=0.5):
        return np.minimum(np.tanh(x * scale), top)

    expected = np.minimum(np.tanh(a @ b * 2), 0.5)
    for scale in (2, 2.0, np.float32(2), np.array(2.0, np.float32)):
        np.testing.assert_allclose(
            rocpy.matmul(a, b, epilogue=f, epilogue_inputs={"scale": scale}), expected, atol=1e-5
        )
    np.testing.assert_allclose(
        rocpy.matmul(a, b, epilogue=f, epilogue_inputs={"scale": 2, "top": 0.1}), np.minimum(expected, 0.1), atol=1e-5
    )


def test_several_results_and_out(arrays):
    a, b = arrays["a"], arrays["b"]
    f = rocpy.epilogue(lambda x, bias: (np.tanh(x + bias), x + bias))
    inputs = {"bias": arrays["bias"]}
    y, pre = rocpy.matmul(a, b, epilogue=f, epilogue_inputs=inputs)
    np.testing.assert_allclose(pre, a @ b + arrays["bias"], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(y, np.tanh(pre), rtol=1e-5, atol=1e-5)
    outs = np.empty((6, 8), np.float32), np.empty((8, 6), np.float32).T
    got = rocpy.matmul(a, b, epilogue=f, epilogue_inputs=inputs, out=outs)
    assert got[0] is outs[0]
    np.testing.assert_array_equal(outs[1], pre)
    with pytest.raises(rocpy.InvalidOperandError, match="2 results"):
        rocpy.matmul(a, b, epilogue=f, epilogue_inputs=inputs, out=outs[0])
    with pytest.raises(rocpy.InvalidProblemError, match="shape"):
        rocpy.matmul(a, b, epilogue=f, epilogue_inputs=inputs, out=(outs[0], np.empty(3, np.float32)))


@pytest.mark.parametrize(
    ("dtype", "function", "expected"),
    [
        (np.float16, lambda x, full: np.tanh(x) + full, np.float16),
        (ml_dtypes.bfloat16, lambda x, full: np.tanh(x) + full, ml_dtypes.bfloat16),
        (ml_dtypes.bfloat16, lambda x, full: (np.tanh(x) + full).astype(np.float32), np.float32),
        (np.float32, lambda x, full: (np.tanh(x) + full).astype(np.float16), np.float16),
        (np.float64, lambda x, full: np.tanh(x) + full, np.float64),
    ],
)
def test_types_of_results(arrays, dtype, function, expected):
    a, b, full = (arrays[name].astype(dtype) for name in ("a", "b", "full"))
    d = rocpy.matmul(a, b, epilogue=rocpy.epilogue(function), epilogue_inputs={"full": full})
    assert d.dtype == expected
    wide = np.tanh(a.astype(np.float64) @ b.astype(np.float64)) + full.astype(np.float64)
    np.testing.assert_allclose(d.astype(np.float64), wide, rtol=1e-2, atol=1e-2)


def test_requantising_whole_numbers(rng):
    a, b = (rng.integers(-20, 20, shape).astype(np.int8) for shape in ((7, 33), (33, 6)))
    f = rocpy.epilogue(lambda x, scale: np.rint(x * scale).clip(-128, 127).astype(np.int8))
    scale = np.full(6, 0.03125, np.float32)
    d = rocpy.matmul(a, b, epilogue=f, epilogue_inputs={"scale": scale})
    assert d.dtype == np.int8
    wide = a.astype(np.int64) @ b.astype(np.int64)
    np.testing.assert_array_equal(d, np.clip(np.rint(wide * 0.03125), -128, 127).astype(np.int8))


def test_masks(arrays, rng):
    keep = rng.random((6, 8)) < 0.5
    f = rocpy.epilogue(lambda x, keep: np.where(keep, x * 2.0, 0.0))
    g = rocpy.epilogue(lambda x, keep: x * keep * 2.0)
    for epilogue in (f, g):
        d = rocpy.matmul(arrays["a"], arrays["b"], epilogue=epilogue, epilogue_inputs={"keep": keep})
        np.testing.assert_allclose(d, np.where(keep, 2 * (arrays["a"] @ arrays["b"]), 0), rtol=1e-5, atol=1e-5)


def test_batches_vectors_and_nothing(rng):
    f = rocpy.epilogue(lambda x, y: np.tanh(x) + y)
    a, b = rng.standard_normal((3, 1, 4, 5)), rng.standard_normal((2, 5, 6))
    for shape in ((6,), (4, 1), (4, 6), (2, 1, 6), (3, 2, 4, 6), ()):
        y = rng.standard_normal(shape)
        d = rocpy.matmul(a, b, epilogue=f, epilogue_inputs={"y": y})
        np.testing.assert_allclose(d, np.tanh(a @ b) + y, atol=1e-12)
    v = rng.standard_normal(5)
    np.testing.assert_allclose(rocpy.matmul(v, b, epilogue=f, epilogue_inputs={"y": np.ones(6)}), np.tanh(v @ b) + 1)
    np.testing.assert_allclose(rocpy.matmul(v, v, epilogue=f, epilogue_inputs={"y": 1.0}), np.tanh(v @ v) + 1)
    empty = rocpy.matmul(a[..., :0, :], b, epilogue=f, epilogue_inputs={"y": np.ones(6)})
    assert empty.shape == (3, 2, 0, 6)
    k0 = rocpy.matmul(np.ones((2, 0)), np.ones((0, 3)), epilogue=f, epilogue_inputs={"y": np.ones(3)})
    np.testing.assert_array_equal(k0, np.ones((2, 3)))


def test_interleaved_columns(arrays):
    f = rocpy.epilogue(lambda x, bias: np.tanh((x + bias)[..., ::2]) * (x + bias)[..., 1::2])
    d = rocpy.matmul(arrays["a"], arrays["b"], epilogue=f, epilogue_inputs={"bias": arrays["bias"]})
    x = arrays["a"] @ arrays["b"] + arrays["bias"]
    assert d.shape == (6, 4)
    np.testing.assert_allclose(d, np.tanh(x[:, ::2]) * x[:, 1::2], rtol=1e-5, atol=1e-5)
    g = rocpy.epilogue(lambda x, half: x[..., ::2] + half)
    rocpy.matmul(arrays["a"], arrays["b"], epilogue=g, epilogue_inputs={"half": np.ones(4, np.float32)})
    with pytest.raises(rocpy.InvalidProblemError, match=r"\(6, 4\)"):
        rocpy.matmul(arrays["a"], arrays["b"], epilogue=g, epilogue_inputs={"half": arrays["bias"]})
    with pytest.raises(rocpy.InvalidProblemError, match="even"):
        rocpy.matmul(arrays["a"], arrays["b"][:, :7], epilogue=g, epilogue_inputs={"half": 1.0})


def test_a_weight_brings_its_bias(arrays):
    f = rocpy.epilogue(lambda x, bias: np.tanh(x + bias))
    w = rocpy.Weight(arrays["b"], bias=arrays["bias"])
    expected = np.tanh(arrays["a"] @ arrays["b"] + arrays["bias"])
    np.testing.assert_allclose(rocpy.matmul(arrays["a"], w, epilogue=f), expected, atol=1e-5)
    other = rocpy.matmul(arrays["a"], w, epilogue=f, epilogue_inputs={"bias": 0.0})
    np.testing.assert_allclose(other, np.tanh(arrays["a"] @ arrays["b"]), atol=1e-5)


def test_an_epilogue_without_inputs(arrays):
    f, a, b = rocpy.epilogue(lambda x: np.tanh(x)), arrays["a"], arrays["b"]
    # A function that takes no bias leaves the Weight's alone; the second call of each compares itself with the first.
    for right in (b, b, rocpy.Weight(b, bias=arrays["bias"])):
        for inputs in (None, {}):
            d = rocpy.matmul(a, right, epilogue=f, epilogue_inputs=inputs)
            np.testing.assert_allclose(d, np.tanh(a @ b), atol=1e-5)
    for wrong in ([], "", 0, {"bias": arrays["bias"]}):
        with pytest.raises(rocpy.InvalidProblemError, match="epilogue_inputs"):
            rocpy.matmul(a, b, epilogue=f, epilogue_inputs=wrong)


def test_buffers(arrays):
    f = rocpy.epilogue(lambda x, bias: np.tanh(x + bias))
    a, b, bias = (rocpy.Buffer(arrays[name].shape, "float32") for name in ("a", "b", "bias"))
    for buffer, name in ((a, "a"), (b, "b"), (bias, "bias")):
        buffer.copy_from(arrays[name])
    d = rocpy.matmul(a, b, epilogue=f, epilogue_inputs={"bias": bias})
    assert isinstance(d, rocpy.Buffer)
    np.testing.assert_allclose(d.to_numpy(), np.tanh(arrays["a"] @ arrays["b"] + arrays["bias"]), atol=1e-5)


def test_plans(arrays):
    f = rocpy.epilogue(lambda x, bias, full: np.tanh(x + bias) * full)
    a, b = arrays["a"], arrays["b"]
    inputs = {"bias": arrays["bias"], "full": arrays["full"]}
    with rocpy.Matmul(a, b, epilogue=f, epilogue_inputs=inputs) as mm:
        assert isinstance(mm, rocpy.Matmul)
        found = mm.plan()
        assert {one.lowering for one in found} >= {"unfused"}
        assert [one.rank for one in found] == list(range(len(found)))
        for one in found:
            np.testing.assert_allclose(
                mm.execute(algorithm=one), np.tanh(a @ b + inputs["bias"]) * inputs["full"], rtol=1e-5, atol=1e-5
            )
        mm.reset_operands(a=-a, epilogue_inputs={"bias": 2 * inputs["bias"]})
        np.testing.assert_allclose(
            mm.execute(), np.tanh(-a @ b + 2 * inputs["bias"]) * inputs["full"], rtol=1e-5, atol=1e-5
        )
        with pytest.raises(rocpy.InvalidProblemError, match="was shape"):
            mm.reset_operands(a=np.ones((5, 5), np.float32), epilogue_inputs={"full": np.ones((5, 8), np.float32)})
        with pytest.raises(rocpy.InvalidProblemError, match=r"epilogue_inputs\['bias'\]"):
            mm.reset_operands(epilogue_inputs={"bias": np.ones(3, np.float32)})
        assert mm.pin(found[-1]).source == "pinned"
        assert mm.algorithm.name == found[-1].name
        out = np.empty((6, 8), np.float32)
        assert mm.execute(out=out) is out
        assert mm.plan(algorithms=[found[-1]])[0].source == "pinned"
        problem = mm.problem
        assert Problem.from_json(problem.to_json()) == problem
        assert "epilogue f" in str(problem)
        saved = mm.export()
    with pytest.raises(rocpy.ClosedError):
        mm.execute()
    assert rocpy.matmul(a, b, epilogue=f, epilogue_inputs=inputs, algorithm=saved).shape == (6, 8)


def test_another_m(arrays):
    f = rocpy.epilogue(lambda x, full: np.tanh(x) * full)
    with rocpy.Matmul(
        arrays["a"], arrays["b"], epilogue=f, epilogue_inputs={"full": arrays["full"]}, options={"dynamic": "m"}
    ) as mm:
        mm.execute()
        mm.reset_operands(a=arrays["a"][:3], epilogue_inputs={"full": arrays["full"][:3]})
        np.testing.assert_allclose(
            mm.execute(), np.tanh(arrays["a"][:3] @ arrays["b"]) * arrays["full"][:3], rtol=1e-5, atol=1e-5
        )


def test_problems_differ_by_their_epilogues(arrays):
    keys = set()
    for function in (lambda x: np.tanh(x) * 2, lambda x: np.tanh(x) * 3, lambda x: x):
        with rocpy.Matmul(arrays["a"], arrays["b"], epilogue=rocpy.epilogue(function)) as mm:
            keys.add(rocpy.tuning.problem_key(mm.launched))
    assert len(keys) == 3


@pytest.fixture
def own_database(tmp_path, monkeypatch, fresh_plan_cache):
    """A tuning database of the test's own, and the process's mode as it was."""
    monkeypatch.setattr(database, "_current", Database([tmp_path / "tuning.sqlite3"]))
    before = _tuning_state.process_mode()
    _tuning_state.changed()
    yield
    _tuning_state.set_process_mode(before)


def test_tuning_chooses_among_the_ways(arrays, own_database):
    f = rocpy.epilogue(lambda x, bias: np.maximum(x + bias, 0))
    arguments = {"epilogue": f, "epilogue_inputs": {"bias": arrays["bias"]}}
    with rocpy.Matmul(arrays["a"], arrays["b"], **arguments) as mm:
        report = mm.autotune(budget_ms=30)
        assert report.problem == mm.launched
        assert mm.algorithms[0] == report.best
        assert {trial.algorithm.lowering for trial in report.trials} >= {"native", "unfused"}
    expected = np.maximum(arrays["a"] @ arrays["b"] + arrays["bias"], 0)
    with rocpy.tuning.enable(budget_ms=10):
        d = rocpy.matmul(arrays["a"], arrays["b"], **arguments)
    np.testing.assert_allclose(d, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("reproducible", [True, "batch"])
def test_promises(arrays, reproducible):
    if not rocpy.blaslt.supported("float32", options={"reproducible": reproducible}):
        pytest.skip("the platform does not promise it")
    exact = rocpy.epilogue(lambda x, bias: np.maximum(x, 0) * bias)
    d = rocpy.matmul(
        arrays["a"], arrays["b"], epilogue=exact, epilogue_inputs={"bias": arrays["bias"]},
        options={"reproducible": reproducible},
    )  # fmt: skip
    np.testing.assert_allclose(d, np.maximum(arrays["a"] @ arrays["b"], 0) * arrays["bias"], rtol=1e-5, atol=1e-5)


def test_the_result_of_the_products_own_type_may_come_second(rng):
    import ml_dtypes

    def quantised(x, scale):
        y = np.maximum(x, 0)
        return (y * scale).astype("float8_e4m3fn"), y, (y * 2).astype("int8")

    f = rocpy.epilogue(quantised)
    a, b = (rng.integers(-3, 4, shape).astype(np.float32) for shape in ((6, 5), (5, 8)))
    inputs = {"scale": np.float32(0.5)}
    y = np.maximum(a @ b, 0)
    wanted = (y * 0.5).astype(ml_dtypes.float8_e4m3fn), y, np.clip(2 * y, -128, 127).astype(np.int8)
    lowering = rocpy.explain(a, b, epilogue=f, epilogue_inputs=inputs).algorithm.lowering
    assert lowering in ("fused", "native+kernel")
    outs = tuple(np.empty_like(one) for one in wanted)
    found = rocpy.matmul(a, b, epilogue=f, epilogue_inputs=inputs, out=outs)
    for got, out, want in zip(found, outs, wanted, strict=True):
        assert got is out
        np.testing.assert_array_equal(got.astype(np.float32), want.astype(np.float32))


# 1, 1.0 and True are three numbers, and so are 0.0 and -0.0.
@pytest.mark.parametrize(("number", "dtype"), [(1, "int32"), (1.0, "float32"), (True, "int32")])
def test_numbers_keep_their_type(number, dtype):
    scaled = rocpy.epilogue(lambda x, scale: x * scale)
    ones = np.ones((2, 2), np.int8)
    for _ in range(2):
        d = rocpy.matmul(ones, ones, epilogue=scaled, epilogue_inputs={"scale": number})
        assert d.dtype == dtype


def test_numbers_keep_their_sign():
    divided = rocpy.epilogue(lambda x, by: x / by)
    one = np.ones((1, 1), np.float32)
    for zero, wanted in ((0.0, np.inf), (-0.0, -np.inf), (0.0, np.inf)):
        assert rocpy.matmul(one, one, epilogue=divided, epilogue_inputs={"by": zero})[0, 0] == wanted


def test_a_whole_number_that_no_type_holds_is_told():
    scaled = rocpy.epilogue(lambda x, scale: x * scale)
    one = np.ones((1, 1), np.float32)
    with pytest.raises(rocpy.InvalidProblemError, match=r"epilogue_inputs\['scale'\]: got an integer .*2\*\*63"):
        rocpy.matmul(one, one, epilogue=scaled, epilogue_inputs={"scale": 10**400})


def test_results_want_arrays_of_their_own():
    both = rocpy.epilogue(lambda x: (x + 1, x * 2))
    a, b = np.ones((3, 4), np.float32), np.ones((4, 5), np.float32)
    whole = np.empty((3, 10), np.float32)
    with pytest.raises(rocpy.InvalidOperandError, match="results 0 and 1 share memory"):
        rocpy.matmul(a, b, epilogue=both, out=(whole[:, :5], whole[:, :5]))
    first, second = rocpy.matmul(a, b, epilogue=both, out=(whole[:, ::2], whole[:, 1::2]))
    assert (first == 5).all()
    assert (second == 8).all()


def mixed_calls(rng):
    """Return calls that differ in the function, a shape, a type, an order or a number, with their results."""
    a = rng.standard_normal((6, 5), dtype=np.float32)
    b, bias = rng.standard_normal((5, 8), dtype=np.float32), rng.standard_normal(8, dtype=np.float32)
    column = rng.standard_normal((6, 1), dtype=np.float32)
    bent, squashed = rocpy.epilogue(lambda x, y: np.tanh(x + y)), rocpy.epilogue(lambda x, y: np.tanh(x) * y)
    swapped = rocpy.epilogue(lambda y, x: np.tanh(y) - x)
    positive = bias > 0
    chosen = rocpy.epilogue(lambda x, y: np.where(y, np.tanh(x), x))
    product = a @ b
    return [
        (a, b, bent, {"y": bias}, np.tanh(product + bias)),
        (a, b, squashed, {"y": bias}, np.tanh(product) * bias),
        (a, b, bent, {"y": column}, np.tanh(product + column)),
        (a[:4], b, bent, {"y": bias}, np.tanh(product[:4] + bias)),
        (a, b, bent, {"y": 0.5}, np.tanh(product + np.float32(0.5))),
        (a, b, bent, {"y": -2.0}, np.tanh(product - np.float32(2))),
        (a, b, bent, {"y": bias.astype(np.float16)}, np.tanh(product + bias.astype(np.float16))),
        (a, b, swapped, {"x": bias}, np.tanh(product) - bias),
        (a, b, chosen, {"y": positive}, np.where(positive, np.tanh(product), product)),
        (a, np.asfortranarray(b), squashed, {"y": column}, np.tanh(product) * column),
    ]


def make_calls(calls, order):
    for i in order:
        a, b, epilogue, inputs, expected = calls[i]
        np.testing.assert_allclose(rocpy.matmul(a, b, epilogue=epilogue, epilogue_inputs=inputs), expected, 2e-3, 1e-3)


def test_calls_in_any_order(rng):
    # The call before is remembered: whatever it was, it has no part in the next one.
    calls = mixed_calls(rng)
    make_calls(calls, range(len(calls)))
    make_calls(calls, rng.integers(0, len(calls), 400))


def test_calls_of_several_threads(rng):
    calls = mixed_calls(rng)
    orders = [rng.integers(0, len(calls), 300) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(make_calls, calls, order) for order in orders]:
            done.result()
