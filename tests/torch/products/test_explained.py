# SPDX-License-Identifier: MIT
"""rocpy.explain of products that torch records, casts or has no memory for; arguments that such products lack."""

import contextlib

import numpy as np
import pytest

import rocpy

torch = pytest.importorskip("torch")
rt = pytest.importorskip("rocpy.torch")

from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

DOUBLED = rocpy.epilogue(lambda x, s: x * x * s)


def _leaf(*shape):
    return torch.ones(*shape, requires_grad=True)


@pytest.mark.parametrize(
    ("arguments", "epilogue", "dtype"),
    [
        (lambda: ((_leaf(4, 8), torch.ones(8, 5)), {}), "default", "float32"),
        (lambda: ((torch.ones(4, 8), torch.nn.Parameter(torch.ones(8, 5))), {"epilogue": "relu"}), "relu", "float32"),
        (lambda: ((_leaf(4, 8), torch.ones(8, 5)), {"epilogue": "gelu"}), "gelu_aux", "float32"),
        (lambda: ((torch.ones(4, 8), torch.ones(8, 5)), {"epilogue": "bias", "bias": _leaf(5)}), "bias", "float32"),
        (
            lambda: ((_leaf(4, 8), torch.ones(8, 5)), {"epilogue": DOUBLED, "epilogue_inputs": {"s": _leaf(5)}}),
            DOUBLED.name,
            "float32",
        ),
        (lambda: ((torch.ones(4, 8, device="meta"), torch.ones(8, 5, device="meta")), {}), "default", "float32"),
    ],
)
def test_recorded_products_and_tensors_without_memory(arguments, epilogue, dtype):
    operands, keywords = arguments()
    how = rocpy.explain(*operands, **keywords)
    assert (how.problem.m, how.problem.n, how.problem.k) == (4, 5, 8)
    assert f"-> {dtype}, epilogue {epilogue}" in str(how.problem)
    assert how.algorithm is not None


@pytest.mark.parametrize("context", [lambda: torch.autocast("cpu"), FakeTensorMode, contextlib.nullcontext])
def test_casts_and_modes(context):
    with context() as mode:
        operands = torch.ones(4, 8), torch.ones(8, 5)
        how, result = rocpy.explain(*operands), rocpy.matmul(*operands)
    assert how.problem.dtype == str(result.dtype).removeprefix("torch."), mode


@pytest.mark.parametrize("kind", ["meta", "fake", "plain"])
@pytest.mark.parametrize(
    "context", [lambda: torch.autocast("cpu"), lambda: torch.device("meta")], ids=["autocast", "device"]
)
def test_tensors_without_memory_under_autocast_and_another_default_device(kind, context):
    with FakeTensorMode() if kind == "fake" else contextlib.nullcontext():
        operands = [torch.ones(*shape, device="meta" if kind == "meta" else None) for shape in ((4, 8), (8, 5))]
    with context():
        assert f"torch.{rocpy.explain(*operands).problem.dtype}" == str((operands[0] @ operands[1]).dtype)


def test_what_torchs_functions_follow_is_said():
    how = rocpy.explain(_leaf(4, 8), torch.ones(8, 5), epilogue="dgelu", aux=torch.ones(4, 5))
    assert how.problem.epilogue == "default"
    assert "autograd records epilogue 'dgelu' as 'default'" in how.unfused
    with rocpy.options(fallback="error"):
        assert rocpy.explain(_leaf(4, 8), torch.ones(8, 5), epilogue="dgelu", aux=torch.ones(4, 5)).unfused == ""


def test_recorded_groups():
    a, b = _leaf(4, 8), torch.ones(1, 8, 5)
    assert rocpy.explain(a, b, offsets=[0, 4]).runs[0][2].unfused == ""
    assert "torch's own functions" in rocpy.explain(a, b, offsets=[0, 4], epilogue="silu").runs[0][2].unfused
    assert rocpy.explain([a], [b[0]], epilogue="gelu").runs[0][2].problem.epilogue == "gelu_aux"


@pytest.mark.parametrize("function", [rocpy.matmul, rt.matmul])
@pytest.mark.parametrize("exported", [False, True])
@pytest.mark.parametrize("transform", ["grad", "autocast", "vmap"])
def test_an_algorithm_is_what_is_refused(function, exported, transform):
    a, b = torch.ones(4, 8), torch.ones(8, 5)
    algorithm = rocpy.Matmul(a, b).export() if exported else 0
    product = lambda a: function(a, b, algorithm=algorithm)  # noqa: E731
    run = {
        "grad": lambda: product(a.requires_grad_()),
        "vmap": lambda: torch.vmap(product)(a[None]),
        "autocast": lambda: torch.autocast("cpu")(product)(a),
    }[transform]
    with pytest.raises(rocpy.UnsupportedError, match="^algorithm: not available where torch records"):
        run()


# Mistakes, and what is none, as functions of ones().
ONE_PRODUCT = {
    "nothing": lambda x: {},
    "stream": lambda x: {"stream": 0},
    "algorithm": lambda x: {"algorithm": 0},
    "scale_a": lambda x: {"scale_a": 1.0},
    "amax": lambda x: {"amax": True},
    "alpha": lambda x: {"alpha": x()},
    "complex alpha": lambda x: {"alpha": 1j},
    "bias of numpy": lambda x: {"epilogue": "bias", "bias": np.ones(5, np.float32)},
    "bias on another device": lambda x: {"epilogue": "bias", "bias": torch.ones(5, device="meta")},
    "another bias": lambda x: {"bias": x(5)},
    "bounds": lambda x: {"epilogue": "clamp", "clamp": (2, 1)},
    "no bounds": lambda x: {"epilogue": "clamp"},
    "bounds and a bias": lambda x: {"epilogue": "clamp", "clamp": (0, 1), "bias": x(5)},
    "aux": lambda x: {"epilogue": "dgelu", "aux": torch.ones(4, 5)},
    "no aux": lambda x: {"epilogue": "dgelu"},
    "a short aux": lambda x: {"epilogue": "dgelu", "aux": x(4, 4)},
    "other outputs": lambda x: {"epilogue": "dgelu", "aux": {"sum": x(4, 5)}},
    "input of numpy": lambda x: {"epilogue": DOUBLED, "epilogue_inputs": {"s": np.ones(5, np.float32)}},
    "input on another device": lambda x: {
        "epilogue": DOUBLED,
        "epilogue_inputs": {"s": torch.ones(5, device="meta")},
    },
    "an input and a stream": lambda x: {"epilogue": DOUBLED, "epilogue_inputs": {"s": 1}, "stream": 0},
}
GROUPS = {
    "nothing": lambda x: {},
    "alpha": lambda x: {"alpha": x()},
    "alpha is text": lambda x: {"alpha": "x"},
    "scale_a": lambda x: {"scale_a": 1.0},
    "bias of numpy": lambda x: {"epilogue": "bias", "bias": np.ones(5, np.float32)},
    "no bounds": lambda x: {"epilogue": "clamp"},
    "other bounds": lambda x: {"clamp": (0, 1)},
    "bias on another device": lambda x: {"epilogue": "bias", "bias": torch.ones(5, device="meta")},
    "no composing": lambda x: {"epilogue": "silu", "options": {"fallback": "error"}},
}


def outcome(function, *operands, **keywords):
    """What a call raises, in words; empty where it succeeds."""
    try:
        function(*operands, **keywords)
    except rocpy.RocpyError as error:
        return f"{type(error).__name__}: {error}"
    return ""


@pytest.mark.parametrize("kind", ["recorded", "cast", "meta"])
def test_the_error_is_that_of_the_product(kind):
    def ones(*shape):
        return torch.ones(shape, device="meta" if kind == "meta" else None, requires_grad=kind == "recorded")

    def compare(product, mistakes, *operands, **keywords):
        for name, arguments in mistakes.items():
            more = {**keywords, **arguments(ones)}
            seen = outcome(rocpy.explain, *operands, **more)
            assert seen == outcome(product, *operands, **more), name

    weight = rocpy.Weight(torch.ones(6, 5))
    with torch.autocast("cpu", enabled=kind == "cast"):
        compare(rocpy.matmul, ONE_PRODUCT, ones(4, 6), ones(6, 5))
        compare(rocpy.matmul, {"Weight": ONE_PRODUCT["nothing"]}, ones(4, 6), weight)
        compare(rocpy.matmul, {"numpy": ONE_PRODUCT["an input and a stream"]}, ones(4, 6), np.ones((6, 5), np.float32))
        compare(rocpy.grouped_matmul, GROUPS, [ones(4, 6)] * 2, [ones(6, 5)])
        compare(rocpy.grouped_matmul, GROUPS, ones(4, 6), ones(2, 6, 5), offsets=[0, 1, 4])
        eight = ones(4, 6).detach().char()
        compare(rocpy.matmul, {"half": lambda x: {"alpha": 0.5}}, eight, eight.mT)


def test_mistakes_of_recorded_products_are_mistakes():
    a, b = _leaf(4, 6), torch.ones(6, 5)
    for name, arguments in ONE_PRODUCT.items():
        assert (outcome(rocpy.explain, a, b, **arguments(lambda *shape: torch.ones(shape))) == "") == (
            name in ("nothing", "aux")
        ), name
    with pytest.raises(rocpy.InvalidProblemError, match="clamp: epilogue 'default' takes no bounds"):
        rocpy.grouped_matmul(a, b[None], offsets=[0, 4], clamp=(0, 1))
    with pytest.raises(rocpy.InvalidOperandError, match="^b: got ndarray together with torch tensors"):
        rocpy.matmul(a, b.numpy(), epilogue=DOUBLED, epilogue_inputs={"s": 1})
