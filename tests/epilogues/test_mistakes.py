# SPDX-License-Identifier: MIT
"""Mistakes around epilogues: each refusal names the operand and says what is wrong with it."""

import json
import re

import numpy as np
import pytest

import rocpy
from rocpy.epilogues import CustomEpilogue, softcap, swiglu

ONE = np.ones((1, 1), np.float32)
INVALID = rocpy.InvalidProblemError


# ---- results ----


def memory_of(shape):
    """Return arrays that overlap: two of a shape, one that is the first, and its first row."""
    memory = np.ones(shape[0] * shape[1] + 4, np.float32)
    out = memory[4:].reshape(shape)
    return out, {"whole": memory[:-4].reshape(shape), "row": memory[4 : 4 + shape[1]], "same": out}


@pytest.mark.parametrize("which", ["whole", "row", "same"])
@pytest.mark.parametrize(
    "function",
    [
        lambda x, s: x + s,
        lambda x, s: np.maximum(x + s, 0),
        lambda x, s: np.tanh(x + s),
        lambda x, s: (np.tanh(x) + s).astype(np.float64).astype(np.float32),
        lambda x, s: (x * 2, x + s),
    ],
)
@pytest.mark.parametrize("planned", [False, True])
def test_results_over_an_input(function, which, planned):
    """An input may be the result, and may not overlap it otherwise, however the product is computed."""
    a, b = np.full((4, 3), 0.5, np.float32), np.ones((3, 8), np.float32)
    out, inputs = memory_of((4, 8))
    epilogue = rocpy.epilogue(function)
    expected = function(a @ b, inputs[which].copy())
    results = (np.empty_like(out), out) if epilogue.outputs == 2 else out

    def run():
        if planned:
            with rocpy.Matmul(a, b, epilogue=epilogue, epilogue_inputs={"s": inputs[which]}) as mm:
                return mm.execute(out=results)
        return rocpy.matmul(a, b, epilogue=epilogue, epilogue_inputs={"s": inputs[which]}, out=results)

    if which == "same":
        np.testing.assert_allclose(run(), expected, rtol=1e-5)
    else:
        with pytest.raises(rocpy.InvalidOperandError, match=r"^out(\[1\])? shares memory with epilogue_inputs\['s'\]"):
            run()


def test_results_over_truth_values():
    mask = np.ones((4, 8), bool)
    out = mask.view(np.int8)
    a, b = np.ones((4, 3), np.int8), np.ones((3, 8), np.int8)
    epilogue = rocpy.epilogue(lambda x, mask: np.where(mask, x, 0).astype(np.int8))
    with pytest.raises(rocpy.InvalidOperandError, match=r"^out shares memory with epilogue_inputs\['mask'\]"):
        rocpy.matmul(a, b, epilogue=epilogue, epilogue_inputs={"mask": mask}, out=out)


@pytest.mark.parametrize("compute", [[1], {}, "float8"])
def test_a_wrong_type_of_computation(compute):
    for run in (rocpy.matmul, rocpy.Matmul):
        with pytest.raises(INVALID, match="compute: got"):
            run(ONE, ONE, epilogue=rocpy.epilogue(lambda x: np.tanh(x) * 3), compute=compute)


@pytest.mark.parametrize("kind", [tuple, list])
def test_one_result_is_one_array(kind):
    with pytest.raises(rocpy.InvalidOperandError, match=rf"^out: got a {kind.__name__}, .*one result; pass the array"):
        rocpy.matmul(ONE, ONE, epilogue=rocpy.epilogue(lambda x: x * 3), out=kind([ONE.copy()]))


def test_pairs_of_columns_of_a_vector():
    with pytest.raises(INVALID, match="a product with a vector has no columns"):
        rocpy.matmul(np.ones((4, 2), np.float32), np.ones(2, np.float32), epilogue=swiglu)
    with pytest.raises(INVALID, match=r"shape \(4, 3\); N must be even"):
        rocpy.matmul(np.ones((4, 2), np.float32), np.ones((2, 3), np.float32), epilogue=swiglu)


# ---- inputs ----


@pytest.mark.parametrize("shape", [(3,), (2, 4), (3, 2, 4), (4, 1)])
def test_inputs_of_evaluate_broadcast_to_the_product(shape):
    epilogue = rocpy.epilogue(lambda x, y: x + y)
    x = np.ones((1, 4), np.float32)
    with pytest.raises(INVALID, match=rf"^y: shape {re.escape(str(shape))} does not broadcast .*\(1, 4\)"):
        epilogue.evaluate(x, y=np.ones(shape, np.float32))
    assert epilogue.evaluate(x, y=np.ones((1, 1), np.float32)).shape == (1, 4)


def test_inputs_of_evaluate_beside_pairs_of_columns():
    epilogue = rocpy.epilogue(lambda x, y: x[..., 0::2] * x[..., 1::2] + y)
    x = np.ones((2, 4), np.float32)
    assert epilogue.evaluate(x, y=np.ones(2, np.float32)).shape == (2, 2)
    for shape in ((4,), (2, 4)):
        with pytest.raises(INVALID, match="^y: shape"):
            epilogue.evaluate(x, y=np.ones(shape, np.float32))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (({}, [ONE]), "needs 'y'"),
        (({"y": ONE}, [ONE], ["nosuch"]), "^wanted: .*no variable 'nosuch'; its variables: x, y, cap"),
        (
            ({"y": ONE}, [np.ones((1, 2), np.float32)]),
            r"^grad: got shape \(1, 2\), expected the result's shape \(1, 1\)",
        ),
        (({"y": ONE}, [np.ones((), np.float32)]), r"^grad: got shape \(\), expected"),
        (([ONE], [ONE]), "^inputs: got list, expected a dict"),
        ((None, [ONE]), "needs 'y'"),
        (({"y": ONE}, []), "got 0 gradients"),
    ],
)
def test_arguments_of_a_gradient(arguments, text):
    for function in (lambda x, y, cap=2.0: x * y * cap, lambda x, y, cap=2.0: (x * cap).astype(y.dtype) * y):
        with pytest.raises(INVALID, match=text):
            rocpy.epilogue(function).vjp()(ONE, *arguments)


@pytest.mark.parametrize("number", [2.0, 2, True, np.float32(2), np.int64(2)])
def test_a_gradient_of_results_may_be_a_number(number):
    gradient, x = rocpy.epilogue(lambda x, s=2.0: x * x * s).vjp(), np.full((2, 3), 5.0, np.float32)
    for inputs in ({}, None, {"s": 2.0}):
        by_name = gradient(x, inputs, [number])
        np.testing.assert_array_equal(by_name["x"], np.full_like(x, 20 * float(number)))
    assert by_name["s"] == 6 * 25 * float(number)


@pytest.mark.parametrize(
    ("x", "gradients", "text"),
    [
        (ONE, [None], "^grad: got NoneType"),
        (ONE, [[[1.0]]], "^grad: got list"),
        (ONE, [1j], "^grad: got complex"),
        ([[1.0]], [ONE], "^x: got list"),
        (None, [1.0], "^x: got NoneType"),
        (1.0, [ONE], "^x: got float; pass an array"),
        (ONE, 1.0, "^gradients: got float; pass a list"),
        (ONE, None, "^gradients: got NoneType"),
    ],
)
def test_what_a_gradient_does_not_take(x, gradients, text):
    with pytest.raises((rocpy.InvalidOperandError, rocpy.UnsupportedError), match=text):
        rocpy.epilogue(lambda x, s=2.0: x * x * s).vjp()(x, {}, gradients)


def test_a_gradient_takes_defaults():
    x = np.full((2, 3), 30.0, np.float32)
    found = softcap.vjp()(x, {}, [np.ones_like(x)])["x"]
    np.testing.assert_array_equal(found, softcap.vjp()(x, {"cap": 30.0}, [np.ones_like(x)])["x"])
    assert set(rocpy.epilogue(lambda x, y: x + y).vjp()(x, {}, [x], ["x"])) == {"x"}  # y is not read


# ---- numbers ----


@pytest.mark.parametrize("value", [10**30, 2**63, -(2**63) - 1])
def test_a_default_beyond_64_bits(value):
    with pytest.raises(INVALID, match=r"the default of s is an integer .*2\*\*63 - 1; use a float"):
        rocpy.epilogue(eval("lambda x, s=value: x * s", {"value": value}))


def test_integers_that_grow_beyond_64_bits_name_their_input():
    epilogue = rocpy.epilogue(lambda x, s, t: x * (s * s) + t)
    with pytest.raises(INVALID, match=r"^epilogue_inputs\['s'\]: an integer .*use a float"):
        rocpy.matmul(ONE, ONE, epilogue=epilogue, epilogue_inputs={"s": 2**40, "t": 0.5})


# ---- records ----

RECORD = rocpy.epilogue(lambda x, s=2.0: x * s).to_dict()


@pytest.mark.parametrize(
    "change",
    [
        *(
            {"defaults": value}
            for value in (None, [], "s", 3, {"s": "2"}, {"s": None}, {"t": 1.0}, {"s": 2**70}, {1: 2.0})
        ),
        *({"inputs": value} for value in (None, 3, [3], ["s", "s"], [["s"]], {})),
        *({"nodes": value} for value in (None, 3, [None], [[]], [[[]]], [["x", 1]], [["input"]], [["add", 0, 1]])),
        *({"outputs": value} for value in (None, 3, [], [None], [-1], [99], "0")),
        *({"single": value} for value in (None, 1, "yes")),
        *({"format": value} for value in (None, 2, "1")),
    ],
    ids=str,
)
def test_records_that_are_none(change):
    record = {**RECORD, **change}
    calls = [lambda: CustomEpilogue.from_dict(record)]
    if all(isinstance(key, str) for value in record.values() if isinstance(value, dict) for key in value):
        calls.append(lambda: CustomEpilogue.from_json(json.dumps(record)))
    for call in calls:
        with pytest.raises(INVALID, match="expression"):
            call()


HALVED = rocpy.epilogue(lambda x: x[..., 0::2] * x[..., 1::2]).to_dict()


@pytest.mark.parametrize(
    ("nodes", "outputs", "text"),
    [
        ([["x"], ["pick", 0, 0], ["add", 0, 1]], [2], "node 2, add, has an operand with all of .* and one with half"),
        ([["x"], ["pick", 0, 0], ["where", 1, 0, 1]], [2], "node 2, where, .* one with half"),
        ([["x"], ["pick", 0, 0], ["pick", 1, 1]], [2], "node 2, pick, halves what has half"),
        ([["x"], ["interleave", 0, 0]], [1], "node 1, interleave, doubles what has all"),
        ([["x"], ["pick", 0, 0]], [0, 1], "one result has half the product's columns and another all"),
        ([["const", 2.0]], [0], "result 0 does not depend on the product"),
        ([["x"], ["const", 2.0]], [0, 1], "result 1 does not depend on the product"),
        ([["x"], ["add", False, False]], [1], "node 1, add, has operands"),
        ([["x"], ["neg", 0]], [True], "outputs"),
        ([["x"], ["pick", 0, True]], [1], "node 1, pick, has True"),
        ([["x"], ["pick", 0]], [1], "node 1, pick, has no attribute"),
        ([["x"], ["neg", 0, 7]], [1], "node 1, neg, has 7"),
        (["x"], [0], "node 0 is 'x', which is no operation"),
        ([["x"], ["power", 0, 2]], [1], "node 1, power, has 2"),
        ([["x"], ["power", 0, -2.0]], [1], "node 1, power, has -2.0"),
        ([["x"], ["const", 300, "int8"], ["add", 0, 1]], [2], "node 1, const, has 300, 'int8'"),
        ([["x"], ["const", 1, "float16"], ["add", 0, 1]], [2], "node 1, const, has 1, 'float16'"),
        ([["x"], ["const", 1.0, "complex64"], ["add", 0, 1]], [2], "node 1, const, has 1.0, 'complex64'"),
    ],
)
def test_records_of_expressions_that_no_function_has(nodes, outputs, text):
    record = {**HALVED, "nodes": nodes, "outputs": outputs, "single": len(outputs) == 1}
    for call in (lambda: CustomEpilogue.from_dict(record), lambda: CustomEpilogue.from_json(json.dumps(record))):
        with pytest.raises(INVALID, match=text):
            call()


@pytest.mark.parametrize("function", [lambda x, r: x[..., 0::2] * x[..., 1::2] + r, lambda x, r: x**-2 * r])
def test_records_of_gradients_are_read(function):
    expression = rocpy.epilogue(function).vjp().expression
    assert rocpy.epilogues.Expression.from_json(expression.to_json()) == expression


def test_an_input_passed_twice():
    epilogue = CustomEpilogue.from_json(rocpy.epilogue(lambda x, r: x + r).to_json())
    with pytest.raises(INVALID, match="f: got r both by position and by name"):
        epilogue(ONE, 1, r=2)


@pytest.mark.parametrize(
    "text", ["[" * 100_000, "", "{", "3", "[]", "null", None, 3, ["x"], b"{}"], ids=lambda x: str(x)[:9]
)
def test_texts_that_are_no_records(text):
    with pytest.raises(INVALID, match="expression"):
        CustomEpilogue.from_json(text)


@pytest.mark.parametrize(
    ("other", "shape", "text"),
    [
        (lambda x, s: np.tanh(x) + s, (4,), " with another expression"),
        (lambda x, s: np.tanh(x + s), (1,), " with epilogue_inputs of other shapes or types"),
    ],
)
def test_a_record_of_another_epilogue(other, shape, text):
    a, b = np.ones((3, 2), np.float32), np.ones((2, 4), np.float32)

    def planned(function, shape):
        inputs = {"s": np.ones(shape, np.float32)}
        return rocpy.Matmul(a, b, epilogue=rocpy.epilogue(function), epilogue_inputs=inputs)

    with planned(lambda x, s: np.tanh(x + s), (4,)) as mm:
        mm.plan()
        record = mm.export()
    with planned(other, shape) as mm, pytest.raises(INVALID, match=f"its record is for .*{text}"):
        mm.plan(algorithms=[record])


@pytest.mark.torch
@pytest.mark.parametrize("name", ["input", "self"])
def test_inputs_that_a_layer_cannot_pass_on(torch, name):
    import rocpy.torch as rt

    epilogue = rocpy.epilogue(eval(f"lambda x, {name}: x + {name}"))
    for layer in (rt.Linear, rt.MLP):
        with pytest.raises(INVALID, match=rf"^activation: .* has an input '{name}'.*another name"):
            layer(2, 3, activation=epilogue)
    x, w = torch.ones(4, 2), torch.ones(3, 2)
    y = rt.linear(x, w, activation=epilogue, epilogue_inputs={name: torch.ones(3)})
    assert y[0, 0] == 3
