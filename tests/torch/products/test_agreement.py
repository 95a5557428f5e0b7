# SPDX-License-Identifier: MIT
"""Results without memory agree with those of products: shape, strides and type, or the refusal."""

from __future__ import annotations

import itertools

import pytest

import rocpy
from rocpy.blaslt.model.epilogues import EPILOGUES
from rocpy.blaslt.model.product_types import RESULT_TYPES
from rocpy.errors import InvalidProblemError, RocpyError

torch = pytest.importorskip("torch")
rt = pytest.importorskip("rocpy.torch")

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore::UserWarning")]

SHAPES = [
    ((2, 3, 8), (8, 4)), ((2, 1, 3, 8), (5, 8, 4)), ((8,), (8, 4)), ((3, 8), (8,)), ((8,), (8,)), ((3, 0), (0, 4)),
    ((0, 8), (8, 4)), ((3, 8), (8, 0)), ((1, 8), (8, 1)), ((3, 1), (1, 1)),
]  # fmt: skip


def tensors_of(result):
    if isinstance(result, torch.Tensor):
        return [result]
    values = result.values() if isinstance(result, dict) else result
    return [x for value in values for x in tensors_of(value)]


def facts(call, *arguments, **keywords):
    """Shape, strides and type of all results, or the class of the refusal."""
    try:
        results = tensors_of(call(*arguments, **keywords))
    except RocpyError as error:
        return type(error).__name__
    return [(tuple(x.shape), x.stride(), x.dtype) for x in results]


def on_meta(value):
    if isinstance(value, dict):
        return {name: on_meta(one) for name, one in value.items()}
    return value.to("meta") if isinstance(value, torch.Tensor) else value


def check(call, *arguments, **keywords):
    seen = facts(call, *arguments, **keywords)
    assert facts(call, *map(on_meta, arguments), **on_meta(keywords)) == seen, (keywords.get("epilogue"), seen)


def operands(a, b, dtype, epilogue, result=None):
    """Operands of a product, and the keywords that its epilogue needs."""
    row = EPILOGUES[epilogue]
    shape = torch.matmul(torch.ones(a), torch.ones(b)).shape
    kind = getattr(torch, result or RESULT_TYPES[dtype][0])
    keywords = {"epilogue": epilogue, "dtype": result}
    if row.bias:
        keywords["bias"] = torch.ones(b[-1] if len(b) > 1 else 1, dtype=kind)
    if row.aux == "load":
        keywords["aux"] = torch.ones(shape, dtype=kind)
    if row.clamp:
        keywords["clamp"] = (0, 1)
    made = getattr(torch, dtype)
    return torch.ones(a, dtype=made), torch.ones(b, dtype=made), torch.ones(shape, dtype=kind), keywords


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16", "int8", "complex64", "complex128"])
def test_types_epilogues_and_further_results(dtype):
    for epilogue, result in itertools.product(EPILOGUES, (None, *RESULT_TYPES[dtype][1:])):
        a, b, c, keywords = operands((3, 8), (8, 4), dtype, epilogue, result)
        check(rocpy.matmul, a, b, **keywords)
        if epilogue in ("default", "bias", "relu_aux"):
            check(rocpy.matmul, a, b, c, **keywords)


@pytest.mark.parametrize("dtype", ["float32", "int8"])
@pytest.mark.parametrize("epilogue", ["default", "bias", "gelu_aux_bias", "dgelu_bgrad", "bgrada", "bgradb"])
def test_shapes(dtype, epilogue):
    for a, b in SHAPES:
        left, right, _, keywords = operands(a, b, dtype, epilogue)
        check(rocpy.matmul, left, right, **keywords)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_layers(dtype):
    made = getattr(torch, dtype)
    x, weight = torch.ones(2, 3, 8, dtype=made), torch.ones(4, 8, dtype=made)
    wide = getattr(torch, RESULT_TYPES[dtype][0])
    for bias in (None, torch.ones(4, dtype=wide)):
        for activation in (None, "relu", "gelu", "silu", "sigmoid"):
            check(rt.linear, x, weight, bias, activation)
            if activation in ("gelu", "silu"):  # whose gradients read the pre-activation
                check(torch.ops.rocpy.linear_aux.default, x, weight, bias, activation)
            check(torch.ops.rocpy.mlp_aux.default, x, weight, bias, weight.new_ones(5, 4), None, activation or "none")


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
@pytest.mark.parametrize("addend", [torch.float32, torch.int8, torch.int32])
def test_custom_epilogues(dtype, addend):
    made = getattr(torch, dtype)
    a, b = torch.ones(3, 8, dtype=made), torch.ones(8, 4, dtype=made)
    for function in (lambda x, r: x + r, lambda x, r: (x * r, x), lambda x, r: x > r):
        epilogue = rocpy.epilogue(function)
        for shape in ((4,), (3, 1), (), (5,)):
            check(rocpy.matmul, a, b, epilogue=epilogue, epilogue_inputs={"r": torch.ones(shape, dtype=addend)})


@pytest.mark.parametrize("dtype", ["float32", "int8"])
@pytest.mark.parametrize("form", ["rows", "columns", "k", "list"])
def test_groups(dtype, form):
    made = getattr(torch, dtype)
    a, b, offsets = torch.ones(6, 8, dtype=made), torch.ones(2, 8, 4, dtype=made), torch.tensor([2, 6])
    if form == "list":
        check(lambda a, b: rocpy.grouped_matmul([a, a], [b, b]), a, b[0])
        return
    if form == "columns":
        a, b = torch.ones(2, 3, 8, dtype=made), torch.ones(8, 6, dtype=made)
    elif form == "k":
        a, b = torch.ones(3, 6, dtype=made), torch.ones(6, 4, dtype=made)
    check(rocpy.grouped_matmul, a, b, offsets=offsets, groups=2)


@pytest.mark.parametrize(
    ("x", "weight", "bias"),
    [
        (torch.ones(3, 7), torch.ones(4, 8), None),
        (torch.ones(3, 8), torch.ones(4, 8).half(), None),
        (torch.ones(()), torch.ones(4, 8), None),
        (torch.ones(3, 8).long(), torch.ones(4, 8).long(), None),
        (torch.ones(3, 8), torch.ones(4, 8), torch.ones(4).double()),
        (torch.ones(3, 8, dtype=torch.int8), torch.ones(4, 8, dtype=torch.int8), torch.ones(4)),
    ],
)
def test_a_layer_without_memory_is_refused_as_with_it(x, weight, bias):
    with pytest.raises(RocpyError) as seen:
        rt.linear(x, weight, bias)
    with pytest.raises(type(seen.value)) as refusal:
        rt.linear(on_meta(x), on_meta(weight), on_meta(bias))
    assert str(refusal.value) == str(seen.value)


# ---- traced ----


def int8_products(a, b, r):
    wide = torch.ones(16, dtype=torch.int32)
    weight = rocpy.Weight(b)
    plus = rocpy.epilogue(lambda x, r: x + r)
    both = rocpy.matmul(a, b, epilogue="relu_aux")
    sums = rocpy.matmul(a, b, epilogue="bgrada")

    def run(a, b, r):
        return [
            rocpy.matmul(a, b).float(),
            rocpy.matmul(a, b).to(torch.int8),
            rocpy.matmul(a, weight).float(),
            rocpy.matmul(a, b, wide.expand(3, 16), beta=2).float(),
            rt.linear(a, b.t(), wide, "relu").float(),
            *rocpy.grouped_matmul([a, a], [b, b]),
            rocpy.grouped_matmul(a, b.expand(2, *b.shape), offsets=torch.tensor([1, 3])).float(),
            rocpy.matmul(a, b, epilogue="relu_aux")[1]["relu_aux"].float(),
            rocpy.matmul(a, b, epilogue="bgrada")[1]["bgrada"].float(),
            rocpy.matmul(a, b, epilogue=plus, epilogue_inputs={"r": r}).float(),
            rocpy.matmul(a, b, out=torch.empty(3, 16, dtype=torch.int32)).float(),
        ]

    assert both[0].dtype == sums[0].dtype == torch.int32
    return run


@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled_products_of_int8(dynamic):
    torch._dynamo.reset()
    a, b = torch.full((3, 8), 100, dtype=torch.int8), torch.full((8, 16), 100, dtype=torch.int8)
    run = int8_products(a, b, a)
    wanted = run(a, b, b[0])
    compiled = torch.compile(run, backend="aot_eager", fullgraph=True, dynamic=dynamic)(a, b, b[0])
    assert wanted[0][0, 0] == 80000
    for x, y in zip(compiled, wanted, strict=True):
        assert x.dtype == y.dtype
        assert torch.equal(x, y)


def test_operators_of_int8_pass_torchs_checks():
    a, b = torch.full((3, 8), 100, dtype=torch.int8), torch.full((8, 16), 100, dtype=torch.int8)
    settings = (1.0, 0.0, None, None, None)
    tests = ("test_schema", "test_faketensor")
    operators = torch.ops.rocpy
    torch.library.opcheck(operators.matmul.default, (a, b, None, None, None, "default", *settings), test_utils=tests)
    extra = (a, b, None, None, None, "relu_aux", *settings)
    torch.library.opcheck(operators.matmul_extra.default, extra, test_utils=tests)
    torch.library.opcheck(operators.linear.default, (a, b.t(), None, "relu"), test_utils=tests)


def test_exported_products_of_int8():
    class Model(torch.nn.Module):
        def forward(self, a, b):
            return rocpy.matmul(a, b).to(torch.int8), rocpy.grouped_matmul(a, b[None], offsets=torch.tensor([3]))

    a, b = torch.full((3, 8), 100, dtype=torch.int8), torch.full((8, 16), 100, dtype=torch.int8)
    exported = torch.export.export(Model(), (a, b)).module()(a, b)
    for x, y in zip(exported, Model()(a, b), strict=True):
        assert torch.equal(x, y)
        assert x.dtype == y.dtype


def test_products_without_memory_are_refused_by_name():
    with pytest.raises(InvalidProblemError, match="input: shape"):
        rt.linear(torch.ones(3, 7, device="meta"), torch.ones(4, 8, device="meta"))
