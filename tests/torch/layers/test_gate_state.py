# SPDX-License-Identifier: MIT
"""State dicts of rt.GatedMLP: each projection is read, checked and reported by its own name."""

from __future__ import annotations

import pytest

from rocpy.errors import InvalidOperandError

torch = pytest.importorskip("torch")
rt = pytest.importorskip("rocpy.torch")

pytestmark = pytest.mark.torch
KEYS = [f"{part}_proj.{name}" for part in ("gate", "up") for name in ("weight", "bias")]
SHAPES = {"weight": (16, 8), "bias": (16,)}


def block(bias=True):
    return rt.GatedMLP(8, 16, bias=bias)


def values_of(module):
    return {key: value.clone() for key, value in module.state_dict().items()}


def value_for(key, shape=None):
    return torch.randn(SHAPES[key.rpartition(".")[2]] if shape is None else shape)


@pytest.fixture(params=[False, True], ids=["copied", "assigned"])
def assign(request):
    return request.param


@pytest.fixture(params=[False, True], ids=["", "swapped"])
def swaps(request):
    torch.__future__.set_swap_module_params_on_conversion(request.param)
    yield
    torch.__future__.set_swap_module_params_on_conversion(False)


@pytest.mark.usefixtures("swaps")
@pytest.mark.parametrize("present", [KEYS[:1], KEYS[2:3], KEYS[3:], KEYS[::3], KEYS[:2], [], KEYS], ids=str)
@pytest.mark.parametrize("nested", [False, True])
def test_what_a_state_dict_has_is_loaded(present, nested, assign):
    module = block()
    outer, prefix = (torch.nn.Sequential(module), "0.") if nested else (module, "")
    parameters = dict(module.named_parameters())
    before = values_of(module)
    new = {key: value_for(key) for key in present}
    result = outer.load_state_dict({prefix + key: x for key, x in new.items()}, strict=False, assign=assign)
    assert result.unexpected_keys == []
    absent = [key for key in before if key not in present]
    assert sorted(result.missing_keys) == sorted(prefix + key for key in absent)
    torch.testing.assert_close(values_of(module), before | new, rtol=0, atol=0)
    for name, parameter in module.named_parameters():
        assert type(parameter) is torch.nn.Parameter
        assert parameter.requires_grad
        touched = any(key.endswith(name.rpartition(".")[2]) for key in present) and "gate_up" in name
        assert (parameter is parameters[name]) or (assign and touched)


@pytest.mark.parametrize("absent", KEYS)
def test_a_missing_key_is_reported_by_its_name(absent, assign):
    module = block()
    state = values_of(module)
    del state[absent]
    with pytest.raises(RuntimeError) as raised:
        module.load_state_dict(state, assign=assign)
    assert f'Missing key(s) in state_dict: "{absent}". ' in str(raised.value)
    assert "gate_up" not in str(raised.value)
    assert "Unexpected" not in str(raised.value)


@pytest.mark.parametrize("shapes", [((20, 8), (12, 8)), ((16, 8), (15, 8)), ((31, 8), (16, 8)), ((), (16, 8))], ids=str)
def test_a_wrong_shape_is_reported_by_its_name(shapes, assign):
    module = block()
    state = values_of(module)
    state |= {key: value_for(key, shape) for key, shape in zip(KEYS[::2], shapes, strict=True)}
    with pytest.raises(RuntimeError) as raised:
        module.load_state_dict(state, assign=assign)
    for key, shape in zip(KEYS[::2], shapes, strict=True):
        mismatch = f"size mismatch for {key}: copying a param with shape {torch.Size(shape)}"
        assert (mismatch in str(raised.value)) == (shape != (16, 8))
    assert "gate_up" not in str(raised.value)


@pytest.mark.parametrize("value", [None, 1.0, [1.0]], ids=str)
@pytest.mark.parametrize("key", KEYS)
def test_what_is_no_tensor_is_reported_by_its_name(key, value, assign):
    module = block()
    with pytest.raises(RuntimeError, match=f'parameter named "{key}", expected torch.Tensor'):
        module.load_state_dict(values_of(module) | {key: value}, assign=assign)


@pytest.mark.parametrize("present", [["gate_proj.weight"], KEYS[::2]], ids=str)
def test_one_parameter_has_one_type(present):
    module = block()
    new = {key: value_for(key) for key in present}
    new[present[-1]] = new[present[-1]].double()
    before = values_of(module)
    with pytest.raises(RuntimeError, match=r"gate_proj.weight is torch.float\d+ on cpu and up_proj.weight is torch"):
        module.load_state_dict(new, strict=False, assign=True)
    torch.testing.assert_close(values_of(module), before, rtol=0, atol=0)
    module.load_state_dict(new, strict=False)
    expected = before | {key: value.float() for key, value in new.items()}
    torch.testing.assert_close(values_of(module), expected, rtol=0, atol=0)


def test_both_may_be_assigned_another_type():
    module = block(False)
    module.load_state_dict({key: value.double() for key, value in values_of(module).items()}, assign=True)
    assert {x.dtype for x in module.parameters()} == {torch.float64}


def test_a_bias_that_the_block_lacks_is_unexpected():
    module = block(False)
    result = module.load_state_dict(values_of(module) | {key: value_for(key) for key in KEYS[1::2]}, strict=False)
    assert sorted(result.unexpected_keys) == ["gate_proj.bias", "up_proj.bias"]


@pytest.mark.filterwarnings("ignore:.*copying from a non-meta parameter:UserWarning")
@pytest.mark.parametrize("present", [KEYS[:1], KEYS[3:], KEYS], ids=str)
def test_a_block_without_memory_takes_what_torchs_layer_takes(present):
    module, layer = rt.GatedMLP(8, 16, bias=True, device="meta"), torch.nn.Linear(8, 16, device="meta")
    result = module.load_state_dict({key: value_for(key) for key in present}, strict=False)
    assert sorted(result.missing_keys) == sorted(key for key in module.state_dict() if key not in present)
    layer.load_state_dict({"weight": value_for("weight")}, strict=False)
    assert all(x.is_meta for x in (*module.parameters(), *layer.parameters()))
    with pytest.warns(UserWarning, match=f"^for {present[0]}: copying from a non-meta parameter"):
        module.load_state_dict({key: value_for(key) for key in present}, strict=False)


@pytest.mark.parametrize("change", [lambda x: x.to("meta"), lambda x: x.to_sparse()], ids=["meta", "sparse"])
@pytest.mark.parametrize("key", KEYS[::2])
def test_a_value_that_cannot_be_copied_is_reported_by_its_name(key, change):
    module = block()
    before = values_of(module)
    with pytest.raises(RuntimeError, match=rf"Error\(s\) in loading state_dict for GatedMLP:\n\tWhile .*{key}"):
        module.load_state_dict({key: change(value_for(key))}, strict=False)
    torch.testing.assert_close(values_of(module), before, rtol=0, atol=0)


def test_the_projections_are_views():
    module = block()
    for part in ("gate", "up"):
        for name, x in getattr(module, f"{part}_proj")._asdict().items():
            assert torch.equal(x, module.state_dict()[f"{part}_proj.{name}"])
            assert x.untyped_storage().data_ptr() == getattr(module.gate_up_proj, name).untyped_storage().data_ptr()
    assert block(False).up_proj.bias is None
    assert "gate_proj" not in dict(module.named_modules())


@pytest.mark.parametrize("name", ["gate_proj", "up_proj"])
def test_a_projection_cannot_be_assigned(name):
    """It would be a second parameter that the block does not use, and that its state dict has no name for."""
    module = block()
    names = [name for name, _ in module.named_parameters()]
    with pytest.raises(InvalidOperandError, match=rf"{name}: cannot be assigned.*copy"):
        setattr(module, name, torch.nn.Linear(8, 16))
    with pytest.raises(InvalidOperandError, match=r"weight: cannot be assigned.*copy"):
        getattr(module, name).weight = torch.nn.Parameter(torch.zeros(16, 8))
    assert [name for name, _ in module.named_parameters()] == names
    module.load_state_dict(module.state_dict())


def test_functional_calls_name_parameters():
    module, x = block(), torch.ones(2, 8)
    parameters = {name: torch.zeros_like(value) for name, value in module.named_parameters()}
    assert not torch.func.functional_call(module, parameters, (x,)).any()
    with pytest.raises(TypeError, match=r"gate_proj.*\(16, 8\).*views of gate_up_proj.*functional_call") as caught:
        torch.func.functional_call(module, module.state_dict(), (x,))
    assert "tensor(" not in str(caught.value)


@pytest.mark.parametrize("full", [False, True])
def test_state_dicts_of_torch_distributed_checkpoint(full):
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict

    one, other = (torch.nn.Sequential(block()) for _ in range(2))
    optimizers = [torch.optim.AdamW(model.parameters()) for model in (one, other)]
    one(torch.ones(3, 8)).sum().backward()
    optimizers[0].step()
    options = StateDictOptions(full_state_dict=full)
    states = get_state_dict(one, optimizers[0], options=options)
    assert sorted(states[0]) == sorted(one.state_dict())
    set_state_dict(other, optimizers[1], model_state_dict=states[0], optim_state_dict=states[1], options=options)
    torch.testing.assert_close(other.state_dict(), one.state_dict(), rtol=0, atol=0)
    torch.testing.assert_close(*(optimizer.state_dict()["state"] for optimizer in optimizers), rtol=0, atol=0)
