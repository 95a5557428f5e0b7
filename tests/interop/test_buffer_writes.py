# SPDX-License-Identifier: MIT
"""Writes through a Buffer over a framework's array: autograd notices them, and jax's arrays cannot be written."""

import numpy as np
import pytest

import rocpy
from rocpy.errors import InvalidOperandError

N = 8
ONES = np.ones((N, N), np.float32)


def product(out):
    rocpy.matmul(ONES, ONES, out=out)


def planned(out):
    with rocpy.Matmul(ONES, ONES) as plan:
        plan.execute(out=out)


def composed(out):
    rocpy.matmul(ONES, ONES, epilogue=rocpy.epilogue(lambda x: x * 2), out=out)


def copied_to(out):
    with rocpy.Buffer((N, N), "float32") as source:
        source.fill(0)
        source.copy_to(out)


def kernel(out):
    coop = pytest.importorskip("rocpy.cooperative")
    pytest.importorskip("numba")

    @coop.jit
    def fill(o):
        o[coop.threadIdx.x, 0] = 3

    fill[1, N](out)


WRITES = {
    "fill": lambda out: out.fill(0),
    "copy_from": lambda out: out.copy_from(ONES * 3),
    "copy_to": copied_to,
    "matmul": product,
    "Matmul": planned,
    "epilogue": composed,
    "grouped_matmul": lambda out: rocpy.grouped_matmul([ONES], [ONES], out=[out]),
    "kernel": kernel,
}
READS = {
    "to_numpy": lambda x: x.to_numpy(),
    "copy_to": lambda x: x.copy_to(np.empty((N, N), np.float32)),
    "operand": lambda x: rocpy.matmul(x, ONES),
    "export": np.from_dlpack,
}


@pytest.fixture(autouse=True)
def cpu_memory():
    if not rocpy.platform.current().host_memory:
        pytest.skip("the device cannot access the memory of CPU arrays")


@pytest.mark.torch
@pytest.mark.parametrize("write", WRITES)
def test_autograd_notices_what_is_written_through_a_buffer(torch, write):
    w = torch.ones((N, N), requires_grad=True)
    saved = w * 2
    result = (saved * saved).sum()
    WRITES[write](rocpy.Buffer.from_dlpack(saved.detach()))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.backward()


@pytest.mark.torch
@pytest.mark.parametrize("read", READS)
def test_reads_raise_no_version(torch, read):
    tensor = torch.ones((N, N))
    before = tensor._version
    READS[read](rocpy.Buffer.from_dlpack(tensor))
    assert tensor._version == before


@pytest.mark.torch
@pytest.mark.parametrize("write", WRITES)
def test_tensors_without_versions_can_be_written(torch, write):
    with torch.inference_mode():
        tensor = torch.ones((N, N))
    buffer = rocpy.Buffer.from_dlpack(tensor)
    WRITES[write](buffer)
    assert tensor[0, 0] != 1
    buffer.close()
    with pytest.raises(rocpy.ClosedError):
        buffer.fill(1)


@pytest.mark.jax
@pytest.mark.parametrize("write", WRITES)
def test_the_memory_of_an_immutable_array_cannot_be_written(write):
    jnp = pytest.importorskip("jax.numpy")
    array = jnp.ones((N, N))
    buffer = rocpy.Buffer.from_dlpack(array)
    assert buffer.read_only
    with pytest.raises((rocpy.RocpyError, TypeError), match="read-?only|cannot modify|Cannot modify"):
        WRITES[write](buffer)
    assert (np.asarray(array) == 1).all()
    assert (buffer.to_numpy() == 1).all()


@pytest.mark.parametrize("wrong", ["a legacy capsule of it", "an export that fails"])
def test_what_is_not_exported_is_refused(wrong):
    class Fails:
        def __dlpack__(self, **more):
            raise BufferError("not today")

        def __dlpack_device__(self):
            return (1, 0)

    class Wrong(Fails):
        def __dlpack__(self, **more):
            return 3

    with pytest.raises(InvalidOperandError, match="array: "):
        rocpy.Buffer.from_dlpack(Fails() if wrong == "an export that fails" else Wrong())


@pytest.mark.torch
def test_a_tensor_that_requires_a_gradient_is_refused(torch):
    with pytest.raises(InvalidOperandError, match="array: Tensor .*gradient"):
        rocpy.Buffer.from_dlpack(torch.ones(3, requires_grad=True))
