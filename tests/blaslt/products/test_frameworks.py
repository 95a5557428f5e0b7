# SPDX-License-Identifier: MIT
"""Operands of numpy, torch and any DLPack producer: what comes back, and what is refused."""

from __future__ import annotations

import gc
import sys
import weakref

import ml_dtypes
import numpy as np
import pytest
from presented import skip_without

import rocpy
from rocpy.testing import evaluate
from rocpy.testing.runner import check_outputs, dtype_of, to_numpy, to_torch

TORCH = pytest.mark.torch
JAX = pytest.mark.jax


@pytest.fixture
def operands(rng):
    return rng.standard_normal((4, 5), dtype=np.float32), rng.standard_normal((5, 6), dtype=np.float32)


def within_bounds(a, b, outputs, dtype=np.float32, **options):
    for name, found in check_outputs(evaluate(a, b, **options), outputs, dtype).items():
        assert found.ok, f"{name}: {found.message}"


# ---- numpy ----


def test_numpy_gives_numpy(operands):
    d, aux = rocpy.matmul(*operands, epilogue="gelu_aux")
    for found in (d, aux["gelu_aux"]):
        assert type(found) is np.ndarray
        assert found.flags.c_contiguous
        assert found.flags.writeable
        assert found.flags.aligned
    within_bounds(*operands, (d, aux), epilogue="gelu_aux")


def test_ml_dtypes_arrays_are_operands(operands):
    a, b = (x.astype(ml_dtypes.bfloat16) for x in operands)
    d = rocpy.matmul(a, b)
    assert type(d) is np.ndarray
    assert d.dtype == ml_dtypes.bfloat16
    within_bounds(a, b, d, ml_dtypes.bfloat16)


def test_numpy_subclasses_lose_their_class_or_are_refused(operands):
    a, b = operands

    class Tagged(np.ndarray):
        pass

    within_bounds(a, b, np.asarray(rocpy.matmul(a.view(Tagged), b)))
    masked = np.ma.masked_array(a, mask=np.eye(4, 5) > 0)
    with pytest.raises((rocpy.InvalidOperandError, rocpy.UnsupportedError), match="mask"):
        rocpy.matmul(masked, b)


def test_numpy_matrix_is_no_surprise(operands):
    a, b = operands
    with pytest.warns(PendingDeprecationWarning):
        matrix = np.matrix(a)
    within_bounds(a, b, np.asarray(rocpy.matmul(matrix, b)))


def test_read_only_inputs_are_fine(operands):
    a, b = operands
    a.flags.writeable = b.flags.writeable = False
    within_bounds(a, b, rocpy.matmul(a, b))


def test_memory_mapped_inputs(operands, tmp_path):
    a, b = operands
    np.save(tmp_path / "a.npy", a)
    mapped = np.load(tmp_path / "a.npy", mmap_mode="r")
    within_bounds(a, b, np.asarray(rocpy.matmul(mapped, b)))


@pytest.mark.parametrize("value", [[[1.0, 2.0]], 3.0, None, "abc", object(), {"a": 1}])
def test_what_is_no_array_is_refused(value, operands):
    with pytest.raises(rocpy.InvalidOperandError, match=r"^a: "):
        rocpy.matmul(value, operands[1])
    with pytest.raises(rocpy.InvalidOperandError, match=r"^b: "):
        rocpy.matmul(operands[0], value)


# ---- other producers ----


class DlpackOnly:
    """An array that offers DLPack and nothing else."""

    def __init__(self, array, *, legacy=False):
        self.array = array
        self.legacy = legacy
        self.exports = 0

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __dlpack__(self, **keywords):
        self.exports += 1
        if self.legacy:
            if keywords:
                raise TypeError(f"unexpected keyword {next(iter(keywords))}")
            return self.array.__dlpack__()
        return self.array.__dlpack__(**keywords)


class InterfaceOnly:
    """An array that offers the array interface and nothing else."""

    def __init__(self, array):
        self.array = array
        self.__array_interface__ = array.__array_interface__


@pytest.mark.parametrize("legacy", [False, True])
def test_a_dlpack_producer_is_an_operand(operands, legacy):
    a, b = operands
    left, right = DlpackOnly(a, legacy=legacy), DlpackOnly(b, legacy=legacy)
    d = rocpy.matmul(left, right)
    within_bounds(a, b, np.from_dlpack(d))
    assert left.exports >= 1


def test_the_result_of_a_bare_producer_has_dlpack(operands):
    a, b = operands
    d = rocpy.matmul(DlpackOnly(a), DlpackOnly(b))
    assert hasattr(d, "__dlpack__")
    assert hasattr(d, "__dlpack_device__")
    again = rocpy.matmul(d, np.ascontiguousarray(b.T))
    within_bounds(np.from_dlpack(d), np.ascontiguousarray(b.T), np.from_dlpack(again))


def test_an_array_interface_is_an_operand(operands):
    a, b = operands
    d = rocpy.matmul(a, InterfaceOnly(b))
    within_bounds(a, b, d)


@pytest.mark.parametrize("kind", [DlpackOnly, InterfaceOnly])
def test_foreign_arrays_of_any_layout(operands, kind):
    a, b = operands
    for layout in (np.asfortranarray(b), np.repeat(b, 2, axis=1)[:, ::2], np.ascontiguousarray(b[::-1])[::-1]):
        within_bounds(a, b, rocpy.matmul(a, kind(layout)))


def test_operands_of_several_kinds_meet(operands):
    a, b = operands
    bias = np.ones(6, dtype=np.float32)
    d = rocpy.matmul(a, DlpackOnly(b), epilogue="relu_bias", bias=InterfaceOnly(bias))
    assert type(d) is np.ndarray
    within_bounds(a, b, d, epilogue="relu_bias", bias=bias)


def test_exports_are_released(operands):
    a, b = operands

    class Owner(np.ndarray):
        pass

    base = Owner(a.shape, np.float32)
    base[...] = a
    gone = weakref.ref(base)
    producer = DlpackOnly(np.asarray(base))
    rocpy.matmul(producer, b)
    del base
    gc.collect()
    assert gone() is not None
    del producer
    gc.collect()
    assert gone() is None


def test_a_producer_that_raises_is_told_about(operands):
    class Broken(DlpackOnly):
        def __dlpack__(self, **keywords):
            raise BufferError("cannot export")

    with pytest.raises((rocpy.InvalidOperandError, BufferError), match="cannot export"):
        rocpy.matmul(Broken(operands[0]), operands[1])


def test_a_capsule_of_the_wrong_kind_is_refused(operands):
    class Wrong(DlpackOnly):
        def __dlpack__(self, **keywords):
            return 42

    with pytest.raises(rocpy.InvalidOperandError, match=r"^a: "):
        rocpy.matmul(Wrong(operands[0]), operands[1])


@JAX
def test_jax_gives_jax(operands):
    import jax

    a, b = operands
    d = rocpy.matmul(jax.numpy.asarray(a), jax.numpy.asarray(b), epilogue="gelu")
    assert isinstance(d, jax.Array)
    within_bounds(a, b, np.asarray(d), epilogue="gelu")
    with pytest.raises(rocpy.InvalidOperandError, match="out"):
        rocpy.matmul(a, b, out=jax.numpy.zeros((4, 6)))


def test_importing_rocpy_imports_no_framework(run_python):
    done = run_python(
        "import sys, rocpy; print([m for m in ('torch', 'jax', 'numba', 'rocm', 'cupy') if m in sys.modules])"
    )
    assert done.stdout.strip() == "[]"


# ---- torch ----


@TORCH
@pytest.mark.parametrize("name", ["float32", "float64", "float16", "bfloat16"])
def test_torch_gives_torch(operands, torch, name):
    a, b = (x.astype(dtype_of(name)) for x in operands)
    d, aux = rocpy.matmul(to_torch(a), to_torch(b), epilogue="relu_aux")
    for found in (d, aux["relu_aux"]):
        assert type(found) is torch.Tensor
        assert found.dtype == getattr(torch, name)
        assert found.device == torch.device("cpu")
        assert found.is_contiguous()
        assert not found.requires_grad
    within_bounds(a, b, (d, aux), dtype_of(name), epilogue="relu_aux")
    assert d.untyped_storage().nbytes() >= d.nbytes
    d += 1


@TORCH
def test_the_first_operand_names_the_framework(operands, torch):
    a, b = operands
    assert type(rocpy.matmul(a, torch.from_numpy(b))) is np.ndarray
    assert type(rocpy.matmul(torch.from_numpy(a), b)) is torch.Tensor


@TORCH
def test_torch_out_counts_as_written(operands, torch):
    a, b = (torch.from_numpy(x) for x in operands)
    out = torch.empty(4, 6)
    before = out._version
    assert rocpy.matmul(a, b, out=out) is out
    assert out._version > before
    within_bounds(*operands, out)
    versions = (a._version, b._version)
    rocpy.matmul(a, b, out=out)
    assert (a._version, b._version) == versions


@TORCH
def test_torch_views_and_vectors(operands, torch):
    a, b = operands
    within_bounds(a, b, rocpy.matmul(torch.from_numpy(np.asfortranarray(a)), torch.from_numpy(b)))
    wide = torch.from_numpy(np.repeat(a, 2, axis=1))[:, ::2]
    within_bounds(a, b, rocpy.matmul(wide, torch.from_numpy(b)))
    batched = torch.from_numpy(a).expand(3, 4, 5)
    within_bounds(np.broadcast_to(a, (3, 4, 5)), b, rocpy.matmul(batched, torch.from_numpy(b)))
    scalar = rocpy.matmul(torch.from_numpy(a[0]), torch.from_numpy(a[0]))
    assert scalar.shape == ()


@TORCH
def test_parameters_are_operands_without_grad_mode(operands, torch):
    a, b = operands
    weight = torch.nn.Parameter(torch.from_numpy(b))
    with torch.no_grad():
        d = rocpy.matmul(torch.from_numpy(a), weight)
    assert type(d) is torch.Tensor
    within_bounds(a, b, d)


@TORCH
@pytest.mark.parametrize("place", ["a", "b", "c", "bias"])
def test_a_gradient_is_never_dropped(operands, torch, place):
    a, b = (torch.from_numpy(x) for x in operands)
    arrays = {"a": a, "b": b, "c": torch.zeros(4, 6), "bias": torch.zeros(6)}
    arrays[place].requires_grad_()

    def call():
        return rocpy.matmul(arrays["a"], arrays["b"], arrays["c"], epilogue="bias", bias=arrays["bias"])

    call().sum().backward()
    assert arrays[place].grad.abs().sum() > 0
    with torch.no_grad():
        assert not call().requires_grad
    with torch.inference_mode():
        call()


@TORCH
def test_out_that_requires_grad_is_refused(operands, torch):
    a, b = (torch.from_numpy(x) for x in operands)
    with pytest.raises((rocpy.UnsupportedError, rocpy.InvalidOperandError), match="grad"):
        rocpy.matmul(a, b, out=torch.empty(4, 6, requires_grad=True))


@TORCH
def test_a_gradient_flows_through_the_history_of_an_operand(operands, torch):
    a, b = (torch.from_numpy(x) for x in operands)
    hidden = (a.requires_grad_() * 2).transpose(0, 1)
    rocpy.matmul(hidden, b[:4]).sum().backward()
    torch.testing.assert_close(a.grad, 2 * b[:4].sum(1)[:, None].expand(4, 5))


@TORCH
def test_lazy_negation_is_resolved_or_refused(operands, torch):
    a, b = operands
    lazy = torch.complex(torch.zeros(4, 5), torch.from_numpy(a)).conj().imag
    assert lazy.is_neg()
    try:
        d = rocpy.matmul(lazy, torch.from_numpy(b))
    except rocpy.UnsupportedError:
        return
    within_bounds(-a, b, d)


@TORCH
def test_complex_and_conjugate_tensors(torch):
    skip_without("complex64")
    a = torch.complex(torch.randn(3, 3), torch.randn(3, 3))
    for x in (a, a.conj(), a.mH):
        for y in (a, a.conj(), a.mH):
            expected = x.resolve_conj().to(torch.complex128) @ y.resolve_conj().to(torch.complex128)
            torch.testing.assert_close(rocpy.matmul(x, y), expected.to(torch.complex64))


@TORCH
def test_fake_and_meta_tensors_give_their_kind(torch):
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

    with FakeTensorMode():
        fake = torch.empty(4, 4)
    meta = torch.empty(4, 4, device="meta")
    assert type(rocpy.matmul(fake, fake)) is FakeTensor
    d, aux = rocpy.matmul(meta, meta, epilogue="gelu_aux")
    assert d.is_meta
    assert aux["gelu_aux"].shape == d.shape == (4, 4)
    real = torch.ones(4, 4)
    for ghost in (fake, meta):
        for args in ((real, ghost), (ghost, real)):
            with pytest.raises(rocpy.InvalidOperandError, match=r"device|fake tensor"):
                rocpy.matmul(*args)


@TORCH
def test_vmap_is_a_batch(torch):
    a, b = torch.randn(3, 4, 5), torch.randn(5, 6)
    torch.testing.assert_close(torch.vmap(lambda x: rocpy.matmul(x, b))(a), a @ b)


@TORCH
def test_functorch_grad(torch):
    a, b = torch.randn(4, 5), torch.randn(5, 6)
    found = torch.func.grad(lambda x: rocpy.matmul(x, b).sum())(a)
    torch.testing.assert_close(found, b.sum(1).expand(4, 5))


@TORCH
def test_autocast_is_not_ignored(operands, torch):
    a, b = (torch.from_numpy(x) for x in operands)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        try:
            d = rocpy.matmul(a, b)
        except rocpy.UnsupportedError:
            return
    assert d.dtype == torch.bfloat16


@TORCH
def test_inference_tensors(operands, torch):
    with torch.inference_mode():
        a, b = (torch.from_numpy(x) + 0 for x in operands)
        assert a.is_inference()
        d = rocpy.matmul(a, b)
        out = torch.empty(4, 6)
        rocpy.matmul(a, b, out=out)
    within_bounds(*operands, d)
    within_bounds(*operands, out)
    within_bounds(*operands, rocpy.matmul(a, b))


@TORCH
def test_tensor_subclasses_are_refused_or_unwrapped(operands, torch):
    class Tagged(torch.Tensor):
        pass

    class Wrapping(torch.Tensor):
        @staticmethod
        def __new__(cls, inner):
            return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

        @classmethod
        def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
            raise NotImplementedError(function)

    a, b = (torch.from_numpy(x) for x in operands)
    try:
        d = rocpy.matmul(a.as_subclass(Tagged), b)
    except (rocpy.UnsupportedError, rocpy.InvalidOperandError):
        pass
    else:
        within_bounds(*operands, to_numpy(d))
    with pytest.raises((NotImplementedError, rocpy.InvalidOperandError)):
        rocpy.matmul(Wrapping(a), b)


@TORCH
def test_sparse_quantized_and_nested_tensors_are_refused(torch):
    dense = torch.eye(4)
    odd = [dense.to_sparse(), torch.ones(4, 4, dtype=torch.int32)]
    for operand in odd:
        with pytest.raises((rocpy.UnsupportedError, rocpy.InvalidOperandError)):
            rocpy.matmul(operand, operand)


@TORCH
def test_torch_memory_is_released(torch):
    a = torch.ones(8, 8)
    storage = weakref.ref(a)
    d = rocpy.matmul(a, a)
    del a
    gc.collect()
    assert storage() is None
    assert torch.equal(d, torch.full((8, 8), 8.0))


def test_refcounts_do_not_grow(operands):
    a, b = operands
    out = np.empty((4, 6), dtype=np.float32)
    bias = np.ones(6, dtype=np.float32)
    watched = (a, b, out, bias)
    rocpy.matmul(a, b, epilogue="relu_bias", bias=bias, out=out)
    before = [sys.getrefcount(item) for item in watched]
    for _ in range(200):
        rocpy.matmul(a, b, epilogue="relu_bias", bias=bias, out=out)
        rocpy.matmul(a, b)
    assert [sys.getrefcount(item) for item in watched] == before
