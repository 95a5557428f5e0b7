# SPDX-License-Identifier: MIT
"""Tensors whose memory is not to be read, where memory is needed or beside plain ones: refusals name the operand."""

from __future__ import annotations

import pytest

import rocpy
from rocpy.errors import ClosedError, InvalidOperandError, UnsupportedError

torch = pytest.importorskip("torch")
rt = pytest.importorskip("rocpy.torch")
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore::UserWarning")]


class Tagged(torch.Tensor):
    """A subclass with memory of its own."""


class Wrapped(torch.Tensor):
    """A subclass without."""

    @staticmethod
    def __new__(cls, x):
        return torch.Tensor._make_wrapper_subclass(cls, x.shape, dtype=x.dtype)

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        raise NotImplementedError(str(function))

    def __repr__(self, **_):
        return "Wrapped"


A, B = torch.ones(32, 32), torch.ones(32, 5)
plus = rocpy.epilogue(lambda x, r: x + r)
KINDS = {
    "subclass": (lambda x: x.as_subclass(Tagged), r"Tagged, a subclass of torch\.Tensor; .*as_subclass"),
    "wrapper": (Wrapped, r"Wrapped, a subclass of torch\.Tensor that wraps other tensors; pass a plain tensor"),
    "meta": (lambda x: x.to("meta"), "it is a meta tensor, which has no memory; pass a tensor with memory"),
    "fake": (FakeTensorMode().from_tensor, "it is a fake tensor, which has no memory; pass a tensor with memory"),
}
every_kind = pytest.mark.parametrize("kind", KINDS)


@every_kind
def test_where_memory_is_needed(kind):
    make, reason = KINDS[kind]
    with pytest.raises(UnsupportedError, match=f"w: .*{reason}"):
        rocpy.Weight(make(B))
    with pytest.raises(UnsupportedError, match=f"b: .*{reason}"):
        rocpy.Matmul(A, make(B))
    with pytest.raises(UnsupportedError, match=rf"epilogue_inputs\['r'\]: .*{reason}"):
        rocpy.Matmul(A, B, epilogue=plus, epilogue_inputs={"r": make(torch.ones(5))})


@every_kind
@pytest.mark.parametrize("name", ["scale_a", "scale_b", "scale_d"])
def test_scales(kind, name):
    make, reason = KINDS[kind]
    a, number = A.to(torch.float8_e4m3fn), torch.ones(())
    scales = {"scale_a": number, "scale_b": number, name: make(number)}
    with pytest.raises(UnsupportedError, match=f"{name}: .*{reason}"):
        rocpy.matmul(a, a, **scales, dtype="float8_e4m3fn")
    if name == "scale_d":
        return
    with pytest.raises(UnsupportedError, match=f"{name}: .*{reason}"):
        rocpy.grouped_matmul(a, a[None], offsets=torch.tensor([32]), **scales)
    blocks = torch.full((32, 1), 127, dtype=torch.uint8)
    scales = {"scale_a": blocks, "scale_b": blocks.t()}
    with pytest.raises(UnsupportedError, match=f"{name}: .*{reason}"):
        rocpy.matmul(a, a, **(scales | {name: make(scales[name])}))


def test_inputs_of_epilogues():
    tagged = rocpy.matmul(A, B, epilogue=plus, epilogue_inputs={"r": torch.ones(5).as_subclass(Tagged)})
    assert torch.equal(tagged.as_subclass(torch.Tensor), A @ B + 1)
    with rocpy.runtime.Stream() as stream:
        for negated in (torch.ones(32, 5)._neg_view(), torch.full((32, 5), 1j).conj().imag):
            assert negated.is_neg()
            for keywords in ({}, {"stream": stream}):
                d = rocpy.matmul(A, B, epilogue=plus, epilogue_inputs={"r": negated}, **keywords)
                stream.synchronize()
                assert torch.equal(d, A @ B - 1)
    with pytest.raises(InvalidOperandError, match=r"epilogue_inputs\['r'\]: .*resolve_neg"):
        rocpy.Matmul(A, B, epilogue=plus, epilogue_inputs={"r": torch.ones(5)._neg_view()})


def test_a_fake_tensor_beside_real_ones():
    mode = FakeTensorMode()
    fake = mode.from_tensor
    a, b, groups, bias = A, B, B.expand(2, 32, 5), torch.ones(5)
    offsets = torch.tensor([1, 32])
    out = torch.empty(32, 5)
    inputs = {"r": fake(bias)}
    calls = {
        "b": lambda: rocpy.matmul(a, fake(b)),
        "bias": lambda: rocpy.matmul(a, b, epilogue="bias", bias=fake(bias)),
        "c": lambda: rocpy.matmul(a, b, fake(out)),
        "out": lambda: rocpy.matmul(a, b, out=fake(out)),
        "a": lambda: rocpy.matmul(fake(a), fake(b), out=out),
        "offsets": lambda: rocpy.grouped_matmul(a, groups, offsets=fake(offsets)),
        r"epilogue_inputs\['r'\]": lambda: rocpy.matmul(a, b, epilogue=plus, epilogue_inputs=inputs),
        "input": lambda: rt.linear(fake(a), b.t()),
        "weight": lambda: rt.linear(a, fake(b.t().contiguous())),
        "scales": lambda: rocpy.dequantize(torch.ones(3, 4, dtype=torch.int8), fake(torch.ones(()))),
    }
    for name, call in calls.items():
        with pytest.raises(InvalidOperandError, match=f"^{name}: a fake tensor"):
            call()
    assert rocpy.matmul(fake(a), fake(b)).shape == (32, 5)
    values, scales = rocpy.quantize(fake(a), "int8")
    assert values.dtype == torch.int8
    assert scales.fake_mode is mode


def test_a_dtensor_beside_plain_tensors(tmp_path):
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, distribute_tensor

    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    try:
        cut = distribute_tensor(B, init_device_mesh("cpu", (1,)), [Replicate()])
        with pytest.raises(InvalidOperandError, match="^a: a plain tensor, beside b, a DTensor; .*distribute_tensor"):
            rocpy.matmul(A, cut)
        for call in (rocpy.Weight, lambda x: rocpy.Matmul(A, x)):
            with pytest.raises(UnsupportedError, match=r"it is a DTensor, .*to_local\(\) or its .full_tensor\(\)"):
                call(cut)
        left = distribute_tensor(A.to(torch.int8), cut.device_mesh, [Replicate()])
        assert rocpy.matmul(left, cut.to(torch.int8))._spec.tensor_meta.dtype == torch.int32
    finally:
        dist.destroy_process_group()


def test_numbers_without_memory():
    for low in (torch.tensor(0.0, device="meta"), FakeTensorMode().from_tensor(torch.tensor(0.0))):
        for a, b in ((A, B), (A.to("meta"), B.to("meta"))):
            with pytest.raises(
                UnsupportedError, match="clamp: a bound is a tensor, and it is a .* tensor, which has no"
            ):
                rocpy.matmul(a, b, epilogue="clamp", clamp=(low, 1))
    with pytest.raises(InvalidOperandError, match="scales are on meta and values on cpu"):
        rocpy.dequantize(torch.ones(3, 4, dtype=torch.int8), torch.ones((), device="meta"))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("epilogue", [None, rocpy.epilogue(lambda x: x * 2)])
def test_a_compiled_function_sees_that_a_weight_is_closed(backend, epilogue):
    torch._dynamo.reset()
    weight = rocpy.Weight(B)
    run = torch.compile(lambda a: rocpy.matmul(a, weight, epilogue=epilogue), backend=backend)
    assert run(A).shape == (32, 5)
    weight.close()
    with pytest.raises(ClosedError, match="this Weight was closed"):
        run(A)
