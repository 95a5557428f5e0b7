# SPDX-License-Identifier: MIT
"""Nested, masked and uninitialized tensors, which products and layers refuse in rocpy's words, whoever records."""

import pytest
import torch

import rocpy
import rocpy.torch as rt
from rocpy.errors import InvalidOperandError

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:.*nested tensors.*:UserWarning")]

twice = rocpy.epilogue(lambda x: 2 * x)
WEIGHT = torch.ones(4, 4)
NARROW = torch.ones(16, 16).to(torch.float8_e4m3fn)
RECORDED = torch.ones(4, 4, requires_grad=True)


def frozen(layer):
    rt.freeze(layer.eval())
    return layer


def replaced():
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU())
    rt.replace_linear(model)
    return model


CALLS = {
    "input: Linear": rt.Linear(4, 4),
    "input: Linear, gelu": rt.Linear(4, 4, activation="gelu"),
    "input: Linear, custom": rt.Linear(4, 4, activation=twice),
    "input: Linear, frozen": frozen(rt.Linear(4, 4)),
    "input: replaced": replaced(),
    "input: MLP": rt.MLP(4, 8),
    "input: MLP, custom": rt.MLP(4, 8, activation=twice),
    "input: GatedMLP": rt.GatedMLP(4, 8),
    "input: linear": lambda n: rt.linear(n, WEIGHT),
    "input: linear, custom": lambda n: rt.linear(n, WEIGHT, activation=twice),
    "weight: linear": lambda n: rt.linear(WEIGHT, n),
    "bias: linear": lambda n: rt.linear(WEIGHT, RECORDED, n),
    "a: matmul": lambda n: rocpy.matmul(n, WEIGHT),
    "a: matmul, recorded": lambda n: rocpy.matmul(n, RECORDED),
    "b: matmul, recorded": lambda n: rocpy.matmul(RECORDED, n),
    "c: matmul": lambda n: rocpy.matmul(WEIGHT, WEIGHT, n),
    "bias: matmul": lambda n: rocpy.matmul(RECORDED, WEIGHT, bias=n, epilogue="bias"),
    "a: custom": lambda n: rocpy.matmul(n, WEIGHT, epilogue=twice),
    "b: custom, recorded": lambda n: rocpy.matmul(RECORDED, n, epilogue=twice),
    "epilogue_inputs['residual']: custom": lambda n: rocpy.matmul(
        WEIGHT, RECORDED, epilogue=rocpy.epilogues.residual_add, epilogue_inputs={"residual": n}
    ),
    "a: torch.matmul": lambda n: rt.matmul(n, RECORDED),
    "a: grouped": lambda n: rocpy.grouped_matmul(n, torch.ones(2, 4, 4), offsets=[0, 2, 5]),
    "a: grouped, recorded": lambda n: rocpy.grouped_matmul([n], [RECORDED]),
    "a: explain": lambda n: rocpy.explain(n, WEIGHT),
    "aux: matmul": lambda n: rocpy.matmul(WEIGHT, WEIGHT, epilogue="drelu", aux=n),
    "scale_a: matmul": lambda n: rocpy.matmul(NARROW, NARROW, scale_a=n, scale_b=1.0),
    "out: custom": lambda n: rocpy.matmul(WEIGHT, WEIGHT, epilogue=twice, out=n),
    "b: Matmul": lambda n: rocpy.Matmul(WEIGHT, n),
    "w: Weight": rocpy.Weight,
    "bias: Weight": lambda n: rocpy.Weight(WEIGHT, bias=n),
    "x: quantize": lambda n: rocpy.quantize(n, "int8"),
}


#: By what the message says of it and advises.
TENSORS = {
    "strided": (lambda: nested(torch.strided), "got a nested tensor", ".to_padded_tensor(...)"),
    "jagged": (lambda: nested(torch.jagged), "got a nested tensor", ".to_padded_tensor(...)"),
    "masked": (
        lambda: torch.masked.masked_tensor(torch.ones(4, 4), torch.eye(4) > 0),
        "got a masked tensor",
        ".to_tensor(value)",
    ),
    "parameter": (torch.nn.parameter.UninitializedParameter, "not initialized", ".materialize(shape)"),
    "buffer": (torch.nn.parameter.UninitializedBuffer, "not initialized", ".materialize(shape)"),
}


def nested(layout):
    return torch.nested.nested_tensor([torch.ones(2, 4), torch.ones(3, 4)], layout=layout)


@pytest.mark.filterwarnings("ignore:.*MaskedTensors.*:UserWarning")
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("kind", TENSORS)
@pytest.mark.parametrize("name", CALLS)
def test_what_is_no_dense_tensor_is_refused_by_name(name, kind, mode):
    make, seen, advice = TENSORS[kind]
    with mode():
        tensor = make()
        with pytest.raises(InvalidOperandError) as caught:
            CALLS[name](tensor)
    operand = name.partition(":")[0]
    assert str(caught.value).startswith(operand)
    assert seen in str(caught.value)
    assert advice in str(caught.value)
