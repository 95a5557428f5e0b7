# SPDX-License-Identifier: MIT
"""No layer computes with an old weight, whatever changed it; layers that pack, frozen models and what they promise."""

from __future__ import annotations

import copy
import inspect

import pytest

import rocpy
from rocpy.errors import RocpyWarning

torch = pytest.importorskip("torch")
rt = pytest.importorskip("rocpy.torch")
prune = pytest.importorskip("torch.nn.utils.prune")
layers = pytest.importorskip("packed_layers")

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]
nn = torch.nn if torch else None
PACKED = "_rocpy_packed"
KINDS, LAYERS, packed_layer, check, close = layers.KINDS, layers.LAYERS, layers.packed_layer, layers.check, layers.close


@pytest.fixture
def x():
    return torch.randn(6, 12, generator=torch.Generator().manual_seed(5))


# ---- optimizers ----

OPTIMIZERS = (
    [cls for cls in vars(torch.optim).values() if inspect.isclass(cls) and issubclass(cls, torch.optim.Optimizer)]
    if torch
    else []
)
OPTIMIZERS = [cls for cls in OPTIMIZERS if cls is not getattr(torch.optim, "Optimizer", None)]


def runs():
    """Every optimizer with each implementation that it has, called and compiled."""
    for cls in OPTIMIZERS:
        for option in ("", "foreach", "fused", "capturable"):
            if option and option not in inspect.signature(cls).parameters:
                continue
            for compiled in (False, True):
                if option == "capturable" and not compiled:
                    continue  # torch has it on the CPU only where it is compiled
                name = "-".join((cls.__name__, option or "default", "compiled" if compiled else "eager"))
                slow = compiled and (option, cls) not in (("fused", torch.optim.AdamW), ("", torch.optim.SGD))
                yield pytest.param(cls, option, compiled, id=name, marks=[pytest.mark.slow] if slow else [])


def take_step(module, x, cls, option, compiled):
    parameters = [p for p in module.parameters() if p.dim() == 2 or cls.__name__ != "Muon"]
    optimizer = cls(parameters, **({"lr": 0.05} | ({option: True} if option else {})))

    def loss():
        optimizer.zero_grad()
        value = module(x).square().sum()
        value.backward()
        if cls.__name__ == "SparseAdam":
            for p in parameters:
                p.grad = p.grad.to_sparse()
        return value

    def step():
        optimizer.step(loss) if cls.__name__ == "LBFGS" else optimizer.step()

    run = torch.compile(step, backend="aot_eager") if compiled else step
    for _ in range(2):
        loss()
        yield
        run()


@pytest.mark.parametrize(("cls", "option", "compiled"), list(runs()))
@pytest.mark.parametrize("packs", ["default", pytest.param("pack", marks=pytest.mark.slow), "frozen"])
def test_every_optimizer_is_followed(x, cls, option, compiled, packs):
    torch._dynamo.reset()
    for kind in ("Linear", "Weight") if compiled else KINDS:
        module = packed_layer(kind, packs if kind != "Weight" else "default")
        before = copy.deepcopy(module.state_dict())
        with torch.no_grad():
            module(x)
        # In eval mode all along, and evaluated between the gradient and the step.
        for _ in take_step(module, x, cls, option, compiled):
            check(kind, module, x)
        check(kind, module, x)
        assert any(not torch.equal(before[name], value) for name, value in module.state_dict().items())


# ---- other ways of changing a parameter ----


def load(module):
    module.load_state_dict({name: value + 1 for name, value in module.state_dict().items()})


def load_assigned(module):
    module.load_state_dict({name: (value + 1).clone() for name, value in module.state_dict().items()}, assign=True)


def each(change):
    def run(module):
        for layer in module.modules():
            if "weight" in layer._parameters:
                change(layer)

    run.__name__ = change.__name__
    return run


@each
def another_parameter(layer):
    layer.weight = nn.Parameter(layer.weight.detach() + 1)


@each
def in_place(layer):
    with torch.no_grad():
        layer.weight.mul_(2)


@each
def in_place_in_inference_mode(layer):
    with torch.inference_mode():
        layer.weight.mul_(2)


@each
def another_storage(layer):
    layer.weight.data = layer.weight.detach() * 2


@each
def swapped(layer):
    torch.utils.swap_tensors(layer.weight, nn.Parameter(layer.weight.detach() * 2))


@each
def parametrized(layer):
    nn.utils.parametrizations.weight_norm(layer)
    with torch.no_grad():
        layer.parametrizations.weight.original0.mul_(2)


@each
def parametrized_for_a_while(layer):
    nn.utils.parametrizations.weight_norm(layer)
    with torch.no_grad():
        layer.parametrizations.weight.original0.mul_(2)
    nn.utils.parametrize.remove_parametrizations(layer, "weight")


@each
def through_a_view(layer):
    with torch.no_grad():
        layer.weight.view(-1)[3:].add_(1)


def foreach(module):
    with torch.no_grad():
        torch._foreach_mul_(list(module.parameters()), 2.0)


def to_a_vector_and_back(module):
    vector = nn.utils.parameters_to_vector(module.parameters())
    nn.utils.vector_to_parameters(vector * 2, module.parameters())


def to_another_type(module):
    module.double()


def to_another_type_by_swapping(module):
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        module.double()
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)


def averaged(module):
    copied = torch.optim.swa_utils.AveragedModel(copy.deepcopy(module))
    with torch.no_grad():
        for p in copied.module.parameters():
            p.add_(1)
    for p, q in zip(module.parameters(), copied.module.parameters(), strict=True):
        p.detach().copy_(q.detach())


@each
def set_to_another(layer):
    with torch.no_grad():
        layer.weight.set_((layer.weight * 2).clone())


@each
def transposed(layer):
    with torch.no_grad():
        layer.weight.t_()


@each
def transposed_by_axes(layer):
    with torch.no_grad():
        layer.weight.transpose_(0, 1)


@each
def transposed_data(layer):
    layer.weight.data = layer.weight.data.t()


@each
def set_transposed(layer):
    weight = layer.weight
    with torch.no_grad():
        weight.set_(weight.untyped_storage(), 0, tuple(weight.shape), (1, weight.shape[0]))


@each
def strided_anew(layer):
    with torch.no_grad():
        layer.weight.as_strided_(tuple(layer.weight.shape), (1, layer.weight.shape[0]))


@each
def of_one_row(layer):
    layer.weight.data = layer.weight.data[:1].expand(layer.weight.shape)


@each
def cut_rows(layer):
    layer.weight.data = layer.weight.data[: layer.weight.shape[0] // 2]
    if layer.bias is not None:
        layer.bias.data = layer.bias.data[: layer.weight.shape[0]]


@each
def reinterpreted(layer):
    layer.weight.data = layer.weight.data.view(torch.int32).add(1 << 20).view(torch.float32)


@each
def swapped_for_inference(layer):
    with torch.inference_mode():
        other = nn.Parameter(layer.weight.detach() * 2, requires_grad=False)
        torch.utils.swap_tensors(layer.weight, other)
        layer.weight.add_(1)


@each
def initialised_again(layer):
    nn.init.normal_(layer.weight)


@each
def pruned_for_a_while(layer):
    prune.random_unstructured(layer, "weight", 0.5)
    prune.remove(layer, "weight")


def emptied_and_loaded(module):
    state = {name: value * 2 for name, value in module.state_dict().items()}
    module.to_empty(device="cpu")
    module.load_state_dict(state)


def shared_and_written(module):
    module.share_memory()
    in_place(module)


class OwnOptimizer(torch.optim.Optimizer if torch else object):
    """One that somebody wrote, which changes parameters unreported."""

    def step(self):
        for p in self.param_groups[0]["params"]:
            p.data.sub_(p.grad)


def own_optimizer(module):
    for p in module.parameters():
        p.grad = torch.ones_like(p)
    OwnOptimizer(module.parameters(), {}).step()


def scaled(module):
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.1, fused=True)
    scaler.scale(module(torch.ones(2, 12)).square().sum()).backward()
    scaler.step(optimizer)
    scaler.update()


def without_an_optimizer(module):
    """A fused step of torch.optim's functions, which no hook of optimizers sees."""
    for p in module.parameters():
        states = [torch.zeros_like(p), torch.zeros_like(p)]
        torch._fused_adamw_(
            [p.detach()],
            [torch.ones_like(p)],
            *([state] for state in states),
            [],
            [torch.ones(())],
            lr=0.5,
            beta1=0.9,
            beta2=0.9,
            weight_decay=0.1,
            eps=1e-8,
            amsgrad=False,
            maximize=False,
        )


@each
def through_data(layer):
    layer.weight.data.mul_(2)


@each
def through_numpy(layer):
    layer.weight.detach().numpy()[:] *= 2


@each
def through_dlpack(layer):
    torch.from_dlpack(layer.weight.detach()).mul_(2)


@each
def through_storage(layer):
    layer.weight.untyped_storage().copy_((layer.weight.detach() * 2).untyped_storage())


@each
def with_its_version_kept(layer):
    with torch.no_grad(), torch.autograd._unsafe_preserve_version_counter(layer.weight):
        layer.weight.mul_(2)


REPORTED = [
    load,
    load_assigned,
    another_parameter,
    in_place,
    in_place_in_inference_mode,
    another_storage,
    swapped,
    parametrized_for_a_while,
    through_a_view,
    foreach,
    to_a_vector_and_back,
    to_another_type,
    to_another_type_by_swapping,
    averaged,
    set_to_another,
    initialised_again,
    pruned_for_a_while,
    emptied_and_loaded,
    shared_and_written,
    own_optimizer,
    scaled,
]
# Of the same elements: the same tensor, at the same address, with the same version where torch counts no write.
RELAID = [
    transposed,
    transposed_by_axes,
    transposed_data,
    set_transposed,
    strided_anew,
    of_one_row,
    cut_rows,
    reinterpreted,
    swapped_for_inference,
]
UNREPORTED = [
    without_an_optimizer,
    through_data,
    through_numpy,
    through_dlpack,
    through_storage,
    with_its_version_kept,
]


@pytest.mark.parametrize("change", [*REPORTED, *UNREPORTED, parametrized], ids=lambda f: f.__name__)
@pytest.mark.parametrize("kind", LAYERS)
def test_by_default_every_change_is_seen(x, kind, change):
    module = packed_layer(kind, "default")
    check(kind, module, x)
    assert not any(PACKED in layer.__dict__ for layer in module.modules())
    with torch.no_grad():
        before = module(x)
    change(module)
    if change is parametrized:
        with torch.no_grad():
            for layer in list(module.modules()):
                if isinstance(layer, rt.Linear):
                    y = nn.functional.linear(torch.ones(1, layer.in_features), layer.weight, layer.bias)
                    found = layer(torch.ones(1, layer.in_features))
                    name = layer.activation
                    close(found, getattr(nn.functional, name)(y) if name else y)
    else:
        check(kind, module, x)
    assert change.__name__.startswith("to_another_type") or not torch.equal(before, module(x))


@pytest.mark.parametrize("change", REPORTED, ids=lambda f: f.__name__)
@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize(
    ("packs", "mode"),
    [
        ("frozen", torch.no_grad),
        pytest.param("frozen", torch.inference_mode, marks=pytest.mark.slow),
        pytest.param("pack", torch.no_grad, marks=pytest.mark.slow),
        ("pack", torch.inference_mode),
    ],
)
def test_packed_layers_see_what_torch_reports(x, kind, change, packs, mode):
    module = packed_layer(kind, packs)
    with mode():
        module(x)
    assert any(PACKED in layer.__dict__ for layer in module.modules())
    change(module)
    check(kind, module, x)


@pytest.mark.parametrize("change", RELAID, ids=lambda f: f.__name__)
@pytest.mark.parametrize("activation", [None, "relu", "custom"])
@pytest.mark.parametrize("bias", [False, True])
def test_packed_layers_see_another_layout_or_shape(change, activation, bias):
    torch.manual_seed(3)
    custom = rocpy.epilogue(lambda x: torch.tanh(x) * 2) if activation == "custom" else activation
    layer, x = rt.Linear(12, 12, bias, custom).eval(), torch.randn(6, 12)
    rt.freeze(layer)
    with torch.no_grad():
        layer(x)
        assert PACKED in layer.__dict__
        change(layer)
        y = nn.functional.linear(x, layer.weight, layer.bias)
        expected = {None: y, "relu": y.relu(), "custom": torch.tanh(y) * 2}[activation]
        for _ in range(2):
            close(layer(x), expected)


@pytest.mark.parametrize("change", UNREPORTED, ids=lambda f: f.__name__)
@pytest.mark.parametrize("kind", LAYERS)
def test_debugging_finds_what_torch_does_not_report(x, kind, change, monkeypatch):
    monkeypatch.setenv("ROCPY_DEBUG", "1")
    module = packed_layer(kind, "frozen")
    with torch.no_grad():
        module(x)
    change(module)
    with pytest.warns(RocpyWarning, match="changed"), torch.no_grad():
        module(x)
    for layer in module.modules():
        if isinstance(layer, rt.Linear):
            layer.repack()
    check(kind, module, x)


def test_a_frozen_teacher_beside_a_student_that_trains(x):
    teacher, student = packed_layer("MLP", "frozen"), packed_layer("MLP", "frozen")
    for p in teacher.parameters():
        p.requires_grad_(False)
    optimizer = torch.optim.AdamW(student.parameters(), lr=0.1, fused=True)
    for _ in range(3):
        optimizer.zero_grad()
        (student(x) - teacher(x)).square().sum().backward()
        optimizer.step()
        check("MLP", teacher, x)
        check("MLP", student, x)
