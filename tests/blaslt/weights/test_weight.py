# SPDX-License-Identifier: MIT
"""Weight: a right operand packed once, with its bias inside."""

from __future__ import annotations

import copy
import pickle
import types

import numpy as np
import pytest
from presented import skip_without

import rocpy
from rocpy.testing import ORACLES, evaluate, make_operands
from rocpy.testing import cases as case_list
from rocpy.testing.runner import check_outputs, dtype_of, keywords, reference, to_torch


def check(outputs, *args, dtype=np.float32, **options):
    for name, found in check_outputs(evaluate(*args, **options), outputs, dtype).items():
        assert found.ok, f"{name}: {found.message}"


@pytest.fixture
def operands(rng):
    return (rng.standard_normal(shape, dtype=np.float32) for shape in ((7, 12), (12, 20), (20,)))


def test_the_contract_example(operands):
    x, weight, bias = operands
    w = rocpy.Weight(weight, bias=bias)
    check(rocpy.matmul(x, w, epilogue="gelu_bias"), x, weight, epilogue="gelu_bias", bias=bias)
    assert str(rocpy.explain(x, w, epilogue="gelu_bias"))


@pytest.mark.parametrize(
    "case", [case for case in case_list.select("quick", beta=0.0, out_dtype="") if not case.batch_b][::7]
)
def test_a_weight_gives_what_the_array_gives(case):
    if case.epilogue == "bgradb":
        pytest.skip("the gradient along b belongs to an array, not to a packed weight")
    if case.dtype.startswith("complex"):
        skip_without(case.dtype)
    arrays = make_operands(case)

    def through_weight(a, b, **options):
        return rocpy.matmul(a, rocpy.Weight(b), **options)

    rest = {key: value for key, value in arrays.items() if key not in ("a", "b")}
    outputs = through_weight(arrays["a"], arrays["b"], **rest, **keywords(case))
    exact = case.data == "integers" and ORACLES[case.epilogue].is_linear
    exact = exact or case.result_dtype in ("int8", "int32")
    for name, found in check_outputs(
        reference(case, arrays), outputs, dtype_of(case.result_dtype), exact=exact
    ).items():
        assert found.ok, f"{name}: {found.message}"


@pytest.mark.parametrize("name", case_list.DTYPES)
@pytest.mark.parametrize("layout", ["kn", "nk"])
def test_layouts(name, layout, rng):
    x = rng.standard_normal((5, 33)).astype(dtype_of(name))
    weight = rng.standard_normal((33, 18)).astype(dtype_of(name))
    stored = weight if layout == "kn" else np.ascontiguousarray(weight.T)
    for view in (stored, np.asfortranarray(stored), np.repeat(stored, 2, axis=1)[:, ::2]):
        w = rocpy.Weight(view, layout=layout)
        assert w.shape == (33, 18)
        check(rocpy.matmul(x, w), x, weight, dtype=dtype_of(name))
        check(rocpy.matmul(x[:1], w), x[:1], weight, dtype=dtype_of(name))
        check(rocpy.matmul(x[0], w), x[0], weight, dtype=dtype_of(name))


def test_batches_share_a_weight(rng):
    x, weight = rng.standard_normal((2, 3, 4, 12), dtype=np.float32), rng.standard_normal((12, 20), dtype=np.float32)
    w = rocpy.Weight(weight)
    check(rocpy.matmul(x, w), x, weight)
    check(rocpy.matmul(x.transpose(1, 0, 2, 3), w), x.transpose(1, 0, 2, 3), weight)
    check(rocpy.matmul(x[:, :, :0], w), x[:, :, :0], weight)


def test_the_calls_own_bias_wins(operands):
    x, weight, bias = operands
    w = rocpy.Weight(weight, bias=bias)
    check(rocpy.matmul(x, w, epilogue="relu_bias", bias=-bias), x, weight, epilogue="relu_bias", bias=-bias)
    check(rocpy.matmul(x, w), x, weight)
    check(rocpy.matmul(x, w, epilogue="relu"), x, weight, epilogue="relu")


def test_a_weight_without_a_bias_does_not_invent_one(operands):
    x, weight, _ = operands
    with pytest.raises(rocpy.InvalidProblemError, match=r"bias=.*Weight"):
        rocpy.matmul(x, rocpy.Weight(weight), epilogue="gelu_bias")


def test_plans_take_weights(operands):
    x, weight, bias = operands
    w = rocpy.Weight(weight, bias=bias)
    with rocpy.Matmul(x, w, epilogue="silu_bias") as mm:
        for algorithm in mm.plan():
            check(mm.execute(algorithm=algorithm), x, weight, epilogue="silu_bias", bias=bias)
        mm.reset_operands(a=2 * x)
        check(mm.execute(), 2 * x, weight, epilogue="silu_bias", bias=bias)
        mm.reset_operands(b=rocpy.Weight(-weight))
        check(mm.execute(), 2 * x, -weight, epilogue="silu_bias", bias=bias)


def test_numpy_sources_are_copied_until_refreshed(operands):
    x, weight, _ = operands
    before = weight.copy()
    w = rocpy.Weight(weight)
    weight *= 2
    check(rocpy.matmul(x, w), x, before)
    w.refresh()
    check(rocpy.matmul(x, w), x, weight)


@pytest.mark.torch
def test_torch_sources_are_repacked_when_they_change(operands, torch):
    x, weight, bias = (torch.from_numpy(item) for item in operands)
    w = rocpy.Weight(weight, bias=bias)
    for change in (lambda: weight.mul_(2), lambda: weight.copy_(-weight), weight[0].zero_):
        change()
        with torch.no_grad():
            check(rocpy.matmul(x, w, epilogue="bias"), x.numpy(), weight.numpy(), epilogue="bias", bias=bias.numpy())


@pytest.mark.torch
def test_a_plan_sees_a_torch_weight_that_changed(operands, torch):
    x, weight, _ = (torch.from_numpy(item) for item in operands)
    w = rocpy.Weight(weight)
    with rocpy.Matmul(x, w) as mm:
        mm.plan()
        mm.execute()
        weight.mul_(3)
        check(mm.execute(), x.numpy(), weight.numpy())


@pytest.mark.torch
@pytest.mark.parametrize("bias", [True, False])
def test_from_linear(torch, bias):
    layer = torch.nn.Linear(12, 20, bias=bias)
    w = rocpy.Weight.from_linear(layer)
    x = torch.randn(7, 12)
    with torch.no_grad():
        d = rocpy.matmul(x, w, epilogue="bias" if bias else "default")
        torch.testing.assert_close(d, layer(x))
        layer.weight.mul_(2)
        torch.testing.assert_close(rocpy.matmul(x, w, epilogue="bias" if bias else "default"), layer(x))


@pytest.mark.torch
def test_a_weight_that_requires_grad_is_refused_under_grad_mode(operands, torch):
    x, weight, _ = (torch.from_numpy(item) for item in operands)
    with pytest.raises(rocpy.UnsupportedError, match="grad"):
        rocpy.matmul(x, rocpy.Weight(torch.nn.Parameter(weight)))


@pytest.mark.torch
def test_bfloat16_torch_weights(operands, torch):
    import ml_dtypes

    x, weight, _ = (item.astype(ml_dtypes.bfloat16) for item in operands)
    d = rocpy.matmul(to_torch(x), rocpy.Weight(to_torch(weight)))
    check(d, x, weight, dtype=np.dtype(ml_dtypes.bfloat16))


@pytest.mark.torch
@pytest.mark.parametrize("copied", [lambda w: pickle.loads(pickle.dumps(w)), copy.deepcopy])
@pytest.mark.parametrize(("quantize", "name"), [(rocpy.quantize, "float8_e5m2"), (rocpy.quantize_mx, "float4_e2m1fn")])
def test_a_weight_of_narrow_tensors_is_pickled(quantize, name, copied, torch):
    a, scale_a = quantize(torch.linspace(-1, 1, 64).reshape(1, 64), name, axis=-1)
    b, scale_b = quantize(torch.linspace(-3, 4, 64 * 32).reshape(64, 32), name, axis=-2)
    bias = torch.linspace(-1, 1, 32).to(torch.float8_e5m2)
    weight = rocpy.Weight(b, bias=bias, scale=scale_b)
    again = copied(weight)
    assert (again.dtype, again.scale.dtype) == (weight.dtype, scale_b.dtype)
    assert again.bias.dtype == bias.dtype
    assert torch.equal(again.bias.float(), bias.float())
    of_both = [rocpy.matmul(a, w, scale_a=scale_a, dtype="float32") for w in (weight, again)]
    assert torch.equal(*of_both)


def test_pickle_is_the_plain_arrays(operands):
    x, weight, bias = operands
    w = rocpy.Weight(np.ascontiguousarray(weight.T), bias=bias, layout="nk")
    again = pickle.loads(pickle.dumps(w))
    assert again.shape == w.shape
    np.testing.assert_array_equal(
        rocpy.matmul(x, again, epilogue="gelu_bias"), rocpy.matmul(x, w, epilogue="gelu_bias")
    )
    assert weight.tobytes() in pickle.dumps(w) or weight.T.tobytes() in pickle.dumps(w)


def test_closing(operands):
    x, weight, bias = operands
    with rocpy.Weight(weight, bias=bias) as w:
        check(rocpy.matmul(x, w), x, weight)
    w.close()
    assert "closed" in repr(w)
    for use in (lambda: rocpy.matmul(x, w), w.refresh, lambda: rocpy.Matmul(x, w), lambda: rocpy.explain(x, w)):
        with pytest.raises(rocpy.ClosedError, match="closed"):
            use()


def test_a_plan_outlives_the_name_of_its_weight(operands):
    x, weight, _ = operands
    mm = rocpy.Matmul(x, rocpy.Weight(weight))
    mm.plan()
    check(mm.execute(), x, weight)
    mm.close()


def test_a_plan_whose_weight_was_closed_is_refused(operands):
    x, weight, _ = operands
    w = rocpy.Weight(weight)
    with rocpy.Matmul(x, w) as mm:
        mm.plan()
        w.close()
        with pytest.raises(rocpy.ClosedError):
            mm.execute()


@pytest.mark.parametrize(
    ("arguments", "options", "error", "text"),
    [
        ((np.ones(3, dtype=np.float32),), {}, rocpy.InvalidProblemError, "w: got shape"),
        ((np.ones((2, 3, 4), dtype=np.float32),), {}, rocpy.InvalidProblemError, "w: got shape"),
        (("text",), {}, rocpy.InvalidOperandError, "w: "),
        ((np.ones((3, 4), dtype=np.float32),), {"layout": "mn"}, rocpy.InvalidProblemError, "layout"),
        (
            (np.ones((3, 4), dtype=np.float32),),
            {"bias": np.ones(3, dtype=np.float32)},
            rocpy.InvalidProblemError,
            "bias",
        ),
        ((np.ones((3, 4), dtype=np.float32),), {"bias": "text"}, rocpy.InvalidOperandError, "bias"),
    ],
)
def test_bad_weights_are_refused(arguments, options, error, text):
    with pytest.raises(error, match=text):
        rocpy.Weight(*arguments, **options)


def test_a_weight_of_a_weight_is_refused(operands):
    _, weight, _ = operands
    with pytest.raises(rocpy.InvalidOperandError, match="Weight"):
        rocpy.Weight(rocpy.Weight(weight))


def test_a_weight_as_a_or_c_is_refused(operands):
    x, weight, _ = operands
    w = rocpy.Weight(weight)
    with pytest.raises(rocpy.InvalidOperandError, match=r"^a: "):
        rocpy.matmul(w, x)
    with pytest.raises(rocpy.InvalidOperandError, match=r"^c: "):
        rocpy.matmul(x, weight, w)


def test_shapes_that_do_not_fit_a_weight(operands):
    x, weight, _ = operands
    with pytest.raises(rocpy.InvalidProblemError, match="must be equal"):
        rocpy.matmul(x[:, :5], rocpy.Weight(weight))
    with pytest.raises(rocpy.InvalidProblemError, match="float64"):
        rocpy.matmul(x.astype(np.float64), rocpy.Weight(weight))
    with pytest.raises(rocpy.RocpyError, match="int32"):
        rocpy.matmul(x.astype(np.int32), rocpy.Weight(weight.astype(np.int32)))


def test_empty_weights(rng):
    x = rng.standard_normal((3, 0), dtype=np.float32)
    assert (rocpy.matmul(x, rocpy.Weight(np.empty((0, 4), dtype=np.float32))) == np.zeros((3, 4))).all()
    full = rng.standard_normal((3, 5), dtype=np.float32)
    assert rocpy.matmul(full, rocpy.Weight(np.empty((5, 0), dtype=np.float32))).shape == (3, 0)


def test_from_linear_takes_anything_of_that_shape(operands):
    x, weight, bias = operands
    linear = types.SimpleNamespace(weight=np.ascontiguousarray(weight.T), bias=bias)
    w = rocpy.Weight.from_linear(linear)
    check(rocpy.matmul(x, w, epilogue="bias"), x, weight, epilogue="bias", bias=bias)


def test_memory_views(operands):
    x, weight, _ = operands
    check(rocpy.matmul(x, rocpy.Weight(memoryview(weight))), x, weight)


def test_the_matrix_of_a_closed_weight_is_refused(operands):
    _, weight, _ = operands
    w = rocpy.Weight(weight, layout="nk")
    np.testing.assert_array_equal(w.matrix(), weight.T)
    w.close()
    with pytest.raises(rocpy.ClosedError):
        w.matrix()


def test_what_a_weight_would_lose_of_its_arrays():
    b = np.ones((32, 4), np.float32)
    values, scale = rocpy.quantize(b, "int8", axis=-2)
    blocks, exponents = rocpy.quantize_mx(b, axis=-2)
    for arguments in (
        {"w": np.ma.masked_array(b)},
        {"w": b, "bias": np.ma.masked_array(b[0])},
        {"w": values, "scale": np.ma.masked_array(scale)},
        {"w": np.ma.masked_array(blocks), "scale": exponents},
        {"w": blocks, "scale": np.ma.masked_array(exponents)},
    ):
        with pytest.raises(rocpy.InvalidOperandError, match="a masked array would lose its mask"):
            rocpy.Weight(**arguments)


class Named(rocpy.Weight):
    """A weight with an attribute of its own."""

    def __init__(self, name, *arguments, **keywords):
        super().__init__(*arguments, **keywords)
        self.name = name


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda w: pickle.loads(pickle.dumps(w))])
def test_a_copy_is_of_the_same_class(duplicate):
    w = Named("first", np.eye(3, dtype=np.float32), np.ones(3, np.float32), layout="nk")
    again = duplicate(w)
    assert type(again) is Named
    assert again.name == "first"
    np.testing.assert_array_equal(rocpy.matmul(np.eye(3, dtype=np.float32), again, epilogue="bias"), np.eye(3) + 1)


@pytest.mark.parametrize("use", [copy.copy, copy.deepcopy, pickle.dumps, lambda w: w.__enter__(), lambda w: w.matrix()])
def test_a_closed_weight_is_neither_copied_nor_entered(use):
    closed = rocpy.Weight(np.eye(3, dtype=np.float32))
    closed.close()
    for weight in (closed, rocpy.Weight.__new__(rocpy.Weight)):
        with pytest.raises(rocpy.ClosedError, match="^w: "):
            use(weight)
    assert (closed.shape, closed.dtype) == ((3, 3), "float32")
