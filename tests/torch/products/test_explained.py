# SPDX-License-Identifier: MIT
"""rocpy.explain of products that torch records, casts or has no memory for; arguments that such products lack."""

import contextlib

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
