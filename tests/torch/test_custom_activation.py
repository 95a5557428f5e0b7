# SPDX-License-Identifier: MIT
"""Layers whose activation is an epilogue of the user's: forward, gradients, compiled, packed, saved."""

import copy
import io
import pickle

import pytest

import rocpy

torch = pytest.importorskip("torch")
rt = pytest.importorskip("rocpy.torch")

pytestmark = pytest.mark.torch

F = torch.nn.functional


@rocpy.epilogue
def softcap_residual(x, residual):
    return torch.tanh(x / 4.0) * 4.0 + residual


@rocpy.epilogue
def own_bias(x, bias):
    return F.silu(x + bias) * 0.5


squared_relu = rocpy.epilogue(lambda x: torch.square(torch.relu(x)))


def tensors(*shapes, dtype=torch.float64, grad=True):
    generator = torch.Generator().manual_seed(7)
    made = [torch.randn(shape, generator=generator, dtype=dtype) for shape in shapes]
    return [one.requires_grad_(grad) for one in made]


@pytest.mark.parametrize("grad", [False, True])
def test_linear(grad):
    x, w, b, r = tensors((3, 4, 6), (8, 6), (8,), (3, 4, 8), dtype=torch.float32, grad=grad)
    y = rt.linear(x, w, b, activation=softcap_residual, epilogue_inputs={"residual": r})
    torch.testing.assert_close(y, torch.tanh(F.linear(x, w, b) / 4) * 4 + r)
    y = rt.linear(x, w, activation=softcap_residual, epilogue_inputs={"residual": r})
    torch.testing.assert_close(y, torch.tanh(F.linear(x, w) / 4) * 4 + r)
    torch.testing.assert_close(rt.linear(x, w, b, activation=own_bias), F.silu(F.linear(x, w, b)) * 0.5)
    torch.testing.assert_close(rt.linear(x, w, b, activation=squared_relu), torch.relu(F.linear(x, w, b)) ** 2)


def test_gradients():
    x, w, b, r = tensors((5, 6), (4, 6), (4,), (5, 4))

    def layer(x, w, b, r):
        return rt.linear(x, w, b, activation=softcap_residual, epilogue_inputs={"residual": r})

    assert torch.autograd.gradcheck(layer, (x, w, b, r))
    assert torch.autograd.gradgradcheck(layer, (x, w, b, r))
    assert torch.autograd.gradcheck(lambda x, w, b: rt.linear(x, w, b, activation=own_bias), (x, w, b))


def test_layer_trains_and_is_saved():
    layer = rt.Linear(6, 8, activation=softcap_residual)
    plain = torch.nn.Linear(6, 8)
    plain.load_state_dict(layer.state_dict())
    x, r = tensors((5, 6), (5, 8), dtype=torch.float32)
    layer(x, residual=r).square().sum().backward()
    found = [one.grad.clone() for one in (x, r, layer.weight, layer.bias)]
    x.grad = r.grad = None
    (torch.tanh(plain(x) / 4) * 4 + r).square().sum().backward()
    for ours, theirs in zip(found, (x.grad, r.grad, plain.weight.grad, plain.bias.grad), strict=True):
        torch.testing.assert_close(ours, theirs)
    assert "softcap_residual" in repr(layer)
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        torch.testing.assert_close(other(x, residual=r), layer(x, residual=r))
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)


def test_packed_in_eval_mode():
    layer = rt.Linear(32, 16, activation=own_bias).eval()
    (x,) = tensors((5, 32), dtype=torch.float32, grad=False)
    with torch.no_grad():
        first = layer(x)
        torch.testing.assert_close(first, F.silu(F.linear(x, layer.weight, layer.bias)) * 0.5)
        layer.weight.mul_(2)
        torch.testing.assert_close(layer(x), F.silu(F.linear(x, layer.weight, layer.bias)) * 0.5)


@pytest.mark.parametrize("bias", [True, False])
def test_mlp_trains(bias):
    mlp = rt.MLP(6, 16, 5, activation=squared_relu, bias=bias, dtype=torch.float64)
    (x,) = tensors((3, 4, 6))
    fc1, fc2 = mlp.fc1, mlp.fc2

    def reference(x):
        return F.linear(torch.relu(F.linear(x, fc1.weight, fc1.bias)) ** 2, fc2.weight, fc2.bias)

    with rt.counters() as counted:
        mlp(x).square().sum().backward()
    assert counted.fused_gradients >= 1
    leaves = [x, *mlp.parameters()]
    found = [one.grad.clone() for one in leaves]
    for one in leaves:
        one.grad = None
    reference(x).square().sum().backward()
    for ours, theirs in zip(found, leaves, strict=True):
        torch.testing.assert_close(ours, theirs.grad)
    parameters = {name: one.detach().clone().requires_grad_() for name, one in mlp.named_parameters()}

    def function(x, *values):
        return torch.func.functional_call(mlp, dict(zip(parameters, values, strict=True)), x)

    assert torch.autograd.gradcheck(function, (x, *parameters.values()))
    assert torch.autograd.gradgradcheck(function, (x, *parameters.values()))
    with torch.no_grad():
        torch.testing.assert_close(mlp(x), reference(x))


@pytest.mark.parametrize("grad", [True, False])
def test_mlp_passes_inputs_on(grad):
    mlp = rt.MLP(6, 8, activation=softcap_residual)
    x, r = tensors((5, 6), (5, 8), dtype=torch.float32)
    with torch.set_grad_enabled(grad):
        torch.testing.assert_close(mlp(x, residual=r), mlp.fc2(mlp.fc1(x, residual=r)))
        with pytest.raises(rocpy.InvalidProblemError, match="needs 'residual'"):
            mlp(x)
        for activation in ("gelu", squared_relu):
            with pytest.raises(rocpy.InvalidProblemError, match="epilogue_inputs"):
                rt.MLP(6, 8, activation=activation)(x, residual=r)


@pytest.mark.slow
def test_a_changed_number_is_no_new_graph():
    from torch._dynamo.testing import CompileCounterWithBackend

    scaled = rocpy.epilogue(lambda x, scale: torch.tanh(x) * scale)
    x, w = tensors((5, 6), (6, 8), dtype=torch.float32)

    def product(x, w, scale):
        return rocpy.matmul(x, w, epilogue=scaled, epilogue_inputs={"scale": scale})

    torch._dynamo.reset()
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(product, fullgraph=True, backend=counter)
    for scale in (1.0, 2.5, -3.0, 7):
        found, wanted = compiled(x, w, scale), torch.tanh(x @ w) * scale
        torch.testing.assert_close(found, wanted)
        ours, theirs = torch.autograd.grad(found.sum(), (x, w)), torch.autograd.grad(wanted.sum(), (x, w))
        torch.testing.assert_close(ours, theirs)
    assert counter.frame_count <= 3  # a constant, a changing number, a whole one


@pytest.mark.parametrize("activation", [squared_relu, rocpy.epilogues.swiglu, torch.tanh, torch.nn.GELU], ids=range(4))
def test_a_gate_has_no_epilogue_of_the_users(activation):
    with pytest.raises(rocpy.InvalidProblemError, match=r"which a gate cannot use; .* rocpy\.torch\.matmul"):
        rt.GatedMLP(6, 8, activation=activation)


@pytest.mark.parametrize("activation", [rocpy.epilogues.swiglu, rocpy.epilogues.geglu], ids=lambda x: x.name)
def test_mlp_takes_all_columns(activation):
    with pytest.raises(rocpy.InvalidProblemError, match="halves the columns.*two rocpy.torch.Linear"):
        rt.MLP(8, 16, activation=activation)
    assert torch.nn.Sequential(rt.Linear(8, 16, activation=activation), rt.Linear(8, 8))(torch.ones(2, 8)).shape == (
        2,
        8,
    )


@pytest.mark.slow
def test_compiled():
    layer = rt.Linear(6, 8, activation=softcap_residual)
    mlp = rt.MLP(8, 16, activation=squared_relu)
    x, r = tensors((5, 6), (5, 8), dtype=torch.float32)

    def model(x, r):
        return mlp(layer(x, residual=r)) + rt.linear(x, layer.weight, layer.bias, activation=own_bias)

    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    compiled(x, r).sum().backward()
    found = [one.grad.clone() for one in (x, r, layer.weight, mlp.fc1.weight, mlp.fc1.bias)]
    x.grad = r.grad = None
    layer.zero_grad()
    mlp.zero_grad()
    expected = model(x, r)
    torch.testing.assert_close(compiled(x, r), expected)
    expected.sum().backward()
    for ours, theirs in zip(found, (x, r, layer.weight, mlp.fc1.weight, mlp.fc1.bias), strict=True):
        torch.testing.assert_close(ours, theirs.grad)


def test_autocast():
    layer = rt.Linear(6, 8, activation=own_bias)
    (x,) = tensors((5, 6), dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = layer(x)
    assert y.dtype == torch.bfloat16
    y.sum().backward()
    assert x.grad.dtype == torch.float32


def test_mistakes():
    x, w, b, r = tensors((5, 6), (8, 6), (8,), (5, 8), dtype=torch.float32, grad=False)
    with pytest.raises(rocpy.InvalidProblemError, match="needs 'residual'"):
        rt.linear(x, w, b, activation=softcap_residual)
    with pytest.raises(rocpy.InvalidProblemError, match="'bias' is the layer's own"):
        rt.linear(x, w, b, activation=own_bias, epilogue_inputs={"bias": b})
    with pytest.raises(rocpy.InvalidProblemError, match="needs 'bias'"):
        rt.linear(x, w, activation=own_bias)
    with pytest.raises(rocpy.InvalidProblemError, match="epilogue_inputs"):
        rt.linear(x, w, b, activation="relu", epilogue_inputs={"residual": r})
    with pytest.raises(rocpy.InvalidProblemError, match="decorate it"):
        rt.linear(x, w, b, activation=torch.tanh)
    with pytest.raises(rocpy.InvalidProblemError, match="2 results"):
        rt.Linear(6, 8, activation=rocpy.epilogue(lambda x: (x * 2, x * 3)))
    with pytest.raises(rocpy.InvalidProblemError, match="approximate"):
        rt.Linear(6, 8, activation=own_bias, approximate="tanh")
    with pytest.raises(rocpy.InvalidProblemError, match="epilogue_inputs"):
        rt.Linear(6, 8)(x, residual=r)
    with pytest.raises(rocpy.InvalidProblemError, match="residual"):
        rt.Linear(6, 8, activation=softcap_residual)(x, residual=r[:, :3])


STEPS = {
    "floor": lambda x: x.floor(),
    "truth": lambda x: (x > 0).to(torch.float32),
    "power": lambda x: x**0,
    "integer": lambda x: x.to(torch.int32) * 1.0,
}


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("name", STEPS)
def test_gradients_of_a_function_of_steps_are_zeros(name, bias):
    mlp = rt.MLP(8, 16, activation=rocpy.epilogue(STEPS[name]), bias=bias)
    x = torch.randn(4, 8, requires_grad=True)
    hidden = STEPS[name](F.linear(x, mlp.fc1.weight, mlp.fc1.bias))
    y = mlp(x)
    torch.testing.assert_close(y, F.linear(hidden, mlp.fc2.weight, mlp.fc2.bias), atol=1e-4, rtol=1e-4)
    y.square().mean().backward()
    for one in (x, *mlp.fc1.parameters()):
        assert not one.grad.any()
    assert mlp.fc2.weight.grad.any()
    inputs = [x, *mlp.fc1.parameters()]
    for grad in torch.autograd.grad(rt.linear(x, *mlp.fc1.parameters(), activation=mlp.fc1.activation).sum(), inputs):
        assert not grad.any()


@pytest.mark.parametrize("name", STEPS)
def test_gradients_of_operands_without_a_slope_are_zeros(name):
    shapes = {"a": (4, 3), "b": (3, 5), "c": (4, 5), "r": (5,), "s": (4, 5)}
    operands = dict(zip(shapes, tensors(*shapes.values(), dtype=torch.float32), strict=True))
    a, b, c, r, s = operands.values()
    epilogue = rocpy.epilogue(lambda x, r, s: STEPS[name](x + r) + s)
    y = rt.matmul(a, b, c, beta=1.0, epilogue=epilogue, epilogue_inputs={"r": r, "s": s})
    grads = torch.autograd.grad(y.sum(), list(operands.values()))
    assert [bool(one.any()) for one in grads] == [False, False, False, False, True]
    for one, grad in zip(operands.values(), grads, strict=True):
        assert (grad.shape, grad.dtype) == (one.shape, one.dtype)
