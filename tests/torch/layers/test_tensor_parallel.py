# SPDX-License-Identifier: MIT
"""Layers and products whose operands torch's tensor parallelism cuts over ranks."""

from __future__ import annotations

import copy

import pytest
import torch_ranks

import rocpy
from rocpy.errors import InvalidProblemError

torch = pytest.importorskip("torch")
rt = pytest.importorskip("rocpy.torch")

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]
nn = torch.nn


def close(x, y, **tolerance):
    torch.testing.assert_close(x, y, **({"rtol": 1e-5, "atol": 1e-5} | tolerance))


def whole(tensor):
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def cut_layer(mesh, layer, axis):
    """Cut a layer's parameters over the ranks: its outputs (axis 0 of the weight) or its inputs."""
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    layer.weight = nn.Parameter(distribute_tensor(layer.weight.detach(), mesh, [Shard(axis)]))
    if layer.bias is not None:
        bias_cut = Replicate() if axis else Shard(0)
        layer.bias = nn.Parameter(distribute_tensor(layer.bias.detach(), mesh, [bias_cut]))


def check_blocks(mesh, x):
    """rocpy's own blocks, with activations of the user's too, evenly cut and not."""
    from torch.distributed.tensor import Replicate, distribute_tensor

    squared = rocpy.epilogue(lambda x: torch.relu(x) ** 2)
    shift = rocpy.epilogue(lambda x, shift: torch.tanh(x) + shift)
    given = distribute_tensor(x, mesh, [Replicate()])

    def check(module, cuts, call):
        copied = copy.deepcopy(module)
        for name, axis in cuts.items():
            cut_layer(mesh, module.get_submodule(name), axis)
        y, z = call(module, given), call(copied, x)
        close(whole(y), z)
        whole(y).square().sum().backward()
        z.square().sum().backward()
        for p, q in zip(module.parameters(), copied.parameters(), strict=True):
            close(whole(p.grad), q.grad, rtol=1e-4, atol=1e-4)
        with torch.no_grad():
            close(whole(call(module, given)), z.detach())

    for hidden in (16, 7):
        for activation in ("gelu", "relu", None, squared):
            check(rt.MLP(8, hidden, activation=activation), {"fc1": 0, "fc2": 1}, lambda module, x: module(x))
        check(rt.GatedMLP(8, hidden), {"gate_up_proj": 0, "down_proj": 1}, lambda module, x: module(x))
    check(rt.Linear(8, 6, activation=shift), {"": 0}, lambda module, x: module(x, shift=x.sum()))


def check_gate(mesh, x):
    """A gated block by a plan of torch's, and its parameter on the ranks after a load."""
    from torch.distributed.tensor import Shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    for bias in (False, True):
        module = rt.GatedMLP(8, 16, bias=bias)
        halved, expected = copy.deepcopy(module), module(x)
        plan = {"gate_up_proj": ColwiseParallel(use_local_output=False), "down_proj": RowwiseParallel()}
        close(parallelize_module(module, mesh, plan)(x), expected)
        parallelize_module(halved, mesh, plan | {"gate_up_proj": ColwiseParallel()})
        for records in (False, True):
            with torch.set_grad_enabled(records), pytest.raises(InvalidProblemError, match="use_local_output=False"):
                halved(x)
        state = {key: value for key, value in module.state_dict().items() if "down" not in key}
        for values in (state, {key: whole(value) for key, value in state.items()}):
            for assign in (False, True):
                halved.load_state_dict({key: 2 * value for key, value in values.items()}, strict=False, assign=assign)
                for one, other in zip(halved.gate_up_proj.parameters(), module.gate_up_proj.parameters(), strict=True):
                    assert one.placements == (Shard(0),)
                    close(whole(one), 2 * whole(other))
                    one.detach().zero_()


def check_uneven(mesh):
    """Batches that the ranks cannot cut evenly, of products and layers, with all gradients."""
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    def product(x, weight, bias):
        return rocpy.matmul(x, weight.t(), bias=bias, epilogue="relu_bias")

    def mlp(x, weight, bias):
        return torch.ops.rocpy.mlp(x, weight, bias, weight.t(), None, "gelu")

    calls = [product, mlp, lambda x, weight, bias: rt.linear(x, weight, bias, "gelu")]
    for shape, axis in (((3, 5, 8), 0), ((1, 5, 8), 0), ((2, 3, 5, 8), 1)):
        operands = torch.randn(shape), torch.randn(6, 8), torch.randn(6)
        for call in calls:
            plain = [x.clone().requires_grad_() for x in operands]
            cuts = [Shard(axis)], [Replicate()], [Replicate()]
            sharded = [distribute_tensor(x, mesh, cut).requires_grad_() for x, cut in zip(operands, cuts, strict=True)]
            for y in (call(*plain), call(*sharded)):
                whole(y).square().sum().backward()
            for one, other in zip(sharded, plain, strict=True):
                close(whole(one.grad), other.grad, rtol=1e-4, atol=1e-4)


def parallel(rank, size, store, kind):
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size)
    try:
        mesh = init_device_mesh("cpu", (size,))
        torch.manual_seed(0)
        x = torch.randn(4, 8)

        def made(activation):
            torch.manual_seed(1)
            return nn.Sequential(nn.Linear(8, 16), activation, nn.Linear(16, 8))

        if kind == "products":
            a, b = torch.randn(4, 6, dtype=torch.float64), torch.randn(6, 8, dtype=torch.float64)
            cuts = [Replicate(), Shard(0), Shard(1)]
            for first in cuts:
                for second in cuts:
                    for epilogue in ("default", "relu", "gelu_aux", "bgrada", "bgradb"):
                        left, right = distribute_tensor(a, mesh, [first]), distribute_tensor(b, mesh, [second])
                        found = rocpy.matmul(left, right, epilogue=epilogue)
                        wanted = rocpy.matmul(a, b, epilogue=epilogue)
                        if isinstance(wanted, tuple):
                            (key,) = wanted[1]
                            close(whole(found[1][key]), wanted[1][key])
                            found, wanted = found[0], wanted[0]
                        close(whole(found), wanted)
            return True
        if kind == "uneven":
            check_uneven(mesh)
            return True
        if kind == "blocks":
            check_blocks(mesh, x)
            check_gate(mesh, x)
            return True
        for activation in (nn.GELU(), nn.ReLU(), nn.SiLU()):
            ours, theirs = made(activation), made(activation)
            rt.replace_linear(ours)
            if kind == "bare":  # parameters alone, without the hooks that keep two layers apart
                cut_layer(mesh, ours[0], 0)
                cut_layer(mesh, ours[2], 1)
                given = distribute_tensor(x, mesh, [Replicate()])
            else:
                parallelize_module(ours, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
                given = x
            y, z = ours(given), theirs(x)
            close(whole(y), z)
            whole(y).square().sum().backward()
            z.square().sum().backward()
            for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
                close(whole(p.grad), q.grad, rtol=1e-4, atol=1e-4)
            with torch.inference_mode():
                close(whole(ours(given)), z.detach())
        return True
    finally:
        dist.destroy_process_group()


@pytest.fixture(scope="module")
def workers():
    made = torch_ranks.Workers(2)
    yield made
    made.close()


@pytest.mark.parametrize("kind", ["replaced", "bare", "products", "blocks", "uneven"])
def test_tensor_parallel_layers(workers, kind, tmp_path):
    assert workers(parallel, str(tmp_path / "store"), kind) == [True, True]
