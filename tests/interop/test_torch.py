# SPDX-License-Identifier: MIT
"""torch tensors as operands: what is taken as it is, what is resolved, what must not be read behind torch's back."""

import copy
import gc
import io
import threading

import numpy as np
import pytest

from rocpy._operand import TorchLayerRequired, allocate_like, describe, set_torch_dispatcher, torch_dispatcher, touch
from rocpy._producers.torch_tensors import shortcuts
from rocpy.errors import InvalidOperandError, InvalidProblemError, OutOfMemoryError, UnsupportedError

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True, params=[True, False], ids=["shortcuts", "by torch's functions"])
def _shortcuts(request):
    describe(torch.zeros(1))
    assert shortcuts(request.param) == (request.param,) * 3
    yield
    shortcuts(True)


NAMES = [
    "float32",
    "float64",
    "float16",
    "bfloat16",
    "complex64",
    "complex128",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "float8_e4m3fn",
    "float8_e5m2",
    "float8_e4m3fnuz",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
]


@pytest.mark.parametrize("name", NAMES)
def test_describes_and_allocates_every_type(name):
    x = torch.zeros((3, 4), dtype=getattr(torch, name))
    seen = describe(x)
    assert (seen["data"], seen["dtype"], seen["shape"], seen["strides"]) == (x.data_ptr(), name, (3, 4), (4, 1))
    assert (seen["provider"], seen["read_only"], seen["copied"], seen["device_type"]) == ("torch", False, False, 1)
    assert seen["kept"] is x
    made = allocate_like(x, (2, 5))
    assert type(made) is torch.Tensor
    assert (made.dtype, tuple(made.shape), made.is_contiguous(), made.requires_grad) == (x.dtype, (2, 5), True, False)


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.T,
        lambda x: x[1:, ::2],
        lambda x: x[0],
        lambda x: x[0, 0],
        lambda x: x[None].expand(5, -1, -1),
        lambda x: x[:, :0],
        lambda x: torch.as_strided(x, (2, 2), (1, 1)),
    ],
)
def test_views_go_in_without_a_copy(view):
    x = view(torch.randn(6, 8))
    seen = describe(x)
    assert seen["kept"] is x
    assert (seen["shape"], seen["strides"]) == (tuple(x.shape), tuple(x.stride()))
    assert seen["data"] == x.data_ptr() or x.numel() == 0


def test_parameters_and_buffers_are_plain():
    layer = torch.nn.Linear(4, 4)
    with torch.no_grad():
        assert describe(layer.weight)["kept"] is layer.weight
    assert describe(torch.nn.Buffer(torch.zeros(2)))["provider"] == "torch"


def test_gradients_are_never_dropped():
    leaf = torch.randn(4, 4, requires_grad=True)
    for x in (leaf, leaf * 2, torch.nn.Parameter(torch.zeros(2)), leaf.T):
        with pytest.raises(TorchLayerRequired, match=r"weight: .*requires grad.*no_grad.*detach"):
            describe(x, "weight")
        with torch.no_grad():
            assert describe(x)["kept"] is x
        with torch.inference_mode():
            assert describe(x)["kept"] is x
        assert describe(x.detach())["copied"] is False
    with torch.no_grad(), torch.enable_grad(), pytest.raises(TorchLayerRequired):
        describe(leaf)


def _deep_copy(leaf):
    return copy.deepcopy(leaf)


def _swapped(leaf):
    plain = torch.zeros(4, 4)
    torch.utils.swap_tensors(plain, leaf)
    return plain


def _loaded(leaf):
    file = io.BytesIO()
    torch.save(leaf, file)
    file.seek(0)
    return torch.load(file)


def _written_from(leaf):
    plain = torch.zeros(4, 4)
    with torch.enable_grad():
        plain.copy_(leaf)
    return plain


def _on_after_off(leaf):
    return leaf.requires_grad_(False).requires_grad_(True)


def _of_another_thread(leaf):
    made = []
    thread = threading.Thread(target=lambda: made.append(leaf.detach().clone().requires_grad_()))
    thread.start()
    thread.join()
    return made[0]


@pytest.mark.parametrize(
    "made",
    [
        lambda leaf: leaf,
        lambda leaf: leaf.detach().requires_grad_(),
        lambda leaf: leaf.data.requires_grad_(True),
        lambda leaf: leaf * 2,
        lambda leaf: leaf[:2],
        lambda leaf: leaf.t(),
        lambda leaf: leaf.view(16)[:4].view(2, 2),
        lambda leaf: torch.nn.Parameter(leaf.detach()),
        lambda leaf: torch.nn.Linear(4, 4).weight,
        _deep_copy,
        _swapped,
        _loaded,
        _written_from,
        _on_after_off,
        _of_another_thread,
    ],
)
def test_every_way_to_require_a_gradient_is_noticed(made):
    array = made(torch.randn(4, 4, requires_grad=True))
    assert array.requires_grad
    with pytest.raises(TorchLayerRequired, match="requires grad"):
        describe(array)
    with torch.no_grad():
        assert describe(array)["data"] == array.data_ptr()
    with pytest.raises(TorchLayerRequired, match="requires grad"):
        describe(array)


@pytest.mark.parametrize(
    "made",
    [
        lambda leaf: leaf.detach(),
        lambda leaf: leaf.data,
        lambda leaf: leaf.requires_grad_(False),
        lambda leaf: torch.nn.Parameter(leaf.detach(), requires_grad=False),
        lambda leaf: torch.no_grad()(lambda: leaf * 2)(),
        lambda leaf: torch.zeros(4, 4).copy_(leaf.detach()),
    ],
)
def test_what_requires_no_gradient_goes_in(made):
    array = made(torch.randn(4, 4, requires_grad=True))
    assert not array.requires_grad
    assert describe(array)["data"] == array.data_ptr()
    with pytest.raises(TorchLayerRequired, match="requires grad"):
        describe(array.requires_grad_(True))


def test_lazy_negation_and_conjugation_are_resolved():
    z = torch.randn(3, 3, dtype=torch.complex64)
    imaginary = z.conj().imag
    assert imaginary.is_neg()
    seen = describe(imaginary)
    assert seen["copied"] is True
    assert torch.equal(seen["kept"], -z.imag)
    assert seen["data"] == seen["kept"].data_ptr() != imaginary.data_ptr()
    seen = describe(z.conj())
    assert seen["copied"] is True
    assert not seen["kept"].is_conj()
    assert torch.equal(seen["kept"], z.conj())
    assert torch.equal(describe(z.mH)["kept"], z.mH)
    for lazy in (imaginary, z.conj()):
        with pytest.raises(InvalidOperandError, match=r"out: .*cannot be written"):
            describe(lazy, "out", output=True)


def test_zero_tensors_are_filled():
    zeros = torch._efficientzerotensor((2, 3))
    seen = describe(zeros)
    assert seen["copied"] is True
    assert seen["data"] != 0
    assert torch.equal(seen["kept"], torch.zeros(2, 3))


def test_misaligned_memory_is_copied():
    raw = bytearray(64)
    x = torch.frombuffer(memoryview(raw)[1:33], dtype=torch.float32)
    seen = describe(x)
    assert seen["copied"] is True
    assert seen["data"] % 4 == 0


@pytest.mark.parametrize("lazy", ["", "conj", "neg"])
@pytest.mark.parametrize("shape", [(3, 5), (5, 3)])
@pytest.mark.parametrize("dtype", ["complex128", "complex64", "float64", "bfloat16"])
def test_misaligned_matrices_are_copied(dtype, shape, lazy):
    values = torch.arange(15).reshape(3, 5).to(getattr(torch, dtype))
    values = values if shape == (3, 5) else values.T
    raw = torch.zeros(15 * values.element_size() + 1, dtype=torch.uint8)
    raw[1:] = (values if shape == (3, 5) else values.T).contiguous().view(torch.uint8).flatten()
    unaligned = torch.frombuffer(raw.numpy(), dtype=values.dtype, offset=1).reshape(3, 5)
    unaligned = unaligned if shape == (3, 5) else unaligned.T
    if lazy == "conj":
        unaligned, values = unaligned.conj(), values.conj()
    elif lazy == "neg":
        unaligned, values = torch._neg_view(unaligned), torch._neg_view(values)
    seen = describe(unaligned)
    assert seen["copied"] is True
    assert seen["data"] % values.element_size() == 0
    assert torch.equal(seen["kept"], values)
    assert seen["kept"].stride() == values.stride()
    with pytest.raises(InvalidOperandError, match=r"out: .*cannot be written"):
        describe(unaligned, "out", output=True)


class Subclass(torch.Tensor):
    pass


def test_subclasses_need_the_torch_layer():
    with pytest.raises(TorchLayerRequired, match=r"x: it is a .*Subclass, a subclass of torch.Tensor; .*as_subclass"):
        describe(torch.zeros(2).as_subclass(Subclass), "x")


def test_fake_and_meta_tensors_need_the_torch_layer():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode() as mode:
        fake = torch.zeros(2, 2)
    with pytest.raises(TorchLayerRequired, match="fake tensor"):
        describe(fake)
    real = torch.ones(2)
    with mode, pytest.raises(TorchLayerRequired, match="dispatch mode"):
        describe(real)
    with pytest.raises(TorchLayerRequired, match="meta tensor, which has no memory"):
        describe(torch.zeros(2, 2, device="meta"))
    assert describe(real)["kept"] is real


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_transforms_need_the_torch_layer():
    x = torch.randn(3, 4)
    other = torch.randn(4)
    wrapped = []

    def probe(row):
        wrapped.append(row)
        for operand in (row, other):
            with pytest.raises(TorchLayerRequired, match=r"torch\.func transform"):
                describe(operand)
        return row.sum()

    torch.vmap(probe)(x)
    torch.func.grad(probe)(x[0])
    torch.func.jvp(probe, (x[0],), (x[0],))
    assert len(wrapped) == 3
    assert describe(other)["kept"] is other
    for dead in wrapped:
        with pytest.raises(TorchLayerRequired):
            describe(dead)


def test_functional_tensors_need_the_torch_layer():
    with pytest.raises(UnsupportedError):
        describe(torch._to_functional_tensor(torch.zeros(2)))


def test_make_fx_is_not_bypassed():
    from torch.fx.experimental.proxy_tensor import make_fx

    def traced(x):
        with pytest.raises(TorchLayerRequired):
            describe(x)
        with pytest.raises(TorchLayerRequired, match="dispatch mode"):
            describe(constant)
        return x + 1

    constant = torch.ones(2)
    make_fx(traced)(torch.zeros(2))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_jit_trace_is_not_bypassed():
    def traced(x):
        with pytest.raises(TorchLayerRequired, match=r"torch\.jit\.trace"):
            describe(x)
        return x + 1

    torch.jit.trace(traced, (torch.zeros(2),), check_trace=False)


def test_autocast_is_not_bypassed():
    x = torch.randn(2, 2)
    for _ in range(2):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            with pytest.raises(TorchLayerRequired, match="autocast is on for cpu"):
                describe(x)
            with torch.autocast("cpu", enabled=False):
                assert describe(x)["kept"] is x
            with pytest.raises(TorchLayerRequired, match="autocast"):
                describe(x)
        assert describe(x)["kept"] is x


def test_states_are_told_apart_in_every_order():
    x = torch.randn(2, 2)
    states = {
        "plain": torch.enable_grad,
        "inference": torch.inference_mode,
        "no_grad": torch.no_grad,
        "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    }
    for first, enter_first in states.items():
        for second, enter_second in states.items():
            with enter_first(), enter_second():
                if "autocast" in (first, second):
                    with pytest.raises(TorchLayerRequired):
                        describe(x)
                else:
                    assert describe(x)["kept"] is x


def test_state_of_another_thread_does_not_count():
    x = torch.randn(2, 2)
    inside, leave = threading.Event(), threading.Event()
    found = []

    def other():
        with torch.autocast("cpu", dtype=torch.bfloat16):
            try:
                describe(x)
            except TorchLayerRequired as error:
                found.append(error)
            inside.set()
            leave.wait(10)

    thread = threading.Thread(target=other)
    thread.start()
    assert inside.wait(10)
    assert describe(x)["kept"] is x
    leave.set()
    thread.join()
    assert len(found) == 1


def test_function_modes_do_not_disturb():
    x = torch.randn(2, 2)
    with torch.device("cpu"):
        assert describe(x)["kept"] is x


@pytest.mark.filterwarnings("ignore:.*[Ss]parse.*")
@pytest.mark.filterwarnings("ignore:.*nested.*")
@pytest.mark.filterwarnings("ignore:.*quantiz.*")
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: torch.eye(2).to_sparse(), "torch.sparse_coo.*to_dense"),
        (lambda: torch.eye(2).to_sparse_csr(), "torch.sparse_csr.*to_dense"),
        (lambda: torch.eye(2).to_mkldnn(), "mkldnn.*to_dense"),
        (lambda: torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)]), "nested"),
        (
            lambda: torch.quantize_per_tensor(torch.zeros(2), 0.1, 0, torch.quint8),
            r"quantized.*pass its .dequantize\(\)$",
        ),
        (lambda: torch.quantize_per_tensor(torch.zeros(2), 0.1, 0, torch.qint8), r"quantized.* or .int_repr\(\)$"),
        (lambda: torch.zeros(2, dtype=torch.bool), "bool"),
        (lambda: torch.zeros((1,) * 33), "above 32"),
    ],
)
def test_other_tensors_are_refused_by_name(make, message):
    with pytest.raises(InvalidOperandError, match=f"weight: .*{message}"):
        describe(make(), "weight")


def test_inference_tensors_go_in_but_out_only_where_torch_allows():
    with torch.inference_mode():
        x = torch.zeros(2, 2)
        assert describe(x, output=True)["kept"] is x
    assert describe(x)["kept"] is x
    with pytest.raises(InvalidOperandError, match=r"inference tensor.*clone"):
        describe(x, "out", output=True)


def test_written_raises_the_version_counter():
    x = torch.zeros(2, 2)
    before = x._version
    touch(x)
    assert x._version == before + 1
    weight = torch.ones(2, 2, requires_grad=True)
    y = (weight * x).sum()
    touch(x)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()
    with torch.inference_mode():
        touch(torch.zeros(2))


def test_outputs_that_share_elements_are_refused():
    with pytest.raises(InvalidOperandError, match="share memory"):
        describe(torch.zeros(1, 3).expand(2, 3), "out", output=True)
    assert describe(torch.zeros(4, 4)[::2, ::2].T, "out", output=True)["shape"] == (2, 2)


def test_results_are_real_tensors():
    made = allocate_like(torch.zeros(1), (3, 5), "float64")
    made.copy_(torch.arange(15.0).reshape(3, 5))
    assert made.data_ptr() % 64 == 0
    assert torch.equal(made @ torch.eye(5, dtype=torch.float64), made)
    made.requires_grad_()
    (made * 2).sum().backward()
    assert torch.equal(made.grad, torch.full((3, 5), 2.0, dtype=torch.float64))
    assert np.shares_memory(made.detach().numpy(), made.detach().numpy())
    view = made.detach()[1:]
    del made
    gc.collect()
    assert view[0, 0] == 5


@pytest.mark.parametrize("shape", [(0, 4), (), (1,), (2, 0, 3)])
def test_results_of_every_extent(shape):
    assert tuple(allocate_like(torch.zeros(1), shape).shape) == shape


def test_results_too_large_are_refused():
    with pytest.raises((OutOfMemoryError, InvalidProblemError)):
        allocate_like(torch.zeros(1), (2**40, 2**10))
    with pytest.raises(InvalidProblemError, match="address space"):
        allocate_like(torch.zeros(1), (2**40, 2**40))


def test_operands_are_not_leaked():
    import sys

    x = torch.zeros(2, 2)
    counts = sys.getrefcount(x), sys.getrefcount(torch.Tensor)
    for _ in range(100):
        describe(x)
        describe(x, output=True)
        with pytest.raises(TorchLayerRequired):
            describe(x.requires_grad_(True))
        x.requires_grad_(False)
    assert (sys.getrefcount(x), sys.getrefcount(torch.Tensor)) == counts


def test_dispatcher_can_be_registered():
    with pytest.raises(InvalidOperandError):
        set_torch_dispatcher(1)
    registered = torch_dispatcher()
    try:
        set_torch_dispatcher(print)
        assert torch_dispatcher() is print
        set_torch_dispatcher(None)
        assert torch_dispatcher() is None
    finally:
        set_torch_dispatcher(registered)
