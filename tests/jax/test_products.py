# SPDX-License-Identifier: MIT
"""rocpy.jax.matmul under jit: the case list against the oracle, plans, donation, export, and what is refused when."""

from __future__ import annotations

import doctest
import gc
import pickle
import threading

import numpy as np
import pytest

import rocpy
from rocpy.blaslt.model.epilogues import EPILOGUES
from rocpy.errors import InvalidOperandError, InvalidProblemError, UnsupportedError
from rocpy.testing import Case, evaluate, run_case
from rocpy.testing import cases as case_list
from rocpy.testing.runner import check_outputs

pytestmark = pytest.mark.jax

# rocpy.jax takes numbers as scales; jax has no types of six bits; those of four it packs.
KNOWN = tuple(
    case
    for case in case_list.cases("quick")
    if case.scale in ("", "scalar")
    and not case.amax
    and not case.scale_d
    and not case.alpha_imaginary
    and case.layout == "nn"
)
BASE = tuple(case for case in KNOWN if case.group == "tiny")
# Each epilogue, each pair of types and each kind of bias once.
SAMPLE = tuple(
    dict.fromkeys(
        (
            *{case.epilogue: case for case in BASE if case.dtype == "float32"}.values(),
            *{(case.dtype, case.result_dtype): case for case in BASE}.values(),
            *{case.bias: case for case in BASE}.values(),
        )
    )
)


def jitted(jax, matmul):
    """Return rocpy.jax.matmul compiled anew for each call, its arrays being arguments."""

    def run(a, b, c=None, **keywords):
        keywords.update({name: float(keywords[name]) for name in ("scale_a", "scale_b") if name in keywords})
        arrays = {name: keywords.pop(name) for name in ("bias", "aux") if name in keywords}
        return jax.jit(lambda a, b, c, arrays: matmul(a, b, c, **arrays, **keywords))(a, b, c, arrays)

    return run


@pytest.mark.parametrize("case", SAMPLE, ids=[case.name for case in SAMPLE])
def test_cases(case, jax, matmul):
    result = run_case(case, jitted(jax, matmul), jax.numpy.asarray)
    assert result.ok, result.message


@pytest.mark.slow
@pytest.mark.parametrize("case", KNOWN, ids=[case.name for case in KNOWN])
def test_all_cases(case, jax, matmul):
    result = run_case(case, jitted(jax, matmul), jax.numpy.asarray)
    assert result.ok, result.message


def test_the_sample_has_every_epilogue_and_type():
    assert {case.epilogue for case in SAMPLE} == set(case_list.EPILOGUES)
    assert {case.dtype for case in SAMPLE} >= {*case_list.DTYPES, *case_list.FLOAT8, "int8", "complex64"}


@pytest.mark.parametrize("name", [name for name, row in EPILOGUES.items() if row.enumerator is None])
def test_composed_epilogues(name, jax, matmul, without_programs):
    result = run_case(Case(5, 6, 7, epilogue=name), jitted(jax, matmul), jax.numpy.asarray)
    assert result.ok, result.message
    with pytest.raises(jax.errors.JaxRuntimeError, match=f"UnsupportedError: epilogue '{name}'"):
        run_case(Case(5, 6, 7, epilogue=name), lambda *a, **k: matmul(*a, **k, options={"fallback": "error"}))


@pytest.mark.parametrize(("a", "b"), [((0, 3), (3, 4)), ((2, 0), (0, 4)), ((2, 3), (3, 0)), ((0, 2, 3), (3, 4))])
def test_empty_extents(a, b, jax, matmul):
    a, b = np.ones(a, np.float32), np.ones(b, np.float32)
    bias = np.arange(b.shape[-1], dtype=np.float32)
    d, aux = jax.jit(lambda a, b: matmul(a, b, epilogue="relu_aux_bias", bias=bias))(a, b)
    np.testing.assert_array_equal(d, np.maximum(a @ b + bias, 0))
    np.testing.assert_array_equal(aux["relu_aux"], a @ b + bias)


def test_quantized_operands_need_scales(jax, matmul):
    a = np.ones((4, 8), jax.numpy.float8_e4m3fn)
    whole = np.ones((4, 4), np.int8)
    for given, more in (((a, a.T), {}), ((whole, whole), {"dtype": "float32"})):
        for missing in ({}, {"scale_a": 1.0}, {"scale_b": 1.0}):
            with pytest.raises(InvalidProblemError, match=r"scale_[ab]=1\.0.*as numbers"):
                jax.jit(lambda a, b, x=missing, m=more: matmul(a, b, **x, **m))(*given)
        for run in (matmul, jitted(jax, matmul)):
            found = run(*given, scale_a=0.5, scale_b=4.0, alpha=2.0, **more)
            np.testing.assert_array_equal(np.asarray(found, np.float32), 4.0 * given[0].shape[1])
    assert matmul(whole, whole).dtype == np.int32


def test_results_are_those_of_the_default_environment(jax, matmul):
    # XLA's threads flush subnormal numbers.
    a = np.full((40, 8), 2.0**-70, np.float32)
    np.testing.assert_array_equal(jax.jit(matmul)(a, a.T), np.full((40, 40), 2.0**-137, np.float32))


def test_vectors(jax, matmul, rng):
    v, m = rng.standard_normal(4, dtype=np.float32), rng.standard_normal((4, 5), dtype=np.float32)
    for a, b in ((v, m), (m.T, v), (v, v)):
        found = check_outputs(evaluate(a, b), jax.jit(matmul)(a, b), np.float32)["result"]
        assert found.ok, found.message


# ---- plans ----


def test_a_compiled_call_finds_the_plan_of_the_call_before(jax, matmul, fresh_plan_cache):
    a, b, bias = np.ones((4, 5), np.float32), np.ones((5, 6), np.float32), np.ones(6, np.float32)
    layer = jax.jit(lambda a, b, bias: matmul(a, b, epilogue="gelu_bias", bias=bias))
    layer(a, b, bias).block_until_ready()
    before = rocpy.plan_cache.info()
    for _ in range(5):
        layer(a, b, bias).block_until_ready()
    after = rocpy.plan_cache.info()
    assert before["size"] == after["size"] == 1
    assert after["hits"] - before["hits"] == 5
    assert after["misses"] == before["misses"]
    # The function form asks by the same key.
    rocpy.matmul(a, b, epilogue="gelu_bias", bias=bias, dtype="float32", out=np.empty((4, 6), np.float32))
    assert rocpy.plan_cache.info()["hits"] == after["hits"] + 1


@pytest.mark.parametrize("capacity", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_loaded_programs_and_products_without_room_for_plans(capacity, jax, matmul, run_python, tmp_path):
    """In a new process, where the first product is that of a program which another process compiled."""
    from jax.experimental import serialize_executable

    operands = [jax.ShapeDtypeStruct(shape, np.float32) for shape in ((4, 5), (5, 6))]
    compiled = jax.jit(lambda a, b: matmul(a, b, alpha=3.0)).lower(*operands).compile()
    stored = tmp_path / "program.bin"
    stored.write_bytes(pickle.dumps(serialize_executable.serialize(compiled)))
    run_python(
        """
        import os, pickle
        import jax, numpy as np
        from jax.experimental.serialize_executable import deserialize_and_load
        from rocpy.jax import matmul
        a, b = np.ones((4, 5), np.float32), np.ones((5, 6), np.float32)
        with open(os.environ["PROGRAM"], "rb") as stored:
            loaded = deserialize_and_load(*pickle.load(stored))
        assert (loaded(a, b) == 15).all()
        pair = jax.jit(lambda a, b: (matmul(a, b), matmul(a, b[:, :2], alpha=2.0)))
        for _ in range(3):
            x, y = pair(a, b)
            assert (x == 5).all() and (y == 10).all()
        """,
        ROCPY_PLAN_CACHE=str(capacity),
        PROGRAM=str(stored),
    )


def test_options_hold_where_the_function_is_traced(jax, matmul, without_programs):
    a, b = np.ones((4, 5), np.float32), np.ones((5, 6), np.float32)
    with rocpy.options(fallback="error"):
        traced = jax.jit(lambda a, b: matmul(a, b, epilogue="gelu_erf")).lower(a, b).compile()
    with pytest.raises(jax.errors.JaxRuntimeError, match="fallback='error'"):
        traced(a, b)
    exact = jax.jit(lambda a, b: matmul(a, b, options={"reproducible": True}))
    np.testing.assert_array_equal(exact(a, b), exact(a, b))


def test_threads_share_one_compiled_function(jax, matmul, rng):
    a, b = rng.standard_normal((33, 47), dtype=np.float32), rng.standard_normal((47, 21), dtype=np.float32)
    layer = jax.jit(lambda a, b: matmul(matmul(a, b, epilogue="gelu"), b.T))
    wanted, right = np.asarray(layer(a, b)), []

    def work():
        right.extend(np.array_equal(layer(a, b), wanted) for _ in range(20))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert right == [True] * 80


# ---- jax's own machinery ----


def test_donated_operands(jax, matmul, rng):
    a, b = rng.standard_normal((8, 8), dtype=np.float32), rng.standard_normal((8, 8), dtype=np.float32)
    step = jax.jit(lambda a, b: matmul(a, b, epilogue="relu"), donate_argnums=0)
    given = jax.numpy.array(a)
    found = check_outputs(evaluate(a, b, epilogue="relu"), step(given, b), np.float32)["result"]
    assert found.ok, found.message
    assert given.is_deleted()


def test_loops_and_branches(jax, matmul):
    w = 0.5 * np.eye(4)

    def body(_, x):
        return jax.lax.cond(x[0, 0] > 1, lambda x: matmul(x, w), lambda x: matmul(x, w, epilogue="relu"), x)

    np.testing.assert_array_equal(jax.jit(lambda x: jax.lax.fori_loop(0, 6, body, x))(8 * np.eye(4)), np.eye(4) / 8)


@pytest.mark.parametrize("transformation", ["none", "vmap", "vjp", "checkpoint"])
def test_calls_with_ever_new_numbers_do_not_collect_programs(transformation, jax, matmul, monkeypatch):
    from rocpy.jax import _gradients

    monkeypatch.setattr(_gradients, "_MOST_SPECS", 1)
    monkeypatch.setattr(_gradients, "_seen", set())
    transformed = {
        "none": lambda f, x: f(x),
        "vmap": lambda f, x: jax.vmap(f)(x[None])[0],
        "vjp": lambda f, x: jax.vjp(f, x)[0],
        "checkpoint": lambda f, x: jax.checkpoint(f)(x),
    }[transformation]
    x, w = jax.numpy.ones((2, 3)), jax.numpy.ones((3, 4))
    programs = []
    for alpha in (1.0, 2.0, 3.0, 4.0, 5.0):
        assert float(transformed(lambda x, alpha=alpha: matmul(x, w, alpha=alpha), x)[0, 0]) == 3 * alpha
        gc.collect()
        programs.append(len(jax.devices()[0].client.live_executables()))
    assert programs[4] <= programs[1]


def test_the_sign_of_a_zero_is_part_of_a_program_and_nan_is_one_number(jax, matmul):
    from rocpy.jax._call import Spec

    x, w = np.ones((1, 2), np.float32), -np.ones((2, 1), np.float32)
    signs = [np.signbit(matmul(x, w, epilogue="clamp", clamp=(low, 5.0)))[0, 0] for low in (0.0, -0.0, 0.0)]
    assert signs == [False, True, False]
    first, second = Spec(alpha=float("nan")), Spec(alpha=float("nan"))
    assert first == second
    assert hash(first) == hash(second)


def test_it_is_one_call_in_the_compiled_program(jax, matmul):
    shape = jax.ShapeDtypeStruct((4, 4), np.float32)
    text = jax.jit(lambda a, b, bias: matmul(a, b, epilogue="gelu_bias", bias=bias)).lower(
        shape, shape, jax.ShapeDtypeStruct((4,), np.float32)
    )
    compiled = text.compile().as_text()
    assert compiled.count('custom_call_target="rocpy_matmul"') == 1
    assert "dot(" not in compiled
    assert "tanh" not in compiled


def exported(jax, function, *shapes):
    from jax import export

    scope = export.SymbolicScope()
    arguments = [jax.ShapeDtypeStruct(export.symbolic_shape(shape, scope=scope), np.float32) for shape in shapes]
    allowed = [export.DisabledSafetyCheck.custom_call("rocpy_matmul")]
    return export.export(jax.jit(function), disabled_checks=allowed)(*arguments)


def test_symbolic_extents(jax, matmul, rng):
    layer = exported(jax, lambda a, b: matmul(a, b, epilogue="relu_aux"), "n, m, k", "k, 6")
    for shape in ((2, 3, 4), (1, 5, 2)):
        a, b = rng.standard_normal(shape, dtype=np.float32), rng.standard_normal((shape[2], 6), dtype=np.float32)
        for found in check_outputs(evaluate(a, b, epilogue="relu_aux"), layer.call(a, b), np.float32).values():
            assert found.ok, found.message


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (("m, k", "j, n"), r"the last axis of a has 3 elements.*k = 3, j = 4"),
        (("m, k", "5, n"), "the last axis of a has"),
        (("p, m, k", "q, k, n"), r"batch axes .* do not broadcast.*p = 2"),
    ],
)
def test_symbolic_extents_that_do_not_fit(shapes, message, jax, matmul):
    with pytest.raises(InvalidProblemError, match=message):
        exported(jax, matmul, *shapes)


@pytest.mark.parametrize("bounds", [(-2, 0.1), (-2, 1e-50)])
def test_float64_results_are_clamped_to_the_bounds(bounds, jax, matmul):
    a, b = np.array([[-7.0], [5.0]]), np.ones((1, 1))
    for function in (matmul, jax.jit(matmul, static_argnames=("epilogue", "clamp"))):
        result = function(a, b, epilogue="clamp", clamp=bounds)
        np.testing.assert_array_equal(result, np.array(bounds)[:, None])


# ---- refusals ----


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (((4, 5), (4, 5)), InvalidProblemError, "must be equal"),
        (((4, 5), (5, 6), {"epilogue": "bias"}), InvalidProblemError, "needs bias="),
        (((4, 5), (5, 6), {"epilogue": "no"}), InvalidProblemError, "no epilogue"),
        (((4, 5), (5, 6), {"epilogue": "clamp"}), InvalidProblemError, "clamp="),
        (((4, 5), (5, 6), {"clamp": (2, 1), "epilogue": "clamp"}), InvalidProblemError, "low"),
        (((4, 5), (5, 6), {"beta": 2.0}), InvalidProblemError, "no c"),
        (((4, 5), (5, 6), {"alpha": object}), InvalidOperandError, "real number"),
        (((4, 5), (5, 6), {"dtype": "int32"}), (InvalidProblemError, UnsupportedError), "int32"),
        (((4, 5), (5, 6), {"compute": "fast"}), InvalidProblemError, "compute"),
        (((4, 5), (5, 6), {"options": {"copies": 1}}), InvalidProblemError, "copies"),
    ],
)
def test_mistakes_are_told_when_the_function_is_traced(arguments, error, message, jax, matmul):
    a, b, *rest = arguments
    keywords = rest[0] if rest else {}
    with pytest.raises(error, match=message):
        jax.jit(lambda a, b: matmul(a, b, **keywords)).lower(*(jax.ShapeDtypeStruct(x, np.float32) for x in (a, b)))


def test_operands_of_other_kinds(jax, matmul):
    a = np.ones((2, 2), np.float32)
    with pytest.raises(InvalidOperandError, match="b: got builtins.list"):
        matmul(a, [[1.0]])
    with pytest.raises(InvalidOperandError, match="a: .*int16"):
        matmul(a.astype(np.int16), a.astype(np.int16))
    with pytest.raises(InvalidProblemError, match="keys"):
        matmul(a, a, epilogue="dgelu", aux={"no": a})
    with pytest.raises(UnsupportedError, match="alpha: traced"):
        jax.jit(lambda s: matmul(a, a, alpha=s))(2.0)


@pytest.mark.parametrize("kind", ["kn", "nk", "torch", "recorded", "bfloat16", "weight", "buffer", "list"])
def test_the_advice_about_operands_of_other_kinds_works(kind, jax, matmul):
    torch = pytest.importorskip("torch")
    values = np.arange(12, dtype=np.float32).reshape(3, 4)
    b = {
        "kn": lambda: rocpy.Weight(values),
        "nk": lambda: rocpy.Weight(values.T.copy(), layout="nk"),
        "torch": lambda: torch.tensor(values),
        "recorded": lambda: torch.tensor(values, requires_grad=True),
        "bfloat16": lambda: torch.tensor(values).bfloat16(),
        "weight": lambda: rocpy.Weight.from_linear(torch.nn.Linear(3, 4)),
        "buffer": lambda: rocpy.Buffer.from_dlpack(values),
        "list": values.tolist,
    }[kind]()
    a = np.ones((2, 3), np.float32)
    with pytest.raises(InvalidOperandError, match="^b: got .*: pass ") as caught:
        matmul(a, b)
    array = eval(str(caught.value).rpartition(": pass ")[2], {"jax": jax, "b": b})
    expected = b.source.detach().numpy().T if kind == "weight" else values
    found = matmul(jax.numpy.asarray(a, array.dtype), array)
    np.testing.assert_allclose(np.asarray(found, np.float32), a @ expected, rtol=1e-5)


def test_scales_are_numbers(jax, matmul):
    a = np.ones((32, 32), jax.numpy.float8_e4m3fn)
    with pytest.raises(InvalidOperandError, match=r"scale_a: got an array of shape \(32, 1\).*multiply by the array"):
        matmul(a, a, scale_a=np.ones((32, 1), np.float32), scale_b=1.0)
    narrow = a.astype(jax.numpy.float4_e2m1fn)
    with pytest.raises(UnsupportedError, match="float4_e2m1fn need scales by blocks.*use rocpy.matmul"):
        matmul(narrow, narrow)


def test_custom_epilogues_are_refused(jax, matmul):
    a = np.ones((2, 2), np.float32)
    with pytest.raises(UnsupportedError, match=r"no custom epilogues.*compute the function.*with jax\.numpy"):
        matmul(a, a, epilogue=rocpy.epilogue(lambda x: 2 * x))


def test_a_missing_bias_is_asked_for_in_words_of_jax(jax, matmul):
    with pytest.raises(InvalidProblemError, match="needs bias=, of length N, the last axis of the result$"):
        matmul(np.ones((2, 2), np.float32), np.ones((2, 2), np.float32), epilogue="bias")


@pytest.mark.parametrize(("a", "b"), [("float32", "bfloat16"), ("bfloat16", "float16"), ("int8", "float32")])
def test_two_types_are_refused_and_named(a, b, jax, matmul):
    ones = jax.numpy.ones
    with pytest.raises(InvalidProblemError, match=f"a is {a} and b is {b}; cast one"):
        jax.jit(matmul)(ones((2, 4), a), ones((4, 4), b))
    mixed = matmul(ones((2, 4), "float8_e4m3fn"), ones((4, 4), "float8_e5m2"), scale_a=1.0, scale_b=1.0)
    assert float(mixed[0, 0]) == 4


def test_the_function_form_names_this_one_where_jax_traces(jax):
    a = np.ones((2, 2), np.float32)
    for transform in (jax.jit, jax.vmap, jax.grad):
        with pytest.raises(UnsupportedError, match=r"use rocpy\.jax\.matmul"):
            transform(lambda a: rocpy.matmul(a, a))(a)


def test_examples(jax):
    import rocpy.jax

    found = doctest.DocTestFinder().find(rocpy.jax.matmul, "matmul", globs={})
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    assert sum(runner.run(test).attempted for test in found) > 0
    assert runner.summarize().failed == 0
